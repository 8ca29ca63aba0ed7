#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

#include "../../support/gradients.hpp"
#include "../base/expect_error.hpp"
#include "layer_calls.hpp"
#include "plain.hpp"
#include <gtest/gtest.h>

#include <tessera/nn/nn.hpp>
#include <tessera/parallel/checkpoint_module.hpp>
#include <tessera/parallel/fsdp.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/print/print.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;
using oracle::Array;
using oracle::random_array;
using tessera_test::Apply;
using tessera_test::ApplyCached;
using tessera_test::expect_lines_of_the_call;
using tessera_test::meaning;
using tessera_test::Tensor3;

namespace {

TEST(Linear, IsAProductPlusABias) {
  const Array w = random_array({5, 7}, 1), b = random_array({7}, 2), x = random_array({2, 3, 5}, 3),
              m = random_array({4, 5}, 4);
  oracle::expect_near(meaning<nn::Linear<>>({w, b, x}), plain::linear(x, w, &b), 1e-12);
  oracle::expect_near(meaning<nn::Linear<float, false>>({w, x}), plain::linear(x, w, nullptr), 1e-12);
  oracle::expect_near(meaning<nn::Linear<double>, ts::ShardedTensor<double, 2>>({w, b, m}), plain::linear(m, w, &b),
                      1e-12);
}

TEST(Bilinear, SumsProductsOfBothOperands) {
  const Array w = random_array({6, 4, 5}, 1), b = random_array({6}, 2), x = random_array({3, 4}, 3),
              y = random_array({3, 5}, 4);
  using Matrix = ts::ShardedTensor<double, 2>;
  Array want({3, 6});
  for (std::int64_t n = 0; n < 3; ++n)
    for (std::int64_t o = 0; o < 6; ++o) {
      want.at({n, o}) = b.at({o});
      for (std::int64_t i = 0; i < 4; ++i)
        for (std::int64_t j = 0; j < 5; ++j) want.at({n, o}) += x.at({n, i}) * w.at({o, i, j}) * y.at({n, j});
    }
  const auto g = [](const auto& layer, const auto& p, const auto& q) { return layer(p, q); };
  const oracle::Program program = oracle::trace<decltype(g), nn::Bilinear<double>, Matrix, Matrix>();
  oracle::expect_near(oracle::run(program.view(), {w, b, x, y}).at(0), want, 1e-12);
}

TEST(Bilinear, BeginsAsPyTorchsAndTakesHalves) {
  const ts::Mesh two({{"model", 2}});
  const auto layer = nn::bilinear(ts::Key(3), 16, 5, 6, two, {"model"});
  EXPECT_EQ(ts::shape(layer.weight), (ts::Shape{6, 16, 5}));
  EXPECT_EQ(ts::shape(layer.bias), (ts::Shape{6}));
  for (const float w : ts::to_host(layer.weight)) EXPECT_LE(std::abs(w), 0.25f);
  const ts::Mesh four({{"data", 2}, {"model", 2}});
  const auto split = nn::bilinear(ts::Key(3), 16, 5, 6, nn::fsdp_tensor_parallel(four));
  EXPECT_EQ(ts::sharded_type_text(split.weight), "f32[6,16,5]{model,data*,-}");
  EXPECT_EQ(ts::sharded_type_text(split.bias), "f32[6]{model}");
  EXPECT_EQ(ts::to_host(split.weight), ts::to_host(layer.weight));
  EXPECT_EQ(ts::sharded_type_text(nn::bilinear<float, false>(ts::Key(3), 16, 5, 6, nn::data_parallel(four)).weight),
            "f32[6,16,5]{-,-,-}");
  const auto g = [](const auto& of, const auto& p, const auto& q) { return of(p, q); };
  using Half = ts::ShardedTensor<ts::bf16, 2>;
  const auto mixed = oracle::trace<decltype(g), nn::Bilinear<>, Half, Half>();
  const auto whole = oracle::trace<decltype(g), nn::Bilinear<float, false>, Half, Half>();
  for (const auto& program : {mixed.view(), whole.view()})
    EXPECT_EQ(program.main()[program.main().outputs[0]].dtype, ts::DType::bf16);
}

TEST(Embedding, IsTheRowOfEachToken) {
  const Array table = random_array({6, 3}, 1), tokens({2, 4}, {0, 5, 2, 2, 1, 0, 3, 5});
  const Array got = meaning<nn::Embedding<>, ts::ShardedTensor<std::int32_t, 2>>({table, tokens});
  Array want({2, 4, 3});
  for (std::size_t i = 0; i < 8; ++i)
    for (std::size_t j = 0; j < 3; ++j)
      want.data[i * 3 + j] = table.data[static_cast<std::size_t>(tokens.data[i]) * 3 + j];
  oracle::expect_near(got, want, 0);
}

// The padding is a row of zeros, which has a gradient of zeros, on every mesh.
TEST(Embedding, DoesNotTrainItsPadding) {
  constexpr auto slope = ts::compile([](const auto& layer, const auto& tokens) {
    return ts::grad([](const auto& of, const auto& at) { return ts::sum(ts::square(of(at) - 1.0f)); })(layer, tokens);
  });
  std::vector<float> rows, slopes;
  for (const int devices : {1, 2, 3}) {
    nn::ShardingStrategy strategy = nn::single(ts::Mesh({{"x", devices}}));
    strategy.embedding = {"x"};
    const auto plain = nn::embedding(ts::Key(3), 7, 4, strategy, 0.5);
    const nn::Embedding<float, 2> third = nn::embedding<float, 2>(ts::Key(3), 7, 4, strategy, 0.5);
    const nn::Embedding<float, -5> also_third = nn::embedding<float, -5>(ts::Key(3), 7, 4, strategy, 0.5);
    auto want = ts::to_host(plain.table);
    std::fill_n(want.begin() + 8, 4, 0.0f);
    EXPECT_EQ(ts::to_host(third.table), want);
    EXPECT_EQ(ts::to_host(also_third.table), want);
    const auto tokens = ts::shard<std::int32_t>({{2, 0, 6}, {2, 2, 0}}, strategy.mesh);
    const auto got = ts::to_host(slope(third, tokens).table);
    EXPECT_EQ(ts::to_host(slope(also_third, tokens).table), got);
    for (std::size_t i = 0; i < 28; ++i) {
      const float reads = i / 4 == 0 ? 2 : i / 4 == 6 ? 1 : 0;
      EXPECT_NEAR(got[i], reads * 2 * (want[i] - 1), 1e-6) << i;
    }
  }
  const nn::ShardingStrategy one = nn::single(ts::Mesh{});
  tessera_test::expect_error(
      ts::errc::dim_range, [&] { nn::embedding<float, 7>(ts::Key(1), 7, 4, one); }, "row 7 of 7 classes",
      "layers_test.cpp");
  tessera_test::expect_error(ts::errc::dim_range, [&] { nn::embedding<float, -8>(ts::Key(1), 7, 4, one); });
}

TEST(Positions, AddsARowForEachPositionThatThereIs) {
  const Array table = random_array({6, 3}, 1), x = random_array({2, 4, 3}, 2);  // 4 of 6 positions
  Array want = x;
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t t = 0; t < 4; ++t)
      for (std::int64_t j = 0; j < 3; ++j) want.at({b, t, j}) += table.at({t, j});
  oracle::expect_near(meaning<nn::Positions<>>({table, x}), want, 1e-12);
}

TEST(LayerNorm, CentersAndScalesRows) {
  const Array gain = random_array({5}, 1), bias = random_array({5}, 2), x = random_array({2, 3, 5}, 3);
  oracle::expect_near(meaning<nn::LayerNorm<>>({gain, bias, Array::number(0.3), x}),
                      plain::layer_norm(x, gain, bias, 0.3), 1e-12);
}

TEST(RmsNorm, ScalesRows) {
  const Array gain = random_array({5}, 1), x = random_array({2, 3, 5}, 3);
  oracle::expect_near(meaning<nn::RmsNorm<>>({gain, Array::number(0.3), x}), plain::rms_norm(x, gain, 0.3), 1e-12);
}

TEST(Attention, AttendsToThePastOfEveryHead) {
  for (const int heads : {1, 2, 3}) {
    const Array qkv = random_array({6, 18}, 1), qb = random_array({18}, 2), out = random_array({6, 6}, 3),
                ob = random_array({6}, 4), x = random_array({2, 5, 6}, 5);
    oracle::expect_near(meaning<nn::Attention<>>({qkv, qb, out, ob, Array::number(heads), x}),
                        plain::attention(x, heads, qkv, &qb, out, &ob), 1e-12);
    oracle::expect_near(meaning<nn::Attention<float, false>>({qkv, out, Array::number(heads), x}),
                        plain::attention(x, heads, qkv, nullptr, out, nullptr), 1e-12);
  }
}

/// A layer of all positions, and the same with a cache: three positions at once, then one by one.
struct WithCache {
  constexpr auto operator()(const auto& layer, const auto& cache, const auto& x) const {
    const auto first = layer.cached(ts::slice<1>(x, 0, 3), cache, 0);
    const auto second = layer.cached(ts::slice<1>(x, 3, 1), std::get<1>(first), 3);
    const auto third = layer.cached(ts::slice<1>(x, 4, 1), std::get<1>(second), 4);
    return std::tuple(layer(x), ts::concat<1>(std::get<0>(first), std::get<0>(second), std::get<0>(third)));
  }
};
/// The same in loops whose index is the position: one position at a time, and two at a time from positions 0, 2 and 3.
struct WithCacheInALoop {
  constexpr auto operator()(const auto& layer, const auto& cache, const auto& x) const {
    const auto one = ts::scan(
        [&](const auto& seen, const auto& step) {
          const auto& [token, at] = step;  // [B, F]
          const auto made = layer.cached(ts::unsqueeze<1>(token), seen, at);
          return std::tuple(std::get<1>(made), ts::squeeze<1>(std::get<0>(made)));
        },
        cache, std::tuple(ts::swapaxes<0, 1>(x), ts::arange<std::int32_t>(ts::extent<1>(x))));
    const auto two = ts::fori_loop(
        0, 3,
        [&](const auto& i, const auto& carry) {
          const auto& [seen, outputs] = carry;
          const auto at = ts::minimum(i * 2, 3);
          const auto made = layer.cached(ts::dynamic_slice<1>(x, at, 2), seen, at);
          return std::tuple(std::get<1>(made), ts::dynamic_update_slice<1>(outputs, std::get<0>(made), at));
        },
        std::tuple(cache, ts::zeros_like(x)));
    return std::tuple(layer(x), ts::swapaxes<0, 1>(std::get<1>(one)), std::get<1>(two), std::get<0>(one).keys,
                      std::get<0>(two).keys);
  }
};

TEST(LlamaBlock, WithACacheGivesTheSame) {
  const std::vector<Array> arguments{random_array({8}, 1),
                                     Array::number(1e-5),
                                     random_array({8, 8}, 2),
                                     random_array({8, 4}, 3),
                                     random_array({8, 4}, 4),
                                     random_array({8, 8}, 5),
                                     Array::number(4),
                                     Array::number(2),
                                     Array::number(100),
                                     Array::number(1),
                                     Array::number(1),
                                     random_array({8}, 6),
                                     Array::number(1e-5),
                                     random_array({8, 12}, 7),
                                     random_array({8, 12}, 8),
                                     random_array({12, 8}, 9),
                                     random_array({2, 6, 2, 2}, 10),
                                     random_array({2, 6, 2, 2}, 11),
                                     random_array({2, 5, 8}, 12)};
  const oracle::Program program = oracle::trace<WithCache, nn::LlamaBlock<>, nn::KvCache<>, Tensor3>();
  const std::vector<Array> y = oracle::run(program.view(), arguments);
  oracle::expect_near(y.at(0), y.at(1), 1e-12);
  const oracle::Program loop = oracle::trace<WithCacheInALoop, nn::LlamaBlock<>, nn::KvCache<>, Tensor3>();
  const std::vector<Array> z = oracle::run(loop.view(), arguments);
  oracle::expect_near(z.at(0), z.at(1), 1e-12, "one by one");
  oracle::expect_near(z.at(0), z.at(2), 1e-12, "two at a time");
  oracle::expect_near(z.at(3), z.at(4), 1e-12, "keys");
}

// The same on devices that split batch, heads, or both.
TEST(LlamaBlock, WithACacheInALoopOnDevices) {
  constexpr auto both = ts::compile([](auto layer, auto cache, auto x) {
    const auto made = WithCacheInALoop{}(layer, cache, x);
    return std::tuple(std::get<0>(made), std::get<1>(made), std::get<2>(made));
  });
  const ts::Mesh mesh({{"data", 2}, {"model", 2}});
  std::vector<float> first;
  for (const auto& strategy : {nn::single(mesh), nn::data_parallel(mesh), nn::tensor_parallel(mesh)}) {
    const auto layer = nn::llama_block(ts::Key(1), 16, 4, 2, 24, strategy, 1, 0.3);
    const auto cache = nn::kv_cache(3, 7, 2, 4, strategy);
    const auto x = ts::normal<float>(ts::Key(2), {3, 5, 16}, mesh, strategy.batch);
    const auto [whole, one, two] = both(layer, cache, x);
    const std::vector<float> want = ts::to_host(whole);
    if (first.empty()) first = want;
    for (const auto& other : {first, ts::to_host(one), ts::to_host(two)})
      for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(other[i], want[i], 1e-4) << i;
  }
}

struct Forms {
  constexpr auto operator()(const auto& layer, const auto& x, const auto& memory, const auto& mask) const {
    return std::tuple(layer(x), layer.causal(x), layer(x, memory), layer.masked(x, memory, mask),
                      layer.biased(x, memory, ts::unsqueeze<1>(ts::unsqueeze<1>(mask))));
  }
};

TEST(MultiHeadAttention, IsAttentionOfProjections) {
  const Array qw = random_array({4, 4}, 1), qb = random_array({4}, 2), kw = random_array({4, 4}, 3),
              kb = random_array({4}, 4), vw = random_array({4, 4}, 5), vb = random_array({4}, 6),
              ow = random_array({4, 4}, 7), ob = random_array({4}, 8);
  const Array x = random_array({2, 3, 4}, 9), memory = random_array({2, 5, 4}, 10);
  const Array mask({2, 5}, {1, 0, 1, 1, 0, 0, 1, 0, 0, 0});
  const oracle::Program program =
      oracle::trace<Forms, nn::MultiHeadAttention<>, Tensor3, Tensor3, ts::ShardedTensor<bool, 2>>();
  const std::vector<Array> y =
      oracle::run(program.view(), {qw, qb, kw, kb, vw, vb, ow, ob, Array::number(2), x, memory, mask});
  const auto want = [&](const Array& from, auto seen) {
    const Array q = plain::linear(x, qw, &qb), k = plain::linear(from, kw, &kb), v = plain::linear(from, vw, &vb);
    Array joined(x.shape);
    oracle::for_each_index({2, 3, 2}, [&](const oracle::Shape& i) {
      const std::int64_t b = i[0], t = i[1], first = i[2] * 2;
      double total = 0;
      for (std::int64_t s = 0; s < from.shape[1]; ++s) {
        if (!seen(b, t, s)) continue;
        double score = 0;
        for (std::int64_t e = first; e < first + 2; ++e) score += q.at({b, t, e}) * k.at({b, s, e}) / std::sqrt(2.0);
        total += std::exp(score);
        for (std::int64_t e = first; e < first + 2; ++e) joined.at({b, t, e}) += std::exp(score) * v.at({b, s, e});
      }
      for (std::int64_t e = first; e < first + 2; ++e) joined.at({b, t, e}) /= total;
    });
    return plain::linear(joined, ow, &ob);
  };
  oracle::expect_near(y.at(0), want(x, [](auto, auto, auto) { return true; }), 1e-12);
  oracle::expect_near(y.at(1), want(x, [](auto, auto t, auto s) { return s <= t; }), 1e-12);
  oracle::expect_near(y.at(2), want(memory, [](auto, auto, auto) { return true; }), 1e-12);
  for (const std::size_t form : {3, 4})
    oracle::expect_near(y.at(form), want(memory, [&](auto b, auto, auto s) { return mask.at({b, s}) != 0; }), 1e-12);
}

struct DroppedForms {
  constexpr auto operator()(const auto& a, const auto& x, const auto& memory, const auto& mask,
                            const auto& rate) const {
    const auto drop = nn::layer_dropout(rate, 5);
    const auto bias = ts::iota<0, float>(ts::sum<0, 2>(x)) * 0.25;
    const auto pairs = ts::unsqueeze<1>(bias) * ts::iota<0, float>(ts::sum<0, 2>(memory));
    return std::tuple(a(x), a(x, drop), a.causal(x), a.causal(x, drop), a(x, memory), a(x, memory, drop),
                      a.masked(x, memory, mask), a.masked(x, memory, mask, drop), a.biased(x, memory, pairs),
                      a.biased(x, memory, pairs, drop), a.causal(memory, mask), a.causal(memory, mask, drop));
  }
};
// Without a rate each form is what it is without dropout; with one it is another.
TEST(MultiHeadAttention, DropsProbabilitiesInTraining) {
  std::vector<Array> arguments;
  for (unsigned i = 0; i < 4; ++i) {
    arguments.push_back(random_array({4, 4}, 2 * i));
    arguments.push_back(random_array({4}, 2 * i + 1));
  }
  arguments.push_back(Array::number(2));
  arguments.push_back(random_array({2, 3, 4}, 9));
  arguments.push_back(random_array({2, 5, 4}, 10));
  arguments.push_back(Array({2, 5}, {1, 0, 1, 1, 0, 0, 1, 0, 0, 0}));
  arguments.push_back(Array::number(0));
  const oracle::Program program =
      oracle::trace<DroppedForms, nn::MultiHeadAttention<>, Tensor3, Tensor3, ts::ShardedTensor<bool, 2>, ts::Scalar>();
  const auto none = oracle::run(program.view(), arguments);
  for (std::size_t i = 0; i < none.size(); i += 2) oracle::expect_near(none.at(i + 1), none.at(i), 1e-12);
  arguments.back() = Array::number(0.5);
  const auto some = oracle::run(program.view(), arguments);
  for (std::size_t i = 0; i < some.size(); i += 2) {
    oracle::expect_near(some.at(i), none.at(i), 0);
    double most = 0;
    for (std::size_t k = 0; k < some[i].data.size(); ++k)
      most = std::max(most, std::abs(some[i + 1].data[k] - some[i].data[k]));
    EXPECT_GT(most, 0.01) << i;
  }
}

/// The bucket of Hugging Face's T5Attention._relative_position_bucket, written out: `first` are the distances at which
/// the buckets behind those of one distance begin.
std::int64_t bucket_of(std::int64_t ahead, bool both, std::int64_t exact, const std::vector<std::int64_t>& first) {
  const std::int64_t size = both ? std::abs(ahead) : std::max<std::int64_t>(-ahead, 0);
  std::int64_t bucket = std::min(size, exact - 1);
  for (const std::int64_t from : first) bucket += size >= from ? 1 : 0;
  return bucket + (both && ahead > 0 ? exact + static_cast<std::int64_t>(first.size()) : 0);
}
struct Buckets {
  constexpr auto operator()(const auto& both, const auto& behind, const auto& x, const auto& memory) const {
    return std::tuple(both(x, memory), both.buckets(x, memory), behind.buckets(x, memory));
  }
};
TEST(RelativePositionBias, HasTheBucketsOfT5) {
  const Array table = random_array({32, 2}, 1), x({1, 140, 1}), memory({1, 150, 1});
  const auto got = oracle::run(
      oracle::trace<Buckets, nn::RelativePositionBias<>, nn::RelativePositionBias<float, false>, Tensor3, Tensor3>()
          .view(),
      {table, Array::number(128), random_array({6, 2}, 2), Array::number(50), x, memory});
  ASSERT_EQ(got.at(0).shape, (ts::Shape{2, 140, 150}));
  ASSERT_EQ(got.at(1).shape, (ts::Shape{140, 150}));
  const std::vector<std::int64_t> first{8, 12, 16, 23, 32, 46, 64, 91}, behind{3, 8, 20};
  oracle::for_each_index({140, 150}, [&](const ts::Shape& i) {
    const std::int64_t bucket = bucket_of(i[1] - i[0], true, 8, first);
    ASSERT_EQ(got[1].at(i), static_cast<double>(bucket)) << i[1] - i[0];
    ASSERT_EQ(got.at(2).at(i), static_cast<double>(bucket_of(i[1] - i[0], false, 3, behind))) << i[1] - i[0];
    for (std::int64_t h = 0; h < 2; ++h) ASSERT_EQ(got[0].at({h, i[0], i[1]}), table.at({bucket, h}));
  });
  const nn::ShardingStrategy strategy = nn::fsdp_tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}}));
  EXPECT_EQ(ts::sharded_type_text(nn::relative_position_bias(ts::Key(1), 4, strategy).table), "f32[32,4]{-,model}");
  tessera_test::expect_error(
      ts::errc::option, [&] { nn::relative_position_bias(ts::Key(1), 4, strategy, 30); },
      "[relative_position_bias] buckets: 30 is not a multiple of 4");
  tessera_test::expect_error(
      ts::errc::option, [&] { nn::relative_position_bias(ts::Key(1), 4, strategy, 32, 8); },
      "[relative_position_bias] distance: ", " is not above 8");
}

TEST(Mlp, IsGeluBetweenTwoProducts) {
  const Array up = random_array({4, 6}, 1), ub = random_array({6}, 2), down = random_array({6, 4}, 3),
              db = random_array({4}, 4), x = random_array({2, 3, 4}, 5);
  const Array hidden = plain::map(plain::linear(x, up, &ub), plain::gelu);
  oracle::expect_near(meaning<nn::Mlp<>>({up, ub, down, db, x}), plain::linear(hidden, down, &db), 1e-12);
}

TEST(GatedMlp, MultipliesByTheGate) {
  const Array gate = random_array({4, 6}, 1), up = random_array({4, 6}, 2), down = random_array({6, 4}, 3),
              x = random_array({2, 3, 4}, 5);
  const Array hidden = plain::zip(plain::map(plain::linear(x, gate, nullptr), plain::silu),
                                  plain::linear(x, up, nullptr), [](double a, double b) { return a * b; });
  oracle::expect_near(meaning<nn::GatedMlp<>>({gate, up, down, x}), plain::linear(hidden, down, nullptr), 1e-12);
}

struct Drop {
  constexpr auto operator()(const auto& drop, const auto& x, const ts::Scalar& key) const {
    const auto slope =
        ts::grad([](const auto& in, const auto& layer, const auto& k) { return ts::sum(layer(in, k)); })(x, drop, key);
    return std::tuple(drop(x, key), drop(x), slope);
  }
};
TEST(Dropout, DropsInTrainingOnly) {
  const Array x = random_array({50}, 1, 1, 2);
  const oracle::Program program = oracle::trace<Drop, nn::Dropout<>, oracle::Float<1>, ts::Scalar>();
  for (const double rate : {0.0, 0.25, 1.0}) {
    const auto got = oracle::run(program.view(), {Array::number(rate), x, Array::number(7)});
    oracle::expect_near(got.at(1), x, 0);
    double dropped = 0;
    for (std::size_t i = 0; i < 50; ++i) {
      const bool is_dropped = got.at(0).data[i] == 0;
      dropped += is_dropped ? 1 : 0;
      const double scale = is_dropped ? 0 : 1 / (1 - rate);
      EXPECT_NEAR(got[0].data[i], x.data[i] * scale, 1e-12);
      EXPECT_NEAR(got.at(2).data[i], scale, 1e-12) << "the slope";
    }
    EXPECT_NEAR(dropped / 50, rate, rate == 0.25 ? 0.2 : 0);
  }
}

/// The leaves of a Block<> of 6 features, 3 heads and 8 hidden features.
std::vector<Array> block_leaves(unsigned seed) {
  return {random_array({6}, seed),      random_array({6}, seed + 1),
          Array::number(1e-3),          random_array({6, 18}, seed + 2),
          random_array({18}, seed + 3), random_array({6, 6}, seed + 4),
          random_array({6}, seed + 5),  Array::number(3),
          random_array({6}, seed + 6),  random_array({6}, seed + 7),
          Array::number(1e-3),          random_array({6, 8}, seed + 8),
          random_array({8}, seed + 9),  random_array({8, 6}, seed + 10),
          random_array({6}, seed + 11)};
}
Array plain_block(const Array& x, const std::vector<Array>& p) {
  const Array middle =
      plain::sum(x, plain::attention(plain::layer_norm(x, p[0], p[1], 1e-3), 3, p[3], &p[4], p[5], &p[6]));
  const Array hidden =
      plain::map(plain::linear(plain::layer_norm(middle, p[8], p[9], 1e-3), p[11], &p[12]), plain::gelu);
  return plain::sum(middle, plain::linear(hidden, p[13], &p[14]));
}

TEST(Block, AddsAttentionAndMlpToTheResidual) {
  std::vector<Array> arguments = block_leaves(1);
  const Array x = random_array({2, 4, 6}, 99), want = plain_block(x, arguments);
  arguments.push_back(x);
  oracle::expect_near(meaning<nn::Block<>>(arguments), want, 1e-12);
}

TEST(GatedBlock, HasNoBiases) {
  const std::vector<Array> p = {random_array({6}, 1),    Array::number(1e-3),       random_array({6, 18}, 2),
                                random_array({6, 6}, 3), Array::number(2),          random_array({6}, 4),
                                Array::number(1e-3),     random_array({6, 8}, 5),   random_array({6, 8}, 6),
                                random_array({8, 6}, 7), random_array({2, 4, 6}, 8)};
  const Array& x = p[10];
  const Array middle = plain::sum(x, plain::attention(plain::rms_norm(x, p[0], 1e-3), 2, p[2], nullptr, p[3], nullptr));
  const Array normed = plain::rms_norm(middle, p[5], 1e-3);
  const Array hidden = plain::zip(plain::map(plain::linear(normed, p[7], nullptr), plain::silu),
                                  plain::linear(normed, p[8], nullptr), [](double a, double b) { return a * b; });
  oracle::expect_near(meaning<nn::GatedBlock<>>(p), plain::sum(middle, plain::linear(hidden, p[9], nullptr)), 1e-12);
}

TEST(StackOfBlocks, IsOneBlockAfterTheOther) {
  const std::vector<Array> first = block_leaves(1), second = block_leaves(50);
  const Array x = random_array({2, 4, 6}, 99);
  std::vector<Array> arguments;
  for (std::size_t i = 0; i < first.size(); ++i) {
    Array both = first[i];
    if (!both.shape.empty()) {  // numbers are those of the stack
      both.shape.insert(0, 2);
      both.data.insert(both.data.end(), second[i].data.begin(), second[i].data.end());
    }
    arguments.push_back(both);
  }
  arguments.push_back(x);
  oracle::expect_near(meaning<ts::Stack<nn::Block<>>>(arguments), plain_block(plain_block(x, first), second), 1e-12);
}

TEST(LinesOfLayers, AreThoseOfTheirCalls) {
  expect_lines_of_the_call(oracle::trace<Apply, nn::EncoderLayer<>, Tensor3>().view());
  expect_lines_of_the_call(oracle::trace<Apply, ts::Stack<nn::LlamaBlock<>>, Tensor3>().view());
  using Masks = ts::ShardedTensor<bool, 2>;
  expect_lines_of_the_call(
      oracle::trace<Apply, ts::Stack<nn::DecoderLayer<>>, Tensor3, Tensor3, Masks, Masks>().view());
  using Drops = nn::LayerDropout<ts::Scalar, ts::Scalar>;
  expect_lines_of_the_call(
      oracle::trace<Apply, ts::Stack<nn::DecoderLayer<>>, Tensor3, Tensor3, Masks, Masks, Drops>().view());
  expect_lines_of_the_call(oracle::trace<Apply, ts::Stack<nn::EncoderLayer<>>, Tensor3, Masks, Drops>().view());
  expect_lines_of_the_call(oracle::trace<Apply, ts::Fsdp<nn::Block<>>, Tensor3, Drops>().view());
  expect_lines_of_the_call(oracle::trace<Apply, ts::CheckpointModule<nn::Block<>>, Tensor3, Drops>().view());
  expect_lines_of_the_call(
      oracle::trace<Apply, nn::Block<float, nn::CausalAttention, nn::LoraLinear<>>, Tensor3>().view());
  using Caches = ts::Stack<nn::KvCache<>>;
  expect_lines_of_the_call(oracle::trace<ApplyCached, ts::Stack<nn::Block<>>, Tensor3, Caches, ts::Scalar>().view(),
                           ApplyCached::line);
  expect_lines_of_the_call(
      oracle::trace<ApplyCached, ts::Stack<nn::DecoderLayer<>>, Tensor3, Caches, ts::Scalar, Caches, Masks>().view(),
      ApplyCached::line);
  expect_lines_of_the_call(oracle::trace<Apply, nn::Lstm<>, Tensor3>().view());
  expect_lines_of_the_call(oracle::trace<Apply, ts::Fsdp<nn::Mlp<>>, Tensor3>().view());
  expect_lines_of_the_call(oracle::trace<Apply, ts::Fsdp<nn::DecoderLayer<>>, Tensor3, Tensor3, Masks, Masks>().view());
  expect_lines_of_the_call(
      oracle::trace<Apply, ts::CheckpointModule<nn::DecoderLayer<>>, Tensor3, Tensor3, Masks, Masks>().view());
}

TEST(LinesOfLayers, ErrorsNameTheLayer) {
  const nn::ShardingStrategy strategy = nn::single(ts::Mesh({{"data", 2}}));
  const auto x = ts::ones<float>({2, 4, 6}, strategy.mesh);
  constexpr int line = __LINE__ + 1;
  const auto apply = ts::compile([](const auto& layer, const auto& in) { return layer(in); });
  const std::string at = " at layers_test.cpp:" + std::to_string(line);
  tessera_test::expect_error(
      ts::errc::shape_mismatch, [&] { apply(nn::llama_block(ts::Key(1), 8, 2, 2, 16, strategy), x); },
      "f32[2,4,6] x f32[8] in rms_norm" + at);
  tessera_test::expect_error(
      ts::errc::shape_mismatch, [&] { apply(nn::linear(ts::Key(1), 8, 2, strategy), x); },
      "[matmul] inner dims differ: f32[2,4,6] x f32[8,2]" + at);
  constexpr int train = __LINE__ + 1;
  const auto step = ts::compile([](const auto& n, const auto& in, const auto& old) { return n.train(in, old); });
  tessera_test::expect_error(
      ts::errc::shape_mismatch, [&] { step(nn::batch_norm(8, strategy), x, nn::running_statistics(8, strategy)); },
      "[batch_norm] gain and bias must have as many elements as x has features: f32[2,4,6] x f32[8] at "
      "layers_test.cpp:" +
          std::to_string(train));
  tessera_test::expect_error(
      ts::errc::not_divisible, [&] { nn::llama_block(ts::Key(1), 16, 3, 1, 16, strategy); },
      "16 features are not divisible by 3 heads", "layers_test.cpp:" + std::to_string(__LINE__ - 1));
}

}  // namespace
