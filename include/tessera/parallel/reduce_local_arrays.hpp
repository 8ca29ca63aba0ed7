#ifndef TESSERA_PARALLEL_REDUCE_LOCAL_ARRAYS_HPP
#define TESSERA_PARALLEL_REDUCE_LOCAL_ARRAYS_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/parallel/reduce_op.hpp>
#include <tessera/runtime/threads/team.hpp>
#include <tessera/tensor/local_tensor.hpp>

namespace tessera::detail {

/// The element type of a reduction whose result is then divided or scaled: i64 for integers, so that the average of two
/// int8 100 is 100 although their sum is not an int8; f32 for bf16 and f16.
template <class T>
using ReductionSum = std::conditional_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, std::int64_t, computed_t<T>>;

/// The element type of the arrays that a reduction of T sends between devices.
template <class T> constexpr DType moved_dtype(ReduceOp op, double scale = 1) {
  return op == ReduceOp::avg || scale != 1 ? dtype_v<ReductionSum<T>> : dtype_v<T>;
}

/// Converts the result of a reduction to T: divided by `parts`, which is above 1 for an average, times `scale`. For an
/// integer T it is truncated, and clamped to the range of T after scaling.
template <class T, class S> T reduced(S sum, std::int64_t parts, double scale) {
  if (parts > 1) sum = static_cast<S>(sum / static_cast<S>(parts));
  if (scale == 1) return static_cast<T>(sum);
  const double scaled = static_cast<double>(sum) * scale;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    using Limits = std::numeric_limits<T>;
    if (scaled != scaled) return T(0);
    if (scaled <= static_cast<double>(Limits::min())) return Limits::min();
    if (scaled >= static_cast<double>(Limits::max())) return Limits::max();
  }
  return static_cast<T>(scaled);
}

/// A new array of f(x) for each element x of `from`.
template <class To, class From, int Rank, class F>
LocalArray<To, Rank> transformed(const LocalArray<From, Rank>& from, const F& f) {
  auto [array, out] = LocalTensor<To, Rank>::allocate(from.shape);
  const std::int64_t n = volume(array.shape);
  constexpr std::int64_t block_size = 4096;
  parallel_for((n + block_size - 1) / block_size, Cost::bytes(double{block_size} * (sizeof(To) + sizeof(From))),
               [&, to = out](std::int64_t block) {
                 const std::int64_t end = std::min(n, (block + 1) * block_size);
                 for (std::int64_t i = block * block_size; i < end; ++i) to[i] = f(from.data[i]);
               });
  return array;
}

/// The arrays of all devices converted to S; devices with consecutive ids that share an array still share it.
template <class S, class T, int Rank> LocalTensor<S, Rank> widened(const LocalTensor<T, Rank>& x) {
  LocalArray<S, Rank> last;
  return LocalTensor<S, Rank>(x.mesh(), [&](int device) {
    if (device == 0 || x[device].data != x[device - 1].data)
      last = transformed<S>(x[device], [](T value) { return S(value); });
    return last;
  });
}
/// Applies `reduced` to each element.
template <class T, class S, int Rank>
LocalArray<T, Rank> narrowed(const LocalArray<S, Rank>& sums, std::int64_t parts, double scale) {
  if constexpr (std::is_same_v<S, T>)
    if (parts == 1 && scale == 1) return sums;
  return transformed<T>(sums, [&](S sum) { return reduced<T>(sum, parts, scale); });
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
