#ifndef TESSERA_TESTS_SUPPORT_GEMM_PROBLEM_HPP
#define TESSERA_TESTS_SUPPORT_GEMM_PROBLEM_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/kernels/gemm/gemm.hpp>

namespace tessera_test {

namespace kernels = tessera::kernels;

/// A matrix product whose operands have no memory after their last element, so that a sanitizer reports a read or write
/// past it. Values are so small that all sums are exact, and results can be compared with ==.
template <class T> struct Problem {
  using Result = kernels::product_t<T>;
  std::vector<T> a, b;
  std::vector<Result> c;
  kernels::Gemm<T> g;

  Problem(std::mt19937& random, std::int64_t m, std::int64_t n, std::int64_t k, bool any_strides = true) {
    g.m = m, g.n = n, g.k = k;
    g.alpha = static_cast<Result>(random() % 2 == 0 ? 1 : -2);
    g.accumulate = random() % 2 == 0;
    strides(random, any_strides ? 8 : 1, m, k, g.a_row, g.a_col);
    strides(random, any_strides ? 8 : 1, k, n, g.b_row, g.b_col);
    strides(random, any_strides ? 6 : 1, m, n, g.c_row, g.c_col);
    g.a = numbers(random, a, m, g.a_row, k, g.a_col);
    g.b = numbers(random, b, k, g.b_row, n, g.b_col);
    g.c = numbers(random, c, m, g.c_row, n, g.c_col);
  }

  std::vector<Result> expected() const {
    // As doubles, since a conversion takes longer than a product, and each element is in many.
    std::vector<double> rows_of_a, cols_of_b;
    rows_of_a.reserve(static_cast<std::size_t>(g.m * g.k)), cols_of_b.reserve(static_cast<std::size_t>(g.k * g.n));
    for (std::int64_t i = 0; i < g.m; ++i)
      for (std::int64_t p = 0; p < g.k; ++p) rows_of_a.push_back(static_cast<double>(g.a[i * g.a_row + p * g.a_col]));
    for (std::int64_t j = 0; j < g.n; ++j)
      for (std::int64_t p = 0; p < g.k; ++p) cols_of_b.push_back(static_cast<double>(g.b[p * g.b_row + j * g.b_col]));

    std::vector<Result> result = c;
    for (std::int64_t i = 0; i < g.m; ++i)
      for (std::int64_t j = 0; j < g.n; ++j) {
        const double sum = dot(rows_of_a.data() + i * g.k, cols_of_b.data() + j * g.k, g.k);
        Result& to = result[static_cast<std::size_t>(&g.c[i * g.c_row + j * g.c_col] - c.data())];
        to = static_cast<Result>((g.accumulate ? static_cast<double>(to) : 0) + static_cast<double>(g.alpha) * sum);
      }
    return result;
  }

  std::string what(std::string_view by) const {
    std::string text = std::string(by) + ":";
    for (const std::int64_t number : {g.m, g.n, g.k, g.a_row, g.a_col, g.b_row, g.b_col, g.c_row, g.c_col})
      text += " " + std::to_string(number);
    return text + (g.accumulate ? " +=" : " =");
  }

 private:
  /// Without sanitizers, under which it took nine tenths of the time of the tests of large products.
  __attribute__((no_sanitize("address", "undefined"))) static double dot(const double* x, const double* y,
                                                                         std::int64_t count) {
    double even = 0, odd = 0;  // exact, so their order does not matter
    std::int64_t p = 0;
    for (; p + 1 < count; p += 2) even += x[p] * y[p], odd += x[p + 1] * y[p + 1];
    return p < count ? even + odd + x[p] * y[p] : even + odd;
  }
  static void strides(std::mt19937& random, unsigned kinds, std::int64_t rows, std::int64_t cols, std::int64_t& row,
                      std::int64_t& col) {
    rows = std::max<std::int64_t>(rows, 1), cols = std::max<std::int64_t>(cols, 1);
    switch (random() % kinds) {
      case 0:
        row = cols, col = 1;
        break;
      case 1:
        row = 1, col = rows;
        break;
      case 2:
        row = cols + 3, col = 1;
        break;
      case 3:
        row = 1, col = rows + 2;
        break;
      case 4:
        row = 3 * cols, col = 3;
        break;
      case 5:
        row = -cols, col = -1;
        break;
      case 6:
        row = 0, col = 1;
        break;
      default:
        row = 1, col = 0;
        break;
    }
  }
  template <class U>
  static U* numbers(std::mt19937& random, std::vector<U>& values, std::int64_t rows, std::int64_t row,
                    std::int64_t cols, std::int64_t col) {
    if (rows == 0 || cols == 0) return nullptr;
    const std::int64_t r = (rows - 1) * row, c = (cols - 1) * col;
    const std::int64_t lowest = std::min<std::int64_t>(r, 0) + std::min<std::int64_t>(c, 0);
    values.resize(static_cast<std::size_t>(std::max<std::int64_t>(r, 0) + std::max<std::int64_t>(c, 0) - lowest + 1));
    for (U& value : values) value = static_cast<U>(static_cast<int>(random() % 9) - 4);
    return values.data() - lowest;
  }
};

}  // namespace tessera_test

#endif
