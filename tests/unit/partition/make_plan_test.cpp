#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "planned.hpp"
#include <gtest/gtest.h>

namespace {

namespace ts = tessera;
using namespace ts::tests;
using Vector = ts::ShardedTensor<float, 1>;

const ts::Mesh mesh({{"data", 2}, {"model", 4}});
const ts::PartitionSpec stored_rows = ts::PartitionSpec({"data"}).gathered_on_use();

struct Mlp {
  Matrix up, down;
  constexpr auto operator()(const auto& x) const { return ts::matmul(ts::gelu(ts::matmul(x, up)), down); }
};
struct Forward {
  constexpr auto operator()(auto model, auto x) const { return model(x); }
};
/// Gradients with respect to the model and the input, as a layer in the middle of a model computes them.
struct ForwardBackward {
  constexpr auto operator()(auto model, auto x) const {
    return ts::grad([](const auto& both, int) {
      const auto y = std::get<0>(both)(std::get<1>(both));
      return ts::sum(y * y);
    })(std::tuple(model, Matrix(x)), 0);
  }
};
struct Gradient {
  constexpr auto operator()(auto model, auto x, auto t) const {
    return ts::value_and_grad([](const auto& m, auto in, auto out) { return ts::mse(m(in), out); })(model, x, t);
  }
};

std::vector<ts::ArgumentInfo> mlp_arguments(const ts::PartitionSpec& up, const ts::PartitionSpec& down,
                                            const ts::PartitionSpec& x) {
  return {tensor(mesh, {64, 256}, up), tensor(mesh, {256, 64}, down), tensor(mesh, {32, 64}, x)};
}
ts::ArgumentInfo target() { return tensor(mesh, {32, 64}, {"data"}); }

TEST(MakePlan, OneDeviceCommunicatesNothing) {
  auto arguments = mlp_arguments({}, {}, {});
  arguments.push_back(tensor(ts::Mesh(), {32, 64}));
  const Planned made(ts::Traced<Gradient, Mlp, Matrix, Matrix>::program(), ts::Mesh(), arguments);
  EXPECT_EQ(made.collectives(), "");
}

TEST(MakePlan, SaysWhatAPartialValueIsOf) {
  constexpr auto f = [](const auto& x) { return std::tuple(ts::prod<0>(x), ts::max<0>(x), ts::sum<0>(x)); };
  const Planned made(ts::Traced<decltype(f), Matrix>::program(), mesh, {tensor(mesh, {32, 64}, {"data"})});
  const std::string text = made.text();
  for (const char* what : {"(partial product)", "(partial extreme)", "(partial sum)"})
    EXPECT_NE(text.find(what), std::string::npos) << what << " in " << text;
}

TEST(MakePlan, DataParallelReducesEachGradientOnce) {
  auto arguments = mlp_arguments({}, {}, {"data"});
  arguments.push_back(target());
  const Planned made(ts::Traced<Gradient, Mlp, Matrix, Matrix>::program(), mesh, arguments);
  EXPECT_EQ(made.collectives(), "all_reduce data 4\nall_reduce data 65536\nall_reduce data 65536\n");
  EXPECT_EQ(made.plan.wire_bytes("data"), 4 + 2 * 65536);
  EXPECT_EQ(made.plan.wire_bytes("model"), 0);
}

TEST(MakePlan, MegatronMlpReducesOnceForwardAndOnceBackward) {
  const auto arguments = mlp_arguments({ts::none, "model"}, {"model"}, {});
  const Planned forward(ts::Traced<Forward, Mlp, Matrix>::program(), mesh, arguments);
  EXPECT_EQ(forward.collectives(), "all_reduce model 8192\n");
  const Planned both(ts::Traced<ForwardBackward, Mlp, Matrix>::program(), mesh, arguments);
  EXPECT_EQ(both.collectives(), "all_reduce model 8192\nall_reduce model 8192\n");
}

TEST(MakePlan, GoldenForwardOfAMegatronMlp) {
  const Planned made(ts::Traced<Forward, Mlp, Matrix>::program(), mesh,
                     mlp_arguments({ts::none, "model"}, {"model"}, {"data"}));
  std::string text = made.text();
  // Removes the lines of this file from the text.
  for (std::size_t at; (at = text.find("  at make_plan_test.cpp:")) != std::string::npos;) {
    std::size_t end = at + 24;
    while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
    text.erase(at, end - at);
  }
  EXPECT_EQ(text, "plan on mesh(data=2,model=4)\n"
                  "  arguments: %0 f32[64,256]{-,model}, %1 f32[256,64]{model,-}, %2 f32[32,64]{data,-}\n"
                  "  %3 f32[32,256]{data,model} = einsum %2 %0  1,048,576 flops, 106,496 B\n"
                  "    writes %3 to scratch at 0; fused with the next step: it works on each box of %3\n"
                  "  %4 f32[32,256]{data,model} = fused gelu %3  180,224 flops, 65,536 B\n"
                  "    writes %4 to scratch at 32,768\n"
                  "  %5 f32[32,64]{data,-}+sum(model) = einsum %4 %1  1,048,576 flops, 98,304 B\n"
                  "    fused with the next step: %5 is not stored, each part is added to %6 as it is made\n"
                  "  %6 f32[32,64]{data,-} = reshard %5\n"
                  "    writes %6 to result 0\n"
                  "    all_reduce over model: 4,096 B, 6,144 B on the wire  (partial sum)\n"
                  "communication of each device\n"
                  "  1 all_reduce over model: 4,096 B, 6,144 B on the wire\n"
                  "memory of a device: 36,864 B arguments, 4,096 B results, 8,192 B scratch; 45,056 B at most\n");
}

TEST(MakePlan, StoredWeightsAreGatheredWhereTheyAreUsed) {
  const Planned made(ts::Traced<Forward, Mlp, Matrix>::program(), mesh,
                     mlp_arguments(stored_rows, stored_rows, {"data"}));
  EXPECT_EQ(made.collectives(), "all_gather data 65536\nall_gather data 65536\n");
  const auto& steps = made.plan.main().steps;
  EXPECT_EQ(steps[0].kind, ts::StepKind::reshard) << "gathered right before its use";
  EXPECT_EQ(steps[1].kind, ts::StepKind::compute);
  EXPECT_EQ(steps[0].collectives[0].why, "gathered on use");
  EXPECT_TRUE(steps[0].collectives[0].requested);
}

struct SgdStep {
  constexpr auto operator()(auto model, auto x, auto t) const {
    auto g = ts::grad([](const auto& m, auto in, auto out) { return ts::mse(m(in), out); })(model, x, t);
    auto next = model;
    next.up = model.up - g.up * 0.1;
    next.down = model.down - g.down * 0.1;
    return next;
  }
};

TEST(MakePlan, FullyShardedGradientsAreScatteredIntoTheLayoutOfTheirWeights) {
  auto arguments = mlp_arguments(stored_rows, stored_rows, {"data"});
  arguments.push_back(target());
  const Planned made(ts::Traced<SgdStep, Mlp, Matrix, Matrix>::program(), mesh, arguments);
  EXPECT_EQ(made.plan.count(ts::all_gather), 2);
  EXPECT_EQ(made.plan.count(ts::reduce_scatter), 2);
  EXPECT_EQ(made.plan.count(ts::all_reduce), 0);
  for (std::int32_t v : made.plan.main().outputs) {
    const ts::PlanValue& result = made.plan.main().values[static_cast<std::size_t>(v)];
    EXPECT_EQ(result.sharding, ts::resolve(stored_rows, mesh, 2)) << "the same layout, and the same key in the cache";
    EXPECT_EQ(result.role, ts::ValueRole::output);
  }
}

struct MomentumStep {
  constexpr auto operator()(auto w, auto m, auto x) const {
    auto g = ts::grad([](auto weight, auto in) {
      const auto y = ts::matmul(in, weight);
      return ts::sum(y * y);
    })(w, x);
    auto next = m * 0.9 + g;
    return std::tuple(w - next * 0.1, next);
  }
};

TEST(MakePlan, ShardedOptimizerStatesScatterGradientsAndGatherWeights) {
  const std::vector<ts::ArgumentInfo> arguments{tensor(mesh, {64, 256}), tensor(mesh, {64, 256}, {"data"}),
                                                tensor(mesh, {32, 64}, {"data"})};
  const ts::OutputRequest whole[]{{true, ts::replicated(2)}, {}};
  ts::PlanOptions options;
  options.outputs = whole;
  const Planned made(ts::Traced<MomentumStep, Matrix, Matrix, Matrix>::program(), mesh, arguments, options);
  EXPECT_EQ(made.collectives(), "reduce_scatter data 65536\nall_gather data 65536\n");
}

struct Lookup {
  Matrix table;
  constexpr auto operator()(const auto& tokens) const { return ts::embedding(table, tokens); }
};

TEST(MakePlan, EmbeddingOverAShardedTableSumsItsParts) {
  using Tokens = ts::ShardedTensor<int, 2>;
  const auto program = ts::Traced<Forward, Lookup, Tokens>::program();
  const auto plan = [&](const ts::PartitionSpec& table) {
    return Planned(program, mesh, {tensor(mesh, {1000, 64}, table), tensor(mesh, {8, 16}, {"data"})}).collectives();
  };
  EXPECT_EQ(plan({"model"}), "all_reduce model 16384\n");  // [4,16,64] on a device
  EXPECT_EQ(plan({ts::none, "model"}), "");                // the result is split by features
  EXPECT_EQ(plan(ts::PartitionSpec({ts::none, "data"}).gathered_on_use()), "all_gather data 256000\n");
}

struct SumOfProducts {
  constexpr auto operator()(auto a, auto b, auto wa, auto wb) const { return ts::matmul(a, wa) + ts::matmul(b, wb); }
};

TEST(MakePlan, PartialProductsAreAddedBeforeTheyAreReduced) {
  const auto program = ts::Traced<SumOfProducts, Matrix, Matrix, Matrix, Matrix>::program();
  const ts::ArgumentInfo x = tensor(mesh, {32, 64}, {ts::none, "model"}), w = tensor(mesh, {64, 16}, {"model"});
  EXPECT_EQ(Planned(program, mesh, {x, x, w, w}).collectives(), "all_reduce model 2048\n");
  // One of two terms is replicated: it is added to one part of the other, and the sum is still reduced once.
  const ts::ArgumentInfo whole = tensor(mesh, {32, 64}), v = tensor(mesh, {64, 16});
  EXPECT_EQ(Planned(program, mesh, {x, whole, w, v}).collectives(), "all_reduce model 2048\n");
}

struct Scaled {
  constexpr auto operator()(auto a, auto w) const { return ts::sum(ts::matmul(a, w) * 2.0); }
};
struct Squared {
  constexpr auto operator()(auto a, auto w) const {
    auto y = ts::matmul(a, w);
    return ts::sum(y * y);
  }
};

TEST(MakePlan, PartialValuesPassThroughWhatIsLinear) {
  const std::vector<ts::ArgumentInfo> arguments{tensor(mesh, {32, 64}, {ts::none, "model"}),
                                                tensor(mesh, {64, 16}, {"model"})};
  EXPECT_EQ(Planned(ts::Traced<Scaled, Matrix, Matrix>::program(), mesh, arguments).collectives(),
            "all_reduce model 4\n");
  EXPECT_EQ(Planned(ts::Traced<Squared, Matrix, Matrix>::program(), mesh, arguments).collectives(),
            "all_reduce model 2048\n");
}

struct Softmax {
  constexpr auto operator()(auto x) const { return ts::softmax(x); }
};

TEST(MakePlan, SplitRowsAreCompletedBetweenPasses) {
  const Planned made(ts::Traced<Softmax, Matrix>::program(), mesh, {tensor(mesh, {32, 64}, {"data", "model"})});
  EXPECT_EQ(made.collectives(), "all_reduce model 128\nall_reduce model 128\n");  // maxima and sums of 16 rows, in f64
  EXPECT_EQ(made.plan.main().steps.size(), 1u);
}

struct Constrained {
  constexpr auto operator()(auto x, auto w) const { return ts::with_sharding(ts::matmul(x, w), {ts::none, "data"}); }
};

TEST(MakePlan, ConstraintsAskForTheirReshard) {
  const auto program = ts::Traced<Constrained, Matrix, Matrix>::program();
  ts::PlanOptions strict;
  strict.forbid_implicit_reshards = true;
  const Planned made(program, mesh, {tensor(mesh, {32, 64}, {"data"}), tensor(mesh, {64, 16})}, strict);
  EXPECT_EQ(made.plan.count(ts::all_to_all), 1);
  const ts::PlanValue& result = made.plan.main().values[static_cast<std::size_t>(made.plan.main().outputs[0])];
  EXPECT_EQ(result.sharding, ts::resolve({ts::none, "data"}, mesh, 2));
}

struct Product {
  constexpr auto operator()(auto x, auto y) const { return x * y; }
};

TEST(MakePlan, APolicyForbidsReshardsThatNobodyAskedFor) {
  const auto program = ts::Traced<Product, Matrix, Matrix>::program();
  const std::vector<ts::ArgumentInfo> arguments{tensor(mesh, {32, 64}, {"data"}),
                                                tensor(mesh, {32, 64}, {ts::none, "data"})};
  const Planned made(program, mesh, arguments);
  EXPECT_EQ(made.collectives(), "all_to_all data 8192\n");
  EXPECT_NE(made.text().find("; implicit"), std::string::npos);
  ts::PlanOptions strict;
  strict.forbid_implicit_reshards = true;
  try {
    Planned(program, mesh, arguments, strict);
    FAIL() << "the reshard was planned";
  } catch (const ts::error& e) {
    EXPECT_EQ(e.id(), ts::errc::policy);
    EXPECT_NE(std::string(e.what()).find("[plan] implicit reshard: all_to_all of 8192 bytes"), std::string::npos)
        << e.what();
  }
}

struct Heads {
  ts::Dim heads;
  constexpr auto operator()(const auto& x) const {
    return ts::rearrange<"t (h e) -> h t e">(x, ts::len<"h">(heads)) * 2.0;
  }
};

TEST(MakePlan, ASplitDimPassesItsAxesToTheMajorPartWhileTheyDivide) {
  const auto program = ts::Traced<Forward, Heads, Matrix>::program();
  const auto plan = [&](double heads, const ts::PartitionSpec& x) {
    return Planned(program, mesh, {number(heads), tensor(mesh, {16, 48}, x)});
  };
  const auto result = [](const Planned& made) {
    return ts::text(made.plan.main().values[static_cast<std::size_t>(made.plan.main().outputs[0])].sharding,
                    made.plan.mesh);
  };
  const Planned eight = plan(8, {ts::none, "model"});
  EXPECT_EQ(result(eight), "{model,-,-}");
  EXPECT_EQ(eight.collectives(), "");
  EXPECT_EQ(eight.plan.main().values[1].role, ts::ValueRole::view);
  const Planned full = plan(4, {ts::none, {"model", "data"}});
  EXPECT_EQ(result(full), "{model,-,data}");
  EXPECT_EQ(full.collectives(), "");
  // 6 heads over 4 devices: they are split over two devices, so the rows of heads are gathered first.
  const Planned six = plan(6, {ts::none, "model"});
  EXPECT_EQ(result(six), "{model:(1)2,-,-}");
  EXPECT_EQ(six.plan.count(ts::all_gather, "model:(2)2"), 1);
  EXPECT_EQ(six.plan.count(ts::all_gather), 1);
  const Planned two = plan(2, {ts::none, "model"});  // and their elements over the other two
  EXPECT_EQ(result(two), "{model:(1)2,-,model:(2)2}");
  EXPECT_EQ(two.collectives(), "");
  const Planned odd = plan(3, {ts::none, "model"});
  EXPECT_EQ(result(odd), "{-,-,-}");
  EXPECT_EQ(odd.plan.count(ts::all_gather), 1);
}

struct MergeTransposed {
  constexpr auto operator()(auto x) const { return ts::merge_dims<0, 1>(ts::transpose<1, 0, 2>(x)); }
};
struct MergePlain {
  constexpr auto operator()(auto x) const { return ts::merge_dims<0, 1>(x); }
};

TEST(MakePlan, DimsThatLieApartAreCopiedWhenTheyMerge) {
  using Cube = ts::ShardedTensor<float, 3>;
  const auto arguments = std::vector<ts::ArgumentInfo>{tensor(mesh, {4, 6, 8})};
  const Planned apart(ts::Traced<MergeTransposed, Cube>::program(), mesh, arguments);
  const Planned plain(ts::Traced<MergePlain, Cube>::program(), mesh, arguments);
  EXPECT_EQ(plain.plan.main().steps.size(), 0u);
  EXPECT_EQ(apart.plan.main().steps.size(), 1u);
}

struct MergeSingle {
  constexpr auto operator()(auto x) const { return ts::merge_dims<0, 1>(x); }
};
struct SplitSingle {
  constexpr auto operator()(auto x, ts::Dim n) const { return ts::split_dim<0>(x, n); }
};

// Five rows on two devices, three and two: [1, 5, 8] merged into [5, 8], and back.
TEST(MakePlan, ARowDimOfOneMergesWithoutAGather) {
  const Planned merged(ts::Traced<MergeSingle, ts::ShardedTensor<float, 3>>::program(), mesh,
                       {tensor(mesh, {1, 5, 8}, {ts::none, "data"})});
  EXPECT_EQ(merged.collectives(), "");
  EXPECT_EQ(text(merged.plan.main().values[static_cast<std::size_t>(merged.plan.main().outputs[0])].sharding, mesh),
            "{data,-}");
  const Planned split(ts::Traced<SplitSingle, Matrix, ts::Dim>::program(), mesh,
                      {tensor(mesh, {5, 8}, {"data"}), number(5)});
  EXPECT_EQ(split.collectives(), "");
  EXPECT_EQ(text(split.plan.main().values[static_cast<std::size_t>(split.plan.main().outputs[0])].sharding, mesh),
            "{-,data,-}");
}

struct Tile {
  constexpr auto operator()(auto x, ts::Dim n) const {
    return std::tuple(ts::tile<0>(x, n), ts::repeat_interleave<1>(x, n));
  }
};
struct TileOfSine {
  constexpr auto operator()(auto x) const { return ts::matmul(ts::tile<0>(ts::sin(x), 3), ts::transpose<1, 0>(x)); }
};
struct WholeBroadcast {
  constexpr auto operator()(auto x) const { return ts::with_sharding(ts::broadcast_to(ts::sin(x), {5, -1, -1}), {}); }
};
struct BroadcastTo {
  constexpr auto operator()(auto x, ts::Dim n) const { return ts::broadcast_to(x, {n, ts::extent<0>(x), -1}) * 2.0; }
};

// Each makes a tensor of counts, of which only the shape is read.
TEST(MakePlan, NothingIsComputedForAShapeAlone) {
  const Planned tiled(ts::Traced<Tile, Matrix, ts::Dim>::program(), mesh, {tensor(mesh, {5, 8}), number(3)});
  EXPECT_EQ(tiled.plan.main().steps.size(), 2u) << tiled.text();  // one for each result
  EXPECT_EQ(tiled.text().find("arange"), std::string::npos) << tiled.text();
  const Planned wide(ts::Traced<BroadcastTo, Matrix, ts::Dim>::program(), mesh, {tensor(mesh, {5, 8}), number(3)});
  EXPECT_EQ(wide.plan.main().steps.size(), 1u) << wide.text();
}

// tile<0> of a dim split over n devices: 16 x 8 floats are gathered, and not their 3 copies.
TEST(MakePlan, WhatIsBroadcastIsGatheredBefore) {
  const ts::Mesh four({{"n", 4}});
  const auto x = tensor(four, {16, 8}, {"n"});
  const Planned tiled(ts::Traced<TileOfSine, Matrix>::program(), four, {x});
  EXPECT_EQ(tiled.plan.count(ts::all_gather), 1) << tiled.text();
  EXPECT_EQ(tiled.plan.wire_bytes(), 3 * 4 * 8 * 4) << tiled.text();
  // A constraint reshards the value that it names.
  const Planned named(ts::Traced<WholeBroadcast, Matrix>::program(), four, {x});
  EXPECT_EQ(named.plan.wire_bytes(), 5 * 3 * 4 * 8 * 4) << named.text();
}

TEST(MakePlan, UnevenShardsAreCountedAsTheyAre) {
  const ts::Mesh four({{"n", 4}});
  const Planned made(ts::Traced<Softmax, Matrix>::program(), four, {tensor(four, {10, 6}, {"n"})});
  EXPECT_EQ(made.collectives(), "");
  const ts::PlanValue& x = made.plan.main().values[0];
  EXPECT_EQ(x.device_bytes, 3 * 6 * 4);
  EXPECT_EQ(x.stored_bytes, 3 * 128 + 64);  // 3, 3, 3 and 1 rows of 24 bytes, each shard aligned to 64
}

// ---- layers

struct Layer {
  Matrix up, down;
  constexpr auto operator()(const auto& x) const { return x + ts::matmul(ts::gelu(ts::matmul(x, up)), down); }
};
using Layers = ts::Stack<Layer>;

std::vector<ts::ArgumentInfo> layer_arguments(ts::PartitionSpec up, ts::PartitionSpec down) {
  up.entries.insert(0, ts::SpecEntry(ts::none));
  down.entries.insert(0, ts::SpecEntry(ts::none));
  return {tensor(mesh, {3, 64, 256}, up), tensor(mesh, {3, 256, 64}, down), tensor(mesh, {32, 64}, {"data"}), target()};
}

TEST(MakePlan, LayersOfAStackCommunicateEachForItself) {
  const auto program = ts::Traced<Gradient, Layers, Matrix, Matrix>::program();
  const Planned data(program, mesh, layer_arguments({}, {}));
  EXPECT_EQ(data.collectives(),
            "repeat 3\nend\nall_reduce data 4\nrepeat 3\nall_reduce data 65536\nall_reduce data 65536\nend\n");
  EXPECT_EQ(data.plan.count(ts::all_reduce), 7);
  // The gradient of the stack's input is not requested, and reduced all the same: the layers pass it on.
  const Planned tensor_parallel(program, mesh, layer_arguments({ts::none, "model"}, {"model"}));
  EXPECT_EQ(tensor_parallel.plan.count(ts::all_reduce, "model"), 2 * 3);
  EXPECT_EQ(tensor_parallel.plan.payload_bytes(ts::all_reduce, "model"), 6 * 4096);
}

TEST(MakePlan, GradientsOfStoredLayersAreScatteredInsideTheBody) {
  // The request plays an optimizer, whose states have the shardings of the weights.
  const auto program = ts::Traced<Gradient, Layers, Matrix, Matrix>::program();
  const auto arguments = layer_arguments(stored_rows, stored_rows);
  const ts::OutputRequest requests[]{{}, {true, arguments[0].sharding}, {true, arguments[1].sharding}};
  ts::PlanOptions options;
  options.outputs = requests;
  const Planned made(program, mesh, arguments, options);
  EXPECT_EQ(made.collectives(),
            "repeat 3\nall_gather data 65536\nall_gather data 65536\nend\nall_reduce data 4\n"
            "repeat 3\nall_gather data 65536\nreduce_scatter data 65536\nall_gather data 65536\nreduce_scatter data "
            "65536\nend\n");
}

TEST(MakePlan, LayersThemselvesAreNotSplit) {
  const auto program = ts::Traced<Gradient, Layers, Matrix, Matrix>::program();
  auto arguments = layer_arguments({}, {});
  arguments[0] = tensor(mesh, {4, 64, 256}, {"model"});
  arguments[1] = tensor(mesh, {4, 256, 64});
  try {
    Planned(program, mesh, arguments);
    FAIL() << "a stack was split by layers";
  } catch (const ts::error& e) {
    EXPECT_EQ(e.id(), ts::errc::unsupported);
  }
  arguments[0] = tensor(mesh, {5, 64, 256});
  try {
    Planned(program, mesh, arguments);
    FAIL() << "layers of different numbers were planned";
  } catch (const ts::error& e) {
    EXPECT_EQ(e.id(), ts::errc::structure);
  }
}

TEST(MakePlan, MemoryOfBodiesIsPartOfTheArena) {
  const Planned made(ts::Traced<Gradient, Layers, Matrix, Matrix>::program(), mesh, layer_arguments({}, {}));
  const ts::GraphPlan& main = made.plan.main();
  std::int64_t body = 0;
  for (const ts::PlanStep& step : main.steps)
    if (step.kind == ts::StepKind::repeat)
      body = std::max(body, made.plan.graphs[static_cast<std::size_t>(step.body)].arena_bytes);
  EXPECT_GT(body, 0);
  EXPECT_GE(main.arena_bytes, main.body_offset + body);
}

TEST(MakePlan, PartsOfDevicesWithoutRowsAreNeitherStoredNorMoved) {
  const ts::Mesh many({{"data", 64}});
  const auto plan_of = [&](std::int64_t rows) {
    const std::vector<ts::ArgumentInfo> arguments{tensor(many, {16, 32}), tensor(many, {32, 16}),
                                                  tensor(many, {rows, 16}, {"data"}),
                                                  tensor(many, {rows, 16}, {"data"})};
    return Planned(ts::Traced<Gradient, Mlp, Matrix, Matrix>::program(), many, arguments);
  };
  const auto stored_parts = [](const Planned& made) {
    std::vector<std::int64_t> parts;
    for (const ts::PlanValue& value : made.plan.main().values)
      if (value.sharding.unreduced != 0 && !value.shape.empty()) parts.push_back(value.stored_bytes / (16 * 32 * 4));
    return parts;
  };
  const Planned few = plan_of(8), all = plan_of(64), uneven = plan_of(130);
  EXPECT_EQ(stored_parts(few), (std::vector<std::int64_t>{8, 8}));  // the gradients of up and down
  EXPECT_EQ(stored_parts(all), (std::vector<std::int64_t>{64, 64}));
  EXPECT_EQ(stored_parts(uneven), (std::vector<std::int64_t>{44, 44}));  // 43 devices with 3 rows, one with 1
  EXPECT_EQ(few.collectives(), all.collectives());                       // each device takes part as before
}

// Memory of uneven shards is computed without a loop over shards: at once for any number of devices.
TEST(MakePlan, StoredBytesOfUnevenShardsAreThoseOfEachOne) {
  const ts::Mesh small({{"x", 3}, {"y", 4}, {"z", 2}});
  int uneven = 0;
  for (std::int64_t rows = 0; rows < 20; ++rows)
    for (std::int64_t columns = 1; columns < 40; columns += 3)
      for (const ts::PartitionSpec& spec :
           {ts::PartitionSpec{"x", "y"}, {ts::none, {"y", "x"}}, {{"z", "x"}, "y"}, {"y"}, {}}) {
        ts::Sharding sharding = ts::resolve(spec, small, 2);
        sharding.unreduced = static_cast<std::uint16_t>(sharding.uses(2) ? 0 : 4);
        const ts::Shape shape{rows, columns};
        std::int64_t each = 0;
        const ts::ShardGrid grid(small, sharding);
        for (int s = 0; s < grid.count(); ++s)
          each += ts::detail::arena_bytes(
              ts::volume(ts::extents(ts::shard_box(shape, sharding, small, grid.coordinates(s)))) * 8);
        ASSERT_EQ(ts::detail::distinct_bytes(shape, sharding, ts::DType::f64, small), each)
            << rows << " x " << columns << " " << ts::text(sharding, small);
        uneven += rows % 3 != 0;
      }
  EXPECT_GT(uneven, 500);

  const ts::Mesh most({{"data", 65536}, {"model", 32767}});
  const Planned made(ts::Traced<Forward, Mlp, Matrix>::program(), most,
                     {tensor(most, {64, 256 * 1000 + 1}, {ts::none, "model"}),
                      tensor(most, {256 * 1000 + 1, 64}, {"model"}), tensor(most, {100'000, 64}, {"data"})});
  EXPECT_EQ(made.collectives(), "all_reduce model 512\n");
}

// 405 billion weights on 16 million tokens: 4 10^19 operations, more than a 64-bit integer holds. All else of the plan
// is as usual.
TEST(MakePlan, OperationsStopAtTheLargestNumber) {
  const ts::Mesh pod({{"data", 2048}, {"model", 8}});
  const std::int64_t tokens = std::int64_t{1} << 24, features = 1 << 17, hidden = 1 << 21;
  const Planned made(ts::Traced<ForwardBackward, Mlp, Matrix>::program(), pod,
                     {tensor(pod, {features, hidden}, {ts::none, "model"}), tensor(pod, {hidden, features}, {"model"}),
                      tensor(pod, {tokens, features}, {"data"})});
  EXPECT_EQ(made.plan.flops(), INT64_MAX);
  EXPECT_GT(made.plan.wire_bytes("model"), 0);
}

TEST(MakePlan, NumbersThatArePartialOverDifferentAxesAreAddedFirst) {
  const auto f = [](auto a, auto b, auto c, auto d) {
    return ts::sqrt(ts::with_sharding(ts::sum(a * a) + ts::sum(b * b) + ts::sum(c * c) + ts::sum(d * d), {}));
  };
  const std::vector<ts::ArgumentInfo> arguments{tensor(mesh, {8, 8}, {"data"}), tensor(mesh, {8, 8}, {"model", "data"}),
                                                tensor(mesh, {8, 8}), tensor(mesh, {8, 8}, {ts::none, "model"})};
  const Planned made(ts::Traced<decltype(f), Matrix, Matrix, Matrix, Matrix>::program(), mesh, arguments);
  EXPECT_EQ(made.collectives(), "all_reduce data,model 4\n");
}

}  // namespace
