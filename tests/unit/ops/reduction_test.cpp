#include "../../support/gradients.hpp"
#include "../base/expect_error.hpp"

#include <tessera/ops/data_movement/diagonal.hpp>
#include <tessera/ops/reduction/covariance.hpp>
#include <tessera/ops/reduction/differences.hpp>
#include <tessera/ops/reduction/distances.hpp>
#include <tessera/ops/reduction/histogram.hpp>
#include <tessera/ops/reduction/order_statistics.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/ops/reduction/statistics.hpp>
#include <tessera/ops/shard_map/shard_map.hpp>
#include <tessera/partition/plan/static_plan.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>

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

void expect_values(const Array& got, const std::vector<double>& want) {
  ASSERT_EQ(got.data.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_TRUE(std::isnan(want[i]) ? std::isnan(got.data[i])
                                    : got.data[i] == want[i] || std::fabs(got.data[i] - want[i]) < 1e-12)
        << i << ": " << got.data[i] << " instead of " << want[i];
}

// numpy.nanmax, nanmin, nanprod, nanvar, nanstd, nanargmax and nanargmin; -1 where all are NaN, as in JAX.
TEST(Reduction, OfElementsThatAreNotNan) {
  const auto f = [](const auto& v) {
    return std::tuple(ts::nanmax<1>(v), ts::nanmin<1>(v), ts::nanprod<-1>(v), ts::nanvar<1>(v), ts::nanstd<1>(v, 0),
                      ts::nanargmax<1>(v), ts::nanargmin<1, std::int64_t>(v), ts::nanmax(v), ts::nanargmin(v));
  };
  const auto of = run(trace<decltype(f), Float<2>>().view(),
                      {Array({4, 4}, {4, NAN, -1, 3, NAN, NAN, NAN, NAN, NAN, 5, 2, NAN, NAN, -INFINITY, NAN, NAN})});
  expect_values(of[0], {4, NAN, 5, -INFINITY});
  expect_values(of[1], {-1, NAN, 2, -INFINITY});
  expect_values(of[2], {-12, 1, 10, -INFINITY});
  expect_values(of[3], {7, NAN, 4.5, NAN});
  expect_values(of[4], {2.1602468994692869, NAN, 1.5, NAN});
  expect_values(of[5], {0, -1, 1, 1});
  expect_values(of[6], {2, -1, 2, 1});
  expect_values(of[7], {5});
  expect_values(of[8], {13});
  const auto kept = [](const auto& v) {
    using ts::keepdims;
    return std::tuple(ts::nanmax<1>(v, keepdims), ts::nanstd<0>(v, keepdims, 0), ts::nanargmax<0>(v, keepdims),
                      ts::nanprod<0, 1>(v, keepdims), ts::nanmin<0>(v));
  };
  const auto integers =
      run(trace<decltype(kept), ts::ShardedTensor<std::int32_t, 2>>().view(), {Array({2, 2}, {4, 1, 2, 3})});
  EXPECT_EQ(integers[0].shape, (Shape{2, 1}));
  expect_values(integers[0], {4, 3});
  EXPECT_EQ(integers[1].shape, (Shape{1, 2}));
  expect_values(integers[1], {1, 1});
  expect_values(integers[2], {0, 1});
  EXPECT_EQ(integers[3].shape, (Shape{1, 1}));
  expect_values(integers[3], {24});
  expect_values(integers[4], {2, 1});
  const auto slopes = [](const auto& v) {
    const auto some = ts::select(v > -0.5, v * v, NAN);
    return ts::nanmax<0, 2>(some) * ts::nanprod<0, 2>(some) + ts::nanvar<0, 2>(some) * ts::nanstd<0, 2>(some, 0);
  };
  check_gradient<Float<3>>(slopes, {x}, first_order);
  // No element of a row of NaNs has a slope.
  const auto flat = [](const auto& v) { return ts::nanmin<1>(v) + ts::nanvar<1>(v, 0); };
  const auto none = run(trace<FirstGradient<decltype(flat)>, std::tuple<Float<2>>, Float<1>>().view(),
                        {Array({1, 3}, NAN), Array({1}, 1)});
  EXPECT_EQ(none[1].data, (std::vector<double>{0, 0, 0}));
}

// torch.median, nanmedian, quantile and kthvalue of the rows; numpy.quantile gives the same.
TEST(Reduction, OrderStatistics) {
  const auto f = [](const auto& v, const auto& whole) {
    using enum ts::Interpolation;
    const auto [second, place] = ts::kthvalue<1>(v, 2);
    return std::tuple(ts::median<1>(v), ts::nanmedian<1>(v), ts::quantile<1>(v, 0.4), ts::quantile<1, lower>(v, 0.4),
                      ts::quantile<1, higher>(v, 0.4), ts::quantile<1, midpoint>(v, 0.4),
                      ts::quantile<1, nearest>(v, 0.4), ts::nanquantile<-1>(v, 0.5), second, place,
                      ts::median<0>(whole), ts::quantile<0>(whole, 0.75), ts::median(whole), ts::nanmedian(v),
                      ts::quantile(whole, 0.5), ts::nanquantile<lower>(v, 0.3), ts::median(v));
  };
  const Array rows({4, 4}, {4, 1, 3, 2, 7, NAN, 5, 6, NAN, NAN, NAN, NAN, INFINITY, INFINITY, -1, INFINITY});
  const auto of = run(trace<decltype(f), Float<2>, ts::ShardedTensor<std::int32_t, 2>>().view(),
                      {rows, Array({4, 2}, {3, 10, -1, 40, 7, 20, 5, 30})});
  expect_values(of[0], {2, NAN, NAN, INFINITY});
  expect_values(of[1], {2, 6, NAN, INFINITY});
  expect_values(of[2], {2.2, NAN, NAN, INFINITY});
  expect_values(of[3], {2, NAN, NAN, INFINITY});
  expect_values(of[4], {3, NAN, NAN, INFINITY});
  expect_values(of[5], {2.5, NAN, NAN, INFINITY});
  expect_values(of[6], {2, NAN, NAN, INFINITY});
  expect_values(of[7], {2.5, 6, NAN, INFINITY});
  expect_values(of[8], {2, 6, NAN, INFINITY});
  expect_values(of[9], {3, 3, 1, 0});
  expect_values(of[10], {3, 20});
  expect_values(of[11], {5.5, 32.5});
  // Of all elements, as torch.median(whole), torch.nanmedian(v), numpy.quantile(whole, .5), numpy.nanquantile(v, .3,
  // method="lower").
  expect_values(of[12], {7});
  expect_values(of[13], {5});
  expect_values(of[14], {8.5});
  expect_values(of[15], {3});
  expect_values(of[16], {NAN});
  check_gradient<Float<3>>(
      [](const auto& v) {
        return ts::median<1>(v * v) + ts::quantile<1>(v, 0.3) + ts::kthvalue<1>(v, 3).values * ts::nanmedian<1>(v);
      },
      {x}, first_order);
  const auto outside = [](const auto& v) { return ts::quantile<0>(v, 1.5); };
  tessera_test::expect_error(ts::errc::option, [&] { trace<decltype(outside), Float<1>>(); });
}

// numpy.bincount and numpy.histogram: the last bin has both edges.
TEST(Reduction, Histograms) {
  const auto f = [](const auto& v, const auto& i) {
    return std::tuple(ts::histogram(v, 4, 0.0, 1.0), ts::bincount(i, 4), ts::bincount(i, 3, v));
  };
  const Array values({2, 4}, {0, 0.25, 0.2499, 1, -0.1, 1.01, NAN, 0.75});
  const auto of = run(trace<decltype(f), Float<2>, ts::ShardedTensor<std::int8_t, 2>>().view(),
                      {values, Array({2, 4}, {0, 2, 2, 3, -1, 5, 7, 0})});
  expect_values(of[0], {2, 1, 0, 2});
  expect_values(of[1], {2, 0, 2, 1});
  expect_values(of[2], {0.75, 0, 0.4999});
  const auto weighted = [](const auto& v, const auto& i) { return ts::bincount(i, 3, v * v); };
  check_gradient<Float<1>, ts::ShardedTensor<std::int32_t, 1>>(weighted,
                                                               {Array({4}, {1, 2, 3, 4}), Array({4}, {2, 0, 2, 9})});
}

// Elements at, and one rounding beside, each edge of bins whose width has no exact quotient; numpy.histogram's rule,
// applied to each pair of an element and a bin.
TEST(Reduction, HistogramsDecideByTheEdges) {
  static constexpr int bins = 49;
  static constexpr double low = -0.7, high = 1.3;
  const auto edge = [](int k) { return k == bins ? high : low + (high - low) * (static_cast<double>(k) / bins); };
  std::vector<double> elements{-INFINITY, INFINITY, NAN};
  for (int k = 0; k <= bins; ++k)
    for (const double to : {-INFINITY, INFINITY}) {
      elements.push_back(edge(k));
      elements.push_back(std::nextafter(edge(k), to));
    }
  std::vector<double> expected(bins);
  for (const double v : elements)
    for (int k = 0; k < bins; ++k)
      expected[static_cast<std::size_t>(k)] +=
          v >= edge(k) && (v < edge(k + 1) || (k + 1 == bins && v == high)) ? 1 : 0;
  const auto f = [](const auto& v) {
    return std::tuple(ts::histogram(v, bins, low, high), ts::histogram(v, 3, 2.0, 1.0), ts::histogram(v, 0, 0.0, 1.0));
  };
  const auto count = static_cast<std::int64_t>(elements.size());
  const auto of = run(trace<decltype(f), ts::ShardedTensor<double, 1>>().view(), {Array({count}, elements)});
  expect_values(of[0], expected);
  expect_values(of[1], {0, 0, 0});
  EXPECT_EQ(of[2].data.size(), 0u);
}

// Bins of scalars and of several dims, none at all, and weights that are broadcast, not numbers where they are left
// out, or small integers.
TEST(Reduction, BincountsOfAllShapes) {
  const auto f = [](const auto& i, const auto& scalar, const auto& w, const auto& small) {
    return std::tuple(ts::bincount(i, 0), ts::bincount(scalar, 3), ts::bincount(i, 3, w), ts::bincount(i, 3, small));
  };
  const Array indices({2, 3}, {2, 0, -1, 2, 9223372036854775807.0, 2});
  const auto of =
      run(trace<decltype(f), ts::ShardedTensor<std::int64_t, 2>, ts::ShardedTensor<std::int32_t, 0>, Float<2>,
                ts::ShardedTensor<std::int8_t, 2>>()
              .view(),
          {indices, Array({}, 2.0), Array({2, 3}, {1, 2, NAN, 4, INFINITY, 8}), Array({2, 3}, {1, 2, 3, 4, 5, -7})});
  EXPECT_EQ(of[0].data.size(), 0u);
  expect_values(of[1], {0, 0, 1});
  expect_values(of[2], {2, 0, 13});
  expect_values(of[3], {2, 0, -2});
}

// The elements stay split along both dims: devices exchange the counts and sums, one more than there are bins.
TEST(Reduction, HistogramsOfSplitElementsReduceCounts) {
  constexpr auto f = [](const auto& i, const auto& w) {
    return std::tuple(ts::bincount(i, 10), ts::bincount(i, 10, w), ts::histogram(w, 10, -1.0, 1.0));
  };
  const ts::PartitionSpec split{"x", "y"};
  const ts::Plan plan = ts::plan(f, ts::Mesh({{"x", 2}, {"y", 2}}), ts::abstract<std::int32_t>({400, 600}, split),
                                 ts::abstract<float>({400, 600}, split));
  int found = 0;
  plan.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t) {
    ++found;
    EXPECT_EQ(c.kind, ts::Collective::all_reduce);
    EXPECT_LE(c.payload_bytes, 11 * 8 * 3);
  });
  EXPECT_GE(found, 1);
}

// In a shard_map each device counts its own elements.
TEST(Reduction, BincountsOfEachDevice) {
  constexpr auto f = ts::compile([](const auto& i, const auto& w) {
    return ts::shard_map<"{x}, {x} -> {x}, {x}, {x}">([](auto own, auto weights) {
      return std::tuple(ts::bincount(own, 3), ts::bincount(own, 3, weights), ts::histogram(weights, 2, 0.0, 4.0));
    })(i, w);
  });
  const ts::Mesh mesh({{"x", 2}});
  const auto i = ts::shard(std::vector<std::int32_t>{0, 2, 2, 5, 1, 1, 1, -1}, {4, 2}, mesh, {"x"});
  const auto w = ts::shard(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}, {4, 2}, mesh, {"x"});
  const auto [counts, sums, parts] = f(i, w);
  EXPECT_EQ(ts::to_host(counts), (std::vector<std::int32_t>{1, 0, 2, 0, 3, 0}));
  EXPECT_EQ(ts::to_host(sums), (std::vector<float>{1, 0, 5, 0, 18, 0}));
  EXPECT_EQ(ts::to_host(parts), (std::vector<std::int32_t>{1, 3, 0, 0}));
}

// torch.linalg.vector_norm, nanmean, count_nonzero, var_mean and the functions of torch.nn.functional.
TEST(Reduction, NormsAndDistances) {
  const auto f = [](const auto& a, const auto& b) {
    const auto [variance, mean] = ts::var_mean<1>(a);
    const auto [deviation, same] = ts::std_mean<1>(a, 0);
    const auto [least, most] = ts::aminmax<1>(b);
    return std::tuple(ts::norm<1>(a, 1), ts::norm<1>(a, INFINITY), ts::norm<1>(a, -INFINITY), ts::norm<1>(a, 0),
                      ts::norm<1>(a, 3), ts::norm<1>(a, ts::keepdims, 0.5), ts::dist(a, b, 1), ts::cdist(a, b),
                      ts::cosine_similarity(a, b), ts::normalize(b), ts::nanmean<1>(a), ts::count_nonzero<0>(b),
                      variance, deviation + 0 * mean + 0 * same, least, most, ts::trace(a),
                      ts::outer(ts::sum<1>(a), ts::sum<0>(b)), ts::dot(ts::sum<0>(a), ts::sum<0>(b)));
  };
  const Array a({2, 3}, {3, -4, 0, 1, 2, -2}), b({2, 3}, {0, 0, 0, 2, 0, -1});
  const auto of = run(trace<decltype(f), Float<2>, Float<2>>().view(), {a, b});
  expect_values(of[0], {7, 5});
  expect_values(of[1], {4, 2});
  expect_values(of[2], {0, 1});
  expect_values(of[3], {2, 3});
  expect_values(of[4], {std::cbrt(91), std::cbrt(17)});
  expect_values(of[5], {std::pow(std::sqrt(3) + 2, 2), std::pow(1 + 2 * std::sqrt(2), 2)});
  expect_values(of[6], {11});
  expect_values(of[7], {5, std::sqrt(18), 3, std::sqrt(6)});
  expect_values(of[8], {0, 4 / (3 * std::sqrt(5))});
  expect_values(of[9], {0, 0, 0, 2 / std::sqrt(5), 0, -1 / std::sqrt(5)});
  expect_values(of[10], {-1. / 3, 1. / 3});
  expect_values(of[11], {1, 0, 1});
  expect_values(of[12], {37. / 3, 13. / 3});
  expect_values(of[13], {std::sqrt(74. / 9), std::sqrt(26. / 9)});
  expect_values(of[14], {0, -1});
  expect_values(of[15], {0, 2});
  expect_values(of[16], {5});
  expect_values(of[17], {-2, 0, 1, 2, 0, -1});
  expect_values(of[18], {4 * 2 + -2 * -1});
  const auto nans = [](const auto& v) { return std::tuple(ts::nanmean<1>(v), ts::count_nonzero(v)); };
  const auto with_nans = run(trace<decltype(nans), Float<2>>().view(), {Array({2, 2}, {NAN, 3, NAN, NAN})});
  expect_values(with_nans[0], {3, NAN});
  expect_values(with_nans[1], {4});

  const auto check = [](auto function) { check_gradient<Float<3>>(function, {x}, first_order); };
  check([](const auto& v) {
    return ts::norm<1>(v, 1) + ts::norm<1>(v, 3) * ts::norm<1>(v, INFINITY) + ts::norm<1>(v, 1.5);
  });
  check([](const auto& v) {
    return ts::cosine_similarity<1>(v, v * v) + ts::sum<1>(ts::normalize<1>(v)) * ts::nanmean<1>(v);
  });
  check_gradient<Float<2>, Float<2>>(
      [](const auto& u, const auto& v) { return ts::cdist(u, v) * ts::dist(u, v, 3) + ts::cdist(v, u, 1); },
      {random_array({3, 4}, 8), random_array({3, 4}, 9)}, first_order);
  // Norms of 0 have slope 0, as in torch.
  const auto flat = [](const auto& v) { return ts::norm<1>(v, 3) + ts::norm<1>(v, 0.5) + ts::norm<1>(v, 1); };
  const auto slopes = run(trace<FirstGradient<decltype(flat)>, std::tuple<Float<2>>, Float<1>>().view(),
                          {Array({1, 3}, 0.0), Array({1}, 1)});
  EXPECT_EQ(slopes[1].data, (std::vector<double>{0, 0, 0}));
}

// The expected values are worked out by hand.
TEST(Reduction, DifferencesAndIntegrals) {
  const auto f = [](const auto& a, const auto& t) {
    return std::tuple(ts::diff(a), ts::diff<0>(a), ts::diff<1, 2>(a), ts::diff(a > 2.0), ts::trapezoid(a),
                      ts::trapezoid<1>(a, 0.5), ts::trapezoid<1>(a, t), ts::trapezoid<0>(a, ts::slice<0>(t, 0, 2)),
                      ts::cumulative_trapezoid(a, t), ts::diff<0, 2>(a), ts::trapezoid<0>(ts::slice<0>(a, 0, 1)));
  };
  const Array a({2, 4}, {1, 4, 9, 16, 2, 2, 0, -3}), t({4}, {0, 1, 3, 4});
  const auto of = run(trace<decltype(f), Float<2>, Float<1>>().view(), {a, t});
  expect_values(of[0], {3, 5, 7, 0, -2, -3});
  expect_values(of[1], {1, -2, -9, -19});
  expect_values(of[2], {2, 2, -2, -1});
  expect_values(of[3], {1, 0, 0, 0, 0, 0});
  expect_values(of[4], {21.5, 1.5});
  expect_values(of[5], {10.75, 0.75});
  expect_values(of[6], {2.5 + 13 + 12.5, 2 + 2 - 1.5});
  expect_values(of[7], {1.5, 3, 4.5, 6.5});
  expect_values(of[8], {2.5, 15.5, 28, 2, 4, 2.5});
  EXPECT_EQ(of[9].shape, (Shape{0, 4}));  // of two rows there is one difference, and none of order 2
  expect_values(of[10], {0, 0, 0, 0});
  check_gradient<Float<3>>([](const auto& v) { return ts::diff<2>(v * v); }, {x}, second_order);
  check_gradient<Float<3>>([](const auto& v) { return ts::trapezoid<1>(v * v, 0.25); }, {x}, second_order);
  check_gradient<Float<3>>([](const auto& v) { return ts::cumulative_trapezoid<2>(v * v, v); }, {x}, first_order);
}

TEST(Reduction, CovariancesAndKroneckerProducts) {
  const auto f = [](const auto& v, const auto& b) {
    return std::tuple(ts::cov(v), ts::cov(v, 0), ts::corrcoef(v), ts::kron(v, b),
                      ts::kron(ts::sum<1>(v), ts::sum<1>(b)), ts::deg2rad(v), ts::rad2deg(v));
  };
  const Array v = random_array({3, 5}, 11), b = random_array({2, 4}, 12);
  const auto of = run(trace<decltype(f), Float<2>, Float<2>>().view(), {v, b});
  double means[3]{}, sums[3][3]{};
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t k = 0; k < 5; ++k) means[i] += v.at({i, k}) / 5;
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 3; ++j)
      for (std::int64_t k = 0; k < 5; ++k) sums[i][j] += (v.at({i, k}) - means[i]) * (v.at({j, k}) - means[j]);
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 3; ++j) {
      EXPECT_NEAR(of[0].at({i, j}), sums[i][j] / 4, 1e-12);
      EXPECT_NEAR(of[1].at({i, j}), sums[i][j] / 5, 1e-12);
      EXPECT_NEAR(of[2].at({i, j}), sums[i][j] / std::sqrt(sums[i][i] * sums[j][j]), 1e-12);
    }
  EXPECT_EQ(of[3].shape, (Shape{6, 20}));
  for (std::int64_t i = 0; i < 6; ++i)
    for (std::int64_t j = 0; j < 20; ++j)
      EXPECT_NEAR(of[3].at({i, j}), v.at({i / 2, j / 4}) * b.at({i % 2, j % 4}), 1e-12);
  EXPECT_EQ(of[4].shape, (Shape{6}));
  EXPECT_NEAR(of[5].data[0], v.data[0] * std::acos(-1.0) / 180, 1e-12);
  EXPECT_NEAR(of[6].data[0], v.data[0] * 180 / std::acos(-1.0), 1e-12);
  check_gradient<Float<2>>([](const auto& w) { return ts::cov(w); }, {v}, second_order);
  check_gradient<Float<2>, Float<2>>([](const auto& w, const auto& u) { return ts::kron(w, u); }, {v, b}, second_order);
  // The diagonal is 1 everywhere, at the bound of the clamp: it has a slope on one side only.
  check_gradient<Float<2>>([](const auto& w) { return ts::triu(ts::corrcoef(w), 1); }, {v}, first_order);
  // One observation has no variance: 0 / 0.
  const auto one = [](const auto& w) { return ts::cov(w); };
  EXPECT_TRUE(std::isnan(run(trace<decltype(one), Float<2>>().view(), {Array({2, 1}, 1.0)}).at(0).data[0]));
}

// numpy.cross and numpy.vander
TEST(Reduce, CrossAndVander) {
  const auto f = [](const auto& a, const auto& b) {
    return std::tuple(ts::cross(a, b), ts::cross<0>(ts::transpose<1, 0>(a), ts::transpose<1, 0>(b)),
                      ts::vander(ts::sum<1>(a), 3), ts::vander<true>(ts::sum<1>(a), 4));
  };
  const Array a({2, 3}, {1, 2, 3, 0, -1, 1}), b({2, 3}, {4, 5, 6, 2, 2, 5});
  const auto got = run(trace<decltype(f), Float<2>, Float<2>>().view(), {a, b});
  EXPECT_EQ(got.at(0).data, (std::vector<double>{-3, 6, -3, -7, 2, 2}));
  EXPECT_EQ(got.at(1).data, (std::vector<double>{-3, -7, 6, 2, -3, 2}));
  EXPECT_EQ(got.at(2).data, (std::vector<double>{36, 6, 1, 0, 0, 1}));
  EXPECT_EQ(got.at(3).data, (std::vector<double>{1, 6, 36, 216, 1, 0, 0, 0}));
  check_gradient<Float<2>, Float<2>>([](const auto& u, const auto& v) { return ts::cross(u, v); }, {a, b},
                                     second_order);
  check_gradient<Float<1>>([](const auto& u) { return ts::vander(u, 3); }, {Array({2}, {0, 2})});
}

}  // namespace
