#include <cmath>
#include <limits>

#include "../../support/untyped.hpp"

#include <tessera/graph/ir/print.hpp>
#include <tessera/ops/cumulative/cumulative.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

const Array x = random_array({3, 5}, 1);

template <class... Args, class F> Array apply(F, const std::vector<Array>& arguments) {
  return run(trace<F, Args...>().view(), arguments).at(0);
}

TEST(Cumulative, Cumsum) {
  const auto plain = [](const auto& v) { return ts::cumsum<-1>(v * v); };
  const auto before = [](const auto& v) { return ts::cumsum<0, ts::CumulativeOptions{.exclusive = true}>(v); };
  const auto after = [](const auto& v) {
    return ts::cumsum<1, ts::CumulativeOptions{.reverse = true, .exclusive = true}>(v);
  };
  const Array sums = apply<Float<2>>(plain, {x}), tops = apply<Float<2>>(before, {x}),
              rest = apply<Float<2>>(after, {x});
  for (std::int64_t i = 0; i < 3; ++i) {
    double sum = 0, left = 0;
    for (std::int64_t j = 0; j < 5; ++j) {
      sum += x.at({i, j}) * x.at({i, j});
      EXPECT_DOUBLE_EQ(sums.at({i, j}), sum);
      EXPECT_DOUBLE_EQ(rest.at({i, 4 - j}), left);
      left += x.at({i, 4 - j});
    }
  }
  EXPECT_EQ(tops.at({0, 3}), 0);
  EXPECT_EQ(tops.at({1, 3}), x.at({0, 3}));
  EXPECT_EQ(tops.at({2, 3}), x.at({0, 3}) + x.at({1, 3}));
  check_gradient<Float<2>>(plain, {x});
  check_gradient<Float<2>>(before, {x});
  check_gradient<Float<2>>(after, {x});
}

TEST(Cumulative, Cumprod) {
  const auto plain = [](const auto& v) { return ts::cumprod<-1>(v); };
  const auto before = [](const auto& v) { return ts::cumprod<0, ts::CumulativeOptions{.exclusive = true}>(v); };
  const auto after = [](const auto& v) {
    return ts::cumprod<1, ts::CumulativeOptions{.reverse = true, .exclusive = true}>(v);
  };
  const Array products = apply<Float<2>>(plain, {x}), tops = apply<Float<2>>(before, {x}),
              rest = apply<Float<2>>(after, {x});
  for (std::int64_t i = 0; i < 3; ++i) {
    double product = 1, left = 1;
    for (std::int64_t j = 0; j < 5; ++j) {
      product *= x.at({i, j});
      EXPECT_DOUBLE_EQ(products.at({i, j}), product);
      EXPECT_DOUBLE_EQ(rest.at({i, 4 - j}), left);
      left *= x.at({i, 4 - j});
    }
  }
  EXPECT_EQ(tops.at({0, 3}), 1);
  EXPECT_EQ(tops.at({2, 3}), x.at({0, 3}) * x.at({1, 3}));
  check_gradient<Float<2>>(plain, {x});
  check_gradient<Float<2>>(before, {x});
  check_gradient<Float<2>>(after, {x});
}

// No zero, one in each place, and several: products are linear in each factor, so that differences are exact.
TEST(Cumulative, GradientOfCumprodWithZeros) {
  const Array zeros({6, 4}, {2, -3, 4, 5, 0, 2, -7, 3, 2, 0, 5, 3, 3, 2, 4, 0, 2, 0, 3, 0, 0, 0, 0, 0});
  const Array single_zeros({4, 4}, {2, -3, 4, 5, 0, 2, -7, 3, 2, 0, 5, 3, 3, 2, 4, 0});
  const auto check = [&](auto f) {
    check_gradient<Float<2>>(f, {zeros}, first_order);
    check_gradient<Float<2>>(f, {single_zeros}, second_order);
  };
  check([](const auto& v) { return ts::cumprod<1>(v); });
  check([](const auto& v) { return ts::cumprod<0>(v); });
  check([](const auto& v) { return ts::cumprod<1, ts::CumulativeOptions{.reverse = true}>(v); });
  check([](const auto& v) { return ts::cumprod<1, ts::CumulativeOptions{.exclusive = true}>(v); });
  check([](const auto& v) { return ts::cumprod<0, ts::CumulativeOptions{.reverse = true, .exclusive = true}>(v); });
  // As torch.cumprod(x, 1).sum().backward() gives it.
  const auto rows = [](const auto& v) { return ts::cumprod<1>(v); };
  const Program program = trace<FirstGradient<decltype(rows)>, std::tuple<Float<2>>, Float<2>>();
  const auto out = run(program.view(), {Array({2, 4}, {2, 0, 5, 3, 2, 0, 3, 0}), Array({2, 4}, 1)});
  EXPECT_EQ(out[1].data, (std::vector<double>{1, 42, 0, 0, 1, 8, 0, 0}));
}

// By the rules of torch.cummax and torch.cummin: NaN stays, and of equal elements the last gets the cotangent.
TEST(Cumulative, Extremes) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Array ties({1, 5}, {1, 3, 3, 2, 3}), nans({1, 5}, {1, nan, 5, nan, 2});
  const Array weights({1, 5}, {1, 10, 100, 1000, 10000});
  const auto largest = [](const auto& v) { return ts::cummax<1>(v); };
  const auto smallest = [](const auto& v) { return ts::cummin<1>(v); };
  const auto back = [](const auto& v) { return ts::cummin<1, ts::CumulativeOptions{.reverse = true}>(v); };
  const auto up = [](const auto& v) { return ts::cummax<0, ts::CumulativeOptions{.reverse = true}>(v); };
  EXPECT_EQ(apply<Float<2>>(largest, {ties}).data, (std::vector<double>{1, 3, 3, 3, 3}));
  EXPECT_EQ(apply<Float<2>>(smallest, {ties}).data, (std::vector<double>{1, 1, 1, 1, 1}));
  EXPECT_EQ(apply<Float<2>>(back, {ties}).data, (std::vector<double>{1, 2, 2, 2, 3}));
  const Array held = apply<Float<2>>(largest, {nans});
  EXPECT_EQ(held.data[0], 1);
  for (std::size_t i = 1; i < 5; ++i) EXPECT_TRUE(std::isnan(held.data[i])) << i;
  const auto gradient = [&](auto f, const Array& at) {
    const Program program = trace<FirstGradient<decltype(f)>, std::tuple<Float<2>>, Float<2>>();
    return run(program.view(), {at, weights})[1].data;
  };
  EXPECT_EQ(gradient(largest, ties), (std::vector<double>{1, 10, 1100, 0, 10000}));
  EXPECT_EQ(gradient(smallest, ties), (std::vector<double>{11111, 0, 0, 0, 0}));
  EXPECT_EQ(gradient(back, ties), (std::vector<double>{1, 0, 0, 1110, 10000}));
  EXPECT_EQ(gradient(largest, nans), (std::vector<double>{1, 110, 0, 11000, 0}));
  check_gradient<Float<2>>(largest, {x});
  check_gradient<Float<2>>(smallest, {x});
  check_gradient<Float<2>>(back, {x});
  check_gradient<Float<2>>(up, {x});
}

TEST(Cumulative, Text) {
  const auto f = [](const auto& v) {
    return ts::cumsum<1, ts::CumulativeOptions{.reverse = true, .exclusive = true}>(v);
  };
  const Program program = trace<decltype(f), Float<2>>();
  EXPECT_NE(ts::text_of(program.view()).find("cumsum[1, reverse, exclusive] f32[?,?] (%0)"), std::string::npos)
      << ts::text_of(program.view());
}

TEST(Cumulative, OfOneElement) {
  const Array column = random_array({3, 1}, 2);
  const auto whole = [](const auto& v) { return ts::cumsum<1>(ts::sum<1>(v, ts::keepdims)); };
  EXPECT_EQ((trace<decltype(whole), Float<2>>().count(Op::cumsum)), 0);
  const auto before = [](const auto& v) {
    return ts::cumsum<1, ts::CumulativeOptions{.exclusive = true}>(ts::sum<1>(v, ts::keepdims)) + v;
  };
  const Array out = apply<Float<2>>(before, {column});
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(out.at({i, 0}), column.at({i, 0}));
}

}  // namespace
