#ifndef TESSERA_OPS_SOURCE_ROWS_HPP
#define TESSERA_OPS_SOURCE_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/graph/gradient.hpp>
#include <tessera/ops/operation.hpp>

namespace tessera::ops {

constexpr Shape argument_shape(const ShapeContext& c) { return c.arguments[c.node().index()]; }
constexpr Shape scalar_shape(const ShapeContext&) { return {}; }
constexpr Shape like_shape(const ShapeContext& c) { return c.operand(0); }
constexpr Shape alike_shape(const ShapeContext& c) {
  if (!(c.operand(0) == c.operand(1))) fail_shapes(c, "shapes differ");
  return c.operand(0);
}
constexpr void no_factors(const GraphView& graph, int id, FactorRule& rule) {
  rule.operands.resize(static_cast<std::size_t>(graph[id].arity));
}
constexpr void like_sharding(const GraphView& graph, int id, FactorRule& rule) {
  rule.operands.resize(static_cast<std::size_t>(graph[id].arity));
  for (int d = 0; d < graph[id].rank; ++d)
    if (!graph[id].is_unit(d)) {
      rule.result.dims[d].push_back(static_cast<std::int8_t>(rule.add(FactorKind::pass)));
      rule.operands[0].dims[d] = rule.result.dims[d];
    }
}

/// A number that is computed on the host: it lies nowhere.
constexpr bool is_host_number(const Value& v) {
  const Node& node = v.node();
  if (node.rank != 0) return false;
  if (is_host_source(node.op)) return true;
  bool all = row_of(node).kind == OpKind::elementwise;
  for (int i = 0; i < node.arity && all; ++i) all = is_host_number(v.with(v.module->graph(v.graph).operand(v.id, i)));
  return all;
}

struct ArgumentOp {
  static constexpr OpRow row{
      .name = "argument", .kind = OpKind::source, .shape = argument_shape, .sharding = no_factors, .flops = 0};
};

struct DimOp {
  static constexpr OpRow row{
      .name = "dim", .kind = OpKind::source, .shape = scalar_shape, .sharding = no_factors, .flops = 0};
};

struct ScalarOp {
  static constexpr OpRow row{
      .name = "scalar", .kind = OpKind::source, .shape = scalar_shape, .sharding = no_factors, .flops = 0};
};

struct ConstantOp {
  static constexpr OpRow row{
      .name = "constant", .kind = OpKind::source, .shape = scalar_shape, .sharding = no_factors, .flops = 0};
};

struct ExtentOp {
  static constexpr OpRow row{.name = "extent",
                             .kind = OpKind::source,
                             .arity = 1,
                             .shape = scalar_shape,
                             .sharding = no_factors,
                             .flops = 0,
                             .shape_only = 1};
};

struct AxisSizeOp {
  static constexpr OpRow row{
      .name = "axis_size", .kind = OpKind::source, .shape = scalar_shape, .sharding = no_factors, .flops = 0};
};

struct ArangeOp {
  static constexpr OpRow row{.name = "arange",
                             .kind = OpKind::index,
                             .arity = 1,
                             .shape =
                                 [](const ShapeContext& c) {
                                   if (c.number(0) < 0) fail_shapes(c, "a count is below zero");
                                   return Shape{c.number(0)};
                                 },
                             .sharding =
                                 [](const GraphView&, int, FactorRule& rule) {
                                   rule.operands.resize(1);
                                   rule.result.dims[0].push_back(static_cast<std::int8_t>(rule.add(FactorKind::pass)));
                                 },
                             .flops = 0,
                             .shape_only = 1};
};

struct IotaOp {
  static constexpr OpRow row{.name = "iota",
                             .kind = OpKind::index,
                             .arity = 1,
                             .shape = like_shape,
                             .sharding = like_sharding,
                             .flops = 0,
                             .shape_only = 1};
};

// Operands: what to be shaped like, and the key.
struct RandomOp {
  static constexpr OpRow row{.name = "random",
                             .kind = OpKind::random,
                             .arity = 2,
                             .shape = like_shape,
                             .sharding = like_sharding,
                             .flops = 20,
                             .shape_only = 1};
};

struct ConstraintOp {
  static constexpr OpRow row{.name = "constraint",
                             .kind = OpKind::constraint,
                             .arity = 1,
                             .linear = Linearity::first,
                             .shape = like_shape,
                             .sharding = like_sharding,
                             .flops = 0};
  static constexpr GradientRule gradient = [](Gradient& r) {
    Node made = r.node();
    const auto layout = static_cast<CotangentLayout>(made.labels[0]);
    if (layout == CotangentLayout::free || is_host_number(r.g())) return r.add(0, r.g());
    if (layout == CotangentLayout::own_spec) {  // of which the cotangent lies as the value does
      made.value = made.labels[1];
      made.labels[1] = static_cast<std::int8_t>(r.node().index());
    }
    r.add(0, r.y().make(made, {r.full_g().id}));
  };
};

// The second operand says how the result lies, and its elements are never read.
struct AlikeOp {
  static constexpr OpRow row{.name = "alike",
                             .kind = OpKind::constraint,
                             .arity = 2,
                             .linear = Linearity::first,
                             .shape = alike_shape,
                             .sharding =
                                 [](const GraphView& graph, int id, FactorRule& rule) {
                                   like_sharding(graph, id, rule);
                                   rule.operands[1] = rule.operands[0];
                                   rule.operands[0] = {};  // it is brought to where the result is
                                 },
                             .flops = 0,
                             .shape_only = 2};
  static constexpr GradientRule gradient = [](Gradient& r) { r.add(0, r.g()); };
};

using SourceOperations = OperationList<ArgumentOp, DimOp, ScalarOp, ConstantOp, ExtentOp, AxisSizeOp, ArangeOp, IotaOp,
                                       RandomOp, ConstraintOp, AlikeOp>;

}  // namespace tessera::ops

#include <tessera/base/pop_macros.hpp>

#endif
