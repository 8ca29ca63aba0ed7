#ifndef TESSERA_TENSOR_EXTENT_HPP
#define TESSERA_TENSOR_EXTENT_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <cstdint>

#include <tessera/graph/trace/dim.hpp>
#include <tessera/ops/rows.hpp>

namespace tessera {

/// One extent of a shape that is written in braces, such as `batch` and `64` of ts::zeros<float>({batch, 64}, mesh):
/// any integer or a Dim. An array of N extents lets the compiler deduce the rank N.
struct Extent {
  std::int64_t value;
  template <std::integral Integer> constexpr Extent(Integer extent) : value(static_cast<std::int64_t>(extent)) {}
  constexpr Extent(const Dim& extent) : value(extent.value()) {}
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
