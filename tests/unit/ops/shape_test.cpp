#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "../../support/gradients.hpp"
#include "../base/expect_error.hpp"

#include <tessera/ops/cond.hpp>
#include <tessera/ops/data_movement/diagonal.hpp>
#include <tessera/ops/data_movement/repeat.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/data_movement/stack.hpp>
#include <tessera/ops/indexing/one_hot.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

const Array x = random_array({2, 3}, 1);

template <class... Args, class F> Array apply(F, const std::vector<Array>& arguments) {
  return run(trace<F, Args...>().view(), arguments).at(0);
}

// Fused with a matrix, the column would count along the columns of the matrix.
TEST(Shape, IotaAlongASingletonDimIsZero) {
  const auto f = [](const auto& v) { return v + ts::cast<float>(ts::iota<1, int>(ts::sum<1>(v, ts::keepdims))); };
  EXPECT_EQ((trace<decltype(f), Float<2>>().count(ts::Op::iota)), 0);
  const Array v = random_array({3, 3}, 1);
  EXPECT_EQ((apply<Float<2>>(f, {v}).data), v.data);
}

TEST(Shape, SizesCompute) {
  const auto f = [](const auto& v, const ts::Dim& n) {
    return v * ((ts::extent<-1>(v) * n + 7 - ts::extent<0>(v)) / 2 + 1);  // (3 * 4 + 7 - 2) / 2 + 1 = 9
  };
  const Array out = apply<Float<2>, ts::Dim>(f, {x, Array::number(4)});
  for (std::size_t i = 0; i < out.data.size(); ++i) EXPECT_NEAR(out.data[i], x.data[i] * 9, 1e-12);
  static_assert((ts::Dim(7) / 2 * 3 - 1 + ts::Dim(4)).value() == 12);
  static_assert((-ts::Dim(7) % 4).value() == -3 && (9 % ts::Dim(4)).value() == 1);
  static_assert(ts::maximum(ts::Dim(7), 4).value() == 7 && ts::minimum(2, ts::Dim(-1)).value() == -1);
  const auto g = [](const auto& v, const ts::Dim& n) {
    return v * (ts::maximum(n % 3, 10) - ts::minimum(-n, ts::extent<0>(v)));  // 10 + 4
  };
  const Array other = apply<Float<2>, ts::Dim>(g, {x, Array::number(4)});
  for (std::size_t i = 0; i < other.data.size(); ++i) EXPECT_NEAR(other.data[i], x.data[i] * 14, 1e-12);
  using tessera_test::expect_error;
  expect_error(
      ts::errc::dim_range, [] { (void)(ts::Dim(1) / 0); }, "division by zero: div(1, 0)");
  expect_error(
      ts::errc::capacity, [] { (void)(ts::Dim(INT64_MIN) / -1); }, "div(-9223372036854775808, -1)");
  expect_error(ts::errc::capacity, [] { (void)(ts::Dim(INT64_MAX) + 1); });
  expect_error(ts::errc::capacity, [] { (void)(ts::Dim(INT64_MIN) - 1); });
  expect_error(ts::errc::capacity, [] { (void)(ts::Dim(std::int64_t{1} << 32) * (std::int64_t{1} << 32)); });
}

TEST(Shape, ScalarsCompute) {
  const auto f = [](const auto& v, const ts::Scalar& s) {
    const auto sign = ts::cond(
        s > 1, [](const auto& a) { return a; }, [](const auto& a) { return -a; }, v);
    return sign * (ts::pow(s, 2) + ts::maximum(s, 1.5) + ts::minimum(0.25, s) + (s <= ts::extent<0>(v)) + (2.5 < s) +
                   ts::pow(ts::extent<0>(v), -1.0) + ts::cast<float>(s));
  };
  for (const double s : {0.5, 3.0}) {
    const Array out = apply<Float<2>, ts::Scalar>(f, {x, Array::number(s)});
    const double factor = s * s + std::max(s, 1.5) + 0.25 + (s <= 2 ? 1 : 0) + (s > 2.5 ? 1 : 0) + 0.5 + s;
    for (std::size_t i = 0; i < out.data.size(); ++i)
      EXPECT_NEAR(out.data[i], x.data[i] * (s > 1 ? factor : -factor), 1e-12);
  }
  EXPECT_EQ((ts::Scalar(2) >= 2).value(), 1);
  EXPECT_EQ((ts::Dim(3) < ts::Scalar(2.5)).value(), 0);
  EXPECT_EQ(ts::pow(ts::Scalar(2), ts::Dim(3)).value(), 8);
}

TEST(Shape, IotaAndFills) {
  EXPECT_EQ(apply<Float<2>>([](const auto& v) { return ts::iota<1, std::int32_t>(v); }, {x}).data,
            (std::vector<double>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(apply<Float<2>>([](const auto& v) { return ts::iota<-2, float>(v); }, {x}).data,
            (std::vector<double>{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(apply<Float<2>>([](const auto& v) { return ts::zeros_like(v); }, {x}).data, std::vector<double>(6, 0));
  EXPECT_EQ(apply<Float<2>>([](const auto& v) { return ts::ones_like(v); }, {x}).data, std::vector<double>(6, 1));
  const auto full = [](const auto& v, const ts::Scalar& s) { return ts::full_like(v, s); };
  EXPECT_EQ((apply<Float<2>, ts::Scalar>(full, {x, Array::number(2.5)}).data), std::vector<double>(6, 2.5));
  // The gradient is that by the tensor; a shape has none.
  check_gradient<Float<0>, Float<2>>([](const auto& s, const auto& v) { return ts::broadcast_like(s * s, v) * v; },
                                     {random_array({}, 2), x});
}

TEST(Shape, BroadcastOverAnExtentOfOneIsAnError) {
  const auto f = [](const auto& v) { return ts::broadcast_like(v, ts::sum<1>(v, ts::keepdims)); };
  EXPECT_THROW((trace<decltype(f), Float<2>>()), ts::error);
}

TEST(Shape, RandomAndConstraint) {
  const auto noise = [](const auto& v, const ts::Scalar& key) {
    return ts::uniform_like(v, key) + 10 * ts::uniform_like<1>(v, key) + 100 * ts::uniform_like(v, key);
  };
  const Program program = trace<decltype(noise), Float<2>, ts::Scalar>();
  EXPECT_EQ(program.count(Op::random), 2);  // equal calls are one; another stream is another
  const auto draws = [](int seed) {
    return apply<Float<2>, ts::Scalar>(decltype(noise){}, {x, Array::number(seed)}).data;
  };
  EXPECT_EQ(draws(1), draws(1));
  EXPECT_NE(draws(1), draws(2));

  const auto dropped = [](const auto& v, const ts::Scalar& rate) { return ts::dropout(v * v, rate, 3); };
  const Array out = apply<Float<2>, ts::Scalar>(dropped, {x, Array::number(0.4)});
  int kept = 0;
  for (std::size_t i = 0; i < out.data.size(); ++i) {
    if (out.data[i] == 0) continue;
    ++kept;
    EXPECT_NEAR(out.data[i], x.data[i] * x.data[i] / 0.6, 1e-12);
  }
  EXPECT_TRUE(kept > 0 && kept < 6);
  check_gradient<Float<2>, ts::Scalar>(dropped, {x, Array::number(0.4)});

  const auto laid_out = [](const auto& v) { return ts::with_sharding(v * v, {"data", ts::none}) * v; };
  check_gradient<Float<2>>(laid_out, {x});
  const Program gradient = trace<FirstGradient<decltype(laid_out)>, std::tuple<Float<2>>, Float<2>>();
  EXPECT_EQ(gradient.count(Op::constraint), 2);  // the value and its cotangent
  ASSERT_EQ(gradient.module.specs.size(), 1u);
  EXPECT_EQ(gradient.module.specs[0], (ts::PartitionSpec{"data", ts::none}));
  EXPECT_THROW((trace<decltype([](const auto& v) {
                        return ts::with_sharding(v, {"x", "y", "z"});
                      }),
                      Float<2>>()),
               ts::error);
  EXPECT_THROW(ts::with_sharding(Float<2>(), {"x"}), ts::error);
}

const Array square({3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}), rows({2, 3}, {1, 2, 3, 4, 5, 6});

// The examples of NumPy's documentation, whose functions these are.
TEST(Diagonal, TrianglesAndDiagonals) {
  const auto triangles = [](const auto& m) {
    return std::tuple(ts::tril(m), ts::tril(m, 1), ts::triu(m), ts::triu(m, -1));
  };
  const auto made = results_of<Float<2>>(triangles, {square});
  EXPECT_EQ(made[0].data, (std::vector<double>{1, 0, 0, 4, 5, 0, 7, 8, 9}));
  EXPECT_EQ(made[1].data, (std::vector<double>{1, 2, 0, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(made[2].data, (std::vector<double>{1, 2, 3, 0, 5, 6, 0, 0, 9}));
  EXPECT_EQ(made[3].data, (std::vector<double>{1, 2, 3, 4, 5, 6, 0, 8, 9}));
  const auto diagonals = [](const auto& m, const auto& y, const auto& v) {
    return std::tuple(ts::diagonal(m), ts::diag(y), ts::diagonal(ts::transpose<1, 0>(y)), ts::diag(v));
  };
  const auto of = results_of<Float<2>, Float<2>, Float<1>>(diagonals, {square, rows, Array({2}, {5, 7})});
  EXPECT_EQ(of[0].data, (std::vector<double>{1, 5, 9}));
  EXPECT_EQ(of[1].data, (std::vector<double>{1, 5}));
  EXPECT_EQ(of[2].data, (std::vector<double>{1, 5}));
  EXPECT_EQ(of[3].data, (std::vector<double>{5, 0, 0, 7}));
  check_gradient<Float<3>>([](const auto& m) { return ts::diagonal(ts::tril(m) * ts::triu(m, -1)); },
                           {random_array({2, 3, 4}, 1)});
  check_gradient<Float<2>>([](const auto& m) { return ts::diag(m * m); }, {random_array({3, 3}, 1)});
  check_gradient<Float<1>>([](const auto& m) { return ts::diag(m * m); }, {random_array({3}, 1)});
}

TEST(Repeat, TilesRollsAndFlips) {
  const auto repeated = [](const auto& m, const ts::Dim& n) {
    return std::tuple(ts::tile<0>(m, n), ts::tile<-1>(m, 2), ts::repeat_interleave<0>(m, n),
                      ts::repeat_interleave<1>(m, 2));
  };
  const auto many = results_of<Float<2>, ts::Dim>(repeated, {rows, Array::number(2)});
  EXPECT_EQ(many[0].shape, (Shape{4, 3}));
  EXPECT_EQ(many[0].data, (std::vector<double>{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(many[1].data, (std::vector<double>{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}));
  EXPECT_EQ(many[2].data, (std::vector<double>{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}));
  EXPECT_EQ(many[3].data, (std::vector<double>{1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6}));
  const auto moved = [](const auto& m) {
    return std::tuple(ts::roll<1>(m, 1), ts::roll<1>(m, -4), ts::roll<0>(m, 7), ts::roll<1>(m, 0), ts::flip<1>(m),
                      ts::flip<0>(m), ts::flip<0, -1>(m));
  };
  const auto turned = results_of<Float<2>>(moved, {rows});
  EXPECT_EQ(turned[0].data, (std::vector<double>{3, 1, 2, 6, 4, 5}));
  EXPECT_EQ(turned[1].data, (std::vector<double>{2, 3, 1, 5, 6, 4}));
  EXPECT_EQ(turned[2].data, (std::vector<double>{4, 5, 6, 1, 2, 3}));
  EXPECT_EQ(turned[3].data, rows.data);
  EXPECT_EQ(turned[4].data, (std::vector<double>{3, 2, 1, 6, 5, 4}));
  EXPECT_EQ(turned[5].data, (std::vector<double>{4, 5, 6, 1, 2, 3}));
  EXPECT_EQ(turned[6].data, (std::vector<double>{6, 5, 4, 3, 2, 1}));
  const Array m = random_array({2, 3}, 1);
  const auto quarters = results_of<Float<2>>(
      [](const auto& v) { return std::tuple(ts::rot90(v), ts::rot90<2>(v), ts::rot90<-1>(v), ts::rot90<4>(v)); },
      {rows});
  EXPECT_EQ(quarters[0].shape, (Shape{3, 2}));
  EXPECT_EQ(quarters[0].data, (std::vector<double>{3, 6, 2, 5, 1, 4}));
  EXPECT_EQ(quarters[1].data, (std::vector<double>{6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(quarters[2].data, (std::vector<double>{4, 1, 5, 2, 6, 3}));
  EXPECT_EQ(quarters[3].data, rows.data);
  check_gradient<Float<2>>([](const auto& v) { return ts::rot90(v * v); }, {m});
  check_gradient<Float<2>>([](const auto& v) { return ts::tile<0>(v * v, 3); }, {m});
  check_gradient<Float<2>>([](const auto& v) { return ts::repeat_interleave<1>(v * v, 2); }, {m});
  check_gradient<Float<2>>([](const auto& v) { return ts::roll<1>(v * v, 1) * ts::flip<0>(v); }, {m});
}

TEST(Stack, PutsTogetherAndTakesApart) {
  const auto stacked = [](const auto& a, const auto& b) {
    return std::tuple(ts::stack<0>(std::pair(a, b)), ts::stack<-1>(a, b, a), ts::stack<0>(a, b, b, a, a, b),
                      ts::stack<0>(a, b), ts::stack<-1>(std::array{a, b, a}));
  };
  const auto made = results_of<Float<1>, Float<1>>(stacked, {Array({2}, {1, 2}), Array({2}, {3, 4})});
  EXPECT_EQ(made[0].shape, (Shape{2, 2}));
  EXPECT_EQ(made[0].data, (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(made[3].data, made[0].data);
  EXPECT_EQ(made[4].data, made[1].data);
  EXPECT_EQ(made[1].shape, (Shape{2, 3}));
  EXPECT_EQ(made[1].data, (std::vector<double>{1, 3, 1, 2, 4, 2}));
  EXPECT_EQ(made[2].data, (std::vector<double>{1, 2, 3, 4, 3, 4, 1, 2, 1, 2, 3, 4}));
  const auto parts = [](const auto& m) {
    return std::tuple(ts::chunk<2, 1>(m), ts::split<-1, 1, 2>(m), ts::unbind<2>(m));
  };
  const auto apart = results_of<Float<2>>(parts, {rows});
  EXPECT_EQ(apart[0].data, (std::vector<double>{1, 2, 4, 5}));
  EXPECT_EQ(apart[1].data, (std::vector<double>{3, 6}));
  EXPECT_EQ(apart[2].data, (std::vector<double>{1, 4}));
  EXPECT_EQ(apart[3].data, (std::vector<double>{2, 3, 5, 6}));
  EXPECT_EQ(apart[4].data, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(apart[5].data, (std::vector<double>{4, 5, 6}));
  check_gradient<Float<2>>(
      [](const auto& m) {
        const auto [a, b] = ts::chunk<2, 1>(ts::stack<1>(m, m * m));
        const auto [c, d] = ts::unbind<2>(a);
        return ts::sum(b) * c * d;
      },
      {random_array({2, 3}, 1)});
}

TEST(Stack, GridsAndBlocks) {
  const auto grid = results_of<Float<1>, Float<1>>([](const auto& a, const auto& b) { return ts::meshgrid(a, b); },
                                                   {Array({2}, {1, 2}), Array({3}, {3, 4, 5})});
  EXPECT_EQ(grid[0].shape, (Shape{2, 3}));
  EXPECT_EQ(grid[0].data, (std::vector<double>{1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(grid[1].data, (std::vector<double>{3, 4, 5, 3, 4, 5}));
  const auto blocks = results_of<Float<2>, Float<2>>(
      [](const auto& a, const auto& b) { return std::tuple(ts::block_diag(a, b), ts::block_diag(b, b, b)); },
      {rows, Array({1, 1}, 7)});
  EXPECT_EQ(blocks[0].shape, (Shape{3, 4}));
  EXPECT_EQ(blocks[0].data, (std::vector<double>{1, 2, 3, 0, 4, 5, 6, 0, 0, 0, 0, 7}));
  EXPECT_EQ(blocks[1].data, (std::vector<double>{7, 0, 0, 0, 7, 0, 0, 0, 7}));
  check_gradient<Float<2>>([](const auto& m) { return ts::block_diag(m * m, m); }, {random_array({2, 3}, 1)});
}

TEST(OneHot, SelectsAndFills) {
  const auto hot = [](const auto& i) { return ts::one_hot(i, 3); };
  const auto made = results_of<Int<1>>(hot, {Array({3}, {2, 0, 5})});
  EXPECT_EQ(made[0].shape, (Shape{3, 3}));
  EXPECT_EQ(made[0].data, (std::vector<double>{0, 0, 1, 1, 0, 0, 0, 0, 0}));
  const auto chosen = [](const auto& m, const auto& i) {
    return std::tuple(ts::index_select<0>(m, i), ts::index_select<1>(m, i), ts::masked_fill(m, m > 2, -1.5));
  };
  const auto of = results_of<Float<2>, Int<1>>(chosen, {rows, Array({3}, {1, 0, 1})});
  EXPECT_EQ(of[0].data, (std::vector<double>{4, 5, 6, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(of[1].data, (std::vector<double>{2, 1, 2, 5, 4, 5}));
  EXPECT_EQ(of[2].data, (std::vector<double>{1, 2, -1.5, -1.5, -1.5, -1.5}));
  check_gradient<Float<3>, Int<1>>([](const auto& m, const auto& i) { return ts::index_select<2>(m * m, i); },
                                   {random_array({2, 2, 3}, 1), Array({4}, {2, 0, 2, 1})});
}

}  // namespace
