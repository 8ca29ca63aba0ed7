// Collectives among D buffers of this process, compared with a plain copy at memory bandwidth. The clock frequency
// varies from one second to the next, so each iteration runs both: read the column `of_copy`, not the seconds.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <benchmark/benchmark.h>

#include <tessera/runtime/memory/buffer.hpp>
#include <tessera/runtime/threads/team.hpp>
#include <tessera/runtime/transport/collectives.hpp>
#include <tessera/runtime/transport/reshard_plan.hpp>

namespace {

using namespace tessera::runtime;
using tessera::Box;
using tessera::Buffer;
using tessera::BufferPtr;
using tessera::DType;
using tessera::Reduction;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Shards of an array of floats, in memory that is already paged in.
struct Shards {
  std::vector<BufferPtr> buffers;
  std::vector<Box> boxes;
  std::vector<void*> data;

  void add(std::int64_t begin, std::int64_t end) {
    buffers.push_back(Buffer::allocate((end - begin) * 4));
    boxes.push_back({{begin}, {end}});
    data.push_back(buffers.back()->data());
    std::fill_n(buffers.back()->as<float>(), end - begin, 1.0f);
  }
  std::vector<const void*> const_data() const { return {data.begin(), data.end()}; }
};

/// A copy by all threads.
class Copy {
 public:
  explicit Copy(std::int64_t bytes) : bytes_(bytes), from_(Buffer::allocate(bytes)), to_(Buffer::allocate(bytes)) {
    std::memset(from_->data(), 1, static_cast<std::size_t>(bytes));
    std::memset(to_->data(), 1, static_cast<std::size_t>(bytes));
  }
  void run() {
    constexpr std::int64_t line = 4096;
    tessera::parallel_ranges(bytes_ / line, tessera::Cost::bytes(2 * line), [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to_->as<char>() + begin * line, from_->as<char>() + begin * line,
                  static_cast<std::size_t>((end - begin) * line));
    });
    benchmark::ClobberMemory();
  }
  std::int64_t traffic() const { return 2 * bytes_; }

 private:
  std::int64_t bytes_;
  BufferPtr from_, to_;
};

void measure(benchmark::State& state, const ReshardPlan& plan, Shards& out, const Shards& in, std::int64_t bytes) {
  const auto sources = in.const_data();
  Copy copy(bytes);
  const int repeats = bytes <= 4096 ? 100 : 1;
  double run_time = 0, copy_time = 0;
  for (auto _ : state) {
    auto start = Clock::now();
    for (int i = 0; i < repeats; ++i) plan.run(out.data, sources);
    const double elapsed = seconds_since(start) / repeats;
    state.SetIterationTime(elapsed);
    run_time += elapsed;
    start = Clock::now();
    for (int i = 0; i < repeats; ++i) copy.run();
    copy_time += seconds_since(start) / repeats;
  }
  const double count = static_cast<double>(state.iterations());
  const double speed = static_cast<double>(plan.bytes()) * count / run_time;
  const double copy_speed = static_cast<double>(copy.traffic()) * count / copy_time;
  state.counters["GB/s"] = speed / 1e9;
  state.counters["copy_GB/s"] = copy_speed / 1e9;
  state.counters["of_copy"] = speed / copy_speed;
}

std::vector<int> up_to(std::int64_t n) {
  std::vector<int> list;
  for (int i = 0; i < n; ++i) list.push_back(i);
  return list;
}

void declare(ReshardPlan& plan, const Shards& out, const Shards& in) {
  for (const Box& box : out.boxes) plan.add_destination(box);
  for (const Box& box : in.boxes) plan.add_source(box);
}

// D partial values are reduced to one result, which all devices share.
void all_reduce(benchmark::State& state) {
  const std::int64_t devices = state.range(0), bytes = state.range(1);
  Shards in, out;
  for (int i = 0; i < devices; ++i) in.add(0, bytes / 4);
  out.add(0, bytes / 4);
  ReshardPlan plan(DType::f32, Reduction::sum, &tessera::kernels::strided_reduce_as<>);
  declare(plan, out, in);
  plan.fill(up_to(1), up_to(devices), static_cast<int>(devices));
  measure(state, plan, out, in, bytes);
}

// all_reduce as a function that also makes its plan; each device gets a separate copy.
void all_reduce_private(benchmark::State& state) {
  const std::int64_t devices = state.range(0), bytes = state.range(1);
  Shards in, out;
  std::vector<MemberArray> in_parts, out_parts;
  for (int i = 0; i < devices; ++i) {
    in.add(0, bytes / 4);
    out.add(0, bytes / 4);
    in_parts.push_back({in.data.back(), {bytes / 4}});
    out_parts.push_back({out.data.back(), {bytes / 4}});
  }
  const Group group{in_parts, out_parts};
  for (auto _ : state) {
    const auto start = Clock::now();
    tessera::runtime::all_reduce(DType::f32, Reduction::sum, std::span(&group, 1));
    state.SetIterationTime(seconds_since(start));
  }
}

// D partial values are reduced to D shards.
void reduce_scatter(benchmark::State& state) {
  const std::int64_t devices = state.range(0), bytes = state.range(1), chunk = bytes / 4 / devices;
  Shards in, out;
  for (int i = 0; i < devices; ++i) in.add(0, bytes / 4);
  for (int i = 0; i < devices; ++i) out.add(i * chunk, (i + 1) * chunk);
  ReshardPlan plan(DType::f32, Reduction::sum, &tessera::kernels::strided_reduce_as<>);
  declare(plan, out, in);
  plan.fill(up_to(devices), up_to(devices), static_cast<int>(devices));
  measure(state, plan, out, in, bytes);
}

// D shards are gathered into one array, which all devices share.
void all_gather(benchmark::State& state) {
  const std::int64_t devices = state.range(0), bytes = state.range(1), chunk = bytes / 4 / devices;
  Shards in, out;
  for (int i = 0; i < devices; ++i) in.add(i * chunk, (i + 1) * chunk);
  out.add(0, bytes / 4);
  ReshardPlan plan(DType::f32);
  declare(plan, out, in);
  plan.fill(up_to(1), up_to(devices));
  measure(state, plan, out, in, bytes);
}

void sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"D", "bytes"})->ArgsProduct({{2, 4, 8}, {4 << 10, 1 << 20, 64 << 20}})->UseManualTime();
}
BENCHMARK(all_reduce)->Apply(sizes);
BENCHMARK(all_reduce_private)->Apply(sizes);
BENCHMARK(reduce_scatter)->Apply(sizes);
BENCHMARK(all_gather)->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
