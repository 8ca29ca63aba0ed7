#ifndef TESSERA_MESH_STORAGE_SPLIT_HPP
#define TESSERA_MESH_STORAGE_SPLIT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/base/shape.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>

namespace tessera {

/// Which dim of a tensor is split over one more axis. Dims that are split already are not considered.
enum class StorageDim : std::uint8_t {
  outermost,  ///< the first
  largest,    ///< the one with the largest extent, of equal ones the first
  enough,     ///< the first with at least one index per device of the axis, otherwise the largest
};

/// The spec of a tensor with an axis added, over which it is split in storage only (gathered_on_use); the same spec if
/// the axis splits it already, or if no dim is left. Errors: `mesh_axis` for an axis that the mesh lacks.
constexpr PartitionSpec split_in_storage(PartitionSpec spec, const Shape& shape, const Mesh& mesh,
                                         std::string_view axis, StorageDim which) {
  const std::int64_t devices = mesh.axis_size(mesh.axis_index(axis));
  while (spec.entries.size() < shape.size()) spec.entries.push_back(SpecEntry());
  std::size_t best = shape.size();
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    for (const Name& own : spec.entries[dim].axes)
      if (own.view() == axis) return spec;
    if (!spec.entries[dim].axes.empty()) continue;
    const std::int64_t most = best < shape.size() ? shape[best] : -1;
    const bool settled = which == StorageDim::outermost ? most >= 0 : which == StorageDim::enough && most >= devices;
    if (!settled && shape[dim] > most) best = dim;
  }
  if (best == shape.size()) return spec;
  spec.entries[best] = SpecEntry(axis);
  spec.entries[best].priority = 1;
  return spec;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
