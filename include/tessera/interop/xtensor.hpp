#ifndef TESSERA_INTEROP_XTENSOR_HPP
#define TESSERA_INTEROP_XTENSOR_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <xtensor/xadapt.hpp>
#include <xtensor/xeval.hpp>
#include <xtensor/xfixed.hpp>
#include <xtensor/xtensor.hpp>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/kernels/strides.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/local_shards.hpp>
#include <tessera/tensor/storage/storage_of.hpp>

namespace tessera {

/// An xtensor container, adaptor, view or expression.
template <class E>
concept XtensorExpression = xt::is_xexpression<E>::value;

namespace detail {

/// Rank of an xtensor shape type; -1 if the rank is known only at run time.
template <class XtensorShape> inline constexpr int xtensor_rank = -1;
template <class Size, std::size_t Rank>
inline constexpr int xtensor_rank<std::array<Size, Rank>> = static_cast<int>(Rank);
template <std::size_t... Extents>
inline constexpr int xtensor_rank<xt::fixed_shape<Extents...>> = static_cast<int>(sizeof...(Extents));

template <class E>
concept StridedXtensor = requires(const E& e) {
  e.data() + e.data_offset();
  e.strides();
};

}  // namespace detail

/// A sharded tensor with the elements of an xtensor array, view or expression, in any layout. An array or view is read
/// through its strides; an expression is evaluated first. Errors: `rank_mismatch` for an array of dynamic rank whose
/// rank is not the given one; those of `resolve`.
///
///     xt::xtensor<float, 2> host = ...;
///     auto x = ts::shard(host, mesh, {"data"});
///     auto y = ts::shard<2>(xt::load_npy<float>("y.npy"), mesh);   // xt::xarray: the rank is known at run time only
template <int Rank, XtensorExpression E>
auto shard(const E& array, const Mesh& mesh, const PartitionSpec& spec = {}, Here at = Here::current()) {
  using T = std::remove_cv_t<typename E::value_type>;
  static_assert(Element<T>, "tessera: a tensor can't have this element type; use float, double, an integer or bool");
  if constexpr (!detail::StridedXtensor<E>) {
    return shard<Rank>(xt::eval(array), mesh, spec, at);
  } else {
    Shape shape;
    for (auto extent : array.shape()) shape.push_back(static_cast<std::int64_t>(extent));
    detail::check_shape("shard", dtype_v<T>, shape, Rank, at);
    kernels::Strides strides;
    for (auto stride : array.strides()) strides.push_back(static_cast<std::int64_t>(stride));
    return detail::shard_strided<T, Rank>(array.data() + array.data_offset(), shape, strides, mesh, spec, at);
  }
}
template <XtensorExpression E>
auto shard(const E& array, const Mesh& mesh, const PartitionSpec& spec = {}, Here at = Here::current()) {
  constexpr int rank = detail::xtensor_rank<typename E::shape_type>;
  static_assert(rank >= 0,
                "tessera: the rank of this array is known only at run time; give it, as in ts::shard<2>(array, mesh)");
  if constexpr (rank >= 0) return shard<rank>(array, mesh, spec, at);
}

/// All elements as a row-major xt::xtensor.
template <class T, int Rank>
xt::xtensor<T, static_cast<std::size_t>(Rank)> to_xtensor(const ShardedTensor<T, Rank>& x) {
  const TensorStorage& storage = storage_of(x);
  std::array<std::size_t, static_cast<std::size_t>(Rank)> shape{};
  for (std::size_t dim = 0; dim < shape.size(); ++dim) shape[dim] = static_cast<std::size_t>(storage.shape()[dim]);
  auto out = xt::xtensor<T, static_cast<std::size_t>(Rank)>::from_shape(shape);
  detail::copy_to_host(storage, out.data());
  return out;
}

/// The shard of one device as an xtensor adaptor, without a copy. Valid as long as the tensor exists.
template <class T, int Rank> auto xtensor_view(const LocalShard<T, Rank>& shard) {
  std::array<std::size_t, static_cast<std::size_t>(Rank)> shape{};
  for (std::size_t dim = 0; dim < shape.size(); ++dim)
    shape[dim] = static_cast<std::size_t>(shard.box.end[dim] - shard.box.begin[dim]);
  const T* data = shard.data.data();
  return xt::adapt(std::move(data), shard.data.size(), xt::no_ownership(), shape);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
