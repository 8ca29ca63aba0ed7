#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "../../support/untyped.hpp"
#include "../base/expect_error.hpp"

#include <tessera/ops/contraction/convolution.hpp>
#include <tessera/ops/reduction/pooling.hpp>
#include <tessera/partition/propagation/shapes.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

const Array x = random_array({2, 5, 7, 4}, 1), w = random_array({3, 2, 4, 6}, 2), v = random_array({3, 2, 2, 6}, 3);

template <class F> Array apply(F, const Array& a, const Array& b) {
  return run(trace<F, Float<4>, Float<4>>().view(), {a, b}).at(0);
}

/// The definition, element by element.
Array convolved(const Array& a, const Array& b, const ts::Conv<2>& c) {
  const auto windows = [&](std::size_t d) {
    const std::int64_t after = c.padding_after[d] < 0 ? c.padding[d] : c.padding_after[d];
    return (a.shape[1 + d] + c.padding[d] + after - c.dilation[d] * (b.shape[d] - 1) - 1) / c.strides[d] + 1;
  };
  const std::int64_t of_group = b.shape[2], outs = b.shape[3] / c.groups;
  Array y({a.shape[0], windows(0), windows(1), b.shape[3]});
  for_each_index(y.shape, [&](const Shape& i) {
    for_each_index({b.shape[0], b.shape[1], of_group}, [&](const Shape& k) {
      const std::int64_t row = i[1] * c.strides[0] + k[0] * c.dilation[0] - c.padding[0];
      const std::int64_t column = i[2] * c.strides[1] + k[1] * c.dilation[1] - c.padding[1];
      if (row < 0 || row >= a.shape[1] || column < 0 || column >= a.shape[2]) return;
      y.at(i) += a.at({i[0], row, column, i[3] / outs * of_group + k[2]}) * b.at({k[0], k[1], k[2], i[3]});
    });
  });
  return y;
}

/// The definition: each element of `a` adds its multiple of the weights [taps, in-features, out-features of a group].
Array transposed(const Array& a, const Array& b, const ts::ConvTranspose<2>& c) {
  const auto extent = [&](std::size_t d) {
    return (a.shape[1 + d] - 1) * c.strides[d] - 2 * c.padding[d] + c.dilation[d] * (b.shape[d] - 1) +
           c.output_padding[d] + 1;
  };
  const std::int64_t of_group = b.shape[2] / c.groups, outs = b.shape[3];
  Array y({a.shape[0], extent(0), extent(1), outs * c.groups});
  for_each_index(a.shape, [&](const Shape& i) {
    for_each_index({b.shape[0], b.shape[1], outs}, [&](const Shape& k) {
      const std::int64_t row = i[1] * c.strides[0] + k[0] * c.dilation[0] - c.padding[0];
      const std::int64_t column = i[2] * c.strides[1] + k[1] * c.dilation[1] - c.padding[1];
      if (row < 0 || row >= y.shape[1] || column < 0 || column >= y.shape[2]) return;
      y.at({i[0], row, column, i[3] / of_group * outs + k[2]}) += a.at(i) * b.at({k[0], k[1], i[3], k[2]});
    });
  });
  return y;
}

void expect_close(const Array& got, const Array& want) {
  ASSERT_EQ(got.shape, want.shape);
  for (std::size_t i = 0; i < got.data.size(); ++i) EXPECT_NEAR(got.data[i], want.data[i], 1e-12) << i;
}

TEST(Convolution, Definition) {
  expect_close(apply([](const auto& a, const auto& b) { return ts::conv2d(a, b); }, x, w), convolved(x, w, {}));
  static constexpr ts::Conv<2> wide{.strides = {2, 1}, .padding = {1, 3}, .dilation = {2, 3}};
  expect_close(apply([](const auto& a, const auto& b) { return ts::conv2d(a, b, wide); }, x, w), convolved(x, w, wide));
  static constexpr ts::Conv<2> grouped{.strides = {1, 3}, .groups = 2};
  expect_close(apply([](const auto& a, const auto& b) { return ts::conv2d(a, b, grouped); }, x, v),
               convolved(x, v, grouped));
}

// "SAME" as TensorFlow documents it: max((ceil(n / stride) - 1) stride + dilation (taps - 1) + 1 - n, 0) zeros, of 5
// x 7.
TEST(Convolution, PaddingOfEachSideAndOfTheSameExtent) {
  static constexpr ts::Conv<2> uneven{.strides = {2, 1}, .padding = {2, 0}, .padding_after = {0, 3}};
  expect_close(apply([](const auto& a, const auto& b) { return ts::conv2d(a, b, uneven); }, x, w),
               convolved(x, w, uneven));
  const auto check = [&]<ts::Conv<2> Options>(const ts::Conv<2>& explicitly) {
    const auto f = [](const auto& a, const auto& b) { return ts::conv2d(a, b, Options); };
    const Array y = apply(f, x, w);
    expect_close(y, convolved(x, w, explicitly));
    EXPECT_EQ(y.shape[1], (5 + Options.strides[0] - 1) / Options.strides[0]);
    EXPECT_EQ(y.shape[2], (7 + Options.strides[1] - 1) / Options.strides[1]);
    check_gradient<Float<4>, Float<4>>(f, {x, w});
  };
  check.operator()<ts::Conv<2>{.same = true}>({.padding = {1, 0}, .padding_after = {1, 1}});
  check.operator()<ts::Conv<2>{.strides = {2, 3}, .same = true}>(
      {.strides = {2, 3}, .padding = {1, 0}, .padding_after = {1, 1}});
  check.operator()<ts::Conv<2>{.dilation = {2, 3}, .same = true}>(
      {.padding = {2, 1}, .dilation = {2, 3}, .padding_after = {2, 2}});
  check.operator()<ts::Conv<2>{.strides = {5, 4}, .same = true}>(
      {.strides = {5, 4}, .padding = {0, 0}, .padding_after = {0, 0}});
}

TEST(ConvTranspose, Definition) {
  expect_close(apply([](const auto& a, const auto& b) { return ts::conv_transpose2d(a, b); }, x, w),
               transposed(x, w, {}));
  static constexpr ts::ConvTranspose<2> wide{
      .strides = {3, 1}, .padding = {1, 3}, .output_padding = {2, 1}, .dilation = {2, 3}};
  expect_close(apply([](const auto& a, const auto& b) { return ts::conv_transpose2d(a, b, wide); }, x, w),
               transposed(x, w, wide));
  static constexpr ts::ConvTranspose<2> grouped{.strides = {2, 2}, .groups = 2};
  expect_close(apply([](const auto& a, const auto& b) { return ts::conv_transpose2d(a, b, grouped); }, x, w),
               transposed(x, w, grouped));
}

// <conv(x, w), g> = <x, conv_transpose(g, w with its features exchanged)>, for each x, is what makes it the transpose.
TEST(ConvTranspose, IsTheGradientOfTheConvolution) {
  static constexpr auto gradient = [](const auto& a, const auto& b, const auto& g) {
    const auto product = [&](const auto& images) {
      return ts::sum(ts::conv2d(images, b, {.strides = {2, 3}, .padding = {1, 0}, .dilation = {1, 2}}) * g);
    };
    return ts::grad(product)(a);
  };
  static constexpr auto direct = [](const auto& b, const auto& g) {
    // windows end at the last row and two columns before the last
    return ts::conv_transpose2d(g, ts::transpose<0, 1, 3, 2>(b),
                                {.strides = {2, 3}, .padding = {1, 0}, .output_padding = {0, 1}, .dilation = {1, 2}});
  };
  const Array g = random_array({2, 3, 2, 6}, 9);  // of x [2, 5, 7, 4]: (5 + 2 - 3) / 2 + 1 and (7 - 3) / 3 + 1
  using F4 = Float<4>;
  const Array want = run(trace<decltype(gradient), F4, F4, F4>().view(), {x, w, g}).at(0);
  expect_close(run(trace<decltype(direct), F4, F4>().view(), {w, g}).at(0), want);
}

TEST(ConvTranspose, OneDim) {
  const Array a = random_array({2, 5, 4}, 4), b = random_array({3, 4, 5}, 5);
  const auto f = [](const auto& signal, const auto& taps) {
    return ts::conv_transpose1d(signal, taps, {.strides = {2}, .padding = {1}});
  };
  const Array got = run(trace<decltype(f), Float<3>, Float<3>>().view(), {a, b}).at(0);
  Array tall = a, flat = b;
  tall.shape = {2, 5, 1, 4};
  flat.shape = {3, 1, 4, 5};
  Array want = transposed(tall, flat, {.strides = {2, 1}, .padding = {1, 0}});
  want.shape = {2, 9, 5};
  expect_close(got, want);
}

TEST(ConvTranspose, ThreeDims) {
  const Array volume = random_array({2, 2, 3, 2, 3}, 4), taps = random_array({2, 3, 2, 3, 2}, 5);
  const auto f = [](const auto& a, const auto& b) {
    return ts::conv_transpose3d(a, b, {.strides = {1, 2, 3}, .padding = {1, 0, 0}, .output_padding = {0, 1, 0}});
  };
  // Extents: (2 - 1) 1 + 2 - 2, (3 - 1) 2 + 3 + 1, (2 - 1) 3 + 2.
  Array want({2, 1, 8, 5, 2});
  for_each_index(volume.shape, [&](const Shape& i) {
    for_each_index({2, 3, 2, 2}, [&](const Shape& k) {
      const std::int64_t depth = i[1] + k[0] - 1, row = 2 * i[2] + k[1], column = 3 * i[3] + k[2];
      if (depth == 0) want.at({i[0], 0, row, column, k[3]}) += volume.at(i) * taps.at({k[0], k[1], k[2], i[4], k[3]});
    });
  });
  expect_close(run(trace<decltype(f), Float<5>, Float<5>>().view(), {volume, taps}).at(0), want);
  check_gradient<Float<5>, Float<5>>(f, {random_array({1, 2, 2, 2, 1}, 6), random_array({2, 2, 1, 1, 2}, 7)},
                                     first_order);
}

// Groups of volumes, and a filter for each feature (depthwise: one in-feature in a group).
template <std::int64_t Groups> void expect_groups_of_volumes(std::int64_t ins, std::int64_t outs) {
  [[maybe_unused]] static constexpr ts::Conv<3> options{
      .strides = {1, 2, 1}, .padding = {1, 0, 1}, .dilation = {1, 1, 2}, .groups = Groups};
  const Array a = random_array({2, 3, 4, 5, ins}, 4), b = random_array({2, 3, 2, ins / Groups, outs}, 5);
  const auto f = [](const auto& volume, const auto& taps) { return ts::conv3d(volume, taps, options); };
  Array want({2, 4, 1, 5, outs});
  for_each_index(want.shape, [&](const Shape& i) {
    for_each_index({2, 3, 2, ins / Groups}, [&](const Shape& k) {
      const std::int64_t depth = i[1] + k[0] - 1, row = 2 * i[2] + k[1], column = i[3] + 2 * k[2] - 1;
      if (depth < 0 || depth >= 3 || column < 0 || column >= 5) return;
      const std::int64_t in = i[4] / (outs / Groups) * (ins / Groups) + k[3];
      want.at(i) += a.at({i[0], depth, row, column, in}) * b.at({k[0], k[1], k[2], k[3], i[4]});
    });
  });
  expect_close(run(trace<decltype(f), Float<5>, Float<5>>().view(), {a, b}).at(0), want);
  check_gradient<Float<5>, Float<5>>(
      f, {random_array({1, 2, 3, 3, ins}, 6), random_array({2, 3, 1, ins / Groups, outs}, 7)}, first_order);
}
TEST(Convolution, GroupsOfVolumes) {
  expect_groups_of_volumes<2>(4, 6);
  expect_groups_of_volumes<3>(3, 6);
}
template <std::int64_t Groups> void expect_groups_of_transposed_volumes(std::int64_t ins, std::int64_t outs) {
  [[maybe_unused]] static constexpr ts::ConvTranspose<3> options{
      .strides = {1, 2, 3}, .padding = {1, 0, 0}, .output_padding = {0, 1, 0}, .groups = Groups};
  const Array volume = random_array({2, 2, 3, 2, ins}, 4), taps = random_array({2, 3, 2, ins, outs}, 5);
  const auto f = [](const auto& a, const auto& b) { return ts::conv_transpose3d(a, b, options); };
  Array want({2, 1, 8, 5, outs * Groups});
  for_each_index(volume.shape, [&](const Shape& i) {
    for_each_index({2, 3, 2, outs}, [&](const Shape& k) {
      const std::int64_t depth = i[1] + k[0] - 1, row = 2 * i[2] + k[1], column = 3 * i[3] + k[2];
      const std::int64_t out = i[4] / (ins / Groups) * outs + k[3];
      if (depth == 0) want.at({i[0], 0, row, column, out}) += volume.at(i) * taps.at({k[0], k[1], k[2], i[4], k[3]});
    });
  });
  expect_close(run(trace<decltype(f), Float<5>, Float<5>>().view(), {volume, taps}).at(0), want);
  check_gradient<Float<5>, Float<5>>(f, {random_array({1, 2, 2, 2, ins}, 6), random_array({2, 2, 1, ins, outs}, 7)},
                                     first_order);
}
TEST(ConvTranspose, GroupsOfVolumes) {
  expect_groups_of_transposed_volumes<2>(4, 3);
  expect_groups_of_transposed_volumes<3>(3, 2);
}

TEST(ConvTranspose, Gradients) {
  const Array small = random_array({1, 3, 2, 2}, 6), taps = random_array({2, 2, 2, 3}, 7);
  check_gradient<Float<4>, Float<4>>([](const auto& a, const auto& b) { return ts::conv_transpose2d(a, b); },
                                     {small, taps});
  // Output padding above the stride gives rows that no window reaches, and that the convolution would have windows for.
  check_gradient<Float<4>, Float<4>>(
      [](const auto& a, const auto& b) {
        return ts::conv_transpose2d(
            a, b, {.strides = {2, 1}, .padding = {1, 0}, .output_padding = {1, 2}, .dilation = {1, 3}, .groups = 2});
      },
      {small, taps});
}

TEST(Convolution, Gradients) {
  const Array small = random_array({1, 4, 5, 2}, 6), taps = random_array({2, 2, 2, 4}, 7),
              half = random_array({2, 2, 1, 4}, 8);
  check_gradient<Float<4>, Float<4>>([](const auto& a, const auto& b) { return ts::conv2d(a, b); }, {small, taps});
  check_gradient<Float<4>, Float<4>>(
      [](const auto& a, const auto& b) {
        return ts::conv2d(a, b, {.strides = {2, 3}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2});
      },
      {small, half});
}

TEST(Convolution, OneDim) {
  const Array a = random_array({2, 9, 4}, 4), b = random_array({3, 4, 5}, 5);
  const auto f = [](const auto& signal, const auto& taps) { return ts::conv1d(signal, taps, {.strides = {2}}); };
  const Array got = run(trace<decltype(f), Float<3>, Float<3>>().view(), {a, b}).at(0);
  Array tall = a, flat = b;
  tall.shape = {2, 9, 1, 4};
  flat.shape = {3, 1, 4, 5};
  Array want = convolved(tall, flat, {.strides = {2, 1}});
  want.shape = {2, 4, 5};
  expect_close(got, want);
}

TEST(Convolution, ThreeDims) {
  [[maybe_unused]] static constexpr ts::Conv<3> wide{.strides = {1, 2, 1}, .padding = {1, 0, 1}, .dilation = {1, 1, 2}};
  const Array a = random_array({2, 3, 4, 5, 2}, 4), b = random_array({2, 3, 2, 2, 3}, 5);
  const auto f = [](const auto& volume, const auto& taps) { return ts::conv3d(volume, taps, wide); };
  Array want({2, 4, 1, 5, 3});
  for_each_index(want.shape, [&](const Shape& i) {
    for_each_index({2, 3, 2, 2}, [&](const Shape& k) {
      const std::int64_t depth = i[1] + k[0] - 1, row = 2 * i[2] + k[1], column = i[3] + 2 * k[2] - 1;
      if (depth < 0 || depth >= 3 || column < 0 || column >= 5) return;
      want.at(i) += a.at({i[0], depth, row, column, k[3]}) * b.at({k[0], k[1], k[2], k[3], i[4]});
    });
  });
  expect_close(run(trace<decltype(f), Float<5>, Float<5>>().view(), {a, b}).at(0), want);
  check_gradient<Float<5>, Float<5>>(f, {random_array({1, 2, 3, 3, 1}, 6), random_array({1, 3, 2, 1, 2}, 7)},
                                     first_order);
}

// Windows with more padding behind a dim than in front, and with none in front.
constexpr auto padded_behind = [](const auto& a) {
  const ts::Value in = ts::trace_of(a);
  const auto size = [&](std::int64_t n) { return in.integer(n, ts::DType::i64); };
  const ts::build::PatchDim dims[] = {{size(3), size(2), size(1), size(0), size(4)},
                                      {size(2), size(1), size(2), size(1), size(3)}};
  return ts::Sym<float, 6>(ts::build::patches(in, 1, 2, dims));
};
TEST(Convolution, PaddingOnlyBehind) {
  const Array a = random_array({2, 5, 3, 2}, 3);
  Array want({2, 4, 3, 5, 2, 2});
  for_each_index(want.shape, [&](const Shape& i) {
    const std::int64_t row = 2 * i[1] + i[2], column = i[3] + 2 * i[4] - 1;
    if (row < 5 && column >= 0 && column < 3) want.at(i) = a.at({i[0], row, column, i[5]});
  });
  expect_close(run(trace<decltype(padded_behind), Float<4>>().view(), {a}).at(0), want);
  check_gradient<Float<4>>(padded_behind, {random_array({1, 3, 2, 1}, 4)}, first_order);
}

TEST(Convolution, Mistakes) {
  const auto infer = []<class F>(const F&, std::vector<ts::Shape> arguments) {
    return [arguments] { ts::infer_shapes(trace<F, Float<4>, Float<4>>().view(), arguments.data(), nullptr); };
  };
  const auto plain = [](const auto& a, const auto& b) { return ts::conv2d(a, b); };
  EXPECT_NO_THROW(infer(plain, {{1, 3, 3, 4}, {3, 2, 4, 6}})());
  tessera_test::expect_error(ts::errc::shape_mismatch, infer(plain, {{1, 2, 3, 4}, {3, 2, 4, 6}}),
                             "[conv2d] a window is longer than the padded dim: windows of 3, stride 1, dilation 1, "
                             "along dim 1 of f32[1,2,3,4] "
                             "with padding of 0 and 0 at ",
                             "convolution_test.cpp:");
  tessera_test::expect_error(
      ts::errc::shape_mismatch,
      infer(
          [](const auto& a, const auto&) {
            return ts::max_pool2d(a, {.window = {2, 4}, .strides = {3, 1}, .dilation = {1, 2}});
          },
          {{1, 2, 5, 4}, {3, 2, 4, 6}}),
      "[max_pool2d] a window is longer than the padded dim: windows of 4, stride 1, dilation 2, along dim 2 of "
      "f32[1,2,5,4] with padding of 0 and 0 at ",
      "convolution_test.cpp:");
  tessera_test::expect_error(ts::errc::shape_mismatch, infer(plain, {{1, 5, 3, 4}, {3, 2, 3, 6}}),
                             "[conv2d] in-features differ: f32[1,5,3,4] x f32[3,2,3,6], of [batch, spatial..., in] and "
                             "[taps..., in, out] at ",
                             "convolution_test.cpp:");
  const auto stands = [](const auto& a, const auto& b) { return ts::conv2d(a, b, {.strides = {0, 1}}); };
  tessera_test::expect_error(ts::errc::shape_mismatch, infer(stands, {{1, 5, 3, 4}, {3, 2, 4, 6}}),
                             "[conv2d] a window size, stride or dilation is below 1", "convolution_test.cpp:");
  const auto split = [](const auto& a, const auto& b) { return ts::conv2d(a, b, {.groups = 3}); };
  tessera_test::expect_error(ts::errc::not_divisible, infer(split, {{1, 5, 3, 4}, {3, 2, 1, 6}}),
                             "[conv2d] groups: 4 features are not divisible by 3 groups at ", "convolution_test.cpp:");
  tessera_test::expect_error(ts::errc::not_divisible, infer(split, {{1, 5, 3, 6}, {3, 2, 2, 4}}),
                             "[conv2d] groups: 4 features are not divisible by 3 groups at ", "convolution_test.cpp:");
}

TEST(ConvTranspose, Mistakes) {
  const auto infer = []<class F>(const F&, std::vector<ts::Shape> arguments) {
    return [arguments] { ts::infer_shapes(trace<F, Float<4>, Float<4>>().view(), arguments.data(), nullptr); };
  };
  const auto plain = [](const auto& a, const auto& b) { return ts::conv_transpose2d(a, b); };
  tessera_test::expect_error(ts::errc::shape_mismatch, infer(plain, {{1, 5, 3, 4}, {3, 2, 3, 6}}),
                             "[conv_transpose2d] in-features differ, of [batch, spatial..., in] and [taps..., in, out "
                             "/ groups]: f32[1,5,3,4] x "
                             "f32[3,2,3,6] at ",
                             "convolution_test.cpp:");
  const auto stands = [](const auto& a, const auto& b) { return ts::conv_transpose2d(a, b, {.strides = {0, 1}}); };
  tessera_test::expect_error(ts::errc::shape_mismatch, infer(stands, {{1, 5, 3, 4}, {3, 2, 4, 6}}),
                             "[conv_transpose2d] a stride or a dilation is below 1", "convolution_test.cpp:");
  const auto split = [](const auto& a, const auto& b) { return ts::conv_transpose2d(a, b, {.groups = 3}); };
  tessera_test::expect_error(ts::errc::not_divisible, infer(split, {{1, 5, 3, 4}, {3, 2, 4, 6}}),
                             "[conv_transpose2d] groups: 4 features are not divisible by 3 groups at ",
                             "convolution_test.cpp:");
  const auto nothing = [](const auto& a, const auto& b) { return ts::conv_transpose2d(a, b, {.padding = {4, 0}}); };
  tessera_test::expect_error(ts::errc::shape_mismatch, infer(nothing, {{1, 5, 3, 4}, {3, 2, 4, 6}}),
                             "[conv_transpose2d] the padding is negative, or longer than the windows",
                             "convolution_test.cpp:");
  const auto shorter = [](const auto& a, const auto& b) {
    return ts::conv_transpose2d(a, b, {.output_padding = {-1, 0}});
  };
  tessera_test::expect_error(ts::errc::shape_mismatch, infer(shorter, {{1, 5, 3, 4}, {3, 2, 4, 6}}),
                             "[conv_transpose2d] the windows are longer than the dim of the result",
                             "convolution_test.cpp:");
}

template <class F> Array apply(F, const Array& a) { return run(trace<F, Float<4>>().view(), {a}).at(0); }

/// Each window of `a` [batch, height, width, features] as the elements that are no padding.
template <class F> Array pooled(const Array& a, const ts::MaxPool<2>& p, F&& value) {
  const auto windows = [&](std::size_t d) {
    return (a.shape[1 + d] + 2 * p.padding[d] - p.dilation[d] * (p.window[d] - 1) - 1) / p.strides[d] + 1;
  };
  Array y({a.shape[0], windows(0), windows(1), a.shape[3]});
  for_each_index(y.shape, [&](const Shape& i) {
    std::vector<double> elements;
    for_each_index({p.window[0], p.window[1]}, [&](const Shape& k) {
      const std::int64_t row = i[1] * p.strides[0] + k[0] * p.dilation[0] - p.padding[0];
      const std::int64_t column = i[2] * p.strides[1] + k[1] * p.dilation[1] - p.padding[1];
      if (row >= 0 && row < a.shape[1] && column >= 0 && column < a.shape[2])
        elements.push_back(a.at({i[0], row, column, i[3]}));
    });
    y.at(i) = value(elements);
  });
  return y;
}
double largest(const std::vector<double>& all) { return *std::max_element(all.begin(), all.end()); }
double total(const std::vector<double>& all) { return std::accumulate(all.begin(), all.end(), 0.0); }

TEST(Pooling, Definition) {
  static constexpr ts::MaxPool<2> wide{.window = {3, 2}, .strides = {2, 1}, .padding = {1, 1}, .dilation = {1, 3}};
  expect_close(apply([](const auto& a) { return ts::max_pool2d(a, wide); }, x), pooled(x, wide, largest));
  const ts::MaxPool<2> same{.window = {2, 3}, .strides = {2, 3}};  // strides are those of the window by default
  expect_close(apply([](const auto& a) { return ts::max_pool2d(a, {.window = {2, 3}}); }, x), pooled(x, same, largest));
  expect_close(apply(
                   [](const auto& a) {
                     return ts::avg_pool2d(a, {.window = {2, 3}});
                   },
                   x),
               pooled(x, same, [](const auto& all) { return total(all) / 6; }));
  const ts::MaxPool<2> apart{.window = {3, 2}, .strides = {2, 1}, .padding = {1, 1}};
  // torch.nn.AvgPool2d: count_include_pad, true by default, includes the zero padding in the averaging
  expect_close(apply(
                   [](const auto& a) {
                     return ts::avg_pool2d(a, {.window = {3, 2}, .strides = {2, 1}, .padding = {1, 1}});
                   },
                   x),
               pooled(x, apart, [](const auto& all) { return total(all) / 6; }));
  expect_close(apply(
                   [](const auto& a) {
                     return ts::avg_pool2d(
                         a, {.window = {3, 2}, .strides = {2, 1}, .padding = {1, 1}, .count_include_pad = false});
                   },
                   x),
               pooled(x, apart, [](const auto& all) { return total(all) / static_cast<double>(all.size()); }));
}

// Bounds as in PyTorch's AdaptiveAveragePooling.cpp: floor(i n / size) and ceil((i + 1) n / size).
TEST(Pooling, Adaptive) {
  Array mean({2, 3, 9, 4}), most({2, 3, 9, 4}, -1e9);
  for_each_index(mean.shape, [&](const Shape& i) {
    double sum = 0, count = 0;
    for (std::int64_t r = i[1] * 5 / 3; r < ((i[1] + 1) * 5 + 2) / 3; ++r)
      for (std::int64_t c = i[2] * 7 / 9; c < ((i[2] + 1) * 7 + 8) / 9; ++c) {
        const double element = x.at({i[0], r, c, i[3]});
        sum += element, ++count;
        most.at(i) = std::fmax(most.at(i), element);
      }
    mean.at(i) = sum / count;
  });
  expect_close(apply([](const auto& a) { return ts::adaptive_avg_pool2d(a, {3, 9}); }, x), mean);
  expect_close(apply([](const auto& a) { return ts::adaptive_max_pool2d(a, {3, 9}); }, x), most);
}

TEST(Pooling, Gradients) {
  const Array small = random_array({1, 4, 5, 2}, 6);
  check_gradient<Float<4>>(
      [](const auto& a) {
        return ts::max_pool2d(a, {.window = {3, 2}, .strides = {2, 1}, .padding = {1, 1}});
      },
      {small});
  check_gradient<Float<4>>(
      [](const auto& a) {
        return ts::avg_pool2d(a, {.window = {3, 2}, .strides = {2, 1}, .padding = {1, 1}, .count_include_pad = false});
      },
      {small});
  check_gradient<Float<4>>([](const auto& a) { return ts::adaptive_avg_pool2d(a, {3, 2}); }, {small});
  check_gradient<Float<4>>([](const auto& a) { return ts::adaptive_max_pool2d(a, {3, 2}); }, {small}, first_order);
}

// torch.nn.functional.max_pool2d backpropagates to the index that it returns, the first of equal elements.
TEST(Pooling, TheFirstOfEqualElementsGetsTheGradient) {
  static constexpr auto gradient = [](const auto& a) {
    return ts::grad([](const auto& b) { return ts::sum(ts::max_pool2d(b, {.window = {2, 2}})); })(a);
  };
  Array ties({1, 2, 4, 1});
  ties.data = {1, 3, 2, 2, 3, 3, 2, 2};
  EXPECT_EQ(apply(gradient, ties).data, (std::vector<double>{0, 1, 1, 0, 0, 0, 0, 0}));
}

// torch.nn.functional.adaptive_max_pool2d too: the first in row-major order, with two columns as with two rows.
TEST(Pooling, TheFirstOfEqualElementsOfAnAdaptiveWindowGetsTheGradient) {
  static constexpr auto gradient = [](const auto& a) {
    return ts::grad([](const auto& b) { return ts::sum(ts::adaptive_max_pool2d(b, 1)); })(a);
  };
  const auto at = [&](std::vector<double> elements) {
    Array square({1, 2, 2, 1});
    square.data = std::move(elements);
    return apply(gradient, square).data;
  };
  EXPECT_EQ(at({1, 2, 2, 1}), (std::vector<double>{0, 1, 0, 0}));
  EXPECT_EQ(at({1, 2, 2, 2}), (std::vector<double>{0, 1, 0, 0}));
  EXPECT_EQ(at({2, 1, 2, 2}), (std::vector<double>{1, 0, 0, 0}));
}

TEST(Pooling, NotANumber) {
  Array holes({1, 2, 4, 1});
  const double infinity = std::numeric_limits<double>::infinity();
  holes.data = {1, std::nan(""), -infinity, -infinity, 3, 3, -infinity, -infinity};
  const Array got = apply([](const auto& a) { return ts::max_pool2d(a, {.window = {2, 2}}); }, holes);
  EXPECT_TRUE(std::isnan(got.data[0]));
  EXPECT_EQ(got.data[1], -infinity);
}

}  // namespace
