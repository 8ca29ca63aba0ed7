#include "../../support/gradients.hpp"
#include "../base/expect_error.hpp"

#include <tessera/graph/fuse/group.hpp>
#include <tessera/graph/ir/print.hpp>
#include <tessera/nn/attention/alibi.hpp>
#include <tessera/ops/attention/attention.hpp>
#include <tessera/ops/attention/band_attention.hpp>
#include <tessera/ops/attention/positions.hpp>
#include <tessera/partition/propagation/shapes.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

const auto causal = [](const auto& q, const auto& k, const auto& v) { return ts::causal_attention(q, k, v); };
const auto whole = [](const auto& q, const auto& k, const auto& v) { return ts::attention(q, k, v); };
const auto scaled = [](const auto& q, const auto& k, const auto& v) { return ts::attention(q, k, v, 0.25); };
/// Attention composed of products and a softmax.
const auto reference_attention = [](const auto& q, const auto& k, const auto& v) {
  const auto scores = ts::einsum<"bthd,bshd->bhts">(q, k) * 0.25;
  return ts::einsum<"bhts,bshd->bthd">(ts::softmax(scores), v);
};

using Tensor = Float<4>;
const std::vector<Array> self{random_array({2, 4, 2, 3}, 1), random_array({2, 4, 2, 3}, 2),
                              random_array({2, 4, 2, 3}, 3)};
/// Keys and queries of different times, and values of another width.
const std::vector<Array> cross{random_array({2, 3, 2, 2}, 1), random_array({2, 5, 2, 2}, 2),
                               random_array({2, 5, 2, 3}, 3)};

template <class... Args, class F> Array apply(F, const std::vector<Array>& arguments) {
  return run(trace<F, Args...>().view(), arguments).at(0);
}

Array expected(const std::vector<Array>& x, bool is_causal, double scale) {
  const Array &q = x[0], &k = x[1], &v = x[2];
  Array y({q.shape[0], q.shape[1], q.shape[2], v.shape[3]});
  for_each_index({q.shape[0], q.shape[1], q.shape[2]}, [&](const Shape& i) {
    const std::int64_t b = i[0], t = i[1], h = i[2];
    double total = 0;
    for (std::int64_t s = 0; s < k.shape[1] && (!is_causal || s <= t); ++s) {
      double score = 0;
      for (std::int64_t d = 0; d < q.shape[3]; ++d) score += q.at({b, t, h, d}) * k.at({b, s, h, d}) * scale;
      total += std::exp(score);
      for (std::int64_t e = 0; e < v.shape[3]; ++e) y.at({b, t, h, e}) += std::exp(score) * v.at({b, s, h, e});
    }
    for (std::int64_t e = 0; e < v.shape[3]; ++e) y.at({b, t, h, e}) /= total;
  });
  return y;
}

TEST(Attention, IsTheSoftmaxOfScoresTimesValues) {
  expect_near(apply<Tensor, Tensor, Tensor>(causal, self), expected(self, true, 1 / std::sqrt(3.0)), 1e-12);
  expect_near(apply<Tensor, Tensor, Tensor>(whole, self), expected(self, false, 1 / std::sqrt(3.0)), 1e-12);
  expect_near(apply<Tensor, Tensor, Tensor>(whole, cross), expected(cross, false, 1 / std::sqrt(2.0)), 1e-12);
  expect_near(apply<Tensor, Tensor, Tensor>(causal, cross), expected(cross, true, 1 / std::sqrt(2.0)), 1e-12);
  expect_near(apply<Tensor, Tensor, Tensor>(scaled, self), expected(self, false, 0.25), 1e-12);
  expect_near(apply<Tensor, Tensor, Tensor>(reference_attention, self), expected(self, false, 0.25), 1e-12);
}

TEST(Attention, FirstDerivatives) {
  check_gradient<Tensor, Tensor, Tensor>(causal, self, first_order);
  check_gradient<Tensor, Tensor, Tensor>(whole, cross, first_order);
  check_gradient<Tensor, Tensor, Tensor>(scaled, self, first_order);
  // The same value as q, k and v, and values without gradients.
  check_gradient<Tensor>([](const auto& x) { return ts::causal_attention(x, x, x); }, {self[0]}, first_order);
  check_gradient<Tensor, Float<0>>([](const auto& x, const auto& a) { return ts::attention(x * a, x, x); },
                                   {self[0], Array::number(0.7)}, first_order);
}

TEST(Attention, SecondDerivativesAreWrittenOut) {
  const std::vector<Array> small{random_array({1, 3, 1, 2}, 1), random_array({1, 3, 1, 2}, 2),
                                 random_array({1, 3, 1, 2}, 3)};
  check_gradient<Tensor, Tensor, Tensor>(causal, small);
  check_gradient<Tensor, Tensor, Tensor>(whole, {cross[0], cross[1], cross[2]});
  check_gradient<Tensor>([](const auto& x) { return ts::causal_attention(x, x, x); }, {small[0]});
}

int units_of(const Program& program, ts::UnitKind kind) {
  int n = 0;
  for (const ts::Unit& unit : ts::group_units(program.main()).units) n += unit.kind == kind ? 1 : 0;
  return n;
}

TEST(Attention, IsOneUnitForwardAndOneBackward) {
  EXPECT_EQ(units_of(trace<std::decay_t<decltype(causal)>, Tensor, Tensor, Tensor>(), ts::UnitKind::attention), 1);
  EXPECT_EQ(ts::group_units(trace<std::decay_t<decltype(causal)>, Tensor, Tensor, Tensor>().main()).units.size(), 1u);
  const auto training = [](const auto& q, const auto& k, const auto& v) {
    return ts::value_and_grad([](const auto& all) {
      return ts::sum(ts::causal_attention(std::get<0>(all), std::get<1>(all), std::get<2>(all)));
    })(std::tuple(q, k, v));
  };
  const Program program = trace<std::decay_t<decltype(training)>, Tensor, Tensor, Tensor>();
  EXPECT_EQ(program.count(ts::Op::attention_grad), 3);
  EXPECT_EQ(units_of(program, ts::UnitKind::attention), 2);
  EXPECT_EQ(units_of(program, ts::UnitKind::contraction), 0);
}

TEST(Attention, TwoOfOneScoreShareLogarithms) {
  const auto both = [](const auto& q, const auto& k, const auto& v) {
    return ts::attention(q, k, ts::attention(q, k, v));
  };
  const Program program = trace<std::decay_t<decltype(both)>, Tensor, Tensor, Tensor>();
  EXPECT_EQ(program.count(ts::Op::attention_lse), 1);
  EXPECT_EQ(units_of(program, ts::UnitKind::attention), 2);
  check_gradient<Tensor, Tensor, Tensor>(both, self, first_order);
}

TEST(Attention, Prints) {
  const Program program = trace<std::decay_t<decltype(causal)>, Tensor, Tensor, Tensor>();
  const std::string text = ts::text_of(program.view());
  EXPECT_NE(text.find("attention_lse[causal] f32[?,?,?] (%0, %1, "), std::string::npos) << text;
  EXPECT_NE(text.find("attention[causal] f32[?,?,?,?] (%0, %1, %2, "), std::string::npos) << text;
}

TEST(Attention, DimsOfStaticExtentOneMustMeetAlike) {
  const auto meets = [](const auto& q, const auto& k) { return ts::attention(ts::unsqueeze<0>(q), k, k); };
  using F = std::decay_t<decltype(meets)>;
  EXPECT_THROW((trace<F, Float<3>, Float<4>>()), ts::error);
  const auto alike = [](const auto& q) {
    const auto x = ts::unsqueeze<0>(q);
    return ts::causal_attention(x, x, x);
  };
  check_gradient<Float<3>>(alike, {random_array({3, 2, 2}, 1)}, first_order);
}

/// Attention with a number added to each score [batch, head, query, key]; -infinity masks. Dense, in double.
template <class F> Array expected_with(const std::vector<Array>& x, double scale, F score_of) {
  const Array &q = x[0], &k = x[1], &v = x[2];
  const std::int64_t group = q.shape[2] / k.shape[2];
  Array y({q.shape[0], q.shape[1], q.shape[2], v.shape[3]});
  for_each_index({q.shape[0], q.shape[1], q.shape[2]}, [&](const Shape& i) {
    const std::int64_t b = i[0], t = i[1], h = i[2];
    double total = 0;
    for (std::int64_t s = 0; s < k.shape[1]; ++s) {
      double score = score_of(b, h, t, s);
      for (std::int64_t d = 0; d < q.shape[3]; ++d) score += q.at({b, t, h, d}) * k.at({b, s, h / group, d}) * scale;
      total += std::exp(score);
      for (std::int64_t e = 0; e < v.shape[3]; ++e) y.at({b, t, h, e}) += std::exp(score) * v.at({b, s, h / group, e});
    }
    for (std::int64_t e = 0; e < v.shape[3] && total > 0; ++e) y.at({b, t, h, e}) /= total;
  });
  return y;
}

/// Query 0 is at position 4 of 5 keys: query 2 has no key left.
const auto banded = [](const auto& q, const auto& k, const auto& v) { return ts::band_attention(q, k, v, 1, 0, 4); };

TEST(BandAttention, AttendsToTheKeysAroundThePosition) {
  const double scale = 1 / std::sqrt(2.0);
  expect_near(
      apply<Tensor, Tensor, Tensor>(banded, cross),
      expected_with(cross, scale,
                    [](int, int, std::int64_t t, std::int64_t s) { return s >= t + 3 && s <= t + 4 ? 0 : -INFINITY; }),
      1e-12);
  const auto at_run_time = [](const auto& q, const auto& k, const auto& v, const auto& before, const auto& offset) {
    return ts::band_attention(q, k, v, before, 1, offset, 0.25);
  };
  using F = std::decay_t<decltype(at_run_time)>;
  const Program program = trace<F, Tensor, Tensor, Tensor, ts::Scalar, ts::Scalar>();
  for (const int before : {-2, 0, 1, 9})
    for (const int offset : {-4, 0, 2, 9}) {
      std::vector<Array> arguments = cross;
      arguments.push_back(Array::number(before));
      arguments.push_back(Array::number(offset));
      expect_near(run(program.view(), arguments).at(0),
                  expected_with(cross, 0.25,
                                [&](int, int, std::int64_t t, std::int64_t s) {
                                  return s >= t + offset - before && s <= t + offset + 1 ? 0 : -INFINITY;
                                }),
                  1e-12);
    }
}

// An index of a loop as the offset, for one query too, whose time then has static extent 1 as in the carry.
TEST(BandAttention, AtAnIndexOfALoop) {
  const auto at_index = [](const auto& q, const auto& k, const auto& v, const auto& offset) {
    const auto one = ts::slice<1>(q, 0, 1);
    const auto own = ts::fori_loop(
        0, 1, [&](const auto&, const auto&) { return ts::band_attention(one, k, v, 1, 0, offset); },
        ts::unsqueeze<1>(ts::zeros_like(ts::select<1>(v, 0))));
    return std::tuple(ts::band_attention(q, k, v, 1, 2, offset), ts::band_attention(q, k, v, ts::unlimited, 0, offset),
                      own);
  };
  for (const int offset : {-4, 0, 2, 9}) {
    std::vector<Array> arguments = cross;
    arguments.push_back(Array::number(offset));
    const auto got = results_of<Tensor, Tensor, Tensor, ts::ShardedTensor<std::int32_t, 0>>(at_index, arguments);
    const auto want = [&](std::int64_t before, std::int64_t after) {
      return expected_with(cross, 1 / std::sqrt(2.0), [&](int, int, std::int64_t t, std::int64_t s) {
        return s >= t + offset - before && s <= t + offset + after ? 0 : -INFINITY;
      });
    };
    expect_near(got.at(0), want(1, 2), 1e-12);
    expect_near(got.at(1), want(99, 0), 1e-12);
    const Array all = want(1, 0);
    Array first({2, 1, 2, 3});
    for_each_index(first.shape, [&](const Shape& i) { first.at(i) = all.at(i); });
    expect_near(got.at(2), first, 1e-12);
  }
}

TEST(BandAttention, Derivatives) {
  check_gradient<Tensor, Tensor, Tensor>(banded, cross);
  const Program program = trace<std::decay_t<decltype(banded)>, Tensor, Tensor, Tensor>();
  EXPECT_EQ(units_of(program, ts::UnitKind::attention), 1);
  EXPECT_NE(ts::text_of(program.view()).find("attention[band]"), std::string::npos);
}

TEST(BiasedAttention, AddsANumberToTheScoresOfAKey) {
  const auto biased = [](const auto& q, const auto& k, const auto& v, const auto& bias) {
    return ts::biased_attention(q, k, v, bias, ts::unlimited, ts::unlimited);
  };
  std::vector<Array> arguments = cross;
  arguments.push_back(random_array({2, 2, 5}, 4));
  const Array& bias = arguments[3];
  expect_near(apply<Tensor, Tensor, Tensor, Float<3>>(biased, arguments),
              expected_with(cross, 1 / std::sqrt(2.0),
                            [&](std::int64_t b, std::int64_t h, int, std::int64_t s) {
                              return bias.at({b, h, s});
                            }),
              1e-12);
  check_gradient<Tensor, Tensor, Tensor, Float<3>>(biased, arguments, first_order);
}

TEST(BiasedAttention, MasksKeys) {
  const auto masked = [](const auto& q, const auto& k, const auto& v, const auto& mask) {
    return ts::biased_attention(q, k, v, ts::key_padding_bias(mask), ts::unlimited, ts::unlimited);
  };
  std::vector<Array> arguments = cross;
  arguments.push_back(Array({2, 5}, {1, 0, 1, 1, 0, 0, 0, 0, 0, 0}));  // in the second batch all: zeros
  const Array& mask = arguments[3];
  expect_near(apply<Tensor, Tensor, Tensor, ts::ShardedTensor<bool, 2>>(masked, arguments),
              expected_with(cross, 1 / std::sqrt(2.0),
                            [&](std::int64_t b, int, int, std::int64_t s) {
                              return mask.at({b, s}) != 0 ? 0 : -INFINITY;
                            }),
              1e-12);
}

// attn_mask of F.scaled_dot_product_attention, of all ranks.
TEST(AttentionWithBias, AddsANumberToEachScore) {
  std::vector<Array> arguments = cross;
  arguments.push_back(random_array({2, 2, 3, 5}, 4));
  arguments.push_back(random_array({3, 5}, 5));
  const auto both = [](const auto& q, const auto& k, const auto& v, const auto& bias, const auto& of_all) {
    return std::tuple(ts::attention(q, k, v, bias), ts::causal_attention(q, k, v, bias, 0.25),
                      ts::attention(q, k, v, of_all), ts::attention(q, k, v, ts::unsqueeze<0>(of_all), 0.25));
  };
  const auto got = results_of<Tensor, Tensor, Tensor, Tensor, Float<2>>(both, arguments);
  const Array &bias = arguments[3], &of_all = arguments[4];
  const double root = 1 / std::sqrt(2.0);
  const auto each = [&](std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t s) {
    return bias.at({b, h, t, s});
  };
  const auto same = [&](std::int64_t, std::int64_t, std::int64_t t, std::int64_t s) { return of_all.at({t, s}); };
  expect_near(got.at(0), expected_with(cross, root, each), 1e-12);
  expect_near(got.at(1),
              expected_with(cross, 0.25,
                            [&](std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t s) {
                              return s <= t ? each(b, h, t, s) : -INFINITY;
                            }),
              1e-12);
  expect_near(got.at(2), expected_with(cross, root, same), 1e-12);
  expect_near(got.at(3), expected_with(cross, 0.25, same), 1e-12);
  check_gradient<Tensor, Tensor, Tensor, Tensor, Float<2>>(
      [](const auto& q, const auto& k, const auto& v, const auto& own, const auto& shared) {
        return ts::causal_attention(q, k, v, own) + ts::attention(q, k, v, shared);
      },
      arguments, first_order);
}

// It is the attention node, also for masks that batches and heads share; second derivatives are also those of the bias.
TEST(AttentionWithBias, IsComputedByTiles) {
  std::vector<Array> arguments = cross;
  arguments.push_back(random_array({2, 1, 3, 5}, 4));
  arguments.push_back(random_array({1, 2, 1, 5}, 5));
  const auto both = [](const auto& q, const auto& k, const auto& v, const auto& bias, const auto& numbers) {
    const auto of_heads = ts::unsqueeze<0>(ts::unsqueeze<1>(ts::squeeze<0>(ts::squeeze<2>(numbers))));
    const auto shared = ts::unsqueeze<1>(ts::squeeze<1>(bias));
    return ts::attention(q, k, v, shared) * ts::causal_attention(q, k, v, of_heads, 0.5) +
           ts::attention(q, k, v, ts::greater(shared, of_heads));
  };
  using F = std::decay_t<decltype(both)>;
  EXPECT_EQ(units_of(trace<F, Tensor, Tensor, Tensor, Tensor, Tensor>(), ts::UnitKind::attention), 3);
  const Array &bias = arguments[3], &numbers = arguments[4];
  const double root = 1 / std::sqrt(2.0);
  using Index = std::int64_t;
  const Array one = expected_with(cross, root, [&](Index b, Index, Index t, Index s) { return bias.at({b, 0, t, s}); });
  const Array two = expected_with(cross, 0.5, [&](Index, Index h, Index t, Index s) {
    return s <= t ? numbers.at({0, h, 0, s}) : -INFINITY;
  });
  const Array three = expected_with(cross, root, [&](Index b, Index h, Index t, Index s) {
    return bias.at({b, 0, t, s}) > numbers.at({0, h, 0, s}) ? 0 : -INFINITY;
  });
  Array want = three;
  for (std::size_t i = 0; i < want.data.size(); ++i) want.data[i] += one.data[i] * two.data[i];
  expect_near(apply<Tensor, Tensor, Tensor, Tensor, Tensor>(both, arguments), want, 1e-12);
  check_gradient<Tensor, Tensor, Tensor, Tensor, Tensor>(both, arguments);
}

// A query without a key gives 0, and has gradients of 0.
TEST(AttentionWithBias, MasksPairs) {
  std::vector<Array> arguments = cross;
  arguments.push_back(Array({3, 5}, {1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}));
  const Array mask = arguments[3];
  const auto masked = [](const auto& q, const auto& k, const auto& v, const auto& seen) {
    const auto bias = ts::select(seen, 0.0f, -std::numeric_limits<float>::infinity());
    return std::tuple(ts::attention(q, k, v, seen), ts::attention(q, k, v, bias), ts::causal_attention(q, k, v, seen));
  };
  const auto got = results_of<Tensor, Tensor, Tensor, ts::ShardedTensor<bool, 2>>(masked, arguments);
  const auto bias_of = [&](bool causal_too) {
    return expected_with(cross, 1 / std::sqrt(2.0), [&](int, int, std::int64_t t, std::int64_t s) {
      return mask.at({t, s}) != 0 && (!causal_too || s <= t) ? 0 : -INFINITY;
    });
  };
  expect_near(got.at(0), bias_of(false), 1e-12);
  expect_near(got.at(1), bias_of(false), 1e-12);
  expect_near(got.at(2), bias_of(true), 1e-12);
  const auto slopes = [](const auto& q, const auto& k, const auto& v, const auto& seen) {
    return ts::grad([&](const auto& in) { return ts::sum(ts::square(ts::attention(in, k, v, seen))); })(q);
  };
  const Array slope = results_of<Tensor, Tensor, Tensor, ts::ShardedTensor<bool, 2>>(slopes, arguments).at(0);
  for (std::int64_t e = 0; e < 2; ++e) EXPECT_EQ(slope.at({0, 1, 0, e}), 0);
  EXPECT_NE(slope.at({0, 0, 0, 0}), 0);
}

/// Values that are rows of the identity matrix, so that attention gives its weights, [batch, time, heads, keys].
Array identity_values(std::int64_t batch, std::int64_t keys, std::int64_t heads) {
  Array v({batch, keys, heads, keys});
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t s = 0; s < keys; ++s) v.at({b, s, h, s}) = 1;
  return v;
}

// Each weight is 0 or what it is without dropout over 1 - rate; the shares of dropped weights are those of the rate.
TEST(AttentionDropout, DropsWeightsBehindTheSoftmax) {
  const std::vector<Array> x{random_array({3, 20, 2, 4}, 1), random_array({3, 20, 2, 4}, 2), identity_values(3, 20, 2)};
  const auto f = [](const auto& q, const auto& k, const auto& v, const auto& bias, const auto& rate) {
    const auto drop = ts::attention_dropout<3>(rate, 11);
    return std::tuple(ts::attention(q, k, v, drop), ts::attention(q, k, v), ts::causal_attention(q, k, v, drop, 0.5),
                      ts::causal_attention(q, k, v, 0.5), ts::attention(q, k, v, drop, bias),
                      ts::attention(q, k, v, bias), ts::causal_attention(q, k, v, drop, bias, 0.5),
                      ts::causal_attention(q, k, v, bias, 0.5));
  };
  std::vector<Array> arguments = x;
  arguments.push_back(random_array({20, 20}, 4));
  arguments.push_back(Array::number(0));
  for (const double rate : {0.0, 0.25, 1.0}) {
    arguments.back() = Array::number(rate);
    const auto got = results_of<Tensor, Tensor, Tensor, Float<2>, ts::Scalar>(f, arguments);
    std::vector<bool> dropped_first;
    for (std::size_t form = 0; form < 4; ++form) {
      const Array &with = got.at(2 * form), &without = got.at(2 * form + 1);
      double seen = 0, dropped = 0;
      std::vector<bool> is_dropped;
      for (std::size_t i = 0; i < with.data.size(); ++i) {
        is_dropped.push_back(with.data[i] == 0);
        if (without.data[i] == 0) {
          EXPECT_EQ(with.data[i], 0);  // a key after the query
          continue;
        }
        seen += 1;
        dropped += is_dropped.back() ? 1 : 0;
        if (!is_dropped.back()) {
          ASSERT_NEAR(with.data[i], without.data[i] / (1 - rate), 1e-12) << form << " " << i;
          ASSERT_TRUE(form == 0 || !dropped_first[i]) << "one key and stream drop other weights";
        }
      }
      if (form == 0) dropped_first = is_dropped;
      // Five standard deviations of the share.
      EXPECT_NEAR(dropped / seen, rate, 5 * std::sqrt(rate * (1 - rate) / seen)) << form;
    }
  }
}

// The mean over many keys is attention without dropout: its standard deviation is at most 0.023, which sums
// of weights of at most 1 times values of at most 1 have.
TEST(AttentionDropout, HasTheMeanOfAttention) {
  const auto f = [](const auto& q, const auto& k, const auto& v, const ts::Scalar& key) {
    return ts::attention(q, k, v, ts::attention_dropout(0.5, key));
  };
  std::vector<Array> arguments = cross;
  arguments.push_back(Array::number(0));
  const Program program = trace<decltype(f), Tensor, Tensor, Tensor, ts::Scalar>();
  constexpr int draws = 2000;
  Array mean;
  for (int key = 0; key < draws; ++key) {
    arguments.back() = Array::number(key);
    const Array one = run(program.view(), arguments).at(0);
    if (key == 0) mean = Array(one.shape);
    for (std::size_t i = 0; i < one.data.size(); ++i) mean.data[i] += one.data[i] / draws;
  }
  expect_near(mean, expected(cross, false, 1 / std::sqrt(2.0)), 0.1);
}

// Also of operands, rate and bias; the key, and so what is dropped, stays.
TEST(AttentionDropout, Derivatives) {
  std::vector<Array> arguments = cross;
  arguments.push_back(random_array({2, 2, 3, 5}, 4));
  check_gradient<Tensor, Tensor, Tensor, Tensor>(
      [](const auto& q, const auto& k, const auto& v, const auto& bias) {
        return ts::attention(q, k, v, ts::attention_dropout(0.25, 5)) +
               ts::causal_attention(q, k, v, ts::attention_dropout<1>(0.5, 5), bias, 0.5);
      },
      arguments, first_order);
}

TEST(RepeatHeads, EachHeadOfKeysServesAGroupOfQueries) {
  const auto grouped = [](const auto& q, const auto& k, const auto& v) {
    return ts::attention(q, ts::repeat_heads(k, q), ts::repeat_heads(v, q));
  };
  const std::vector<Array> x{random_array({2, 3, 4, 2}, 1), random_array({2, 5, 2, 2}, 2),
                             random_array({2, 5, 2, 3}, 3)};
  expect_near(apply<Tensor, Tensor, Tensor>(grouped, x),
              expected_with(x, 1 / std::sqrt(2.0), [](int, int, int, int) { return 0.0; }), 1e-12);
  check_gradient<Tensor, Tensor, Tensor>(grouped, x, first_order);
}

TEST(RepeatHeads, RefusesHeadsThatAreNoGroups) {
  const auto f = [](const auto& k, const auto& q) { return ts::repeat_heads(k, q); };
  const auto program = trace<decltype(f), Tensor, Tensor>();
  const auto infer = [&](std::int64_t of_keys) {
    return [&program, of_keys] {
      const ts::Shape shapes[] = {{2, 5, of_keys, 2}, {2, 3, 4, 2}};
      ts::infer_shapes(program.view(), shapes, nullptr);
    };
  };
  EXPECT_NO_THROW(infer(2)());
  EXPECT_NO_THROW(infer(4)());
  for (const std::int64_t of_keys : {3, 8}) {
    const std::string heads = std::to_string(of_keys);
    tessera_test::expect_error(ts::errc::not_divisible, infer(of_keys),
                               "[repeat_heads] heads: 4 heads of queries are not divisible by " + heads +
                                   " heads of keys: f32[2,3,4,2] x f32[2,5," + heads + ",2] at attention_test.cpp:");
  }
}

TEST(Alibi, SlopesOfThePaper) {
  const std::vector<float> eight = ts::nn::alibi_slopes(8), six = ts::nn::alibi_slopes(6);
  for (int i = 0; i < 8; ++i)
    EXPECT_FLOAT_EQ(eight[static_cast<std::size_t>(i)], std::exp2(-1.0f - static_cast<float>(i)));
  const std::vector<float> want{0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f, 0.125f};
  EXPECT_EQ(six, want);
  EXPECT_THROW((void)ts::nn::alibi_slopes(0), ts::error);
}

TEST(Alibi, SubtractsTheDistance) {
  const auto linear = [](const auto& q, const auto& k, const auto& v, const auto& slopes) {
    return ts::biased_attention(q, k, v, ts::alibi_bias(slopes, k), ts::unlimited, 0, 2);
  };
  std::vector<Array> arguments = cross;
  arguments.push_back(Array(Shape{2}, {0.5, 0.25}));
  expect_near(apply<Tensor, Tensor, Tensor, Float<1>>(linear, arguments),
              expected_with(cross, 1 / std::sqrt(2.0),
                            [](int, std::int64_t h, std::int64_t t, std::int64_t s) {
                              return s > t + 2 ? -INFINITY : (h == 0 ? 0.5 : 0.25) * static_cast<double>(s - t - 2);
                            }),
              1e-12);
}

}  // namespace
