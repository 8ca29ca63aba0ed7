#include <cmath>
#include <cstdint>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "random_tensor.hpp"
#include <gtest/gtest.h>

#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/print/print.hpp>

namespace ts = tessera;

namespace {

/// The elements as they print, without the last line: the same whatever the layout is.
template <int Rank, class T>
std::string elements(const std::vector<T>& values, const ts::Shape& shape, const ts::PrintOptions& options = {}) {
  std::mt19937 random(8);
  std::string first;
  for (int round = 0; round < 10; ++round) {
    const ts::Mesh mesh = tessera_test::random_mesh(random);
    const auto spec = ts::spec_of(tessera_test::random_sharding(random, mesh, Rank, false), mesh);
    std::string text = ts::to_string(ts::shard<Rank>(values, shape, mesh, spec), options);
    text.resize(text.rfind('\n'));
    if (round == 0) first = text;
    EXPECT_EQ(text, first) << mesh.text() << " " << spec.text();
  }
  return first;
}

template <class T> std::vector<T> count_up(int n, T step = T(1)) {
  std::vector<T> values;
  for (int i = 0; i < n; ++i) values.push_back(static_cast<T>(i) * step);
  return values;
}

}  // namespace

// The expected texts are what NumPy 1.24 prints.

TEST(print, reals_align_at_the_point_with_as_few_digits_as_tell_them_apart) {
  EXPECT_EQ(elements<2>(std::vector<float>{1, 2.5f, 3, 4.25f}, {2, 2}), "[[1.   2.5 ]\n [3.   4.25]]");
  EXPECT_EQ(elements<2>(std::vector<float>{-1, 2.5f, 0.125f, 3, -4.25f, 100}, {2, 3}),
            "[[ -1.      2.5     0.125]\n [  3.     -4.25  100.   ]]");
  EXPECT_EQ(elements<1>(std::vector<float>{1 / 3.f, 2 / 3.f, 0.1f}, {3}), "[0.33333334 0.6666667  0.1       ]");
  EXPECT_EQ(elements<1>(std::vector<float>{-0.f, 1}, {2}), "[-0.  1.]");
}

TEST(print, reals_of_very_different_size_have_exponents) {
  EXPECT_EQ(elements<1>(std::vector<double>{1e-5, 1234, -2.5, 0}, {4}),
            "[ 1.000e-05  1.234e+03 -2.500e+00  0.000e+00]");
  EXPECT_EQ(elements<1>(std::vector<double>{1e-105, 1234, -2.5}, {3}), "[ 1.000e-105  1.234e+003 -2.500e+000]");
  EXPECT_EQ(elements<1>(std::vector<float>{1e8f, 2}, {2}), "[1.e+08 2.e+00]");
  EXPECT_EQ(elements<1>(std::vector<double>{1 / 3., -2 / 3., 0.1, 1000 / 7.}, {4}),
            "[ 3.33333333e-01 -6.66666667e-01  1.00000000e-01  1.42857143e+02]");
}

TEST(print, what_is_not_finite_has_a_name) {
  const float nan = std::nanf(""), inf = INFINITY;
  EXPECT_EQ(elements<1>(std::vector<float>{nan, 1.5f, inf, -inf}, {4}), "[ nan  1.5  inf -inf]");
  EXPECT_EQ(elements<1>(std::vector<float>{nan, -inf}, {2}), "[ nan -inf]");
  EXPECT_EQ(elements<1>(std::vector<float>{nan, 1}, {2}), "[nan  1.]");
}

TEST(print, reals_of_16_and_8_bits_print_as_the_floats_that_they_are) {
  EXPECT_EQ(elements<1>(std::vector<ts::f16>{ts::f16(1.5f), ts::f16(-65504), ts::f16(0.25f)}, {3}),
            "[ 1.5000e+00 -6.5504e+04  2.5000e-01]");
  EXPECT_EQ(elements<1>(std::vector<ts::f8_e4m3>{ts::f8_e4m3(448), ts::f8_e4m3(-0.5f), ts::f8_e4m3(1e9)}, {3}),
            "[448.   -0.5   nan]");
  EXPECT_EQ(elements<1>(std::vector<ts::f8_e5m2>{ts::f8_e5m2(1), ts::f8_e5m2(1e9)}, {2}), "[ 1. inf]");
}

TEST(print, integers_and_bools_align_right) {
  EXPECT_EQ(elements<2>(std::vector<std::int32_t>{1, -20, 300, 4}, {2, 2}), "[[  1 -20]\n [300   4]]");
  EXPECT_EQ(elements<1>(std::vector<std::uint8_t>{1, 20, 255}, {3}), "[  1  20 255]");
  EXPECT_EQ(elements<1>(std::vector<std::int8_t>{65, -1}, {2}), "[65 -1]");
  EXPECT_EQ(elements<1>(std::vector<std::int16_t>{-300}, {1}), "[-300]");
  EXPECT_EQ(elements<1>(std::vector<std::int64_t>{INT64_MAX, 0}, {2}), "[9223372036854775807                   0]");
  EXPECT_EQ(elements<1>(std::vector<bool>{true, false, true}, {3}), "[ True False  True]");
}

TEST(print, long_rows_break_into_lines) {
  EXPECT_EQ(elements<1>(count_up<std::int64_t>(40), {40}),
            "[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23\n"
            " 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39]");
  EXPECT_EQ(elements<1>(count_up<float>(30, 0.125f), {30}),
            "[0.    0.125 0.25  0.375 0.5   0.625 0.75  0.875 1.    1.125 1.25  1.375\n"
            " 1.5   1.625 1.75  1.875 2.    2.125 2.25  2.375 2.5   2.625 2.75  2.875\n"
            " 3.    3.125 3.25  3.375 3.5   3.625]");
  EXPECT_EQ(elements<2>(count_up<std::int32_t>(40, 1000), {2, 20}),
            "[[    0  1000  2000  3000  4000  5000  6000  7000  8000  9000 10000 11000\n"
            "  12000 13000 14000 15000 16000 17000 18000 19000]\n"
            " [20000 21000 22000 23000 24000 25000 26000 27000 28000 29000 30000 31000\n"
            "  32000 33000 34000 35000 36000 37000 38000 39000]]");
}

TEST(print, outer_dims_are_apart_by_blank_lines) {
  EXPECT_EQ(elements<4>(count_up<int>(16), {2, 2, 2, 2}), "[[[[ 0  1]\n   [ 2  3]]\n\n  [[ 4  5]\n   [ 6  7]]]\n\n\n"
                                                          " [[[ 8  9]\n   [10 11]]\n\n  [[12 13]\n   [14 15]]]]");
}

TEST(print, large_tensors_are_abbreviated) {
  EXPECT_EQ(elements<1>(count_up<int>(1001), {1001}), "[   0    1    2 ...  998  999 1000]");
  EXPECT_EQ(elements<2>(count_up<int>(2000), {40, 50}), "[[   0    1    2 ...   47   48   49]\n"
                                                        " [  50   51   52 ...   97   98   99]\n"
                                                        " [ 100  101  102 ...  147  148  149]\n"
                                                        " ...\n"
                                                        " [1850 1851 1852 ... 1897 1898 1899]\n"
                                                        " [1900 1901 1902 ... 1947 1948 1949]\n"
                                                        " [1950 1951 1952 ... 1997 1998 1999]]");
  EXPECT_EQ(elements<1>(count_up<int>(9), {9}, {.threshold = 8, .edge_items = 1}), "[0 ... 8]");
  EXPECT_EQ(elements<3>(count_up<int>(16), {2, 4, 2}, {.threshold = 8, .edge_items = 1}),
            "[[[ 0  1]\n  ...\n  [ 6  7]]\n\n [[ 8  9]\n  ...\n  [14 15]]]");
}

TEST(print, precision_limits_the_digits) {
  EXPECT_EQ(elements<1>(std::vector<double>{3.14159265, 2.5}, {2}, {.precision = 3}), "[3.142 2.5  ]");
}

TEST(print, scalars_and_empty_tensors) {
  EXPECT_EQ(elements<0>(std::vector<float>{2.5f}, {}), "2.5");
  EXPECT_EQ(elements<2>(std::vector<float>{}, {2, 0}), "[]");
}

TEST(print, the_last_line_says_type_shape_sharding_and_mesh) {
  const ts::Mesh mesh({{"data", 2}, {"model", 2}});
  std::ostringstream out;
  out << ts::shard<float>({{1, 2.5}, {3, 4.25}}, mesh, {"data"});
  EXPECT_EQ(out.str(), "[[1.   2.5 ]\n [3.   4.25]]\nf32[2,2]{data,-} on mesh(data=2,model=2)");
}

TEST(print, a_tensor_without_data_prints_too) {
  EXPECT_EQ(ts::to_string(ts::ShardedTensor<double, 3>()), "empty f64 tensor of rank 3");
}
