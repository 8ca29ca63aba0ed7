#include <algorithm>
#include <cmath>
#include <tuple>

#include "../../support/gradients.hpp"

#include <tessera/ops/reduction/pooling.hpp>
#include <tessera/ops/spatial/grid_sample.hpp>
#include <tessera/ops/spatial/interpolate.hpp>
#include <tessera/ops/spatial/pad_modes.hpp>
#include <tessera/ops/spatial/pixel_shuffle.hpp>
#include <tessera/ops/spatial/unfold.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

using enum ts::InterpolateMode;

/// Element i along dim 1 of the result is the sum of weight(i, j) times element j.
template <class Weight> Array along_rows(const Array& a, std::int64_t rows, Weight weight) {
  Array y({a.shape[0], rows, a.shape[2]});
  for_each_index(y.shape, [&](const Shape& i) {
    for (std::int64_t j = 0; j < a.shape[1]; ++j) y.at(i) += weight(i[1], j) * a.at({i[0], j, i[2]});
  });
  return y;
}
/// One where `index(i)`, brought into the dim, is j.
auto reads(std::int64_t n, auto index) {
  return [=](std::int64_t i, std::int64_t j) {
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::floor(index(static_cast<double>(i)))), 0, n - 1) == j
               ? 1.0
               : 0.0;
  };
}
double cubic_kernel(double t) {
  constexpr double a = -0.75;
  t = std::abs(t);
  if (t <= 1) return (a + 2) * t * t * t - (a + 3) * t * t + 1;
  return t < 2 ? a * (t * t * t - 5 * t * t + 8 * t - 4) : 0;
}
/// The weight of a kernel around position(i), where elements beyond the ends are those of the ends.
auto kernel(std::int64_t n, auto position, double (*of)(double)) {
  return [=](std::int64_t i, std::int64_t j) {
    double sum = 0;
    for (std::int64_t k = -4; k < n + 4; ++k)
      if (std::clamp<std::int64_t>(k, 0, n - 1) == j)
        sum += of(position(static_cast<double>(i)) - static_cast<double>(k));
    return sum;
  };
}
double tent(double t) { return std::fmax(0, 1 - std::abs(t)); }

/// The definition, from the page of torch.nn.functional.grid_sample.
Array sampled(const Array& images, const Array& grid, const ts::GridSample& o) {
  Array y({grid.shape[0], grid.shape[1], grid.shape[2], images.shape[3]});
  const auto position = [&](double g, std::int64_t n) {
    const double size = static_cast<double>(n);
    const double p = o.align_corners ? (g + 1) / 2 * (size - 1) : ((g + 1) * size - 1) / 2;
    return o.padding == ts::GridSamplePadding::border ? std::clamp(p, 0.0, size - 1) : p;
  };
  const auto weight = [&](double p, std::int64_t element) {
    const double off = static_cast<double>(element);
    return o.mode == ts::GridSampleMode::nearest ? (std::nearbyint(p) == off ? 1.0 : 0.0) : tent(p - off);
  };
  for_each_index(y.shape, [&](const Shape& i) {
    const double column = position(grid.at({i[0], i[1], i[2], 0}), images.shape[2]);
    const double row = position(grid.at({i[0], i[1], i[2], 1}), images.shape[1]);
    for_each_index({images.shape[1], images.shape[2]}, [&](const Shape& k) {
      y.at(i) += weight(row, k[0]) * weight(column, k[1]) * images.at({i[0], k[0], k[1], i[3]});
    });
  });
  return y;
}

}  // namespace

TEST(PadModes, RepeatElementsAsNumpyAndPyTorch) {
  using enum ts::PadMode;
  const auto made = results_of<Float<1>>(
      [](const auto& x) {
        return std::tuple(ts::pad<0, reflect>(x, 2, 1), ts::pad<0, symmetric>(x, 2, 3), ts::pad<0, replicate>(x, 2, 0),
                          ts::pad<0, circular>(x, 3, 1), ts::pad<0>(x, 1, 2, 7.5));
      },
      {Array({3}, {1, 2, 3})});
  EXPECT_EQ(made[0].data, (std::vector<double>{3, 2, 1, 2, 3, 2}));
  EXPECT_EQ(made[1].data, (std::vector<double>{2, 1, 1, 2, 3, 3, 2, 1}));
  EXPECT_EQ(made[2].data, (std::vector<double>{1, 1, 1, 2, 3}));
  EXPECT_EQ(made[3].data, (std::vector<double>{1, 2, 3, 1, 2, 3, 1}));
  EXPECT_EQ(made[4].data, (std::vector<double>{7.5, 1, 2, 3, 7.5, 7.5}));
  check_gradient<Float<2>>(
      [](const auto& x) {
        const auto y = ts::pad<1, reflect>(ts::pad<0, replicate>(x, 2, 1), 1, 2);
        return ts::sum(y * y) + ts::sum(ts::square(ts::pad<1, circular>(ts::pad<0, symmetric>(x, 1, 2), 3, 1)));
      },
      {random_array({3, 4}, 1)});
}

TEST(Interpolate, IsThatOfPyTorch) {
  const Array x = random_array({2, 5, 3}, 2);
  const auto made = results_of<Float<3>>(
      [](const auto& a) {
        return std::tuple(ts::interpolate<1, ts::Interpolate{.mode = nearest}>(a, 13),
                          ts::interpolate<1, ts::Interpolate{.mode = nearest_exact}>(a, 3), ts::interpolate<1>(a, 12),
                          ts::interpolate<1, ts::Interpolate{.align_corners = true}>(a, 9),
                          ts::interpolate<1, ts::Interpolate{.mode = ts::InterpolateMode::cubic}>(a, 11),
                          ts::interpolate<1, ts::Interpolate{ts::InterpolateMode::cubic, true}>(a, 3),
                          ts::interpolate<1>(a, 2), ts::interpolate<1, ts::Interpolate{.align_corners = true}>(a, 1));
      },
      {x});
  const auto centers = [](double m) { return [m](double i) { return (i + 0.5) * 5 / m - 0.5; }; };
  const auto corners = [](double m) { return [m](double i) { return i * 4 / (m - 1); }; };
  const auto from_first = [&](double m) { return [m](double i) { return std::fmax(0, (i + 0.5) * 5 / m - 0.5); }; };
  expect_near(made[0], along_rows(x, 13, reads(5, [](double i) { return i * 5 / 13; })), 1e-12);
  expect_near(made[1], along_rows(x, 3, reads(5, [](double i) { return (i + 0.5) * 5 / 3; })), 1e-12);
  expect_near(made[2], along_rows(x, 12, kernel(5, from_first(12), tent)), 1e-12);
  expect_near(made[3], along_rows(x, 9, kernel(5, corners(9), tent)), 1e-12);
  expect_near(made[4], along_rows(x, 11, kernel(5, centers(11), cubic_kernel)), 1e-12);
  expect_near(made[5], along_rows(x, 3, kernel(5, corners(3), cubic_kernel)), 1e-12);
  expect_near(made[6], along_rows(x, 2, kernel(5, from_first(2), tent)), 1e-12);
  expect_near(made[7], along_rows(x, 1, reads(5, [](double) { return 0; })), 1e-12);
  check_gradient<Float<3>>(
      [](const auto& a) {
        return ts::interpolate<2, ts::Interpolate{.mode = ts::InterpolateMode::cubic}>(ts::interpolate<1>(a * a, 7), 5);
      },
      {random_array({1, 3, 4}, 3)});
}

TEST(PixelShuffle, MovesFeaturesToPixels) {
  const Array x = random_array({2, 3, 2, 12}, 4);
  const auto made = results_of<Float<4>>(
      [](const auto& a) {
        const auto y = ts::pixel_shuffle(a, 2);
        return std::tuple(y, ts::pixel_unshuffle(y, 2), ts::channel_shuffle(a, 3));
      },
      {x});
  EXPECT_EQ(made[0].shape, (Shape{2, 6, 4, 3}));
  for_each_index(made[0].shape, [&](const Shape& i) {
    EXPECT_EQ(made[0].at(i), x.at({i[0], i[1] / 2, i[2] / 2, i[3] * 4 + i[1] % 2 * 2 + i[2] % 2}));
  });
  EXPECT_EQ(made[1].data, x.data);
  for_each_index(x.shape, [&](const Shape& i) {
    EXPECT_EQ(made[2].at(i), x.at({i[0], i[1], i[2], i[3] % 3 * 4 + i[3] / 3}));
  });
}

TEST(Unfold, HasWindowsAsRowsAndFoldAddsThem) {
  const Array x = random_array({2, 5, 6, 3}, 5);
  [[maybe_unused]] static constexpr ts::Unfold o{
      .window = {3, 2}, .strides = {2, 1}, .padding = {1, 0}, .dilation = {1, 3}};
  const auto made = results_of<Float<4>>(
      [](const auto& a) {
        const auto rows = ts::unfold(a, o);
        return std::tuple(rows, ts::fold(rows, {5, 6}, o), ts::conv_general_dilated_patches(a, o));
      },
      {x});
  Array rows({2, 3 * 3, 3 * 6}), image(x.shape);
  for_each_index({2, 3, 3, 3, 3, 2},
                 [&](const Shape& i) {  // batch, window row and column, feature, row and column in it
                   const std::int64_t r = i[1] * 2 + i[4] - 1, c = i[2] + i[5] * 3;
                   if (r < 0 || r >= 5) return;
                   rows.at({i[0], i[1] * 3 + i[2], i[3] * 6 + i[4] * 2 + i[5]}) = x.at({i[0], r, c, i[3]});
                   image.at({i[0], r, c, i[3]}) += x.at({i[0], r, c, i[3]});
                 });
  EXPECT_EQ(made[0].shape, rows.shape);
  EXPECT_EQ(made[0].data, rows.data);
  expect_near(made[1], image, 1e-12);
  EXPECT_EQ(made[2].shape, (Shape{2, 3, 3, 18}));
  EXPECT_EQ(made[2].data, rows.data);
  check_gradient<Float<4>>([](const auto& a) { return ts::fold(ts::square(ts::unfold(a, o)), {5, 6}, o); }, {x});
}

TEST(Pools, OfVolumes) {
  const Array x = random_array({1, 4, 5, 3, 2}, 6);
  const auto made = results_of<Float<5>>(
      [](const auto& a) {
        return std::tuple(ts::max_pool3d(a, {.window = {2, 3, 2}, .strides = {2, 1, 1}}),
                          ts::avg_pool3d(a, {.window = {2, 2, 3}, .strides = {1, 2, 1}, .padding = {0, 1, 0}}),
                          ts::adaptive_avg_pool3d(a, {2, 1, 3}));
      },
      {x});
  Array most({1, 2, 3, 2, 2}, -1e9), mean({1, 3, 3, 1, 2}), adapted({1, 2, 1, 3, 2});
  for_each_index(most.shape, [&](const Shape& i) {
    for_each_index({2, 3, 2}, [&](const Shape& k) {
      most.at(i) = std::fmax(most.at(i), x.at({0, 2 * i[1] + k[0], i[2] + k[1], i[3] + k[2], i[4]}));
    });
  });
  for_each_index(mean.shape, [&](const Shape& i) {
    for_each_index({2, 2, 3}, [&](const Shape& k) {
      const std::int64_t row = 2 * i[2] + k[1] - 1;
      if (row >= 0 && row < 5) mean.at(i) += x.at({0, i[1] + k[0], row, i[3] + k[2], i[4]}) / 12;
    });
  });
  for_each_index(x.shape, [&](const Shape& i) { adapted.at({0, i[1] / 2, 0, i[3], i[4]}) += x.at(i) / 10; });
  expect_near(made[0], most, 1e-12);
  expect_near(made[1], mean, 1e-12);
  expect_near(made[2], adapted, 1e-12);
}

TEST(GridSample, IsThatOfPyTorch) {
  using enum ts::GridSamplePadding;
  static constexpr ts::GridSample corners{.align_corners = true}, near{.mode = ts::GridSampleMode::nearest},
      held{.padding = border}, near_held{ts::GridSampleMode::nearest, border, true};
  const Array images = random_array({2, 4, 5, 3}, 7), grid = random_array({2, 3, 6, 2}, 8, -1.4, 1.4);
  const auto made = results_of<Float<4>, Float<4>>(
      [](const auto& x, const auto& g) {
        return std::tuple(ts::grid_sample(x, g), ts::grid_sample<corners>(x, g), ts::grid_sample<near>(x, g),
                          ts::grid_sample<held>(x, g), ts::grid_sample<near_held>(x, g));
      },
      {images, grid});
  expect_near(made[0], sampled(images, grid, {}), 1e-12);
  expect_near(made[1], sampled(images, grid, corners), 1e-12);
  expect_near(made[2], sampled(images, grid, near), 1e-12);
  expect_near(made[3], sampled(images, grid, held), 1e-12);
  expect_near(made[4], sampled(images, grid, near_held), 1e-12);
  check_gradient<Float<4>, Float<4>>([](const auto& x, const auto& g) { return ts::grid_sample(x, g); },
                                     {random_array({1, 3, 4, 2}, 9), random_array({1, 2, 3, 2}, 10)}, first_order);
}
