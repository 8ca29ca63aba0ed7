#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "../base/expect_error.hpp"
#include "planned.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/ir/print.hpp>
#include <tessera/graph/ir/verify.hpp>
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/partition/plan/static_plan.hpp>

namespace ts = tessera;
using tessera_test::expect_error;
using ts::tests::Planned;
using ts::tests::tensor;

namespace {

using Matrix = ts::ShardedTensor<float, 2>;
constexpr ts::Mesh mesh({{"data", 2}, {"model", 4}});

std::string output_sharding(const ts::Plan& plan, int k) {
  const ts::GraphPlan& main = plan.main();
  return ts::text(main.values[static_cast<std::size_t>(main.outputs[static_cast<std::size_t>(k)])].sharding, plan.mesh);
}

struct WithCotangent {
  constexpr auto operator()(auto x, auto w) const {
    const auto loss = [](const auto& v, const auto& weight) {
      const auto y = ts::with_sharding(v, {"data"}, {ts::none, "model"});
      return ts::sum(ts::tanh(ts::matmul(y, weight)));
    };
    return ts::grad(loss)(x, w);
  }
};

TEST(Annotation, ACotangentHasALayoutOfItsOwn) {
  using Program = ts::Traced<WithCotangent, Matrix, Matrix>;
  static_assert(!ts::find_defect(Program::program()));
  const Planned made(Program::program(), mesh, {tensor(mesh, {32, 64}), tensor(mesh, {64, 16})});
  EXPECT_EQ(output_sharding(made.plan, 0), "{-,model}");
}

struct Marked {
  constexpr auto operator()(auto x, auto w) const {
    const auto loss = [](const auto& v, const auto& weight) {
      return ts::sum(ts::matmul(ts::mark_sharding(v * 2.0, {"data"}), weight));
    };
    return ts::grad(loss)(x, w);
  }
};
struct Constrained {
  constexpr auto operator()(auto x, auto w) const {
    const auto loss = [](const auto& v, const auto& weight) {
      return ts::sum(ts::matmul(ts::with_sharding(v * 2.0, {"data"}), weight));
    };
    return ts::grad(loss)(x, w);
  }
};
template <class Program> int constraints() {
  int n = 0;
  const ts::GraphView graph = Program::program().main();
  for (int id = 0; id < graph.size; ++id) n += graph[id].op == ts::Op::constraint ? 1 : 0;
  return n;
}

TEST(Annotation, AMarkIsOfTheValueAlone) {
  EXPECT_EQ((constraints<ts::Traced<Marked, Matrix, Matrix>>()), 1);
  EXPECT_EQ((constraints<ts::Traced<Constrained, Matrix, Matrix>>()), 2);
}

struct Alike {
  constexpr auto operator()(auto x, auto y) const {
    const auto [a, b] = ts::shard_as(x * 2.0, ts::tanh(y));
    return std::tuple(a, b);
  }
};

TEST(Annotation, WhatIsAlikeLiesInOneWay) {
  const auto program = ts::Traced<Alike, Matrix, Matrix>::program();
  const auto text = [&](const ts::PartitionSpec& x, const ts::PartitionSpec& y) {
    const Planned made(program, mesh, {tensor(mesh, {32, 64}, x), tensor(mesh, {32, 64}, y)});
    return output_sharding(made.plan, 0) + output_sharding(made.plan, 1);
  };
  EXPECT_EQ(text({}, {}), "{-,-}{-,-}");
  EXPECT_EQ(text({"data"}, {}), "{data,-}{data,-}");
  EXPECT_EQ(text({}, {ts::none, "model"}), "{-,model}{-,model}");
  EXPECT_EQ(text({"data"}, {ts::none, "model"}), "{data,model}{data,model}");
  // Where the shardings of the two arguments conflict, both results still have one sharding.
  for (const ts::PartitionSpec& x : {ts::PartitionSpec{"model"}, ts::PartitionSpec{"data", "model"}})
    for (const ts::PartitionSpec& y :
         {ts::PartitionSpec{"data"}, ts::PartitionSpec{{"model", "data"}}, ts::PartitionSpec{ts::none, "data"}}) {
      const std::string both = text(x, y);
      EXPECT_EQ(both.substr(0, both.size() / 2), both.substr(both.size() / 2)) << both;
    }
  expect_error(
      ts::errc::shape_mismatch,
      [&] {
        Planned(program, mesh, {tensor(mesh, {32, 64}), tensor(mesh, {32, 32})});
      },
      "[shard_as] shapes differ: f32[32,64] x f32[32,32]");
}

// ---- explicit axes

constexpr ts::PlanOptions model_explicit{.explicit_axes = {"model"}};
constexpr ts::PlanOptions all_explicit{.explicit_axes = {"data", "model"}};

template <class F>
void plan(F f, const ts::PlanOptions& options, const ts::PartitionSpec& x, const ts::PartitionSpec& y) {
  ts::plan(f, mesh, options, ts::abstract<float>({32, 64}, x), ts::abstract<float>({64, 32}, y));
}
constexpr auto product = [](auto x, auto w) { return ts::matmul(x, w); };

TEST(ExplicitAxes, ASplitSumNeedsToBeSaid) {
  expect_error(
      ts::errc::policy,
      [] {
        plan(product, all_explicit, {"data", "model"}, {"model"});
      },
      "[einsum] ambiguous result sharding: f32[32,64]{data,model} x f32[64,32]{model,-}: a summed dim is split, so "
      "each device has only a partial sum at annotation_plan_test.cpp:",
      "; state the sharding of the result, such as ts::with_sharding(..., {data,-})");
  EXPECT_NO_THROW(plan([](auto x, auto w) { return ts::with_sharding(ts::matmul(x, w), {"data"}); }, all_explicit,
                       {"data", "model"}, {"model"}));
  EXPECT_NO_THROW(plan(product, all_explicit, {"data"}, {ts::none, "model"}));
  EXPECT_NO_THROW(plan(product, {}, {"data", "model"}, {"model"}));
}

TEST(ExplicitAxes, OtherAxesStayAutomatic) {
  EXPECT_NO_THROW(plan(product, model_explicit, {ts::none, "data"}, {"data"}));
  expect_error(
      ts::errc::policy,
      [] {
        plan(product, model_explicit, {ts::none, "model"}, {"model"});
      },
      "[einsum]");
  expect_error(
      ts::errc::mesh_axis, [] { plan(product, {.explicit_axes = {"modle"}}, {}, {}); }, "'modle'");
}

TEST(ExplicitAxes, OneAxisSplitsOneDimOfAResult) {
  expect_error(
      ts::errc::policy,
      [] {
        plan(product, all_explicit, {"data"}, {ts::none, "data"});
      },
      "the same mesh axis would split two dims of the result", "ts::with_sharding(..., {data,-})");
}

TEST(ExplicitAxes, DimsThatMeetAreSplitInOneWay) {
  constexpr auto add = [](auto x, auto w) { return x + ts::transpose<1, 0>(w); };
  EXPECT_NO_THROW(plan(add, all_explicit, {"data"}, {ts::none, "data"}));
  EXPECT_NO_THROW(plan(add, all_explicit, {"data"}, {}));
  EXPECT_NO_THROW(plan(add, all_explicit, {"data"}, {"model"}));
  expect_error(
      ts::errc::policy,
      [&] {
        plan(add, all_explicit, {"data"}, {ts::none, "model"});
      },
      "[add] ambiguous result sharding: f32[32,64]{data,-} x f32[32,64]{model,-}: corresponding dims of the operands "
      "are "
      "split by different mesh axes");
}

TEST(ExplicitAxes, ReductionsDropWhatTheyReduceOver) {
  EXPECT_NO_THROW(plan([](auto x, auto w) { return std::tuple(ts::sum<1>(x), ts::softmax(x), ts::max(w)); },
                       all_explicit, {"data", "model"}, {"model"}));
}

TEST(ExplicitAxes, ASplitDimKeepsItsAxesThroughARearrange) {
  constexpr auto split = [](auto x, auto) { return ts::rearrange<"a (h e) -> a h e">(x, ts::len<"h">(8)) * 2.0; };
  constexpr auto inner = [](auto x, auto) { return ts::rearrange<"a (h e) -> a h e">(x, ts::len<"h">(2)) * 2.0; };
  EXPECT_NO_THROW(plan(split, all_explicit, {"data", "model"}, {}));
  EXPECT_NO_THROW(plan(inner, all_explicit, {"data", "model"}, {}));  // in parts, see below
  constexpr auto thirds = [](auto x) { return ts::rearrange<"a (h e) -> a h e">(x, ts::len<"h">(3)) * 2.0; };
  expect_error(
      ts::errc::policy,
      [&] {
        ts::plan(thirds, mesh, all_explicit, ts::abstract<float>({32, 60}, {"data", "model"}));
      },
      "the mesh axes of a reshaped dim do not divide the dims of the result");
}

/// The sharding of a plan's result, and the collectives that run for it.
std::string collectives(const ts::Plan& plan) {
  std::string out = ts::text(plan.main().values[static_cast<std::size_t>(plan.main().outputs[0])].sharding, plan.mesh);
  plan.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t) {
    if (c.kind != ts::Collective::slice) out += ts::concat_text(" ", ts::name_of(c.kind), " ", c.payload_bytes);
  });
  return out;
}

// Of a product, only a sum over dims that are split by one axis in both operands is ambiguous, as in JAX.
TEST(ExplicitAxes, AProductGathersTheOperandThatAloneSplitsASum) {
  const auto plan_of = [](const ts::PartitionSpec& x, const ts::PartitionSpec& w) {
    return collectives(
        ts::plan(product, mesh, all_explicit, ts::abstract<float>({32, 64}, x), ts::abstract<float>({64, 32}, w)));
  };
  EXPECT_EQ(plan_of({"data"}, {"data"}), "{data,-} all_gather 8192");
  EXPECT_EQ(plan_of({"data"}, {"model"}).substr(0, 8), "{data,-}");
  EXPECT_EQ(plan_of({ts::none, "model"}, {ts::none, "model"}), "{-,model} all_gather 8192");
  EXPECT_EQ(plan_of({ts::none, "data"}, {}).substr(0, 5), "{-,-}");
  expect_error(
      ts::errc::policy,
      [&] {
        plan_of({ts::none, "data"}, {"model"});
      },
      "corresponding dims of the operands are split by different mesh axes");
}

// Each part of the dim takes axes until it is one index on each device, and merging the parts restores the sharding.
TEST(ExplicitAxes, ADimSplitByTwoAxesIsSplitIntoTwoDimsAndMergedAgain) {
  constexpr auto apart = [](auto x) { return ts::rearrange<"(a b) c -> a b c">(x, ts::len<"a">(2)) * 2.0; };
  constexpr auto back = [](auto x) { return ts::merge_dims<0, 1>(x) * 2.0; };
  constexpr auto both = [](auto x) { return ts::merge_dims<0, 1>(ts::split_dim<0>(x, 4) * 2.0); };
  const auto rows = ts::abstract<float>({8, 16}, {{"data", "model"}});
  const auto grid = ts::abstract<float>({2, 4, 16}, {"data", "model"});
  for (const ts::PlanOptions& options : {all_explicit, ts::PlanOptions{}}) {
    EXPECT_EQ(collectives(ts::plan(apart, mesh, options, rows)), "{data,model,-}");
    EXPECT_EQ(collectives(ts::plan(back, mesh, options, grid)), "{(data,model),-}");
    EXPECT_EQ(collectives(ts::plan(both, mesh, options, rows)), "{(data,model),-}");
  }
  expect_error(
      ts::errc::policy,
      [&] {
        ts::plan(back, mesh, all_explicit, ts::abstract<float>({4, 4, 16}, {"data", "model"}));
      },
      "a split dim is merged with a more significant dim that is not split into single indices");
}

// Beside a dim of extent 1 the rest of a dim is as the dim: five rows on two devices stay three and two.
TEST(ExplicitAxes, AnUnevenDimIsSplitIntoOneRowAndMergedAgain) {
  constexpr auto apart = [](auto x) { return ts::split_dim<0>(x, 5) * 2.0; };
  constexpr auto back = [](auto x) { return ts::merge_dims<0, 1>(x) * 2.0; };
  for (const ts::PlanOptions& options : {all_explicit, ts::PlanOptions{}}) {
    EXPECT_EQ(collectives(ts::plan(apart, mesh, options, ts::abstract<float>({5, 16}, {"data"}))), "{-,data,-}");
    EXPECT_EQ(collectives(ts::plan(back, mesh, options, ts::abstract<float>({1, 5, 16}, {ts::none, "data"}))),
              "{data,-}");
  }
}

// An axis that is larger than a part of a dim is split among the parts, as in Shardy.
TEST(ExplicitAxes, ADimSplitByOneAxisIsSplitIntoTwoDimsAndMergedAgain) {
  constexpr ts::Mesh row({{"x", 4}});
  constexpr ts::PlanOptions all_of_x{.explicit_axes = {"x"}};
  constexpr auto apart = [](auto x) { return ts::split_dim<0>(x, 4) * 2.0; };
  constexpr auto back = [](auto x) { return ts::merge_dims<0, 1>(x) * 2.0; };
  constexpr auto both = [](auto x) { return ts::merge_dims<0, 1>(ts::split_dim<0>(x, 4) * 2.0) + x; };
  const auto rows = ts::abstract<float>({8}, {"x"});
  const auto grid = ts::abstract<float>({2, 4}, {ts::sub_axis("x", 1, 2), ts::sub_axis("x", 2, 2)});
  for (const ts::PlanOptions& options : {all_of_x, ts::PlanOptions{}}) {
    EXPECT_EQ(collectives(ts::plan(apart, row, options, rows)), "{x:(1)2,x:(2)2}");
    EXPECT_EQ(collectives(ts::plan(back, row, options, grid)), "{x}");
    EXPECT_EQ(collectives(ts::plan(both, row, options, rows)), "{x}");
  }
  // What needs more than its axes is ambiguous still, and says so of the axes that were written.
  expect_error(
      ts::errc::policy,
      [&] {
        ts::plan(back, row, all_of_x, ts::abstract<float>({4, 4}, {ts::sub_axis("x", 1, 2), ts::sub_axis("x", 2, 2)}));
      },
      "f32[4,4]{x:(1)2,x:(2)2}",
      "a split dim is merged with a more significant dim that is not split into single indices");
}

struct Layer {
  Matrix up;
  constexpr auto operator()(const auto& x) const { return ts::tanh(ts::matmul(x, up)); }
};
struct Safe {
  Matrix up;
  constexpr auto operator()(const auto& x) const { return ts::with_sharding(ts::matmul(x, up), {"data"}); }
};

TEST(ExplicitAxes, LayersAreCheckedOnceAndGradientsNotAtAll) {
  const auto check = [](auto stack) {
    using Stack = decltype(stack);
    const auto step = [](auto layers, auto x) {
      return ts::value_and_grad([](const auto& l, const auto& in) { return ts::mean(l(in)); })(layers, x);
    };
    ts::plan(step, mesh, all_explicit, ts::abstract<Stack>({ts::stacked(3, {{64, 64}, {"model"}})}),
             ts::abstract<float>({32, 64}, {"data", "model"}));
  };
  expect_error(
      ts::errc::policy, [&] { check(ts::Stack<Layer>()); }, "[einsum] ambiguous");
  EXPECT_NO_THROW(check(ts::Stack<Safe>()));
}

// ---- explicit axes steer the planner

/// Whether each result of a plan, and some version of each value in it, has the explicit axes that the rules say.
bool agrees(const ts::Plan& plan, const ts::ProgramView& program, const std::vector<ts::ArgumentInfo>& arguments,
            unsigned axes) {
  ts::Growable<ts::Shape> shapes;
  ts::Growable<ts::Sharding> shardings;
  for (const ts::ArgumentInfo& argument : arguments) {
    shapes.push_back(argument.shape);
    shardings.push_back(argument.sharding);
  }
  const ts::Growable<ts::HostNumber> numbers(arguments.size());
  const auto found = ts::infer_shapes(program, shapes.data(), numbers.data());
  const ts::PlannedMesh planned(plan.given_mesh, plan.cuts);
  ts::detail::CutSearch search(program, planned, shardings);
  const auto rules = ts::explicit_shardings(program, planned, found, shardings, axes, search)[0];
  const auto lies = [&](const ts::PlanValue& value) { return !rules.change(value.node, value.sharding); };
  for (const std::int32_t v : plan.main().outputs)
    if (!lies(plan.main().values[static_cast<std::size_t>(v)])) return false;
  for (const ts::PlanValue& value : plan.main().values) {
    bool any = value.sharding.unreduced != 0 || value.role == ts::ValueRole::argument;
    for (const ts::PlanValue& version : plan.main().values) any = any || (version.node == value.node && lies(version));
    if (!any) return false;
  }
  return true;
}

struct Steered {
  constexpr auto operator()(auto x, auto w, auto v) const {
    const auto y = ts::with_sharding(ts::matmul(x, w), {"data"});
    const auto z = ts::tanh(x);
    const auto s = ts::softmax(y * 2.0 + v);
    return std::tuple(y, z, s, ts::sum<0>(z), ts::transpose<1, 0>(s), z + x);
  }
};

TEST(ExplicitAxes, PlanAndRulesAgree) {
  const auto program = ts::Traced<Steered, Matrix, Matrix, Matrix>::program();
  const ts::PartitionSpec specs[]{{},
                                  {"data"},
                                  {"model"},
                                  {ts::none, "data"},
                                  {ts::none, "model"},
                                  {"data", "model"},
                                  {"model", "data"},
                                  {{"data", "model"}},
                                  {{"model", "data"}}};
  int planned = 0;
  for (const ts::PartitionSpec& x : specs)
    for (const ts::PartitionSpec& w : specs)
      for (const ts::PartitionSpec& v : specs)
        for (const unsigned axes : {1u, 2u, 3u}) {
          const std::vector<ts::ArgumentInfo> arguments{tensor(mesh, {32, 32}, x), tensor(mesh, {32, 32}, w),
                                                        tensor(mesh, {32, 32}, v)};
          ts::PlanOptions options;
          for (int axis = 0; axis < 2; ++axis)
            if (axes >> axis & 1u) options.explicit_axes.push_back(mesh.axis_name(axis));
          try {
            const Planned made(program, mesh, arguments, options);
            ++planned;
            EXPECT_TRUE(agrees(made.plan, program, arguments, axes)) << x.text() << w.text() << v.text() << axes << "\n"
                                                                     << made.text();
          } catch (const ts::error& e) {
            EXPECT_EQ(e.id(), ts::errc::policy) << e.what();
          }
        }
  EXPECT_GT(planned, 500);
}

TEST(ExplicitAxes, WhatReadsAValueDoesNotDecideHowItLies) {
  const auto reads = [](auto x, auto w) {
    const auto y = ts::tanh(x);
    return std::tuple(y, ts::matmul(y, w), ts::exp(y) + ts::transpose<1, 0>(w));
  };
  const auto first = [&](const ts::PlanOptions& options) {
    return output_sharding(
        ts::plan(reads, mesh, options, ts::abstract<float>({32, 64}), ts::abstract<float>({64, 32}, {"model"})), 0);
  };
  EXPECT_EQ(first({}), "{-,model}");
  EXPECT_EQ(first({.explicit_axes = {"data"}}), "{-,model}");
  const auto safe = [](auto x, auto w) {
    const auto y = ts::tanh(x);
    return std::tuple(y, ts::exp(y) + ts::transpose<1, 0>(w));
  };
  const ts::Plan plan =
      ts::plan(safe, mesh, model_explicit, ts::abstract<float>({32, 64}), ts::abstract<float>({64, 32}, {"model"}));
  EXPECT_EQ(output_sharding(plan, 0) + output_sharding(plan, 1), "{-,-}{-,model}");
}

TEST(ExplicitAxes, AnOutShardingIsWhereTheSumGoes) {
  constexpr auto scattered = [](auto x, auto w) { return ts::with_sharding(ts::matmul(x, w), {"model"}); };
  const ts::Plan plan = ts::plan(scattered, mesh, model_explicit, ts::abstract<float>({32, 64}, {ts::none, "model"}),
                                 ts::abstract<float>({64, 32}, {"model"}));
  EXPECT_EQ(plan.count(ts::reduce_scatter, "model"), 1);
  EXPECT_EQ(plan.count(ts::all_reduce), 0);
  EXPECT_EQ(output_sharding(plan, 0), "{model,-}");
}

}  // namespace
