#ifndef TESSERA_BASE_SHAPE_HPP
#define TESSERA_BASE_SHAPE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/error.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/base/integers/checked.hpp>

namespace tessera {

/// The most dims of a tensor.
inline constexpr int max_rank = 8;

/// Extents of a tensor, outermost first.
using Shape = InlineVector<std::int64_t, max_rank>;

namespace detail {
/// Empty braces in the place of extents, those of a tensor of rank 0: `ts::full<float>({}, 2, mesh)`. The rank of an
/// array of extents can't be deduced from them.
struct NoExtents {};
}  // namespace detail

/// The product of the extents, 1 for rank 0; -1 for shapes that no tensor may have: with a negative extent, or with
/// nonzero extents whose product exceeds max_elements. That holds for empty tensors too (as in NumPy), so that strides
/// and reduced, sliced or transposed shapes can't overflow.
constexpr std::int64_t elements_of(const Shape& shape) {
  std::int64_t n = 1;
  bool empty = false;
  for (std::int64_t extent : shape)  // a single statement, since this is a tenth of the steps of planning otherwise
    if (extent == 0 ? (empty = true, false) : extent < 0 || __builtin_mul_overflow(n, extent, &n) || n > max_elements)
      return -1;
  return empty ? 0 : n;
}

namespace detail {
[[noreturn]] inline void fail_volume(const Shape& shape) {
  std::string text;
  for (std::int64_t extent : shape) text += concat_text(text.empty() ? "" : ",", extent);
  fail(errc::capacity, "[volume] shape: [", text, "] has a negative extent or more than 2^52 elements");
}
}  // namespace detail

/// The product of the extents; 1 for rank 0. Errors: `capacity` for a shape that no tensor may have.
constexpr std::int64_t volume(const Shape& shape) {
  const std::int64_t n = elements_of(shape);
  if (n < 0) detail::fail_volume(shape);
  return n;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
