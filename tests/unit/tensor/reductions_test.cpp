// Reductions of tensors large enough to be divided into tiles.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/tessera.hpp>

namespace ts = tessera;

namespace {

constexpr auto over_leading_dims =
    ts::compile([](auto x) { return std::tuple(ts::sum<0>(x), ts::max<0>(x), ts::sum<1>(x), ts::sum<0, 1>(x)); });

// Rows long enough that tiles divide them too. Sums of small integers are exact, in any order.
TEST(Reductions, OverLeadingDimsOfLongRows) {
  const std::int64_t a = 20, b = 3, c = 40009;
  const auto element = [&](std::int64_t i, std::int64_t j, std::int64_t k) {
    return static_cast<float>((i * 7 + j * 5 + k * 3 + i * j * k % 11) % 23);
  };
  std::vector<float> x;
  for (std::int64_t n = 0; n < a * b * c; ++n) x.push_back(element(n / c / b, n / c % b, n % c));
  const ts::Mesh mesh({{"x", 2}, {"y", 2}});
  for (const ts::PartitionSpec& spec : {ts::PartitionSpec{}, ts::PartitionSpec{"x", ts::none, "y"}}) {
    const auto [sums, most, inner, all] = over_leading_dims(ts::shard(x, {a, b, c}, mesh, spec));
    const std::vector<float> s0 = ts::to_host(sums), m0 = ts::to_host(most), s1 = ts::to_host(inner),
                             s01 = ts::to_host(all);
    for (std::int64_t k = 0; k < c; ++k) {
      float total = 0;
      for (std::int64_t j = 0; j < b; ++j) {
        float sum = 0, largest = 0;
        for (std::int64_t i = 0; i < a; ++i) {
          sum += element(i, j, k);
          largest = std::max(largest, element(i, j, k));
        }
        ASSERT_EQ(s0[static_cast<std::size_t>(j * c + k)], sum) << j << ", " << k;
        ASSERT_EQ(m0[static_cast<std::size_t>(j * c + k)], largest) << j << ", " << k;
        total += sum;
      }
      ASSERT_EQ(s01[static_cast<std::size_t>(k)], total) << k;
    }
    for (std::int64_t i = 0; i < a; ++i)
      for (std::int64_t k = 0; k < c; ++k) {
        float sum = 0;
        for (std::int64_t j = 0; j < b; ++j) sum += element(i, j, k);
        ASSERT_EQ(s1[static_cast<std::size_t>(i * c + k)], sum) << i << ", " << k;
      }
  }
}

constexpr auto of_halves = ts::compile([](auto x, auto y) {
  return std::tuple(ts::cosine_similarity<1>(x, y), ts::normalize<1>(x), ts::logcumsumexp<1>(y), ts::cov(x),
                    ts::corrcoef(x));
});

// In f16 sums of products would end at 65504, and an eps of 1e-8 would be 0, so that a row of zeros would be 0 / 0; a
// sum that is carried in bf16 stops growing. Against double.
template <class T> void expect_computed_in_f32() {
  const std::int64_t rows = 3, n = 300;
  const ts::Mesh mesh({{"x", 2}, {"y", 2}});
  std::vector<float> x, y;
  for (std::int64_t i = 0; i < rows * n; ++i) {
    x.push_back(i / n == 1 ? 0.f : static_cast<float>(i * i % 601 - 300));
    y.push_back(static_cast<float>(i * 7 % 64) / 32);
  }
  const auto near = [](const ts::ShardedTensor<T, 2>& got, std::int64_t at, double want) {
    const double digits = std::is_same_v<T, ts::bf16> ? 0x1p-8 : 0x1p-11;
    EXPECT_NEAR(static_cast<float>(ts::to_host(got)[static_cast<std::size_t>(at)]), want,
                1.01 * digits * std::abs(want) + 1e-6)
        << at;
  };
  for (const ts::PartitionSpec& spec : {ts::PartitionSpec{}, ts::PartitionSpec{"x", "y"}}) {
    const ts::ShardedTensor<T, 2> a = ts::cast<T>(ts::shard(x, {rows, n}, mesh, spec));
    const ts::ShardedTensor<T, 2> b = ts::cast<T>(ts::shard(y, {rows, n}, mesh, spec));
    const std::vector<T> p = ts::to_host(a), q = ts::to_host(b);
    const auto number = [&](const std::vector<T>& of, std::int64_t i, std::int64_t j) {
      return static_cast<double>(static_cast<float>(of[static_cast<std::size_t>(i * n + j)]));
    };
    const auto [cosines, unit, logs, covariances, correlations] = of_halves(a, b);
    const ts::ShardedTensor<T, 2> column = ts::unsqueeze<1>(cosines);
    std::vector<double> mean(rows, 0);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        mean[static_cast<std::size_t>(i)] += number(p, i, j) / static_cast<double>(n);
    const auto covariance = [&](std::int64_t i, std::int64_t k) {
      double sum = 0;
      for (std::int64_t j = 0; j < n; ++j)
        sum += (number(p, i, j) - mean[static_cast<std::size_t>(i)]) *
               (number(p, k, j) - mean[static_cast<std::size_t>(k)]);
      return sum / static_cast<double>(n - 1);
    };
    for (std::int64_t i = 0; i < rows; ++i) {
      double products = 0, squares = 0, others = 0, sum = 0;
      for (std::int64_t j = 0; j < n; ++j) {
        products += number(p, i, j) * number(q, i, j);
        squares += number(p, i, j) * number(p, i, j), others += number(q, i, j) * number(q, i, j);
        sum += std::exp(number(q, i, j));
        near(logs, i * n + j, std::log(sum));
      }
      near(column, i, i == 1 ? 0 : products / std::sqrt(squares * others));
      for (std::int64_t j = 0; j < n; ++j) near(unit, i * n + j, i == 1 ? 0 : number(p, i, j) / std::sqrt(squares));
      for (std::int64_t k = 0; k < rows; ++k) {
        near(covariances, i * rows + k, covariance(i, k));
        if (i != 1 && k != 1)
          near(correlations, i * rows + k, covariance(i, k) / std::sqrt(covariance(i, i) * covariance(k, k)));
      }
    }
  }
}
TEST(Reductions, OfHalvesAreComputedInF32) {
  expect_computed_in_f32<ts::bf16>();
  expect_computed_in_f32<ts::f16>();
}

}  // namespace
