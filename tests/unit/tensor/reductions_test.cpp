// Reductions of tensors large enough to be divided into tiles.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
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

}  // namespace
