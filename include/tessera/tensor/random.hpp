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
#include <tessera/tensor/allocate.hpp>
#include <tessera/tensor/key.hpp>
#include <tessera/tensor/storage_of.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <tessera/kernels/random.hpp>
#endif

namespace tessera {

namespace detail {

template <class T> constexpr void check_random_element() {
  static_assert(std::is_floating_point_v<T>, "tessera: random tensors are of float or double");
}

// Never inlined and one rounding each: a compiler could fuse a multiplication and an addition at some places only.
template <class T> __attribute__((noinline)) void scale_values(T* data, std::int64_t count, T factor) {
  for (std::int64_t i = 0; i < count; ++i) data[i] *= factor;
}
template <class T> __attribute__((noinline)) void shift_values(T* data, std::int64_t count, T offset, T largest) {
  for (std::int64_t i = 0; i < count; ++i) data[i] = std::min(data[i] + offset, largest);
}

/// Random numbers for the elements in a box of a tensor of that shape, which are neighbours in memory.
TESSERA_ONCE void fill_random(DType dtype, Distribution distribution, Key key, const Shape& shape, const Box& box,
                              void* data);
#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE void fill_random(DType dtype, Distribution distribution, Key key, const Shape& shape, const Box& box,
                              void* data) {
  const Shape own = extents(box);
  kernels::fill_random(dtype, distribution, data, kernels::contiguous_strides(own), key.seed, shape, box.begin, own);
}
#endif

/// offset + factor * z, at most `largest`, for random z, straight into the shards.
template <class T, int Rank>
ShardedTensor<T, Rank> random_tensor(const char* op, Distribution distribution, Key key, const Shape& shape,
                                     const Mesh& mesh, const PartitionSpec& spec, T factor, T offset, T largest,
                                     Here at) {
  const StoragePtr storage = allocate(op, dtype_v<T>, shape, Rank, mesh, spec, at);
  for_each_slab<T>(*storage, Cost{2}, [&](T* data, const Box& box) {
    fill_random(dtype_v<T>, distribution, key, shape, box, data);
    const std::int64_t count = volume(extents(box));
    if (factor != T(1)) scale_values(data, count, factor);
    if (offset != T(0) || (factor != T(1) && std::isfinite(largest))) shift_values(data, count, offset, largest);
  });
  return tensor_of<T, Rank>(storage);
}

}  // namespace detail

/// Normal random numbers, written straight into the shards. An element depends on the key, the shape and its index
/// alone: every mesh and spec gives the same tensor, bit for bit. The rank is that of a shape that is written out, or
/// it is named, as for `full`.
/// Errors: `option` for a negative deviation; those of `resolve` for the spec.
///
///     auto w = ts::normal<float>(ts::Key{1}, {64, 256}, mesh, {ts::none, "model"}, 0, 0.02f);
template <Element T, int Rank>
ShardedTensor<T, Rank> normal(Key key, const Shape& shape, const Mesh& mesh, const PartitionSpec& spec = {},
                              std::type_identity_t<T> mean = 0, std::type_identity_t<T> stddev = 1,
                              Here at = Here::current()) {
  detail::check_random_element<T>();
  if (!(stddev >= 0)) fail(errc::option, "[normal] deviation at least 0: ", stddev, Source::from(at));
  return detail::random_tensor<T, Rank>("normal", Distribution::normal, key, shape, mesh, spec, stddev, mean,
                                        std::numeric_limits<T>::infinity(), at);
}
template <Element T, std::size_t Rank>
auto normal(Key key, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {},
            std::type_identity_t<T> mean = 0, std::type_identity_t<T> stddev = 1, Here at = Here::current()) {
  return normal<T, static_cast<int>(Rank)>(key, detail::shape_from(shape), mesh, spec, mean, stddev, at);
}

/// Random numbers uniform in [low, high), as for `normal`.
/// Errors: `option` when low is not below high or the two are not finite; those of `resolve` for the spec.
template <Element T, int Rank>
ShardedTensor<T, Rank> uniform(Key key, const Shape& shape, const Mesh& mesh, const PartitionSpec& spec = {},
                               std::type_identity_t<T> low = 0, std::type_identity_t<T> high = 1,
                               Here at = Here::current()) {
  detail::check_random_element<T>();
  const T width = high - low;
  if (!(width > 0) || !std::isfinite(width))
    fail(errc::option, "[uniform] finite and low below high: ", low, " and ", high, Source::from(at));
  // Rounding could reach `high`, which is not in the range.
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
