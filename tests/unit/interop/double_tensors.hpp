#ifndef TESSERA_TESTS_INTEROP_DOUBLE_TENSORS_HPP
#define TESSERA_TESTS_INTEROP_DOUBLE_TENSORS_HPP

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "../../support/gradients.hpp"

#include <tessera/tessera.hpp>

// Tensors of double with random elements, and gradients of functions that are computed in double.
namespace tessera_test {

template <int Rank> using Double = tessera::ShardedTensor<double, Rank>;

inline const tessera::Mesh devices({{"data", 2}, {"model", 2}});

inline std::vector<double> random_values(std::int64_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<double> made(static_cast<std::size_t>(count));
  for (double& v : made) v = std::uniform_real_distribution<double>(-1, 1)(engine);
  return made;
}

/// Results as float: the weights of check_gradient are.
template <class F> struct Single {
  constexpr auto operator()(const auto&... x) const { return tessera::cast<float>(F{}(x...)); }
};
template <int Rank, class F> void check_gradient_of(F, const oracle::Array& x) {
  oracle::check_gradient<Double<Rank>>(Single<F>{}, {x}, oracle::first_order);
}
template <int Rank, class F> void check_gradient_of(F, const oracle::Array& x, const oracle::Array& y) {
  oracle::check_gradient<Double<Rank>, Double<Rank>>(Single<F>{}, {x, y}, oracle::first_order);
}

}  // namespace tessera_test

#endif
