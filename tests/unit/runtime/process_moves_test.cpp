#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/mesh/processes.hpp>
#include <tessera/runtime/transport/process_moves.hpp>

namespace {

namespace ts = tessera;
namespace rt = tessera::runtime;

/// While it is alive, this process is one of several: only for planning, which sends nothing.
class AsProcess {
 public:
  AsProcess(int index, int count) : before_(ts::detail::own_process) { ts::detail::own_process = {index, count}; }
  AsProcess(const AsProcess&) = delete;
  AsProcess& operator=(const AsProcess&) = delete;
  ~AsProcess() { ts::detail::own_process = before_; }

 private:
  ts::detail::OwnProcess before_;
};

/// A redistribution of random values from one sharding to another, which reduces the axes of `parts`.
struct Redistribution {
  ts::Mesh mesh;
  ts::Shape shape;
  ts::Sharding from, to;
  ts::Reduction reduction = ts::Reduction::sum;

  rt::ReshardPlan plan() const {
    rt::ReshardPlan made(ts::DType::f32, reduction);
    const ts::ShardGrid sources(mesh, from), targets(mesh, to);
    for (int s = 0; s < sources.count(); ++s) {
      const ts::Box box = ts::shard_box(shape, from, mesh, sources.coordinates(s));
      made.add_source(box, ts::kernels::contiguous_strides(extents(box)),
                      rt::Holders(mesh, from.used_axes(), sources.coordinates(s)));
    }
    std::vector<int> destinations;
    for (int s = 0; s < targets.count(); ++s) {
      const ts::Box box = ts::shard_box(shape, to, mesh, targets.coordinates(s));
      destinations.push_back(made.add_destination(box, ts::kernels::contiguous_strides(extents(box)),
                                                  rt::Holders(mesh, to.used_axes(), targets.coordinates(s))));
    }
    ts::Sharding dims = from, parts;
    dims.unreduced = 0;
    parts.unreduced = from.unreduced;
    const ts::ShardGrid boxes(mesh, dims), addends(mesh, parts);
    std::vector<int> read;
    for (int s = 0; s < boxes.count(); ++s)
      for (int p = 0; p < addends.count(); ++p) {
        ts::Coordinates at = boxes.coordinates(s);
        for (std::size_t axis = 0; axis < at.size(); ++axis) at[axis] += addends.coordinates(p)[axis];
        read.push_back(sources.index_of(at));
      }
    made.fill(destinations, read, addends.count());
    return made;
  }
};

/// Carries messages between threads that stand for processes.
class Mailbox {
 public:
  explicit Mailbox(int processes) : sent_(static_cast<std::size_t>(processes)), arrived_(processes) {}
  void exchange(int own, std::span<const rt::Message> sent, std::span<const rt::Message> received) {
    auto& mine = sent_[static_cast<std::size_t>(own)];
    mine.assign(sent.begin(), sent.end());
    arrived_.arrive_and_wait();
    std::map<int, std::size_t> next;
    for (const rt::Message& message : received) {
      const auto& theirs = sent_[static_cast<std::size_t>(message.process)];
      std::size_t& at = next[message.process];
      while (at < theirs.size() && theirs[at].process != own) ++at;
      ASSERT_LT(at, theirs.size()) << "a message that nobody sends";
      ASSERT_EQ(theirs[at].bytes, message.bytes);
      std::memcpy(message.data, theirs[at].data, static_cast<std::size_t>(message.bytes));
      ++at;
    }
    for (int process = 0; process < static_cast<int>(sent_.size()); ++process) {
      const auto& theirs = sent_[static_cast<std::size_t>(process)];
      const auto meant = std::count_if(theirs.begin(), theirs.end(), [&](const auto& m) { return m.process == own; });
      const auto read =
          std::count_if(received.begin(), received.end(), [&](const auto& m) { return m.process == process; });
      EXPECT_EQ(meant, read) << "messages from " << process << " to " << own;
    }
    arrived_.arrive_and_wait();
  }

 private:
  std::vector<std::vector<rt::Message>> sent_;
  std::barrier<> arrived_;
};

struct Memory {
  std::vector<std::vector<float>> destinations, sources;
  std::vector<void*> to;
  std::vector<const void*> from;

  explicit Memory(const rt::ReshardPlan& plan) {
    for (int i = 0; i < plan.destination_count(); ++i)
      destinations.emplace_back(static_cast<std::size_t>(volume(extents(plan.destination_box(i)))), -77.f);
    for (int i = 0; i < plan.source_count(); ++i)
      sources.emplace_back(static_cast<std::size_t>(volume(extents(plan.source_box(i)))));
    for (auto& d : destinations) to.push_back(d.data());
    for (auto& s : sources) from.push_back(s.data());
  }
};

std::int64_t expect_same_as_one_process(const Redistribution& given, int processes, std::mt19937& random) {
  const rt::ReshardPlan alone = given.plan();
  Memory want(alone);
  std::normal_distribution<float> normal;
  for (auto& source : want.sources)
    for (float& value : source) value = normal(random);
  alone.run(want.to, want.from);

  std::vector<rt::ReshardPlan> plans;
  std::vector<rt::ProcessMoves> moves;
  std::vector<Memory> memory;
  std::int64_t sent = 0;
  for (int process = 0; process < processes; ++process) {
    const AsProcess as(process, processes);
    plans.push_back(given.plan());
    moves.emplace_back(plans.back(), process, processes);
    sent += moves.back().sent_bytes();
    memory.emplace_back(plans.back());
    Memory& own = memory.back();
    for (int s = 0; s < alone.source_count(); ++s) {
      const auto at = static_cast<std::size_t>(s);
      if (plans.back().source_holders(s).processes().contains(process))
        own.sources[at] = want.sources[at];
      else
        own.from[at] = nullptr;  // another process has it
    }
    for (int d = 0; d < alone.destination_count(); ++d)
      if (!plans.back().destination_holders(d).processes().contains(process))
        own.to[static_cast<std::size_t>(d)] = nullptr;
  }
  Mailbox mailbox(processes);
  std::vector<std::thread> threads;
  for (int process = 0; process < processes; ++process)
    threads.emplace_back([&, process] {
      const auto p = static_cast<std::size_t>(process);
      std::vector<char> scratch(static_cast<std::size_t>(moves[p].scratch_bytes()));
      moves[p].run(memory[p].to, memory[p].from, scratch.data(),
                   [&](auto sent_now, auto received) { mailbox.exchange(process, sent_now, received); });
    });
  for (std::thread& thread : threads) thread.join();
  for (int process = 0; process < processes; ++process)
    for (int d = 0; d < alone.destination_count(); ++d) {
      const auto p = static_cast<std::size_t>(process), at = static_cast<std::size_t>(d);
      if (memory[p].to[at] == nullptr) continue;
      EXPECT_EQ(memory[p].destinations[at], want.destinations[at]) << "shard " << d << " in process " << process;
    }
  return sent;
}

ts::Sharding random_sharding(std::mt19937& random, const ts::Mesh& mesh, int rank, bool partial) {
  ts::Sharding made = ts::replicated(rank);
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    const auto use = random() % 5;
    if (use < 3)
      made.dims[random() % static_cast<unsigned>(rank)].push_back(static_cast<std::uint8_t>(axis));
    else if (use == 3 && partial)
      made.unreduced = static_cast<std::uint16_t>(made.unreduced | 1u << axis);
  }
  return made;
}

TEST(ProcessMoves, RedistributeAsOneProcessDoes) {
  std::mt19937 random(7);
  for (int repeat = 0; repeat < 400 && !HasFailure(); ++repeat) {
    ts::AxisTable axes;
    const int rank = 1 + static_cast<int>(random() % 3);
    for (int axis = 0; axis < rank; ++axis)
      axes.push_back({ts::Name(std::string(1, static_cast<char>('x' + axis))), 1 + static_cast<int>(random() % 4)});
    // Every third mesh has its devices in reverse order.
    ts::Mesh mesh(axes);
    if (repeat % 3 == 2) {
      std::vector<std::int32_t> ids;
      for (std::int64_t i = mesh.size(); i-- > 0;) ids.push_back(static_cast<std::int32_t>(i));
      mesh = ts::Mesh(axes, ts::DeviceOrder(ids.data(), ids.size()));
    }
    Redistribution given{mesh,
                         {},
                         random_sharding(random, mesh, 2, true),
                         random_sharding(random, mesh, 2, false),
                         repeat % 5 == 4 ? ts::Reduction::max : ts::Reduction::sum};
    // Boxes below and above the sizes that decide how they travel.
    const unsigned most = repeat % 4 == 0 ? 300 : 20;
    for (int d = 0; d < 2; ++d) given.shape.push_back(random() % most);
    const int processes = 1 + static_cast<int>(random() % 5);
    SCOPED_TRACE("repeat " + std::to_string(repeat) + ", " + std::to_string(processes) + " processes, " + mesh.text() +
                 ", " + ts::text(given.from, mesh) + " to " + ts::text(given.to, mesh) + ", " +
                 std::to_string(given.shape[0]) + " x " + std::to_string(given.shape[1]));
    expect_same_as_one_process(given, processes, random);
  }
}

/// With one device in each process, processes send what a ring of devices sends.
TEST(ProcessMoves, SendWhatRingsSend) {
  std::mt19937 random(8);
  const ts::Mesh mesh({{"x", 4}});
  const std::int64_t bytes = 64 * 64 * 4;
  const auto sent = [&](const ts::PartitionSpec& to, unsigned unreduced, const ts::PartitionSpec& from) {
    Redistribution given{mesh, {64, 64}, ts::resolve(from, mesh, 2), ts::resolve(to, mesh, 2)};
    given.from.unreduced = static_cast<std::uint16_t>(unreduced);
    return expect_same_as_one_process(given, 4, random);
  };
  EXPECT_EQ(sent({}, 1, {}), 2 * 3 * bytes);                  // all_reduce
  EXPECT_EQ(sent({"x"}, 1, {}), 3 * bytes);                   // reduce_scatter
  EXPECT_EQ(sent({}, 0, {"x"}), 3 * bytes);                   // all_gather
  EXPECT_EQ(sent({ts::none, "x"}, 0, {"x"}), 3 * bytes / 4);  // all_to_all
  EXPECT_EQ(sent({"x"}, 0, {}), 0);                           // slice
}

TEST(Processes, DivideDevicesInTheOrderOfTheirIds) {
  const ts::Mesh mesh({{"x", 8}});
  std::vector<int> of;
  for (int process = 0; process < 3; ++process) {
    const AsProcess as(process, 3);
    const ts::DeviceRange here = ts::devices_here(mesh);
    for (int device = here.first; device < here.end; ++device) {
      EXPECT_EQ(ts::process_of(mesh, device), process);
      of.push_back(process);
    }
    EXPECT_FALSE(ts::spans_processes(ts::Mesh{}));
    EXPECT_TRUE(ts::is_held_here(ts::Mesh{}, ts::ShardGrid(ts::Mesh{}, ts::replicated(1)), 0));
  }
  EXPECT_EQ(of, (std::vector<int>{0, 0, 0, 1, 1, 1, 2, 2}));
}

TEST(Processes, HoldTheShardsOfTheirDevices) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 300; ++trial) {
    ts::AxisTable axes;
    const int rank = 1 + static_cast<int>(random() % 4);
    for (int a = 0; a < rank; ++a)
      axes.push_back({ts::Name(std::string(1, static_cast<char>('a' + a))), 1 + static_cast<int>(random() % 5)});
    ts::DeviceOrder order;
    if (trial % 4 == 0) {
      std::int64_t devices = 1;
      for (const ts::Axis& axis : axes) devices *= axis.size;
      std::vector<int> ids(static_cast<std::size_t>(devices));
      for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int>(i);
      std::shuffle(ids.begin(), ids.end(), random);
      order = ts::DeviceOrder(ids.data(), ids.size());
    }
    const ts::Mesh mesh(axes, order);
    const unsigned used = static_cast<unsigned>(random()) & ((1u << rank) - 1);
    const ts::ShardGrid grid(mesh, used);
    const int processes = 2 + static_cast<int>(random() % 8);
    for (int shard = 0; shard < grid.count(); ++shard) {
      std::vector<char> want(static_cast<std::size_t>(processes), 0), got = want;
      const AsProcess first(0, processes);
      if (mesh.size() == 1) continue;
      for (int device = 0; device < mesh.size(); ++device)
        if (grid.index_of(mesh.coordinates_of(device)) == shard)
          want[static_cast<std::size_t>(ts::process_of(mesh, device))] = 1;
      const rt::Holders holders(mesh, used, grid.coordinates(shard));
      for (int process = 0; process < processes; ++process) {
        EXPECT_EQ(holders.processes().contains(process), want[static_cast<std::size_t>(process)] != 0);
        const AsProcess own(process, processes);
        got[static_cast<std::size_t>(process)] = ts::is_held_here(mesh, grid, shard) ? 1 : 0;
      }
      EXPECT_EQ(got, want) << mesh.text() << ", axes " << used << ", shard " << shard;
    }
  }
}

TEST(Processes, AreFoundFastOnLargeMeshes) {
  const ts::Mesh most({{"data", 65536}, {"model", 32767}});
  const AsProcess last(255, 256);
  const ts::ShardGrid grid(most, 0u);
  EXPECT_TRUE(ts::is_held_here(most, grid, 0));
  EXPECT_TRUE(rt::Holders(most, 0, ts::Coordinates{0, 0}).processes().contains(255));
}

}  // namespace
