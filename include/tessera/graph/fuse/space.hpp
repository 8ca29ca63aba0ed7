#ifndef TESSERA_GRAPH_FUSE_SPACE_HPP
#define TESSERA_GRAPH_FUSE_SPACE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/shape.hpp>

namespace tessera::detail {

/// The dims of an iteration space, as classes (see DimClasses); -1 where the extent is 1.
struct Space {
  std::int32_t rank = 0;
  std::int32_t dims[max_rank]{};

  // One expression, since compilers limit the statements of a constant expression. Dims beyond the rank are 0.
  constexpr bool operator==(const Space& other) const {
    return rank == other.rank && dims[0] == other.dims[0] && dims[1] == other.dims[1] && dims[2] == other.dims[2] &&
           dims[3] == other.dims[3] && dims[4] == other.dims[4] && dims[5] == other.dims[5] &&
           dims[6] == other.dims[6] && dims[7] == other.dims[7];
  }
  constexpr bool same(const Space& other, int leading) const {
    for (int d = 0; d < leading; ++d)
      if (dims[d] != other.dims[d]) return false;
    return true;
  }
  /// Whether a value with the dims `inner` has the dims of this space, with extent 1 along the last dim or without it.
  constexpr bool has_row(const Space& inner) const {
    return rank > 0 && inner.rank == rank && inner.dims[rank - 1] < 0 && dims[rank - 1] >= 0 && same(inner, rank - 1);
  }
  constexpr bool has_squeezed_row(const Space& inner) const {
    return rank > 1 && inner.rank == rank - 1 && dims[rank - 1] >= 0 && same(inner, rank - 1);
  }
};

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
