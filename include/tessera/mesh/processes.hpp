#ifndef TESSERA_MESH_PROCESSES_HPP
#define TESSERA_MESH_PROCESSES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <type_traits>

#include <tessera/mesh/box.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/sharding.hpp>

namespace tessera {

namespace detail {
/// Which of the processes that run this program together this process is.
struct OwnProcess {
  int index = 0;
  int count = 1;
  bool left = false;  ///< it was one of several, whose tensors and plans are of no use to it alone
};
/// Set once, by runtime::join_processes, before any tensor exists.
inline constinit OwnProcess own_process{};
}  // namespace detail

/// The index of this process among the processes that run the program together, as jax.process_index. It is 0 unless a
/// session of several processes, such as ts::mpi::Session, is alive.
inline int process_index() { return detail::own_process.index; }
/// The number of processes that run the program together, as jax.process_count: 1 without a session.
inline int process_count() { return detail::own_process.count; }

/// Whether the devices of a mesh are divided among several processes. A mesh of one device is not divided: each process
/// has that device, and does the same computation on it.
inline bool spans_processes(const Mesh& mesh) { return process_count() > 1 && mesh.size() > 1; }

namespace detail {
/// The same for planning, where a plan in a constant expression is that of one process.
constexpr bool plans_for_processes(const Mesh& mesh) {
  if (__builtin_is_constant_evaluated()) return false;
  return spans_processes(mesh);
}
}  // namespace detail

/// The process that holds a device. Devices are divided in the order of their ids into process_count() ranges, whose
/// sizes differ by at most 1: of 8 devices and 3 processes, process 0 holds devices 0 to 2. For a mesh of one device it
/// is this process.
inline int process_of(const Mesh& mesh, int device) {
  if (!spans_processes(mesh)) return process_index();
  return static_cast<int>(std::int64_t{device} * process_count() / mesh.size());
}

/// The device ids from `first` to `end` - 1.
struct DeviceRange {
  int first = 0;
  int end = 0;
};
/// The devices of this process; all devices of a mesh that is not divided among processes.
inline DeviceRange devices_here(const Mesh& mesh) {
  if (!spans_processes(mesh)) {
    const int first = mesh.rank() == 0 ? mesh.device_at({}) : 0;
    return {first, first + static_cast<int>(mesh.size())};
  }
  const auto first_of = [&](std::int64_t process) {
    return static_cast<int>((process * mesh.size() + process_count() - 1) / process_count());
  };
  return {first_of(process_index()), first_of(process_index() + 1)};
}

namespace detail {
/// The process of a replica of a shard, numbered as in the grid.
inline int process_of_replica(const Mesh& mesh, const ShardGrid& grid, int shard, int replica) {
  return process_of(mesh, mesh.device_at(grid.coordinates(shard, replica)));
}
/// The first replica of a shard, from `replica` on, in process `process` or a later one; replicas() if there is none.
/// For a mesh without a device order of its own, whose replicas are in the order of their device ids.
inline int replica_from(const Mesh& mesh, const ShardGrid& grid, int shard, int replica, int process) {
  int end = grid.replicas();
  while (replica < end) {
    const int middle = replica + (end - replica) / 2;
    if (process_of_replica(mesh, grid, shard, middle) < process)
      replica = middle + 1;
    else
      end = middle;
  }
  return replica;
}
}  // namespace detail

/// Calls f(process) for each process that holds this shard, numbered as in the grid: at least once, and with a device
/// order of the mesh's own maybe more than once.
template <class F> void for_each_process_of(const Mesh& mesh, const ShardGrid& grid, int shard, const F& f) {
  const bool in_order = mesh.order().empty();
  for (int replica = 0; replica < grid.replicas();) {
    const int process = detail::process_of_replica(mesh, grid, shard, replica);
    f(process);
    replica = in_order ? detail::replica_from(mesh, grid, shard, replica + 1, process + 1) : replica + 1;
  }
}

/// Whether a device of this process holds this shard, numbered as in the grid.
inline bool is_held_here(const Mesh& mesh, const ShardGrid& grid, int shard) {
  if (!spans_processes(mesh)) return true;
  const int own = process_index();
  if (mesh.order().empty()) {
    const int replica = detail::replica_from(mesh, grid, shard, 0, own);
    return replica < grid.replicas() && detail::process_of_replica(mesh, grid, shard, replica) == own;
  }
  for (int replica = 0; replica < grid.replicas(); ++replica)
    if (detail::process_of_replica(mesh, grid, shard, replica) == own) return true;
  return false;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
