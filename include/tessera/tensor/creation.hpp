#ifndef TESSERA_TENSOR_CREATION_HPP
#define TESSERA_TENSOR_CREATION_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/base/compiled.hpp>
#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/kernels/strides.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/runtime/memory/storage.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/tensor/storage/allocate.hpp>
#include <tessera/tensor/storage/shard_refs.hpp>
#include <tessera/tensor/storage/storage_of.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <tessera/runtime/executor/profile_hook.hpp>
#endif

namespace tessera {

namespace detail {

/// Arrays of other libraries (Eigen, xtensor) have overloads that read their shape and element order, so `shard` from
/// plain values must not match them.
template <class Array>
concept HasOwnShape = requires(const Array& array) { array.shape(); } || requires(const Array& array) {
  array.rows();
} || requires(const Array& array) { array.dimensions(); };

template <class Range> struct HostElement {};
template <class Range>
  requires(!HasOwnShape<Range> &&
           requires(const Range& range) {
             std::data(range);
             std::size(range);
           })
struct HostElement<Range> {
  using type = std::remove_cvref_t<decltype(*std::data(std::declval<const Range&>()))>;
};
template <> struct HostElement<std::vector<bool>> {
  using type = bool;
};
template <class Range> using host_element = typename HostElement<Range>::type;

/// Fills a tensor from a host array of the same shape and any strides, in parallel.
TESSERA_ONCE void copy_from_host(TensorStorage& to, const void* data, const kernels::Strides& strides);
#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE void copy_from_host(TensorStorage& to, const void* data, const kernels::Strides& strides) {
  const runtime::ProfiledRange range(runtime::ProfiledWork::shard, {}, to);
  const Uncounted uncounted;  // a copy from the host is no communication between devices
  const runtime::ShardRef host{const_cast<void*>(data), {Shape(to.shape().size(), 0), to.shape()}, strides};
  runtime::reshard(to.dtype(), Reduction::sum, shard_refs(to), {&host, 1});
}
#endif

template <class T, int Rank>
ShardedTensor<T, Rank> shard_strided(const T* data, const Shape& shape, const kernels::Strides& strides,
                                     const Mesh& mesh, const PartitionSpec& spec, Here at) {
  if (deferring()) {
    const StoragePtr whole = allocate("shard", dtype_v<T>, shape, Rank, Mesh{}, {}, at);
    copy_from_host(*whole, data, strides);
    return tensor_of<T, Rank>(allocate("shard", dtype_v<T>, shape, Rank, mesh, spec, at, [whole](TensorStorage& to) {
      copy_from_host(to, whole->data(0), kernels::contiguous_strides(to.shape()));
    }));
  }
  const StoragePtr storage = allocate("shard", dtype_v<T>, shape, Rank, mesh, spec, at);
  copy_from_host(*storage, data, strides);
  return tensor_of<T, Rank>(storage);
}

template <class T, int Rank>
ShardedTensor<T, Rank> shard_values(const T* data, std::size_t count, const Shape& shape, const Mesh& mesh,
                                    const PartitionSpec& spec, Here at) {
  check_shape("shard", dtype_v<T>, shape, Rank, at);
  if (static_cast<std::uint64_t>(volume(shape)) != count)
    fail(errc::host_data, "[shard] element count: ", count, " values for ", shape_text(dtype_v<T>, shape),
         ", which has ", volume(shape), Source::from(at));
  return shard_strided<T, Rank>(data, shape, kernels::contiguous_strides(shape), mesh, spec, at);
}

}  // namespace detail

/// Contiguous values of an element type on the host: std::vector (of bool too), std::span, std::array, a C array.
template <class Range>
concept HostValues = Element<detail::host_element<Range>>;

/// A sharded tensor with the row-major values of a host array. Each shard is copied directly, as in jax.device_put.
///
/// A shape in braces, `{rows, 64}`, determines the rank; with a Shape object write the rank: `shard<2>(...)`.
/// Errors: `host_data` if the number of values is not that of the shape's elements; those of `resolve` for the spec.
///
///     auto x = ts::shard(values, {rows, 64}, mesh, {"data", ts::none});   // [rows/data, 64]
template <int Rank, HostValues Range>
auto shard(const Range& values, const Shape& shape, const Mesh& mesh, const PartitionSpec& spec = {},
           Here at = Here::current()) {
  using T = detail::host_element<Range>;
  if constexpr (std::is_same_v<Range, std::vector<bool>>) {
    const auto bools = std::make_unique<bool[]>(values.size());
    std::copy(values.begin(), values.end(), bools.get());
    return detail::shard_values<bool, Rank>(bools.get(), values.size(), shape, mesh, spec, at);
  } else {
    return detail::shard_values<T, Rank>(std::data(values), std::size(values), shape, mesh, spec, at);
  }
}
template <HostValues Range, std::size_t Rank>
auto shard(const Range& values, const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {},
           Here at = Here::current()) {
  return shard<static_cast<int>(Rank)>(values, detail::shape_from(shape), mesh, spec, at);
}

/// `shard` of a host array as a tensor of rank 1.
template <HostValues Range>
auto shard(const Range& values, const Mesh& mesh, const PartitionSpec& spec = {}, Here at = Here::current()) {
  return shard<1>(values, Shape{static_cast<std::int64_t>(std::size(values))}, mesh, spec, at);
}

/// `shard` of a C array, whose shape is known, or of a braced list: `ts::shard<float>({{1, 2}, {3, 4}}, mesh)`.
template <Element T, std::size_t N>
ShardedTensor<T, 1> shard(const T (&values)[N], const Mesh& mesh, const PartitionSpec& spec = {},
                          Here at = Here::current()) {
  return detail::shard_values<T, 1>(values, N, {static_cast<std::int64_t>(N)}, mesh, spec, at);
}
template <Element T, std::size_t N, std::size_t M>
ShardedTensor<T, 2> shard(const T (&values)[N][M], const Mesh& mesh, const PartitionSpec& spec = {},
                          Here at = Here::current()) {
  return detail::shard_values<T, 2>(values[0], N * M, detail::shape_from({N, M}), mesh, spec, at);
}
template <Element T, std::size_t N, std::size_t M, std::size_t K>
ShardedTensor<T, 3> shard(const T (&values)[N][M][K], const Mesh& mesh, const PartitionSpec& spec = {},
                          Here at = Here::current()) {
  return detail::shard_values<T, 3>(values[0][0], N * M * K, detail::shape_from({N, M, K}), mesh, spec, at);
}

namespace detail {

template <class T, int Rank>
ShardedTensor<T, Rank> filled(std::string_view op, const Shape& shape, T value, const Mesh& mesh,
                              const PartitionSpec& spec, Here at) {
  return tensor_of<T, Rank>(
      created<T>(op, shape, Rank, mesh, spec, at, Cost::bytes(sizeof(T)),
                 [value](T* data, const Box& box) { std::fill_n(data, volume(extents(box)), value); }));
}

}  // namespace detail

// `class... TypeOnly` takes no arguments: with a rank, `zeros<float, 2>({3, 4}, mesh)`, the overload of a Shape is
// meant.

/// A tensor of equal elements. A shape in braces determines the rank; with a Shape object write `full<float, 2>(...)`.
///
///     auto w = ts::full<float>({64, 32}, 0.5f, mesh, {"data"});
///     auto scalar = ts::full<float>({}, 0.5f, mesh);
///     auto halves = ts::full({64, 32}, 0.5, mesh);   // without a type that of the value, and float of a double
template <Element T, int Rank>
ShardedTensor<T, Rank> full(const Shape& shape, std::type_identity_t<T> value, const Mesh& mesh,
                            const PartitionSpec& spec = {}, Here at = Here::current()) {
  return detail::filled<T, Rank>("full", shape, value, mesh, spec, at);
}
template <Element T, class... TypeOnly, std::size_t Rank>
auto full(const Extent (&shape)[Rank], std::type_identity_t<T> value, const Mesh& mesh, const PartitionSpec& spec = {},
          Here at = Here::current()) {
  return full<T, static_cast<int>(Rank)>(detail::shape_from(shape), value, mesh, spec, at);
}
template <Element T>
ShardedTensor<T, 0> full(detail::NoExtents, std::type_identity_t<T> value, const Mesh& mesh,
                         const PartitionSpec& spec = {}, Here at = Here::current()) {
  return full<T, 0>(Shape{}, value, mesh, spec, at);
}
template <std::size_t Rank, Element Number>
auto full(const Extent (&shape)[Rank], Number value, const Mesh& mesh, const PartitionSpec& spec = {},
          Here at = Here::current()) {
  using T = detail::filled_with_t<Number>;
  return full<T, static_cast<int>(Rank)>(detail::shape_from(shape), static_cast<T>(value), mesh, spec, at);
}
template <int Rank = 0, Element Number>
auto full(detail::NoExtents, Number value, const Mesh& mesh, const PartitionSpec& spec = {},
          Here at = Here::current()) {
  using T = detail::filled_with_t<Number>;
  return full<T, Rank>(Shape{}, static_cast<T>(value), mesh, spec, at);
}

template <Element T, int Rank>
ShardedTensor<T, Rank> zeros(const Shape& shape, const Mesh& mesh, const PartitionSpec& spec = {},
                             Here at = Here::current()) {
  return detail::filled<T, Rank>("zeros", shape, T(0), mesh, spec, at);
}
template <Element T = float, class... TypeOnly, std::size_t Rank>
auto zeros(const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {}, Here at = Here::current()) {
  return zeros<T, static_cast<int>(Rank)>(detail::shape_from(shape), mesh, spec, at);
}
template <Element T = float>
ShardedTensor<T, 0> zeros(detail::NoExtents, const Mesh& mesh, const PartitionSpec& spec = {},
                          Here at = Here::current()) {
  return zeros<T, 0>(Shape{}, mesh, spec, at);
}

template <Element T, int Rank>
ShardedTensor<T, Rank> ones(const Shape& shape, const Mesh& mesh, const PartitionSpec& spec = {},
                            Here at = Here::current()) {
  return detail::filled<T, Rank>("ones", shape, T(1), mesh, spec, at);
}
template <Element T = float, class... TypeOnly, std::size_t Rank>
auto ones(const Extent (&shape)[Rank], const Mesh& mesh, const PartitionSpec& spec = {}, Here at = Here::current()) {
  return ones<T, static_cast<int>(Rank)>(detail::shape_from(shape), mesh, spec, at);
}
template <Element T = float>
ShardedTensor<T, 0> ones(detail::NoExtents, const Mesh& mesh, const PartitionSpec& spec = {},
                         Here at = Here::current()) {
  return ones<T, 0>(Shape{}, mesh, spec, at);
}

/// start, start + step, start + 2 step, ...: `count` elements. For a floating-point T they are computed in double and
/// rounded to T once. T is std::int32_t when none is named.
template <Element T = std::int32_t>
ShardedTensor<T, 1> arange(Extent count, const Mesh& mesh, const PartitionSpec& spec = {},
                           std::type_identity_t<T> start = T(0), std::type_identity_t<T> step = T(1),
                           Here at = Here::current()) {
  static_assert(!std::is_same_v<T, bool>,
                "tessera: arange makes no bool tensors; use an integer or floating element type");
  // Unsigned arithmetic wraps where a signed integer T would overflow.
  using Wide = std::conditional_t<is_floating_v<T>, double, std::uint64_t>;
  const auto write = [start, step](T* data, const Box& box) {
    for (std::int64_t i = box.begin[0]; i < box.end[0]; ++i)
      *data++ = static_cast<T>(static_cast<Wide>(start) + static_cast<Wide>(i) * static_cast<Wide>(step));
  };
  return tensor_of<T, 1>(detail::created<T>("arange", {count.value}, 1, mesh, spec, at, Cost::bytes(sizeof(T)), write));
}

namespace detail {

/// The element type of a range: what is named, or else float for floating numbers and i64 for numbers of 64 bits.
template <class T, class... Numbers>
using range_element_t = std::conditional_t<
    !std::is_void_v<T>, T,
    std::conditional_t<(is_floating_v<Numbers> || ...), float,
                       std::conditional_t<(std::is_same_v<Numbers, std::int64_t> || ...), std::int64_t, std::int32_t>>>;

/// The number of steps from `start` before `end`; of integers it is exact.
template <class Number>
std::int64_t steps_between(const Number& start, const Number& end, const Number& step, const Source& at) {
  if (step == Number(0)) fail(errc::dim_range, "[arange] step: 0 at ", at.text());
  if constexpr (std::is_integral_v<Number>) {
    if (step > 0 ? start >= end : start <= end) return 0;
    const auto from = static_cast<std::uint64_t>(start), to = static_cast<std::uint64_t>(end),
               by = static_cast<std::uint64_t>(step);
    const std::uint64_t steps = step > 0 ? (to - from - 1) / by + 1 : (from - to - 1) / (0 - by) + 1;
    if (steps <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return static_cast<std::int64_t>(steps);
  } else {
    const double steps = std::ceil((end - start) / step);
    if (steps < 9e18) return steps > 0 ? static_cast<std::int64_t>(steps) : 0;
  }
  fail(errc::dim_range, "[arange] number of steps: from ", start, " to ", end, " by ", step,
       " is not a number of 64 bits, at ", at.text());
}

}  // namespace detail

/// start, start + step, ... up to the last one before `end` (torch.arange, jnp.arange): `arange(0, 1, 0.25, mesh)` is
/// 0, .25, .5, .75. Without a type it is float where a number is floating, else i32, and i64 with a number of 64 bits.
/// Errors: dim_range for a step of 0, and for numbers that are not finite.
template <class T = void, Element Start, Element End, Element Step>
auto arange(Start start, End end, Step step, const Mesh& mesh, const PartitionSpec& spec = {},
            Here at = Here::current()) {
  using Made = detail::range_element_t<T, Start, End, Step>;
  constexpr bool floating = is_floating_v<Start> || is_floating_v<End> || is_floating_v<Step>;
  static_assert(is_floating_v<Made> || !floating,
                "tessera: an arange of integers has an integer start, end and step; write ts::arange<float>(start, "
                "end, step, mesh)");
  using Number = std::conditional_t<floating, double, std::int64_t>;
  const std::int64_t count = detail::steps_between(static_cast<Number>(start), static_cast<Number>(end),
                                                   static_cast<Number>(step), Source::from(at));
  return arange<Made>(Extent(count), mesh, spec, static_cast<Made>(start), static_cast<Made>(step), at);
}
template <class T = void, Element Start, Element End>
auto arange(Start start, End end, const Mesh& mesh, const PartitionSpec& spec = {}, Here at = Here::current()) {
  return arange<detail::range_element_t<T, Start, End>>(start, end, std::int32_t{1}, mesh, spec, at);
}

namespace detail {

/// Point `i` of `count` points from `start` to `end`: each half is computed from its own end, so that both are exact.
inline double point_of_line(double start, double end, std::int64_t i, std::int64_t count) {
  const std::int64_t last = count - 1;
  const double step = (end - start) / static_cast<double>(std::max<std::int64_t>(last, 1));
  return 2 * i <= last ? start + static_cast<double>(i) * step : end - static_cast<double>(last - i) * step;
}
/// A function of each index of a vector.
template <class T, class F>
ShardedTensor<T, 1> vector_of(std::string_view op, Extent count, const Mesh& mesh, const PartitionSpec& spec, Here at,
                              F f) {
  static_assert(is_floating_v<T>, "tessera: linspace and logspace make tensors of float, double, bf16 and f16");
  const auto write = [f](T* data, const Box& box) {
    for (std::int64_t i = box.begin[0]; i < box.end[0]; ++i) *data++ = static_cast<T>(f(i));
  };
  return tensor_of<T, 1>(created<T>(op, {count.value}, 1, mesh, spec, at, Cost::bytes(sizeof(T)), write));
}

}  // namespace detail

/// `count` equally spaced points from `start` to `end`, both included (torch.linspace, jnp.linspace); a single point is
/// `start`. T is float (the default), double, bf16 or f16; points are computed in double and rounded once.
///
///     const auto grid = ts::linspace(-1, 1, 5, mesh);   // -1, -0.5, 0, 0.5, 1
template <Element T = float>
ShardedTensor<T, 1> linspace(double start, double end, Extent count, const Mesh& mesh, const PartitionSpec& spec = {},
                             Here at = Here::current()) {
  return detail::vector_of<T>("linspace", count, mesh, spec, at, [start, end, n = count.value](std::int64_t i) {
    return detail::point_of_line(start, end, i, n);
  });
}
/// `base` to the power of the points of linspace (torch.logspace, jnp.logspace).
///
///     const auto rates = ts::logspace(-4, -1, 4, mesh);   // 0.0001, 0.001, 0.01, 0.1
template <Element T = float>
ShardedTensor<T, 1> logspace(double start, double end, Extent count, const Mesh& mesh, const PartitionSpec& spec = {},
                             double base = 10, Here at = Here::current()) {
  return detail::vector_of<T>("logspace", count, mesh, spec, at, [start, end, base, n = count.value](std::int64_t i) {
    return std::pow(base, detail::point_of_line(start, end, i, n));
  });
}

/// The identity matrix [n, n], or 1 on the diagonal of [n, m] and 0 elsewhere (torch.eye, jnp.eye): `eye<float>(8,
/// mesh)`.
template <Element T = float>
ShardedTensor<T, 2> eye(Extent n, Extent m, const Mesh& mesh, const PartitionSpec& spec = {},
                        Here at = Here::current()) {
  const auto write = [](T* data, const Box& box) {
    for (std::int64_t i = box.begin[0]; i < box.end[0]; ++i)
      for (std::int64_t j = box.begin[1]; j < box.end[1]; ++j) *data++ = static_cast<T>(i == j ? 1 : 0);
  };
  return tensor_of<T, 2>(
      detail::created<T>("eye", {n.value, m.value}, 2, mesh, spec, at, Cost::bytes(sizeof(T)), write));
}
template <Element T = float>
ShardedTensor<T, 2> eye(Extent n, const Mesh& mesh, const PartitionSpec& spec = {}, Here at = Here::current()) {
  return eye<T>(n, n, mesh, spec, at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
