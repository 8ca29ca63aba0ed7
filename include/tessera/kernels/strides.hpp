#ifndef TESSERA_KERNELS_STRIDES_HPP
#define TESSERA_KERNELS_STRIDES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/base/monoid.hpp>
#include <tessera/base/shape.hpp>

namespace tessera::kernels {

/// Distance in elements between adjacent elements along each dim: 0 for a broadcast dim, negative for a reversed one.
using Strides = InlineVector<std::int64_t, max_rank>;

/// Strides of a contiguous row-major array.
constexpr Strides contiguous_strides(const Shape& extents) {
  Strides strides(extents.size(), 1);
  for (std::size_t d = extents.size(); d-- > 1;) strides[d - 1] = strides[d] * extents[d];
  return strides;
}

/// One operand of a reduction over several arrays.
struct StridedSource {
  const void* data = nullptr;
  Strides strides;
};

/// A function that combines partial values. A pointer, so that only code for the program's element types is linked.
using ReduceFunction = void (*)(DType, Reduction, void*, const Strides&, std::span<const StridedSource>, const Shape&,
                                bool accumulate, bool past_caches);

/// For callers without partial values, so that no code to combine them is instantiated.
inline void no_reduction(DType type, Reduction, void*, const Strides&, std::span<const StridedSource>, const Shape&,
                         bool, bool) {
  fail(errc::graph_invalid, "[reshard] partial values: ", name_of(type),
       " values are partial where only whole values are supported");
}

}  // namespace tessera::kernels

#include <tessera/base/pop_macros.hpp>

#endif
