#ifndef TESSERA_OPS_CONTRACTION_RAGGED_ROWS_HPP
#define TESSERA_OPS_CONTRACTION_RAGGED_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <initializer_list>

#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/elementwise/select.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/ops/reduction/reduce.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::build {

inline constexpr Op ragged_dot_op = static_cast<Op>(operation_id("ragged_dot"));
inline constexpr Op ragged_outer_op = static_cast<Op>(operation_id("ragged_outer"));

/// Each row of x [leads..., m, k] times the matrix of its group: w [leads..., groups, k, n], or [..., groups, n, k] if
/// they are `transposed`; sizes [leads..., groups]. A leading dim may be a singleton in some of the operands. Operands
/// of bf16 and f16 give an f32 result.
constexpr Value ragged_dot(Value x, Value w, Value sizes, bool transposed) {
  require_arithmetic(x);
  const int lead = x.rank() - 2;
  unsigned singletons = ((1u << lead) - 1) & x.node().singletons & w.node().singletons & sizes.node().singletons;
  if (x.is_singleton(lead)) singletons |= 1u << lead;
  if (w.is_singleton(lead + (transposed ? 1 : 2))) singletons |= 2u << lead;
  Node made{.op = ragged_dot_op,
            .dtype = computed_as(x.dtype()),
            .rank = x.node().rank,
            .singletons = static_cast<std::uint8_t>(singletons)};
  made.labels[0] = transposed ? 1 : 0;
  return x.make(made, {x.id, w.id, sizes.id});
}

/// For each group the sum over its rows of the outer products of a's rows [leads..., m, k] and b's [leads..., m, n]:
/// [leads..., groups, k, n], summed over the leading dims that are singletons of `like`.
constexpr Value ragged_outer(Value a, Value b, Value sizes, const Node& like) {
  require_arithmetic(a);
  const int lead = a.rank() - 2;
  unsigned singletons = ((1u << lead) - 1) & like.singletons;
  if (sizes.is_singleton(lead)) singletons |= 1u << lead;
  if (a.is_singleton(lead + 1)) singletons |= 2u << lead;
  if (b.is_singleton(lead + 1)) singletons |= 4u << lead;
  return a.make({.op = ragged_outer_op,
                 .dtype = computed_as(a.dtype()),
                 .rank = static_cast<std::uint8_t>(a.rank() + 1),
                 .singletons = static_cast<std::uint8_t>(singletons)},
                {a.id, b.id, sizes.id});
}

}  // namespace tessera::build

namespace tessera::ops {

constexpr bool is_transposed(const Node& ragged_dot) { return ragged_dot.labels[0] != 0; }
/// The number of leading dims of a ragged product.
constexpr std::size_t ragged_leads(const ShapeContext& c) { return c.operand(0).size() - 2; }

/// The extent of a leading dim, which operands have in full or as a singleton.
constexpr std::int64_t ragged_lead(const ShapeContext& c, std::size_t d) {
  std::int64_t extent = -1;
  for (int i = 0; i < 3; ++i) {
    if (c.graph.operand_node(c.id, i).is_singleton(static_cast<int>(d))) continue;
    if (extent >= 0 && c.operand(i)[d] != extent) fail_shapes(c, "leading dims of the operands differ", "ragged_dot");
    extent = c.operand(i)[d];
  }
  return extent < 0 ? 1 : extent;
}

constexpr Shape ragged_dot_shape(const ShapeContext& c) {
  const std::size_t lead = ragged_leads(c);
  const Shape &x = c.operand(0), &w = c.operand(1);
  const std::size_t turned = is_transposed(c.node()) ? 1 : 0;
  if (x[lead + 1] != w[lead + 1 + turned]) fail_shapes(c, "inner dims differ");
  if (c.operand(2)[lead] != w[lead]) fail_shapes(c, "there is a group size for each matrix");
  Shape shape;
  for (std::size_t d = 0; d < lead; ++d) shape.push_back(ragged_lead(c, d));
  shape.push_back(x[lead]);
  shape.push_back(w[lead + 2 - turned]);
  return shape;
}
constexpr Shape ragged_outer_shape(const ShapeContext& c) {
  const std::size_t lead = ragged_leads(c);
  if (c.operand(0)[lead] != c.operand(1)[lead]) fail_shapes(c, "numbers of rows differ");
  Shape shape;
  for (std::size_t d = 0; d < lead; ++d) {
    const std::int64_t extent = ragged_lead(c, d);
    shape.push_back(c.node().is_singleton(static_cast<int>(d)) ? 1 : extent);
  }
  shape.push_back(c.operand(2)[lead]);
  shape.push_back(c.operand(0)[lead + 1]);
  shape.push_back(c.operand(1)[lead + 1]);
  return shape;
}

/// Multiplications and additions: each row is multiplied with one matrix at most.
constexpr std::int64_t ragged_flops(const ShapeContext& c, const Shape& result) {
  const std::size_t lead = ragged_leads(c);
  std::int64_t total = 2;
  for (std::size_t d = 0; d < lead; ++d) total = saturating_product(total, ragged_lead(c, d));
  total = saturating_product(total, c.operand(0)[lead]);
  total = saturating_product(total, c.operand(0)[lead + 1]);
  return saturating_product(total, result[result.size() - 1]);
}

/// The factors of both products: leading dims, rows, k and n are split as in a product; a split dim of groups, which
/// has a factor of its own, gives each device the rows of its own groups. The sizes are whole on each device, which
/// finds in them the groups of its rows.
struct RaggedFactors {
  const GraphView& graph;
  int id;
  FactorRule& rule;
  int lead = graph.operand_node(id, 0).rank - 2;

  constexpr std::int8_t add(FactorKind kind) const { return static_cast<std::int8_t>(rule.add(kind)); }
  constexpr void put(const Node& node, DimFactors& dims, int d, std::int8_t factor) const {
    if (!node.is_singleton(d)) dims.dims[d].push_back(factor);
  }
  /// Leading dims, of which the result sums those that it lacks, and the sizes.
  constexpr void shared(std::initializer_list<int> operands) const {
    const Node& result = graph[id];
    rule.operands.resize(3);
    for (int d = 0; d < lead; ++d) {
      const std::int8_t f = add(result.is_singleton(d) ? FactorKind::reduction : FactorKind::pass);
      for (const int i : operands) put(graph.operand_node(id, i), rule.operands[static_cast<std::size_t>(i)], d, f);
      put(result, rule.result, d, f);
    }
  }
  constexpr void whole_sizes() const {
    put(graph.operand_node(id, 2), rule.operands[2], lead, add(FactorKind::replicate));
  }
};

constexpr void ragged_dot_sharding(const GraphView& graph, int id, FactorRule& rule) {
  const RaggedFactors factors{graph, id, rule};
  const Node &node = graph[id], &x = graph.operand_node(id, 0), &w = graph.operand_node(id, 1);
  factors.shared({0, 1, 2});
  const int lead = factors.lead, turned = is_transposed(node) ? 1 : 0;
  const std::int8_t m = factors.add(FactorKind::pass), k = factors.add(FactorKind::reduction),
                    n = factors.add(FactorKind::pass), groups = factors.add(FactorKind::reduction);
  factors.put(x, rule.operands[0], lead, m);
  factors.put(x, rule.operands[0], lead + 1, k);
  factors.put(w, rule.operands[1], lead, groups);
  factors.put(w, rule.operands[1], lead + 1 + turned, k);
  factors.put(w, rule.operands[1], lead + 2 - turned, n);
  factors.put(node, rule.result, lead, m);
  factors.put(node, rule.result, lead + 1, n);
  factors.whole_sizes();
}
constexpr void ragged_outer_sharding(const GraphView& graph, int id, FactorRule& rule) {
  const RaggedFactors factors{graph, id, rule};
  const Node &node = graph[id], &a = graph.operand_node(id, 0), &b = graph.operand_node(id, 1);
  factors.shared({0, 1, 2});
  const int lead = factors.lead;
  const std::int8_t m = factors.add(FactorKind::reduction), k = factors.add(FactorKind::pass),
                    n = factors.add(FactorKind::pass), groups = factors.add(FactorKind::pass);
  factors.put(a, rule.operands[0], lead, m);
  factors.put(a, rule.operands[0], lead + 1, k);
  factors.put(b, rule.operands[1], lead, m);
  factors.put(b, rule.operands[1], lead + 1, n);
  factors.put(node, rule.result, lead, groups);
  factors.put(node, rule.result, lead + 1, k);
  factors.put(node, rule.result, lead + 2, n);
  factors.whole_sizes();
}

constexpr BrokenRule check_ragged(const NodeCheck& c, int rank_of_second, int rank_of_result) {
  const Node &x = c.x(0), &second = c.x(1), &sizes = c.x(2);
  if (x.rank < 2 || second.rank != x.rank + rank_of_second || c.node().rank != x.rank + rank_of_result ||
      sizes.rank != x.rank - 1)
    return "operands have the same leading dims";
  if (sizes.dtype != DType::i32 && sizes.dtype != DType::i64) return "group sizes are integers";
  return x.dtype == second.dtype && c.node().dtype == computed_as(x.dtype)
             ? BrokenRule{}
             : "operands have equal element types, and the result has that of the products";
}

/// The dim of examples is a leading dim.
constexpr Batched batch_ragged(const Batch& b) {
  Growable<std::int32_t> operands;
  for (int i = 0; i < 3; ++i) operands.push_back(b.leading(i).id);
  return b.make(b.batched(), operands);
}

/// Operands: rows, matrices, group sizes.
struct RaggedDotOp {
  static constexpr OpRow row{.name = "ragged_dot",
                             .unit = UnitKind::ragged,
                             .arity = 3,
                             .linear = Linearity::first,
                             .shape = ragged_dot_shape,
                             .sharding = ragged_dot_sharding,
                             .partial = always_partial};
  static constexpr GradientRule gradient = [](Gradient& r) {
    const bool transposed = is_transposed(r.node());
    const Value x = r.x(0), w = r.x(1), sizes = r.x(2), g = build::cast(r.full_g(), x.dtype());
    if (r.needs(0)) r.add(0, build::cast(build::sum_to(build::ragged_dot(g, w, sizes, !transposed), x), x.dtype()));
    if (r.needs(1))
      r.add(1, build::cast(build::ragged_outer(transposed ? g : x, transposed ? x : g, sizes, w.node()), w.dtype()));
  };
  static constexpr BatchRule batch = batch_ragged;
  static constexpr CheckRule check = [](const NodeCheck& c) {
    if (const BrokenRule broken = check_ragged(c, 1, 0); !broken.empty()) return broken;
    const Node &node = c.node(), &x = c.x(0), &w = c.x(1), &sizes = c.x(2);
    const int lead = x.rank - 2, turned = is_transposed(node) ? 1 : 0;
    for (int d = 0; d < lead; ++d)
      if (node.is_singleton(d) != (x.is_singleton(d) && w.is_singleton(d) && sizes.is_singleton(d)))
        return BrokenRule("a leading dim of the result extends if it does in an operand");
    return node.is_singleton(lead) == x.is_singleton(lead) &&
                   node.is_singleton(lead + 1) == w.is_singleton(lead + 2 - turned) &&
                   x.is_singleton(lead + 1) == w.is_singleton(lead + 1 + turned) &&
                   sizes.is_singleton(lead) == w.is_singleton(lead)
               ? BrokenRule{}
               : BrokenRule("the dims of rows, matrices and sizes agree");
  };
  static constexpr AttributeText attributes = [](const ProgramView&, const GraphView& graph, int id) {
    return std::string(is_transposed(graph[id]) ? "transposed" : "");
  };
};

/// Operands: rows, rows, group sizes. The gradient of the matrices of ragged_dot.
struct RaggedOuterOp {
  static constexpr OpRow row{.name = "ragged_outer",
                             .unit = UnitKind::ragged,
                             .arity = 3,
                             .linear = Linearity::first,
                             .shape = ragged_outer_shape,
                             .sharding = ragged_outer_sharding,
                             .partial = always_partial};
  static constexpr GradientRule gradient = [](Gradient& r) {
    const Value sizes = r.x(2), g = build::cast(r.full_g(), r.x(0).dtype());
    for (int i = 0; i < 2; ++i) {
      if (!r.needs(i)) continue;
      const Value own = r.x(i), slope = build::sum_to(build::ragged_dot(r.x(1 - i), g, sizes, i == 0), own);
      r.add(i, build::broadcast(build::cast(slope, own.dtype()), own));
    }
  };
  static constexpr BatchRule batch = batch_ragged;
  static constexpr CheckRule check = [](const NodeCheck& c) {
    if (const BrokenRule broken = check_ragged(c, 0, 1); !broken.empty()) return broken;
    const Node &node = c.node(), &a = c.x(0), &b = c.x(1), &sizes = c.x(2);
    const int lead = a.rank - 2;
    for (int d = 0; d < lead; ++d)
      if (!node.is_singleton(d) && a.is_singleton(d) && b.is_singleton(d) && sizes.is_singleton(d))
        return BrokenRule("a leading dim of the result extends in an operand");
    return a.is_singleton(lead) == b.is_singleton(lead) && node.is_singleton(lead) == sizes.is_singleton(lead) &&
                   node.is_singleton(lead + 1) == a.is_singleton(lead + 1) &&
                   node.is_singleton(lead + 2) == b.is_singleton(lead + 1)
               ? BrokenRule{}
               : BrokenRule("the dims of rows, matrices and sizes agree");
  };
};

using RaggedOperations = OperationList<RaggedDotOp, RaggedOuterOp>;

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
