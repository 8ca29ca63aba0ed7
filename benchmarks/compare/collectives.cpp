// Collectives among the devices of one process, compared with MPI among processes. mpirun starts one process per
// device; processes other than 0 sleep while Tessera is measured. Without mpirun, only Tessera is measured.

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "harness.hpp"

#include <tessera/runtime/memory/buffer.hpp>
#include <tessera/runtime/transport/reshard_plan.hpp>

namespace {

using compare::Task;
using tessera::Box;
using tessera::Buffer;
using tessera::BufferPtr;
using tessera::DType;
using tessera::Reduction;

/// Shards [first, last) of one array of floats, each in its own buffer.
struct Shards {
  std::vector<BufferPtr> buffers;
  std::vector<Box> boxes;
  std::vector<void*> data;

  void add(std::int64_t first, std::int64_t last) {
    buffers.push_back(Buffer::allocate((last - first) * 4));
    boxes.push_back({{first}, {last}});
    data.push_back(buffers.back()->data());
    std::fill_n(buffers.back()->as<float>(), last - first, 1.0f);
  }
  static Shards copies(int count, std::int64_t size) {
    Shards shards;
    for (int i = 0; i < count; ++i) shards.add(0, size);
    return shards;
  }
  static Shards pieces(int count, std::int64_t size) {
    Shards shards;
    for (int i = 0; i < count; ++i) shards.add(i * size / count, (i + 1) * size / count);
    return shards;
  }
};

/// A collective as a compiled program runs it: with a plan made before, on buffers. Devices with equal results share a
/// buffer.
struct Collective {
  Shards in, out;
  tessera::runtime::ReshardPlan plan{DType::f32, Reduction::sum};

  Collective(Shards from, Shards to, bool reduces) : in(std::move(from)), out(std::move(to)) {
    std::vector<int> sources, destinations;
    for (const Box& box : out.boxes) destinations.push_back(plan.add_destination(box));
    for (const Box& box : in.boxes) sources.push_back(plan.add_source(box));
    plan.fill(destinations, sources, reduces ? static_cast<int>(sources.size()) : 1);
  }
  void run() const {
    const std::vector<const void*> sources(in.data.begin(), in.data.end());
    plan.run(out.data, sources);
  }
};

std::string size_text(std::int64_t bytes) {
  return bytes < 1 << 20 ? std::to_string(bytes >> 10) + "K" : std::to_string(bytes >> 20) + "M";
}

void rows(compare::Harness& harness) {
  const int devices = harness.arguments().devices;
  for (const std::int64_t bytes : {4 << 10, 64 << 10, 1 << 20, 64 << 20}) {
    const std::int64_t size = bytes / 4;
    const auto measure = [&](const std::string& kind, Shards (*from)(int, std::int64_t), Shards to, bool reduces,
                             auto peer_task) {
      const auto row = harness.row(kind + "/" + size_text(bytes) + "/d" + std::to_string(devices));
      if (row.empty()) return;
      const auto collective = std::make_shared<Collective>(from(devices, size), std::move(to), reduces);
      compare::Work work{.bytes = static_cast<double>(collective->plan.bytes())};
      if (reduces) work.bytes_read = static_cast<double>(devices) * static_cast<double>(bytes);
      harness.measure(row, work, Task([=] { collective->run(); }),
                      [&](compare::Peer& peer) { return (peer.*peer_task)(devices, bytes); });
    };
    measure("all_reduce", Shards::copies, Shards::copies(1, size), true, &compare::Peer::all_reduce);
    measure("reduce_scatter", Shards::copies, Shards::pieces(devices, size), true, &compare::Peer::reduce_scatter);
    measure("all_gather", Shards::pieces, Shards::copies(1, size), false, &compare::Peer::all_gather);
  }
}

}  // namespace

int main(int argc, char** argv) { return compare::run(argc, argv, {"mpi"}, rows); }
