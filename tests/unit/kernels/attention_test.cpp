#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/kernels/attention/attention_bf16.hpp>
#include <tessera/kernels/attention/attention_gradient.hpp>

namespace {

using namespace tessera::kernels;

/// Rows of one head as they may lie in a model: `gap` other elements between rows, elements `step` apart.
template <class T> struct Matrix {
  std::int64_t rows, cols, row, step;
  std::vector<T> data;

  Matrix(std::int64_t r, std::int64_t c, std::int64_t gap = 0, std::int64_t s = 1)
      : rows(r), cols(c), row(c * s + gap), step(s), data(static_cast<std::size_t>(r * row + 1), T(-77)) {}
  Matrix& randomize(unsigned seed, double scale = 1) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> draw(-scale, scale);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t c = 0; c < cols; ++c) at(i, c) = static_cast<T>(draw(random));
    return *this;
  }
  T& at(std::int64_t i, std::int64_t c) { return data[static_cast<std::size_t>(i * row + c * step)]; }
  double get(std::int64_t i, std::int64_t c) const {
    return static_cast<double>(data[static_cast<std::size_t>(i * row + c * step)]);
  }
  HeadRows<const T> read() const { return {data.data(), row, step}; }
  HeadRows<T> write() { return {data.data(), row, step}; }
  /// Elements between rows, which nobody may touch.
  bool gaps_untouched() const {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t c = cols * step; c < row; ++c)
        if (data[static_cast<std::size_t>(i * row + c)] != T(-77)) return false;
    return data.back() == T(-77);
  }
};

/// What is added to a score of operands of type T.
template <class T> double added_to(const ScoreBias& bias, std::int64_t query, std::int64_t key) {
  if (bias.data == nullptr) return 0;
  const std::int64_t at = query * bias.query + key * bias.key;
  using Number = tessera::computed_t<T>;
  if (!bias.is_mask) return static_cast<double>(static_cast<const Number*>(bias.data)[at]);
  return static_cast<const bool*>(bias.data)[at] ? 0 : -std::numeric_limits<double>::infinity();
}

/// The definition, in double: all weights at once.
template <class T> struct Dense {
  std::vector<double> weight, out, lse, dq, dk, dv;

  Dense(const AttentionShape& s, const Matrix<T>& q, const Matrix<T>& k, const Matrix<T>& v, const Matrix<T>& g) {
    const auto at = [](std::int64_t i, std::int64_t j, std::int64_t n) { return static_cast<std::size_t>(i * n + j); };
    weight.assign(static_cast<std::size_t>(s.queries * s.keys), 0);
    out.assign(static_cast<std::size_t>(s.queries * s.value_width), 0);
    lse.assign(static_cast<std::size_t>(s.queries), -std::numeric_limits<double>::infinity());
    dq.assign(static_cast<std::size_t>(s.queries * s.width), 0);
    dk.assign(static_cast<std::size_t>(s.keys * s.width), 0);
    dv.assign(static_cast<std::size_t>(s.keys * s.value_width), 0);
    for (std::int64_t i = 0; i < s.queries; ++i) {
      const std::int64_t seen = s.causal ? std::min(s.keys, s.first_position + i + 1) : s.keys;
      const std::int64_t from = s.causal ? std::max<std::int64_t>(0, s.first_position + i - s.span) : 0;
      double total = 0;
      for (std::int64_t j = from; j < seen; ++j) {
        double score = 0;
        for (std::int64_t c = 0; c < s.width; ++c) score += q.get(i, c) * k.get(j, c);
        weight[at(i, j, s.keys)] = std::exp(score * s.scale + added_to<T>(s.bias, i, j));
        total += weight[at(i, j, s.keys)];
      }
      if (seen > from) lse[static_cast<std::size_t>(i)] = std::log(total);
      double mean = 0;
      std::vector<double> slope(static_cast<std::size_t>(s.keys), 0);
      for (std::int64_t j = from; j < seen; ++j) {
        const double p = weight[at(i, j, s.keys)] /= total > 0 ? total : 1;
        for (std::int64_t e = 0; e < s.value_width; ++e) {
          out[at(i, e, s.value_width)] += p * v.get(j, e);
          slope[static_cast<std::size_t>(j)] += g.get(i, e) * v.get(j, e);
          dv[at(j, e, s.value_width)] += p * g.get(i, e);
        }
        mean += p * slope[static_cast<std::size_t>(j)];
      }
      for (std::int64_t j = from; j < seen; ++j) {
        const double ds = weight[at(i, j, s.keys)] * (slope[static_cast<std::size_t>(j)] - mean) * s.scale;
        for (std::int64_t c = 0; c < s.width; ++c) {
          dq[at(i, c, s.width)] += ds * k.get(j, c);
          dk[at(j, c, s.width)] += ds * q.get(i, c);
        }
      }
    }
  }
};

template <class T> void expect_close(const char* what, const Matrix<T>& found, const std::vector<double>& expected) {
  const double bound = (std::is_same_v<T, float> ? 2e-6 : 1e-14) * (1 + std::sqrt(static_cast<double>(found.rows)));
  for (std::int64_t i = 0; i < found.rows; ++i)
    for (std::int64_t c = 0; c < found.cols; ++c) {
      const double wanted = expected[static_cast<std::size_t>(i * found.cols + c)];
      if (found.get(i, c) == wanted) continue;  // infinities
      ASSERT_NEAR(found.get(i, c), wanted, bound * (1 + std::fabs(wanted))) << what << " at " << i << ", " << c;
    }
  EXPECT_TRUE(found.gaps_untouched()) << what;
}

struct Layout {
  std::int64_t gap = 0, step = 1;
};

/// Returns all results, one after the other.
template <class T>
std::vector<T> check(const AttentionShape& shape, const Layout& in = {}, std::int64_t parts = 1,
                     CpuLevel level = cpu_level()) {
  SCOPED_TRACE(testing::Message() << name_of(level) << ": " << shape.queries << " queries, " << shape.keys
                                  << " keys, widths " << shape.width << " and " << shape.value_width
                                  << (shape.causal ? ", causal from " : ", from ") << shape.first_position);
  auto q = Matrix<T>(shape.queries, shape.width, in.gap, in.step).randomize(1, 2);
  auto k = Matrix<T>(shape.keys, shape.width, in.gap, in.step).randomize(2, 2);
  auto v = Matrix<T>(shape.keys, shape.value_width, in.gap, in.step).randomize(3);
  auto g = Matrix<T>(shape.queries, shape.value_width, in.gap, in.step).randomize(4);
  const Dense<T> dense(shape, q, k, v, g);

  Matrix<T> out(shape.queries, shape.value_width, in.gap), lse(shape.queries, 1, in.gap);
  for (std::int64_t first = 0; first < shape.queries; first += attention_queries)
    attend<T>(shape, first, std::min(attention_queries, shape.queries - first), q.read(), k.read(), v.read(),
              out.write(), lse.write(), level);
  expect_close("result", out, dense.out);
  expect_close("logarithms", lse, dense.lse);
  // The same, bit for bit, if a call has more queries.
  for (const std::int64_t most : {2 * attention_queries, most_attention_queries}) {
    Matrix<T> same(shape.queries, shape.value_width, in.gap), same_lse(shape.queries, 1, in.gap);
    for (std::int64_t first = 0; first < shape.queries; first += most)
      attend<T>(shape, first, std::min(most, shape.queries - first), q.read(), k.read(), v.read(), same.write(),
                same_lse.write(), level);
    EXPECT_EQ(same.data, out.data);
    EXPECT_EQ(same_lse.data, lse.data);
  }

  Matrix<T> dk(shape.keys, shape.width, in.gap), dv(shape.keys, shape.value_width, in.gap),
      dq(shape.queries, shape.width, in.gap);
  std::vector<double> dq_sum(dense.dq.size(), 0);
  for (std::int64_t part = 0; part < parts; ++part) {
    attend_gradient<T>(
        shape, {q.read(), k.read(), v.read(), out.read(), lse.read(), g.read(), dq.write(), dk.write(), dv.write()},
        shape.keys * part / parts, shape.keys * (part + 1) / parts, level);
    for (std::int64_t i = 0; i < shape.queries; ++i)
      for (std::int64_t c = 0; c < shape.width; ++c)
        dq_sum[static_cast<std::size_t>(i * shape.width + c)] += dq.get(i, c);
  }
  for (std::int64_t i = 0; i < shape.queries; ++i)
    for (std::int64_t c = 0; c < shape.width; ++c)
      dq.at(i, c) = static_cast<T>(dq_sum[static_cast<std::size_t>(i * shape.width + c)]);
  expect_close("gradient of queries", dq, dense.dq);
  expect_close("gradient of keys", dk, dense.dk);
  expect_close("gradient of values", dv, dense.dv);
  std::vector<T> all;
  for (const Matrix<T>* part : {&out, &lse, &dq, &dk, &dv}) all.insert(all.end(), part->data.begin(), part->data.end());
  return all;
}

template <class T> AttentionShape square(std::int64_t time, std::int64_t width, bool causal = true) {
  return {time, time, width, width, 0, causal, 1 / std::sqrt(static_cast<double>(width))};
}

TEST(Attention, EveryTimeAroundTheEdgesOfTiles) {
  for (const std::int64_t time : {1, 2, 15, 16, 17, 31, 47, 63, 64, 65, 79, 80, 81, 127, 128, 129, 200})
    for (const bool causal : {false, true}) {
      check<float>(square<float>(time, 16, causal));
      check<double>(square<double>(time, 16, causal));
    }
}

// More queries than a call has, and than the gradient reads keys for at once.
TEST(Attention, ManyQueries) {
  for (const std::int64_t time : {255, 256, 257, 321, 600})
    for (const bool causal : {false, true}) {
      check<float>(square<float>(time, 16, causal), {48, 1}, 2);
      check<double>(square<double>(time, 5, causal));
    }
  for (const std::int64_t span : {0, 63, 64, 200})
    for (const std::int64_t position : {-100, 0, 90}) {
      check<float>({600, 500, 16, 8, position, true, 0.25, span}, {16, 1}, 2);
      check<float>({600, 500, 16, 8, position, true, 0.25, span});
    }
}

TEST(Attention, EveryWidth) {
  for (const std::int64_t width : {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 64, 80, 96, 128}) {
    check<float>(square<float>(70, width));
    check<double>(square<double>(70, width));
  }
}

TEST(Attention, ValuesOfAnotherWidthThanKeys) {
  check<float>({50, 50, 16, 40, 0, true, 0.3});
  check<float>({50, 50, 40, 16, 0, false, 0.3});
  check<double>({50, 50, 3, 5, 0, true, 0.3});
}

TEST(Attention, OtherNumbersOfKeysThanOfQueries) {
  for (const bool causal : {false, true}) {
    check<float>({1, 300, 16, 16, 0, causal, 0.25});
    check<float>({300, 1, 16, 16, 0, causal, 0.25});
    check<double>({130, 70, 16, 16, 0, causal, 0.25});
    check<double>({70, 130, 16, 16, 0, causal, 0.25});
  }
}

TEST(Attention, QueriesThatBeginAtAnyPosition) {
  for (const std::int64_t position : {1, 5, 16, 37, 63, 64, 100, 190, 500})
    for (const std::int64_t queries : {1, 30, 64, 100}) {
      check<float>({queries, 200, 16, 16, position, true, 0.25});
      check<double>({queries, 200, 16, 16, position, true, 0.25});
    }
}

TEST(Attention, ReadsOperandsWhereTheyLie) {
  for (const Layout layout : {Layout{48, 1}, Layout{5, 1}, Layout{0, 3}, Layout{7, 2}}) {
    check<float>(square<float>(90, 32), layout);
    check<double>(square<double>(90, 20), layout);
  }
}

// Rows of the gradients as far apart as those of padded scratch.
TEST(Attention, RowsOfAnyDistance) {
  for (const std::int64_t gap : {1, 2, 5, 13, 29}) {
    check<float>(square<float>(20, 3), {gap, 1});
    check<double>(square<double>(20, 3), {gap, 1});
  }
}

TEST(Attention, GradientsOfKeysInParts) {
  for (const bool causal : {false, true}) {
    check<float>(square<float>(200, 24, causal), {3, 1}, 3);
    check<double>(square<double>(200, 16, causal), {0, 1}, 7);
    check<double>({5, 9, 4, 4, 0, causal, 1}, {}, 12);  // some parts are empty
  }
}

TEST(Attention, WindowsOfAnySpan) {
  for (const std::int64_t span : {-1, 0, 1, 15, 16, 17, 63, 64, 65, 150})
    for (const std::int64_t position : {-70, -3, 0, 37, 150, 300})  // some queries are in front of or behind all keys
      for (const std::int64_t queries : {1, 64, 130}) {
        SCOPED_TRACE(testing::Message() << "span " << span);
        check<float>({queries, 200, 16, 16, position, true, 0.25, span}, {}, 3);
        check<double>({queries, 200, 16, 16, position, true, 0.25, span});
      }
}

// Masked scores are finite numbers below the limit: in part of a row, and in all of it.
TEST(Attention, ScoresBelowTheLeastAreMasked) {
  const AttentionShape shape{3, 70, 1, 2, 0, false, 1};
  auto q = Matrix<float>(3, 1), k = Matrix<float>(70, 1), v = Matrix<float>(70, 2).randomize(1);
  for (std::int64_t i = 0; i < 3; ++i) q.at(i, 0) = i == 2 ? 0.0f : 1.0f;
  for (std::int64_t j = 0; j < 70; ++j) k.at(j, 0) = -1e30f;
  Matrix<float> out(3, 2), lse(3, 1);
  attend<float>(shape, 0, 3, q.read(), k.read(), v.read(), out.write(), lse.write());
  for (std::int64_t e = 0; e < 2; ++e) {
    EXPECT_EQ(out.at(0, e), 0);
    EXPECT_EQ(out.at(1, e), 0);
  }
  EXPECT_EQ(lse.at(0, 0), -std::numeric_limits<float>::infinity());
  EXPECT_NEAR(lse.at(2, 0), std::log(70.0), 1e-5);
}

/// Shapes with a bias, and with a mask, of which some rows are false: with a row for each query, the same for all
/// queries, the same for all keys, and transposed.
template <class T, class F> void for_each_bias(AttentionShape shape, const F& f) {
  using Number = tessera::computed_t<T>;
  const std::int64_t row = shape.keys + 3;
  std::vector<Number> numbers(static_cast<std::size_t>(std::max(shape.queries, row) * row));
  const std::unique_ptr<bool[]> seen(new bool[numbers.size()]);
  std::mt19937 random(7);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<Number>(static_cast<double>(random() % 4096) / 1024 - 2);
    seen[i] = random() % 3 != 0 && static_cast<std::int64_t>(i) / row % 5 != 2;
    if (random() % 7 == 0) numbers[i] = static_cast<Number>(-1e30);
  }
  for (const auto& [query, key] : {std::pair(row, std::int64_t{1}), std::pair(std::int64_t{0}, std::int64_t{1}),
                                   std::pair(row, std::int64_t{0}), std::pair(std::int64_t{1}, row)})
    for (const bool is_mask : {false, true}) {
      SCOPED_TRACE(testing::Message() << (is_mask ? "mask" : "bias") << " with strides " << query << " and " << key);
      if (key == row && shape.queries > row) continue;
      shape.bias = {is_mask ? static_cast<const void*>(seen.get()) : numbers.data(), query, key, is_mask};
      f(shape);
    }
}

/// At all levels that this processor can run. Levels with FMA give the same bits.
template <class T> void check_levels(const AttentionShape& shape, const Layout& in = {}, std::int64_t parts = 1) {
  std::vector<T> of_avx2;
  for (const CpuLevel level : {CpuLevel::portable, CpuLevel::avx2, CpuLevel::avx512}) {
    if (level > tessera::kernels::detail::detect_cpu()) continue;
    const std::vector<T> found = check<T>(shape, in, parts, level);
    if (level == CpuLevel::avx2) of_avx2 = found;
    if (level == CpuLevel::avx512) EXPECT_EQ(found, of_avx2);
  }
}

TEST(Attention, EachLevelOfInstructions) {
  const auto both = [](const AttentionShape& shape, const Layout& in = {}, std::int64_t parts = 1) {
    check_levels<float>(shape, in, parts);
    check_levels<double>(shape, in, parts);
  };
  for (const std::int64_t time : {1, 7, 64, 65, 111, 144}) both(square<float>(time, 16));
  for (const std::int64_t width : {1, 2, 5, 8, 33, 64, 128}) both(square<float>(81, width, width % 2 == 1));
  for (const Layout layout : {Layout{5, 1}, Layout{7, 2}}) both(square<float>(90, 32), layout, 2);
  both({1, 300, 16, 24, 0, false, 0.25});
  both({1, 300, 16, 24, 299, true, 0.25});
  both({300, 1, 16, 8, 0, true, 0.25});
  both({20, 0, 16, 16, 0, false, 1});
  for (const std::int64_t span : {-1, 0, 20, 64, 150}) both({130, 200, 16, 16, 37, true, 0.25, span}, {16, 1}, 2);
  for_each_bias<float>({130, 200, 16, 8, 37, true, 0.25, 150}, [](const AttentionShape& s) { check_levels<float>(s); });
  for_each_bias<double>(square<double>(70, 16, false), [](const AttentionShape& s) { check_levels<double>(s); });
}

TEST(Attention, BiasesAndMasksOfEachPair) {
  for (const AttentionShape& shape :
       {square<float>(1, 16, false), square<float>(70, 16, false), square<float>(200, 16, true),
        AttentionShape{130, 300, 16, 8, 37, true, 0.25, 150}, AttentionShape{300, 65, 8, 16, 0, false, 0.25}}) {
    for_each_bias<float>(shape, [](const AttentionShape& s) { check<float>(s, {3, 1}, 2); });
    for_each_bias<double>(shape, [](const AttentionShape& s) { check<double>(s); });
  }
}

TEST(Attention, NothingToSeeGivesZeros) {
  check<float>({20, 0, 16, 16, 0, false, 1});
  check<float>({20, 0, 16, 16, 0, true, 1});
  check<float>({0, 20, 16, 16, 0, true, 1});
  check<double>({4, 3, 0, 2, 0, true, 1});  // all scores are 0: the mean of the values
}

TEST(Attention, GradientsThatNobodyAsksForAreNotWritten) {
  const AttentionShape shape = square<float>(100, 24);
  auto q = Matrix<float>(100, 24).randomize(1), k = Matrix<float>(100, 24).randomize(2),
       v = Matrix<float>(100, 24).randomize(3);
  auto g = Matrix<float>(100, 24).randomize(4);
  const Dense<float> dense(shape, q, k, v, g);
  Matrix<float> out(100, 24), lse(100, 1);
  for (std::int64_t first = 0; first < 100; first += attention_queries)
    attend<float>(shape, first, std::min<std::int64_t>(attention_queries, 100 - first), q.read(), k.read(), v.read(),
                  out.write(), lse.write());
  for (int only = 0; only < 3; ++only) {
    Matrix<float> dq(100, 24), dk(100, 24), dv(100, 24);
    AttentionGradient<float> gradient{q.read(), k.read(), v.read(), out.read(), lse.read(), g.read(), {}, {}, {}};
    (only == 0   ? gradient.q_gradient
     : only == 1 ? gradient.k_gradient
                 : gradient.v_gradient) = (only == 0   ? dq
                                           : only == 1 ? dk
                                                       : dv)
                                              .write();
    attend_gradient<float>(shape, gradient, 0, 100);
    if (only == 0) expect_close("gradient of queries", dq, dense.dq);
    if (only == 1) expect_close("gradient of keys", dk, dense.dk);
    if (only == 2) expect_close("gradient of values", dv, dense.dv);
  }
}

TEST(Attention, LargeScoresNeitherOverflowNorVanish) {
  // Scores up to 10^4: exponentials of them would be infinite, and most weights are 0.
  const AttentionShape shape{80, 80, 16, 16, 0, true, 50};
  auto q = Matrix<double>(80, 16).randomize(1, 4), k = Matrix<double>(80, 16).randomize(2, 4),
       v = Matrix<double>(80, 16).randomize(3);
  Matrix<double> out(80, 16), lse(80, 1);
  for (std::int64_t first = 0; first < 80; first += attention_queries)
    attend<double>(shape, first, std::min<std::int64_t>(attention_queries, 80 - first), q.read(), k.read(), v.read(),
                   out.write(), lse.write());
  for (std::int64_t i = 0; i < 80; ++i) {
    std::vector<double> score;
    for (std::int64_t j = 0; j <= i; ++j) {
      score.push_back(0);
      for (std::int64_t c = 0; c < 16; ++c) score.back() += q.get(i, c) * k.get(j, c) * 50;
    }
    const double most = *std::max_element(score.begin(), score.end());
    double total = 0, first = 0;
    for (std::size_t j = 0; j < score.size(); ++j) {
      total += std::exp(score[j] - most);
      first += std::exp(score[j] - most) * v.get(static_cast<std::int64_t>(j), 0);
    }
    ASSERT_NEAR(out.get(i, 0), first / total, 1e-10);
    ASSERT_NEAR(lse.get(i, 0), most + std::log(total), 1e-10);
  }
}

TEST(Attention, WhatIsNotANumberReachesTheRowsThatSeeIt) {
  const AttentionShape shape = square<float>(100, 16);
  auto q = Matrix<float>(100, 16).randomize(1), k = Matrix<float>(100, 16).randomize(2),
       v = Matrix<float>(100, 16).randomize(3);
  k.at(70, 3) = std::numeric_limits<float>::quiet_NaN();
  Matrix<float> out(100, 16);
  for (std::int64_t first = 0; first < 100; first += attention_queries)
    attend<float>(shape, first, std::min<std::int64_t>(attention_queries, 100 - first), q.read(), k.read(), v.read(),
                  out.write(), {});
  for (std::int64_t i = 0; i < 100; ++i) EXPECT_EQ(std::isnan(out.get(i, 0)), i >= 70) << i;
}

/// Of bf16 and f16: exact inputs, weights rounded to the bits of T, results rounded once more. Each level by the same
/// oracle.
template <class T>
void check_half(const AttentionShape& shape, const Layout& in = {}, std::int64_t parts = 1, double scale = 2) {
  constexpr bool is_bf16 = std::is_same_v<T, tessera::bf16>;
  const std::int64_t queries = shape.queries, keys = shape.keys, width = shape.width, value_width = shape.value_width;
  auto q = Matrix<T>(queries, width, in.gap, in.step).randomize(1, scale);
  auto k = Matrix<T>(keys, width, in.gap, in.step).randomize(2, scale);
  auto v = Matrix<T>(keys, value_width, in.gap, in.step).randomize(3);
  auto g = Matrix<T>(queries, value_width, in.gap, in.step).randomize(4);
  const Dense<T> dense(shape, q, k, v, g);
  for (const CpuLevel level : {CpuLevel::portable, CpuLevel::avx512_bf16, CpuLevel::amx}) {
    if (level > product_level<T>() || (!is_bf16 && level > CpuLevel::portable)) continue;
    SCOPED_TRACE(testing::Message() << name_of(level) << ": " << queries << " queries, " << keys << " keys, widths "
                                    << width << " and " << value_width << (shape.causal ? ", causal from " : ", from ")
                                    << shape.first_position);
    Matrix<T> out(queries, value_width, in.gap);
    Matrix<float> lse(queries, 1, in.gap);
    for (std::int64_t first = 0; first < queries; first += most_attention_queries)
      if constexpr (is_bf16)
        attend(shape, first, std::min(most_attention_queries, queries - first), q.read(), k.read(), v.read(),
               out.write(), lse.write(), level);
      else
        attend(shape, first, std::min(most_attention_queries, queries - first), q.read(), k.read(), v.read(),
               out.write(), lse.write());
    // Each term is off by a rounding or two of half a unit in the last place: so is the whole, in the mean. Where terms
    // cancel, `size` bounds it.
    const double unit = static_cast<double>(std::numeric_limits<T>::epsilon());
    const auto expect = [&](const char* what, const auto& found, const std::vector<double>& expected, double size) {
      double wrong = 0, whole = 0;
      for (std::int64_t i = 0; i < found.rows; ++i)
        for (std::int64_t c = 0; c < found.cols; ++c) {
          const double wanted = expected[static_cast<std::size_t>(i * found.cols + c)], off = found.get(i, c) - wanted;
          ASSERT_LE(std::fabs(off), size * unit) << what << " at " << i << ", " << c << " is " << wanted;
          wrong += off * off, whole += wanted * wanted;
        }
      EXPECT_LE(std::sqrt(wrong), unit * std::sqrt(whole) + unit / 8 * size) << what;
      EXPECT_TRUE(found.gaps_untouched()) << what;
    };
    expect("result", out, dense.out, 1);
    expect_close("logarithms", lse, dense.lse);

    Matrix<float> dk(keys, width, in.gap), dv(keys, value_width, in.gap), dq(queries, width, in.gap);
    std::vector<double> dq_sum(dense.dq.size(), 0);
    for (std::int64_t part = 0; part < parts; ++part) {
      const HalfAttentionGradient<T> of{q.read(), k.read(),   v.read(),   out.read(), lse.read(),
                                        g.read(), dq.write(), dk.write(), dv.write()};
      const std::int64_t begin = keys * part / parts, end = keys * (part + 1) / parts;
      if constexpr (is_bf16)
        attend_gradient(shape, of, begin, end, level);
      else
        attend_gradient(shape, of, begin, end);
      for (std::int64_t i = 0; i < queries; ++i)
        for (std::int64_t c = 0; c < width; ++c) dq_sum[static_cast<std::size_t>(i * width + c)] += dq.get(i, c);
    }
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t c = 0; c < width; ++c)
        dq.at(i, c) = static_cast<float>(dq_sum[static_cast<std::size_t>(i * width + c)]);
    // The mean of a row's slopes comes from the rounded result: each term is off by its weight times that.
    const double slope = std::fabs(shape.scale) * scale * std::sqrt(static_cast<double>(value_width));
    expect("gradient of queries", dq, dense.dq, slope);
    expect("gradient of keys", dk, dense.dk, slope * std::sqrt(static_cast<double>(queries)));
    expect("gradient of values", dv, dense.dv, std::sqrt(static_cast<double>(queries)));
  }
}

void check_bf16(const AttentionShape& shape, const Layout& in = {}, std::int64_t parts = 1, double scale = 2) {
  check_half<tessera::bf16>(shape, in, parts, scale);
}

TEST(AttentionOfHalves, BiasesAndMasksOfEachPair) {
  for (const AttentionShape& shape :
       {square<float>(1, 16, false), square<float>(70, 16, false), square<float>(200, 16, true),
        AttentionShape{130, 300, 16, 8, 37, true, 0.25, 150}, AttentionShape{300, 65, 8, 16, 0, false, 0.25}}) {
    for_each_bias<tessera::bf16>(shape, [](const AttentionShape& s) { check_half<tessera::bf16>(s, {3, 1}, 2); });
    for_each_bias<tessera::f16>(shape, [](const AttentionShape& s) { check_half<tessera::f16>(s); });
  }
}

TEST(AttentionOfF16, TimesWindowsWidthsAndLayouts) {
  using tessera::f16;
  for (const std::int64_t time : {1, 33, 64, 129, 300})
    for (const bool causal : {false, true}) check_half<f16>(square<float>(time, 16, causal), {}, 2);
  for (const std::int64_t span : {-1, 0, 16, 150}) check_half<f16>({130, 200, 16, 16, 37, true, 0.25, span}, {}, 3);
  for (const std::int64_t width : {1, 5, 33, 80}) check_half<f16>(square<float>(70, width));
  check_half<f16>({50, 50, 40, 16, 0, false, -0.3});
  for (const Layout layout : {Layout{48, 1}, Layout{7, 2}}) check_half<f16>(square<float>(90, 32), layout);
}

TEST(AttentionOfBf16, EveryTimeAroundTheEdgesOfTiles) {
  for (const std::int64_t time : {1, 2, 15, 16, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 256, 257, 300})
    for (const bool causal : {false, true}) check_bf16(square<float>(time, 16, causal));
}

TEST(AttentionOfBf16, WindowsOfAnySpan) {
  for (const std::int64_t span : {-1, 0, 1, 16, 63, 64, 150})
    for (const std::int64_t position : {-70, 0, 37, 300}) {
      check_bf16({130, 200, 16, 16, position, true, 0.25, span}, {}, 3);
      check_bf16({300, 200, 32, 16, position, true, 0.25, span});
    }
}

TEST(AttentionOfBf16, EveryWidthAndLayout) {
  for (const std::int64_t width : {1, 5, 16, 31, 32, 33, 64, 80, 128}) check_bf16(square<float>(70, width));
  check_bf16({50, 50, 16, 40, 0, true, 0.3});
  check_bf16({50, 50, 40, 16, 0, false, -0.3});
  for (const Layout layout : {Layout{48, 1}, Layout{5, 1}, Layout{0, 3}, Layout{7, 2}})
    check_bf16(square<float>(90, 32), layout);
}

TEST(AttentionOfBf16, AnyPositionsAndNumbersOfKeys) {
  for (const bool causal : {false, true}) {
    check_bf16({1, 300, 16, 16, 0, causal, 0.25});
    check_bf16({300, 1, 16, 16, 0, causal, 0.25});
    check_bf16({130, 70, 16, 16, 0, causal, 0.25});
    check_bf16(square<float>(200, 24, causal), {3, 1}, 3);
    check_bf16({5, 9, 4, 4, 0, causal, 1}, {}, 12);
  }
  for (const std::int64_t position : {1, 37, 64, 190, 500}) check_bf16({100, 200, 16, 16, position, true, 0.25});
  check_bf16({20, 0, 16, 16, 0, false, 1});
  check_bf16({0, 20, 16, 16, 0, true, 1});
}

}  // namespace
