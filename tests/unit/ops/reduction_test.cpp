#include "../../support/gradients.hpp"

#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/ops/reduction/statistics.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

const Shape shape{2, 3, 4};
const Array x = random_array(shape, 3);

template <class... Args, class F> Array apply(F, const std::vector<Array>& arguments) {
  return run(trace<F, Args...>().view(), arguments).at(0);
}
template <class F> Array result(F) { return run(trace<F, Float<3>>().view(), {x}).at(0); }

TEST(Reduction, GradientOfEveryRow) {
  const auto check = [](auto f, auto order) { check_gradient<Float<3>>(f, {x}, order); };
  check([](const auto& v) { return ts::sum(v * v); }, second_order);
  check([](const auto& v) { return ts::sum<1>(v * v) * 2; }, second_order);
  check([](const auto& v) { return ts::sum<0, 2>(v * v * v, ts::keepdims) * v; }, second_order);
  check([](const auto& v) { return ts::mean<-1>(ts::exp(v)); }, second_order);
  check([](const auto& v) { return ts::mean(ts::exp(v)) * v; }, second_order);
  check([](const auto& v) { return ts::max<1>(v); }, first_order);
  check([](const auto& v) { return ts::max(v * v); }, first_order);
  check([](const auto& v) { return ts::max<0, 1>(v, ts::keepdims) * v; }, first_order);
  check([](const auto& v) { return ts::min<-1>(v * 2); }, first_order);
  check([](const auto& v) { return ts::min<2, 0>(v, ts::keepdims) * v; }, first_order);
}

TEST(Reduction, DimsAndKeepdims) {
  EXPECT_EQ(result([](const auto& v) { return ts::sum(v); }).shape, (Shape{}));
  EXPECT_EQ(result([](const auto& v) { return ts::sum(v, ts::keepdims); }).shape, (Shape{1, 1, 1}));
  EXPECT_EQ(result([](const auto& v) { return ts::max<-1, 0>(v); }).shape, (Shape{3}));
  EXPECT_EQ(result([](const auto& v) { return ts::min<1>(v, ts::keepdims); }).shape, (Shape{2, 1, 4}));
  double total = 0;
  for (double v : x.data) total += v;
  EXPECT_NEAR(result([](const auto& v) { return ts::sum(v); }).data[0], total, 1e-12);
  EXPECT_NEAR(result([](const auto& v) { return ts::mean(v); }).data[0], total / 24, 1e-12);
  const Array rows = result([](const auto& v) { return ts::mean<0, -1>(v); });
  for (std::int64_t j = 0; j < 3; ++j) {
    double row = 0;
    for (std::int64_t i = 0; i < 2; ++i)
      for (std::int64_t k = 0; k < 4; ++k) row += x.at({i, j, k});
    EXPECT_NEAR(rows.data[static_cast<std::size_t>(j)], row / 8, 1e-12);
  }
}

TEST(Reduction, EqualExtremesShareTheGradient) {
  const auto f = [](const auto& v) { return ts::max<1>(v); };
  const Program program = trace<FirstGradient<decltype(f)>, std::tuple<Float<2>>, Float<1>>();
  const auto out = run(program.view(), {Array({2, 3}, {1, 5, 5, 7, 7, 7}), Array({2}, {1, 3})});
  EXPECT_EQ(out[1].data, (std::vector<double>{0, 0.5, 0.5, 1, 1, 1}));
}

TEST(Reduction, Prod) {
  EXPECT_EQ(result([](const auto& v) { return ts::prod<-1, 0>(v); }).shape, (Shape{3}));
  EXPECT_EQ(result([](const auto& v) { return ts::prod<1>(v, ts::keepdims); }).shape, (Shape{2, 1, 4}));
  double product = 1;
  for (double v : x.data) product *= v;
  EXPECT_NEAR(result([](const auto& v) { return ts::prod(v); }).data[0] / product, 1, 1e-12);
  const auto check = [](auto f) { check_gradient<Float<3>>(f, {x}, second_order); };
  check([](const auto& v) { return ts::prod(v); });
  check([](const auto& v) { return ts::prod<1>(v * v) * 2; });
  check([](const auto& v) { return ts::prod<0, 2>(v, ts::keepdims) * v; });
}

// No zero, one zero, several and only zeros in a group: a product is linear in each factor, so differences are exact.
TEST(Reduction, GradientOfAProductWithZeros) {
  const auto rows = [](const auto& v) { return ts::prod<1>(v); };
  const auto columns = [](const auto& v) { return ts::prod<0>(v, ts::keepdims) * v; };
  const auto all = [](const auto& v) { return ts::prod(v); };
  const Array zeros({4, 3}, {2, -3, 4, 5, 0, -7, 0, 3, 0, 0, 0, 0});
  check_gradient<Float<2>>(rows, {zeros}, second_order);
  check_gradient<Float<2>>(columns, {zeros}, second_order);
  check_gradient<Float<2>>(all, {zeros}, second_order);
  check_gradient<Float<2>>(all, {Array({2, 2}, {2, 0, 3, -5})}, second_order);
  // As torch.prod(x, 1).sum().backward() gives it.
  const Program program = trace<FirstGradient<decltype(rows)>, std::tuple<Float<2>>, Float<1>>();
  const auto out = run(program.view(), {zeros, Array({4}, {1, 1, 1, 1})});
  EXPECT_EQ(out[1].data, (std::vector<double>{-12, 8, -6, 0, -35, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(Reduction, AnyAndAll) {
  const auto holds = [](auto f, std::vector<double> values) {
    return apply<Float<2>>(f, {Array({2, 3}, values)}).data;
  };
  const auto any = [](const auto& v) { return ts::any<1>(v); };
  const auto all = [](const auto& v) { return ts::all<1>(v); };
  EXPECT_EQ(holds(any, {0, 0, 0, 0, -2, 0}), (std::vector<double>{0, 1}));
  EXPECT_EQ(holds(any, {0, NAN, 0, 0, 0, 0}), (std::vector<double>{1, 0}));
  EXPECT_EQ(holds(all, {1, 2, 0.5, 1, 0, 1}), (std::vector<double>{1, 0}));
  EXPECT_EQ(result([](const auto& v) { return ts::all<1>(v, ts::keepdims); }).shape, (Shape{2, 1, 4}));
  EXPECT_EQ(result([](const auto& v) { return ts::any(v); }).data, (std::vector<double>{1}));
}

TEST(Reduction, PositionsOfExtremes) {
  const auto most = [](const auto& v) { return ts::argmax<1>(v); };
  const auto least = [](const auto& v) { return ts::argmin<-1, std::int64_t>(v, ts::keepdims); };
  const Array rows({4, 4}, {1, 3, 3, -2, -2, -2, -5, -5, 0, NAN, 7, NAN, -INFINITY, -INFINITY, -INFINITY, -INFINITY});
  EXPECT_EQ(apply<Float<2>>(most, {rows}).data, (std::vector<double>{1, 0, 1, 0}));
  const Array kept = apply<Float<2>>(least, {rows});
  EXPECT_EQ(kept.shape, (Shape{4, 1}));
  EXPECT_EQ(kept.data, (std::vector<double>{3, 2, 1, 0}));
  const auto columns = [](const auto& v) { return ts::argmax<0>(v); };
  EXPECT_EQ(apply<Float<2>>(columns, {Array({3, 2}, {4, 1, 4, 9, 4, 9})}).data, (std::vector<double>{0, 1}));
  // Without a dim, the row-major position.
  std::size_t first = 0;
  for (std::size_t i = 0; i < x.data.size(); ++i)
    if (x.data[i] > x.data[first]) first = i;
  EXPECT_EQ(result([](const auto& v) { return ts::argmax(v); }).data[0], static_cast<double>(first));
  static_assert(std::is_same_v<decltype(ts::argmax<0>(std::declval<Float<2>>()))::element, std::int32_t>);
  // Indices have no gradient.
  check_gradient<Float<2>>([](const auto& v) { return ts::cast<float>(ts::argmax<1>(v)) * ts::sum<1>(v * v); },
                           {random_array({3, 4}, 5)}, first_order);
}

// The cotangent of a full sum has one element: it must not be broadcast before that is needed.
TEST(Reduction, GradientOfASumIsNotMaterialised) {
  const auto f = [](const auto& v) { return ts::value_and_grad([](const auto& w) { return ts::sum(w * w); })(v); };
  EXPECT_EQ((trace<decltype(f), Float<3>>().count(Op::broadcast)), 0);
}

// torch.var and torch.std with correction, torch.linalg.vector_norm, torch.nansum.
TEST(Reduction, VarianceNormAndNansum) {
  const auto exact = [](std::int64_t j, double correction) {
    double mean = 0, sum = 0;
    for (std::int64_t i = 0; i < 2; ++i)
      for (std::int64_t k = 0; k < 4; ++k) mean += x.at({i, j, k}) / 8;
    for (std::int64_t i = 0; i < 2; ++i)
      for (std::int64_t k = 0; k < 4; ++k) sum += std::pow(x.at({i, j, k}) - mean, 2);
    return sum / (8 - correction);
  };
  const Array one = result([](const auto& v) { return ts::var<0, -1>(v); });
  const Array none = result([](const auto& v) { return ts::var<0, -1>(v, ts::keepdims, 0); });
  const Array root = result([](const auto& v) { return ts::std<0, 2>(v, 2); });
  EXPECT_EQ(one.shape, (Shape{3}));
  EXPECT_EQ(none.shape, (Shape{1, 3, 1}));
  for (std::int64_t j = 0; j < 3; ++j) {
    EXPECT_NEAR(one.at({j}), exact(j, 1), 1e-12);
    EXPECT_NEAR(none.at({0, j, 0}), exact(j, 0), 1e-12);
    EXPECT_NEAR(root.at({j}), std::sqrt(exact(j, 2)), 1e-12);
  }
  const auto all = [](const auto& v) { return ts::var(v); };
  EXPECT_TRUE(std::isnan(apply<Float<1>>(all, {Array({1}, 3)}).data[0])) << "no more elements than the correction";
  EXPECT_TRUE(std::isnan(apply<Float<1>>(all, {Array(Shape{0})}).data[0]));
  EXPECT_NEAR(apply<Float<1>>(all, {Array({3}, {1e9, 1e9 + 1, 1e9 + 2})}).data[0], 1, 1e-6);

  const auto norm = [](const auto& v) { return ts::norm(v); };
  EXPECT_NEAR(apply<Float<1>>(norm, {Array({2}, {-3, 4})}).data[0], 5, 1e-12);
  EXPECT_EQ(apply<Float<1>>(norm, {Array(Shape{0})}).data[0], 0);
  EXPECT_EQ(result([](const auto& v) { return ts::norm<1>(v, ts::keepdims); }).shape, (Shape{2, 1, 4}));
  const auto nansum = [](const auto& v) { return ts::nansum(v); };
  EXPECT_EQ(apply<Float<1>>(nansum, {Array({3}, {NAN, 2, 3})}).data[0], 5);
  EXPECT_EQ(apply<Float<1>>(nansum, {Array({2}, {NAN, NAN})}).data[0], 0);

  const auto check = [](auto f) { check_gradient<Float<3>>(f, {x}, second_order); };
  check([](const auto& v) { return ts::var<1>(v); });
  check([](const auto& v) { return ts::std<0, 2>(v, ts::keepdims) * v; });
  check([](const auto& v) { return ts::norm<-1>(v); });
  check([](const auto& v) { return ts::nansum<0>(v * v); });
  // Where they are 0, roots have no slope: torch gives 0.
  const auto flat = [](const auto& v) { return ts::norm<1>(v) + ts::std<1>(v); };
  const auto slopes = run(trace<FirstGradient<decltype(flat)>, std::tuple<Float<2>>, Float<1>>().view(),
                          {Array({1, 3}, 0.0), Array({1}, 1)});
  EXPECT_EQ(slopes[1].data, (std::vector<double>{0, 0, 0}));
}

}  // namespace
