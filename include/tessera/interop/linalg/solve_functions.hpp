#ifndef TESSERA_INTEROP_LINALG_SOLVE_FUNCTIONS_HPP
#define TESSERA_INTEROP_LINALG_SOLVE_FUNCTIONS_HPP
#include <tessera/base/push_macros.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <tuple>
#include <utility>

#include <Eigen/Cholesky>
#include <Eigen/LU>

#include <tessera/interop/linalg/matrices.hpp>

// Functions that factor a square matrix, for ts::custom_call, with their gradients. g is the cotangent of the result.

namespace tessera::linalg::detail {

/// Which triangle of a matrix has the elements that are read.
enum class Triangle : bool { lower, upper };
enum class Diagonal : bool { given, ones };

/// The solution X of T X = B, or of T^t X = B, for a triangular T.
template <Triangle Half, As Turn, Diagonal On> struct SolveTriangular {
  static constexpr std::string_view name = "solve_triangular";
  static constexpr std::string_view signature = "(n,n),(n,k)->(n,k)";

  template <class T> static void run(CallArray<const T, 2> t, CallArray<const T, 2> b, CallArray<T, 2> x) {
    constexpr bool ones = On == Diagonal::ones;
    constexpr unsigned lower = ones ? Eigen::UnitLower : Eigen::Lower, upper = ones ? Eigen::UnitUpper : Eigen::Upper;
    [[maybe_unused]] constexpr unsigned half = Half == Triangle::lower ? lower : upper,
                                        other = Half == Triangle::lower ? upper : lower;
    MatrixMap<T> solution = as_eigen(x);
    solution = as_eigen(b);
    if (solution.size() == 0) return;
    if constexpr (Turn == As::given)
      as_eigen(t).template triangularView<half>().solveInPlace(solution);
    else
      as_eigen(t).transpose().template triangularView<other>().solveInPlace(solution);
  }

  /// The cotangent of B solves the transposed system. That of T is its negative product with X, within the triangle.
  template <class T, class> static constexpr void gradient(Gradient& r) {
    using Adjoint = SolveTriangular<Half, Turn == As::given ? As::transposed : As::given, On>;
    const Value to_b = apply<Adjoint, T>(0, r.x(0), r.full_g());
    r.add(1, to_b);
    if (!r.needs(0)) return;
    const Value to_t = Turn == As::given ? -product(to_b, As::given, r.y(), As::transposed)
                                         : -product(r.y(), As::given, to_b, As::transposed);
    r.add(0, within_triangle(to_t));
  }

 private:
  static constexpr Value within_triangle(Value x) {
    if (Half == Triangle::lower) return On == Diagonal::ones ? strictly_lower_part(x) : lower_part(x);
    return On == Diagonal::ones ? strictly_upper_part(x) : upper_part(x);
  }
};
/// The solution X of T X = B or T^t X = B.
template <class T, Triangle Half, As Turn = As::given> constexpr Value solve_triangular(Value t, Value b) {
  return apply<SolveTriangular<Half, Turn, Diagonal::given>, T>(0, t, b);
}

/// The lower factor L of (A + A^t) / 2 = L L^t; NaN where that is not positive definite, as jnp.linalg.cholesky.
struct Cholesky {
  static constexpr std::string_view name = "cholesky";
  static constexpr std::string_view signature = "(n,n)->(n,n)";

  template <class T> static void run(CallArray<const T, 2> a, CallArray<T, 2> l) {
    MatrixMap<T> factor = as_eigen(l);
    if (factor.size() == 0) return;
    const Matrix<T> given = (as_eigen(a) + as_eigen(a).transpose()) / T(2);
    const Eigen::LLT<Matrix<T>> found(given);
    const Matrix<T> lower = found.matrixL();
    // A matrix with NaN may pass.
    if (found.info() != Eigen::Success || !lower.allFinite())
      factor.setConstant(std::numeric_limits<T>::quiet_NaN());
    else
      factor = lower;
  }

  /// Murray, Differentiation of the Cholesky decomposition (2016): L^-t Phi(L^t g) L^-1, where Phi keeps the lower
  /// triangle and half of the diagonal; of that the symmetric part.
  template <class T> static constexpr void gradient(Gradient& r) {
    const Value l = r.y();
    const Value inner = product(l, As::transposed, lower_part(r.full_g()), As::given);
    const Value phi = lower_part(inner) - diagonal_part(inner) * 0.5;
    const Value left = solve_triangular<T, Triangle::lower, As::transposed>(l, phi);
    const Value both = solve_triangular<T, Triangle::lower, As::transposed>(l, transposed(left));
    r.add(0, symmetric_part(both));
  }
};

/// The solution X of A X = B or of A^t X = B, by partial pivoting. A singular A gives infinities and NaN, as
/// jnp.linalg.solve.
template <As Turn> struct Solve {
  static constexpr std::string_view name = "solve";
  static constexpr std::string_view signature = "(n,n),(n,k)->(n,k)";

  template <class T> static void run(CallArray<const T, 2> a, CallArray<const T, 2> b, CallArray<T, 2> x) {
    MatrixMap<T> solution = as_eigen(x);
    if (solution.size() == 0) return;
    if constexpr (Turn == As::given)
      solution = Eigen::PartialPivLU<Matrix<T>>(as_eigen(a)).solve(as_eigen(b));
    else
      solution = Eigen::PartialPivLU<Matrix<T>>(as_eigen(a).transpose()).solve(as_eigen(b));
  }

  template <class T, class> static constexpr void gradient(Gradient& r) {
    const Value to_b = apply<Solve<Turn == As::given ? As::transposed : As::given>, T>(0, r.x(0), r.full_g());
    r.add(1, to_b);
    if (!r.needs(0)) return;
    r.add(0, Turn == As::given ? -product(to_b, As::given, r.y(), As::transposed)
                               : -product(r.y(), As::given, to_b, As::transposed));
  }
};

struct Inverse {
  static constexpr std::string_view name = "inv";
  static constexpr std::string_view signature = "(n,n)->(n,n)";

  template <class T> static void run(CallArray<const T, 2> a, CallArray<T, 2> x) {
    MatrixMap<T> inverse = as_eigen(x);
    if (inverse.size() > 0) inverse = Eigen::PartialPivLU<Matrix<T>>(as_eigen(a)).inverse();
  }
  /// -X^t g X^t
  template <class T> static constexpr void gradient(Gradient& r) {
    const Value left = product(r.y(), As::transposed, r.full_g(), As::given);
    r.add(0, -product(left, As::given, r.y(), As::transposed));
  }
};

/// Sign, and logarithm of the absolute value, of the determinant. A singular matrix gives 0 and -infinity.
struct SlogDet {
  static constexpr std::string_view name = "slogdet";
  static constexpr std::string_view signature = "(n,n)->(),()";

  template <class T> static void run(CallArray<const T, 2> a, CallArray<T, 0> sign, CallArray<T, 0> logarithm) {
    sign() = 1;
    logarithm() = 0;
    if (a.size() == 0) return;
    const Eigen::PartialPivLU<Matrix<T>> lu(as_eigen(a));
    sign() = static_cast<T>(lu.permutationP().determinant());
    for (Eigen::Index i = 0; i < lu.matrixLU().rows(); ++i) {
      const T pivot = lu.matrixLU()(i, i);
      sign() *= std::isnan(pivot) ? pivot : static_cast<T>((pivot > 0) - (pivot < 0));
      logarithm() += std::log(std::abs(pivot));
    }
  }
  /// g A^-t; the sign is constant.
  template <class T> static constexpr void gradient(Gradient& r) {
    if (CustomCall::of(r.node()).result == 1)
      r.add(0, as_matrix(r.full_g()) * transposed(apply<Inverse, T>(0, r.x(0))));
  }
};

/// The matrix of cofactors, the gradient of the determinant: det(A) A^-t, defined for singular matrices too.
struct Cofactors {
  static constexpr std::string_view name = "cofactors";
  static constexpr std::string_view signature = "(n,n)->(n,n)";

  /// From A = P^-1 L U Q^-1 with full pivoting. With at most one zero pivot, the last one, the cofactors of U are those
  /// of a triangular matrix with a nonsingular leading block; with more, all cofactors are 0.
  template <class T> static void run(CallArray<const T, 2> a, CallArray<T, 2> c) {
    MatrixMap<T> cofactors = as_eigen(c);
    const Eigen::Index n = cofactors.rows();
    if (n == 0) return;
    if (n == 1) {
      cofactors(0, 0) = 1;
      return;
    }
    const Eigen::FullPivLU<Matrix<T>> lu(as_eigen(a));
    const Matrix<T> upper = lu.matrixLU().template triangularView<Eigen::Upper>();
    const Matrix<T> lower = lu.matrixLU().template triangularView<Eigen::UnitLower>();
    // adj(U): with the last pivot p, U = [V w; 0 p], det V = d: [p d V^-1, -d V^-1 w; 0, d].
    Matrix<T> adjugate = Matrix<T>::Zero(n, n);
    const auto leading = upper.topLeftCorner(n - 1, n - 1);
    const T d = leading.diagonal().prod(), last = upper(n - 1, n - 1);
    if (d != 0) {
      const Matrix<T> whole = Matrix<T>::Identity(n - 1, n - 1);
      const Matrix<T> inverse = leading.template triangularView<Eigen::Upper>().solve(whole);
      adjugate.topLeftCorner(n - 1, n - 1) = (last * d) * inverse;
      adjugate.topRightCorner(n - 1, 1) = -d * (inverse * upper.topRightCorner(n - 1, 1));
      adjugate(n - 1, n - 1) = d;
    } else if (std::isnan(d)) {
      adjugate.setConstant(d);
    }
    const T sign = static_cast<T>(lu.permutationP().determinant() * lu.permutationQ().determinant());
    const Matrix<T> one = Matrix<T>::Identity(n, n);
    const Matrix<T> lower_inverse = lower.template triangularView<Eigen::UnitLower>().solve(one);
    const Matrix<T> inner = adjugate * lower_inverse;
    const Matrix<T> outer = lu.permutationQ() * inner;
    const Matrix<T> whole_adjugate = outer * lu.permutationP();
    cofactors = sign * whole_adjugate.transpose();
  }
  /// For C = det(A) X^t with the inverse X: sum(g * X^t) C - det(A) X^t g^t X^t, for nonsingular matrices only.
  template <class T> static constexpr void gradient(Gradient& r) {
    const Value turned = transposed(apply<Inverse, T>(0, r.x(0)));
    const Value g = r.full_g();
    const int rank = g.rank();
    const Value along = build::sum_of(g * turned, 3u << (rank - 2), true);
    const Value inner = product(product(r.y(), As::given, g, As::transposed), turned);
    r.add(0, along * r.y() - inner);
  }
};

struct Determinant {
  static constexpr std::string_view name = "det";
  static constexpr std::string_view signature = "(n,n)->()";

  template <class T> static void run(CallArray<const T, 2> a, CallArray<T, 0> det) {
    det() = a.size() == 0 ? T(1) : Eigen::PartialPivLU<Matrix<T>>(as_eigen(a)).determinant();
  }
  template <class T> static constexpr void gradient(Gradient& r) {
    r.add(0, as_matrix(r.full_g()) * apply<Cofactors, T>(0, r.x(0)));
  }
};

/// L and U in one matrix, and for each of their rows the row of A: (L U)[i] = A[rows[i]].
struct LuFactors {
  static constexpr std::string_view name = "lu";
  static constexpr std::string_view signature = "(n,n)->(n,n),(n)";
  template <class... T> using results = std::tuple<T..., std::int32_t>;

  template <class T>
  static void run(CallArray<const T, 2> a, CallArray<T, 2> factors, CallArray<std::int32_t, 1> rows) {
    if (a.size() == 0) return;
    const Eigen::PartialPivLU<Matrix<T>> lu(as_eigen(a));
    as_eigen(factors) = lu.matrixLU();
    const auto& moved = lu.permutationP().indices();  // row i of A becomes row moved[i]
    for (Eigen::Index i = 0; i < moved.size(); ++i) rows(moved[i]) = static_cast<std::int32_t>(i);
  }
  /// PyTorch's lu_backward for square matrices: P L^-t (tril(L^t g_L, -1) + triu(g_U U^t)) U^-t.
  template <class T> static constexpr void gradient(Gradient& r) {
    if (CustomCall::of(r.node()).result != 0) return;
    const Value packed = r.y(), g = r.full_g();
    const Value l = lower_of(packed), u = upper_part(packed);
    const Value of_l = strictly_lower_part(product(l, As::transposed, strictly_lower_part(g), As::given));
    const Value of_u = upper_part(product(upper_part(g), As::given, u, As::transposed));
    const Value left = solve_triangular<T, Triangle::lower, As::transposed>(l, of_l + of_u);
    const Value both = transposed(solve_triangular<T, Triangle::upper>(u, transposed(left)));
    // Row rows[i] of the gradient is row i of `both`.
    const Value rows = build::result_of_call(r, 1);
    r.add(0, product(permutation_of(rows, both), both));
  }
  /// The matrix L of A = P L U: `packed` has U on and above its diagonal, and L, without its diagonal of ones, below.
  static constexpr Value lower_of(Value packed) {
    return strictly_lower_part(packed) + build::cast(is_on_diagonal(packed), packed.dtype());
  }
  /// The matrix P of A = P L U: P[rows[i], i] = 1.
  static constexpr Value permutation_of(Value rows, Value like) {
    return build::cast(build::equal(row_index(like), as_row(rows)), like.dtype());
  }
};

}  // namespace tessera::linalg::detail

#include <tessera/base/pop_macros.hpp>

#endif
