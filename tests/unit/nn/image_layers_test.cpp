#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "../../support/gradients.hpp"
#include "../base/expect_error.hpp"
#include "layer_calls.hpp"
#include <gtest/gtest.h>

#include <tessera/nn/nn.hpp>
#include <tessera/parallel/fsdp.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/print/print.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;
using oracle::Array;
using oracle::random_array;
using tessera_test::meaning;

namespace {

constexpr ts::Conv<2> halved{.strides = {2, 2}, .padding = {1, 0}};
constexpr ts::Conv<1> grouped{.groups = 2};
constexpr ts::ConvTranspose<2> doubled{.strides = {2, 2}, .groups = 2};
constexpr ts::Conv<3> of_volumes{.strides = {1, 2, 1}, .padding = {1, 0, 0}};
constexpr ts::ConvTranspose<3> back_of_volumes{.strides = {2, 1, 1}};

struct Convolve {
  constexpr auto operator()(const auto& image, const auto& line, const auto& back, const auto& x,
                            const auto& xs) const {
    return std::tuple(image(x), ts::conv2d(x, image.weight, halved), line(xs), ts::conv1d(xs, line.weight, grouped),
                      back(x), ts::conv_transpose2d(x, back.weight, doubled));
  }
};
Array plus_bias(Array y, const Array& bias) {
  for (std::size_t i = 0; i < y.data.size(); ++i) y.data[i] += bias.data[i % bias.data.size()];
  return y;
}

// The convolutions themselves are tested by ops/convolution_test.cpp.
TEST(Convolutions, AddABias) {
  const Array bias = random_array({6}, 2), back_bias = random_array({6}, 5);
  const auto got =
      oracle::run(oracle::trace<Convolve, nn::Conv2d<halved>, nn::Conv1d<grouped, float, false>,
                                nn::ConvTranspose2d<doubled>, oracle::Float<4>, oracle::Float<3>>()
                      .view(),
                  {random_array({3, 2, 4, 6}, 1), bias, random_array({3, 2, 6}, 3), random_array({2, 3, 4, 3}, 4),
                   back_bias, random_array({2, 5, 4, 4}, 6), random_array({2, 7, 4}, 7)});
  EXPECT_EQ(got.at(0).shape, (ts::Shape{2, 3, 2, 6}));
  EXPECT_EQ(got.at(4).shape, (ts::Shape{2, 10, 9, 6}));
  oracle::expect_near(got[0], plus_bias(got.at(1), bias), 1e-12);
  oracle::expect_near(got.at(2), got.at(3), 0);
  oracle::expect_near(got[4], plus_bias(got.at(5), back_bias), 1e-12);
}

TEST(Convolutions, SumTheirWindow) {
  const Array x({1, 3, 3, 1}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  oracle::expect_near(meaning<nn::Conv2d<>, oracle::Float<4>>({Array({2, 2, 1, 1}, 1), Array(ts::Shape{1}, 0.5), x}),
                      Array({1, 2, 2, 1}, {12.5, 16.5, 24.5, 28.5}), 1e-12);
}

/// All values are within the limit, and spread as uniform ones: their squares have a mean of limit^2 / 3.
template <class Tensor> void expect_uniform(const Tensor& tensor, const ts::Shape& shape, double limit) {
  EXPECT_EQ(ts::shape(tensor), shape);
  double square = 0;
  const auto values = ts::to_host(tensor);
  for (const float value : values) {
    const double v = static_cast<double>(value);
    EXPECT_LE(std::fabs(v), limit * (1 + 1e-6));
    square += v * v / static_cast<double>(values.size());
  }
  EXPECT_NEAR(square / (limit * limit / 3), 1, 0.4) << "limit " << limit;
}

struct ConvolveVolumes {
  constexpr auto operator()(const auto& layer, const auto& back, const auto& x) const {
    return std::tuple(layer(x), ts::conv3d(x, layer.weight, of_volumes), back(x),
                      ts::conv_transpose3d(x, back.weight, back_of_volumes));
  }
};
TEST(Convolutions, OfVolumes) {
  const Array bias = random_array({4}, 2), back_bias = random_array({2}, 4);
  const auto got = oracle::run(
      oracle::trace<ConvolveVolumes, nn::Conv3d<of_volumes>, nn::ConvTranspose3d<back_of_volumes>, oracle::Float<5>>()
          .view(),
      {random_array({2, 2, 1, 3, 4}, 1), bias, random_array({2, 1, 2, 3, 2}, 3), back_bias,
       random_array({2, 3, 4, 2, 3}, 5)});
  EXPECT_EQ(got.at(0).shape, (ts::Shape{2, 4, 2, 2, 4}));
  EXPECT_EQ(got.at(2).shape, (ts::Shape{2, 6, 4, 3, 2}));
  oracle::expect_near(got[0], plus_bias(got.at(1), bias), 1e-12);
  oracle::expect_near(got[2], plus_bias(got.at(3), back_bias), 1e-12);
}

// torch.nn.Conv2d and ConvTranspose2d: the fan is that of the second dim of PyTorch's weight, [out, in / groups, ...]
// and [in, out / groups, ...].
TEST(Convolutions, StartAsInPyTorch) {
  const nn::ShardingStrategy strategy = nn::fsdp_tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}}));
  const auto image = nn::conv2d<halved>(ts::Key(1), 8, 128, {3, 2}, strategy);
  expect_uniform(image.weight, {3, 2, 8, 128}, 1 / std::sqrt(3.0 * 2 * 8));
  expect_uniform(image.bias, {128}, 1 / std::sqrt(3.0 * 2 * 8));
  EXPECT_EQ(ts::sharded_type_text(image.weight), "f32[3,2,8,128]{-,-,data*,model}");
  EXPECT_EQ(ts::sharded_type_text(image.bias), "f32[128]{model}");
  const auto line = nn::conv1d<grouped, float, false>(ts::Key(2), 16, 64, 5, strategy, nn::Role::row);
  expect_uniform(line.weight, {5, 8, 64}, 1 / std::sqrt(5.0 * 8));
  EXPECT_EQ(ts::sharded_type_text(line.weight), "f32[5,8,64]{-,model,data*}");
  const auto back = nn::conv_transpose2d<doubled>(ts::Key(3), 32, 16, {2, 3}, nn::single(ts::Mesh{}));
  expect_uniform(back.weight, {2, 3, 32, 8}, 1 / std::sqrt(2.0 * 3 * 8));
  expect_uniform(nn::conv_transpose1d(ts::Key(4), 32, 64, 3, strategy).weight, {3, 32, 64}, 1 / std::sqrt(3.0 * 64));
  const auto volumes = nn::conv3d(ts::Key(5), 8, 16, {3, 2, 1}, strategy);
  expect_uniform(volumes.weight, {3, 2, 1, 8, 16}, 1 / std::sqrt(6.0 * 8));
  EXPECT_EQ(ts::sharded_type_text(volumes.weight), "f32[3,2,1,8,16]{-,-,-,data*,model}");
  expect_uniform(nn::conv_transpose3d(ts::Key(6), 8, 16, {3, 2, 1}, strategy).weight, {3, 2, 1, 8, 16},
                 1 / std::sqrt(6.0 * 16));
  tessera_test::expect_error(
      ts::errc::not_divisible, [&] { nn::conv1d<grouped>(ts::Key(5), 4, 9, 3, strategy); },
      "[conv1d] groups: 9 features are not divisible by 2 groups", "layers_test.cpp:");
  tessera_test::expect_error(
      ts::errc::not_divisible, [&] { nn::group_norm(4, 6, strategy); },
      "[group_norm] groups: 6 features are not divisible by 4 groups");
}

struct TrainAndEvaluate {
  constexpr auto operator()(const auto& norm, const auto& running, const auto& x) const {
    const auto [y, next] = norm.train(x, running);
    const auto slope = ts::grad([](const auto& in, const auto& layer, const auto& old) {
      const auto both = layer.train(in, old);
      return ts::sum(std::get<1>(both).mean) + ts::sum(std::get<1>(both).variance);
    })(x, norm, running);
    return std::tuple(y, next, norm(x, running), norm(x), slope);
  }
};
std::vector<Array> batch_norm(const std::vector<Array>& arguments) {
  const oracle::Program program =
      oracle::compiled<TrainAndEvaluate, nn::BatchNorm<>, nn::RunningStatistics<>, oracle::Float<4>>();
  return oracle::run(program.view(), arguments);
}

TEST(BatchNorm, KeepsRunningStatistics) {
  const Array gain = random_array({3}, 1), bias = random_array({3}, 2), mean = random_array({3}, 3),
              variance = random_array({3}, 4, 0.5, 2), x = random_array({4, 2, 5, 3}, 5, 1, 3);
  const double epsilon = 0.01, momentum = 0.3, count = 4 * 2 * 5;
  const auto got = batch_norm({gain, bias, Array::number(epsilon), Array::number(momentum), mean, variance, x});
  Array y(x.shape), evaluated(x.shape), next_mean = mean, next_variance = variance;
  for (std::size_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0;
    for (std::size_t i = c; i < x.data.size(); i += 3) sum += x.data[i];
    for (std::size_t i = c; i < x.data.size(); i += 3) squares += std::pow(x.data[i] - sum / count, 2);
    const auto normalized = [&](double v, double m, double s) {
      return (v - m) / std::sqrt(s + epsilon) * gain.data[c] + bias.data[c];
    };
    for (std::size_t i = c; i < x.data.size(); i += 3) {
      y.data[i] = normalized(x.data[i], sum / count, squares / count);
      evaluated.data[i] = normalized(x.data[i], mean.data[c], variance.data[c]);
    }
    next_mean.data[c] = (1 - momentum) * mean.data[c] + momentum * sum / count;
    next_variance.data[c] = (1 - momentum) * variance.data[c] + momentum * squares / (count - 1);
  }
  oracle::expect_near(got.at(0), y, 1e-12);
  oracle::expect_near(got.at(1), next_mean, 1e-12);
  oracle::expect_near(got.at(2), next_variance, 1e-12);
  oracle::expect_near(got.at(3), evaluated, 1e-12);
  oracle::expect_near(got.at(4), got.at(0), 0, "without running statistics");
  oracle::expect_near(got.at(5), Array(x.shape), 0, "running statistics have no gradient");
}

// torch.nn.BatchNorm1d(1) after a batch of 1, 2, 3, 4: running_mean 0.25, running_var 0.9 + 0.1 * 5 / 3.
TEST(BatchNorm, StartsAsInPyTorch) {
  const auto after = [](const Array& x) {
    const Array zero(ts::Shape{1}), one(ts::Shape{1}, 1);
    return batch_norm({one, zero, Array::number(1e-5), Array::number(0.1), zero, one, x});
  };
  const auto got = after(Array({2, 1, 2, 1}, {1, 2, 3, 4}));
  EXPECT_NEAR(got.at(1).data[0], 0.25, 1e-12);
  EXPECT_NEAR(got.at(2).data[0], 0.9 + 0.1 * 5 / 3, 1e-12);
  const auto single = after(Array({1, 1, 1, 1}, 7));  // PyTorch refuses it
  EXPECT_NEAR(single.at(1).data[0], 0.7, 1e-12);
  EXPECT_NEAR(single.at(2).data[0], 0.9, 1e-12);

  const nn::BatchNorm<> made = nn::batch_norm(2, nn::single(ts::Mesh{}));
  const nn::RunningStatistics<> running = nn::running_statistics(2, nn::single(ts::Mesh{}));
  EXPECT_EQ(made.momentum.value(), 0.1);
  EXPECT_EQ(made.epsilon.value(), 1e-5);
  EXPECT_EQ(ts::to_host(made.gain), (std::vector<float>{1, 1}));
  EXPECT_EQ(ts::to_host(made.bias), (std::vector<float>{0, 0}));
  EXPECT_EQ(ts::to_host(running.mean), (std::vector<float>{0, 0}));
  EXPECT_EQ(ts::to_host(running.variance), (std::vector<float>{1, 1}));
}

TEST(InstanceNorm, NormalizesTheFeaturesOfEachImage) {
  const Array gain = random_array({3}, 1), bias = random_array({3}, 2), x = random_array({2, 2, 4, 3}, 3);
  Array want(x.shape);
  oracle::for_each_index({2, 3}, [&](const ts::Shape& i) {
    double mean = 0, variance = 0;
    const auto each = [&](auto visit) {
      oracle::for_each_index({2, 4}, [&](const ts::Shape& at) { visit(ts::Shape{i[0], at[0], at[1], i[1]}); });
    };
    each([&](const ts::Shape& at) { mean += x.at(at) / 8; });
    each([&](const ts::Shape& at) { variance += std::pow(x.at(at) - mean, 2) / 8; });
    const auto c = static_cast<std::size_t>(i[1]);
    each([&](const ts::Shape& at) {
      want.at(at) = (x.at(at) - mean) / std::sqrt(variance + 0.01) * gain.data[c] + bias.data[c];
    });
  });
  oracle::expect_near(
      meaning<nn::InstanceNorm<>, oracle::Float<4>>({gain, bias, Array::number(0.01), Array::number(0.1), x}), want,
      1e-12);
}

TEST(GroupNorm, NormalizesGroupsOfFeaturesOfEachImage) {
  const Array gain = random_array({6}, 1), bias = random_array({6}, 2), x = random_array({2, 2, 3, 6}, 3);
  Array want(x.shape);
  for (std::int64_t n = 0; n < 2; ++n)
    for (std::int64_t g = 0; g < 3; ++g) {
      const auto each = [&](auto visit) {
        oracle::for_each_index({2, 3, 2}, [&](const ts::Shape& i) { visit(ts::Shape{n, i[0], i[1], 2 * g + i[2]}); });
      };
      double mean = 0, variance = 0;
      each([&](const ts::Shape& i) { mean += x.at(i) / 12; });
      each([&](const ts::Shape& i) { variance += std::pow(x.at(i) - mean, 2) / 12; });
      each([&](const ts::Shape& i) {
        const auto c = static_cast<std::size_t>(i[3]);
        want.at(i) = (x.at(i) - mean) / std::sqrt(variance + 0.01) * gain.data[c] + bias.data[c];
      });
    }
  oracle::expect_near(
      meaning<nn::GroupNorm<>, oracle::Float<4>>({gain, bias, Array::number(3), Array::number(0.01), x}), want, 1e-12);
}

}  // namespace
