// Layers whose weight is computed from parameters: weight norm and spectral norm.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "../../support/gradients.hpp"
#include "plain.hpp"
#include <gtest/gtest.h>

#include <tessera/nn/nn.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/print/print.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;
using oracle::Array;
using oracle::Float;
using oracle::random_array;

namespace {

/// The norms over all dims but the last.
std::vector<double> norms_of(const Array& w) {
  std::vector<double> norms(static_cast<std::size_t>(w.shape.back()));
  for (std::size_t i = 0; i < w.data.size(); ++i) norms[i % norms.size()] += w.data[i] * w.data[i];
  for (double& norm : norms) norm = std::sqrt(norm);
  return norms;
}
Array with_lengths(Array w, const Array& length) {
  const std::vector<double> norms = norms_of(w);
  for (std::size_t i = 0; i < w.data.size(); ++i) w.data[i] *= length.data[i % norms.size()] / norms[i % norms.size()];
  return w;
}

constexpr ts::Conv<2> same{.padding = {1, 0}};
using Images = nn::Conv2d<same>;

struct Weighed {
  constexpr auto operator()(const auto& line, const auto& image, const auto& x, const auto& xs) const {
    return std::tuple(line(x), image(xs), image.layer(xs));
  }
};
TEST(WeightNorm, HasADirectionAndALengthForEachColumn) {
  const Array v = random_array({3, 4}, 1), b = random_array({4}, 2), length = random_array({4}, 3, 0.5, 2);
  const Array image = random_array({3, 1, 2, 5}, 4), image_bias = random_array({5}, 5), twice = [&] {
    Array made({5});
    for (std::size_t c = 0; c < 5; ++c) made.data[c] = 2 * norms_of(image)[c];
    return made;
  }();
  const Array x = random_array({2, 3}, 6), xs = random_array({2, 4, 3, 2}, 7);
  const auto got = oracle::run(
      oracle::compiled<Weighed, nn::WeightNorm<nn::Linear<>>, nn::WeightNorm<Images>, Float<2>, Float<4>>().view(),
      {v, b, length, image, image_bias, twice, x, xs});
  oracle::expect_near(got.at(0), plain::linear(x, with_lengths(v, length), &b), 1e-12);
  Array want = got.at(2);  // of twice the weight, but with the same bias
  for (std::size_t i = 0; i < want.data.size(); ++i) want.data[i] = 2 * want.data[i] - image_bias.data[i % 5];
  oracle::expect_near(got.at(1), want, 1e-12);
  oracle::check_gradient<Float<2>, Float<1>, Float<2>>(
      [](const auto& direction, const auto& lengths, const auto& in) {
        return ts::matmul(in, direction * (lengths / ts::norm<0>(direction, ts::keepdims)));
      },
      {v, length, x}, oracle::first_order);
}

/// The singular value that one power iteration from `right` finds, of a matrix [others, out], and its vectors.
struct Iterated {
  Array left, right;
  double value = 0;
  Iterated(const Array& w, const Array& before, bool iterate, const Array& old_left) : left(old_left), right(before) {
    const auto rows = static_cast<std::size_t>(w.shape[0]), columns = static_cast<std::size_t>(w.shape[1]);
    const auto unit = [](Array x) {
      double square = 0;
      for (const double v : x.data) square += v * v;
      for (double& v : x.data) v /= std::sqrt(square);
      return x;
    };
    const auto product = [&](bool to_left) {
      Array made({to_left ? w.shape[1] : w.shape[0]});
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j)
          made.data[to_left ? j : i] += w.data[i * columns + j] * (to_left ? right.data[i] : left.data[j]);
      return made;
    };
    if (iterate) left = unit(product(true)), right = unit(product(false));
    const Array image = product(true);
    for (std::size_t j = 0; j < columns; ++j) value += image.data[j] * left.data[j];
  }
};

struct TrainAndEvaluate {
  constexpr auto operator()(const auto& layer, const auto& vectors, const auto& x) const {
    const auto [y, next] = layer.train(x, vectors);
    return std::tuple(y, next, layer(x, vectors));
  }
};
TEST(SpectralNorm, DividesByTheLargestSingularValue) {
  const Array w = random_array({6, 4}, 1), b = random_array({4}, 2), left = random_array({4}, 3),
              right = random_array({6}, 4), x = random_array({2, 6}, 5);
  const auto got = oracle::run(
      oracle::compiled<TrainAndEvaluate, nn::SpectralNorm<nn::Linear<>>, nn::SingularVectors<>, Float<2>>().view(),
      {w, b, left, right, x});
  const auto expect = [&](const Array& y, const Iterated& want) {
    Array divided = w;
    for (double& v : divided.data) v /= want.value;
    oracle::expect_near(y, plain::linear(x, divided, &b), 1e-11);
  };
  const Iterated trained(w, right, true, left);
  expect(got.at(0), trained);
  oracle::expect_near(got.at(1), trained.left, 1e-12);
  oracle::expect_near(got.at(2), trained.right, 1e-12);
  expect(got.at(3), Iterated(w, right, false, left));
}

struct Slopes {
  constexpr auto operator()(const auto& layer, const auto& vectors, const auto& x) const {
    return ts::value_and_grad([](const auto& own, const auto& state, const auto& in) {
      const auto [y, next] = own.train(in, state);
      return std::tuple(ts::sum(ts::square(y)), next);
    })(layer, vectors, x);
  }
};
// Of a convolution on devices that split its weight: the vectors are those of the matrix [taps * in, out].
TEST(SpectralNorm, TrainsOnMeshes) {
  constexpr auto train = ts::compile(Slopes());
  std::vector<float> first, first_vectors;
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"data", devices}});
    const nn::ShardingStrategy strategy = nn::fsdp(mesh);
    nn::SpectralNorm<Images> layer{nn::conv2d<same>(ts::Key(1), 4, 7, {3, 1}, strategy)};
    const auto vectors = nn::singular_vectors(ts::Key(2), layer.layer, 50);
    // After many iterations the singular value is the largest one: the weight over it does not stretch its own vector.
    const std::vector<float> w = ts::to_host(layer.layer.weight), l = ts::to_host(vectors.left),
                             r = ts::to_host(vectors.right);
    ASSERT_EQ(l.size(), 7u);
    ASSERT_EQ(r.size(), 12u);
    double value = 0, square = 0;
    for (std::size_t j = 0; j < 7; ++j) {
      double image = 0;
      for (std::size_t i = 0; i < 12; ++i) image += static_cast<double>(w[i * 7 + j]) * static_cast<double>(r[i]);
      value += image * static_cast<double>(l[j]);
      square += image * image;
    }
    EXPECT_NEAR(square, value * value, 1e-4 * square);
    const auto x = ts::normal<float>(ts::Key(3), {5, 4, 3, 4}, mesh, {"data"});
    const auto [loss, gradient] = train(layer, vectors, x);
    const std::vector<float> slopes = ts::to_host(gradient.layer.weight), next = ts::to_host(std::get<1>(loss).left);
    if (first.empty()) first = slopes, first_vectors = next;
    for (std::size_t i = 0; i < slopes.size(); ++i) EXPECT_NEAR(slopes[i], first[i], 2e-4) << devices << ", " << i;
    for (std::size_t i = 0; i < next.size(); ++i) EXPECT_NEAR(next[i], first_vectors[i], 1e-5) << devices << ", " << i;
  }
}

TEST(WeightNorm, BeginsAsTheLayer) {
  const nn::ShardingStrategy strategy = nn::fsdp_tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}}));
  const auto layer = nn::linear(ts::Key(1), 6, 4, strategy);
  const auto made = nn::weight_norm(layer);
  EXPECT_EQ(ts::sharded_type_text(made.length), "f32[4]{model}");
  const std::vector<float> w = ts::to_host(layer.weight), lengths = ts::to_host(made.length);
  for (std::size_t c = 0; c < 4; ++c) {
    double square = 0;
    for (std::size_t i = 0; i < 6; ++i) square += std::pow(static_cast<double>(w[i * 4 + c]), 2);
    EXPECT_NEAR(lengths[c], std::sqrt(square), 1e-6);
  }
}

}  // namespace
