#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/mesh/sharding_string.hpp>
#include <tessera/mesh/shardy.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/ops/shard_map/shard_map.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/tensor/compare.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/local_shards.hpp>
#include <tessera/tensor/oracle.hpp>
#include <tessera/tensor/reshard.hpp>

namespace ts = tessera;

namespace {

// A reshape, and the gradient of the sum of the squares of its result times their positions in it.
template <class Reshape> struct WithGradient {
  constexpr auto operator()(const auto& x, const auto& weights, const auto&... sizes) const {
    return ts::value_and_grad([](const auto& v, const auto& w, const auto&... s) {
      const auto y = Reshape{}(v, s...);
      return std::tuple(ts::sum(y * y * w), y);
    })(x, weights, sizes...);
  }
};
struct Split {
  constexpr auto operator()(const auto& x, const auto& inner) const { return ts::split_dim<0>(x, inner); }
};
struct SplitThrice {
  constexpr auto operator()(const auto& x, const auto& a, const auto& b) const { return ts::split_dim<0>(x, a, b); }
};
struct Merge {
  constexpr auto operator()(const auto& x) const { return ts::merge_dims<0, 1>(x); }
};
struct Reshape {
  constexpr auto operator()(const auto& x, const auto& inner) const {
    return ts::split_dim<0>(ts::merge_dims<0, 1>(x), inner);
  }
};
struct Turn {
  constexpr auto operator()(const auto& x, const auto& major) const {
    return ts::rearrange<"(a b) c -> b (c a)">(x, ts::len<"a">(major));
  }
};
constexpr auto split = ts::compile(WithGradient<Split>{});
constexpr auto split_thrice = ts::compile(WithGradient<SplitThrice>{});
constexpr auto merge = ts::compile(WithGradient<Merge>{});
constexpr auto reshape = ts::compile(WithGradient<Reshape>{});
constexpr auto turn = ts::compile(WithGradient<Turn>{});

std::vector<float> numbers(std::int64_t count, int start) {
  std::vector<float> made;
  for (std::int64_t i = 0; i < count; ++i) made.push_back(static_cast<float>((i * 5 + start) % 17) - 6.f);
  return made;
}

/// Every sharding of a tensor over axes and sub-axes that specs can express.
std::vector<ts::PartitionSpec> all_specs(const ts::Mesh& mesh, int rank, const ts::AxisCuts& cuts = {}) {
  const ts::Mesh refined = ts::refined_mesh(mesh, cuts);
  std::vector<ts::Sharding> all{ts::replicated(rank)};
  std::set<std::string> seen{ts::text(all[0], refined)};
  std::vector<ts::PartitionSpec> specs;
  for (std::size_t i = 0; i < all.size(); ++i) {
    ts::Sharding cut = all[i];
    cut.cuts = cuts;
    specs.push_back(ts::spec_of(canonical(cut, mesh), mesh));
    for (int axis = 0; axis < refined.rank(); ++axis)
      for (int d = 0; d < rank && !all[i].uses(axis); ++d) {
        ts::Sharding more = all[i];
        more.dims[d].push_back(static_cast<std::uint8_t>(axis));
        if (seen.insert(ts::text(more, refined)).second) all.push_back(more);
      }
  }
  return specs;
}

/// The collectives that run, and the elements that each device then has, compared with an array on one device;
/// element i of the result is element `from[i]` of the operand.
template <int Result, class Program, int Rank, class... Sizes>
void expect_dense(const Program& program, const ts::ShardedTensor<float, Rank>& x, const ts::Shape& shape,
                  const std::vector<std::int64_t>& from, const Sizes&... sizes) {
  const ts::Mesh& mesh = ts::mesh(x);
  const std::vector<float> values = ts::to_host(x), by = numbers(ts::size(x), 3);
  std::vector<float> expected, slopes(values.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto element = static_cast<std::size_t>(from[i]);
    expected.push_back(values[element]);
    slopes[element] = 2 * values[element] * by[i];
  }
  const auto weights = ts::shard<Result>(by, shape, mesh);
  const ts::Plan plan = program.plan(x, weights, sizes...);
  ts::CommunicationScope ran;
  const auto [value, gradient] = program(x, weights, sizes...);
  ASSERT_EQ(ran.wire_bytes(), plan.wire_bytes());
  const auto& y = std::get<1>(value);
  ASSERT_EQ(ts::shape(y), shape);
  ASSERT_EQ(ts::mesh(y), mesh);
  ASSERT_EQ(ts::sharding(y), canonical(ts::sharding(y), mesh)) << ts::sharded_type_text(y);
  ASSERT_EQ(ts::to_host(y), expected) << ts::sharded_type_text(y);
  ASSERT_EQ(ts::to_host(gradient), slopes);
  for (const auto& shard : ts::local_shards(y)) {
    ASSERT_EQ(shard.box, ts::device_box(shape, ts::hlo_sharding(ts::sharding(y), mesh), shard.device));
    const ts::Shape own = ts::extents(shard.box);
    for (std::size_t i = 0; i < shard.data.size(); ++i) {
      std::int64_t index = 0, left = static_cast<std::int64_t>(i), scale = 1;
      for (std::size_t d = own.size(); d-- > 0; left /= own[d], scale *= shape[d])
        index += (shard.box.begin[d] + left % own[d]) * scale;
      ASSERT_EQ(shard.data[i], expected[static_cast<std::size_t>(index)]);
    }
  }
}

ts::ShardedTensor<float, 1> row(const ts::Mesh& mesh, const ts::PartitionSpec& spec, std::int64_t n) {
  return ts::shard<1>(numbers(n, 0), {n}, mesh, spec);
}
ts::ShardedTensor<float, 2> grid(const ts::Mesh& mesh, const ts::PartitionSpec& spec, std::int64_t m, std::int64_t n) {
  return ts::shard<2>(numbers(m * n, 0), {m, n}, mesh, spec);
}
std::vector<std::int64_t> counted(std::int64_t n) {
  std::vector<std::int64_t> made;
  for (std::int64_t i = 0; i < n; ++i) made.push_back(i);
  return made;
}
/// The two sub-axes of an axis, if it can be cut.
ts::AxisCuts halves(const ts::Mesh& mesh) {
  ts::AxisCuts cuts;
  for (int axis = 0; axis < mesh.rank(); ++axis)
    for (int before = 2; cuts.empty() && before < mesh.axis_size(axis); ++before)
      if (mesh.axis_size(axis) % before == 0) cuts.add(axis, before);
  return cuts;
}
/// The sharding of the result of a reshape, and how many collectives it takes.
std::string planned(const ts::Plan& plan, const ts::Mesh& mesh) {
  std::int64_t collectives = 0;
  plan.for_each_collective(
      [&](const ts::CollectiveInfo& c, std::int64_t) { collectives += c.kind == ts::Collective::slice ? 0 : 1; });
  const ts::Sharding made = ts::given_sharding(
      plan.main().values[static_cast<std::size_t>(plan.main().outputs[0])].sharding, mesh, plan.cuts);
  return ts::concat_text(ts::text(made, mesh), " ", collectives);
}

const ts::Mesh meshes[] = {ts::mesh_1d(2, "x"),
                           ts::mesh_1d(3, "x"),
                           ts::mesh_1d(4, "x"),
                           ts::mesh_1d(6, "x"),
                           ts::mesh_1d(8, "x"),
                           ts::unnamed_mesh({4, 2}),
                           ts::Mesh({{"x", 2}, {"y", 2}}),
                           ts::Mesh({{"x", 2}, {"y", 3}}),
                           ts::Mesh({{"x", 4}, {"y", 2}}, {7, 6, 5, 4, 3, 2, 1, 0}),
                           ts::Mesh({{"x", 2}, {"y", 4}})};

}  // namespace

// Shapes that divide and shapes that don't, on meshes of 2 to 8 devices, in every sharding by axes and sub-axes.
TEST(ProgramsSubAxes, EverySplitOfADim) {
  for (const ts::Mesh& mesh : meshes)
    for (const ts::PartitionSpec& spec : all_specs(mesh, 1, halves(mesh)))
      for (const std::int64_t n : {1, 6, 8, 12, 16, 24})
        for (const std::int64_t inner : {1, 2, 3, 4, 6, 8}) {
          if (n % inner != 0) continue;
          SCOPED_TRACE(ts::concat_text(mesh.text(), " ", spec.text(), " ", n, " by ", inner));
          const auto x = row(mesh, spec, n);
          expect_dense<2>(split, x, {n / inner, inner}, counted(n), ts::Dim(inner));
          if (HasFatalFailure()) return;
        }
}

TEST(ProgramsSubAxes, EveryMergeAndReshapeOfTwoDims) {
  const std::int64_t shapes[][2] = {{1, 4}, {2, 4}, {4, 2}, {3, 4}, {4, 6}, {6, 4}, {8, 2}};
  for (const ts::Mesh& mesh : meshes)
    for (const ts::PartitionSpec& spec : all_specs(mesh, 2, halves(mesh)))
      for (const auto& [m, n] : shapes) {
        SCOPED_TRACE(ts::concat_text(mesh.text(), " ", spec.text(), " ", m, " x ", n));
        const auto x = grid(mesh, spec, m, n);
        expect_dense<1>(merge, x, {m * n}, counted(m * n));
        for (const std::int64_t inner : {2, 8})
          if (m * n % inner == 0) expect_dense<2>(reshape, x, {m * n / inner, inner}, counted(m * n), ts::Dim(inner));
        if (HasFatalFailure()) return;
      }
}

TEST(ProgramsSubAxes, ThreePartsAndTurnedOnes) {
  for (const ts::Mesh& mesh : meshes) {
    for (const ts::PartitionSpec& spec : all_specs(mesh, 1, halves(mesh)))
      for (const auto& [a, b] : {std::pair{2, 2}, {2, 4}, {3, 2}}) {
        SCOPED_TRACE(ts::concat_text(mesh.text(), " ", spec.text(), " 24 by ", a, " by ", b));
        const std::int64_t rest = 24 / (a * b);
        expect_dense<3>(split_thrice, row(mesh, spec, 24), {rest, a, b}, counted(24), ts::Dim(a), ts::Dim(b));
        if (HasFatalFailure()) return;
      }
    for (const ts::PartitionSpec& spec : all_specs(mesh, 2, halves(mesh)))
      for (const std::int64_t major : {2, 4}) {
        SCOPED_TRACE(ts::concat_text(mesh.text(), " ", spec.text(), " turned by ", major));
        const std::int64_t minor = 8 / major;
        std::vector<std::int64_t> from;
        for (std::int64_t b = 0; b < minor; ++b)
          for (std::int64_t c = 0; c < 3; ++c)
            for (std::int64_t a = 0; a < major; ++a) from.push_back((a * minor + b) * 3 + c);
        expect_dense<2>(turn, grid(mesh, spec, 8, 3), {minor, 3 * major}, from, ts::Dim(major));
        if (HasFatalFailure()) return;
      }
  }
}

// Of n indices over k devices each has n / k neighbours, which are a box of a grid where they are whole rows of it or a
// part of one that divides it: these never move, and all others do.
TEST(ProgramsSubAxes, WhatIsABoxOnEachDeviceDoesNotMove) {
  for (const int devices : {2, 3, 4, 6, 8, 12, 16}) {
    const ts::Mesh mesh({{"x", devices}});
    for (std::int64_t n = devices; n <= 48; n += devices)
      for (std::int64_t inner = 1; inner <= n; ++inner) {
        if (n % inner != 0) continue;
        const std::int64_t own = n / devices;
        const bool box = own % inner == 0 || inner % own == 0;
        const ts::Plan plan = ts::plan([](auto x, auto i) { return ts::split_dim<0>(x, i) * 2.0; }, mesh,
                                       ts::abstract<float>({n}, {"x"}), ts::abstract(ts::Dim(inner)));
        ASSERT_EQ(plan.wire_bytes() == 0, box) << n << " by " << inner << " over " << devices;
        if (!box) continue;
        // The other direction: the result has the original sharding, and so has the operand's gradient.
        const auto x = row(mesh, {"x"}, n);
        const ts::ShardedTensor<float, 2> y = ts::split_dim<0>(x, ts::Dim(inner));
        ts::CommunicationScope scope;
        const ts::ShardedTensor<float, 1> again = ts::merge_dims<0, 1>(y);
        ASSERT_EQ(scope.wire_bytes(), 0);
        ASSERT_TRUE(ts::same_sharded_type(again, x)) << ts::sharded_type_text(again);
      }
  }
}

// Shardy's own examples: its page on representation, and the tests of its propagation.
TEST(ProgramsSubAxes, PlansAreThoseOfShardy) {
  const ts::Mesh x4({{"x", 4}}), a4b2({{"a", 4}, {"b", 2}}), a16b2({{"a", 16}, {"b", 2}}), a6({{"a", 6}});
  const auto by4 = [](auto x) { return ts::split_dim<0>(x, 4) * 2.0; };
  const auto merged = [](auto x) { return ts::merge_dims<0, 1>(x) * 2.0; };
  const auto split_of = [&](const ts::Mesh& mesh, std::int64_t n, const ts::PartitionSpec& spec) {
    return planned(ts::plan(by4, mesh, ts::abstract<float>({n}, spec)), mesh);
  };
  const auto merge_of = [&](const ts::Mesh& mesh, const ts::PartitionSpec& spec) {
    return planned(ts::plan(merged, mesh, ts::abstract<float>({2, 4}, spec)), mesh);
  };
  EXPECT_EQ(split_of(x4, 8, {"x"}), "{x:(1)2,x:(2)2} 0");
  EXPECT_EQ(split_of(a4b2, 8, {"a"}), "{a:(1)2,a:(2)2} 0");
  EXPECT_EQ(split_of(a4b2, 8, {{"a", "b"}}), "{a:(1)2,(a:(2)2,b)} 0");
  EXPECT_EQ(split_of(a4b2, 8, {{"b", "a"}}), "{b,a} 0");
  EXPECT_EQ(split_of(a16b2, 32, {"a"}), "{a:(1)8,a:(8)2} 0");
  EXPECT_EQ(merge_of(x4, {ts::sub_axis("x", 1, 2), ts::sub_axis("x", 2, 2)}), "{x} 0");
  EXPECT_EQ(merge_of(a4b2, {"b", "a"}), "{(b,a)} 0");
  EXPECT_EQ(merge_of(a4b2, {"a:(1)2", {"a:(2)2", "b"}}), "{(a,b)} 0");

  const auto twice = [](auto x) { return ts::split_dim<0>(ts::split_dim<0>(x, 4) * 2.0, 4) * 2.0; };
  EXPECT_EQ(planned(ts::plan(twice, a16b2, ts::abstract<float>({32}, {"a"})), a16b2), "{a:(1)2,a:(2)4,a:(8)2} 0");
  const auto and_back = [](auto x) {
    const auto three = ts::split_dim<0>(x, 2, 4) * 2.0;
    return ts::merge_dims<0, 1>(ts::merge_dims<1, 2>(three) * 2.0);
  };
  EXPECT_EQ(planned(ts::plan(and_back, a16b2, ts::abstract<float>({32}, {"a"})), a16b2), "{a} 0");
  const auto both = [](auto x) { return ts::rearrange<"(a b) c -> a (b c)">(x, ts::len<"a">(2)) * 2.0; };
  const ts::Mesh a4b2c2({{"a", 4}, {"b", 2}, {"c", 2}});
  EXPECT_EQ(planned(ts::plan(both, a4b2c2, ts::abstract<float>({8, 4}, {{"c", "a"}, "b"})), a4b2c2), "{c,(a,b)} 0");
  const auto by6 = [](auto x) { return ts::split_dim<0>(x, 3) * 2.0; };
  EXPECT_EQ(planned(ts::plan(by6, a6, ts::abstract<float>({6}, {"a"})), a6), "{a:(1)2,a:(2)3} 0");
}

struct Tiles {
  constexpr auto operator()(const auto& x) const { return ts::split_dim<0>(x, 4); }
};
constexpr ts::Mesh line({{"x", 4}}), plane({{"x", 4}, {"y", 2}});
static_assert(ts::plan(Tiles{}, line, ts::abstract<float>({8}, {"x"})).main().steps.empty());
static_assert(ts::plan(Tiles{}, plane, ts::abstract<float>({8}, {{"x", "y"}})).main().steps.empty());
static_assert(ts::plan(Tiles{}, plane, ts::abstract<float>({8}, {{"y", "x"}})).main().steps.empty());
static_assert(ts::plan(Merge{}, line, ts::abstract<float>({2, 4}, {"x:(1)2", "x:(2)2"})).main().steps.empty());
constexpr auto frozen = ts::freeze([] { return ts::plan(Tiles{}, line, ts::abstract<float>({12}, {"x"})); });
static_assert(frozen.count(ts::all_gather, "x") == 1 && frozen.given_mesh == line);

// Tensors with sub-axes can be combined with others, resharded, printed, compared and stored.
TEST(ProgramsSubAxes, TensorsThatLieSo) {
  const auto x = row(line, {"x"}, 8);
  const ts::ShardedTensor<float, 2> y = ts::split_dim<0>(x, 4);
  const ts::PartitionSpec spec{ts::sub_axis("x", 1, 2), ts::sub_axis("x", 2, 2)};
  EXPECT_EQ(ts::sharded_type_text(y), "f32[2,4]{x:(1)2,x:(2)2}");
  EXPECT_EQ(ts::mesh(y), line);
  EXPECT_TRUE(ts::same_sharded_type(y, ts::shard<2>(numbers(8, 0), {2, 4}, line, spec)));
  EXPECT_EQ(ts::shardy_text(ts::sharding(y), line), R"(#sdy.sharding<@mesh, [{"x":(1)2}, {"x":(2)2}]>)");
  EXPECT_EQ(ts::hlo_sharding(ts::sharding(y), line).text(), "{devices=[2,2]<=[4]}");
  EXPECT_EQ(ts::device_bytes(y, 3), 8);
  for (const ts::PartitionSpec& other : all_specs(line, 2, halves(line))) {
    SCOPED_TRACE(other.text());
    const auto z = ts::reshard(y, other);
    EXPECT_EQ(ts::to_host(z), ts::to_host(y));
    EXPECT_EQ(ts::to_host(ts::reshard(z, spec)), ts::to_host(y));
    EXPECT_EQ(ts::to_host(ts::eval(y + z)), ts::to_host(ts::eval(y * 2.0)));
    EXPECT_EQ(ts::to_host(ts::eval(ts::sum<0>(z))), ts::to_host(ts::eval(ts::sum<0>(y))));
    const auto laid = ts::compile([](auto v, auto w) { return std::tuple(ts::matmul(v, w), ts::softmax(v)); });
    const auto [product, soft] = laid(z, ts::shard<2>(numbers(12, 1), {4, 3}, line, {"x"}));
    const auto [alone, same] = laid(ts::reshard(z, {}), ts::shard<2>(numbers(12, 1), {4, 3}, line));
    EXPECT_EQ(ts::to_host(product), ts::to_host(alone));
    const auto far = ts::to_host(ts::eval(ts::max(ts::abs(soft - same))));
    EXPECT_LT(far[0], 1e-6f);
  }
  // On a mesh of one device they split nothing, like axes.
  const ts::Mesh one({{"x", 1}});
  EXPECT_EQ(ts::sharded_type_text(ts::eval(ts::split_dim<0>(row(one, {"x:(2)2"}, 8), 4) * 2.0)), "f32[2,4]{-,-}");
  // Two cuts of an axis that don't divide each other.
  const ts::Mesh six({{"x", 6}});
  const auto two = grid(six, {"x:(1)2", "x:(2)3"}, 6, 6);
  const auto three = ts::reshard(two, {"x:(1)3", "x:(3)2"});
  EXPECT_EQ(ts::to_host(three), ts::to_host(two));
  EXPECT_EQ(ts::sharded_type_text(three), "f32[6,6]{x:(1)3,x:(3)2}");
  tessera_test::expect_error(
      ts::errc::not_divisible, [&] { ts::eval(two + three); }, "[sub_axis]", "mesh(x=6)");
  // In a constraint, and in oracle mode.
  const auto constrained = ts::compile([](auto v) {
    return ts::with_sharding(v * 2.0, {ts::sub_axis("x", 2, 2), ts::sub_axis("x", 1, 2)}) + 1.0;
  });
  const ts::OracleScope oracle;
  const auto turned = constrained(y);
  EXPECT_EQ(ts::sharded_type_text(turned), "f32[2,4]{x:(2)2,x:(1)2}");
  EXPECT_EQ(ts::to_host(turned), ts::to_host(ts::eval(y * 2.0 + 1.0)));
}

// Counts name axes as the user wrote them.
TEST(ProgramsSubAxes, CollectivesOverSubAxes) {
  const auto x = row(line, {"x"}, 12);
  const auto apart = ts::compile([](auto v) { return ts::split_dim<0>(v, 2) * 2.0; });  // [6, 2], 3 on each device
  ts::CommunicationScope scope;
  const auto y = apart(x);
  EXPECT_EQ(ts::sharded_type_text(y), "f32[6,2]{x:(1)2,-}");
  EXPECT_EQ(scope.text(), "1 all_gather over x:(2)2: 24 B, 12 B on the wire\n");
  EXPECT_EQ(scope.count(ts::all_gather, "x:(2)2"), 1);
  const ts::Plan plan = apart.plan(x);
  EXPECT_EQ(plan.count(ts::all_gather, "x:(2)2"), 1);
  EXPECT_EQ(plan.count(ts::all_gather, "x"), 0);
  EXPECT_EQ(plan.given_mesh, line);
  const std::string text = apart.explain(x);
  EXPECT_NE(text.find("plan on mesh(x=4)"), std::string::npos) << text;
  EXPECT_NE(text.find("f32[6,2]{x:(1)2,-}"), std::string::npos) << text;
  EXPECT_NE(text.find("all_gather over x:(2)2: 24 B"), std::string::npos) << text;
  // All sub-axes of an axis are the axis.
  const auto whole = ts::compile([](auto v) {
    const auto w = ts::split_dim<0>(v, 4) * 2.0;
    return std::tuple(ts::sum(w), ts::cumsum<0>(v));
  });
  const ts::Plan sums = whole.plan(row(line, {"x"}, 8));
  EXPECT_EQ(sums.count(ts::all_reduce, "x"), 1);
  EXPECT_EQ(sums.mesh.rank(), 2);
}

// A program that cuts an axis for one value: its layers, shard_maps, scans and random values use the sub-axes.
struct Heads {
  ts::ShardedTensor<float, 2> up;
  constexpr auto operator()(const auto& x) const {
    const auto heads = ts::rearrange<"t (h e) -> h t e">(ts::matmul(x, up), ts::len<"h">(2));
    return ts::rearrange<"h t e -> t (h e)">(ts::softmax(ts::cumsum<1>(heads) * 0.1)) + x;
  }
};
constexpr auto layered = ts::compile([](auto layers, auto x) {
  const auto loss = [](const auto& l, const auto& v) { return ts::mean(l(v)); };
  const auto [value, gradient] = ts::value_and_grad(loss)(layers, x);
  const auto shifted = ts::shard_map<"{x} -> {x}">([](auto v) { return ts::psum<"x">(v) + v; })(x);
  return std::tuple(layers(x), value, gradient, shifted);
});
TEST(ProgramsSubAxes, ProgramsAroundThem) {
  const ts::Mesh mesh({{"x", 4}, {"y", 2}});
  ts::Stack<Heads> layers;
  layers.layers().resize(2);
  int cut = 0;  // plans whose heads, two of them, take x in parts
  for (Heads& layer : layers.layers()) layer.up = ts::shard<2>(numbers(64, 2), {8, 8}, mesh, {"y", "x"});
  for (const ts::PartitionSpec& spec :
       {ts::PartitionSpec{"x", "y"}, {"y", "x"}, {{"x", "y"}}, {ts::none, {"x", "y"}}}) {
    const auto x = grid(mesh, spec, 8, 8);
    const ts::Plan plan = layered.plan(layers, x);
    cut += plan.mesh.rank() == 3;
    ts::CommunicationScope ran;
    layered(layers, x);
    EXPECT_EQ(ran.wire_bytes(), plan.wire_bytes());
    const ts::OracleScope oracle;  // throws where a value on the way differs from that of one device
    EXPECT_NO_THROW(layered(layers, x)) << spec.text();
  }
  EXPECT_EQ(cut, 2);
}

// An axis whose parts have no names, which have 15 characters at most, is gathered, as before.
TEST(ProgramsSubAxes, LongNames) {
  const ts::Mesh mesh({{"tensor_parallel", 4}});
  const auto x = row(mesh, {"tensor_parallel"}, 8);
  const ts::ShardedTensor<float, 2> y = ts::split_dim<0>(x, 4);
  EXPECT_EQ(ts::to_host(y), numbers(8, 0));
  EXPECT_EQ(ts::sharding(y).cuts.size(), 0);
}
