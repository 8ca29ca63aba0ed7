#ifndef TESSERA_PARTITION_RESHARD_STEP_COLLECTIVES_HPP
#define TESSERA_PARTITION_RESHARD_STEP_COLLECTIVES_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/partition/reshard/reshard_path.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::detail {

/// Adds the all_reduces of a fused unit that reduces rows which are split among devices, such as a softmax: one after
/// each pass over the rows. `space` is the unit's iteration space. They are in f64, as rows are
/// computed, or in i64; `dtype` is an element type of the unit.
constexpr void add_row_reductions(const Unit& unit, const Shape& space, DType dtype, const Mesh& mesh, PlanStep& step) {
  const auto axes_of = [&](int d) -> const AxisList& { return step.factors[static_cast<std::size_t>(d)]; };
  if (axes_of(unit.rank - 1).empty()) return;
  unsigned axes = 0;
  for (std::uint8_t axis : axes_of(unit.rank - 1)) axes |= 1u << axis;
  std::int64_t rows = 1;
  for (int d = 0; d + 1 < unit.rank; ++d) {
    std::int64_t count = 1;
    for (std::uint8_t axis : axes_of(d)) count *= mesh.axis_size(axis);
    const std::int64_t extent = space[static_cast<std::size_t>(d)];
    rows *= extent / count + (extent % count != 0);  // at most the elements of the space
  }
  CollectiveInfo made;
  made.kind = Collective::all_reduce;
  made.axes = static_cast<std::uint16_t>(axes);
  made.dtype = is_floating(dtype) ? DType::f64 : DType::i64;
  made.payload_bytes = rows * static_cast<std::int64_t>(size_of(made.dtype));
  made.wire_bytes = ring_bytes(made.kind, made.payload_bytes, devices_on(mesh, axes));
  made.source = step.source;
  made.why = "rows are split among devices";
  for (int r = 0; r < unit.phase_reduces; ++r) step.collectives.push_back(made);
}

/// Adds the all_gather of a cumulative operation along a split dim: each device sends the total of its chunk (one
/// number for each line along the dim) to all others, which start from the total of all chunks before theirs. `made`:
/// the sharding of the result.
constexpr void add_scan_totals(const Node& node, const Shape& shape, const Sharding& made, const Mesh& mesh,
                               PlanStep& step) {
  CollectiveInfo sent;
  sent.kind = Collective::all_gather;
  for (std::uint8_t axis : made.dims[dim_of(node)]) sent.axes = static_cast<std::uint16_t>(sent.axes | 1u << axis);
  const std::int64_t devices = devices_on(mesh, sent.axes);
  if (devices == 1) return;
  Shape totals = local_extents(shape, made, mesh);
  totals[static_cast<std::size_t>(dim_of(node))] = devices;
  sent.dtype = node.dtype;
  sent.payload_bytes = volume(totals) * static_cast<std::int64_t>(size_of(node.dtype));
  sent.wire_bytes = ring_bytes(sent.kind, sent.payload_bytes, devices);
  sent.source = node.source;
  sent.why = "totals of the chunks";
  step.collectives.push_back(sent);
}

}  // namespace tessera::detail

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
