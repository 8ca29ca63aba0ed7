#ifndef TESSERA_TENSOR_CREATION_WINDOW_FUNCTIONS_HPP
#define TESSERA_TENSOR_CREATION_WINDOW_FUNCTIONS_HPP
#include <tessera/base/push_macros.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/ops/elementwise/special_functions.hpp>
#include <tessera/tensor/creation.hpp>

// Windows of signals, as stored vectors: of torch.signal and scipy.signal.

namespace tessera {

namespace detail {
/// f(t) for t from 0 to 1 at n points, of a periodic window at the first n of n + 1 points. Computed in double.
template <class T, class F>
ShardedTensor<T, 1> window_function(std::string_view op, std::int64_t n, const Mesh& mesh, bool periodic,
                                    const PartitionSpec& spec, Here at, F f) {
  if (n < 0) fail(errc::dim_range, "[", op, "] extent: ", n, " is below 0", Source::from(at));
  const double last = static_cast<double>(periodic ? n : n - 1);
  std::vector<T> values(static_cast<std::size_t>(n), T(1));
  for (std::int64_t i = 0; i < n && n > 1; ++i)
    values[static_cast<std::size_t>(i)] = static_cast<T>(f(static_cast<double>(i) / last));
  return shard<1>(values, Shape{n}, mesh, spec, at);
}
inline double cosine_of_turn(double t) { return std::cos(2 * ops::pi * t); }
}  // namespace detail

/// Window functions of n points (torch.hann_window, hamming_window, blackman_window, bartlett_window, kaiser_window):
/// float by default, or `hann_window<double>(n, mesh)`. By default they are periodic, for Fourier transforms: the first
/// n of n + 1 points; otherwise symmetric, as scipy.signal with sym=True. A single point is 1. They are stored tensors:
/// pass them to a program as arguments. Errors: dim_range for a negative n.
///
///     const auto window = ts::hann_window(512, mesh);   // sin^2(pi i / 512)
template <Element T = float>
ShardedTensor<T, 1> hann_window(std::int64_t n, const Mesh& mesh, bool periodic = true, const PartitionSpec& spec = {},
                                Here at = Here::current()) {
  return detail::window_function<T>("hann_window", n, mesh, periodic, spec, at,
                                    [](double t) { return 0.5 - 0.5 * detail::cosine_of_turn(t); });
}
template <Element T = float>
ShardedTensor<T, 1> hamming_window(std::int64_t n, const Mesh& mesh, bool periodic = true, double alpha = 0.54,
                                   double beta = 0.46, const PartitionSpec& spec = {}, Here at = Here::current()) {
  return detail::window_function<T>("hamming_window", n, mesh, periodic, spec, at,
                                    [=](double t) { return alpha - beta * detail::cosine_of_turn(t); });
}
template <Element T = float>
ShardedTensor<T, 1> blackman_window(std::int64_t n, const Mesh& mesh, bool periodic = true,
                                    const PartitionSpec& spec = {}, Here at = Here::current()) {
  return detail::window_function<T>("blackman_window", n, mesh, periodic, spec, at, [](double t) {
    return 0.42 - 0.5 * detail::cosine_of_turn(t) + 0.08 * detail::cosine_of_turn(2 * t);
  });
}
template <Element T = float>
ShardedTensor<T, 1> bartlett_window(std::int64_t n, const Mesh& mesh, bool periodic = true,
                                    const PartitionSpec& spec = {}, Here at = Here::current()) {
  return detail::window_function<T>("bartlett_window", n, mesh, periodic, spec, at,
                                    [](double t) { return t <= 0.5 ? 2 * t : 2 - 2 * t; });
}
/// `beta`: the shape; 0 is a rectangle. Source: Kaiser and Schafer, 1980.
template <Element T = float>
ShardedTensor<T, 1> kaiser_window(std::int64_t n, const Mesh& mesh, bool periodic = true, double beta = 12,
                                  const PartitionSpec& spec = {}, Here at = Here::current()) {
  return detail::window_function<T>("kaiser_window", n, mesh, periodic, spec, at, [=](double t) {
    const double side = 2 * t - 1, inside = 1 - side * side;
    // Both are scaled by exp(-|x|), so that a large beta does not overflow.
    const double x = beta * std::sqrt(inside < 0 ? 0 : inside);
    return std::exp(x - std::fabs(beta)) * ops::bessel_i(0, x, true) / ops::bessel_i(0, beta, true);
  });
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
