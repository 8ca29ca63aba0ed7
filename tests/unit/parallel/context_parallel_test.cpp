// Attention whose times are split: by all-to-alls and along a ring, against attention on one device, with gradients.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "../../support/page.hpp"
#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/nn/nn.hpp>
#include <tessera/ops/attention/band_attention.hpp>
#include <tessera/ops/attention/ring_attention.hpp>
#include <tessera/ops/attention/ulysses_attention.hpp>
#include <tessera/ops/attention/zigzag_order.hpp>
#include <tessera/ops/constraint.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>

namespace ts = tessera;
using tessera_test::expect_error;

namespace {

template <class T> using Heads = ts::ShardedTensor<T, 4>;

/// The output of an attention and the cotangents of its operands, whose weights differ from element to element.
template <class F> struct WithGradient {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const {
    const auto loss = [](const auto& all) {
      const auto& [a, b, c] = all;
      const auto y = ts::cast<double>(F{}(a, b, c));
      return std::tuple(ts::sum((y + 0.25) * y), y);
    };
    const auto [value, gradient] = ts::value_and_grad(loss)(std::tuple(q, k, v));
    return std::tuple(std::get<1>(value), gradient);
  }
};

struct Whole {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const { return ts::attention(q, k, v); }
};
struct Causal {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const { return ts::causal_attention(q, k, v); }
};
struct Window {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const {
    return ts::band_attention(q, k, v, 4, 1);
  }
};
template <class F> struct Ulysses {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const {
    return ts::ulysses_attention<"context">(F{}, q, k, v);
  }
};
struct Ring {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const {
    return ts::ring_attention<"context">(q, k, v);
  }
};
struct CausalRing {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const {
    return ts::causal_ring_attention<"context">(q, k, v);
  }
};
struct Zigzag {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const {
    const auto in_order = [](const auto& x) { return ts::zigzag_order<"context", 1>(x); };
    return ts::natural_order<"context", 1>(ts::causal_ring_attention<"context">(in_order(q), in_order(k), in_order(v)));
  }
};

/// The results of f on a mesh, as doubles one after the other.
template <class T, class F>
std::vector<double> results(const ts::Mesh& mesh, const ts::PartitionSpec& spec, ts::Shape queries, ts::Shape keys) {
  static constexpr auto program = ts::compile(WithGradient<F>{});
  const auto drawn = [&](std::uint64_t seed, const ts::Shape& shape) {
    std::vector<T> values;
    for (const float value : ts::to_host(ts::normal<float, 4>(ts::Key(seed), shape, ts::Mesh{})))
      values.push_back(static_cast<T>(value));
    return ts::shard<4>(values, shape, mesh, spec);
  };
  const auto [y, gradient] = program(drawn(1, queries), drawn(2, keys), drawn(3, keys));
  std::vector<double> values = ts::to_host(y);
  const auto append = [&](const auto& x) {
    for (const auto value : ts::to_host(x)) values.push_back(static_cast<double>(value));
  };
  std::apply([&](const auto&... x) { (append(x), ...); }, gradient);
  return values;
}
double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0, scale = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    most = std::max(most, std::isfinite(a[i]) ? std::abs(a[i] - b[i]) : 1e300);
    scale = std::max(scale, std::abs(b[i]));
  }
  return most / scale;
}

const ts::PartitionSpec time_split{ts::none, "context"}, both_split{"data", "context"};

TEST(UlyssesAttention, EqualsAttentionOnOneDevice) {
  const ts::Mesh one{};
  // Neither 5 heads nor 7 times divide evenly.
  const ts::Shape self{2, 7, 5, 3};
  const auto causal = results<double, Causal>(one, {}, self, self);
  for (int n = 1; n <= 4; ++n)
    EXPECT_LT(largest_difference(results<double, Ulysses<Causal>>(ts::Mesh({{"context", n}}), time_split, self, self),
                                 causal),
              1e-13)
        << n;
  const ts::Mesh grid({{"data", 2}, {"context", 3}});
  EXPECT_LT(largest_difference(results<double, Ulysses<Causal>>(grid, both_split, self, self), causal), 1e-13);
  EXPECT_LT(largest_difference(results<double, Ulysses<Window>>(grid, both_split, self, self),
                               results<double, Window>(one, {}, self, self)),
            1e-13);
}

TEST(RingAttention, EqualsAttentionOnOneDevice) {
  const ts::Mesh one{};
  const ts::Shape queries{2, 12, 3, 5}, keys{2, 24, 3, 5};
  const auto whole = results<double, Whole>(one, {}, queries, keys);
  for (int n : {1, 2, 3, 4, 6})
    EXPECT_LT(largest_difference(results<double, Ring>(ts::Mesh({{"context", n}}), time_split, queries, keys), whole),
              1e-13)
        << n;
  const ts::Mesh grid({{"data", 2}, {"context", 3}});
  EXPECT_LT(largest_difference(results<double, Ring>(grid, both_split, queries, keys), whole), 1e-13);
  EXPECT_LT(largest_difference(results<float, Ring>(grid, both_split, queries, keys),
                               results<float, Whole>(one, {}, queries, keys)),
            2e-6);
}

TEST(CausalRingAttention, EqualsCausalAttentionInZigzagOrder) {
  const ts::Mesh one{};
  const ts::Shape self{2, 24, 3, 5};
  const auto causal = results<double, Causal>(one, {}, self, self);
  for (int n : {1, 2, 3, 4, 6, 12})
    EXPECT_LT(largest_difference(results<double, Zigzag>(ts::Mesh({{"context", n}}), time_split, self, self), causal),
              1e-13)
        << n;
  const ts::Mesh grid({{"data", 2}, {"context", 3}});
  EXPECT_LT(largest_difference(results<double, Zigzag>(grid, both_split, self, self), causal), 1e-13);
  EXPECT_LT(largest_difference(results<ts::bf16, Zigzag>(grid, both_split, self, self), causal), 3e-2);
}

// Chunks of 24 keys are not those of 12 queries.
TEST(CausalRingAttention, KeysOfAnotherTimeAreAnError) {
  static constexpr auto program = ts::compile(CausalRing{});
  const ts::Mesh mesh({{"context", 2}});
  const auto of = [&](std::int64_t time) { return ts::zeros<float>({2, time, 3, 4}, mesh, time_split); };
  EXPECT_EQ(ts::to_host(program(of(12), of(12), of(12))).size(), 2u * 12 * 3 * 4);
  EXPECT_EQ(ts::to_host(program(of(0), of(0), of(0))).size(), 0u);
  expect_error(
      ts::errc::shape_mismatch, [&] { program(of(12), of(24), of(24)); }, "f32[2,24,3,4]");
  expect_error(
      ts::errc::not_divisible, [&] { program(of(6), of(6), of(6)); }, "divisible");
}

TEST(ZigzagOrder, GivesEachDeviceAnEarlyAndALateChunk) {
  static constexpr auto order = ts::compile([](auto x) {
    const auto turned = ts::zigzag_order<"context", 0>(x);
    return std::tuple(turned, ts::natural_order<"context", 0>(turned));
  });
  const ts::Mesh mesh({{"context", 3}});
  std::vector<std::int32_t> times(12);
  for (int i = 0; i < 12; ++i) times[static_cast<std::size_t>(i)] = i;
  const auto [turned, back] = order(ts::shard(times, {12}, mesh, {"context"}));
  EXPECT_EQ(ts::to_host(turned), (std::vector<std::int32_t>{0, 1, 10, 11, 2, 3, 8, 9, 4, 5, 6, 7}));
  EXPECT_EQ(ts::to_host(back), times);
  EXPECT_EQ(ts::spec_of(ts::sharding(turned), mesh).text(), "{context}");
  expect_error(
      ts::errc::not_divisible,
      [&] {
        order(ts::shard(times, {12}, ts::Mesh({{"context", 4}}), {"context"}));
      },
      "i32[12], 8 at context_parallel_test.cpp");
}

/// Bytes that a device sends in collectives of a kind.
std::int64_t sent(const ts::Plan& plan, ts::Collective kind) {
  std::int64_t bytes = 0;
  plan.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t times) {
    if (c.kind == kind) bytes += times * c.wire_bytes;
  });
  return bytes;
}
std::int64_t times_of(const ts::Plan& plan, ts::Collective kind) {
  std::int64_t count = 0;
  plan.for_each_collective(
      [&](const ts::CollectiveInfo& c, std::int64_t times) { count += c.kind == kind ? times : 0; });
  return count;
}

// 4 devices, each with 16 of 64 times: 2 x 16 x 4 x 8 floats of keys, as many of values.
constexpr ts::Mesh four({{"context", 4}});
constexpr std::int64_t part = 2 * 16 * 4 * 8 * 4;
template <class F> const ts::Plan& forward_plan() {
  static constexpr auto program = ts::compile(F{});
  const auto x = ts::abstract<float>({2, 64, 4, 8}, {ts::none, "context"});
  static const ts::Plan plan = ts::plan(program, four, x, x, x);
  return plan;
}
/// The cotangents are split like the operands.
template <class F> struct InTime {
  constexpr auto operator()(const auto&... x) const { return F{}(ts::with_sharding(x, {ts::none, "context"})...); }
};
template <class F> const ts::Plan& training_plan() {
  static constexpr auto program = ts::compile(WithGradient<InTime<F>>{});
  const auto x = ts::abstract<float>({2, 64, 4, 8}, {ts::none, "context"});
  static const ts::Plan plan = ts::plan(program, four, x, x, x);
  return plan;
}

TEST(RingAttention, SendsKeysAndValuesOnce) {
  EXPECT_EQ(times_of(forward_plan<Ring>(), ts::Collective::permute), 2 * 3);
  EXPECT_EQ(sent(forward_plan<Ring>(), ts::Collective::permute), 2 * 3 * part);
  EXPECT_EQ(times_of(forward_plan<Ring>(), ts::Collective::all_gather), 0);
  EXPECT_EQ(times_of(training_plan<Ring>(), ts::Collective::permute), 2 * 3 + 4 * 3 + 2);
  EXPECT_EQ(times_of(training_plan<Ring>(), ts::Collective::all_gather), 0);
  EXPECT_EQ(times_of(training_plan<Ring>(), ts::Collective::all_to_all), 0);
}

TEST(UlyssesAttention, ExchangesTimesForHeads) {
  EXPECT_EQ(times_of(forward_plan<Ulysses<Causal>>(), ts::Collective::all_to_all), 4);
  EXPECT_EQ(sent(forward_plan<Ulysses<Causal>>(), ts::Collective::all_to_all), 4 * part * 3 / 4);
  EXPECT_EQ(times_of(forward_plan<Ulysses<Causal>>(), ts::Collective::all_gather), 0);
  EXPECT_EQ(times_of(training_plan<Ulysses<Causal>>(), ts::Collective::all_to_all), 8);
  EXPECT_EQ(times_of(training_plan<Ulysses<Causal>>(), ts::Collective::all_gather), 0);
}

// ---- docs/parallelism.md

// clang-format off
namespace page {
    struct Ring {
      constexpr auto operator()(const auto& q, const auto& k, const auto& v) const {
        return ts::causal_ring_attention<"context">(q, k, v);
      }
    };
struct Model {
    ts::Stack<ts::nn::Block<float, Ring>> blocks;                         // a kernel of ts::nn::Attention
  constexpr auto operator()(const auto& embedded) const {
    const auto x = ts::zigzag_order<"context", 1>(embedded);             // [batch, time, features], once
    const auto y = ts::natural_order<"context", 1>(blocks(x));
    return y;
  }
};
}  // namespace page
// clang-format on
struct WholeModel {
  ts::Stack<ts::nn::Block<>> blocks;
  constexpr auto operator()(const auto& x) const { return blocks(x); }
};

/// The output of a model of two layers, and the gradients of its first weights.
template <class Model, class Kernel>
std::vector<float> trained(const ts::nn::ShardingStrategy& strategy, const ts::PartitionSpec& spec) {
  static constexpr auto program = ts::compile([](auto model, auto x) {
    const auto loss = [](const auto& m, const auto& in) {
      const auto y = m(in);
      return std::tuple(ts::mean(y * y), y);
    };
    const auto [value, gradient] = ts::value_and_grad(loss)(model, x);
    return std::tuple(std::get<1>(value), gradient);
  });
  const Model model{{2, [&](int i) {
                       const ts::Key key(static_cast<std::uint64_t>(i) + 5);
                       return ts::nn::block<float, Kernel>(key, 8, 2, 16, strategy, 1, 0.5);
                     }}};
  const auto [y, gradient] = program(model, ts::normal<float>(ts::Key(1), {2, 16, 8}, strategy.mesh, spec));
  std::vector<float> all = ts::to_host(y);
  for (const float v : ts::to_host(gradient.blocks[0].attention.qkv.weight)) all.push_back(v);
  return all;
}

TEST(ParallelismDoc, TimeAndExpertsAreSplit) {
  const std::vector<float> want =
      trained<WholeModel, ts::nn::CausalAttention>(ts::nn::single(ts::Mesh{}), ts::PartitionSpec{});
  const auto expect_equal = [&](const std::vector<float>& got) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5 + 1e-4f * std::abs(want[i])) << i;
  };
  const ts::Mesh mesh({{"model", 2}, {"context", 4}});
  // clang-format off
    auto strategy = ts::nn::sequence_parallel(mesh);                    // with tensor parallelism, over "model"
    auto by_time = ts::nn::context_parallel(mesh);                      // over "context"
    const ts::Mesh devices({{"expert", 4}});
    const auto by_sequence = ts::nn::data_parallel(devices, "expert");     // the axis splits the batch ...
    auto moe = ts::nn::moe<float, ts::nn::Dispatch::sequence_capacity>(    // ... and the experts
        ts::Key(1), 64, 128, 8, 2, by_sequence, ts::nn::expert_capacity(32, 8, 2));
  // clang-format on
  expect_equal(trained<WholeModel, ts::nn::CausalAttention>(strategy, strategy.batch));
  expect_equal(trained<WholeModel, ts::nn::CausalAttention>(by_time, by_time.batch));
  expect_equal(trained<page::Model, page::Ring>(by_time, by_time.batch));
  EXPECT_EQ(ts::sharded_type_text(moe.experts.up), "f32[8,64,128]{expert,-,-}");
  for (const char* section :
       {"Splitting time (sequence and context parallelism)", "Splitting experts (expert parallelism)"})
    tessera_test::expect_lines({.name = "parallelism.md", .section = section, .lines = 4}, __FILE__);
}

}  // namespace
