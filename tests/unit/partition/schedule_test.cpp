#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "planned.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/trace/stack.hpp>
#include <tessera/optim/sgd.hpp>
#include <tessera/partition/plan/static_plan.hpp>

// Which steps of a plan run fused with the next step, which values are not stored, and which arguments results are
// written over.

namespace {

namespace ts = tessera;
using namespace ts::tests;
using ts::Fusion;
using Half = ts::ShardedTensor<ts::bf16, 2>;
using Row = ts::ShardedTensor<float, 1>;

const ts::Mesh mesh({{"data", 2}, {"model", 4}});

template <class F, class... Args> Planned planned(const std::vector<ts::ArgumentInfo>& arguments, bool fuse = true) {
  return Planned(ts::Traced<F, Args...>::program(), mesh, arguments, {.fuse_steps = fuse});
}
template <class... Args> Planned planned(auto f, const std::vector<ts::ArgumentInfo>& arguments, bool fuse = true) {
  return planned<decltype(f), Args...>(arguments, fuse);
}

const ts::GraphPlan& main_of(const Planned& made) { return made.plan.main(); }
const ts::PlanValue& value(const Planned& made, int v) { return main_of(made).values[static_cast<std::size_t>(v)]; }
/// The first step with this fusion, or -1.
int first(const Planned& made, Fusion fusion) {
  const auto& steps = main_of(made).steps;
  for (std::size_t s = 0; s < steps.size(); ++s)
    if (steps[s].fusion == fusion) return static_cast<int>(s);
  return -1;
}
const ts::PlanValue& passed(const Planned& made, Fusion fusion) {
  return value(made, main_of(made).steps[static_cast<std::size_t>(first(made, fusion))].outputs[0]);
}
bool any_fused(const Planned& made) {
  for (const ts::PlanStep& step : main_of(made).steps)
    if (step.fusion != Fusion::apart) return true;
  return false;
}
std::vector<int> donated(const Planned& made) { return {main_of(made).donated.begin(), main_of(made).donated.end()}; }
bool says(const Planned& made, const std::string& text) { return made.text().find(text) != std::string::npos; }

constexpr auto mlp = [](auto x, auto up, auto down) { return ts::matmul(ts::gelu(ts::matmul(x, up)), down); };
const std::vector<ts::ArgumentInfo> mlp_arguments{tensor(mesh, {32, 64}, {"data"}), tensor(mesh, {64, 256}),
                                                  tensor(mesh, {256, 64})};

TEST(Schedule, AnElementwiseStepIsAnEpilogueOfTheProductThatItReads) {
  const Planned made = planned<Matrix, Matrix, Matrix>(mlp, mlp_arguments);
  ASSERT_EQ(first(made, Fusion::epilogue), 0);
  EXPECT_EQ(passed(made, Fusion::epilogue).role, ts::ValueRole::intermediate) << "both values are stored";
  EXPECT_TRUE(says(made, "fused with the next step: it works on each box of %3\n")) << made.text();
  EXPECT_FALSE(any_fused(planned<Matrix, Matrix, Matrix>(mlp, mlp_arguments, false)));
}

TEST(Schedule, AnEpilogueDoesNotWriteWhatTheProductStillReads) {
  // The product is the last reader of tanh(x), and the arena gives that memory to the result of gelu.
  const Planned made = planned<Matrix, Matrix, Matrix>(
      [](auto x, auto up, auto down) { return ts::matmul(ts::gelu(ts::matmul(ts::tanh(x), up)), down); },
      {tensor(mesh, {64, 64}), tensor(mesh, {64, 64}), tensor(mesh, {64, 64})});
  const auto& steps = main_of(made).steps;
  ASSERT_TRUE(ts::share_memory(main_of(made), steps[0].outputs[0], steps[2].outputs[0]));
  EXPECT_EQ(steps[1].fusion, Fusion::apart);
  EXPECT_FALSE(any_fused(made));
}

TEST(Schedule, AnEpilogueHasTheShapeAndThePlacesOfTheProduct) {
  // A softmax passes over its rows more than once, and a sum reduces them: neither runs box by box.
  const auto none = [](const Planned& made) { return !any_fused(made); };
  EXPECT_TRUE(none(planned<Matrix, Matrix, Matrix>(
      [](auto x, auto up, auto down) { return ts::matmul(ts::softmax(ts::matmul(x, up)), down); }, mlp_arguments)));
  EXPECT_TRUE(none(planned<Matrix, Matrix>([](auto x, auto up) { return ts::sum<0>(ts::matmul(x, up)); },
                                           {mlp_arguments[0], mlp_arguments[1]})));
}

TEST(Schedule, AProductIsSummedWhereTheResultThatIsMadeOfItGoes) {
  const std::vector<ts::ArgumentInfo> arguments{mlp_arguments[0], mlp_arguments[1]};
  const Planned made = planned<Matrix, Matrix>([](auto x, auto w) { return ts::tanh(ts::matmul(x, w)); }, arguments);
  ASSERT_EQ(first(made, Fusion::into_result), 0);
  EXPECT_EQ(passed(made, Fusion::into_result).role, ts::ValueRole::fused);
  EXPECT_FALSE(passed(made, Fusion::into_result).in_arena());
  EXPECT_EQ(main_of(made).arena_bytes, 0);
  EXPECT_EQ(ts::memory_of(made.plan).scratch, 0);
  EXPECT_TRUE(says(made, "  fused with the next step: %2 is summed box by box where %3 goes\n")) << made.text();
  EXPECT_TRUE(says(made, "  writes %3 to result 0\n")) << made.text();

  // Not fused when the product itself is a result, or has another reader, or the result has another element type.
  EXPECT_FALSE(any_fused(planned<Matrix, Matrix>(
      [](auto x, auto w) {
        const auto y = ts::matmul(x, w);
        return std::tuple(y, ts::tanh(y));
      },
      arguments)));
  EXPECT_EQ(first(planned<Matrix, Matrix>(
                      [](auto x, auto w) {
                        const auto y = ts::matmul(x, w);
                        return std::tuple(ts::tanh(y), ts::matmul(y, ts::transpose<1, 0>(w)));
                      },
                      arguments),
                  Fusion::into_result),
            -1);
  EXPECT_FALSE(any_fused(
      planned<Matrix, Matrix>([](auto x, auto w) { return ts::cast<ts::bf16>(ts::matmul(x, w)); }, arguments)));
}

TEST(Schedule, ProductsOfBf16AreRoundedAsTheyAreMade) {
  const std::vector<ts::ArgumentInfo> arguments{tensor(mesh, {32, 64}, {"data"}), tensor(mesh, {64, 256}),
                                                tensor(mesh, {256})};
  const Planned plain =
      planned<Half, Half>([](auto x, auto w) { return ts::matmul(x, w); }, {arguments[0], arguments[1]});
  ASSERT_EQ(first(plain, Fusion::rounding), 0);
  EXPECT_EQ(passed(plain, Fusion::rounding).role, ts::ValueRole::fused);
  EXPECT_EQ(main_of(plain).arena_bytes, 0);
  EXPECT_TRUE(says(plain, "%2 is not stored, it is rounded to bf16 as it is made\n")) << plain.text();
  // With a row that is added before the cast, as nn::Linear adds its bias.
  const Planned biased = planned<Half, Half, Row>(
      [](auto x, auto w, auto b) { return ts::cast<ts::bf16>(ts::matmul<float>(x, w) + b); }, arguments);
  ASSERT_EQ(first(biased, Fusion::rounding), 0);
  EXPECT_EQ(main_of(biased).arena_bytes, 0);
  // Not fused when the addend is no row, when the unrounded product is read too, or when the operands are f32.
  EXPECT_EQ(
      first(planned<Half, Half, Row>(
                [](auto x, auto w, auto b) { return ts::cast<ts::bf16>(ts::matmul<float>(x, w) * b); }, arguments),
            Fusion::rounding),
      -1);
  EXPECT_EQ(first(planned<Half, Half>(
                      [](auto x, auto w) {
                        const auto y = ts::matmul<float>(x, w);
                        return std::tuple(ts::cast<ts::bf16>(y), ts::matmul(y, ts::transpose<1, 0>(y)));
                      },
                      {arguments[0], arguments[1]}),
                  Fusion::rounding),
            -1);
  EXPECT_GE(first(planned<Half, Half>([](auto x, auto w) { return ts::gelu(ts::matmul(x, w)); },
                                      {arguments[0], arguments[1]}),
                  Fusion::rounding),
            0)
      << "whatever reads the rounded product";
}

TEST(Schedule, PartsAreAddedToTheirSumAsTheyAreMade) {
  const Planned made =
      planned<Matrix, Matrix>([](auto x, auto w) { return ts::matmul(x, w); },
                              {tensor(mesh, {32, 64}, {ts::none, "data"}), tensor(mesh, {64, 256}, {"data", "model"})});
  ASSERT_EQ(first(made, Fusion::sum), 0);
  const ts::PlanValue& parts = passed(made, Fusion::sum);
  EXPECT_EQ(parts.role, ts::ValueRole::fused);
  EXPECT_NE(parts.sharding.unreduced, 0);
  EXPECT_EQ(made.plan.count(ts::all_reduce, "data"), 1) << "devices apart would still send them";
  EXPECT_EQ(ts::memory_of(made.plan).scratch, 0);
  EXPECT_TRUE(says(made, "%2 is not stored, each part is added to %3 as it is made\n")) << made.text();
  const Planned apart = planned<Matrix, Matrix>(
      [](auto x, auto w) { return ts::matmul(x, w); },
      {tensor(mesh, {32, 64}, {ts::none, "data"}), tensor(mesh, {64, 256}, {"data", "model"})}, false);
  EXPECT_EQ(ts::memory_of(apart.plan).scratch, 32 * 64 * 4);
  EXPECT_EQ(apart.plan.traffic_bytes() - made.plan.traffic_bytes(), 2 * 2 * 32 * 256 * 4) << "written once, read once";
}

TEST(Schedule, PartsThatAreScatteredAreStored) {
  // A reduce_scatter splits the sum along other dims than the parts.
  ts::OutputRequest request{true, ts::resolve(ts::PartitionSpec{"data"}, mesh, 2)};
  constexpr auto product = [](auto x, auto w) { return ts::matmul(x, w); };
  const Planned made(ts::Traced<std::remove_const_t<decltype(product)>, Matrix, Matrix>::program(), mesh,
                     {tensor(mesh, {32, 64}, {ts::none, "data"}), tensor(mesh, {64, 256}, {"data"})},
                     {.outputs = &request});
  ASSERT_EQ(made.plan.count(ts::reduce_scatter), 1);
  EXPECT_FALSE(any_fused(made));
}

TEST(Schedule, RowsAreAddedIntoOneTable) {
  // The gradient of a lookup with split tokens.
  constexpr auto gradient = [](auto table, auto index) {
    return ts::grad([](auto t, auto i) {
      const auto rows = ts::embedding(t, i);
      return ts::sum(rows * rows);
    })(table, index);
  };
  using F = std::remove_const_t<decltype(gradient)>;
  using Tokens = ts::ShardedTensor<std::int32_t, 1>;
  const auto fused = [&](const ts::PartitionSpec& table) {
    return first(planned<F, Matrix, Tokens>({tensor(mesh, {16, 8}, table), tensor(mesh, {64}, {"data"})}),
                 Fusion::sum) >= 0;
  };
  EXPECT_TRUE(fused({}));
  EXPECT_FALSE(fused({ts::none, "model"})) << "there are four tables then";
}

TEST(Schedule, AResultIsWrittenOverTheArgumentThatItsStepIsTheLastToRead) {
  const std::vector<ts::ArgumentInfo> two{tensor(mesh, {32, 64}, {"data"}), tensor(mesh, {32, 64}, {"data"})};
  const auto of = [&](auto f, std::vector<ts::ArgumentInfo> arguments) {
    return donated(planned<Matrix, Matrix>(f, arguments));
  };
  const Planned update = planned<Matrix, Matrix>([](auto w, auto g) { return w - g; }, two);
  EXPECT_EQ(donated(update), std::vector<int>{0});
  EXPECT_TRUE(says(update, "writes %2 to result 0, over argument 0 where that is given up\n")) << update.text();
  EXPECT_EQ(of([](auto w, auto g) { return std::tuple(w - g, w + g); }, two), (std::vector<int>{0, 1}));
  EXPECT_EQ(of([](auto w, auto g) { return std::tuple(w - g, w); }, two), (std::vector<int>{1, -1}))
      << "what is returned as it is stays as it is";
  EXPECT_EQ(of([](auto w, auto g) { return ts::cast<ts::bf16>(w - g); }, two), std::vector<int>{-1});
  EXPECT_EQ(of([](auto w, auto g) { return ts::softmax(w - g); }, two), std::vector<int>{-1}) << "it reads rows again";
  EXPECT_EQ(of([](auto w, auto g) { return std::tuple(w * 2.0, ts::matmul(w, ts::transpose<1, 0>(g))); }, two)[0], -1)
      << "another step reads it later";
  // An argument in another sharding than the result is not written over.
  EXPECT_EQ(of([](auto w, auto g) { return ts::with_sharding(w * g, {ts::none, "data"}); }, two), std::vector<int>{-1});
}

struct Layer {
  Matrix w;
};

TEST(Schedule, LayersOfAStackAreWrittenOverThoseOfTheArgument) {
  const std::vector<ts::ArgumentInfo> two{tensor(mesh, {3, 64, 64}, {ts::none, "data"}),
                                          tensor(mesh, {3, 64, 64}, {ts::none, "data"})};
  const Planned made = planned<ts::Stack<Layer>, ts::Stack<Layer>>(
      [](auto layers, auto gradients) { return ts::sgd(layers, gradients); }, two);
  ASSERT_EQ(donated(made).size(), 1u);
  ASSERT_GE(donated(made)[0], 0) << made.text();
  EXPECT_TRUE(value(made, main_of(made).outputs[0]).stacked);
  EXPECT_FALSE(any_fused(made));
}

TEST(Schedule, SumsOfAResultThatMayGoOverAnArgumentHaveASpareBlock) {
  const Planned made =
      planned<Matrix, Matrix, Matrix>([](auto w, auto x, auto g) { return w - ts::matmul(x, g); },
                                      {tensor(mesh, {64, 64}), tensor(mesh, {64, 32}), tensor(mesh, {32, 64})});
  ASSERT_EQ(first(made, Fusion::into_result), 0);
  EXPECT_EQ(donated(made), std::vector<int>{0});
  EXPECT_TRUE(passed(made, Fusion::into_result).spare);
  EXPECT_EQ(main_of(made).arena_bytes, 64 * 64 * 4);
  EXPECT_EQ(ts::memory_of(made.plan).scratch, 0) << "as if arguments were not given up";
  EXPECT_TRUE(says(made, "goes, or in scratch at 0 where that is over an argument\n")) << made.text();
  // An argument that the product reads too is not written over.
  const Planned residual = planned<Matrix, Matrix>([](auto x, auto w) { return ts::tanh(x) * ts::matmul(x, w); },
                                                   {tensor(mesh, {64, 64}), tensor(mesh, {64, 64})});
  ASSERT_EQ(first(residual, Fusion::into_result), 0);
  EXPECT_EQ(donated(residual), std::vector<int>{-1});
  EXPECT_FALSE(passed(residual, Fusion::into_result).spare);
}

TEST(Schedule, APlanOfTheCompilerIsScheduledAsOneOfTheRunTime) {
  constexpr auto made = [] {
    return ts::plan(mlp, ts::Mesh({{"data", 2}, {"model", 4}}), ts::abstract<float>({32, 64}, {"data"}),
                    ts::abstract<float>({64, 256}), ts::abstract<float>({256, 64}));
  };
  static_assert(made().main().steps[0].fusion == Fusion::epilogue);
  static_assert(made().main().donated.size() == 1 && made().main().donated[0] == -1);
  EXPECT_EQ(made().main().steps[0].fusion, Fusion::epilogue);
}

}  // namespace
