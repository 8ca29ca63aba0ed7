#ifndef TESSERA_INTEROP_EIGEN_HPP
#define TESSERA_INTEROP_EIGEN_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <type_traits>

#include <Eigen/Core>

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

/// The Eigen type of a tensor of rank 1 or 2, row-major like the tensor.
template <class T, int Rank> struct EigenOf {
  static_assert(Rank == 1 || Rank == 2, "tessera: Eigen matrices have 1 or 2 dims; see interop/eigen_tensor.hpp");
};
template <class T> struct EigenOf<T, 1> {
  using type = Eigen::Matrix<T, Eigen::Dynamic, 1>;
};
template <class T> struct EigenOf<T, 2> {
  using type = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
};

/// Strides of an Eigen matrix, or of a vector as a tensor of rank 1 or 2.
template <class Matrix> kernels::Strides eigen_strides(const Matrix& matrix, int rank) {
  if (rank == 1) return {static_cast<std::int64_t>(matrix.innerStride())};
  const auto inner = static_cast<std::int64_t>(matrix.innerStride());
  const auto outer = static_cast<std::int64_t>(matrix.outerStride());
  return Matrix::IsRowMajor ? kernels::Strides{outer, inner} : kernels::Strides{inner, outer};
}

}  // namespace detail

/// An Eigen matrix, array, map, block or expression.
template <class Matrix>
concept EigenDense = std::is_class_v<Matrix> && requires { typename Matrix::PlainObject; } &&
                     std::is_base_of_v<Eigen::DenseBase<Matrix>, Matrix>;

/// A sharded tensor with the elements of an Eigen matrix, array, map, block or expression, row- or column-major. An
/// Eigen vector becomes a tensor of rank 1; `shard<2>` keeps both dims. An expression is evaluated first.
///
///     Eigen::MatrixXf host(rows, 64);
///     auto x = ts::shard(host, mesh, {"data"});   // [rows/data, 64]
template <int Rank, EigenDense Matrix>
auto shard(const Matrix& matrix, const Mesh& mesh, const PartitionSpec& spec = {}, Here at = Here::current()) {
  using T = typename Matrix::Scalar;
  static_assert(Element<T>, "tessera: a tensor can't have this element type; use float, double, an integer or bool");
  static_assert(Rank == 2 || (Rank == 1 && Matrix::IsVectorAtCompileTime),
                "tessera: a matrix becomes a tensor of rank 2, a vector a tensor of rank 1 or 2");
  if constexpr ((static_cast<unsigned>(Matrix::Flags) & Eigen::DirectAccessBit) == 0) {
    const typename Matrix::PlainObject values = matrix;
    return shard<Rank>(values, mesh, spec, at);
  } else {
    Shape shape;
    if constexpr (Rank == 1)
      shape = {static_cast<std::int64_t>(matrix.size())};
    else
      shape = {static_cast<std::int64_t>(matrix.rows()), static_cast<std::int64_t>(matrix.cols())};
    return detail::shard_strided<T, Rank>(matrix.data(), shape, detail::eigen_strides(matrix, Rank), mesh, spec, at);
  }
}
template <EigenDense Matrix>
auto shard(const Matrix& matrix, const Mesh& mesh, const PartitionSpec& spec = {}, Here at = Here::current()) {
  return shard < Matrix::IsVectorAtCompileTime ? 1 : 2 > (matrix, mesh, spec, at);
}

/// All elements as a row-major Eigen matrix or vector, or as the given type: `to_eigen<Eigen::MatrixXf>(x)`.
/// Errors: `host_data` for an Eigen type of fixed size that differs from the tensor's shape.
template <class Matrix = void, class T, int Rank>
auto to_eigen(const ShardedTensor<T, Rank>& x, Here at = Here::current()) {
  if constexpr (std::is_void_v<Matrix>) {
    return to_eigen<typename detail::EigenOf<T, Rank>::type>(x, at);
  } else {
    static_assert(std::is_same_v<typename Matrix::Scalar, T>,
                  "tessera: the matrix and the tensor have different element types; cast the tensor with ts::cast");
    static_assert(Rank == 2 || (Rank == 1 && Matrix::IsVectorAtCompileTime),
                  "tessera: a tensor of rank 2 becomes a matrix, a tensor of rank 1 a vector");
    const TensorStorage& storage = storage_of(x);
    const std::int64_t first = storage.shape()[0], last = Rank == 2 ? storage.shape()[Rank - 1] : 1;
    const bool is_row = Rank == 1 && Matrix::RowsAtCompileTime == 1;
    const std::int64_t rows = is_row ? last : first, cols = is_row ? first : last;
    const auto fits = [](int fixed, int most, std::int64_t extent) {
      return (fixed == Eigen::Dynamic || fixed == extent) && (most == Eigen::Dynamic || extent <= most);
    };
    if (!fits(Matrix::RowsAtCompileTime, Matrix::MaxRowsAtCompileTime, rows) ||
        !fits(Matrix::ColsAtCompileTime, Matrix::MaxColsAtCompileTime, cols))
      fail(errc::host_data, "[to_eigen] shape: ", sharded_type_text(storage), " does not fit an Eigen matrix of ",
           static_cast<int>(Matrix::RowsAtCompileTime), "x", static_cast<int>(Matrix::ColsAtCompileTime),
           " (-1 is Eigen::Dynamic)", Source::from(at));
    Matrix out;
    out.resize(static_cast<Eigen::Index>(rows), static_cast<Eigen::Index>(cols));
    detail::copy_to_host(storage, out.data(), detail::eigen_strides(out, Rank));
    return out;
  }
}

/// The shard of one device as an Eigen map, without a copy. Valid as long as the tensor exists.
template <class T, int Rank> auto eigen_view(const LocalShard<T, Rank>& shard) {
  using Matrix = typename detail::EigenOf<T, Rank>::type;
  const Shape shape = extents(shard.box);
  if constexpr (Rank == 1)
    return Eigen::Map<const Matrix>(shard.data.data(), static_cast<Eigen::Index>(shape[0]));
  else
    return Eigen::Map<const Matrix>(shard.data.data(), static_cast<Eigen::Index>(shape[0]),
                                    static_cast<Eigen::Index>(shape[1]));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
