#ifndef TESSERA_INTEROP_LINALG_DECOMPOSITION_FUNCTIONS_HPP
#define TESSERA_INTEROP_LINALG_DECOMPOSITION_FUNCTIONS_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>

#include <Eigen/Eigenvalues>
#include <Eigen/QR>
#include <Eigen/SVD>

#include <tessera/interop/linalg/solve_functions.hpp>
#include <tessera/ops/data_movement/slicing_rows.hpp>

// Orthogonal decompositions of matrices, for ts::custom_call, with their gradients. A gradient is linear in the
// cotangents of all results, so each result adds its own part.

namespace tessera::linalg::detail {

/// 1 / (w[j] - w[i]) at [i, j], and 0 on the diagonal, for the vector w in each batch entry.
constexpr Value reciprocal_gaps(Value w) {
  const Value gaps = as_row(w) - as_column(w);
  const Value on = is_on_diagonal(gaps);
  return build::select(on, gaps.number(0), 1.0 / build::select(on, gaps.number(1), gaps));
}

/// Eigenvalues in ascending order and eigenvectors, in columns, of (A + A^t) / 2, as jnp.linalg.eigh.
struct Eigh {
  static constexpr std::string_view name = "eigh";
  static constexpr std::string_view signature = "(n,n)->(n),(n,n)";

  template <class T> static void run(CallArray<const T, 2> a, CallArray<T, 1> values, CallArray<T, 2> vectors) {
    if (a.size() == 0) return;
    const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic> given = (as_eigen(a) + as_eigen(a).transpose()) / T(2);
    if (!given.allFinite()) {  // Eigen does not end for some of these
      as_eigen(values).setConstant(std::numeric_limits<T>::quiet_NaN());
      as_eigen(vectors).setConstant(std::numeric_limits<T>::quiet_NaN());
      return;
    }
    const Eigen::SelfAdjointEigenSolver<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>> found(given);
    as_eigen(values) = found.eigenvalues();
    as_eigen(vectors) = found.eigenvectors();
  }
  /// V diag(g) V^t of the values, V (F * (V^t g)) V^t of the vectors with F[i, j] = 1 / (w[j] - w[i]); of the sum the
  /// symmetric part. Giles, Collected matrix derivative results (2008), 3.1.
  template <class T> static constexpr void gradient(Gradient& r) {
    const Value values = build::result_of_call(r, 0), v = build::result_of_call(r, 1), g = r.full_g();
    const bool of_values = CustomCall::of(r.node()).result == 0;
    const Value left =
        of_values ? v * as_row(g) : product(v, reciprocal_gaps(values) * product(v, As::transposed, g, As::given));
    r.add(0, symmetric_part(product(left, As::given, v, As::transposed)));
  }
};

/// The eigenvalues of A, and eigenvectors of length 1 in columns, as real and imaginary parts.
struct Eig {
  static constexpr std::string_view name = "eig";
  static constexpr std::string_view signature = "(n,n)->(n),(n),(n,n),(n,n)";

  template <class T>
  static void run(CallArray<const T, 2> a, CallArray<T, 1> re, CallArray<T, 1> im, CallArray<T, 2> vectors_re,
                  CallArray<T, 2> vectors_im) {
    if (a.size() == 0) return;
    using Columns = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
    const Columns given = as_eigen(a);
    const T nan = std::numeric_limits<T>::quiet_NaN();
    as_eigen(re).setConstant(nan), as_eigen(im).setConstant(nan);
    as_eigen(vectors_re).setConstant(nan), as_eigen(vectors_im).setConstant(nan);
    if (!given.allFinite()) return;
    const Eigen::EigenSolver<Columns> found(given);
    if (found.info() != Eigen::Success) return;
    as_eigen(re) = found.eigenvalues().real(), as_eigen(im) = found.eigenvalues().imag();
    as_eigen(vectors_re) = found.eigenvectors().real(), as_eigen(vectors_im) = found.eigenvectors().imag();
  }
  /// PyTorch's linalg_eig_backward, of which the real part is that of a real matrix. With G = g or i g, the cotangent
  /// of a real or an imaginary part as a complex number, and V^H the conjugate transpose of V:
  ///   of the values: V^-H diag(G) V^H
  ///   of the vectors: V^-H ((W - V^H V diag(Re W)) / E) V^H with W = V^H G and E[i, j] = conj(w[j] - w[i])
  /// The second one keeps the lengths of the vectors, and Im W[i, i] = 0 of functions that do not depend on the phases.
  template <class T> static constexpr void gradient(Gradient& r) {
    const int result = CustomCall::of(r.node()).result;
    const Complex values{build::result_of_call(r, 0), build::result_of_call(r, 1)};
    const Complex v{build::result_of_call(r, 2), build::result_of_call(r, 3)};
    const Value g = r.full_g(), none = g.number(0);
    const Complex adjoint{transposed(v.re), -transposed(v.im)};
    Complex inner{};
    if (result < 2) {  // diag(G) V^H
      const Value rows = as_column(g);
      inner =
          result == 0 ? Complex{rows * adjoint.re, rows * adjoint.im} : Complex{-rows * adjoint.im, rows * adjoint.re};
    } else {
      const Complex w = result == 2 ? Complex{product(adjoint.re, g), product(adjoint.im, g)}
                                    : Complex{-product(adjoint.im, g), product(adjoint.re, g)};
      const Value lengths = build::sum_of(diagonal_part(w.re), 1u << (g.rank() - 2), true);  // Re W[j, j], as a row
      const Complex squares = product(adjoint, v);
      const Complex off{w.re - squares.re * lengths, w.im - squares.im * lengths};
      // x / conj(gap) is x gap / |gap|^2.
      const Complex gap{as_row(values.re) - as_column(values.re), as_row(values.im) - as_column(values.im)};
      const Value on = is_on_diagonal(off.re);
      const Value size = build::select(on, g.number(1), gap.re * gap.re + gap.im * gap.im);
      const Complex within{build::select(on, none, (off.re * gap.re - off.im * gap.im) / size),
                           build::select(on, none, (off.re * gap.im + off.im * gap.re) / size)};
      inner = product(within, adjoint);
    }
    // V^H X = inner: with V^H = C + i D, the real system [C, -D; D, C] [Re X; Im X].
    const int row = v.re.rank() - 2;
    const Value system = joined(joined(adjoint.re, -adjoint.im, row + 1), joined(adjoint.im, adjoint.re, row + 1), row);
    const Value x = apply<Solve<As::given>, T>(0, system, joined(inner.re, inner.im, row));
    const Value n = build::extent(adjoint.re, row);
    r.add(0, build::slice(x, row, n.number(0), n));
  }

 private:
  struct Complex {
    Value re, im;
  };
  static constexpr Complex product(const Complex& a, const Complex& b) {
    return {product(a.re, b.re) - product(a.im, b.im), product(a.re, b.im) + product(a.im, b.re)};
  }
  static constexpr Value product(const Value& a, const Value& b) { return detail::product(a, b); }
  /// Two matrices, the second after the first along a dim.
  static constexpr Value joined(const Value& a, const Value& b, int dim) {
    Node made{.op = Op::concat, .dtype = a.dtype(), .rank = a.node().rank, .labels = pack_dim(dim)};
    made.singletons = static_cast<std::uint8_t>(a.node().singletons & b.node().singletons & ~(1u << dim));
    return a.make(made, {a.id, b.id});
  }
};

/// The reduced decomposition A = Q R.
struct Qr {
  static constexpr std::string_view name = "qr";
  static constexpr std::string_view signature = "(m,n)->(m,k),(k,n)";
  static constexpr std::int64_t extent(char, const CallExtents& known) { return std::min(known['m'], known['n']); }

  template <class T> static void run(CallArray<const T, 2> a, CallArray<T, 2> q, CallArray<T, 2> r) {
    if (a.size() == 0) {
      as_eigen(q).setZero();
      as_eigen(r).setZero();
      return;
    }
    const Eigen::HouseholderQR<Matrix<T>> found(as_eigen(a));
    as_eigen(q) = found.householderQ() * Matrix<T>::Identity(as_eigen(q).rows(), as_eigen(q).cols());
    as_eigen(r) = found.matrixQR().topRows(as_eigen(r).rows()).template triangularView<Eigen::Upper>();
  }
  /// PyTorch's linalg_qr_backward: (g_Q + Q copyltu(M)) R^-t with M = R g_R^t - g_Q^t Q, where copyltu makes the lower
  /// triangle symmetric. For at least as many rows as columns.
  template <class T> static constexpr void gradient(Gradient& r) {
    const Value q = build::result_of_call(r, 0), upper = build::result_of_call(r, 1), g = r.full_g();
    const bool of_q = CustomCall::of(r.node()).result == 0;
    const Value m =
        of_q ? -product(g, As::transposed, q, As::given) : product(upper, As::given, upper_part(g), As::transposed);
    const Value symmetric = lower_part(m) + transposed(strictly_lower_part(m));
    Value left = product(q, symmetric);
    if (of_q) left = left + g;
    r.add(0, transposed(solve_triangular<T, Triangle::upper>(upper, transposed(left))));
  }
};

/// The reduced singular value decomposition A = U diag(s) V^t, with the singular values in descending order.
struct Svd {
  static constexpr std::string_view name = "svd";
  static constexpr std::string_view signature = "(m,n)->(m,k),(k),(k,n)";
  static constexpr std::int64_t extent(char, const CallExtents& known) { return std::min(known['m'], known['n']); }

  template <class T>
  static void run(CallArray<const T, 2> a, CallArray<T, 2> u, CallArray<T, 1> s, CallArray<T, 2> vt) {
    using Columns = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
    const Columns given = as_eigen(a);
    if (given.size() == 0 || !given.allFinite()) {
      as_eigen(u).setConstant(std::numeric_limits<T>::quiet_NaN());
      as_eigen(s).setConstant(std::numeric_limits<T>::quiet_NaN());
      as_eigen(vt).setConstant(std::numeric_limits<T>::quiet_NaN());
      return;
    }
    const Eigen::BDCSVD<Columns> found(given, Eigen::ComputeThinU | Eigen::ComputeThinV);
    as_eigen(u) = found.matrixU();
    as_eigen(s) = found.singularValues();
    as_eigen(vt) = found.matrixV().transpose();
  }
  /// PyTorch's svd_backward for real matrices. With E[i, j] = s[j]^2 - s[i]^2 and skew(X) = X - X^t:
  ///   of s: U diag(g) V^t
  ///   of U: (U (skew(U^t g) / E) S + (g - U U^t g) S^-1) V^t
  ///   of V^t: U (S (skew(V^t g^t) / E) V^t + S^-1 (g - g V V^t))
  template <class T> static constexpr void gradient(Gradient& r) {
    const Value u = build::result_of_call(r, 0), s = build::result_of_call(r, 1), vt = build::result_of_call(r, 2);
    const Value g = r.full_g();
    const int result = CustomCall::of(r.node()).result;
    if (result == 1) return r.add(0, product(u * as_row(g), vt));
    const Value gaps = reciprocal_gaps(s * s);
    if (result == 0) {
      const Value inner = product(u, As::transposed, g, As::given);
      const Value within = product(u, (inner - transposed(inner)) * gaps) * as_row(s);
      r.add(0, product(within + (g - product(u, inner)) / as_row(s), vt));
    } else {
      const Value inner = product(vt, As::given, g, As::transposed);
      const Value within = product((inner - transposed(inner)) * gaps * as_column(s), vt);
      const Value outside = (g - product(inner, As::transposed, vt, As::given)) / as_column(s);
      r.add(0, product(u, within + outside));
    }
  }
};

}  // namespace tessera::linalg::detail

#include <tessera/base/pop_macros.hpp>

#endif
