#include <cmath>
#include <limits>

#include "../../support/untyped.hpp"
#include "../base/expect_error.hpp"

#include <tessera/ops/indexing/gather.hpp>
#include <tessera/ops/indexing/scatter.hpp>
#include <tessera/ops/indexing/take_along_dim.hpp>
#include <tessera/ops/sorting/searchsorted.hpp>
#include <tessera/ops/sorting/sort.hpp>
#include <tessera/partition/propagation/shapes.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

const Array x = random_array({3, 5}, 1);
const Array places = [] {
  Array made({3, 4});
  for (std::size_t i = 0; i < made.data.size(); ++i) made.data[i] = static_cast<double>(i * i % 5);
  return made;
}();
using Int2 = ts::ShardedTensor<std::int32_t, 2>;

template <class... Args, class F> std::vector<Array> apply(F, const std::vector<Array>& arguments) {
  return run(trace<F, Args...>().view(), arguments);
}

TEST(Sort, Values) {
  const auto f = [](const auto& v) {
    return std::tuple(ts::sort<-1>(v), ts::sort<0, ts::Order::descending>(v), ts::argsort<1>(v));
  };
  const std::vector<Array> out = apply<Float<2>>(f, {x});
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 5; ++j) {
      if (j > 0) EXPECT_LE(out[0].at({i, j - 1}), out[0].at({i, j}));
      if (i > 0) EXPECT_GE(out[1].at({i - 1, j}), out[1].at({i, j}));
      EXPECT_EQ(out[0].at({i, j}), x.at({i, static_cast<std::int64_t>(out[2].at({i, j}))}));
    }
}

TEST(Sort, TheLastDimIsTheDefault) {
  const auto f = [](const auto& v) {
    const auto [values, indices] = ts::topk(v, 2);
    return std::tuple(ts::sort(v), ts::argsort(v), values, indices);
  };
  const auto g = [](const auto& v) {
    const auto [values, indices] = ts::topk<1>(v, 2);
    return std::tuple(ts::sort<1>(v), ts::argsort<1>(v), values, indices);
  };
  const std::vector<Array> out = apply<Float<2>>(f, {x}), want = apply<Float<2>>(g, {x});
  for (std::size_t k = 0; k < 4; ++k) EXPECT_EQ(out[k].data, want[k].data) << k;
}

TEST(Sort, TopK) {
  const auto f = [](const auto& v, const ts::Dim& k) {
    const auto [values, indices] = ts::topk<1>(v, k);
    const auto [one, place] = ts::topk<0, std::int64_t>(v, 1);
    return std::tuple(values, indices, one * v, ts::cast<float>(place));
  };
  const std::vector<Array> out = apply<Float<2>, ts::Dim>(f, {x, Array::number(2)});
  ASSERT_EQ(out[0].shape, (Shape{3, 2}));
  ASSERT_EQ(out[2].shape, (Shape{3, 5}));  // one of a dim broadcasts
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 5; ++j) {
      if (j != out[1].at({i, 0})) EXPECT_GE(out[0].at({i, 0}), x.at({i, j}));
      if (j != out[1].at({i, 0}) && j != out[1].at({i, 1})) EXPECT_GE(out[0].at({i, 1}), x.at({i, j}));
    }
}

TEST(Sort, Gradients) {
  check_gradient<Float<2>>([](const auto& v) { return ts::sort<0>(v) * ts::sort<1, ts::Order::descending>(v); }, {x});
  check_gradient<Float<2>>([](const auto& v) { return ts::topk<-1>(v * v, 3).values; }, {x});
  // The gradient of an element that is taken twice is the sum of both.
  const auto taken = [](const auto& v, const auto& i) { return ts::gather<1>(v * v, i); };
  check_gradient<Float<2>, Int2>(taken, {x, places});
}

TEST(TakeAlongDim, BroadcastsBothOperands) {
  const Array row = random_array({1, 5}, 5), column({3, 1}, {4, 0, 2}), one({1, 2}, {1, 3});
  const auto f = [](const auto& v, const auto& v_row, const auto& i, const auto& i_column, const auto& i_row) {
    const auto singleton = [](const auto& y) { return ts::sum<0>(y, ts::keepdims); };
    return std::tuple(ts::take_along_dim<1>(v, i), ts::take_along_dim<-1>(singleton(v_row), i),
                      ts::take_along_dim<1>(v, ts::sum<1>(i_column, ts::keepdims)),
                      ts::take_along_dim<1>(v, singleton(i_row)), ts::take_along_dim(v, i));
  };
  const auto got = apply<Float<2>, Float<2>, Int2, Int2, Int2>(f, {x, row, places, column, one});
  const auto at = [](const Array& indices, std::int64_t i, std::int64_t k) {
    return static_cast<std::int64_t>(indices.at({i, k}));
  };
  ASSERT_EQ(got[0].shape, (Shape{3, 4}));
  ASSERT_EQ(got[1].shape, (Shape{3, 4}));
  for_each_index(got[0].shape, [&](const Shape& i) {
    EXPECT_EQ(got[0].at(i), x.at({i[0], at(places, i[0], i[1])}));
    EXPECT_EQ(got[1].at(i), row.at({0, at(places, i[0], i[1])}));
  });
  ASSERT_EQ(got[2].shape, (Shape{3, 1}));
  ASSERT_EQ(got[3].shape, (Shape{3, 2}));
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(got[2].at({i, 0}), x.at({i, at(column, i, 0)}));
    for (std::int64_t k = 0; k < 2; ++k) EXPECT_EQ(got[3].at({i, k}), x.at({i, at(one, 0, k)}));
  }
  ASSERT_EQ(got[4].shape, (Shape{12}));
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(got[4].data[i], x.data[static_cast<std::size_t>(places.data[i])]);
  const auto smooth = [](const auto& v, const auto& i) {
    return ts::take_along_dim<1>(ts::sum<0>(v * v, ts::keepdims), i) * ts::take_along_dim<1>(v, i);
  };
  check_gradient<Float<2>, Int2>(smooth, {x, places});
  check_gradient<Float<2>, Int2>([](const auto& v, const auto& i) { return ts::take_along_dim(v * v, i); },
                                 {x, places});
}

TEST(ScatterAdd, Values) {
  const Array source = random_array({3, 4}, 2);
  const auto f = [](const auto& v, const auto& i, const auto& s) { return ts::scatter_add<1>(v, i, s); };
  Array want = x;
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t k = 0; k < 4; ++k)
      want.at({i, static_cast<std::int64_t>(places.at({i, k}))}) += source.at({i, k});
  const Array got = apply<Float<2>, Int2, Float<2>>(f, {x, places, source}).at(0);
  ASSERT_EQ(got.shape, want.shape);
  for (std::size_t i = 0; i < got.data.size(); ++i) EXPECT_NEAR(got.data[i], want.data[i], 1e-15) << i;
  // Negative dims count from the end; elements that are gathered and added back count twice.
  const auto twice = [](const auto& v, const auto& i) { return ts::scatter_add<-1>(v, i, ts::gather<-1>(v, i)); };
  Array once({3, 3});
  for (std::size_t i = 0; i < once.data.size(); ++i) once.data[i] = static_cast<double>(i % 3 + 1);  // each index once
  const Array doubled = apply<Float<2>, Int2>(twice, {x, once}).at(0);
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 5; ++j)
      EXPECT_EQ(doubled.at({i, j}), (j >= 1 && j <= 3 ? 2 : 1) * x.at({i, j})) << i << ' ' << j;
}

TEST(ScatterAdd, Gradients) {
  const auto f = [](const auto& v, const auto& i, const auto& s) { return ts::scatter_add<1>(v * v, i, s * s); };
  check_gradient<Float<2>, Int2, Float<2>>(f, {x, places, random_array({3, 4}, 2)});
}

TEST(ScatterAdd, Mistakes) {
  const auto f = [](const auto& v, const auto& i, const auto& s) { return ts::scatter_add<1>(v, i, s); };
  const Program program = trace<decltype(f), Float<2>, Int2, Float<2>>();
  const auto infer = [&](std::vector<ts::Shape> arguments) {
    return [&program, arguments] { ts::infer_shapes(program.view(), arguments.data(), nullptr); };
  };
  EXPECT_NO_THROW(infer({{3, 5}, {3, 4}, {3, 4}})());
  const std::string rule =
      "[scatter_add] source and indices have equal shapes, and differ from the first operand only in the dim";
  tessera_test::expect_error(ts::errc::shape_mismatch, infer({{3, 5}, {3, 4}, {3, 3}}), rule, "sort_test.cpp:");
  tessera_test::expect_error(ts::errc::shape_mismatch, infer({{3, 5}, {2, 4}, {2, 4}}), rule, "sort_test.cpp:");
}

// Element by element in the order of the indices, which name some places twice and some not at all.
TEST(Scatter, Values) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  using ts::Reduction;
  const auto f = [](const auto& v, const auto& i, const auto& s) {
    return std::tuple(ts::scatter<1>(v, i, s), ts::scatter_reduce<1, Reduction::product>(v, i, s),
                      ts::scatter_reduce<1, Reduction::max>(v, i, s), ts::scatter_reduce<-1, Reduction::min>(v, i, s),
                      ts::scatter_reduce<1, Reduction::sum, false>(v, i, s),
                      ts::scatter_reduce<1, Reduction::product, false>(v, i, s),
                      ts::scatter_reduce<1, Reduction::max, false>(v, i, s),
                      ts::scatter_reduce<1, Reduction::min, false>(v, i, s));
  };
  Array source = random_array({3, 4}, 2), start = x;
  source.at({1, 2}) = nan;
  start.at({2, 1}) = nan;
  const std::vector<Array> got = apply<Float<2>, Int2, Float<2>>(f, {start, places, source});
  for (std::size_t rule = 0; rule < 8; ++rule) {
    SCOPED_TRACE(rule);
    Array want = start;
    std::vector<bool> reached(want.data.size());
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t k = 0; k < 4; ++k) {
        const auto place = static_cast<std::int64_t>(places.at({i, k}));
        double& own = want.at({i, place});
        const double next = source.at({i, k});
        const bool first = rule >= 4 && !reached[static_cast<std::size_t>(i * 5 + place)];
        reached[static_cast<std::size_t>(i * 5 + place)] = true;
        if (rule == 0 || first)
          own = next;
        else if (rule == 4)
          own += next;
        else if (rule == 1 || rule == 5)
          own *= next;
        else if (std::isnan(next) || std::isnan(own))
          own = nan;
        else
          own = rule == 2 || rule == 6 ? std::max(own, next) : std::min(own, next);
      }
    for (std::size_t at = 0; at < want.data.size(); ++at)
      if (std::isnan(want.data[at]))
        EXPECT_TRUE(std::isnan(got[rule].data[at])) << at;
      else
        EXPECT_NEAR(got[rule].data[at], want.data[at], 1e-15) << at;
  }
}

TEST(Scatter, Gradients) {
  using ts::Reduction;
  const Array source = random_array({3, 4}, 2);
  check_gradient<Float<2>, Int2, Float<2>>(
      [](const auto& v, const auto& i, const auto& s) { return ts::scatter<1>(v * v, i, s * s); }, {x, places, source});
  check_gradient<Float<2>, Int2, Float<2>>(
      [](const auto& v, const auto& i, const auto& s) {
        return ts::scatter_reduce<1, Reduction::product>(v, i, s) + ts::scatter_reduce<1, Reduction::max>(v * v, i, s) +
               ts::scatter_reduce<1, Reduction::min, false>(v, i, s * s);
      },
      {x, places, source});
  // One zero at an index, two zeros, a zero of x: products of the others, without second derivatives.
  Array with_zeros = source, start = x;
  with_zeros.at({0, 0}) = with_zeros.at({1, 1}) = with_zeros.at({1, 3}) = 0;
  start.at({2, 0}) = start.at({1, 4}) = 0;
  check_gradient<Float<2>, Int2, Float<2>>(
      [](const auto& v, const auto& i, const auto& s) { return ts::scatter_reduce<1, Reduction::product>(v, i, s); },
      {start, places, with_zeros}, first_order);
}

// The numbers of torch.scatter_reduce: equal elements, of x or of the source, share the cotangent of an extreme.
TEST(Scatter, TiesShareTheGradient) {
  const auto f = [](const auto& v, const auto& i, const auto& s) {
    const auto [dv, ds] = ts::grad([](const auto& of, const auto& at) {
      const auto& [a, b] = of;
      return ts::sum(ts::scatter_reduce<0, ts::Reduction::max>(a, at, b));
    })(std::tuple(v, s), i);
    return std::tuple(dv, ds);
  };
  const auto out = apply<Float<1>, ts::ShardedTensor<std::int32_t, 1>, Float<1>>(
      f, {Array({3}, {2, 1, 5}), Array({4}, {0, 0, 0, 1}), Array({4}, {2, 2, 1, 3})});
  EXPECT_EQ(out[0].data, (std::vector<double>{1. / 3, 0, 1}));
  EXPECT_EQ(out[1].data, (std::vector<double>{1. / 3, 1. / 3, 0, 1}));
}

TEST(Sort, Mistakes) {
  const auto infer = [](const Program& program, std::vector<ts::Shape> arguments) {
    return [&program, arguments] {
      const std::vector<ts::HostNumber> numbers{0, 6};
      ts::infer_shapes(program.view(), arguments.data(), numbers.data());
    };
  };
  const auto best = [](const auto& v, const ts::Dim& k) { return ts::topk<1>(v, k).values; };
  const Program program = trace<decltype(best), Float<2>, ts::Dim>();
  EXPECT_NO_THROW(infer(program, {{3, 6}, {}})());
  tessera_test::expect_error(ts::errc::shape_mismatch, infer(program, {{3, 5}, {}}),
                             "[topk] k is not between 0 and the extent of the dim: f32[3,5], 6 at ", "sort_test.cpp:");
  const auto taken = [](const auto& v, const auto& i) { return ts::gather<1>(v, i); };
  const Program other = trace<decltype(taken), Float<2>, ts::ShardedTensor<std::int32_t, 2>>();
  tessera_test::expect_error(ts::errc::shape_mismatch, infer(other, {{3, 5}, {4, 5}}),
                             "[gather] operand and indices differ in a dim other than the gathered dim: "
                             "f32[3,5] x i32[4,5] at ",
                             "sort_test.cpp:");
}

// By the rule of numpy.searchsorted, which torch and JAX follow: NaN is the largest value.
TEST(SearchSorted, Values) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  const auto f = [](const auto& s, const auto& v) {
    return std::tuple(ts::searchsorted(s, v), ts::searchsorted<ts::Side::right>(s, v));
  };
  const Array wanted({2, 4}, {3, 0, 9, nan, 1, 5, -infinity, infinity});
  const std::vector<Array> out = apply<Float<1>, Float<2>>(f, {Array({6}, {1, 3, 3, 5, 7, nan}), wanted});
  EXPECT_EQ(out[0].data, (std::vector<double>{1, 0, 5, 5, 0, 3, 0, 5}));
  EXPECT_EQ(out[1].data, (std::vector<double>{3, 0, 5, 6, 1, 4, 0, 5}));
  const std::vector<Array> empty = apply<Float<1>, Float<2>>(f, {Array({0}), wanted});
  EXPECT_EQ(empty[1].data, std::vector<double>(8, 0));
}

}  // namespace
