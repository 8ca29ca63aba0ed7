// Calls as they are written in PyTorch and JAX: numbers for all spatial dims, conditions and indices that are numbers.
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/tessera.hpp>

namespace ts = tessera;

namespace {

using Floats = std::vector<float>;
Floats host(const auto& x) { return ts::to_host(ts::eval(x)); }
template <class F> std::string message(F&& f) {
  try {
    (void)f();
  } catch (const ts::error& e) {
    return e.what();
  }
  return "no error";
}

/// [1, 4, 4, 1] with the numbers 0 to 15.
ts::ShardedTensor<float, 4> image(const ts::Mesh& mesh, const ts::PartitionSpec& spec = {}) {
  Floats values;
  for (int k = 0; k < 16; ++k) values.push_back(static_cast<float>(k));
  return ts::shard(values, {1, 4, 4, 1}, mesh, spec);
}

// F.max_pool2d(x, 2) of torch.arange(16.).reshape(1, 1, 4, 4) is [[5, 7], [13, 15]], F.avg_pool2d [[2.5, 4.5], [10.5,
// 12.5]], and F.max_pool2d(x, 3, 2, 1) [[5, 7], [13, 15]].
TEST(ShortForms, PoolsOfANumber) {
  const ts::Mesh mesh({{"x", 2}});
  for (const ts::PartitionSpec& spec : {ts::PartitionSpec{}, ts::PartitionSpec{ts::none, "x"}}) {
    const auto x = image(mesh, spec);
    EXPECT_EQ(host(ts::max_pool2d(x, 2)), (Floats{5, 7, 13, 15}));
    EXPECT_EQ(host(ts::max_pool2d(x, 3, 2, 1)), (Floats{5, 7, 13, 15}));
    EXPECT_EQ(host(ts::max_pool2d(x, {2, 4})), (Floats{7, 15}));
    EXPECT_EQ(host(ts::max_pool2d(x, {.window = 2})), (Floats{5, 7, 13, 15}));
    EXPECT_EQ(host(ts::max_pool2d(x, {2, 1}, {2, 3})), (Floats{4, 7, 12, 15}));
    EXPECT_EQ(host(ts::max_pool2d(x, 2, 1, 0, 2)), (Floats{10, 11, 14, 15}));
    EXPECT_EQ(host(ts::avg_pool2d(x, 2)), (Floats{2.5, 4.5, 10.5, 12.5}));
    EXPECT_EQ(host(ts::avg_pool2d(x, 2, 2, 1)), (Floats{0, .75, .75, 3, 7.5, 4.5, 3, 6.75, 3.75}));
    EXPECT_EQ(host(ts::avg_pool2d(x, {.window = 2, .strides = 2, .padding = 1, .count_include_pad = false})),
              (Floats{0, 1.5, 3, 6, 7.5, 9, 12, 13.5, 15}));
    EXPECT_EQ(host(ts::lp_pool2d(x, 1, 2)), (Floats{10, 18, 42, 50}));
    EXPECT_EQ(host(ts::adaptive_avg_pool2d(x, 1)), Floats{7.5});
    EXPECT_EQ(host(ts::adaptive_max_pool2d(x, 2)), (Floats{5, 7, 13, 15}));
  }
  const auto line = ts::reshape(image(mesh), {1, 16, 1});
  EXPECT_EQ(host(ts::max_pool1d(line, 4)), (Floats{3, 7, 11, 15}));
  EXPECT_EQ(host(ts::avg_pool1d(line, 8)), (Floats{3.5, 11.5}));
  EXPECT_EQ(host(ts::lp_pool1d(line, 1, 8, 4)), (Floats{28, 60, 92}));
  const auto volume = ts::reshape(image(mesh), {1, 2, 2, 4, 1});
  EXPECT_EQ(host(ts::max_pool3d(volume, 2)), (Floats{13, 15}));
  EXPECT_EQ(host(ts::avg_pool3d(volume, 2)), (Floats{6.5, 8.5}));
  EXPECT_EQ(host(ts::adaptive_avg_pool3d(volume, 1)), Floats{7.5});
}

TEST(ShortForms, ConvolutionsOfANumber) {
  const ts::Mesh mesh({{"x", 2}});
  const auto x = image(mesh, {ts::none, "x"});
  const auto w = ts::ones<float>({2, 2, 1, 1}, mesh);
  // F.conv2d(x, torch.ones(1, 1, 2, 2), stride=2) is four times the average pool of windows 2 x 2.
  EXPECT_EQ(host(ts::conv2d(x, w, {.strides = 2})), (Floats{10, 18, 42, 50}));
  EXPECT_EQ(host(ts::conv2d(x, w, {.strides = 2, .padding = 1})), (Floats{0, 3, 3, 12, 30, 18, 12, 27, 15}));
  EXPECT_EQ(host(ts::conv2d(x, w, {.strides = 2, .dilation = 2})), (Floats{20}));
  EXPECT_EQ(host(ts::conv2d(x, w, {.strides = {2, 1}})), (Floats{10, 14, 18, 42, 46, 50}));
  EXPECT_EQ(host(ts::conv_transpose2d(ts::max_pool2d(x, 2), w, {.strides = 2})),
            (Floats{5, 5, 7, 7, 5, 5, 7, 7, 13, 13, 15, 15, 13, 13, 15, 15}));
  EXPECT_EQ(host(ts::unfold(x, {.window = 2, .strides = 2})),
            host(ts::unfold(x, {.window = {2, 2}, .strides = {2, 2}})));
  static constexpr ts::Conv<2> halved{.strides = 2, .padding = 1}, apart{.strides = {2, 2}, .padding = {1, 1}};
  static_assert(halved.strides == apart.strides);
  static_assert(std::is_same_v<ts::nn::Conv2d<halved>, ts::nn::Conv2d<apart>>);
  const auto layer = ts::nn::conv2d<halved>(ts::Key(1), 1, 3, 3, ts::nn::single(mesh));
  const auto same = ts::nn::conv2d<apart>(ts::Key(1), 1, 3, {3, 3}, ts::nn::single(mesh));
  EXPECT_EQ(host(layer.weight), host(same.weight));
}

TEST(ShortForms, ConditionsThatAreNumbers) {
  const ts::Mesh mesh({{"x", 2}});
  const auto x = ts::shard<float>({1, 2, 3}, mesh, {"x"}), y = ts::shard<float>({4, 5, 6}, mesh);
  const auto yes = ts::full({}, true, mesh), no = ts::full({}, false, mesh);
  static_assert(std::is_same_v<decltype(ts::full({}, true, mesh)), ts::ShardedTensor<bool, 0>>);
  EXPECT_EQ(host(ts::select(yes, x, y)), (Floats{1, 2, 3}));
  EXPECT_EQ(host(ts::where(no, x, y)), (Floats{4, 5, 6}));
  EXPECT_EQ(host(ts::where(ts::Scalar(3) < 2, x, y)), (Floats{4, 5, 6}));
  EXPECT_EQ(host(ts::where(ts::Scalar(0.25), x, 0)), (Floats{1, 2, 3}));
  EXPECT_EQ(host(ts::select(true, x, y)), (Floats{1, 2, 3}));
  EXPECT_EQ(host(ts::where(x > 1.5f, x, y)), (Floats{4, 2, 3}));
  EXPECT_EQ(ts::where(ts::Scalar(1) < 2, 0.5, 3).value(), 0.5);
  static constexpr auto f = ts::compile([](const auto& a, const auto& b, const ts::Scalar& step, const ts::Dim& n) {
    const auto rate = ts::select(step < 10, 0.5, step);
    return std::tuple(ts::where(step < 10, a, b), ts::where(ts::sum(a) > 100.f, a, b * 2.f), a * rate,
                      ts::select(n, a, 0.5f), ts::where(false, a, b));
  });
  for (const int step : {3, 20}) {
    const auto [by_step, by_sum, rated, by_size, constant] = f(x, y, ts::Scalar(step), ts::Dim(step - 3));
    EXPECT_EQ(host(by_step), step < 10 ? (Floats{1, 2, 3}) : (Floats{4, 5, 6}));
    EXPECT_EQ(host(by_sum), (Floats{8, 10, 12}));
    EXPECT_EQ(host(rated), step < 10 ? (Floats{.5, 1, 1.5}) : (Floats{20, 40, 60}));
    EXPECT_EQ(host(by_size), step == 3 ? (Floats{.5, .5, .5}) : (Floats{1, 2, 3}));
    EXPECT_EQ(host(constant), (Floats{4, 5, 6}));
  }
}

TEST(ShortForms, BranchesOfNumbers) {
  const ts::Mesh mesh({{"x", 2}});
  const auto x = ts::shard<float>({1, 2, 3}, mesh, {"x"});
  static constexpr auto f = ts::compile([](const auto& v) {
    const auto once = [](const auto& a) { return a; };
    const auto twice = [](const auto& a) { return a + a; };
    const auto thrice = [](const auto& a) { return a * 3.f; };
    const auto all = std::tuple(once, twice, thrice);
    return std::tuple(ts::switch_case(1, all, v), ts::switch_case(-4, all, v), ts::switch_case(7u, all, v),
                      ts::cond(true, twice, once, v), ts::cond(0, twice, once, v));
  });
  const auto [second, first, last, taken, not_taken] = f(x);
  EXPECT_EQ(host(second), (Floats{2, 4, 6}));
  EXPECT_EQ(host(first), (Floats{1, 2, 3}));
  EXPECT_EQ(host(last), (Floats{3, 6, 9}));
  EXPECT_EQ(host(taken), (Floats{2, 4, 6}));
  EXPECT_EQ(host(not_taken), (Floats{1, 2, 3}));
}

TEST(ShortForms, ListsOfIndices) {
  const ts::Mesh mesh({{"x", 2}});
  for (const ts::PartitionSpec& spec :
       {ts::PartitionSpec{}, ts::PartitionSpec{"x"}, ts::PartitionSpec{ts::none, "x"}}) {
    const auto x = ts::shard<float>({{1, 2}, {3, 4}, {5, 6}}, mesh);
    const auto sharded = ts::reshard(x, spec);
    EXPECT_EQ(host(ts::index_select<0>(sharded, {0, 2})), (Floats{1, 2, 5, 6}));
    EXPECT_EQ(host(ts::index_select<0>(sharded, {-1, 0, 0})), (Floats{5, 6, 1, 2, 1, 2}));
    EXPECT_EQ(host(ts::index_select<-1>(sharded, {1})), (Floats{2, 4, 6}));
    static constexpr auto gradient = ts::compile([](const auto& v) {
      return ts::grad([](const auto& a) {
        return ts::sum(ts::index_select<0>(a, {2, ts::extent<0>(a) - 1, 1}) * 2.f);
      })(v);
    });
    EXPECT_EQ(host(gradient(sharded)), (Floats{0, 0, 2, 2, 4, 4}));
    EXPECT_NE(message([&] {
                return ts::eval(ts::index_select<0>(sharded, {0, 3}));
              }).find("index 3 is outside of dim 0"),
              std::string::npos);
  }
}

TEST(ShortForms, FullWithoutAType) {
  const ts::Mesh mesh;
  static_assert(std::is_same_v<decltype(ts::full({2, 3}, 0.5f, mesh)), ts::ShardedTensor<float, 2>>);
  static_assert(std::is_same_v<decltype(ts::full({2, 3}, 0.5, mesh)), ts::ShardedTensor<float, 2>>);
  static_assert(std::is_same_v<decltype(ts::full({2}, 7, mesh)), ts::ShardedTensor<std::int32_t, 1>>);
  static_assert(std::is_same_v<decltype(ts::full({}, 2.5, mesh)), ts::ShardedTensor<float, 0>>);
  static_assert(std::is_same_v<decltype(ts::full<float>({2}, 7, mesh)), ts::ShardedTensor<float, 1>>);
  static_assert(std::is_same_v<decltype(ts::full<double>({}, 7, mesh)), ts::ShardedTensor<double, 0>>);
  EXPECT_EQ(host(ts::full({2, 2}, 0.5, mesh)), (Floats{.5, .5, .5, .5}));
  EXPECT_EQ(ts::item(ts::full({}, 2.5, mesh)), 2.5f);
}

static_assert(ts::Dim(2) == 2 && ts::Dim(2) != 3 && 1 < ts::Dim(2) && ts::Dim(2) <= ts::Dim(2) && ts::Dim(3) > 2 &&
              4 >= ts::Dim(4));
TEST(ShortForms, SizesThatAreKnownCompare) {
  const ts::Mesh mesh;
  static constexpr auto f = ts::compile([](const auto& x, const ts::Dim& n) {
    const auto row = ts::unsqueeze<0>(x);
    const ts::Dim one = ts::extent<0>(row), size = ts::extent<0>(x);
    auto y = one == 1 ? x * 2.f : x;
    if (size == size && !(size < size) && n <= n && !(n != n)) y = y + 1.f;
    for (ts::Dim i = 0; i < 3; i = i + 1) y = y + 10.f;
    return y;
  });
  EXPECT_EQ(host(f(ts::shard<float>({1, 2}, mesh), ts::Dim(5))), (Floats{33, 35}));
}

TEST(ShortForms, ConvolutionsWithABias) {
  const ts::Mesh mesh({{"x", 2}});
  const auto x = image(mesh, {ts::none, "x"});
  const auto w = ts::ones({2, 2, 1, 2}, mesh);
  const auto bias = ts::shard<float>({100, 200}, mesh);
  EXPECT_EQ(host(ts::conv2d(x, w, bias, {.strides = 2})), (Floats{110, 210, 118, 218, 142, 242, 150, 250}));
  EXPECT_EQ(host(ts::conv_transpose2d(ts::max_pool2d(x, 4), ts::ones({1, 1, 1, 2}, mesh), bias)), (Floats{115, 215}));
  EXPECT_EQ(host(ts::conv1d(ts::ones({1, 3, 1}, mesh), ts::ones({2, 1, 2}, mesh), bias)), (Floats{102, 202, 102, 202}));
  EXPECT_EQ(host(ts::conv3d(ts::ones({1, 2, 2, 2, 1}, mesh), ts::ones({2, 2, 2, 1, 2}, mesh), bias)),
            (Floats{108, 208}));
  const std::string text = message([&] { return ts::eval(ts::conv2d(x, w, ts::ones({3}, mesh))); });
  EXPECT_NE(text.find("f32[1,3,3,2] x f32[3] in conv2d at short_forms_test.cpp"), std::string::npos) << text;
}

TEST(ShortForms, Flatten) {
  const ts::Mesh mesh({{"x", 2}});
  const auto x = image(mesh, {ts::none, "x"});
  EXPECT_EQ(ts::shape(ts::eval(ts::flatten(x))), (ts::Shape{16}));
  EXPECT_EQ(ts::shape(ts::eval(ts::flatten<1>(x))), (ts::Shape{1, 16}));
  EXPECT_EQ(ts::shape(ts::eval(ts::flatten<1, 2>(x))), (ts::Shape{1, 16, 1}));
  EXPECT_EQ(ts::shape(ts::eval(ts::flatten(ts::flatten(x)))), (ts::Shape{16}));
  EXPECT_EQ(host(ts::flatten<1>(x)), host(x));
}

// torch.zeros(3, 4).scatter(1, torch.tensor([[0, 2], [1, 1], [3, 0]]), 7)
TEST(ShortForms, ScatterOfANumber) {
  const ts::Mesh mesh({{"x", 2}});
  const auto x = ts::zeros({3, 4}, mesh, {"x"});
  const auto indices = ts::shard<std::int32_t>({{0, 2}, {1, 1}, {3, 0}}, mesh);
  const Floats want{7, 0, 7, 0, 0, 7, 0, 0, 7, 0, 0, 7};
  EXPECT_EQ(host(ts::scatter<1>(x, indices, 7)), want);
  EXPECT_EQ(host(ts::scatter<1>(x, indices, 7.0)), want);
  EXPECT_EQ(host(ts::cast<float>(ts::scatter<1>(ts::cast<std::int32_t>(x), indices, 7))), want);
}

// x[[0, 2], [1, 0]] of [[0, 1, 2], [3, 4, 5], [6, 7, 8]] is [1, 6].
TEST(ShortForms, IndicesWithoutATuple) {
  const ts::Mesh mesh({{"x", 2}});
  const auto x = ts::shard<float>({{0, 1, 2}, {3, 4, 5}, {6, 7, 8}}, mesh);
  const auto rows = ts::shard<std::int32_t>({0, 2}, mesh), columns = ts::shard<std::int32_t>({1, 0}, mesh);
  EXPECT_EQ(host(ts::index(x, rows, columns)), (Floats{1, 6}));
  EXPECT_EQ(host(ts::index(x, rows)), (Floats{0, 1, 2, 6, 7, 8}));
}

TEST(ShortForms, WindowsAndSizesOfImages) {
  const ts::Mesh mesh({{"x", 2}});
  const auto x = image(mesh, {ts::none, "x"});
  EXPECT_EQ(host(ts::unfold(x, 2, 1, 0, 2)), host(ts::unfold(x, {.window = 2, .strides = 2})));
  EXPECT_EQ(host(ts::unfold(x, 3, 1, 1)), host(ts::unfold(x, {.window = 3, .padding = 1})));
  // F.interpolate(x, size=(2, 8)), nearest, of each row and column in turn
  EXPECT_EQ(host(ts::interpolate(x, {2, 8})), host(ts::interpolate<2>(ts::interpolate<1>(x, 2), 8)));
  const auto line = ts::shard<float>({{{1}, {2}}}, mesh);
  EXPECT_EQ(host(ts::interpolate(line, {4})), host(ts::interpolate<1>(line, 4)));
}

TEST(ShortForms, RandomNumbersWithoutAType) {
  const ts::Mesh mesh;
  EXPECT_EQ(host(ts::normal(ts::Key(1), {2, 3}, mesh)), host(ts::normal<float>(ts::Key(1), {2, 3}, mesh)));
  EXPECT_EQ(host(ts::uniform(ts::Key(1), {2, 3}, mesh)), host(ts::uniform<float>(ts::Key(1), {2, 3}, mesh)));
  static constexpr auto f = ts::compile([](const auto& x, const ts::Scalar& s, const ts::Dim& n) {
    return std::tuple(ts::full({2}, 0.5, x), ts::full({n}, 3, x), ts::full({}, true, x), ts::full({2}, s, x),
                      ts::full({1}, n, x));
  });
  const auto [halves, threes, yes, scalars, sizes] = f(ts::ones({2}, mesh), ts::Scalar(1.5), ts::Dim(3));
  static_assert(std::is_same_v<decltype(threes), const ts::ShardedTensor<std::int32_t, 1>>);
  static_assert(std::is_same_v<decltype(yes), const ts::ShardedTensor<bool, 0>>);
  static_assert(std::is_same_v<decltype(sizes), const ts::ShardedTensor<std::int64_t, 1>>);
  EXPECT_EQ(host(halves), (Floats{.5, .5}));
  EXPECT_EQ(ts::to_host(threes), (std::vector<std::int32_t>{3, 3, 3}));
  EXPECT_EQ(host(scalars), (Floats{1.5, 1.5}));
  EXPECT_EQ(ts::to_host(sizes), std::vector<std::int64_t>{3});
}

struct SeveralForms {
  constexpr auto operator()(const auto& x, const auto& step) const {
    const auto first = [](const auto& v) { return v[0][0]; };
    const auto last = [](const auto& v) { return v[1][-1]; };
    const auto chosen = ts::where(step < 10, x, x * 2.f);
    return ts::index_select<0>(ts::flatten(chosen), {-1, 0}) + ts::switch_case(1, std::tuple(first, last), chosen);
  }
};
// On each of two devices, and for each of two examples, as for the whole of two rows.
TEST(ShortForms, InAShardMapAndAVmap) {
  const ts::Mesh mesh({{"x", 2}});
  const auto x = ts::shard<float>({{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {10, 11, 12}}, mesh, {"x"});
  static constexpr auto local = ts::compile(
      [](const auto& v, const ts::Scalar& step) { return ts::shard_map<"{x,-} -> {x}">(SeveralForms{})(v, step); });
  static constexpr auto mapped = ts::compile([](const auto& v, const ts::Scalar& step) {
    const auto each = ts::vmap([&](const auto& own) { return SeveralForms{}(own, step); });
    return ts::flatten(each(ts::reshape(v, {2, 2, 3})));
  });
  for (const int step : {1, 20}) {
    const float times = step < 10 ? 1.f : 2.f;
    const Floats want{12 * times, 7 * times, 24 * times, 19 * times};
    EXPECT_EQ(host(local(x, ts::Scalar(step))), want);
    EXPECT_EQ(host(mapped(x, ts::Scalar(step))), want);
  }
}

}  // namespace
