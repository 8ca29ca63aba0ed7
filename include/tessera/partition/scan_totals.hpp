#ifndef TESSERA_PARTITION_SCAN_TOTALS_HPP
#define TESSERA_PARTITION_SCAN_TOTALS_HPP

#include <tessera/partition/plan.hpp>
#include <tessera/partition/reshard_path.hpp>

namespace tessera::detail {

/// What a scan along a split dim sends: from every device the totals of its chunk, one for each line, to all others.
/// Each then knows what the chunks before its own add up to. `made` is how the result lies.
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

#endif
