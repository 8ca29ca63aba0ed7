#ifndef TESSERA_INTEROP_LINALG_HPP
#define TESSERA_INTEROP_LINALG_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/interop/complex.hpp>
#include <tessera/interop/linalg/decomposition_functions.hpp>
#include <tessera/interop/linalg/exponential_function.hpp>
#include <tessera/interop/linalg/solve_functions.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/data_movement/diagonal.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/reduction.hpp>

/// Linear algebra on the matrices in the last two dims of tensors of float or double, computed with Eigen. Each
/// function has a gradient, and higher derivatives. The dims before the last two are batch dims: they stay split, and
/// the batch entries of a device are divided among its threads. If a dim of the matrices is split, an all_to_all moves
/// its axes to a batch dim that they divide; otherwise the dim is gathered.
///
///     #include <tessera/interop/linalg.hpp>            // target tessera::eigen, or tessera::tessera
///     const auto l = ts::linalg::cholesky(covariance);                      // [batch/data, n, n]
///     const auto x = ts::linalg::solve_triangular<ts::linalg::Triangle::lower>(l, b);
namespace tessera::linalg {

using detail::Diagonal;
using detail::Triangle;

namespace detail {

/// Vectors as matrices of one column.
template <int Rank> struct ColumnTag : tessera::detail::UnsqueezeTag<Rank, Rank> {
  static constexpr const char* function = column_of_vector;
};

/// Calls a function of a matrix and of a matrix or vectors b: with one dim less than the matrix, b holds vectors.
template <class Function, class A, class X> constexpr auto solve_of(Source source, const A& a, const X& b) {
  constexpr bool ranks = X::rank >= 1 && X::rank <= max_rank && (X::rank >= 2 || A::rank == 2),
                 alike = std::is_same_v<typename A::element, typename X::element>;
  static_assert(ranks, "tessera: the right-hand side of a linear system is a matrix, or has one dim less than the "
                       "matrices of the system and holds vectors");
  static_assert(alike, "tessera: both operands of a linear system have the same element type; use ts::cast");
  if constexpr (takes_matrices<A, 2>() && ranks && alike) {
    if constexpr (X::rank + 1 == A::rank)
      return call<tessera::detail::SqueezeTag<A::rank, A::rank - 1>>(
          source, tessera::detail::custom_call_of<Function>(source, a, call<ColumnTag<X::rank>>(source, b)));
    else
      return tessera::detail::custom_call_of<Function>(source, a, b);
  }
}

}  // namespace detail

/// The lower triangular L of (a + a^t) / 2 = L L^t, as jnp.linalg.cholesky. NaN for a matrix that is not positive
/// definite, where torch.linalg.cholesky throws.
template <TensorOperand A> constexpr auto cholesky(const A& a, Here at = Here::current()) {
  if constexpr (detail::takes_matrices<A, 2>())
    return tessera::detail::custom_call_of<detail::Cholesky>(Source::from(at), a);
}

/// The solution x of a x = b, for b [..., n, k] or, with one dim less than a, [..., n]. A singular matrix gives
/// infinities or NaN, as jnp.linalg.solve, where torch.linalg.solve throws.
template <TensorOperand A, TensorOperand X> constexpr auto solve(const A& a, const X& b, Here at = Here::current()) {
  return detail::solve_of<detail::Solve<detail::As::given>>(Source::from(at), a, b);
}

/// The solution x of t x = b for a triangular t: `solve_triangular<Triangle::lower>(l, b)`. Only this triangle of t is
/// read; with Diagonal::ones its diagonal is not read and counts as ones. b as in solve. torch.linalg.solve_triangular
/// and jax.scipy.linalg.solve_triangular.
template <Triangle Half, Diagonal On = Diagonal::given, TensorOperand A, TensorOperand X>
constexpr auto solve_triangular(const A& t, const X& b, Here at = Here::current()) {
  return detail::solve_of<detail::SolveTriangular<Half, detail::As::given, On>>(Source::from(at), t, b);
}

/// The solution x of a x = b for a = l l^t, given the lower factor l, as torch.cholesky_solve, with b first, and
/// jax.scipy.linalg.cho_solve. Only the lower triangle of l is read. b as in solve.
///
///     const auto x = ts::linalg::cholesky_solve(b, ts::linalg::cholesky(a));
template <TensorOperand X, TensorOperand L>
constexpr auto cholesky_solve(const X& b, const L& l, Here at = Here::current()) {
  const tessera::detail::FunctionCall named("cholesky_solve", l, b);
  const auto half = solve_triangular<Triangle::lower>(l, b, at);
  using Turned = detail::SolveTriangular<Triangle::lower, detail::As::transposed, Diagonal::given>;
  return detail::solve_of<Turned>(Source::from(at), l, half);
}

/// The inverse. A singular matrix gives infinities or NaN. solve(a, b) is faster and more accurate than inv(a) b.
template <TensorOperand A> constexpr auto inv(const A& a, Here at = Here::current()) {
  if constexpr (detail::takes_matrices<A, 2>())
    return tessera::detail::custom_call_of<detail::Inverse>(Source::from(at), a);
}

/// The determinant: [..., n, n] gives [...]. Its gradient is the matrix of cofactors, which is finite for singular
/// matrices too.
template <TensorOperand A> constexpr auto det(const A& a, Here at = Here::current()) {
  if constexpr (detail::takes_matrices<A, 2>())
    return tessera::detail::custom_call_of<detail::Determinant>(Source::from(at), a);
}

/// Sign of the determinant, and logarithm of its absolute value; 0 and -infinity for a singular matrix.
template <class Sign, class Logarithm> struct SlogDet {
  Sign sign;
  Logarithm logabsdet;
};
template <TensorOperand A> constexpr auto slogdet(const A& a, Here at = Here::current()) {
  if constexpr (detail::takes_matrices<A, 2>()) {
    const auto [sign, logarithm] = tessera::detail::custom_call_of<detail::SlogDet>(Source::from(at), a);
    return SlogDet<std::remove_const_t<decltype(sign)>, std::remove_const_t<decltype(logarithm)>>{sign, logarithm};
  }
}

/// a = p l u for square matrices, with a permutation matrix p and ones on the diagonal of l, by partial pivoting:
/// torch.linalg.lu, jax.scipy.linalg.lu. p has no gradient.
template <class P, class L, class U> struct Lu {
  P p;
  L l;
  U u;
};

namespace detail {

enum class LuPart : std::uint8_t { p, l, u };
template <LuPart Part, class T, int Rank> struct LuTag {
  static constexpr auto leading_dims = ops::LeadingDims::extended;
  template <class A> using result = Typed<T, Rank>;
  static constexpr Value emit(Value context, Value a) {
    a = a.at(context.source);
    const Value packed = apply<LuFactors, T>(0, a);
    if constexpr (Part == LuPart::p)
      return LuFactors::permutation_of(apply<LuFactors, T>(1, a), packed);
    else if constexpr (Part == LuPart::u)
      return upper_part(packed);
    else
      return LuFactors::lower_of(packed);
  }
};

}  // namespace detail

template <TensorOperand A> constexpr auto lu(const A& a, Here at = Here::current()) {
  if constexpr (detail::takes_matrices<A, 2>()) {
    using T = typename A::element;
    const Source source = Source::from(at);
    const auto p = call<detail::LuTag<detail::LuPart::p, T, A::rank>>(source, a);
    const auto l = call<detail::LuTag<detail::LuPart::l, T, A::rank>>(source, a);
    const auto u = call<detail::LuTag<detail::LuPart::u, T, A::rank>>(source, a);
    return Lu<std::remove_const_t<decltype(p)>, std::remove_const_t<decltype(l)>, std::remove_const_t<decltype(u)>>{
        p, l, u};
  }
}

/// The reduced decomposition a = q r of [..., m, n]: q [..., m, k] with orthonormal columns and an upper triangular
/// r [..., k, n], where k = min(m, n). Signs are arbitrary: a column of q and the row of r may both be negated. The
/// gradient is for matrices of full rank with m >= n; for m < n it throws shape_mismatch.
template <class Q, class R> struct Qr {
  Q q;
  R r;
};
template <TensorOperand A> constexpr auto qr(const A& a, Here at = Here::current()) {
  if constexpr (detail::takes_matrices<A, 2>()) {
    const auto [q, r] = tessera::detail::custom_call_of<detail::Qr>(Source::from(at), a);
    return Qr<std::remove_const_t<decltype(q)>, std::remove_const_t<decltype(r)>>{q, r};
  }
}

namespace detail {
/// The right-hand sides of a least-squares problem, after a check that they have the rows of the matrix, which has at
/// least as many rows as columns.
template <bool Vector> struct RightHandSidesTag {
  static constexpr const char* function = "lstsq";
  static constexpr auto leading_dims = ops::LeadingDims::aligned;
  template <class A, class B> using result = B;
  static constexpr Value emit(Value context, Value a, Value b) {
    const int rows = b.rank() - (Vector ? 1 : 2);
    a = a.at(context.source);
    build::same_extents(a, a.rank() - 2, b, rows, 1, build::ExtentsOf::rows);
    build::require_tall(a, b, rows);
    return b;
  }
};
}  // namespace detail

/// The x that minimizes |a x - b|, for a [..., m, n] of full rank with m >= n, by its QR decomposition: b is [..., m,
/// k] or, with one dim less than a, [..., m]. torch.linalg.lstsq with driver='gels', jnp.linalg.lstsq. A matrix of
/// lower rank gives infinities or NaN, or, after rounding, large numbers; m < n throws shape_mismatch.
template <TensorOperand A, TensorOperand X> constexpr auto lstsq(const A& a, const X& b, Here at = Here::current()) {
  if constexpr (detail::takes_matrices<A, 2>()) {
    const tessera::detail::FunctionCall named("lstsq", a, b);
    if constexpr (X::rank + 1 == A::rank) {
      const auto right = call<detail::RightHandSidesTag<true>>(Source::from(at), a, b);
      return squeeze<-1>(lstsq(a, unsqueeze<-1>(right, at), at), at);
    } else {
      const auto right = call<detail::RightHandSidesTag<false>>(Source::from(at), a, b);
      const auto found = qr(a, at);
      const auto turned = tessera::detail::exact_matmul(swapaxes<-1, -2>(found.q, at), right, at);
      return solve_triangular<Triangle::upper>(found.r, turned, at);
    }
  }
}

/// Eigenvalues, in ascending order, and eigenvectors, in columns, of the symmetric matrices (a + a^t) / 2, as
/// jnp.linalg.eigh. Signs of the vectors are arbitrary. A gradient through the vectors is not finite if two eigenvalues
/// are equal.
template <class Values, class Vectors> struct Eigh {
  Values values;
  Vectors vectors;
};
template <TensorOperand A> constexpr auto eigh(const A& a, Here at = Here::current()) {
  if constexpr (detail::takes_matrices<A, 2>()) {
    const auto [values, vectors] = tessera::detail::custom_call_of<detail::Eigh>(Source::from(at), a);
    return Eigh<std::remove_const_t<decltype(values)>, std::remove_const_t<decltype(vectors)>>{values, vectors};
  }
}

/// The eigenvalues of eigh. Their gradient is finite also for equal eigenvalues.
template <TensorOperand A> constexpr auto eigvalsh(const A& a, Here at = Here::current()) {
  if constexpr (detail::takes_matrices<A, 2>())
    return call<tessera::detail::CustomCallTag<detail::Eigh, 0, typename A::element>>(Source::from(at), a);
}

/// Eigenvalues of any square matrices, and eigenvectors of length 1 in columns, each a pair of real and imaginary parts
/// (torch.linalg.eig, jnp.linalg.eig): `values.real` [..., n], `vectors.imag` [..., n, n]. The order of the values and
/// the phases of the vectors are arbitrary. A matrix that is not finite gives NaN. The gradient is that of PyTorch.
/// Through the values it is finite if the matrix has n independent eigenvectors; through the vectors, if all
/// eigenvalues differ. It is right only for functions that do not depend on the phases of the vectors, such as v v^H;
/// for others torch.linalg.eig throws, and this is the gradient for constant phases.
template <class Values, class Vectors> struct Eig {
  Values values;
  Vectors vectors;
};
template <TensorOperand A> constexpr auto eig(const A& a, Here at = Here::current()) {
  if constexpr (detail::takes_matrices<A, 2>()) {
    const auto [re, im, vectors_re, vectors_im] = tessera::detail::custom_call_of<detail::Eig>(Source::from(at), a);
    const auto values = tessera::detail::complex_of(re, im);
    const auto vectors = tessera::detail::complex_of(vectors_re, vectors_im);
    return Eig<std::remove_const_t<decltype(values)>, std::remove_const_t<decltype(vectors)>>{values, vectors};
  }
}
/// The eigenvalues of eig.
template <TensorOperand A> constexpr auto eigvals(const A& a, Here at = Here::current()) {
  if constexpr (detail::takes_matrices<A, 2>()) {
    using T = typename A::element;
    return tessera::detail::complex_of(call<tessera::detail::CustomCallTag<detail::Eig, 0, T>>(Source::from(at), a),
                                       call<tessera::detail::CustomCallTag<detail::Eig, 1, T>>(Source::from(at), a));
  }
}

/// The reduced singular value decomposition a = u diag(s) vt of [..., m, n]: u [..., m, k], s [..., k] in descending
/// order, vt [..., k, n], where k = min(m, n). Signs of the vectors are arbitrary. A gradient through the vectors is
/// not finite if two singular values are equal or one is 0.
template <class U, class S, class Vt> struct Svd {
  U u;
  S s;
  Vt vt;
};
template <TensorOperand A> constexpr auto svd(const A& a, Here at = Here::current()) {
  if constexpr (detail::takes_matrices<A, 2>()) {
    const auto [u, s, vt] = tessera::detail::custom_call_of<detail::Svd>(Source::from(at), a);
    return Svd<std::remove_const_t<decltype(u)>, std::remove_const_t<decltype(s)>, std::remove_const_t<decltype(vt)>>{
        u, s, vt};
  }
}
/// The singular values of svd.
template <TensorOperand A> constexpr auto svdvals(const A& a, Here at = Here::current()) {
  if constexpr (detail::takes_matrices<A, 2>())
    return call<tessera::detail::CustomCallTag<detail::Svd, 1, typename A::element>>(Source::from(at), a);
}

namespace detail {

/// max(m, n) eps of matrices [..., m, n].
template <int Rank> struct RankToleranceTag {
  template <class A> using result = Typed<typename A::type, 0>;
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    const Value most = build::maximum(build::extent(x, x.rank() - 1), build::extent(x, x.rank() - 2));
    const double eps = x.dtype() == DType::f64 ? 0x1p-52 : 0x1p-23;
    return build::cast(most, x.dtype()) * x.number(eps);
  }
};
/// The identity in the shape of matrices.
template <int Rank> struct IdentityTag {
  static_assert(Rank >= 2, "tessera: linear algebra takes matrices, the last two dims of a tensor of rank 2 or more");
  template <class A> using result = Typed<typename A::type, Rank>;
  static constexpr Value emit(Value context, Value a) {
    a = a.at(context.source);
    return build::select(is_on_diagonal(a), build::broadcast(a.number(1), a), a.number(0));
  }
};
template <class A> constexpr auto rank_tolerance(const A& a, Here at) {
  return call<RankToleranceTag<A::rank>>(Source::from(at), a);
}
template <class S, class Tolerance> constexpr auto counts_in_rank(const S& s, const Tolerance& tolerance, Here at) {
  return greater(s, call<MulTag>(Source::from(at), max<-1>(s, keepdims, at), tolerance), at);
}
template <class A, class Tolerance> constexpr auto pinv_of(const A& a, const Tolerance& tolerance, Here at) {
  const auto found = svd(a, at);
  const auto counts = counts_in_rank(found.s, tolerance, at);
  const auto inverse = select(counts, call<DivTag>(Source::from(at), 1, select(counts, found.s, 1, at)), 0, at);
  const auto v = call<MulTag>(Source::from(at), swapaxes<-1, -2>(found.vt, at), unsqueeze<-2>(inverse, at));
  return tessera::detail::exact_matmul(v, swapaxes<-1, -2>(found.u, at), at);
}

}  // namespace detail

/// The Moore-Penrose inverse [..., n, m] of [..., m, n], as torch.linalg.pinv. Singular values of at most `tolerance`
/// times the largest count as 0; the default tolerance is max(m, n) eps, with the eps of the element type. The gradient
/// is that of svd, for full rank and distinct singular values.
template <TensorOperand A> constexpr auto pinv(const A& a, Here at = Here::current()) {
  if constexpr (detail::takes_matrices<A, 2>()) return detail::pinv_of(a, detail::rank_tolerance(a, at), at);
}
template <TensorOperand A, NumberOperand Tolerance>
constexpr auto pinv(const A& a, const Tolerance& tolerance, Here at = Here::current()) {
  if constexpr (detail::takes_matrices<A, 2>()) return detail::pinv_of(a, tolerance, at);
}
/// The number of singular values of each matrix that are above the tolerance of pinv times the largest, i32 [...]
/// (torch.linalg.matrix_rank).
template <TensorOperand A> constexpr auto matrix_rank(const A& a, Here at = Here::current()) {
  if constexpr (detail::takes_matrices<A, 2>())
    return sum<-1>(cast<std::int32_t>(detail::counts_in_rank(svdvals(a, at), detail::rank_tolerance(a, at), at), at),
                   at);
}
template <TensorOperand A, NumberOperand Tolerance>
constexpr auto matrix_rank(const A& a, const Tolerance& tolerance, Here at = Here::current()) {
  if constexpr (detail::takes_matrices<A, 2>())
    return sum<-1>(cast<std::int32_t>(detail::counts_in_rank(svdvals(a, at), tolerance, at), at), at);
}
/// The largest singular value of each matrix divided by the smallest (torch.linalg.cond, jnp.linalg.cond).
template <TensorOperand A> constexpr auto cond(const A& a, Here at = Here::current()) {
  if constexpr (detail::takes_matrices<A, 2>()) {
    const auto s = svdvals(a, at);
    return call<DivTag>(Source::from(at), max<-1>(s, at), min<-1>(s, at));
  }
}

/// The exponential of square matrices, the sum of a^k / k! (torch.linalg.matrix_exp, jax.scipy.linalg.expm). NaN for a
/// matrix that is not finite. Computed in double, rounded once. Source: Higham, 2005.
template <TensorOperand A> constexpr auto matrix_exp(const A& a, Here at = Here::current()) {
  if constexpr (detail::takes_matrices<A, 2>())
    return tessera::detail::custom_call_of<detail::MatrixExp>(Source::from(at), a);
}

/// a to the power N, by repeated squaring; `matrix_power<-2>` of the inverse; `matrix_power<0>` is the identity.
template <int N, TensorOperand A> constexpr auto matrix_power(const A& a, Here at = Here::current()) {
  const tessera::detail::FunctionCall named("matrix_power", a);
  if constexpr (N == 0)
    return call<detail::IdentityTag<A::rank>>(Source::from(at), a);
  else if constexpr (N < 0)
    return matrix_power<-N>(inv(a, at), at);
  else if constexpr (N == 1)
    return a;
  else if constexpr (N % 2 == 0)
    return matrix_power<N / 2>(tessera::detail::exact_matmul(a, a, at), at);
  else
    return tessera::detail::exact_matmul(matrix_power<N - 1>(a, at), a, at);
}

}  // namespace tessera::linalg

#include <tessera/base/pop_macros.hpp>

#endif
