#ifndef TESSERA_INTEROP_WISHART_HPP
#define TESSERA_INTEROP_WISHART_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <utility>

#include <tessera/distributions/continuous/chi2.hpp>
#include <tessera/interop/multivariate_normal.hpp>
#include <tessera/ops/elementwise/special_functions.hpp>

namespace tessera::distributions {

/// The Wishart distribution of symmetric positive definite matrices [..., n, n], in float or double
/// (torch.distributions.Wishart): the distribution of x x^t, where x has `df` independent normal columns with the given
/// covariance matrix. `df` is above n - 1 and need not be an integer; it is a number, or a tensor of batch dims.
/// PyTorch's keyword arguments are types: ScaleTril, CovarianceMatrix, PrecisionMatrix. Batch dims stay split; matrices
/// are whole on each device (see linalg.hpp). Target: tessera::eigen, or tessera::tessera.
///
///     #include <tessera/interop/wishart.hpp>
///     const auto p = ts::distributions::Wishart(5.0, ts::distributions::CovarianceMatrix(c));   // c [n, n]
///     const auto precision = p.rsample(key);
template <Operand Df, TensorOperand Factor> struct Wishart {
  Df df;
  Factor scale_tril;  ///< lower triangular

  template <template <class> class Given, class X>
  constexpr Wishart(const Df& degrees, const Given<X>& given, Here at = Here::current())
      : df(degrees), scale_tril(detail::factor_of(given, at)) {}

  /// The logarithm of the density at matrices x [..., n, n]. NaN for a matrix that is not positive definite.
  template <TensorArgument X> constexpr auto log_prob(const X& x, Here at = Here::current()) const {
    using Solve = linalg::detail::SolveTriangular<linalg::Triangle::lower, linalg::detail::As::given,
                                                  linalg::detail::Diagonal::given>;
    const auto factor = linalg::cholesky(x, at);
    const auto ratio = tessera::detail::custom_call_of<Solve>(Source::from(at), scale_tril, factor);
    return sum<-1>((along_dim(at) - size(at) - 1.0) * log(diagonal(factor, at), at) - log_norm(at), at) -
           sum<-2, -1>(ratio * ratio, at) * 0.5;
  }
  constexpr auto entropy(Here at = Here::current()) const {
    return sum<-1>(log_norm(at) - (along_dim(at) - size(at) - 1.0) * 0.5 * log_determinant(at) + along_dim(at) * 0.5,
                   at);
  }
  constexpr auto mean(Here at = Here::current()) const { return covariance(at) * along_matrices(df, at); }
  /// NaN for df below n + 1.
  constexpr auto mode(Here at = Here::current()) const {
    const auto rest = along_matrices(df, at) - unsqueeze<-1>(size(at), at) - 1.0;
    return covariance(at) * select(rest > 0.0, rest, ops::not_a_number, at);
  }
  /// The variance of each element.
  constexpr auto variance(Here at = Here::current()) const {
    const auto all = covariance(at);
    const auto own = sum<-1>(scale_tril * scale_tril, at);
    return (all * all + unsqueeze<-1>(own, at) * unsqueeze<-2>(own, at)) * along_matrices(df, at);
  }
  /// Draws without gradients. Key and stream: as for ts::uniform_like.
  template <std::uint32_t Stream = 0, class Key>
  constexpr auto sample(const Key& key, Here at = Here::current()) const {
    return stop_gradient(rsample<Stream>(key, at), at);
  }
  /// Draws with gradients of df and scale_tril. Source: Bartlett, Proceedings of the Royal Society of Edinburgh 53
  /// (1933).
  template <std::uint32_t Stream = 0, class Key>
  constexpr auto rsample(const Key& key, Here at = Here::current()) const {
    const auto roots = sqrt(Chi2(halves(at) * 2.0).template rsample<Stream>(key, at), at);
    const auto noise = normal_like<Stream>(scale_tril + unsqueeze<-1>(roots, at), key, at);
    const auto on_diagonal = tessera::equal(iota<-2, std::int32_t>(noise, at), iota<-1, std::int32_t>(noise, at), at);
    const auto factor = matmul(scale_tril, select(on_diagonal, unsqueeze<-1>(roots, at), tril(noise, -1, at), at), at);
    return matmul(factor, detail::transposed(factor, at), at);
  }

  /// The diagonal of scale_tril, [..., n].
  constexpr auto deviations(Here at = Here::current()) const { return diagonal(scale_tril, at); }

  // The terms of quantities are [..., n], of which the sum over the dim is the quantity.

  /// Of the logarithm of the normalising factor.
  constexpr auto log_norm(Here at = Here::current()) const {
    return along_dim(at) * (log(deviations(at), at) + log_2 * 0.5) + lgamma(halves(at), at) + index(at) * half_log_pi;
  }
  /// Of the mean of the logarithm of the determinant.
  constexpr auto log_determinant(Here at = Here::current()) const {
    return digamma(halves(at), at) + log(deviations(at), at) * 2.0 + log_2;
  }
  /// df against [..., n].
  constexpr auto along_dim(Here at = Here::current()) const {
    if constexpr (TensorOperand<Df>)
      return unsqueeze<-1>(df, at);
    else
      return df;
  }

 private:
  static constexpr double log_2 = 0.69314718055994530942, half_log_pi = 0.57236494292470008707;

  /// df against [..., n, n].
  static constexpr auto along_matrices(const Df& degrees, Here at) {
    if constexpr (TensorOperand<Df>)
      return unsqueeze<-1>(unsqueeze<-1>(degrees, at), at);
    else
      return degrees;
  }
  /// 0, 1, ..., n - 1 along the dim, and n, [..., 1].
  constexpr auto index(Here at) const { return iota<-1, typename Factor::element>(deviations(at), at); }
  constexpr auto size(Here at) const { return sum<-1>(ones_like(deviations(at), at), keepdims, at); }
  constexpr auto halves(Here at) const { return (along_dim(at) - index(at)) * 0.5; }
  constexpr auto covariance(Here at) const { return matmul(scale_tril, detail::transposed(scale_tril, at), at); }
};
template <class Df, template <class> class Given, class X>
Wishart(Df, Given<X>)
    -> Wishart<Df, decltype(detail::factor_of(std::declval<const Given<X>&>(), std::declval<Here>()))>;

template <class PDf, class PFactor, class QDf, class QFactor>
constexpr auto kl_divergence(const Wishart<PDf, PFactor>& p, const Wishart<QDf, QFactor>& q,
                             Here at = Here::current()) {
  const auto ratio = linalg::solve_triangular<linalg::Triangle::lower>(q.scale_tril, p.scale_tril, at);
  const auto of_p = p.along_dim(at);
  const auto of_q = q.along_dim(at);
  return sum<-1>((of_p - of_q) * 0.5 * p.log_determinant(at) + (sum<-1>(ratio * ratio, at) - 1.0) * (of_p * 0.5) +
                     q.log_norm(at) - p.log_norm(at),
                 at);
}

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
