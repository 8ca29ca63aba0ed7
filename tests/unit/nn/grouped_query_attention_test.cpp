#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "../../support/gradients.hpp"
#include "layer_calls.hpp"
#include "plain.hpp"
#include "transformer_strategies.hpp"
#include <gtest/gtest.h>

#include <tessera/nn/nn.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;
using oracle::Array;
using oracle::random_array;
using tessera_test::Tensor3;

namespace {

using Mask = ts::ShardedTensor<bool, 2>;
using Bias = ts::ShardedTensor<float, 2>;

struct Forms {
  constexpr auto operator()(const auto& a, const auto& x, const auto& memory, const auto& mask,
                            const auto& bias) const {
    const auto known = a.keys_and_values(memory);
    return std::tuple(a(x), a.causal(x), a(x, x), a(x, memory), a(x, known), a.masked(x, memory, mask),
                      a.masked(x, known, mask), a.biased(x, memory, bias), a.biased(x, known, bias),
                      a.biased(x, memory, ts::unsqueeze<1>(ts::unsqueeze<1>(mask))), a.causal(memory, mask),
                      a.windowed(x, 1, 0));
  }
};

/// x [batch, time, heads * width] with the halves of each head rotated by the angles of the positions.
Array rotated(const Array& x, std::int64_t width) {
  Array y(x.shape);
  oracle::for_each_index(x.shape, [&](const oracle::Shape& i) {
    const std::int64_t first = i[2] / width * width, e = i[2] % width, half = width / 2;
    const double angle = static_cast<double>(i[1]) *
                         std::pow(10000.0, -2.0 * static_cast<double>(e % half) / static_cast<double>(width));
    const double other = x.at({i[0], i[1], first + (e + half) % width});
    y.at(i) = x.at(i) * std::cos(angle) + (e < half ? -other : other) * std::sin(angle);
  });
  return y;
}

// Four heads of queries and two of keys, of width 2, of x with 3 positions and a memory with 5.
struct Written {
  Array qw = random_array({6, 8}, 1), kw = random_array({6, 4}, 2), vw = random_array({6, 4}, 3),
        ow = random_array({8, 6}, 4), x = random_array({2, 3, 6}, 5), memory = random_array({2, 5, 6}, 6),
        mask = Array({2, 5}, {1, 0, 1, 1, 0, 0, 1, 0, 0, 0}), bias = random_array({3, 5}, 7);

  Array attention(const Array& of, const Array& to, bool rotates, const auto& seen, const auto& added) const {
    Array q = plain::linear(of, qw, nullptr), k = plain::linear(to, kw, nullptr);
    const Array v = plain::linear(to, vw, nullptr);
    if (rotates) q = rotated(q, 2), k = rotated(k, 2);
    Array joined(q.shape);
    oracle::for_each_index({of.shape[0], of.shape[1], 4}, [&](const oracle::Shape& i) {
      const std::int64_t b = i[0], t = i[1], own = i[2] * 2, shared = i[2] / 2 * 2;
      double total = 0;
      for (std::int64_t s = 0; s < to.shape[1]; ++s) {
        if (!seen(b, t, s)) continue;
        double score = added(t, s);
        for (std::int64_t e = 0; e < 2; ++e) score += q.at({b, t, own + e}) * k.at({b, s, shared + e}) / std::sqrt(2.0);
        total += std::exp(score);
        for (std::int64_t e = 0; e < 2; ++e) joined.at({b, t, own + e}) += std::exp(score) * v.at({b, s, shared + e});
      }
      for (std::int64_t e = 0; e < 2 && total > 0; ++e) joined.at({b, t, own + e}) /= total;
    });
    return plain::linear(joined, ow, nullptr);
  }
  /// What Forms computes.
  std::vector<Array> forms(bool rotates) const {
    const auto all = [](auto, auto, auto) { return true; };
    const auto causal = [](auto, auto t, auto s) { return s <= t; };
    const auto where = [&](auto b, auto, auto s) { return mask.at({b, s}) != 0; };
    const auto zero = [](auto, auto) { return 0.0; };
    const auto of = [&](const Array& from, const Array& to, const auto& seen, const auto& added) {
      return attention(from, to, rotates, seen, added);
    };
    const Array masked = of(x, memory, where, zero);
    const Array biased = of(x, memory, all, [&](auto t, auto s) { return bias.at({t, s}); });
    return {of(x, x, causal, zero),
            of(x, x, causal, zero),
            of(x, x, all, zero),
            of(x, memory, all, zero),
            of(x, memory, all, zero),
            masked,
            masked,
            biased,
            biased,
            masked,
            of(
                memory, memory, [&](auto b, auto t, auto s) { return s <= t && where(b, t, s); }, zero),
            of(
                x, x, [](auto, auto t, auto s) { return s <= t && s >= t - 1; }, zero)};
  }
  template <class Layer> std::vector<Array> run(const std::vector<Array>& options) const {
    const oracle::Program program = oracle::trace<Forms, Layer, Tensor3, Tensor3, Mask, Bias>();
    std::vector<Array> arguments{qw, kw, vw, ow, Array::number(4), Array::number(2)};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.insert(arguments.end(), {x, memory, mask, bias});
    return oracle::run(program.view(), arguments);
  }
};

TEST(GroupedQueryAttention, HasTheFormsOfMultiHeadAttention) {
  const Written written;
  const auto expect = [](const std::vector<Array>& got, const std::vector<Array>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE(i);
      oracle::expect_near(got[i], want[i], 1e-10);
    }
  };
  const Array one = Array::number(1);
  expect(written.run<nn::GroupedQueryAttention<>>({Array::number(10000), one, one}), written.forms(true));
  expect(written.run<nn::GroupedQueryAttention<float, nn::Linear<float, false>, ts::NoRotary>>({}),
         written.forms(false));
}

struct DroppedForms {
  constexpr auto operator()(const auto& a, const auto& x, const auto& memory, const auto& mask, const auto& bias,
                            const ts::Scalar& rate) const {
    const auto drop = nn::layer_dropout(rate, 5);
    return std::tuple(a.causal(x), a.causal(x, drop), a(x, memory), a(x, memory, drop), a.masked(x, memory, mask),
                      a.masked(x, memory, mask, drop), a.biased(x, memory, bias), a.biased(x, memory, bias, drop),
                      a.causal(memory, mask), a.causal(memory, mask, drop), a.windowed(x, 1, 1));
  }
};
struct SumOfForms {
  constexpr auto operator()(const auto& a, const auto&... x) const {
    return std::apply([](const auto&... y) { return (ts::sum(ts::square(y + ts::iota<2, float>(y))) + ...); },
                      DroppedForms()(a, x...));
  }
};

// Without rotations it is multi-head attention whose heads of keys are repeated, also with dropout; the gradient of
// shared weights is then a sum over the heads of a group. On every mesh.
TEST(GroupedQueryAttention, IsMultiHeadAttentionWithRepeatedHeads) {
  constexpr auto run = ts::compile([](const auto& grouped, const auto&... x) {
    const auto repeated = [&](const auto& weight) {  // [features, key_heads * width] to [features, heads * width]
      const auto heads = ts::rearrange<"f (h e) -> f h 1 e">(weight, ts::len<"h">(2));
      return ts::rearrange<"f h g e -> f (h g e)">(ts::concat<2>(heads, heads));
    };
    const auto equal = [&](const auto& a) {
      using Linear = nn::Linear<float, false>;
      return nn::MultiHeadAttention<float, false>{a.query, Linear{repeated(a.key.weight)},
                                                  Linear{repeated(a.value.weight)}, a.out, a.heads};
    };
    const auto slopes =
        ts::grad([](const auto& a, const auto&... in) { return SumOfForms()(a, in...); })(grouped, x...);
    const auto want =
        ts::grad([&](const auto& a, const auto&... in) { return SumOfForms()(equal(a), in...); })(grouped, x...);
    return std::tuple(DroppedForms()(grouped, x...), DroppedForms()(equal(grouped), x...), slopes, want);
  });
  for (const nn::ShardingStrategy& strategy : transformers::strategies()) {
    const auto layer = nn::grouped_query_attention<float>(ts::Key(2), 8, 4, 2, strategy, 1, 0.5, ts::NoRotary());
    const auto x = ts::normal<float>(ts::Key(3), {4, 3, 8}, strategy.mesh, strategy.batch);
    const auto memory = ts::normal<float>(ts::Key(4), {4, 5, 8}, strategy.mesh, strategy.batch);
    const auto mask = ts::shard<2>(std::array<bool, 20>{1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 0},
                                   {4, 5}, strategy.mesh, strategy.batch);
    const auto bias = ts::normal<float>(ts::Key(5), {3, 5}, strategy.mesh);
    const auto [forms, want, slopes, sums] = run(layer, x, memory, mask, bias, ts::Scalar(0.3));
    const auto list = [](const auto& results) {
      return std::apply([](const auto&... y) { return std::vector{ts::to_host(y)...}; }, results);
    };
    const auto of = [](const auto& a) {
      return std::vector{ts::to_host(a.query.weight), ts::to_host(a.key.weight), ts::to_host(a.value.weight),
                         ts::to_host(a.out.weight)};
    };
    std::vector<std::vector<float>> got = list(forms), expected = list(want);
    const auto first = of(slopes), second = of(sums);
    got.insert(got.end(), first.begin(), first.end()), expected.insert(expected.end(), second.begin(), second.end());
    EXPECT_NE(got[0], got[1]) << "dropout drops";
    for (std::size_t k = 0; k < got.size(); ++k)
      for (std::size_t i = 0; i < got[k].size(); ++i)
        ASSERT_NEAR(got[k][i], expected[k][i], 2e-4 * std::max(1.0F, std::fabs(expected[k][i])))
            << strategy.mesh.text() << " " << k << " " << i;
  }
}

}  // namespace
