#include <string>
#include <tuple>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/partition/plan/frozen_plan.hpp>
#include <tessera/partition/plan/plan_diff.hpp>
#include <tessera/partition/plan/static_plan.hpp>

namespace ts = tessera;
using tessera_test::expect_error;

namespace {

using Matrix = ts::ShardedTensor<float, 2>;
constexpr ts::Mesh mesh({{"data", 2}, {"model", 4}});

struct Mlp {
  Matrix up, down;
  constexpr auto operator()(const auto& x) const { return ts::matmul(ts::relu(ts::matmul(x, up)), down); }
};
struct Gradient {
  constexpr auto operator()(auto model, auto x, auto t) const {
    return ts::value_and_grad([](const auto& m, auto in, auto out) { return ts::mse(m(in), out); })(model, x, t);
  }
};
constexpr ts::Plan plan(const ts::PartitionSpec& up, const ts::PartitionSpec& down, const ts::PlanOptions& o = {}) {
  const auto batch = ts::abstract<float>({32, 64}, {"data"});
  return ts::plan(Gradient{}, mesh, o, ts::abstract<Mlp>({{{64, 256}, up}, {{256, 64}, down}}), batch, batch);
}

constexpr auto megatron = ts::freeze([] { return plan({ts::none, "model"}, {"model"}); });
// Forward one all_reduce of [16, 64]; backward two of a quarter of each weight, and one of the loss.
static_assert(megatron.size == 4 && megatron.count(ts::all_reduce) == 4);
static_assert(megatron.payload_bytes(ts::all_reduce, "model") == 16 * 64 * 4);
static_assert(megatron.wire_bytes("model") == 2 * 3 * 16 * 64 * 4 / 4);
static_assert(megatron.wire_bytes("data") == 2 * 64 * 64 * 4 + 4);
static_assert(megatron.implicit_count() == 0);
// Two products forward, three backward (the input has no gradient), 2 m n k flops each, and little else.
static_assert(megatron.flops() >= 5 * 2ll * 32 * 64 * 256 && megatron.flops() < 5 * 2ll * 32 * 64 * 256 * 11 / 10);
// Memory of a device: weights of 64 x 64 twice, two batches of 16 x 64.
static_assert(megatron.memory.arguments == 4 * (2 * 64 * 64 + 2 * 16 * 64));
static_assert(megatron.memory.results == 4 * 2 * 64 * 64 + 4);
static_assert(megatron.memory.peak >= megatron.memory.arguments + megatron.memory.results);
static_assert(megatron.memory.peak <=
              megatron.memory.arguments + megatron.memory.results + megatron.memory.scratch + 256);
static_assert(megatron.traffic_bytes() > 0);

TEST(StaticPlan, AFrozenPlanIsThePlanOfTheRunTime) {
  const ts::Plan made = plan({ts::none, "model"}, {"model"});
  std::size_t i = 0;
  made.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t times) {
    ASSERT_LT(i, megatron.size);
    const ts::PlannedCollective& frozen = megatron.collectives[i++];
    EXPECT_EQ(frozen.kind, c.kind);
    EXPECT_EQ(frozen.axes, c.axes);
    EXPECT_EQ(frozen.dtype, c.dtype);
    EXPECT_EQ(frozen.payload_bytes, c.payload_bytes);
    EXPECT_EQ(frozen.wire_bytes, c.wire_bytes);
    EXPECT_EQ(frozen.source.text(), c.source.text());
    EXPECT_EQ(frozen.why, c.why);
    EXPECT_EQ(frozen.times, times);
  });
  EXPECT_EQ(i, megatron.size);
  EXPECT_EQ(made.flops(), megatron.flops());
  EXPECT_EQ(made.traffic_bytes(), megatron.traffic_bytes());
  EXPECT_EQ(ts::memory_of(made).peak, ts::memory_of(megatron).peak);
  EXPECT_EQ(megatron.collectives[0].source.text().substr(0, 20), "static_plan_test.cpp");
}

struct Layer {
  Matrix up, down;
  constexpr auto operator()(const auto& x) const { return x + ts::matmul(ts::relu(ts::matmul(x, up)), down); }
};
struct Scaled {
  constexpr auto operator()(auto layers, auto x, auto rate) const { return layers(x) * rate; }
};

TEST(StaticPlan, StacksAndNumbersAreAbstractToo) {
  const auto layers = ts::abstract<ts::Stack<Layer>>(
      {ts::stacked(5, {{64, 256}, {ts::none, "model"}}), ts::stacked(5, {{256, 64}, {"model"}})});
  const ts::Plan made =
      ts::plan(Scaled{}, mesh, layers, ts::abstract<float>({32, 64}, {"data"}), ts::abstract(ts::Scalar()));
  EXPECT_EQ(made.count(ts::all_reduce, "model"), 5);
  EXPECT_GE(made.flops(), 5 * 4 * 32 * 64 * 256);
}

TEST(StaticPlan, MistakesAreErrors) {
  expect_error(
      ts::errc::spec_axis, [] { plan({"modle"}, {}); }, "'modle'");
  ts::PlanOptions strict;
  strict.forbid_implicit_reshards = true;
  const auto product = [](auto x, auto y) { return x * y; };
  const auto rows = ts::abstract<float>({32, 64}, {"data"}),
             columns = ts::abstract<float>({32, 64}, {ts::none, "data"});
  EXPECT_EQ(ts::plan(product, mesh, rows, columns).implicit_count(), 1);
  expect_error(
      ts::errc::policy, [&] { ts::plan(product, mesh, strict, rows, columns); },
      "[plan] implicit reshard: all_to_all of 8192 bytes reshards f32[32,64], argument 1, from "
      "{-,data} to {data,-} for its use at static_plan_test.cpp:");
}

TEST(PlanDiff, SaysWhatChanges) {
  const ts::Plan data = plan({}, {}), tensor = plan({ts::none, "model"}, {"model"});
  EXPECT_EQ(ts::diff(data, data), "");
  const std::string text = ts::diff(data, tensor);
  const auto expect = [&](const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in:\n" << text;
  };
  expect("- 1 all_reduce over data of f32: 65,536 B, 65,536 B on the wire  at static_plan_test.cpp:");
  expect("+ 1 all_reduce over data of f32: 16,384 B, 16,384 B on the wire  at static_plan_test.cpp:");
  expect("+ 1 all_reduce over model of f32: 4,096 B, 6,144 B on the wire  at static_plan_test.cpp:");
  expect("on the wire of a device: 131,076 B -> 38,916 B\n");
  EXPECT_EQ(text.find("computed"), std::string::npos) << "the work is the same:\n" << text;
  EXPECT_EQ(text.find(": 4 B"), std::string::npos) << "the loss is reduced in both:\n" << text;
}

TEST(PlanDiff, KeepsWhatBothHaveInOrder) {
  const auto f = [](auto x, auto w, auto v) { return std::tuple(ts::matmul(x, w), ts::matmul(x, v)); };
  const auto made = [&](const ts::PartitionSpec& v) {
    return ts::plan(f, mesh, ts::abstract<float>({8, 16}, {ts::none, "model"}), ts::abstract<float>({16, 4}, {"model"}),
                    ts::abstract<float>({16, 6}, v));
  };
  const std::string text = ts::diff(made({"model"}), made({"model", "data"}));
  EXPECT_EQ(text.substr(0, 66), "- 1 all_reduce over model of f32: 192 B, 288 B on the wire  at sta") << text;
  EXPECT_NE(text.find("\n+ 1 all_reduce over model of f32: 96 B, 144 B on the wire"), std::string::npos) << text;
  EXPECT_EQ(text.find("128 B"), std::string::npos) << text;
}

TEST(StaticPlan, AnAxisThatTheMeshLacksIsNotCounted) {
  const auto plan =
      ts::plan([](const auto& x) { return x + x; }, ts::Mesh({{"model", 4}}), ts::abstract<float>({8, 16}));
  EXPECT_EQ(plan.count(ts::all_reduce, "model") + plan.wire_bytes("model"), 0);
  for (const auto& ask : {+[](const ts::Plan& p) { return p.count(ts::all_reduce, "modle"); },
                          +[](const ts::Plan& p) { return p.payload_bytes(ts::all_reduce, "modle"); },
                          +[](const ts::Plan& p) { return p.wire_bytes("modle"); }})
    tessera_test::expect_error(
        ts::errc::mesh_axis, [&] { ask(plan); }, "[mesh] unknown axis: mesh(model=4) has no axis 'modle'");
}

}  // namespace
