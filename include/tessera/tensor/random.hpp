#ifndef TESSERA_TENSOR_RANDOM_HPP
#define TESSERA_TENSOR_RANDOM_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tessera/base/compiled.hpp>
#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/runtime/memory/storage.hpp>
#include <tessera/tensor/key.hpp>
#include <tessera/tensor/storage/allocate.hpp>
#include <tessera/tensor/storage/storage_of.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <tessera/kernels/random.hpp>
#endif

namespace tessera {

namespace detail {

template <class T> constexpr void check_random_element() {
  static_assert(is_floating_v<T>, "tessera: random tensors are float, double, bf16 or f16");
}

/// The largest number of the type T below a bound.
template <class T> computed_t<T> largest_below(computed_t<T> bound) {
  if constexpr (is_half_v<T>) {
    const T near(bound);
    if (near < bound) return near;
    const auto bits = static_cast<int>(near.bits);
    return T::from_bits(static_cast<std::uint16_t>(near == 0 ? 0x8001 : near > 0 ? bits - 1 : bits + 1));
  } else {
    return std::nextafter(bound, -std::numeric_limits<T>::infinity());
  }
}

// Not inlined, so that each operation rounds: inlined, a compiler could fuse multiply and add in some callers only,
// and results would differ by caller.
template <class T> __attribute__((noinline)) void scale_values(T* data, std::int64_t count, T factor) {
  for (std::int64_t i = 0; i < count; ++i) data[i] *= factor;
}
template <class T> __attribute__((noinline)) void shift_values(T* data, std::int64_t count, T offset, T largest) {
  for (std::int64_t i = 0; i < count; ++i) data[i] = std::min(data[i] + offset, largest);
}

/// Writes random numbers for the elements of a contiguous box of a tensor of the given shape.
TESSERA_ONCE void fill_random(DType dtype, Distribution distribution, Key key, const Shape& shape, const Box& box,
                              void* data);
#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE void fill_random(DType dtype, Distribution distribution, Key key, const Shape& shape, const Box& box,
                              void* data) {
  const Shape own = extents(box);
  kernels::fill_random(dtype, distribution, data, kernels::contiguous_strides(own), key.seed, shape, box.begin, own);
}
#endif

/// A tensor of the values that `finish(data, count)` makes of draws of a distribution. Those of bf16 and f16 are drawn
/// and finished in f32 and then rounded.
template <class T, int Rank, class Finish>
ShardedTensor<T, Rank> random_tensor(const char* op, Distribution distribution, Key key, const Shape& shape,
                                     const Mesh& mesh, const PartitionSpec& spec, Cost each_element,
                                     const Finish& finish, Here at) {
  check_random_element<T>();
  const auto write = [=](T* data, const Box& box) {
    const std::int64_t count = volume(extents(box));
    if constexpr (is_half_v<T>) {
      Growable<float> drawn;
      drawn.resize(static_cast<std::size_t>(count));
      fill_random(DType::f32, distribution, key, shape, box, drawn.data());
      finish(drawn.data(), count);
      for (std::int64_t i = 0; i < count; ++i) data[i] = T(drawn[static_cast<std::size_t>(i)]);
    } else {
      fill_random(dtype_v<T>, distribution, key, shape, box, data);
      finish(data, count);
    }
  };
  return tensor_of<T, Rank>(created<T>(op, shape, Rank, mesh, spec, at, each_element, write));
}

}  // namespace detail

/// Normal random numbers of float, double, bf16 or f16, as jax.random.normal. An element depends only on the key, the
/// shape and its index, so every mesh and spec gives the same tensor, bit for bit. Numbers of bf16 and f16 are those of
/// float, rounded. A shape in braces determines the rank, and without a type the tensor is of float; with a Shape
/// object write `normal<float, 2>(...)`. Errors: `option` for a negative deviation; those of `resolve` for the spec.
///
///     auto w = ts::normal<float>(ts::Key{1}, {64, 256}, mesh, {ts::none, "model"}, 0, 0.02f);
template <Element T, int Rank>
ShardedTensor<T, Rank> normal(Key key, const Shape& shape, const Mesh& mesh, const PartitionSpec& spec = {},
                              computed_t<T> mean = 0, computed_t<T> stddev = 1, Here at = Here::current()) {
  if (!(stddev >= 0))
    fail(errc::option, "[normal] standard deviation: ", stddev, " is not at least 0", Source::from(at));
  const auto finish = [=](computed_t<T>* data, std::int64_t count) {
    if (stddev != 1) detail::scale_values(data, count, stddev);
    if (mean != 0) detail::shift_values(data, count, mean, std::numeric_limits<computed_t<T>>::infinity());
  };
  return detail::random_tensor<T, Rank>("normal", Distribution::normal, key, shape, mesh, spec, Cost{2}, finish, at);
}
template <Element T = float, class... TypeOnly, std::size_t Rank>
auto normal(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {},
            computed_t<T> mean = 0, computed_t<T> stddev = 1, Here at = Here::current()) {
  return normal<T, static_cast<int>(Rank)>(key, detail::shape_from(shape), mesh, spec, mean, stddev, at);
}
template <Element T = float>
ShardedTensor<T, 0> normal(Key key, detail::NoExtents, const Mesh& mesh, const PartitionSpec& spec = {},
                           computed_t<T> mean = 0, computed_t<T> stddev = 1, Here at = Here::current()) {
  return normal<T, 0>(key, Shape{}, mesh, spec, mean, stddev, at);
}

/// Uniform random numbers in [low, high), otherwise as `normal`. Errors: `option` unless low < high and both are finite
/// in the element type; those of `resolve` for the spec.
template <Element T, int Rank>
ShardedTensor<T, Rank> uniform(Key key, const Shape& shape, const Mesh& mesh, const PartitionSpec& spec = {},
                               computed_t<T> low = 0, computed_t<T> high = 1, Here at = Here::current()) {
  const computed_t<T> width = high - low;
  const auto fits = [](computed_t<T> bound) { return std::isfinite(static_cast<computed_t<T>>(T(bound))); };
  if (!(width > 0) || !std::isfinite(width) || !fits(low) || !fits(high))
    fail(errc::option, "[uniform] range: low is ", low, ", high is ", high, "; low must be below high, and both finite",
         Source::from(at));
  // low + width * z may round up to `high`, which the range excludes.
  const computed_t<T> largest = detail::largest_below<T>(high);
  const auto finish = [=](computed_t<T>* data, std::int64_t count) {
    if (width != 1) detail::scale_values(data, count, width);
    if (low != 0 || width != 1 || is_half_v<T>) detail::shift_values(data, count, low, largest);
  };
  return detail::random_tensor<T, Rank>("uniform", Distribution::uniform, key, shape, mesh, spec, Cost{2}, finish, at);
}
template <Element T = float, class... TypeOnly, std::size_t Rank>
auto uniform(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {},
             computed_t<T> low = 0, computed_t<T> high = 1, Here at = Here::current()) {
  return uniform<T, static_cast<int>(Rank)>(key, detail::shape_from(shape), mesh, spec, low, high, at);
}
template <Element T = float>
ShardedTensor<T, 0> uniform(Key key, detail::NoExtents, const Mesh& mesh, const PartitionSpec& spec = {},
                            computed_t<T> low = 0, computed_t<T> high = 1, Here at = Here::current()) {
  return uniform<T, 0>(key, Shape{}, mesh, spec, low, high, at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
