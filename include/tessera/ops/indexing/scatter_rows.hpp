#ifndef TESSERA_OPS_INDEXING_SCATTER_ROWS_HPP
#define TESSERA_OPS_INDEXING_SCATTER_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/planning.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/elementwise/arithmetic.hpp>
#include <tessera/ops/elementwise/comparison.hpp>
#include <tessera/ops/indexing/scatter_rule.hpp>
#include <tessera/ops/indexing/sort_rows.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/ops/source/position_rows.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::build {

/// x after the elements of `source` at indices along a dim have replaced its elements, or been combined with them. Any
/// number of elements can go to one index: sums and products of floating elements are computed in f64 and rounded once.
constexpr Value scatter(Value x, int dim, Value indices, Value source, ScatterRule rule) {
  const DType type = x.dtype();
  if (!rule.replaces) require_arithmetic(x);
  const bool rounds = !rule.replaces && is_floating(type) && facts_of(rule.reduction).rounds;
  const Value wide = rounds ? cast(x, DType::f64) : x, added = cast(source, wide.dtype());
  if (!rule.replaces && rule.reduction == Reduction::sum) return cast(wide + scatter_add(added, dim, indices, x), type);
  const Value made = wide.make({.op = Op::scatter,
                                .dtype = wide.dtype(),
                                .rank = x.node().rank,
                                .singletons = x.node().singletons,
                                .labels = rule.pack(dim)},
                               {added.id, indices.id, wide.id});
  return cast(made, type);
}

}  // namespace tessera::build

namespace tessera::ops {

/// The cotangents of source and x, from those of the elements at each index.
struct ScatterGradient {
  Gradient& r;
  ScatterRule rule;
  int dim;
  Value source, indices, x, y, g;

  constexpr explicit ScatterGradient(Gradient& of)
      : r(of), rule(ScatterRule::of(of.node())), dim(dim_of(of.node())), source(of.x(0)), indices(of.x(1)), x(of.x(2)),
        y(of.y()), g(build::cast(of.full_g(), computed_as(of.node().dtype))) {}

  constexpr Value at_indices(Value v) const { return build::gather(v, dim, indices); }
  constexpr void add(int operand, Value cotangent) { r.add(operand, build::cast(cotangent, r.node().dtype)); }
  static constexpr Value equal(Value v, double number) { return build::equal(v, v.number(number)); }

  /// Of several elements at one index, the one that was written last has the cotangent.
  constexpr void replaced() {
    const Value zero = g.number(0), position = build::iota(source, dim, DType::i64);
    const Value last = build::scatter(build::broadcast(position.number(-1), x), dim, indices, position, rule);
    add(2, build::select(equal(last, -1), g, zero));
    if (r.needs(0)) add(0, build::select(build::equal(at_indices(last), position), at_indices(g), zero));
  }
  /// Elements that are the extreme share the cotangent.
  constexpr void extreme() {
    const Value zero = g.number(0), is_x = build::equal(x, y), is_source = build::equal(source, at_indices(y));
    const Value count =
        build::cast(is_x, g.dtype()) + build::scatter_add(build::cast(is_source, g.dtype()), dim, indices, x);
    const Value share = g / build::maximum(count, count.number(1));  // without an extreme, y is NaN
    add(2, build::select(is_x, share, zero));
    if (r.needs(0)) add(0, build::select(is_source, at_indices(share), zero));
  }
  /// The cotangent times the product of the other elements: of an only zero that of all others; of elements besides one
  /// or more zeros 0.
  constexpr void product() {
    const auto nonzero = [](Value v) { return build::select(equal(v, 0), v.number(1), v); };
    const Value zero = g.number(0), zeros_of_source = build::cast(equal(source, 0), g.dtype());
    const Value zeros = build::cast(equal(x, 0), g.dtype()) + build::scatter_add(zeros_of_source, dim, indices, x);
    const Value others = g * build::scatter(nonzero(x), dim, indices, nonzero(source), rule);
    const Value to_others = build::select(equal(zeros, 0), others, zero),
                to_zero = build::select(equal(zeros, 1), others, zero);
    add(2, build::select(equal(x, 0), to_zero, to_others / nonzero(x)));
    if (r.needs(0))
      add(0, build::select(equal(source, 0), at_indices(to_zero), at_indices(to_others) / nonzero(source)));
  }
};

/// Whether each device can scatter a part of the elements: the extreme of equal elements of x is that element, while a
/// product would have each element of x once for each device.
constexpr bool scatters_parts(const GraphView& graph, int id) {
  const ScatterRule rule = ScatterRule::of(graph[id]);
  return !rule.replaces && facts_of(rule.reduction).idempotent;
}

/// Operands: source, indices, and the tensor into which the elements of the source go.
struct ScatterOp {
  static constexpr OpRow row{.name = "scatter",
                             .unit = UnitKind::along,
                             .arity = 3,
                             .shape = scatter_shape,
                             .sharding =
                                 [](const GraphView& graph, int id, FactorRule& rule) {
                                   if (scatters_parts(graph, id))
                                     split_indices_sharding(graph, id, rule);
                                   else
                                     along_dim_sharding(graph, id, rule);
                                 },
                             .partial = scatters_parts,
                             .combine = [](const Node& node) { return ScatterRule::of(node).reduction; },
                             .scatters = true};
  static constexpr GradientRule gradient = [](Gradient& r) {
    ScatterGradient own(r);
    if (own.rule.replaces)
      own.replaced();
    else if (own.rule.reduction == Reduction::product)
      own.product();
    else
      own.extreme();
  };
  static constexpr BatchRule batch = batch_along_dim;
  static constexpr CheckRule check = [](const NodeCheck& c) {
    if (!same_type(c.node(), c.x(2))) return BrokenRule("the result has the type of the third operand");
    return check_gather(c);
  };
  static constexpr AttributeText attributes = [](const ProgramView&, const GraphView& graph, int id) {
    const ScatterRule rule = ScatterRule::of(graph[id]);
    return concat_text(dim_of(graph[id]), ", ", rule.replaces ? "set" : name_of(rule.reduction));
  };
};

using ScatterOperations = OperationList<ScatterOp>;

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
