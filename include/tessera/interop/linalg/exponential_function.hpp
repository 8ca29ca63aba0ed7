#ifndef TESSERA_INTEROP_LINALG_EXPONENTIAL_FUNCTION_HPP
#define TESSERA_INTEROP_LINALG_EXPONENTIAL_FUNCTION_HPP
#include <tessera/base/push_macros.hpp>

#include <cmath>
#include <limits>
#include <string_view>

#include <Eigen/LU>

#include <tessera/interop/linalg/matrices.hpp>
#include <tessera/ops/data_movement/slicing_rows.hpp>

// The exponential of a matrix, for ts::custom_call, with its gradient.

namespace tessera::linalg::detail {

/// The Pade approximant of degree 13 of the exponential of a matrix whose 1-norm is at most 5.37.
inline Matrix<double> pade_exponential(const Matrix<double>& a) {
  constexpr double b[] = {64764752532480000,
                          32382376266240000,
                          7771770303897600,
                          1187353796428800,
                          129060195264000,
                          10559470521600,
                          670442572800,
                          33522128640,
                          1323241920,
                          40840800,
                          960960,
                          16380,
                          182,
                          1};
  const Matrix<double> one = Matrix<double>::Identity(a.rows(), a.cols());
  const Matrix<double> a2 = a * a, a4 = a2 * a2, a6 = a4 * a2;
  const Matrix<double> odd_high = b[13] * a6 + b[11] * a4 + b[9] * a2, even_high = b[12] * a6 + b[10] * a4 + b[8] * a2;
  const Matrix<double> odd_inner = a6 * odd_high + b[7] * a6 + b[5] * a4 + b[3] * a2 + b[1] * one;
  const Matrix<double> odd = a * odd_inner, even = a6 * even_high + b[6] * a6 + b[4] * a4 + b[2] * a2 + b[0] * one;
  return Eigen::PartialPivLU<Matrix<double>>(even - odd).solve(even + odd);
}

/// Scaling and squaring: the exponential of A / 2^s, squared s times. Source: Higham, The scaling and squaring method
/// for the matrix exponential revisited (2005). Computed in double, rounded once.
struct MatrixExp {
  static constexpr std::string_view name = "matrix_exp";
  static constexpr std::string_view signature = "(n,n)->(n,n)";

  template <class T> static void run(CallArray<const T, 2> a, CallArray<T, 2> x) {
    MatrixMap<T> made = as_eigen(x);
    if (made.size() == 0) return;
    const Matrix<double> given = as_eigen(a).template cast<double>();
    const double norm = given.cwiseAbs().colwise().sum().maxCoeff();
    if (!given.allFinite() || !std::isfinite(norm)) {
      made.setConstant(std::numeric_limits<T>::quiet_NaN());
      return;
    }
    int squarings = 0;
    for (double left = norm; left > 5.37; left *= 0.5) ++squarings;
    Matrix<double> power = pade_exponential(given * std::ldexp(1.0, -squarings));
    for (int i = 0; i < squarings; ++i) power = (power * power).eval();
    made = power.cast<T>();
  }

  /// The derivative of the exponential of A^t in the direction g, which is the upper right block of the exponential of
  /// [A^t g; 0 A^t], as in PyTorch.
  template <class T> static constexpr void gradient(Gradient& r) {
    const Value g = r.full_g(), a = r.x(0), turned = transposed(a);
    const int row = a.rank() - 2, column = a.rank() - 1;
    const Value n = build::extent(a, row), none = n.number(0), all = n + n;
    const auto placed = [&](Value x, Value down, Value across) {
      return build::pad_to(build::pad_to(x, row, down, all), column, across, all);
    };
    const Value blocks = placed(turned, none, none) + placed(turned, n, n) + placed(g, none, n);
    const Value upper = build::slice(apply<MatrixExp, T>(0, blocks), row, none, n);
    r.add(0, build::slice(upper, column, n, n));
  }
};

}  // namespace tessera::linalg::detail

#include <tessera/base/pop_macros.hpp>

#endif
