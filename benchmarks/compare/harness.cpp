#include "harness.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <functional>
#include <new>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>

#include "probes.hpp"
#include <dlfcn.h>
#include <sys/mman.h>

#include <tessera/kernels/build_info.hpp>
#include <tessera/kernels/gemm/gemm_variant.hpp>
#include <tessera/runtime/threads/team.hpp>

namespace compare {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The median of the quotients of each round: the clock frequency changes between rounds, but hardly within a round.
double median_quotient(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> quotients;
  for (std::size_t i = 0; i < a.size(); ++i) quotients.push_back(a[i] / b[i]);
  return median(std::move(quotients));
}

/// "[0.012,0.013]"
std::string json_of(const std::vector<double>& values) {
  std::string text = "[";
  for (const double value : values) {
    char number[32];
    std::snprintf(number, sizeof number, "%s%.5g", text.size() > 1 ? "," : "", value);
    text += number;
  }
  return text + "]";
}

void check_same(const std::string& row, const std::string& name, const std::vector<float>& ours,
                const std::vector<float>& theirs) {
  if (ours.size() != theirs.size()) throw std::runtime_error(row + ": " + name + " has a result of another size");
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(theirs[i])));
    difference = std::max(difference, std::abs(static_cast<double>(ours[i]) - static_cast<double>(theirs[i])));
  }
  if (!(difference <= 1e-3 * largest))
    throw std::runtime_error(row + ": " + name + " computes something else, " + std::to_string(difference) + " of " +
                             std::to_string(largest));
}

// Seconds. A run that takes longer needs no warm-up run to wake threads and fill caches.
constexpr double long_run = 0.05;

/// The number of repeats for which the time of a run far exceeds the clock's resolution and the start of its threads.
int repeats_of(const Task& task) {
  constexpr double long_enough = 4e-3;
  if (task.seconds(1) >= long_run) return 1;
  for (int repeats = 1;;) {
    const double seconds = task.seconds(repeats);
    if (seconds >= long_enough || repeats >= 100'000) return repeats;
    repeats = static_cast<int>(repeats * std::clamp(1.2 * long_enough / std::max(seconds, 1e-9), 1.2, 10.0)) + 1;
  }
}

double processor_seconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// After a loop, threads spin and wait for the next loop, those of OpenMP for many milliseconds. So that they don't slow
// down the next contender, it starts only when all threads of the process sleep.
void settle() {
  constexpr auto nap = std::chrono::milliseconds(2);
  for (int i = 0; i < 100; ++i) {
    const double before = processor_seconds();
    std::this_thread::sleep_for(nap);
    if (processor_seconds() - before < 2e-4) return;
  }
}

}  // namespace

Harness::Harness(const Arguments& arguments, std::vector<std::string> peers)
    : arguments_(arguments), not_loaded_(std::move(peers)) {
  if (arguments_.threads == 0) arguments_.threads = tessera::parallelism();
  tessera::set_parallelism(arguments_.threads);
}

Peer* Harness::load(const std::string& name) {
  // A peer that is not installed has no module.
  const std::string path = COMPARE_PEER_DIRECTORY "/peer_" + name + ".so";
  if (!std::ifstream(path)) return nullptr;
  void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!module) throw std::runtime_error(dlerror());
  const auto make = reinterpret_cast<MakePeer*>(dlsym(module, "compare_peer"));
  if (!make) throw std::runtime_error(path + " is not a peer");
  peers_.push_back({name, std::unique_ptr<Peer>(make())});
  peers_.back().peer->set_threads(arguments_.threads);
  return peers_.back().peer.get();
}

std::string Harness::row(const std::string& name) {
  std::string full = name + "/t" + std::to_string(arguments_.threads);
  if (!std::regex_search(full, arguments_.only)) return {};
  for (const std::string& peer : std::exchange(not_loaded_, {})) load(peer);
  return full;
}

void Harness::measure(const std::string& row, const Work& work, const Task& ours,
                      const std::function<Task(Peer&)>& task_of) {
  std::vector<Contender> contenders{{"tessera", ours}};
  if (task_of)
    for (const Module& module : peers_) try {
        if (Task task = task_of(*module.peer)) contenders.push_back({module.name, std::move(task)});
      } catch (const std::exception& e) {  // as oneDNN of a bf16 product on a processor without AVX-512
        std::fprintf(stderr, "%s: %s can't run it: %s\n", row.c_str(), module.name.c_str(), e.what());
      }
  measure(row, work, std::move(contenders));
}

void Harness::measure(const std::string& row, const Work& work, const Task& ours, const std::string& other_name,
                      const Task& other) {
  measure(row, work, {{"tessera", ours}, {other_name, other}});
}

void Harness::measure(const std::string& row, const Work& work, std::vector<Contender> contenders) {
  const auto start = Clock::now();
  const std::size_t named = contenders.size();
  const Probe fma = fma_probe(arguments_.threads), copy = copy_probe(work.bytes);
  contenders.push_back({"fma", fma.task});
  contenders.push_back({"copy", copy.task});
  Probe read{{}, 0};
  if (work.bytes_read > 0) {
    read = read_probe(work.bytes_read);
    contenders.push_back({"read", read.task});
  }

  for (Contender& contender : contenders) contender.repeats = repeats_of(contender.task);
  if (contenders[0].task.result) {
    const std::vector<float> ours = contenders[0].task.result();
    for (std::size_t i = 1; i < named; ++i)
      if (contenders[i].task.result) check_same(row, contenders[i].name, ours, contenders[i].task.result());
  }

  for (int round = 0; round < arguments_.rounds; ++round) {
    if (round >= 3 && seconds_since(start) > arguments_.seconds) break;
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      Contender& contender = contenders[(i + static_cast<std::size_t>(round)) % contenders.size()];
      settle();
      // A warm-up run, since threads can take milliseconds to wake up. In a long run that doesn't matter.
      if (contender.times.empty() || contender.times.back() < long_run) contender.task.seconds(contender.repeats);
      contender.times.push_back(contender.task.seconds(contender.repeats) / contender.repeats);
    }
  }

  // The floor of each round, at the speeds that the probes had in that round.
  const std::vector<double>& ours = contenders[0].times;
  std::vector<double> floor;
  for (std::size_t round = 0; round < ours.size(); ++round) {
    floor.push_back(std::max(work.flops / fma.amount * contenders[named].times[round],
                             work.bytes / copy.amount * contenders[named + 1].times[round]));
    if (read.task)
      floor.back() = std::max(floor.back(), work.bytes_read / read.amount * contenders[named + 2].times[round]);
  }
  // What tools/bench --compare needs: how fast each round was, against the machine where a floor is known.
  std::vector<double> speeds;
  for (std::size_t round = 0; round < ours.size(); ++round)
    speeds.push_back((floor[round] > 0 ? floor[round] : 1.0) / ours[round]);
  const std::vector<double>& probe = contenders[named].times;
  const auto [quickest, slowest] = std::minmax_element(probe.begin(), probe.end());
  const double spread = (*slowest - *quickest) / median(probe);
  const auto print = [&](const char* peer, double theirs, double ratio) {
    std::printf("{\"name\": \"%s\", \"peer\": \"%s\", \"ours\": %.9g, \"theirs\": %.9g, \"ratio\": %.5g, "
                "\"floor\": %.9g, \"share\": %.5g, \"fma\": %.5g, \"copy\": %.5g, \"rounds\": %zu, "
                "\"spread\": %.3g, \"speeds\": %s}\n",
                row.c_str(), peer, median(ours), theirs, ratio, median(floor), median_quotient(floor, ours),
                fma.amount / median(contenders[named].times), copy.amount / median(contenders[named + 1].times),
                ours.size(), spread, json_of(speeds).c_str());
  };
  if (named == 1) print("", 0, 0);
  for (std::size_t i = 1; i < named; ++i)
    print(contenders[i].name.c_str(), median(contenders[i].times), median_quotient(contenders[i].times, ours));
  std::fflush(stdout);
}

int run(int argc, char** argv, std::vector<std::string> peers, void (*rows)(Harness&)) {
  try {
    Arguments arguments;
    for (int i = 1; i + 1 < argc; i += 2) {
      const std::string_view option = argv[i];
      const char* const value = argv[i + 1];
      if (option == "--threads")
        arguments.threads = std::atoi(value);
      else if (option == "--rounds")
        arguments.rounds = std::max(1, std::atoi(value));
      else if (option == "--seconds")
        arguments.seconds = std::atof(value);
      else if (option == "--devices")
        arguments.devices = std::atoi(value);
      else if (option == "--only")
        arguments.only = value;
      else if (option == "--memory")
        arguments.memory_of = value;
      else
        throw std::runtime_error("unknown option " + std::string(option));
    }
    const tessera::BuildInfo build = tessera::build_info();
    std::string members;  // of the kernels that this process uses
    for (const auto& member : tessera::kernels::gemm_variants)
      if (member.level == tessera::kernels::gemm_choice().variant->level)
        members += (members.empty() ? "\"" : ", \"") + std::string(member.name) + "\"";
    std::printf("{\"build\": \"%s, %s\", \"products\": \"%s\", \"variant\": \"%s\", \"variant_source\": \"%s\", "
                "\"variants\": [%s]}\n",
                std::string(build.compiler).c_str(), build.text().c_str(), std::string(build.products).c_str(),
                std::string(build.variant).c_str(), std::string(build.variant_source).c_str(), members.c_str());
    std::fflush(stdout);
    Harness harness(arguments, std::move(peers));
    rows(harness);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
    return 1;
  }
}

Array::Array(std::int64_t size, unsigned seed, float scale) : size_(static_cast<std::size_t>(size)) {
  constexpr std::size_t huge_page = std::size_t{2} << 20;
  const std::size_t bytes = (size_ * sizeof(float) + huge_page - 1) / huge_page * huge_page;
  void* const memory = std::aligned_alloc(huge_page, bytes);
  if (!memory) throw std::bad_alloc();
  madvise(memory, bytes, MADV_HUGEPAGE);
  data_.reset(static_cast<float*>(memory));
  unsigned state = seed;
  for (std::size_t i = 0; i < size_; ++i) {
    state = state * 1664525u + 1013904223u;
    data_.get()[i] = scale * (static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1);
  }
}

}  // namespace compare
