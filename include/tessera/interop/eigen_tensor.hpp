#ifndef TESSERA_INTEROP_EIGEN_TENSOR_HPP
#define TESSERA_INTEROP_EIGEN_TENSOR_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <unsupported/Eigen/CXX11/Tensor>

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

namespace detail {

inline kernels::Strides eigen_tensor_strides(const Shape& shape, bool row_major) {
  kernels::Strides strides = kernels::contiguous_strides(shape);
  if (row_major) return strides;
  std::int64_t step = 1;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    strides[dim] = step;
    step *= shape[dim];
  }
  return strides;
}

template <class Tensor>
auto shard_eigen_tensor(const Tensor& tensor, const Mesh& mesh, const PartitionSpec& spec, Here at) {
  using T = std::remove_const_t<typename Tensor::Scalar>;
  static_assert(Element<T>, "tessera: a tensor can't have this element type; use float, double, an integer or bool");
  Shape shape;
  for (int dim = 0; dim < static_cast<int>(Tensor::NumDimensions); ++dim)
    shape.push_back(static_cast<std::int64_t>(tensor.dimension(dim)));
  const bool row_major = static_cast<int>(Tensor::Layout) == static_cast<int>(Eigen::RowMajor);
  return shard_strided<T, static_cast<int>(Tensor::NumDimensions)>(
      tensor.data(), shape, eigen_tensor_strides(shape, row_major), mesh, spec, at);
}

}  // namespace detail

/// A sharded tensor with the elements of an Eigen::Tensor or Eigen::TensorMap, row- or column-major.
template <class T, int Rank, int Options, class Index>
auto shard(const Eigen::Tensor<T, Rank, Options, Index>& tensor, const Mesh& mesh, const PartitionSpec& spec = {},
           Here at = Here::current()) {
  return detail::shard_eigen_tensor(tensor, mesh, spec, at);
}
template <class Plain, int Options, template <class> class MakePointer>
auto shard(const Eigen::TensorMap<Plain, Options, MakePointer>& tensor, const Mesh& mesh,
           const PartitionSpec& spec = {}, Here at = Here::current()) {
  return detail::shard_eigen_tensor(tensor, mesh, spec, at);
}

/// All elements as an Eigen::Tensor.
template <int Layout = Eigen::RowMajor, class T, int Rank>
Eigen::Tensor<T, Rank, Layout> to_eigen_tensor(const ShardedTensor<T, Rank>& x) {
  const TensorStorage& storage = storage_of(x);
  Eigen::array<Eigen::Index, static_cast<std::size_t>(Rank)> sizes{};
  for (std::size_t dim = 0; dim < sizes.size(); ++dim) sizes[dim] = static_cast<Eigen::Index>(storage.shape()[dim]);
  Eigen::Tensor<T, Rank, Layout> out(sizes);
  detail::copy_to_host(storage, out.data(), detail::eigen_tensor_strides(storage.shape(), Layout == Eigen::RowMajor));
  return out;
}

/// The shard of one device as an Eigen::TensorMap, without a copy. Valid as long as the tensor exists.
template <class T, int Rank> auto eigen_tensor_view(const LocalShard<T, Rank>& shard) {
  Eigen::array<Eigen::Index, static_cast<std::size_t>(Rank)> sizes{};
  const Shape shape = extents(shard.box);
  for (std::size_t dim = 0; dim < sizes.size(); ++dim) sizes[dim] = static_cast<Eigen::Index>(shape[dim]);
  return Eigen::TensorMap<const Eigen::Tensor<T, Rank, Eigen::RowMajor>>(shard.data.data(), sizes);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
