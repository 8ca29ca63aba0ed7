// Losses of margins, likelihoods and sequences; element_losses_test.cpp has the others.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "../../support/gradients.hpp"
#include "../base/expect_error.hpp"
#include "plain.hpp"
#include <gtest/gtest.h>

#include <tessera/nn/nn.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
using oracle::Array;
using oracle::Float;
using oracle::Int;
using oracle::random_array;
constexpr auto each_one = ts::LossReduction::each;
constexpr auto summed = ts::LossReduction::sum;

namespace {

template <class... Args, class F> std::vector<Array> run(F, const std::vector<Array>& arguments) {
  return oracle::run(oracle::trace<F, Args...>().view(), arguments);
}
/// The loss of each element, their mean and their sum: what a function of one loss returns.
void expect_losses(const std::vector<Array>& got, const Array& want) {
  double sum = 0;
  for (const double v : want.data) sum += v;
  oracle::expect_near(got.at(0), want, 1e-12, "each");
  oracle::expect_near(got.at(1), Array::number(sum / static_cast<double>(want.data.size())), 1e-12, "mean");
  oracle::expect_near(got.at(2), Array::number(sum), 1e-12, "sum");
}

// Without options: -log softmax(logits)[target].
TEST(ElementLosses, OfCrossEntropy) {
  const Array logits = random_array({3, 4}, 1, -2, 2), targets({3}, {0, 3, 1});
  Array want({3});
  for (std::size_t i = 0; i < 3; ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < 4; ++j) sum += std::exp(logits.data[4 * i + j]);
    want.data[i] = std::log(sum) - logits.data[4 * i + static_cast<std::size_t>(targets.data[i])];
  }
  expect_losses(run<Float<2>, Int<1>>(
                    [](const auto& a, const auto& b) {
                      return std::tuple(ts::cross_entropy<each_one>(a, b), ts::cross_entropy(a, b),
                                        ts::cross_entropy<summed>(a, b));
                    },
                    {logits, targets}),
                want);
}

// The formulas of the pages of torch.nn.SmoothL1Loss, GaussianNLLLoss, PoissonNLLLoss and torchvision's focal loss.
TEST(ElementLosses, OfDistancesAndLikelihoods) {
  const Array x = random_array({3, 4}, 1, -2, 2), y = random_array({3, 4}, 2, -2, 2);
  const Array variance = random_array({3, 4}, 3, 0.1, 2), probabilities = random_array({3, 4}, 4, 0, 1);
  const Array counts({3, 4}, {0, 1, 2, 3, 7, 0, 1, 1, 2, 5, 4, 0}), rates = random_array({3, 4}, 5, 0.1, 3);
  Array smooth({3, 4}), gaussian({3, 4}), poisson({3, 4}), of_rates({3, 4}), focal({3, 4}), full({3, 4});
  for (std::size_t i = 0; i < 12; ++i) {
    const double d = std::fabs(x.data[i] - y.data[i]), t = counts.data[i], v = variance.data[i];
    smooth.data[i] = d < 0.5 ? d * d : d - 0.25;
    gaussian.data[i] = 0.5 * (std::log(v) + d * d / v) + 0.5 * std::log(2 * M_PI);
    poisson.data[i] = std::exp(x.data[i]) - t * x.data[i];
    full.data[i] = poisson.data[i] + (t > 1 ? t * std::log(t) - t + 0.5 * std::log(2 * M_PI * t) : 0);
    of_rates.data[i] = rates.data[i] - t * std::log(rates.data[i] + 1e-8);
    const double p = 1 / (1 + std::exp(-x.data[i])), q = probabilities.data[i];
    const double ce = -q * std::log(p) - (1 - q) * std::log(1 - p), hit = p * q + (1 - p) * (1 - q);
    focal.data[i] = (0.25 * q + 0.75 * (1 - q)) * ce * (1 - hit) * (1 - hit);
  }
  expect_losses(run<Float<2>, Float<2>>(
                    [](const auto& a, const auto& b) {
                      return std::tuple(ts::smooth_l1_loss<each_one>(a, b, 0.5), ts::smooth_l1_loss(a, b, 0.5),
                                        ts::smooth_l1_loss<summed>(a, b, 0.5));
                    },
                    {x, y}),
                smooth);
  expect_losses(run<Float<2>, Float<2>, Float<2>>(
                    [](const auto& a, const auto& b, const auto& v) {
                      constexpr ts::GaussianNll options{.full = true};
                      return std::tuple(ts::gaussian_nll_loss<each_one>(a, b, v, options),
                                        ts::gaussian_nll_loss(a, b, v, options),
                                        ts::gaussian_nll_loss<summed>(a, b, v, options));
                    },
                    {x, y, variance}),
                gaussian);
  expect_losses(run<Float<2>, Float<2>>(
                    [](const auto& a, const auto& b) {
                      return std::tuple(ts::sigmoid_focal_loss<each_one>(a, b), ts::sigmoid_focal_loss(a, b),
                                        ts::sigmoid_focal_loss<summed>(a, b));
                    },
                    {x, probabilities}),
                focal);
  const auto got = run<Float<2>, Float<2>, Float<2>>(
      [](const auto& a, const auto& t, const auto& r) {
        constexpr ts::PoissonNll of_rate{.log_input = false}, and_constant{.full = true};
        return std::tuple(ts::poisson_nll_loss<each_one>(a, t), ts::poisson_nll_loss<each_one, of_rate>(r, t),
                          ts::poisson_nll_loss<each_one, and_constant>(a, t));
      },
      {x, counts, rates});
  oracle::expect_near(got.at(0), poisson, 1e-12);
  oracle::expect_near(got.at(1), of_rates, 1e-12);
  oracle::expect_near(got.at(2), full, 1e-12);

  // A beta of 0 is l1_loss; a variance below eps counts as eps; a variance may be a number.
  const auto edges = run<Float<2>, Float<2>>(
      [](const auto& a, const auto& b) {
        return std::tuple(ts::smooth_l1_loss(a, b, 0.0), ts::l1_loss(a, b),
                          ts::gaussian_nll_loss(a, b, ts::zeros_like(a), ts::GaussianNll{.eps = 0.25}),
                          ts::gaussian_nll_loss(a, b, 0.25));
      },
      {x, y});
  oracle::expect_near(edges[0], edges[1], 1e-12);
  oracle::expect_near(edges[2], edges[3], 1e-12);
  constexpr auto negative = [](const auto& a) { return ts::smooth_l1_loss(a, a, -1.0); };
  tessera_test::expect_error(
      ts::errc::option, [&] { run<Float<1>>(negative, {Array(ts::Shape{1})}); }, "beta");

  oracle::check_gradient<Float<2>, Float<2>, Float<2>, Float<2>, Float<2>>(
      [](const auto& a, const auto& b, const auto& v, const auto& q, const auto& r) {
        return ts::smooth_l1_loss<each_one>(a, b, 0.5) + ts::gaussian_nll_loss<each_one>(a, b, v) +
               ts::sigmoid_focal_loss<each_one>(a, q) +
               ts::poisson_nll_loss<each_one, ts::PoissonNll{.log_input = false, .full = true}>(r, q * 4.0);
      },
      {x, y, variance, random_array({3, 4}, 6, 0.3, 0.9), rates}, oracle::first_order);
}

// The formulas of the pages of torch.nn.MarginRankingLoss, HingeEmbeddingLoss, CosineEmbeddingLoss, TripletMarginLoss.
TEST(MarginLosses, AreThePublishedFormulas) {
  const Array x = random_array({4, 3}, 1), y = random_array({4, 3}, 2), z = random_array({4, 3}, 3);
  const Array signs({4, 3}, {1, -1, 1, 1, -1, -1, 1, -1, 1, 0, 1, -1}), rows({4}, {1, -1, -1, 1});
  Array ranking({4, 3}), hinge({4, 3}), cosine({4}), triplet({4}), cubes({4});
  for (std::size_t i = 0; i < 12; ++i) {
    const double s = signs.data[i], a = x.data[i];
    ranking.data[i] = std::max(0.0, -s * (a - y.data[i]) + 0.1);
    hinge.data[i] = (s != -1 ? a : 0) + (s != 1 ? std::max(0.0, 0.7 - a) : 0);
  }
  for (std::size_t n = 0; n < 4; ++n) {
    const plain::Row a = plain::row(x, n), b = plain::row(y, n), c = plain::row(z, n);
    double dot = 0, aa = 1e-12, bb = 1e-12;
    for (std::size_t i = 0; i < 3; ++i) dot += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
    const double cos = dot / std::sqrt(aa * bb);
    cosine.data[n] = rows.data[n] == 1 ? 1 - cos : std::max(0.0, cos - 0.2);
    const auto distance = [](const plain::Row& from, const plain::Row& to, double p) {
      double sum = 0;
      for (std::size_t i = 0; i < 3; ++i) sum += std::pow(std::fabs(from[i] - to[i] + 1e-6), p);
      return std::pow(sum, 1 / p);
    };
    triplet.data[n] = std::max(0.0, distance(a, b, 2) - distance(a, c, 2) + 0.5);
    cubes.data[n] = std::max(0.0, distance(a, b, 3) - std::min(distance(a, c, 3), distance(b, c, 3)) + 1);
  }
  expect_losses(run<Float<2>, Float<2>, Float<2>>(
                    [](const auto& a, const auto& b, const auto& s) {
                      return std::tuple(ts::margin_ranking_loss<each_one>(a, b, s, 0.1),
                                        ts::margin_ranking_loss(a, b, s, 0.1),
                                        ts::margin_ranking_loss<summed>(a, b, s, 0.1));
                    },
                    {x, y, signs}),
                ranking);
  expect_losses(run<Float<2>, Int<2>>(
                    [](const auto& a, const auto& s) {
                      return std::tuple(ts::hinge_embedding_loss<each_one>(a, s, 0.7),
                                        ts::hinge_embedding_loss(a, s, 0.7),
                                        ts::hinge_embedding_loss<summed>(a, s, 0.7));
                    },
                    {x, signs}),
                hinge);
  expect_losses(run<Float<2>, Float<2>, Int<1>>(
                    [](const auto& a, const auto& b, const auto& s) {
                      return std::tuple(ts::cosine_embedding_loss<each_one>(a, b, s, 0.2),
                                        ts::cosine_embedding_loss(a, b, s, 0.2),
                                        ts::cosine_embedding_loss<summed>(a, b, s, 0.2));
                    },
                    {x, y, rows}),
                cosine);
  expect_losses(run<Float<2>, Float<2>, Float<2>>(
                    [](const auto& a, const auto& b, const auto& c) {
                      return std::tuple(ts::triplet_margin_loss<each_one>(a, b, c, 0.5),
                                        ts::triplet_margin_loss(a, b, c, 0.5),
                                        ts::triplet_margin_loss<summed>(a, b, c, 0.5));
                    },
                    {x, y, z}),
                triplet);
  constexpr auto swapped = [](const auto& a, const auto& b, const auto& c) {
    return ts::triplet_margin_loss<each_one, ts::TripletMargin{.p = 3, .swap = true}>(a, b, c);
  };
  oracle::expect_near((run<Float<2>, Float<2>, Float<2>>(swapped, {x, y, z}).at(0)), cubes, 1e-12);

  oracle::check_gradient<Float<2>, Float<2>, Float<2>, Float<2>, Int<1>>(
      [](const auto& a, const auto& b, const auto& c, const auto& s, const auto& r) {
        return ts::sum<1>(ts::margin_ranking_loss<each_one>(a, b, s, 0.1) +
                          ts::hinge_embedding_loss<each_one>(a, s, 0.7)) +
               ts::cosine_embedding_loss<each_one>(a, b, r, 0.2) + ts::triplet_margin_loss<each_one>(a, b, c, 0.5) +
               ts::triplet_margin_loss<each_one, ts::TripletMargin{.p = 1}>(a, b, c);
      },
      {x, y, z, signs, rows}, oracle::first_order);
}

// The argument `weight` of torch.nn.MultiMarginLoss, MultiLabelSoftMarginLoss and BCEWithLogitsLoss (pos_weight), as
// PyTorch's kernels compute it; and the formulas of BCELoss, MultiLabelMarginLoss and PairwiseDistance.
TEST(MarginLosses, HaveWeightsOfClasses) {
  const Array x = random_array({4, 3}, 1, -2, 2), y = random_array({4, 3}, 2), weight({3}, {0.5, 2, 0.25});
  const Array labels({4, 3}, {1, 0, 1, 1, 0, 0, 1, 0, 1, 0, 1, 0}), targets({4}, {2, 0, 1, 2});
  const Array many({4, 3}, {2, 0, -1, 1, -1, 2, 0, 1, 2, -1, 0, 0});
  Array margins({4}), soft({4}), positive({4, 3}), several({4}), apart({4});
  for (std::size_t n = 0; n < 4; ++n) {
    const plain::Row a = plain::row(x, n), b = plain::row(y, n), l = plain::row(labels, n), m = plain::row(many, n);
    const auto t = static_cast<std::size_t>(targets.data[n]);
    for (std::size_t c = 0; c < 3; ++c) {
      const double z = std::max(0.0, 0.7 - a[t] + a[c]), w = weight.data[c];
      if (c != t) margins.data[n] += weight.data[t] * z * z / 3;
      const double p = 1 / (1 + std::exp(-a[c])), yes = -l[c] * std::log(p), no = -(1 - l[c]) * std::log(1 - p);
      soft.data[n] += w * (yes + no) / 3;
      positive.data[3 * n + c] = w * yes + no;
    }
    std::vector<std::size_t> in;
    for (std::size_t k = 0; k < 3 && m[k] >= 0; ++k) in.push_back(static_cast<std::size_t>(m[k]));
    for (const std::size_t k : in)
      for (std::size_t c = 0; c < 3; ++c)
        if (std::find(in.begin(), in.end(), c) == in.end()) several.data[n] += std::max(0.0, 1 - a[k] + a[c]) / 3;
    for (std::size_t c = 0; c < 3; ++c) apart.data[n] += std::pow(std::fabs(a[c] - b[c] + 1e-6), 3);
    apart.data[n] = std::cbrt(apart.data[n]);
  }
  expect_losses(run<Float<2>, Int<1>, Float<1>>(
                    [](const auto& a, const auto& t, const auto& w) {
                      return std::tuple(ts::multi_margin_loss<each_one, 2>(a, t, w, 0.7),
                                        ts::multi_margin_loss<ts::LossReduction::mean, 2>(a, t, w, 0.7),
                                        ts::multi_margin_loss<summed, 2>(a, t, w, 0.7));
                    },
                    {x, targets, weight}),
                margins);
  expect_losses(run<Float<2>, Int<2>, Float<1>>(
                    [](const auto& a, const auto& l, const auto& w) {
                      return std::tuple(ts::multilabel_soft_margin_loss<each_one>(a, l, w),
                                        ts::multilabel_soft_margin_loss(a, l, w),
                                        ts::multilabel_soft_margin_loss<summed>(a, l, w));
                    },
                    {x, labels, weight}),
                soft);
  expect_losses(run<Float<2>, Float<2>, Float<1>>(
                    [](const auto& a, const auto& l, const auto& w) {
                      return std::tuple(ts::bce_with_logits<each_one>(a, l, w), ts::bce_with_logits(a, l, w),
                                        ts::bce_with_logits<summed>(a, l, w));
                    },
                    {x, labels, weight}),
                positive);
  expect_losses(run<Float<2>, Int<2>>(
                    [](const auto& a, const auto& t) {
                      return std::tuple(ts::multilabel_margin_loss<each_one>(a, t), ts::multilabel_margin_loss(a, t),
                                        ts::multilabel_margin_loss<summed>(a, t));
                    },
                    {x, many}),
                several);
  constexpr auto distance = [](const auto& a, const auto& b) { return ts::pairwise_distance<3>(a, b); };
  oracle::expect_near((run<Float<2>, Float<2>>(distance, {x, y}).at(0)), apart, 1e-12);
  oracle::check_gradient<Float<2>, Int<1>, Int<2>, Int<2>, Float<1>>(
      [](const auto& a, const auto& t, const auto& l, const auto& m, const auto& w) {
        return ts::multi_margin_loss<each_one, 2>(a, t, w, 0.7) + ts::multilabel_soft_margin_loss<each_one>(a, l, w) +
               ts::multilabel_margin_loss<each_one>(a, m) +
               ts::sum<1>(ts::bce_with_logits<each_one>(a, ts::cast<float>(l), w)) + ts::pairwise_distance(a, a * 0.5);
      },
      {x, targets, labels, many, weight}, oracle::first_order);
}
TEST(ElementLosses, OfProbabilities) {
  const Array p({6}, {0.2, 0.9, 0, 1, 0, 1e-60}), y({6}, {0.3, 1, 1, 0, 0, 1});
  Array want({6}, {-0.3 * std::log(0.2) - 0.7 * std::log(0.8), -std::log(0.9), 100, 100, 0, 100});
  constexpr auto f = [](const auto& a, const auto& b) {
    return std::tuple(ts::binary_cross_entropy<each_one>(a, b), ts::binary_cross_entropy(a, b),
                      ts::binary_cross_entropy<summed>(a, b));
  };
  expect_losses((run<Float<1>, Float<1>>(f, {p, y})), want);
  constexpr auto slope = [](const auto& a, const auto& b) {
    return ts::grad([&](const auto& of) { return ts::binary_cross_entropy<summed>(of, b); })(a);
  };
  const Array slopes = run<Float<1>, Float<1>>(slope, {p, y}).at(0);
  EXPECT_NEAR(slopes.data[0], (0.2 - 0.3) / (0.2 * 0.8), 1e-12);
  EXPECT_NEAR(slopes.data[1], -1 / 0.9, 1e-12);
  for (const double own : slopes.data) EXPECT_TRUE(std::isfinite(own));
}

TEST(InfoNce, IsTheCrossEntropyOfCosines) {
  const Array q = random_array({4, 3}, 1), k = random_array({4, 3}, 2), others = random_array({5, 3}, 3);
  const auto cosine = [](const plain::Row& a, const plain::Row& b) {
    double dot = 0, aa = 0, bb = 0;
    for (std::size_t i = 0; i < 3; ++i) dot += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
    return dot / std::sqrt(aa * bb);
  };
  Array in_batch({4}), given({4});
  for (std::size_t i = 0; i < 4; ++i) {
    const double own = cosine(plain::row(q, i), plain::row(k, i)) / 0.2;
    double all = 0, negatives = std::exp(own);
    for (std::size_t j = 0; j < 4; ++j) all += std::exp(cosine(plain::row(q, i), plain::row(k, j)) / 0.2);
    for (std::size_t j = 0; j < 5; ++j) negatives += std::exp(cosine(plain::row(q, i), plain::row(others, j)) / 0.2);
    in_batch.data[i] = std::log(all) - own;
    given.data[i] = std::log(negatives) - own;
  }
  constexpr auto pairs = [](const auto& a, const auto& b) {
    return std::tuple(ts::info_nce<each_one>(a, b, 0.2), ts::info_nce(a, b, 0.2), ts::info_nce<summed>(a, b, 0.2));
  };
  constexpr auto apart = [](const auto& a, const auto& b, const auto& n) {
    return std::tuple(ts::info_nce<each_one>(a, b, n, 0.2), ts::info_nce(a, b, n, 0.2),
                      ts::info_nce<summed>(a, b, n, 0.2));
  };
  expect_losses(run<Float<2>, Float<2>>(pairs, {q, k}), in_batch);
  expect_losses(run<Float<2>, Float<2>, Float<2>>(apart, {q, k, others}), given);
  oracle::check_gradient<Float<2>, Float<2>, Float<2>>(
      [](const auto& a, const auto& b, const auto& n) {
        return ts::info_nce<each_one>(a, b) + ts::info_nce<each_one>(a, b, n);
      },
      {q, k, others}, oracle::first_order);
}

// CLIP: the temperature is 1 / exp(scale) for a parameter `scale` of rank 0.
TEST(InfoNce, HasAGradientByItsTemperature) {
  const Array q = random_array({4, 3}, 1), k = random_array({4, 3}, 2), others = random_array({5, 3}, 3);
  const Array scale = Array::number(std::log(5.0));
  constexpr auto clip = [](const auto& a, const auto& b, const auto& n, const auto& s) {
    return ts::info_nce<each_one>(a, b, ts::exp(-s)) + ts::info_nce<each_one>(a, b, n, ts::exp(-s));
  };
  constexpr auto number = [](const auto& a, const auto& b, const auto& n) {
    return ts::info_nce<each_one>(a, b, 0.2) + ts::info_nce<each_one>(a, b, n, 0.2);
  };
  const Array want = run<Float<2>, Float<2>, Float<2>>(number, {q, k, others}).at(0);
  const std::vector<Array> all{q, k, others, scale};
  oracle::expect_near(run<Float<2>, Float<2>, Float<2>, Float<0>>(clip, all).at(0), want, 1e-12);
  oracle::check_gradient<Float<2>, Float<2>, Float<2>, Float<0>>(clip, all, oracle::first_order);
}

constexpr ts::CrossEntropy smoothed{.label_smoothing = 0.2, .z_loss = 0.1};

// Probabilities as targets; reference_losses_test.cpp compares with PyTorch.
TEST(SoftTargets, AreThoseOfClassIndicesWhereOneClassHasAll) {
  const Array x = random_array({3, 4}, 1, -2, 2), y({3, 4}, {0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0});
  constexpr auto soft = [](const auto& a, const auto& b) { return ts::cross_entropy<each_one>(a, b, smoothed); };
  const Array want = run<Float<2>, Int<1>>(soft, {x, Array({3}, {1, 3, 0})}).at(0);
  oracle::expect_near(run<Float<2>, Float<2>>(soft, {x, y}).at(0), want, 1e-12);
  oracle::check_gradient<Float<2>, Float<2>>(soft, {x, random_array({3, 4}, 2, 0, 1)});

  // A class without a probability may be masked out: its logit is -infinity, and has no gradient.
  constexpr auto slopes = [](const auto& a, const auto& b) {
    return ts::value_and_grad([&](const auto& own) { return ts::cross_entropy(own, b); })(a);
  };
  const std::vector<Array> masked =
      run<Float<2>, Float<2>>(slopes, {Array({1, 3}, {0, -INFINITY, 0}), Array({1, 3}, {0.25, 0, 0.75})});
  EXPECT_NEAR(masked.at(0).data[0], std::log(2.0), 1e-12);
  oracle::expect_near(masked.at(1), Array({1, 3}, {0.25, 0, -0.25}), 1e-12);
  tessera_test::expect_error(
      ts::errc::option,
      [&] {
        run<Float<2>, Float<2>>(
            [](const auto& a, const auto& b) { return ts::cross_entropy(a, b, ts::CrossEntropy{.ignore_index = 0}); },
            {x, y});
      },
      "[cross_entropy] ignore_index: targets that are probabilities have no index to ignore");
}

/// -log of the probability of all paths that give the labels, one path after the other.
double ctc_by_paths(const Array& log_probs, std::int64_t n, std::int64_t steps, const std::vector<int>& labels,
                    int blank) {
  const std::int64_t classes = log_probs.shape[2];
  double total_probability = 0;
  std::vector<int> path;
  const std::function<void(double)> extend = [&](double log_of_path) {
    if (static_cast<std::int64_t>(path.size()) == steps) {
      std::vector<int> read;
      int last = -1;
      for (const int c : path) {
        if (c != last && c != blank) read.push_back(c);
        last = c;
      }
      if (read == labels) total_probability += std::exp(log_of_path);
      return;
    }
    const auto t = static_cast<std::int64_t>(path.size());
    for (int c = 0; c < classes; ++c) {
      path.push_back(c);
      extend(log_of_path + log_probs.at({t, n, c}));
      path.pop_back();
    }
  };
  extend(0);
  return -std::log(total_probability);
}

constexpr ts::Ctc options{.blank = 2};

TEST(Ctc, IsTheProbabilityOfAllPaths) {
  constexpr int steps = 5, batch = 6, classes = 4;
  Array log_probs = random_array({steps, batch, classes}, 1, -2, 2);
  for (std::size_t r = 0; r < steps * batch; ++r) {
    double sum = 0;
    for (std::size_t c = 0; c < classes; ++c) sum += std::exp(log_probs.data[r * classes + c]);
    for (std::size_t c = 0; c < classes; ++c) log_probs.data[r * classes + c] -= std::log(sum);
  }
  // Equal labels next to each other, an empty target, one that only just fits, inputs of all lengths.
  const std::vector<std::vector<int>> labels = {{0, 1, 3}, {1, 1, 0}, {3}, {}, {0, 0, 0}, {1}};
  const std::vector<double> inputs = {5, 4, 3, 5, 5, 1};
  Array targets({batch, 3}, 2.0), lengths({batch});
  for (std::size_t n = 0; n < batch; ++n) {
    lengths.data[n] = static_cast<double>(labels[n].size());
    for (std::size_t i = 0; i < labels[n].size(); ++i) targets.data[n * 3 + i] = labels[n][i];
  }
  Array want({batch});
  double mean = 0, sum = 0;
  for (std::int64_t n = 0; n < batch; ++n) {
    const auto k = static_cast<std::size_t>(n);
    want.data[k] = ctc_by_paths(log_probs, n, static_cast<std::int64_t>(inputs[k]), labels[k], 2);
    sum += want.data[k];
    mean += want.data[k] / std::max(lengths.data[k], 1.0) / batch;
  }
  constexpr auto losses = [](const auto& x, const auto& t, const auto& in, const auto& out) {
    return std::tuple(ts::ctc_loss<each_one>(x, t, in, out, options), ts::ctc_loss(x, t, in, out, options),
                      ts::ctc_loss<summed>(x, t, in, out, options));
  };
  const auto got = run<Float<3>, Int<2>, Int<1>, Int<1>>(losses, {log_probs, targets, Array({batch}, inputs), lengths});
  oracle::expect_near(got.at(0), want, 1e-9);
  oracle::expect_near(got.at(1), Array::number(mean), 1e-9);
  oracle::expect_near(got.at(2), Array::number(sum), 1e-9);

  oracle::check_gradient<Float<3>, Int<2>, Int<1>, Int<1>>(
      [](const auto& x, const auto& t, const auto& in, const auto& out) {
        return ts::ctc_loss<each_one>(ts::log_softmax<2>(x), t, in, out, options);
      },
      {random_array({steps, batch, classes}, 9), targets, Array({batch}, inputs), lengths}, oracle::first_order);
}

// As of torch.nn.CTCLoss: infinite where a target does not fit, and 0 with zero_infinity; no steps give an empty
// target.
TEST(Ctc, OfTargetsThatDoNotFit) {
  const Array log_probs({2, 3, 2}, std::log(0.5)), targets({3, 2}, {1, 1, 1, 1, 1, 1}), inputs({3}, {2, 0, 0});
  const Array lengths({3}, {2, 0, 1});
  constexpr auto losses = [](const auto& x, const auto& t, const auto& in, const auto& out) {
    constexpr ts::Ctc zero{.zero_infinity = true};
    return std::tuple(ts::ctc_loss<each_one>(x, t, in, out), ts::ctc_loss<each_one>(x, t, in, out, zero));
  };
  const auto got = run<Float<3>, Int<2>, Int<1>, Int<1>>(losses, {log_probs, targets, inputs, lengths});
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(got.at(0).data, (std::vector<double>{infinity, 0, infinity}));
  EXPECT_EQ(got.at(1).data, (std::vector<double>{0, 0, 0}));

  // A class of probability 0 that a path needs, and one that it does not need.
  const Array masked({1, 2, 3}, {std::log(0.5), -infinity, std::log(0.5), std::log(0.5), std::log(0.5), -infinity});
  constexpr auto one = [](const auto& x, const auto& t, const auto& in, const auto& out) {
    const auto loss = [](const auto& of, const auto& a, const auto& b, const auto& c) {
      return ts::ctc_loss<summed>(of, a, b, c, ts::Ctc{.zero_infinity = true});
    };
    return std::tuple(ts::ctc_loss<each_one>(x, t, in, out), ts::grad(loss)(x, t, in, out));
  };
  const auto of_masked = run<Float<3>, Int<2>, Int<1>, Int<1>>(
      one, {masked, Array({2, 1}, {1, 1}), Array({2}, {1, 1}), Array({2}, {1, 1})});
  EXPECT_EQ(of_masked.at(0).data[0], infinity);
  EXPECT_NEAR(of_masked.at(0).data[1], std::log(2.0), 1e-12);
  EXPECT_EQ(of_masked.at(1).data, (std::vector<double>{0, 0, 0, 0, -1, 0}));
}

TEST(Losses, OfTooManyTargetsAreErrorsOfTheLoss) {
  const auto infer = []<class F>(const F&, const std::vector<ts::Shape>& shapes) {
    return [shapes] { ts::infer_shapes(oracle::trace<F, Float<3>, Int<2>>().view(), shapes.data(), nullptr); };
  };
  const auto expect = [&](const auto& f, const char* name) {
    EXPECT_NO_THROW(infer(f, {{4, 2, 3}, {4, 2}})()) << name;
    const std::string text = "] targets must have the dims of the scores except the last: f32[4,2,3] x i32[5,2] at ";
    tessera_test::expect_error(ts::errc::shape_mismatch, infer(f, {{4, 2, 3}, {5, 2}}), "[" + (name + text),
                               "losses_test.cpp:");
    tessera_test::expect_error(ts::errc::shape_mismatch, infer(f, {{4, 2, 3}, {4, 1}}), "x i32[4,1] at ");
  };
  expect([](const auto& x, const auto& t) { return ts::cross_entropy(x, t); }, "cross_entropy");
  expect([](const auto& x, const auto& t) { return ts::cross_entropy<summed>(x, t); }, "cross_entropy");
  expect([](const auto& x, const auto& t) { return ts::nll_loss<each_one>(x, t); }, "nll_loss");
  expect([](const auto& x, const auto& t) { return ts::multi_margin_loss(x, t); }, "multi_margin_loss");
  const auto of_each = [](const auto& x, const auto& t) {
    return ts::vmap([](const auto& a, const auto& b) { return ts::cross_entropy(a, b); })(x, t);
  };
  EXPECT_NO_THROW(infer(of_each, {{4, 2, 3}, {4, 2}})());
  tessera_test::expect_error(ts::errc::shape_mismatch, infer(of_each, {{4, 2, 3}, {4, 3}}), "[cross_entropy] targets",
                             "f32[4,2,3] x i32[4,3] at ", "losses_test.cpp:");
  const auto probabilities = [](const auto& x, const auto& t) { return ts::cross_entropy(x, t); };
  tessera_test::expect_error(
      ts::errc::shape_mismatch,
      [&] {
        const ts::Shape shapes[] = {{4, 3}, {4, 2}};
        ts::infer_shapes(oracle::trace<decltype(probabilities), Float<2>, Float<2>>().view(), shapes, nullptr);
      },
      "[cross_entropy] targets that are probabilities must have the shape of the scores: f32[4,3] x f32[4,2] at ");
}

// As torch.nn.functional.ctc_loss. The errors name the loss and the line of the call, not those of its parts.
TEST(Ctc, RefusesLengthsAndShapesThatDoNotFit) {
  constexpr int line = __LINE__ + 2;
  constexpr auto loss = ts::compile([](auto log_probs, auto targets, auto inputs, auto lengths) {
    return ts::ctc_loss(log_probs, targets, inputs, lengths);
  });
  const std::string at = "ctc_loss at losses_test.cpp:" + std::to_string(line);
  for (const int devices : {1, 2}) {
    const ts::Mesh mesh({{"data", devices}});
    const auto x = ts::zeros<float>({4, 3, 5}, mesh, {ts::none, "data"});
    const auto vector = [&](std::vector<std::int32_t> v) {
      return ts::shard<1>(v, {static_cast<std::int64_t>(v.size())}, mesh, {"data"});
    };
    const auto targets = ts::shard(std::vector<std::int32_t>{1, 2, 1, 1, 3, 4}, {3, 2}, mesh, {"data"});
    EXPECT_NO_THROW((void)loss(x, targets, vector({4, 0, 3}), vector({2, 0, 1})));
    const auto refused = [&](ts::errc id, std::vector<std::int32_t> inputs, std::vector<std::int32_t> lengths,
                             const std::string& what, const std::string& where) {
      tessera_test::expect_error(
          id, [&] { (void)loss(x, targets, vector(inputs), vector(lengths)); }, what, where + at);
    };
    refused(ts::errc::dim_range, {4, 5, 3}, {2, 0, 1}, "5 is outside", "the input_lengths of ");
    refused(ts::errc::dim_range, {4, 3, -1}, {2, 0, 1}, "-1 is outside", "the input_lengths of ");
    refused(ts::errc::dim_range, {4, 4, 3}, {2, 3, 1}, "3 is outside", "the target_lengths of ");
    refused(ts::errc::shape_mismatch, {4, 4, 3, 2}, {2, 1, 1}, "i32[4,3] x i32[1,4]", "in ");
    const auto wrong = ts::shard(std::vector<std::int32_t>{1, 2, 1, 5, 3, 4}, {3, 2}, mesh, {"data"});
    tessera_test::expect_error(
        ts::errc::dim_range,
        [&] {
          (void)loss(x, wrong, vector({4, 4, 3}), vector({2, 2, 2}));
        },
        "5 is outside", at);
  }
}

}  // namespace
