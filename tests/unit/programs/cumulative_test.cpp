#include <cstdint>
#include <string_view>

#include "check.hpp"

namespace ts = tessera;
using namespace programs;

namespace {

/// The rows of a matrix reversed, and a sum of whole numbers.
struct ReversedRows {
  static constexpr std::string_view name = "reversed";
  static constexpr std::string_view signature = "(n)->(n),()";
  template <class T>
  static void run(ts::CallArray<const T, 1> x, ts::CallArray<T, 1> reversed, ts::CallArray<T, 0> count) {
    count() = static_cast<T>(x.extent(0));
    for (std::int64_t i = 0; i < x.extent(0); ++i) reversed(i) = x(x.extent(0) - 1 - i);
  }
};

}  // namespace

TEST(Programs, CumulativeSums) {
  constexpr auto f = [](const auto& floats, const auto& integers) {
    const auto& [x, y, w] = floats;  // [a, b, c], [m], [c, a]
    const auto middle = ts::cumsum<1>(x), last = ts::cumsum<-1, ts::CumulativeOptions{.reverse = true}>(x * 0.5);
    const auto first = ts::cumsum<0, ts::CumulativeOptions{.exclusive = true}>(ts::transpose<2, 0, 1>(x));
    const auto both = ts::cumsum<2, ts::CumulativeOptions{.reverse = true, .exclusive = true}>(middle);
    const auto vector = ts::cumsum<0>(y);
    const auto partial = ts::cumsum<0>(ts::matmul(x, w)) * 0.5;
    const auto products = ts::cumprod<1>(x * 0.25 + 1.0),
               zeros = ts::cumprod<0, ts::CumulativeOptions{.exclusive = true}>(ts::relu(x));
    const auto highest = ts::cummax<1>(x);
    const auto lowest = ts::cummin<0, ts::CumulativeOptions{.reverse = true}>(y * 0.5);
    return std::tuple(energy(middle, last, first, both, vector, partial, products, zeros, highest, lowest), highest,
                      lowest, ts::cummin<0>(integers), ts::cummax<1, ts::CumulativeOptions{.reverse = true}>(integers),
                      middle, last, first, both, vector, partial, ts::cumsum<1>(integers),
                      ts::cumsum<0, ts::CumulativeOptions{.reverse = true}>(integers), products, zeros);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>, Tensor<1>, Tensor<2>>, Tensor<2, std::int8_t>>(
      with_gradient(f),
      {.arguments = {values("abc"), values("m"), values("ca"), values<std::int8_t>("ij", -3, 3)}, .may_be_empty = true},
      71);
}

// Rows that are gathered as a whole: their elements share an index.
TEST(Programs, GatheredRows) {
  constexpr auto f = [](const auto& floats, const auto& rows, const auto& columns, const auto& tables) {
    const auto& [x, y] = floats;  // [b, n, f], [m, n, f]
    const auto taken = ts::gather<1>(x, ts::unsqueeze<2>(rows)), across = ts::gather<2>(x, ts::unsqueeze<1>(columns)),
               same = ts::gather<0>(y, ts::unsqueeze<1>(ts::unsqueeze<1>(tables)));
    return std::tuple(energy(taken, across, same), taken, across, same);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>, Tensor<3>>, Tensor<2, std::int32_t>, Tensor<2, std::int32_t>,
                             Tensor<1, std::int64_t>>(
      with_gradient(f),
      {.arguments = {values("bnf"), values("mnf"), indices("br", 'n'), indices("bs", 'f'),
                     indices<std::int64_t>("k", 'm')},
       .extents = {{'f', {1, 3, 64, 70}}, {'n', {1, 2, 5}}}},
      66);
}

// Enough lines to be divided among threads, and to be scanned several at a time.
TEST(Programs, LongCumulativeSums) {
  constexpr auto f = [](const auto& x) { return std::tuple(ts::cumsum<0>(x), ts::cumsum<1>(ts::transpose<1, 0>(x))); };
  expect_equal_on_all_meshes<Tensor<2>>(
      f, {.arguments = {values("ij")}, .cases = 6, .extents = {{'i', {999, 1500}}, {'j', {33, 48, 90}}}}, 72);
}

TEST(Programs, Sorts) {
  constexpr auto f = [](const auto& floats, const auto& integers, const auto& at, const auto& k) {
    const auto& [x, y, w] = floats;  // [a, b, c], [m], [c, a]
    const auto middle = ts::sort<1>(x), first = ts::sort<0, ts::Order::descending>(ts::transpose<2, 0, 1>(x));
    const auto vector = ts::sort<0>(y);
    const auto [best, places] = ts::topk<-1>(x, k);
    const auto [one, place] = ts::topk<0, std::int64_t>(y, 1);
    const auto taken = ts::gather<1>(ts::matmul(x, w), at);  // [a, n, a]
    const auto added = ts::scatter_add<1>(ts::matmul(x * 0.5, w), at, taken);
    const auto set = ts::scatter<1>(ts::matmul(x, w), at, taken * 2.0),
               products = ts::scatter_reduce<1, ts::Reduction::product>(ts::matmul(x, w), at, taken + 0.5);
    return std::tuple(energy(middle, first, vector, best, one, taken, added, set, products), set, products, middle,
                      first, vector, best, places, one, place, taken, added, ts::argsort<0>(x),
                      ts::argsort<1, ts::Order::descending, std::int64_t>(integers), ts::sort<0>(integers));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>, Tensor<1>, Tensor<2>>, Tensor<2, std::int8_t>,
                             Tensor<3, std::int32_t>, ts::Dim>(
      with_gradient(f),
      {.arguments = {values("abc"), values("m"), values("ca"), values<std::int8_t>("ij", -2, 2), indices("ana", 'b'),
                     size('k')},
       .extents = {{'k', {0, 1, 2, 3}}, {'c', {3, 4, 6, 9}}}},
      73);
}

TEST(Programs, Convolutions) {
  constexpr auto f = [](const auto& floats) {
    const auto& [x, w, v, u] = floats;  // [n, h, w, c], [r, s, c, o], [r, s, c / 2, o], [r, c, o]
    const auto plain = ts::conv2d(x, w);
    const auto wide = ts::conv2d(x * 0.5, w, {.strides = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}});
    const auto grouped = ts::conv2d(x, v, {.strides = {1, 3}, .groups = 2});
    const auto line = ts::conv1d(ts::sum<1>(x), u, {.strides = {2}, .padding = {1}});
    const auto across = ts::conv_transpose2d(x, w, {.strides = {2, 3}, .output_padding = {1, 0}, .dilation = {1, 2}});
    const auto apart = ts::conv_transpose2d(x, w, {.strides = {1, 2}, .padding = {1, 1}, .groups = 2});
    const auto volume = ts::conv3d(ts::stack<1>(x, x * 0.5, x), ts::stack<0>(w, w * -0.5),
                                   {.strides = {1, 2, 1}, .padding = {1, 0, 1}, .dilation = {2, 1, 1}});
    const auto same = ts::conv2d(x, w, {.strides = {2, 1}, .same = true});
    const auto uneven = ts::conv2d(x, w, {.padding = {2, 0}, .padding_after = {0, 1}});
    return std::tuple(energy(plain, wide, grouped, line, across, apart, volume, same, uneven), plain, wide, grouped,
                      line, across, apart, volume, same, uneven);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<4>, Tensor<4>, Tensor<4>, Tensor<3>>>(
      with_gradient(f),
      {.arguments = {values("nhwc"), values("rsco"), values("rsdo"), values("rco")},
       .cases = 60,
       .extents = {{'n', {1, 2, 3}},
                   {'h', {3, 4, 7}},
                   {'w', {3, 5, 8}},
                   {'r', {1, 2, 3}},
                   {'s', {1, 2, 3}},
                   {'g', {2}},
                   {'d', {1, 2, 3}},
                   {'o', {2, 4, 6}}},
       .products = {{'c', "gd"}}},
      74);
}

// Counts of smaller elements do not depend on the order of the vector.
TEST(Programs, SearchSorted) {
  constexpr auto f = [](const auto& edges, const auto& x) {
    return std::tuple(ts::searchsorted(edges, x), ts::searchsorted<ts::Side::right>(edges, ts::sum<0>(x)));
  };
  expect_equal_on_all_meshes<Tensor<1>, Tensor<2>>(
      f,
      {.arguments = {values("e"), values("mn")},
       .cases = 60,
       .may_be_empty = true,
       .extents = {{'e', {0, 1, 3, 8, 13}}, {'m', {1, 2, 5}}, {'n', {1, 4, 6}}}},
      78);
}

// A function of the user between operations that are split in other ways.
TEST(Programs, CustomCalls) {
  constexpr auto f = [](const auto& x) {
    const auto [reversed, count] = ts::custom_call<ReversedRows>(x * 0.5);
    const auto across = std::get<0>(ts::custom_call<ReversedRows>(ts::transpose<1, 0>(reversed)));
    return std::tuple(reversed, count, across + ts::transpose<1, 0>(x), ts::sum<0>(across));
  };
  expect_equal_on_all_meshes<Tensor<2>>(f, {.arguments = {values("mn")}, .cases = 60, .may_be_empty = true}, 79);
}

TEST(Programs, Pools) {
  constexpr auto f = [](const auto& floats) {
    const auto& [x] = floats;  // [n, h, w, c]
    const auto most = ts::max_pool2d(x, {.window = {2, 3}, .strides = {2, 1}, .padding = {1, 1}});
    const auto mean = ts::avg_pool2d(x * 0.5, {.window = {3, 2}, .padding = {1, 0}, .count_include_pad = false});
    const auto whole = ts::avg_pool2d(x, {.window = {2, 2}, .strides = {1, 2}, .padding = {1, 1}});
    const auto adapted = ts::adaptive_avg_pool2d(x, {2, 1});
    const auto line = ts::max_pool1d(ts::sum<1>(x), {.window = {2}});
    const auto largest = ts::adaptive_max_pool2d(x, {2, 3});
    return std::tuple(energy(most, mean, whole, adapted, line, largest), most, mean, whole, adapted, line, largest);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<4>>>(
      with_gradient(f),
      {.arguments = {values("nhwc")},
       .cases = 60,
       .extents = {{'n', {1, 2, 3}}, {'h', {3, 4, 7}}, {'w', {3, 5, 8}}, {'c', {0, 1, 4}}}},
      76);
}

TEST(Programs, Images) {
  constexpr auto f = [](const auto& floats) {
    const auto& [x, grid] = floats;  // [n, h, w, c], [n, r, s, 2]
    const auto wide = ts::pad<1, ts::PadMode::reflect>(ts::pad<2, ts::PadMode::replicate>(x, 1, 2), 2, 1);
    const auto round = ts::pad<2, ts::PadMode::circular>(ts::pad<1, ts::PadMode::symmetric>(x, 1, 2), 3, 1);
    const auto large =
        ts::interpolate<2>(ts::interpolate<1, ts::Interpolate{.mode = ts::InterpolateMode::cubic}>(x, 7), 5);
    const auto near = ts::interpolate<1, ts::Interpolate{.mode = ts::InterpolateMode::nearest}>(x, 4);
    constexpr ts::Unfold windows{.window = {2, 3}, .strides = {2, 1}, .padding = {1, 1}};
    const auto rows = ts::unfold(x, windows);
    const auto shuffled = ts::pixel_shuffle(ts::concat<3>(x, x, x, x), 2);
    const auto sampled = ts::grid_sample(x, grid);
    return std::tuple(energy(wide, round, large, near, rows, shuffled, sampled), wide, round, large, near, rows,
                      shuffled, sampled);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<4>, Tensor<4>>>(
      with_gradient(f),
      {.arguments = {values("nhwc"), values("nrst", -1.5, 1.5)},
       .cases = 40,
       .extents = {{'n', {1, 2, 3}},
                   {'h', {3, 4, 7}},
                   {'w', {3, 5, 8}},
                   {'c', {0, 1, 4}},
                   {'r', {1, 2, 5}},
                   {'s', {1, 3}},
                   {'t', {2}}}},
      79);
}

TEST(Programs, NormsOverABatch) {
  constexpr auto f = [](const auto& floats) {
    const auto& [x, gain, bias] = floats;  // [n, h, c], [c], [c]
    const auto batch = ts::batch_norm(x, gain, bias);
    const auto instance = ts::instance_norm(x * 2.0, gain, bias);
    return std::tuple(energy(batch, instance), batch, instance);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>, Tensor<1>, Tensor<1>>>(
      with_gradient(f),
      {.arguments = {values("nhc"), values("c"), values("c")},
       .cases = 60,
       .extents = {{'n', {2, 3, 5}}, {'h', {3, 4, 7}}, {'c', {1, 4, 6}}}},
      77);
}

TEST(ProgramsBf16, CumulativeSortsAndConvolutions) {
  constexpr auto f = [](const auto& floats) {
    const auto& [x, w] = floats;  // bf16 [n, h, c], [r, c, o]
    const auto sums = ts::cumsum<1>(x), first = ts::sort<0, ts::Order::descending>(x);
    const auto line = ts::conv1d(x, w, {.strides = {2}, .padding = {1}});
    const auto across = ts::conv_transpose1d(x, w, {.strides = {2}, .padding = {1}});
    const auto all = [](const auto&... y) { return energy(ts::cast<float>(y)...); };
    return std::tuple(all(sums, first, line, across), sums, first, line, across, ts::argsort<2>(x));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3, ts::bf16>, Tensor<3, ts::bf16>>>(
      with_gradient(f),
      {.arguments = {values<ts::bf16>("nhc"), values<ts::bf16>("rco")},
       .cases = 60,
       .tolerance = 0x1p-7,
       .extents = {{'h', {3, 4, 7}}, {'r', {1, 2, 3}}}},
      75);
}
