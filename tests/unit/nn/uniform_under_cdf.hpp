#ifndef TESSERA_TESTS_UNIT_NN_UNIFORM_UNDER_CDF_HPP
#define TESSERA_TESTS_UNIT_NN_UNIFORM_UNDER_CDF_HPP
#include <cmath>
#include <tuple>

#include <gtest/gtest.h>

#include <tessera/ops/ops.hpp>
#include <tessera/tensor/host.hpp>

namespace tessera_test {

inline double number(const auto& x) { return static_cast<double>(tessera::to_host(x)[0]); }

/// The means of u and u^2 for the distribution function u of samples, which is uniform from 0 to 1.
inline constexpr auto of_cdf = [](const auto& p, const auto& like, const auto& key) {
  const auto u = p.cdf(p.sample_like(like, key));
  return std::tuple(tessera::mean(u), tessera::mean(u * u));
};
/// These means of `count` samples are within five deviations of those of u, of variance 1/12, and u^2, of variance
/// 4/45.
inline void expect_uniform(const auto& both, int count, int which = 0) {
  EXPECT_NEAR(number(std::get<0>(both)), 1.0 / 2, 5 * std::sqrt(1.0 / 12 / count)) << which;
  EXPECT_NEAR(number(std::get<1>(both)), 1.0 / 3, 5 * std::sqrt(4.0 / 45 / count)) << which;
}

}  // namespace tessera_test

#endif
