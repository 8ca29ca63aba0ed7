// Layers of transformers: activations, dropout, positions.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../../support/traced.hpp"
#include "transformer_strategies.hpp"
#include <gtest/gtest.h>

#include <tessera/nn/nn.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;
using oracle::Array;
using oracle::random_array;

namespace {

using Tensor3 = ts::ShardedTensor<float, 3>;
using Mask = ts::ShardedTensor<bool, 2>;

/// Factors of a dropout with this stream, in the shape of x.
template <std::uint32_t Stream> constexpr auto factors(const auto& x, const auto& rate, const auto& key) {
  return ts::dropout<Stream>(ts::ones_like(x), rate, key);
}
constexpr std::uint32_t stream = nn::detail::dropout_of_attention;

/// Attention as F.multi_head_attention_forward writes it, with factors of the weights after the softmax: to the keys
/// where the mask is true, and causal or not.
template <std::uint32_t Stream, bool Causal>
constexpr auto dropped_attention(const auto& a, const auto& x, const auto& memory, const auto& mask, const auto& rate,
                                 const auto& key) {
  const auto q = a.split(a.query(x)), k = a.split(a.key(memory)), v = a.split(a.value(memory));
  const auto scores = ts::einsum<"bthe,bshe->bhts">(q, k) * (1 / std::sqrt(2.0));
  const auto seen = ts::select(ts::unsqueeze<1>(ts::unsqueeze<1>(mask)), scores, -1e30);
  const auto before = ts::select(ts::iota<2, int>(scores) < ts::iota<3, int>(scores), -1e30, seen);
  const auto weights = ts::softmax<-1>([&] {
    if constexpr (Causal)
      return ts::Sym(before);
    else
      return ts::Sym(seen);
  }());
  return a.merged(ts::einsum<"bhts,bshe->bthe">(factors<Stream>(weights, rate, key) * weights, v));
}

// As the forward functions of torch.nn.TransformerEncoderLayer and TransformerDecoderLayer are written.
struct DropInEncoder {
  constexpr auto operator()(const auto& layer, const auto& x, const auto& mask, const ts::Scalar& rate,
                            const ts::Scalar& key) const {
    const auto one = factors<stream>(x, rate, key), two = factors<stream + 3>(x, rate, key);
    const auto attended = dropped_attention<stream + 4, false>(layer.attention, x, x, mask, rate, key);
    const auto own = layer.attention_norm(x + one * attended);
    const auto hidden = ts::relu(layer.mlp.up(own));
    const auto inside = factors<stream + 2>(hidden, rate, key);
    const auto want = layer.mlp_norm(own + two * layer.mlp.down(inside * hidden));
    return std::tuple(layer(x, mask, nn::layer_dropout(rate, key)), want, layer(x, mask, nn::layer_dropout(0, key)),
                      layer(x, mask), layer(x, nn::layer_dropout(0.0, 7)), layer(x), one, two, inside);
  }
};
struct DropInDecoder {
  constexpr auto operator()(const auto& layer, const auto& x, const auto& memory, const auto& mask,
                            const ts::Scalar& rate, const ts::Scalar& key) const {
    const auto in = layer.attention_norm(x);
    const auto all = ts::sum<2>(x) < 1e9;
    const auto own = x + factors<stream>(x, rate, key) *
                             dropped_attention<stream + 4, true>(layer.attention, in, in, all, rate, key);
    const auto crossed =
        own + factors<stream + 1>(x, rate, key) *
                  dropped_attention<stream + 5, false>(layer.cross, layer.cross_norm(own), memory, mask, rate, key);
    const auto hidden = layer.mlp.up(layer.mlp_norm(crossed));
    const auto active = hidden * ts::ndtr(hidden);
    const auto want =
        crossed + factors<stream + 3>(x, rate, key) * layer.mlp.down(factors<stream + 2>(hidden, rate, key) * active);
    const auto none = nn::layer_dropout(0, key);
    return std::tuple(layer(x, memory, mask, nn::layer_dropout(rate, key)), want, layer(x, memory, mask, none),
                      layer(x, memory, mask), layer(x, memory, none), layer(x, memory), factors<stream>(x, rate, key),
                      factors<stream + 3>(x, rate, key), factors<stream + 1>(x, rate, key));
  }
};
// attn_pdrop and resid_pdrop of GPT-2.
struct DropInBlock {
  constexpr auto operator()(const auto& layer, const auto& x, const auto&, const ts::Scalar& rate,
                            const ts::Scalar& key) const {
    const auto one = factors<stream>(x, rate, key), two = factors<stream + 3>(x, rate, key);
    const auto all = ts::rearrange<"b t (h c e) -> b t h c e">(layer.attention.qkv(layer.attention_norm(x)),
                                                               ts::len<"h">(2), ts::len<"c">(3));
    const auto part = [&](const auto& i) { return ts::squeeze<3>(ts::slice<3>(all, i, 1)); };
    const auto scores = ts::einsum<"bthe,bshe->bhts">(part(0), part(1)) * (1 / std::sqrt(2.0));
    const auto weights =
        ts::softmax<-1>(ts::select(ts::iota<2, int>(scores) < ts::iota<3, int>(scores), -1e30, scores));
    const auto attended = [&](const auto& of) {
      return layer.attention.out(ts::rearrange<"b t h e -> b t (h e)">(ts::einsum<"bhts,bshe->bthe">(of, part(2))));
    };
    const auto after = [&](const auto& middle) { return middle + two * layer.mlp(layer.mlp_norm(middle)); };
    const auto want = after(x + one * attended(factors<stream + 4>(weights, rate, key) * weights));
    const auto residual = after(x + one * layer.attention(layer.attention_norm(x)));
    return std::tuple(layer(x, nn::layer_dropout(rate, key)), want, layer(x, nn::layer_dropout(0, key)), layer(x),
                      layer(x, nn::layer_dropout(rate, key, 0)), residual, one, two, one);
  }
};

/// Adds random arguments of a layer.
void add(std::vector<Array>& to, std::initializer_list<ts::Shape> shapes) {
  for (const ts::Shape& shape : shapes) to.push_back(random_array(shape, static_cast<unsigned>(to.size()) + 1));
}
void add_attention(std::vector<Array>& to) {
  add(to, {{4, 4}, {4}, {4, 4}, {4}, {4, 4}, {4}, {4, 4}, {4}});
  to.push_back(Array::number(2));
}
void add_norm(std::vector<Array>& to) {
  add(to, {{4}, {4}});
  to.push_back(Array::number(1e-5));
}

template <class Drop, class Layer, class... Tensors> void expect_dropout(std::vector<Array> arguments, int masks) {
  arguments.push_back(Array::number(0.25));
  arguments.push_back(Array::number(11));
  const oracle::Program program = oracle::trace<Drop, Layer, Tensors..., ts::Scalar, ts::Scalar>();
  const std::vector<Array> got = oracle::run(program.view(), arguments);
  oracle::expect_near(got.at(0), got.at(1), 1e-12, "written out");
  oracle::expect_near(got.at(2), got.at(3), 0, "a rate of 0");
  oracle::expect_near(got.at(4), got.at(5), 0, "no weights are dropped");
  double kept = 0, all = 0;
  for (std::size_t k = 6; k < 6 + static_cast<std::size_t>(masks); ++k)
    for (const double factor : got.at(k).data) {
      EXPECT_TRUE(factor == 0 || std::fabs(factor - 4.0 / 3) < 1e-12) << factor;
      kept += factor != 0, all += 1;
    }
  EXPECT_NEAR(kept / all, 0.75, 0.15);
  EXPECT_NE(got.at(6).data, got.at(7).data) << "each dropout has a stream of its own";
  EXPECT_NE(got.at(0).data, got.at(3).data);
}

TEST(LayerDropout, DropsWherePyTorchDoes) {
  const Array x = random_array({2, 3, 4}, 91), memory = random_array({2, 5, 4}, 92);
  const Array own_mask({2, 3}, {1, 1, 0, 1, 0, 1}), mask({2, 5}, {1, 0, 1, 1, 1, 1, 1, 1, 0, 1});
  std::vector<Array> encoder;
  add_attention(encoder);
  add_norm(encoder);
  add(encoder, {{4, 6}, {6}, {6, 4}, {4}});
  add_norm(encoder);
  encoder.insert(encoder.end(), {x, own_mask});
  expect_dropout<DropInEncoder, nn::EncoderLayer<>, Tensor3, Mask>(encoder, 3);

  std::vector<Array> decoder;
  add_attention(decoder);
  add_norm(decoder);
  add_attention(decoder);
  add_norm(decoder);
  add(decoder, {{4, 6}, {6}, {6, 4}, {4}});
  add_norm(decoder);
  decoder.insert(decoder.end(), {x, memory, mask});
  expect_dropout<DropInDecoder, nn::DecoderLayer<float, nn::NormPlace::pre, nn::ExactGelu>, Tensor3, Tensor3, Mask>(
      decoder, 3);

  std::vector<Array> block;
  add_norm(block);
  add(block, {{4, 12}, {12}, {4, 4}, {4}});
  block.push_back(Array::number(2));
  add_norm(block);
  add(block, {{4, 6}, {6}, {6, 4}, {4}});
  block.insert(block.end(), {x, own_mask});
  expect_dropout<DropInBlock, nn::Block<>, Tensor3, Mask>(block, 2);
}

/// As docs/loops.md writes it.
struct Encoder {
  ts::Stack<nn::EncoderLayer<float, nn::NormPlace::pre, nn::Gelu>> layers;

  constexpr auto operator()(const auto& x, const auto& mask) const { return layers(x, mask); }
  constexpr auto train(const auto& x, const auto& mask, const auto& key) const {
    return layers(x, mask, nn::layer_dropout(0.3, key));
  }
};
struct SquaredRelu {
  constexpr auto operator()(const auto& x) const { return ts::square(ts::relu(x)); }
};
/// Training and evaluation of a Stack, gradients; the Stack with a key that is a tensor, and one layer twice.
struct DropInStack {
  constexpr auto operator()(const auto& model, const auto& one, const auto& x, const auto& mask,
                            const ts::Scalar& key) const {
    const auto loss = [](const auto& m, const auto& in, const auto& of, const auto& k) {
      const auto y = m.train(in, of, k);
      return ts::sum(y * y * y);
    };
    const auto gradient = ts::grad(loss)(model, x, mask, key);
    const auto same = ts::key_data(key);
    const auto drops = nn::layer_dropout(0.3, same);
    return std::tuple(model.train(x, mask, key), model(x, mask), gradient, model.train(x, mask, same),
                      one(one(x, mask, drops), mask, drops), model.layers(x, mask, nn::layer_dropout(0, key)),
                      model.layers(x, mask, nn::layer_dropout(0.3, key, 0)));
  }
};

TEST(Mlp, TakesAnActivationOfYourOwn) {
  const Array up = random_array({4, 6}, 1), ub = random_array({6}, 2), down = random_array({6, 4}, 3),
              db = random_array({4}, 4), x = random_array({2, 3, 4}, 5);
  const auto call = [](const auto& layer, const auto& in) {
    return std::tuple(layer(in), layer.down(ts::square(ts::maximum(layer.up(in), 0))));
  };
  const auto got = oracle::run(oracle::trace<decltype(call), nn::Mlp<float, true, SquaredRelu>, Tensor3>().view(),
                               {up, ub, down, db, x});
  oracle::expect_near(got.at(0), got.at(1), 1e-12);
}

/// A kernel of attention to all keys, which drops weights, and one that cannot.
struct AllKeys {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto&... dropout) const {
    return ts::attention(q, k, v, dropout...);
  }
};
struct FourKeys {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const {
    return ts::band_attention(q, k, v, 3, 0);
  }
};
// With the values as weights of a product of width 1, dropped weights of Llama and of a kernel can be told from a sum.
TEST(LayerDropout, IsOfTheKernelsOfAttention) {
  constexpr auto run = ts::compile([](const auto& all, const auto& llama, const auto& x, const auto& rate,
                                      const ts::Scalar& key) {
    const auto drop = nn::layer_dropout(rate, key);
    const auto of_all = [&](const auto&... dropped) {
      const auto parts = ts::rearrange<"b t (h c e) -> c b t h e">(all.qkv(x), ts::len<"h">(2), ts::len<"c">(3));
      const auto part = [&](const auto& i) { return ts::squeeze<0>(ts::slice<0>(parts, i, 1)); };
      return all.out(ts::rearrange<"b t h e -> b t (h e)">(ts::attention(part(0), part(1), part(2), dropped...)));
    };
    const auto rotated = [&](const auto& y) { return ts::rotary_embedding(y, 0, llama.rotary); };
    const auto q = rotated(llama.split(llama.query(x), llama.heads)), v = llama.split(llama.value(x), llama.key_heads);
    const auto k = rotated(llama.split(llama.key(x), llama.key_heads));
    const auto weights = ts::attention_dropout<stream + 4>(rate, key);
    return std::tuple(all(x, drop), of_all(weights), llama(x, drop),
                      llama.merged(ts::causal_attention(q, ts::repeat_heads(k, q), ts::repeat_heads(v, q), weights)));
  });
  const auto one = nn::single(ts::Mesh());
  const auto all = nn::attention<float, true, AllKeys>(ts::Key(1), 8, 2, one, 1, 0.5);
  const auto llama = nn::grouped_query_attention<float>(ts::Key(2), 8, 4, 2, one, 1, 0.5);
  const auto x = ts::normal<float>(ts::Key(3), {2, 6, 8}, one.mesh);
  const auto got = run(all, llama, x, ts::Scalar(0.4), ts::Scalar(7));
  const auto none = run(all, llama, x, ts::Scalar(0.0), ts::Scalar(7));
  const auto list = [](const auto& results) {
    return std::apply([](const auto&... y) { return std::vector{ts::to_host(y)...}; }, results);
  };
  const auto some = list(got), whole = list(none);
  for (const std::size_t i : {0, 2}) {
    EXPECT_NE(some[i], whole[i]);
    for (std::size_t e = 0; e < some[i].size(); ++e) {
      ASSERT_NEAR(some[i][e], some[i + 1][e], 1e-5);
      ASSERT_NEAR(whole[i][e], whole[i + 1][e], 1e-5);
    }
  }

  const auto block = nn::block<float, FourKeys>(ts::Key(4), 8, 2, 16, one);
  constexpr auto kept = ts::compile([](const auto& b, const auto& in) { return b(in, nn::layer_dropout(0.1, 1, 0)); });
  EXPECT_EQ(ts::to_host(kept(block, x)).size(), 96U);
}

TEST(LayerDropout, InAStackIsTheSameOnEveryMesh) {
  constexpr auto run = ts::compile(DropInStack());
  std::vector<std::vector<float>> first;
  for (const nn::ShardingStrategy& strategy : transformers::strategies()) {
    const auto one = nn::encoder_layer<float, nn::NormPlace::pre, nn::Gelu>(ts::Key(3), 6, 3, 10, strategy);
    const Encoder layers{{2, [&](int) { return one; }}};
    const auto x = ts::normal<float>(ts::Key(4), {4, 5, 6}, strategy.mesh, strategy.batch);
    const auto mask = ts::shard<2>(std::array<bool, 20>{1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 0},
                                   {4, 5}, strategy.mesh, strategy.batch);
    const auto [trained, evaluated, gradient, same, twice, no_rate, kept] = run(layers, one, x, mask, ts::Key(5));
    EXPECT_EQ(ts::to_host(no_rate), ts::to_host(evaluated)) << "a rate of 0 gives the same bits as evaluation";
    EXPECT_NE(ts::to_host(kept), ts::to_host(trained));
    EXPECT_NE(ts::to_host(kept), ts::to_host(evaluated));
    const auto other = std::get<0>(run(layers, one, x, mask, ts::Key(6)));
    const std::vector<std::vector<float>> got{ts::to_host(trained), ts::to_host(evaluated),
                                              ts::to_host(gradient.layers[0].mlp.up.weight),
                                              ts::to_host(gradient.layers[1].attention.value.weight)};
    EXPECT_NE(got[0], got[1]);
    // Both layers have the same weights, and draw the same elements of a tensor, others of a Scalar.
    const std::vector<float> of_same = ts::to_host(same), of_twice = ts::to_host(twice);
    for (std::size_t i = 0; i < of_same.size(); ++i) ASSERT_NEAR(of_same[i], of_twice[i], 1e-5) << i;
    EXPECT_NE(got[0], of_same);
    EXPECT_NE(ts::to_host(other), got[0]);
    if (first.empty()) first = got;
    for (std::size_t k = 0; k < got.size(); ++k)
      for (std::size_t i = 0; i < got[k].size(); ++i)
        ASSERT_NEAR(got[k][i], first[k][i], 2e-4 * std::max(1.0F, std::fabs(first[k][i])))
            << strategy.mesh.text() << " " << k << " " << i;
  }
}

double sinusoid(std::int64_t t, std::int64_t i, std::int64_t features) {
  const double angle =
      static_cast<double>(t) / std::pow(10000.0, static_cast<double>(i / 2 * 2) / static_cast<double>(features));
  return i % 2 == 0 ? std::sin(angle) : std::cos(angle);
}

TEST(SinusoidalPositions, AreThoseOfTheFirstTransformer) {
  constexpr auto rows = ts::compile([](const auto& x, const ts::Scalar& first, const auto& at) {
    const auto one = ts::slice<1>(x, 0, 1);
    return std::tuple(x + nn::sinusoidal_positions(x), nn::sinusoidal_positions(x, first),
                      nn::sinusoidal_positions(one, at),
                      nn::sinusoidal_positions(ts::unsqueeze<0>(ts::sum<0, 1>(x)), 3),
                      nn::sinusoidal_positions(ts::cast<ts::bf16>(x)));
  });
  const ts::Mesh four({{"data", 2}, {"model", 2}});
  struct Split {
    ts::Mesh mesh;
    ts::PartitionSpec x, table;
  };
  for (const Split& split : {Split{}, Split{ts::Mesh({{"data", 3}}), {ts::none, "data"}, {"data"}},
                             Split{ts::Mesh({{"data", 2}}), {ts::none, ts::none, "data"}, {ts::none, "data"}},
                             Split{four, {ts::none, "data", "model"}, {"model", "data"}}}) {
    for (const std::int64_t features : {6, 7}) {
      const auto x = ts::full<double>({2, 5, features}, 0.25, split.mesh, split.x);
      const auto [sum, later, one, static_one, half] =
          rows(x, ts::Scalar(70), ts::full<std::int32_t, 0>({}, 9, split.mesh));
      const std::vector<double> of_sum = ts::to_host(sum), of_later = ts::to_host(later), of_one = ts::to_host(one),
                                of_static = ts::to_host(static_one);
      const std::vector<ts::bf16> of_half = ts::to_host(half);
      const std::vector<double> table =
          ts::to_host(nn::sinusoidal_positions<double>(5, features, split.mesh, split.table));
      for (std::int64_t t = 0; t < 5; ++t)
        for (std::int64_t i = 0; i < features; ++i) {
          const auto k = static_cast<std::size_t>(t * features + i);
          const double want = sinusoid(t, i, features);
          EXPECT_NEAR(table[k], want, 1e-14) << t << " " << i;
          EXPECT_NEAR(of_sum[k], want + 0.25, 1e-14);
          EXPECT_NEAR(of_sum[k + static_cast<std::size_t>(5 * features)], want + 0.25, 1e-14);
          EXPECT_NEAR(of_later[k], sinusoid(70 + t, i, features), 1e-13);
          EXPECT_NEAR(static_cast<float>(of_half[k]), want, 4e-3);
        }
      for (std::int64_t i = 0; i < features; ++i) {
        EXPECT_NEAR(of_one[static_cast<std::size_t>(i)], sinusoid(9, i, features), 1e-13);
        EXPECT_NEAR(of_static[static_cast<std::size_t>(i)], sinusoid(3, i, features), 1e-13);
      }
    }
  }
  EXPECT_EQ(ts::shape(nn::sinusoidal_positions(3, 4, four)), (ts::Shape{3, 4}));
}

}  // namespace
