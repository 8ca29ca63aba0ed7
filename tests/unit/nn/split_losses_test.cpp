// Losses with weights of classes on meshes, split by rows and by classes, and inside of a shard_map.
#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/losses/margin_losses.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/ops/shard_map/shard_map.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;

namespace {

constexpr std::int64_t rows = 12, classes = 5;

std::vector<double> scores() {
  std::vector<double> made;
  for (int i = 0; i < rows * classes; ++i) made.push_back(2 * std::sin(1.7 * i) + 0.01 * i);
  return made;
}
std::vector<std::int32_t> targets() {
  std::vector<std::int32_t> made;
  for (int i = 0; i < rows; ++i) made.push_back(i == 4 ? -100 : i * 7 % 5);
  return made;
}
const std::vector<double> weights{0.5, 2, 1, 0.25, 3};

/// torch.nn.functional.cross_entropy(weight=, ignore_index=-100), and its gradient with respect to the scores.
struct Plain {
  double loss = 0;
  std::vector<double> gradient = std::vector<double>(rows * classes, 0);
  Plain() {
    const std::vector<double> x = scores();
    const std::vector<std::int32_t> t = targets();
    double total = 0;
    for (std::size_t i = 0; i < rows; ++i)
      if (t[i] >= 0) total += weights[static_cast<std::size_t>(t[i])];
    for (std::size_t i = 0; i < rows; ++i) {
      if (t[i] < 0) continue;
      const auto own = static_cast<std::size_t>(t[i]);
      double sum = 0;
      for (std::size_t c = 0; c < classes; ++c) sum += std::exp(x[i * classes + c]);
      loss += weights[own] * (std::log(sum) - x[i * classes + own]) / total;
      for (std::size_t c = 0; c < classes; ++c)
        gradient[i * classes + c] = weights[own] * (std::exp(x[i * classes + c]) / sum - (c == own ? 1 : 0)) / total;
    }
  }
};

constexpr auto whole = ts::compile([](const auto& x, const auto& t, const auto& w) {
  return ts::value_and_grad([&](const auto& own) { return ts::cross_entropy(own, t, w); })(x);
});
// Each device has the losses of its rows; their sum and the sum of the weights are summed over devices.
struct LocalLoss {
  constexpr auto operator()(auto x, auto t, auto w) const {
    const auto sum = ts::cross_entropy<ts::LossReduction::sum>(x, t, w);
    const auto total = ts::nll_loss<ts::LossReduction::sum>(x * 0.0 - 1.0, t, w);
    return ts::psum<"x">(sum) / ts::psum<"x">(total);
  }
};
constexpr auto mapped = ts::compile([](const auto& x, const auto& t, const auto& w) {
  return ts::value_and_grad(
      [&](const auto& own) { return ts::shard_map<"{x}, {x}, {} -> {}">(LocalLoss{})(own, t, w); })(x);
});

void expect_plain(const auto& made) {
  const Plain want;
  EXPECT_NEAR(ts::to_host(std::get<0>(made))[0], want.loss, 1e-12);
  const auto gradient = ts::to_host(std::get<1>(made));
  for (std::size_t i = 0; i < want.gradient.size(); ++i) EXPECT_NEAR(gradient[i], want.gradient[i], 1e-12) << i;
}

TEST(CrossEntropy, HasWeightsOfClassesOnMeshes) {
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    for (const bool by_class : {false, true}) {
      const ts::PartitionSpec spec = by_class ? ts::PartitionSpec{ts::none, "x"} : ts::PartitionSpec{"x"};
      const auto x = ts::shard(scores(), {rows, classes}, mesh, spec);
      const auto t = ts::shard(targets(), {rows}, mesh, by_class ? ts::PartitionSpec{} : ts::PartitionSpec{"x"});
      const auto w = ts::shard(weights, {classes}, mesh, {});
      expect_plain(whole(x, t, w));
      if (!by_class) expect_plain(mapped(x, t, w));
    }
  }
}

// Probabilities as targets, and a temperature that is a parameter; rows or classes are split, the latter unevenly.
TEST(CrossEntropy, OfProbabilitiesIsEqualOnMeshes) {
  constexpr auto soft = ts::compile([](const auto& x, const auto& w, const auto& scale) {
    return ts::value_and_grad([&](const auto& all) {
      const auto& [own, s] = all;
      const auto y = ts::softmax(own * -0.5);
      return ts::cross_entropy(own, y, w, ts::CrossEntropy{.label_smoothing = 0.1}) + ts::cross_entropy(own, y) +
             ts::info_nce(own, ts::sin(own), ts::exp(-s));
    })(std::tuple(x, scale));
  });
  double loss = 0, of_scale = 0;
  std::vector<double> first;
  for (const int devices : {1, 2, 3})
    for (const bool by_class : {false, true}) {
      const ts::Mesh mesh({{"x", devices}});
      const auto x = ts::shard(scores(), {rows, classes}, mesh,
                               by_class ? ts::PartitionSpec{ts::none, "x"} : ts::PartitionSpec{"x"});
      const auto [value, gradient] = soft(x, ts::shard(weights, {classes}, mesh, {}),
                                          ts::shard<0>(std::vector<double>{1.5}, ts::Shape{}, mesh, {}));
      const std::vector<double> slopes = ts::to_host(std::get<0>(gradient));
      if (first.empty()) loss = ts::to_host(value)[0], of_scale = ts::to_host(std::get<1>(gradient))[0], first = slopes;
      EXPECT_NEAR(ts::to_host(value)[0], loss, 1e-12);
      EXPECT_NEAR(ts::to_host(std::get<1>(gradient))[0], of_scale, 1e-12);
      for (std::size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(slopes[i], first[i], 1e-12) << i;
    }
  EXPECT_GT(std::abs(of_scale), 1e-3);
}

// Uneven shards: 12 rows become 7 of two and three devices, and 5 classes are never divisible.
TEST(MarginLosses, AreEqualOnMeshes) {
  constexpr auto all = ts::compile([](const auto& x, const auto& t, const auto& l, const auto& w) {
    const auto loss = [&](const auto& own) {
      return ts::multi_margin_loss(own, t, w) + ts::multilabel_soft_margin_loss(own, l, w) +
             ts::multilabel_margin_loss(own, l) + ts::bce_with_logits(own, ts::sigmoid(own), w) +
             ts::binary_cross_entropy(ts::sigmoid(own), ts::sigmoid(own * 0.5)) +
             ts::mean(ts::pairwise_distance(own, own * 0.5));
    };
    return ts::value_and_grad(loss)(x);
  });
  std::vector<double> first;
  const std::vector<double> x = scores();
  const std::vector<double> seven(x.begin(), x.begin() + 7 * classes);
  std::vector<std::int32_t> labels;
  for (int i = 0; i < 7 * classes; ++i) labels.push_back(i % 4 == 3 ? -1 : i * 3 % 5 % 2);
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    for (const bool by_class : {false, true}) {
      const ts::PartitionSpec spec = by_class ? ts::PartitionSpec{ts::none, "x"} : ts::PartitionSpec{"x"};
      const auto made = all(ts::shard(seven, {7, classes}, mesh, spec),
                            ts::shard(std::vector<std::int32_t>{0, 1, 2, 3, 4, 0, 1}, {7}, mesh, {}),
                            ts::shard(labels, {7, classes}, mesh, spec), ts::shard(weights, {classes}, mesh, {}));
      std::vector<double> got = ts::to_host(std::get<1>(made));
      got.push_back(ts::to_host(std::get<0>(made))[0]);
      if (first.empty()) first = got;
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], first[i], 1e-12) << i;
    }
  }
}

}  // namespace
