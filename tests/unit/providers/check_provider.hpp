#ifndef TESSERA_TESTS_PROVIDERS_CHECK_PROVIDER_HPP
#define TESSERA_TESTS_PROVIDERS_CHECK_PROVIDER_HPP

#include <cstdint>
#include <random>

#include "../../support/gemm_problem.hpp"
#include <gtest/gtest.h>

namespace tessera_test {

template <class T>
void check_product(const kernels::ContractionProvider& provider, std::mt19937& random, std::int64_t m, std::int64_t n,
                   std::int64_t k) {
  Problem<T> problem(random, m, n, k);
  const auto expected = problem.expected();
  provider.gemm(problem.g);
  ASSERT_EQ(problem.c, expected) << problem.what(provider.name());
}

/// Products of all sizes and strides, whose sums are exact.
inline void check_provider(const kernels::ContractionProvider& provider) {
  std::mt19937 random(4);
  const std::int64_t sizes[] = {0, 1, 2, 3, 8, 17, 48, 65, 130};
  for (int round = 0; round < 1000; ++round) {
    check_product<float>(provider, random, sizes[random() % 9], sizes[random() % 9], sizes[random() % 9]);
    check_product<double>(provider, random, sizes[random() % 9], sizes[random() % 9], sizes[random() % 9]);
    if (testing::Test::HasFatalFailure()) return;
  }
  check_product<float>(provider, random, 300, 330, 200);
  EXPECT_TRUE(provider.supports(tessera::DType::f64));
  EXPECT_FALSE(provider.supports(tessera::DType::i32));
}

}  // namespace tessera_test

#endif
