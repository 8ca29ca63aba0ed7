#ifndef TESSERA_PARTITION_RESHARD_VIEWS_HPP
#define TESSERA_PARTITION_RESHARD_VIEWS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/ops/data_movement/factors.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// Strides of a row-major shard, in elements.
constexpr Shape row_major_strides(const Shape& extents) {
  Shape strides(extents.size(), 1);
  for (std::size_t d = extents.size(); d-- > 1;) strides[d - 1] = strides[d] * extents[d];
  return strides;
}

/// Strides of a rearranged shard in the same memory. `extents`: those of the factors, on the shard. Returns false where
/// merged dims are not contiguous, so that the elements have to be copied.
constexpr bool rearranged_strides(const Factors& factors, const Shape& extents, const Shape& strides, int out_rank,
                                  Shape& out) {
  Shape of_factor(static_cast<std::size_t>(factors.count), 0);
  for (int f = factors.count - 1, dim = -1; f >= 0; --f) {
    const auto at = static_cast<std::size_t>(f);
    of_factor[at] = factors.in_dim[f] == dim ? of_factor[at + 1] * extents[at + 1]
                                             : strides[static_cast<std::size_t>(factors.in_dim[f])];
    dim = factors.in_dim[f];
  }
  out = Shape(static_cast<std::size_t>(out_rank), 0);
  Shape merged(static_cast<std::size_t>(out_rank), 1);
  for (int p = factors.count - 1; p >= 0; --p) {
    const auto f = static_cast<std::size_t>(factors.order[p]), d = static_cast<std::size_t>(factors.out_dim[p]);
    if (extents[f] == 1) continue;
    if (merged[d] == 1)
      out[d] = of_factor[f];
    else if (of_factor[f] != out[d] * merged[d])
      return false;
    merged[d] *= extents[f];
  }
  return true;
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
