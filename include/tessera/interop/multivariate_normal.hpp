#ifndef TESSERA_INTEROP_MULTIVARIATE_NORMAL_HPP
#define TESSERA_INTEROP_MULTIVARIATE_NORMAL_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <utility>

#include <tessera/distributions/univariate.hpp>
#include <tessera/interop/linalg.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/data_movement/diagonal.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/repeat.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/random/random.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/ops/stop_gradient.hpp>

namespace tessera::distributions {

/// A lower triangular factor L of a covariance matrix L L^t, [..., n, n]; elements above the diagonal are not read.
template <TensorOperand X> struct ScaleTril {
  X value;
  constexpr explicit ScaleTril(const X& x) : value(x) {}
};
/// A covariance matrix, [..., n, n].
template <TensorOperand X> struct CovarianceMatrix {
  X value;
  constexpr explicit CovarianceMatrix(const X& x) : value(x) {}
};
/// The inverse of a covariance matrix, [..., n, n].
template <TensorOperand X> struct PrecisionMatrix {
  X value;
  constexpr explicit PrecisionMatrix(const X& x) : value(x) {}
};

namespace detail {

inline constexpr double half_log_2_pi = 0.91893853320467274178;

template <TensorOperand X> constexpr auto transposed(const X& x, Here at) { return swapaxes<-2, -1>(x, at); }

template <TensorOperand X> constexpr auto factor_of(const ScaleTril<X>& given, Here at) {
  return tril(given.value, 0, at);
}
template <TensorOperand X> constexpr auto factor_of(const CovarianceMatrix<X>& given, Here at) {
  return linalg::cholesky(given.value, at);
}
/// With P = U U^t, where U is upper triangular, the covariance P^-1 is L L^t for the lower triangular L = U^-t.
template <TensorOperand X> constexpr auto factor_of(const PrecisionMatrix<X>& given, Here at) {
  const auto turned = [&](const auto& x) { return flip<-1>(flip<-2>(x, at), at); };
  return linalg::inv(transposed(turned(linalg::cholesky(turned(given.value), at)), at), at);
}
/// The solutions z [..., n] of l z = x, for x [..., n] of any batch dims.
template <TensorOperand L, TensorOperand X> constexpr auto solve_rows(const L& l, const X& x, Here at) {
  return squeeze<-1>(linalg::solve_triangular<linalg::Triangle::lower>(l, unsqueeze<-1>(x, at), at), at);
}

}  // namespace detail

/// The multivariate normal distribution with means `loc` [..., n], in float or double
/// (torch.distributions.MultivariateNormal). PyTorch's keyword arguments are types: ScaleTril, CovarianceMatrix,
/// PrecisionMatrix. A matrix that is not positive definite gives NaN. Batch dims stay split, and are broadcast; along
/// n, each device computes with whole rows (see linalg.hpp). Target: tessera::eigen, or tessera::tessera.
///
///     #include <tessera/interop/multivariate_normal.hpp>
///     // loc and x [batch, n], l [n, n] or [batch, n, n]
///     const auto p = ts::distributions::MultivariateNormal(loc, ts::distributions::ScaleTril(l));
///     const auto loss = -ts::mean(p.log_prob(x));
template <TensorOperand Loc, TensorOperand Factor> struct MultivariateNormal {
  Loc loc;
  Factor scale_tril;  ///< lower triangular

  template <template <class> class Given, class X>
  constexpr MultivariateNormal(const Loc& l, const Given<X>& given, Here at = Here::current())
      : loc(l), scale_tril(detail::factor_of(given, at)) {}

  /// The logarithm of the density at rows x [..., n].
  template <TensorArgument X> constexpr auto log_prob(const X& x, Here at = Here::current()) const {
    const auto z = detail::solve_rows(scale_tril, x - loc, at);
    return sum<-1>(-0.5 * z * z - log(deviations(at), at) - detail::half_log_2_pi, at);
  }
  constexpr auto entropy(Here at = Here::current()) const {
    return sum<-1>(log(deviations(at), at) + zeros_like(loc, at) + (0.5 + detail::half_log_2_pi), at);
  }
  constexpr auto mean(Here at = Here::current()) const { return loc + zeros_like(deviations(at), at); }
  constexpr auto mode(Here at = Here::current()) const { return mean(at); }
  /// Of each number separately, [..., n].
  constexpr auto variance(Here at = Here::current()) const {
    return sum<-1>(scale_tril * scale_tril, at) + zeros_like(loc, at);
  }
  constexpr auto stddev(Here at = Here::current()) const { return sqrt(variance(at), at); }
  constexpr auto covariance_matrix(Here at = Here::current()) const {
    return matmul(scale_tril, detail::transposed(scale_tril, at), at);
  }
  /// Draws [..., n] without gradients. Key and stream: as for ts::uniform_like.
  template <std::uint32_t Stream = 0, class Key>
  constexpr auto sample(const Key& key, Here at = Here::current()) const {
    return stop_gradient(rsample<Stream>(key, at), at);
  }
  /// Draws with gradients of loc and scale_tril.
  template <std::uint32_t Stream = 0, class Key>
  constexpr auto rsample(const Key& key, Here at = Here::current()) const {
    const auto noise = normal_like<Stream>(loc + deviations(at), key, at);
    if constexpr (Factor::rank == 2)
      return loc + matmul(noise, detail::transposed(scale_tril, at), at);
    else
      return loc + squeeze<-1>(matmul(scale_tril, unsqueeze<-1>(noise, at), at), at);
  }

  /// The diagonal of scale_tril, [..., n].
  constexpr auto deviations(Here at = Here::current()) const { return diagonal(scale_tril, at); }
};
template <class Loc, template <class> class Given, class X>
MultivariateNormal(Loc, Given<X>)
    -> MultivariateNormal<Loc, decltype(detail::factor_of(std::declval<const Given<X>&>(), std::declval<Here>()))>;

template <class PLoc, class PFactor, class QLoc, class QFactor>
constexpr auto kl_divergence(const MultivariateNormal<PLoc, PFactor>& p, const MultivariateNormal<QLoc, QFactor>& q,
                             Here at = Here::current()) {
  const auto z = detail::solve_rows(q.scale_tril, q.loc - p.loc, at);
  const auto ratio = linalg::solve_triangular<linalg::Triangle::lower>(q.scale_tril, p.scale_tril, at);
  const auto log_ratio = log(q.deviations(at), at) - log(p.deviations(at), at);
  return sum<-1>(0.5 * (z * z + sum<-1>(ratio * ratio, at) - 1.0) + log_ratio, at);
}

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
