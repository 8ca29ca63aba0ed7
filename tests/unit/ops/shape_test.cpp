#include "../../support/gradients.hpp"
#include "../base/expect_error.hpp"

#include <tessera/ops/layout/shape.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

const Array x = random_array({2, 3}, 1);

template <class... Args, class F> Array apply(F, const std::vector<Array>& arguments) {
  return run(trace<F, Args...>().view(), arguments).at(0);
}

TEST(Shape, SizesCompute) {
  const auto f = [](const auto& v, const ts::Dim& n) {
    return v * ((ts::extent<-1>(v) * n + 7 - ts::extent<0>(v)) / 2 + 1);  // (3 * 4 + 7 - 2) / 2 + 1 = 9
  };
  const Array out = apply<Float<2>, ts::Dim>(f, {x, Array::number(4)});
  for (std::size_t i = 0; i < out.data.size(); ++i) EXPECT_NEAR(out.data[i], x.data[i] * 9, 1e-12);
  static_assert((ts::Dim(7) / 2 * 3 - 1 + ts::Dim(4)).value() == 12);
  using tessera_test::expect_error;
  expect_error(
      ts::errc::dim_range, [] { (void)(ts::Dim(1) / 0); }, "division by zero: div(1, 0)");
  expect_error(
      ts::errc::capacity, [] { (void)(ts::Dim(INT64_MIN) / -1); }, "div(-9223372036854775808, -1)");
  expect_error(ts::errc::capacity, [] { (void)(ts::Dim(INT64_MAX) + 1); });
  expect_error(ts::errc::capacity, [] { (void)(ts::Dim(INT64_MIN) - 1); });
  expect_error(ts::errc::capacity, [] { (void)(ts::Dim(std::int64_t{1} << 32) * (std::int64_t{1} << 32)); });
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

}  // namespace
