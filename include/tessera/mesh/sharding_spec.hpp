#ifndef TESSERA_MESH_SHARDING_SPEC_HPP
#define TESSERA_MESH_SHARDING_SPEC_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>

#include <tessera/base/error.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/mesh/sharding.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// A mesh and a spec for tensors of one rank, as data loaders use them (ShardingSpec of PyTorch/XLA).
/// With `minibatch`, each host has its own part of the batch: the rows of a host are split over its devices, and the
/// global tensor has the rows of all hosts in order. Devices are numbered host by host. Errors: `rank_mismatch` for a
/// tensor of another rank; `not_divisible` if the number of devices of a host does not divide its rows; `mesh_devices`
/// for a mesh that assigns rows of one host to another.
struct ShardingSpec {
  Mesh mesh;
  PartitionSpec spec;
  bool minibatch = false;

  constexpr bool can_apply(int rank) const { return static_cast<int>(spec.entries.size()) == rank; }
  /// The sharding of a tensor of this rank.
  constexpr Sharding resolve(int rank) const {
    if (!can_apply(rank))
      fail(errc::rank_mismatch, "[sharding_spec] rank: ", spec.text(), " has ", spec.entries.size(),
           " entries, the tensor has rank ", rank);
    return tessera::resolve(spec, mesh, rank);
  }
  /// The shape of the global tensor, if each of `hosts` hosts has the shape `local`.
  constexpr Shape global_shape(const Shape& local, int hosts) const {
    if (!minibatch) return local;
    check_minibatch(local, hosts);
    Shape shape = local;
    shape[0] *= hosts;
    return shape;
  }
  /// The shard of a device, as indices in the part of its host.
  constexpr Box local_box(const Shape& local, int hosts, int device) const {
    const Sharding sharding = resolve(static_cast<int>(local.size()));
    const Shape shape = global_shape(local, hosts);
    Box box = device_box(shape, sharding, mesh, device);
    if (!minibatch) return box;
    const std::int64_t first = device / (mesh.size() / hosts) * local[0];
    if (box.begin[0] < first || box.end[0] > first + local[0])
      fail(errc::mesh_devices, "[sharding_spec] minibatch: device ", device, " gets rows ", box.begin[0], " to ",
           box.end[0],
           ", which its host does not have; order the devices host by host along the axes of dim 0: ", spec.text(),
           " on ", mesh.text());
    box.begin[0] -= first;
    box.end[0] -= first;
    return box;
  }

  friend constexpr bool operator==(const ShardingSpec&, const ShardingSpec&) = default;
  constexpr std::uint64_t hash() const {
    return hash_mix(hash_mix(mesh.hash(), tessera::resolve(spec, mesh, static_cast<int>(spec.entries.size())).hash()),
                    std::uint64_t{minibatch});
  }

 private:
  constexpr void check_minibatch(const Shape& local, int hosts) const {
    const Sharding sharding = resolve(static_cast<int>(local.size()));
    if (local.empty()) fail(errc::rank_mismatch, "[sharding_spec] minibatch: a scalar has no rows");
    if (hosts < 1 || mesh.size() % hosts != 0)
      fail(errc::not_divisible, "[sharding_spec] minibatch: ", mesh.size(), " devices are not divisible by ", hosts,
           " hosts");
    const int shards = shard_count(sharding, mesh, 0);
    if (shards % hosts != 0)
      fail(errc::not_divisible, "[sharding_spec] minibatch: ", shards, " shards of dim 0 are not divisible by ", hosts,
           " hosts");
    if (local[0] % (shards / hosts) != 0)
      fail(errc::not_divisible, "[sharding_spec] minibatch: ", local[0], " rows of a host are not divisible by the ",
           shards / hosts, " shards of dim 0 on the host");
  }
};

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
