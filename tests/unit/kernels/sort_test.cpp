#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/kernels/sort.hpp>

namespace {

namespace k = tessera::kernels;

/// The stable order by a plain comparison; NaN is the largest value.
template <class T> std::vector<std::int64_t> plain_order(const std::vector<T>& from, bool descending) {
  std::vector<std::int64_t> order(from.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    const double x = static_cast<double>(from[static_cast<std::size_t>(a)]),
                 y = static_cast<double>(from[static_cast<std::size_t>(b)]);
    if (std::isnan(x) || std::isnan(y)) return std::isnan(descending ? x : y) && !std::isnan(descending ? y : x);
    return descending ? x > y : x < y;
  });
  return order;
}

template <class T> void expect_ordered(const std::vector<T>& from) {
  const auto n = static_cast<std::int64_t>(from.size());
  for (const bool descending : {false, true}) {
    const std::vector<std::int64_t> want = plain_order(from, descending);
    for (const std::int64_t kept : {n, n / 2, std::int64_t{1}, std::int64_t{0}}) {
      std::vector<std::int32_t> narrow(from.size(), -1);
      std::vector<std::int64_t> apart(3 * from.size(), -1);
      std::vector<T> spread(2 * from.size());
      for (std::size_t i = 0; i < from.size(); ++i) spread[2 * i] = from[i];
      k::argsort_line(from.data(), 1, narrow.data(), 1, n, kept, descending);
      k::argsort_line(spread.data(), 2, apart.data(), 3, n, kept, descending);
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t expected = i < kept ? want[static_cast<std::size_t>(i)] : -1;
        ASSERT_EQ(narrow[static_cast<std::size_t>(i)], expected)
            << "place " << i << " of " << n << ", " << kept << " kept";
        ASSERT_EQ(apart[static_cast<std::size_t>(3 * i)], expected);
      }
    }
  }
}

template <class T> std::vector<T> numbers(std::int64_t n, std::int64_t different) {
  std::vector<T> made;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t number =
        i * i * 31 % different - different / 2;  // integers without a sign take what is left of it
    if constexpr (std::is_integral_v<T>)
      made.push_back(static_cast<T>(number));
    else
      made.push_back(static_cast<T>(static_cast<double>(number)));
  }
  return made;
}

TEST(Sort, StableOrders) {
  for (const std::int64_t n : {1, 2, 7, 100, 1000})
    for (const std::int64_t different : {3, 50}) {
      expect_ordered(numbers<float>(n, different));
      expect_ordered(numbers<double>(n, different));
      expect_ordered(numbers<tessera::bf16>(n, different));
      expect_ordered(numbers<tessera::f16>(n, different));
      expect_ordered(numbers<std::int8_t>(n, different));
      expect_ordered(numbers<std::uint8_t>(n, different));
      expect_ordered(numbers<std::int32_t>(n, different));
      expect_ordered(numbers<std::int64_t>(n, different));
    }
}

template <class T> void expect_ends_ordered() {
  using Limits = std::numeric_limits<T>;
  const T nan = Limits::quiet_NaN(), inf = Limits::infinity(), zero = static_cast<T>(0.f), one = static_cast<T>(1.f);
  expect_ordered<T>({zero, nan, static_cast<T>(-zero), inf, one, nan, static_cast<T>(-inf), Limits::min(),
                     Limits::lowest(), static_cast<T>(-nan), zero, Limits::max(), static_cast<T>(-one)});
}
TEST(Sort, NanIsLargestAndZerosAreEqual) {
  expect_ends_ordered<float>();
  expect_ends_ordered<double>();
  expect_ends_ordered<tessera::bf16>();
  expect_ends_ordered<tessera::f16>();
  expect_ordered<std::int32_t>(
      {5, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min(), -1, 0});
}

}  // namespace
