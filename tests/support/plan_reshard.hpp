#ifndef TESSERA_TESTS_SUPPORT_PLAN_RESHARD_HPP
#define TESSERA_TESTS_SUPPORT_PLAN_RESHARD_HPP
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/mesh/sharding.hpp>
#include <tessera/runtime/transport/reshard_plan.hpp>

namespace tessera_test {

/// The copies of a reshard from one sharding to another on the same mesh. Sources and destinations are the distinct
/// shards, row-major, in the order of ShardGrid(mesh, from) and ShardGrid(mesh, to).
///
/// An axis unreduced only in `from` is reduced, in mesh order; an axis unreduced in both stays so. Along an axis
/// unreduced only in `to`, index 0 gets the value and others the identity (0 for a sum, 1 for a product); for max and
/// min, each index gets the value.
inline tessera::runtime::ReshardPlan plan_reshard(tessera::DType type, const tessera::Shape& shape,
                                                  const tessera::Mesh& mesh, const tessera::Sharding& from,
                                                  const tessera::Sharding& to) {
  using namespace tessera;
  using runtime::Holders;
  const unsigned kept = from.unreduced & to.unreduced, fresh = to.unreduced & ~kept, reduced = from.unreduced & ~kept;
  if (kept != 0 && from.reduction != to.reduction)
    fail(errc::graph_invalid, "[reshard] one reduction: from ", text(from, mesh), " to ", text(to, mesh));
  const unsigned split = from.used_axes() & ~unsigned{from.unreduced};
  const auto size_over = [&](unsigned axes) {
    int size = 1;
    for (int axis = 0; axis < mesh.rank(); ++axis)
      if (axes >> axis & 1) size *= mesh.axis_size(axis);
    return size;
  };
  const auto index_over = [&](unsigned axes, const Coordinates& at) {
    int index = 0;
    for (int axis = 0; axis < mesh.rank(); ++axis)
      if (axes >> axis & 1) index = index * mesh.axis_size(axis) + at[static_cast<std::size_t>(axis)];
    return index;
  };

  runtime::ReshardPlan plan(type, from.unreduced != 0 ? from.reduction : to.reduction, &kernels::strided_reduce_as<>);
  const auto strides_of = [&](const Sharding& sharding, const Coordinates& at) {
    return kernels::contiguous_strides(extents(shard_box(shape, sharding, mesh, at)));
  };
  const auto held_by = [&](const Sharding& sharding, const Coordinates& at) {
    return Holders(mesh, sharding.used_axes(), at);
  };
  const int partials = size_over(reduced), boxes = size_over(split);
  const ShardGrid sources(mesh, from), destinations(mesh, to);
  std::vector<int> order(static_cast<std::size_t>(sources.count()));  // [kept, box, partial]
  for (int i = 0; i < sources.count(); ++i) {
    const Coordinates at = sources.coordinates(i);
    const int place = (index_over(kept, at) * boxes + index_over(split, at)) * partials + index_over(reduced, at);
    order[static_cast<std::size_t>(place)] =
        plan.add_source(shard_box(shape, from, mesh, at), strides_of(from, at), held_by(from, at));
  }
  std::vector<std::vector<int>> targets(static_cast<std::size_t>(size_over(kept)));
  for (int i = 0; i < destinations.count(); ++i) {
    const Coordinates at = destinations.coordinates(i);
    const int destination = plan.add_destination(shard_box(shape, to, mesh, at), strides_of(to, at), held_by(to, at));
    if (!facts_of(to.reduction).idempotent && index_over(fresh, at) != 0)
      plan.fill_identity(destination);
    else
      targets[static_cast<std::size_t>(index_over(kept, at))].push_back(destination);
  }
  const auto group = static_cast<std::size_t>(boxes * partials);
  for (std::size_t k = 0; k < targets.size(); ++k)
    plan.fill(targets[k], std::span<const int>(order).subspan(k * group, group), partials);
  return plan;
}

}  // namespace tessera_test

#endif
