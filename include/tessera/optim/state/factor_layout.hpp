#ifndef TESSERA_OPTIM_STATE_FACTOR_LAYOUT_HPP
#define TESSERA_OPTIM_STATE_FACTOR_LAYOUT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>

#include <tessera/base/shape.hpp>
#include <tessera/mesh/partition_spec.hpp>

namespace tessera::optim::detail {

/// The extents and the spec of a mean of squares of Adafactor, from those of its parameter: one of the two last dims
/// has extent 1, and is not split; of tensors with fewer dims `along_last` has all elements, else extents of 1.
constexpr void keep_factor(Shape& extents, PartitionSpec& spec, int rank, bool along_last) {
  while (spec.entries.size() < extents.size()) spec.entries.push_back(SpecEntry());
  for (std::size_t dim = 0; dim < extents.size(); ++dim) {
    const bool mean = rank >= 2 ? dim + (along_last ? 1 : 2) == extents.size() : !along_last;
    if (mean) extents[dim] = 1, spec.entries[dim] = SpecEntry();
  }
}

}  // namespace tessera::optim::detail

#include <tessera/base/pop_macros.hpp>

#endif
