#ifndef TESSERA_TENSOR_RANDOM_HPP
#define TESSERA_TENSOR_RANDOM_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/base/compiled.hpp>
#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/attributes.hpp>
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
  static_assert(std::is_floating_point_v<T>, "tessera: random tensors are float or double");
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

/// A tensor of offset + factor * z for random z, clamped to at most `largest`.
template <class T, int Rank>
ShardedTensor<T, Rank> random_tensor(const char* op, Distribution distribution, Key key, const Shape& shape,
                                     const Mesh& mesh, const PartitionSpec& spec, T factor, T offset, T largest,
                                     Here at) {
  const auto write = [=](T* data, const Box& box) {
    fill_random(dtype_v<T>, distribution, key, shape, box, data);
    const std::int64_t count = volume(extents(box));
    if (factor != T(1)) scale_values(data, count, factor);
    if (offset != T(0) || (factor != T(1) && std::isfinite(largest))) shift_values(data, count, offset, largest);
  };
  return tensor_of<T, Rank>(created<T>(op, shape, Rank, mesh, spec, at, Cost{2}, write));
}

}  // namespace detail

/// Normal random numbers, as jax.random.normal. An element depends only on the key, the shape and its index: every
/// mesh and spec gives the same tensor, bit for bit. A shape in braces determines the rank; with a Shape object write
/// `normal<float, 2>(...)`.
/// Errors: `option` for a negative deviation; those of `resolve` for the spec.
///
///     auto w = ts::normal<float>(ts::Key{1}, {64, 256}, mesh, {ts::none, "model"}, 0, 0.02f);
template <Element T, int Rank>
ShardedTensor<T, Rank> normal(Key key, const Shape& shape, const Mesh& mesh, const PartitionSpec& spec = {},
                              std::type_identity_t<T> mean = 0, std::type_identity_t<T> stddev = 1,
                              Here at = Here::current()) {
  detail::check_random_element<T>();
  if (!(stddev >= 0))
    fail(errc::option, "[normal] standard deviation: ", stddev, " is not at least 0", Source::from(at));
  return detail::random_tensor<T, Rank>("normal", Distribution::normal, key, shape, mesh, spec, stddev, mean,
                                        std::numeric_limits<T>::infinity(), at);
}
template <Element T, std::size_t Rank>
auto normal(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {},
            std::type_identity_t<T> mean = 0, std::type_identity_t<T> stddev = 1, Here at = Here::current()) {
  return normal<T, static_cast<int>(Rank)>(key, detail::shape_from(shape), mesh, spec, mean, stddev, at);
}

/// Random numbers uniform in [low, high), as for `normal`.
/// Errors: `option` unless low < high and both are finite; those of `resolve` for the spec.
template <Element T, int Rank>
ShardedTensor<T, Rank> uniform(Key key, const Shape& shape, const Mesh& mesh, const PartitionSpec& spec = {},
                               std::type_identity_t<T> low = 0, std::type_identity_t<T> high = 1,
                               Here at = Here::current()) {
  detail::check_random_element<T>();
  const T width = high - low;
  if (!(width > 0) || !std::isfinite(width))
    fail(errc::option, "[uniform] range: low is ", low, ", high is ", high, "; low must be below high, and both finite",
         Source::from(at));
  // low + width * z may round up to `high`, which the range excludes.
  return detail::random_tensor<T, Rank>("uniform", Distribution::uniform, key, shape, mesh, spec, width, low,
                                        std::nextafter(high, low), at);
}
template <Element T, std::size_t Rank>
auto uniform(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {},
             std::type_identity_t<T> low = 0, std::type_identity_t<T> high = 1, Here at = Here::current()) {
  return uniform<T, static_cast<int>(Rank)>(key, detail::shape_from(shape), mesh, spec, low, high, at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
