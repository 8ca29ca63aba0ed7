// Variants of attention combined, against loops over doubles and their finite differences.
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/attention/attention.hpp>
#include <tessera/ops/attention/band_attention.hpp>
#include <tessera/ops/attention/positions.hpp>
#include <tessera/ops/attention/rotary_embedding.hpp>
#include <tessera/ops/contraction/autocast.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;

namespace {

constexpr std::int64_t batch = 3, times = 5, keys = 7, heads = 4, key_heads = 2, width = 4;
using Host = std::vector<double>;
Host drawn(std::int64_t n, double seed) {
  Host x;
  for (std::int64_t i = 0; i < n; ++i)
    x.push_back(std::sin(seed + 1.3 * static_cast<double>(i)) + 0.3 * std::cos(0.7 * static_cast<double>(i) * seed));
  return x;
}
struct Args {  // q, k, v, slopes, bias
  std::array<Host, 5> x{drawn(batch * times * heads * width, 1),
                        drawn(batch* keys* key_heads* width, 2),
                        drawn(batch* keys* key_heads* width, 3),
                        {0.5, 0.25, 0.125, 0.0625},
                        drawn(batch* heads* times* keys, 4)};
};
const Host mask{1, 1, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 0, 1};  // [batch, keys]
const Host pairs{1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0,
                 0, 1, 0, 0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1};  // [times, keys]
const Host weight = drawn(batch * times * heads * width, 7);

struct Rule {
  std::function<bool(std::int64_t b, std::int64_t t, std::int64_t s)> sees;
  std::function<double(const Args&, std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t s)> bias =
      [](const Args&, auto, auto, auto, auto) { return 0.0; };
  int rotary = 0;  // offset + 1
};
double angle(std::int64_t pair) {  // Llama 3.1: base 100, factor 4, low 1, high 4, context 16
  const double f = std::pow(100.0, -2.0 * static_cast<double>(pair) / width), wave = 2 * std::acos(-1.0) / f;
  if (wave < 16.0 / 4) return f;
  if (wave > 16.0 / 1) return f / 4;
  const double smooth = (16.0 / wave - 1) / (4 - 1);
  return (1 - smooth) * f / 4 + smooth * f;
}
void rotate(Host& x, std::int64_t count, std::int64_t own_heads, int offset) {
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t t = 0; t < count; ++t)
      for (std::int64_t h = 0; h < own_heads; ++h)
        for (std::int64_t i = 0; i < width / 2; ++i) {
          double& u = x[((b * count + t) * own_heads + h) * width + i];
          double& w = x[((b * count + t) * own_heads + h) * width + i + width / 2];
          const double a = angle(i) * static_cast<double>(t + offset), p = u, r = w;
          u = p * std::cos(a) - r * std::sin(a), w = r * std::cos(a) + p * std::sin(a);
        }
}
double loss(Args a, const Rule& rule) {
  if (rule.rotary) rotate(a.x[0], times, heads, rule.rotary - 1), rotate(a.x[1], keys, key_heads, 0);
  double total = 0;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t t = 0; t < times; ++t)
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t g = h / (heads / key_heads);
        double score[keys], sum = 0;
        for (std::int64_t s = 0; s < keys; ++s) {
          score[s] = 0;
          if (!rule.sees(b, t, s)) continue;
          for (std::int64_t e = 0; e < width; ++e)
            score[s] += a.x[0][((b * times + t) * heads + h) * width + e] *
                        a.x[1][((b * keys + s) * key_heads + g) * width + e] / 2;
          score[s] = std::exp(score[s] + rule.bias(a, b, h, t, s));
          sum += score[s];
        }
        for (std::int64_t s = 0; s < keys; ++s)
          if (sum > 0)
            for (std::int64_t e = 0; e < width; ++e)
              total += score[s] / sum * a.x[2][((b * keys + s) * key_heads + g) * width + e] *
                       weight[((b * times + t) * heads + h) * width + e];
      }
  return total;
}

template <class F> struct Slopes {
  constexpr auto operator()(const auto& x, const auto& more, const auto& c) const {
    return ts::value_and_grad([](const auto& own, const auto& rest, const auto& w) {
      const auto& [q, k, v, slopes, bias] = own;
      const auto& [m, p, at] = rest;
      return ts::sum(F{}(q, ts::repeat_heads(k, q), ts::repeat_heads(v, q), slopes, bias, ts::greater(m, 0.5),
                         ts::greater(p, 0.5), at) *
                     w);
    })(x, more, c);
  }
};
struct CausalPadded {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto&, const auto&, const auto& m,
                            const auto&, const auto&) const {
    return ts::biased_attention(q, k, v, ts::key_padding_bias<double>(m), ts::unlimited, 0, 2);
  }
};
struct WindowPaddedAlibi {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto& s, const auto&, const auto& m,
                            const auto&, const auto&) const {
    return ts::biased_attention(q, k, v, ts::key_padding_bias<double>(m) + ts::alibi_bias(s, k), 3, 1, 2);
  }
};
struct Pairs {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto&, const auto&, const auto&,
                            const auto& p, const auto&) const {
    return ts::attention(q, k, v, p);
  }
};
struct CausalBias {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto&, const auto& bias, const auto&,
                            const auto&, const auto&) const {
    return ts::causal_attention(q, k, v, bias);
  }
};
struct RotaryWindow {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto&, const auto&, const auto&,
                            const auto&, const auto& at) const {
    const ts::Llama3Rotary r{.base = 100, .factor = 4, .original_max_position_embeddings = 16};
    return ts::band_attention(ts::rotary_embedding(q, at, r), ts::rotary_embedding(k, 0, r), v, 2, 0, at);
  }
};
struct IndexWindow {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto&, const auto&, const auto& m,
                            const auto&, const auto&) const {
    const auto two = ts::cast<std::int32_t>(ts::sum(ts::cast<double>(m)) * 0.0 + 2.0);
    return ts::band_attention(q, k, v, 2, 1, two);
  }
};

template <class F> void check(const Rule& rule) {
  Args a;
  std::array<Host, 5> want;
  for (std::size_t n = 0; n < 5; ++n)
    for (std::size_t i = 0; i < a.x[n].size(); ++i) {
      Args up = a, down = a;
      up.x[n][i] += 1e-5, down.x[n][i] -= 1e-5;
      want[n].push_back((loss(up, rule) - loss(down, rule)) / 2e-5);
    }
  const double value = loss(a, rule);
  constexpr auto program = ts::compile(Slopes<F>{});
  for (const int devices : {1, 2, 3})
    for (int how = 0; how < 5; ++how) {
      const ts::Mesh mesh({{"x", devices}});
      const auto spec = [&](int dim) {
        ts::PartitionSpec s;
        if (dim < 0) return s;
        for (int d = 0; d < dim; ++d) s.entries.push_back(ts::none);
        s.entries.push_back("x");
        return s;
      };
      // batch; query time; heads; keys; width
      const int of_q[] = {0, 1, 2, -1, 3}, of_k[] = {0, -1, 2, 1, 3}, of_bias[] = {0, 2, 1, 3, -1};
      const auto x = std::tuple(ts::shard(a.x[0], {batch, times, heads, width}, mesh, spec(of_q[how])),
                                ts::shard(a.x[1], {batch, keys, key_heads, width}, mesh, spec(of_k[how])),
                                ts::shard(a.x[2], {batch, keys, key_heads, width}, mesh, spec(of_k[how])),
                                ts::shard(a.x[3], {heads}, mesh, spec(how == 2 ? 0 : -1)),
                                ts::shard(a.x[4], {batch, heads, times, keys}, mesh, spec(of_bias[how])));
      const auto more = std::tuple(ts::shard(mask, {batch, keys}, mesh,
                                             spec(how == 0   ? 0
                                                  : how == 3 ? 1
                                                             : -1)),
                                   ts::shard(pairs, {times, keys}, mesh, spec(how == 1 ? 0 : -1)), ts::Scalar(2));
      const auto [y, g] = program(x, more, ts::shard(weight, {batch, times, heads, width}, mesh, spec(of_q[how])));
      EXPECT_NEAR(ts::item(y), value, 1e-11) << devices << " " << how;
      const std::array<Host, 5> got{ts::to_host(std::get<0>(g)), ts::to_host(std::get<1>(g)),
                                    ts::to_host(std::get<2>(g)), ts::to_host(std::get<3>(g)),
                                    ts::to_host(std::get<4>(g))};
      for (std::size_t n = 0; n < 5; ++n)
        for (std::size_t i = 0; i < got[n].size(); ++i)
          ASSERT_NEAR(got[n][i], want[n][i], 3e-9) << devices << " " << how << " of " << n << " at " << i;
    }
}
const auto kept = [](std::int64_t b, std::int64_t s) { return mask[b * keys + s] > 0.5; };

TEST(AttentionCombined, CausalPaddedGrouped) {
  check<CausalPadded>({.sees = [](auto b, auto t, auto s) { return kept(b, s) && s <= t + 2; }});
}
TEST(AttentionCombined, WindowPaddedAlibi) {
  check<WindowPaddedAlibi>(
      {.sees = [](auto b, auto t, auto s) { return kept(b, s) && s <= t + 2 + 1 && s >= t + 2 - 3; },
       .bias = [](const Args& a, auto, auto h, auto t,
                  auto s) { return -a.x[3][h] * static_cast<double>(t + 2 - s); }});
}
TEST(AttentionCombined, Pairs) {
  check<Pairs>({.sees = [](auto, auto t, auto s) { return pairs[t * keys + s] > 0.5; }});
}
TEST(AttentionCombined, CausalBias) {
  check<CausalBias>({.sees = [](auto, auto t, auto s) { return s <= t; },
                     .bias = [](const Args& a, auto b, auto h, auto t,
                                auto s) { return a.x[4][((b * heads + h) * times + t) * keys + s]; }});
}
TEST(AttentionCombined, RotaryWindow) {
  check<RotaryWindow>({.sees = [](auto, auto t, auto s) { return s <= t + 2 && s >= t; }, .rotary = 3});
}
TEST(AttentionCombined, IndexWindow) {
  check<IndexWindow>({.sees = [](auto, auto t, auto s) { return s <= t + 3 && s >= t; }});
}

struct Alibi {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto& slopes, const auto& m) const {
    return ts::biased_attention(q, k, v, ts::key_padding_bias(ts::greater(m, 0.5f)) + ts::alibi_bias(slopes, k),
                                ts::unlimited, 0);
  }
};
// Positions of keys times a slope have more digits than bf16 and f16.
TEST(AttentionCombined, AlibiOfLatePositionsInHalves) {
  constexpr std::int64_t length = 900, two_heads = 2, size = 8;
  std::vector<float> x[3], kept_keys;
  for (int n = 0; n < 3; ++n)
    for (std::int64_t i = 0; i < length * two_heads * size; ++i)
      x[n].push_back(static_cast<float>(
          ts::bf16(static_cast<float>(std::sin(1.0 + n + 1.3 * double(i)) + 0.3 * std::cos(0.7 * double(i) * n)))));
  for (std::int64_t s = 0; s < length; ++s) kept_keys.push_back(s % 7 == 3 ? 0.0f : 1.0f);
  const std::vector<float> slopes{0.5f, 0.0625f};
  Host want(length * two_heads * size);
  for (std::int64_t t = 0; t < length; ++t)
    for (std::int64_t h = 0; h < two_heads; ++h) {
      double sum = 0;
      Host score(length);
      for (std::int64_t s = 0; s <= t; ++s) {
        if (kept_keys[s] < 0.5f) continue;
        for (std::int64_t e = 0; e < size; ++e)
          score[s] += double{x[0][(t * two_heads + h) * size + e]} * x[1][(s * two_heads + h) * size + e] /
                      std::sqrt(double{size});
        score[s] = std::exp(score[s] - slopes[h] * double(t - s));
        sum += score[s];
      }
      for (std::int64_t s = 0; s <= t; ++s)
        for (std::int64_t e = 0; e < size; ++e)
          want[(t * two_heads + h) * size + e] += score[s] / sum * x[2][(s * two_heads + h) * size + e];
    }
  constexpr auto plain = ts::compile(Alibi{});
  constexpr auto bf = ts::compile([](const auto& q, const auto& k, const auto& v, const auto& s, const auto& m) {
    return ts::cast<float>(Alibi{}(ts::cast<ts::bf16>(q), ts::cast<ts::bf16>(k), ts::cast<ts::bf16>(v), s, m));
  });
  constexpr auto f = ts::compile([](const auto& q, const auto& k, const auto& v, const auto& s, const auto& m) {
    return ts::cast<float>(Alibi{}(ts::cast<ts::f16>(q), ts::cast<ts::f16>(k), ts::cast<ts::f16>(v), s, m));
  });
  constexpr auto automatic = ts::compile([](const auto& q, const auto& k, const auto& v, const auto& s, const auto& m) {
    return ts::autocast<ts::bf16>(Alibi{})(q, k, v, s, m);
  });
  const ts::Mesh mesh({{"x", 2}});
  const ts::PartitionSpec by_head{ts::none, ts::none, "x"};
  const auto run = [&](const auto& program, const char* name, double tolerance) {
    const auto got =
        ts::to_host(program(ts::shard(x[0], {1, length, two_heads, size}, mesh, by_head),
                            ts::shard(x[1], {1, length, two_heads, size}, mesh, by_head),
                            ts::shard(x[2], {1, length, two_heads, size}, mesh, by_head),
                            ts::shard(slopes, {two_heads}, mesh, {"x"}), ts::shard(kept_keys, {1, length}, mesh)));
    double most = 0;
    for (std::size_t i = 0; i < want.size(); ++i) most = std::max(most, std::fabs(got[i] - want[i]));
    EXPECT_LT(most, tolerance) << name;
  };
  run(plain, "f32", 1e-3), run(bf, "bf16", 2e-2), run(f, "f16", 2e-3), run(automatic, "autocast", 2e-2);
}

}  // namespace
