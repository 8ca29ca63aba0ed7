#ifndef TESSERA_PARTITION_PLAN_VALUE_BYTES_HPP
#define TESSERA_PARTITION_PLAN_VALUE_BYTES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/partition/plan/lifetimes.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/partition/propagation/links.hpp>
#include <tessera/partition/reshard/partial_parts.hpp>
#include <tessera/partition/reshard/reshard_path.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::detail {

/// distinct_bytes of the shards that devices of this process hold.
inline std::int64_t bytes_here(const Shape& global, const Sharding& sharding, DType dtype, const Mesh& mesh,
                               const PartList& parts) {
  const ShardGrid grid(mesh, sharding);
  std::int64_t total = 0;
  for (int s = 0; s < grid.count(); ++s) {
    const Coordinates at = grid.coordinates(s);
    if (is_held_here(mesh, grid, s) && parts.holds(mesh, at))
      total += arena_bytes(volume(extents(shard_box(global, sharding, mesh, at))) *
                           static_cast<std::int64_t>(size_of(dtype)));
  }
  return total;
}

/// Bytes of memory for all distinct shards of a value, each aligned as in the arena. For a partial value, of the parts
/// that exist. If processes divide the devices of the mesh, of the shards of this process.
constexpr std::int64_t distinct_bytes(const Shape& global, const Sharding& sharding, DType dtype, const Mesh& mesh,
                                      const PartList& parts = {}) {
  if (plans_for_processes(mesh)) return bytes_here(global, sharding, dtype, mesh, parts);
  if (!parts.entries.empty())
    return checked_product(distinct_bytes(global, sharding.without_unreduced(), dtype, mesh),
                           parts.count(mesh, devices_on(mesh, sharding.unreduced)), "bytes of partial values");
  const auto bytes = [&](const Shape& extents) {
    return arena_bytes(volume(extents) * static_cast<std::int64_t>(size_of(dtype)));
  };
  // Along each dim there are full shards, at most one shorter shard, and empty ones. Shards that are shorter along the
  // same dims have equal size, so it is enough to count the shards for each set of dims.
  Shape local = local_extents(global, sharding, mesh);
  const Shape whole = local;
  Shape count(local.size(), 1), shorter(local.size(), 0);
  unsigned uneven = 0;
  for (std::size_t d = 0; d < local.size(); ++d) {
    if (sharding.dims[d].empty() || whole[d] == 0) continue;
    const std::int64_t shards = shard_count(sharding, mesh, static_cast<int>(d));
    count[d] = global[d] / whole[d];
    shorter[d] = count[d] < shards ? global[d] % whole[d] : 0;
    if (shorter[d] > 0) uneven |= 1u << d;
  }
  std::int64_t total = 0;
  for (unsigned kinds = uneven;; kinds = (kinds - 1) & uneven) {  // bit d: shorter along dim d
    std::int64_t alike = devices_on(mesh, sharding.unreduced);
    for (std::size_t d = 0; d < local.size(); ++d) {
      const bool is_shorter = (kinds >> d & 1) != 0;
      local[d] = is_shorter ? shorter[d] : whole[d];
      if (!is_shorter) alike *= count[d];
    }
    total += alike * bytes(local);
    if (kinds == 0) return total;
  }
}

/// Bytes that a step reads or writes of a value: those of its elements, for a partial value once for each part.
constexpr std::int64_t moved_bytes(const PlanValue& value, const Mesh& mesh) {
  if (value.role == ValueRole::host) return 0;
  return checked_product(volume(value.shape) * static_cast<std::int64_t>(size_of(value.dtype)),
                         value.parts.count(mesh, devices_on(mesh, value.sharding.unreduced)),
                         "bytes of partial values");
}

/// Whether a reshard gathers a dim that is only stored split (FSDP), because its spec has `gathered_on_use`.
constexpr bool was_stored(const Sharding& from, const Sharding& to) {
  bool stored = false;
  for (int d = 0; d < from.rank; ++d) {
    if (is_prefix(from.dims[d], to.dims[d])) continue;
    if (from.priority[d] == 0) return false;
    stored = true;
  }
  return stored;
}

}  // namespace tessera::detail

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
