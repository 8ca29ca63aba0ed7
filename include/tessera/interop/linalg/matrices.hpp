#ifndef TESSERA_INTEROP_LINALG_MATRICES_HPP
#define TESSERA_INTEROP_LINALG_MATRICES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <type_traits>

#include <Eigen/Core>

#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/contraction/contraction_rows.hpp>
#include <tessera/ops/custom/custom_call.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/elementwise.hpp>

/// What the functions of tessera::linalg and their gradients are made of.
namespace tessera::linalg::detail {

template <class T> using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T> using MatrixMap = Eigen::Map<Matrix<T>>;
template <class T> using ConstMatrixMap = Eigen::Map<const Matrix<T>>;

template <class T> ConstMatrixMap<T> as_eigen(CallArray<const T, 2> x) {
  return {x.data(), static_cast<Eigen::Index>(x.extent(0)), static_cast<Eigen::Index>(x.extent(1))};
}
template <class T> MatrixMap<T> as_eigen(CallArray<T, 2> x) {
  return {x.data(), static_cast<Eigen::Index>(x.extent(0)), static_cast<Eigen::Index>(x.extent(1))};
}
template <class T> Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, 1>> as_eigen(CallArray<T, 1> x) {
  return {x.data(), static_cast<Eigen::Index>(x.extent(0))};
}

/// Result k of a function of matrices of element type T.
template <class Function, class T> constexpr Value apply(int k, Value x) {
  return build::custom_call(tessera::detail::custom_row_v<Function, T>, &x, k);
}
template <class Function, class T> constexpr Value apply(int k, Value x, Value y) {
  const Value operands[] = {x, y};
  return build::custom_call(tessera::detail::custom_row_v<Function, T, T>, operands, k);
}

enum class As : bool { given, transposed };

/// The product of two matrices in each batch entry, each as given or transposed.
constexpr Value product(Value a, As a_as, Value b, As b_as) {
  const int batch = a.rank() - 2;
  const int a_turns = a_as == As::transposed ? 1 : 0, b_turns = b_as == As::transposed ? 1 : 0;
  EinsumLabels labels{};
  for (int d = 0; d < max_rank; ++d)
    labels.a[d] = labels.b[d] = labels.out[d] = static_cast<std::int8_t>(d < batch ? d : -1);
  const auto row = static_cast<std::int8_t>(batch), summed = static_cast<std::int8_t>(batch + 1),
             column = static_cast<std::int8_t>(batch + 2);
  labels.a[batch + a_turns] = row;
  labels.a[batch + 1 - a_turns] = summed;
  labels.b[batch + b_turns] = summed;
  labels.b[batch + 1 - b_turns] = column;
  labels.out[batch] = row;
  labels.out[batch + 1] = column;
  return build::einsum(a, b, labels);
}
constexpr Value product(Value a, Value b) { return product(a, As::given, b, As::given); }

constexpr Value transposed(Value x) { return build::move_dim(x, x.rank() - 1, x.rank() - 2); }
constexpr Value symmetric_part(Value x) { return (x + transposed(x)) * 0.5; }

/// A vector in each batch entry as a matrix of one column, or of one row.
constexpr Value as_column(Value v) { return build::insert_singletons(v, 1u << v.rank(), v.rank() + 1); }
constexpr Value as_row(Value v) { return build::insert_singletons(v, 1u << (v.rank() - 1), v.rank() + 1); }
/// A scalar in each batch entry as a matrix of one element. A single scalar broadcasts as it is; it may be a host
/// scalar, which no step can move.
constexpr Value as_matrix(Value v) {
  return v.rank() == 0 ? v : build::insert_singletons(v, 3u << v.rank(), v.rank() + 2);
}

constexpr Value row_index(Value x) { return build::iota(x, x.rank() - 2, DType::i32); }
constexpr Value column_index(Value x) { return build::iota(x, x.rank() - 1, DType::i32); }
constexpr Value is_on_diagonal(Value x) { return build::equal(row_index(x), column_index(x)); }
constexpr Value is_below_diagonal(Value x) { return build::greater(row_index(x), column_index(x)); }
constexpr Value is_above_diagonal(Value x) { return build::less(row_index(x), column_index(x)); }
/// The matrix with zeros off its diagonal.
constexpr Value diagonal_part(Value x) { return build::select(is_on_diagonal(x), x, x.number(0)); }
/// The matrix with zeros above its diagonal, or below it; `strictly`: on the diagonal too.
constexpr Value lower_part(Value x) { return build::select(is_above_diagonal(x), x.number(0), x); }
constexpr Value upper_part(Value x) { return build::select(is_below_diagonal(x), x.number(0), x); }
constexpr Value strictly_lower_part(Value x) { return build::select(is_below_diagonal(x), x, x.number(0)); }
constexpr Value strictly_upper_part(Value x) { return build::select(is_above_diagonal(x), x, x.number(0)); }

/// Checks at compile time that a function of matrices gets them.
template <class X, int Least> constexpr bool takes_matrices() {
  constexpr bool floats = std::is_same_v<typename X::element, float> || std::is_same_v<typename X::element, double>;
  static_assert(floats, "tessera: linear algebra is for tensors of float or double; convert the tensor with ts::cast");
  static_assert(X::rank >= Least,
                "tessera: linear algebra takes matrices, the last two dims of a tensor of rank 2 or more");
  return floats && X::rank >= Least;
}

}  // namespace tessera::linalg::detail

#include <tessera/base/pop_macros.hpp>

#endif
