#ifndef TESSERA_OPS_REDUCTION_REDUCTION_ROWS_HPP
#define TESSERA_OPS_REDUCTION_REDUCTION_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/data_movement/data_movement_rows.hpp>
#include <tessera/ops/elementwise/comparison.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/ops/reduction/reduce.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::ops {

constexpr std::string_view name_of(PositionOf position) { return position == PositionOf::argmax ? "argmax" : "argmin"; }
/// The elements of the operand are positions: what matters of it is its shape.
[[noreturn]] inline void fail_without_elements(const ShapeContext& c, PositionOf position, int dim) {
  const std::string operand = shape_text(DType::i32, c.operand(0));
  const std::string_view function = c.node().source.function(), operation = name_of(position);
  fail(errc::dim_range, "[", function.empty() ? operation : function, "] dim ", dim, " of a tensor of shape ",
       operand.substr(operand.find('[')), " has no elements", c.node().source);
}
constexpr Shape reduction_shape(const ShapeContext& c) {
  const Reduced reduced = Reduced::of(c.node());
  Shape shape;
  std::int64_t positions = 1;
  for (int d = 0; d < c.graph.operand_node(c.id, 0).rank; ++d) {
    if (reduced.has(d)) positions *= c.operand(0)[static_cast<std::size_t>(d)];
    if (reduced.has(d) && reduced.position != PositionOf::nothing && c.operand(0)[static_cast<std::size_t>(d)] == 0)
      fail_without_elements(c, reduced.position, d);
    if (!reduced.has(d))
      shape.push_back(c.operand(0)[static_cast<std::size_t>(d)]);
    else if (reduced.keep)
      shape.push_back(1);
  }
  if (reduced.position != PositionOf::nothing)
    check_countable(c, positions, "the dims have", name_of(reduced.position));
  return shape;
}

constexpr void reduction_sharding(const GraphView& graph, int id, FactorRule& rule) {
  const Reduced reduced = Reduced::of(graph[id]);
  const Node& x = graph.operand_node(id, 0);
  DimFactors& dims = rule.operands.emplace_back();
  int out = 0;
  for (int d = 0; d < x.rank; ++d) {
    if (!x.is_singleton(d)) {
      const auto factor = static_cast<std::int8_t>(rule.add(reduced.has(d) ? FactorKind::reduction : FactorKind::pass));
      dims.dims[d].push_back(factor);
      if (!reduced.has(d)) rule.result.dims[out].push_back(factor);
    }
    if (!reduced.has(d) || reduced.keep) ++out;
  }
}

constexpr OpRow reduction_row(std::string_view name, Reduction reduction, Linearity linear = Linearity::no) {
  return {.name = name,
          .kind = OpKind::reduction,
          .arity = 1,
          .linear = linear,
          .shape = reduction_shape,
          .sharding = reduction_sharding,
          .partial = always_partial,
          .reduction = reduction};
}

/// v, in the shape of the result, with the reduced dims inserted again as singleton dims.
constexpr Value with_kept_dims(const Gradient& r, Value v) {
  const Reduced reduced = Reduced::of(r.node());
  if (reduced.keep || v.rank() == 0) return v;
  return build::insert_singletons(v, reduced.dims, r.x(0).rank());
}

/// Elements that share the extreme get equal parts of the cotangent.
constexpr void extreme_gradient(Gradient& r) {
  const Reduced reduced = Reduced::of(r.node());
  if (reduced.constant) return;
  Value x = r.x(0);
  Value best = with_kept_dims(r, r.y());
  Value one = x.number(1), zero = x.number(0);
  Value hit = build::select(build::equal(x, best), one, zero);
  Value hits = build::sum_of(hit, reduced.dims, true);
  r.add(0, with_kept_dims(r, r.full_g()) * hit / hits);
}

constexpr BrokenRule check_reduction(const NodeCheck& c) {
  const Node &node = c.node(), &from = c.x(0);
  const Reduced reduced = Reduced::of(node);
  if (reduced.dims == 0 || reduced.dims >> from.rank != 0) return "reduced dims are dims of the operand";
  Node made{.dtype = from.dtype};
  build::reduced_dims(made, from, reduced);
  return same_type(node, made) ? BrokenRule{} : "the result has the dims that are not reduced, or are kept";
}

constexpr Batched batch_reduction(const Batch& b) {
  Reduced reduced = Reduced::of(b.node());
  reduced.dims = static_cast<std::uint8_t>(reduced.dims << 1);
  Node made = b.batched();
  made.labels = reduced.pack();
  return b.make(made, batched_operands(b, 1));
}

inline std::string reduced_text(const ProgramView&, const GraphView& graph, int id) {
  const Reduced reduced = Reduced::of(graph[id]);
  std::string text;
  for (int d = 0; d < max_rank; ++d)
    if (reduced.has(d)) text += (text.empty() ? "" : ",") + std::to_string(d);
  return text + (reduced.keep ? ", keepdims" : "");
}

/// What all reductions share besides their row and gradient.
struct ReductionOperation {
  static constexpr BatchRule batch = batch_reduction;
  static constexpr CheckRule check = check_reduction;
  static constexpr AttributeText attributes = reduced_text;
};

struct SumOp : ReductionOperation {
  static constexpr OpRow row = reduction_row("sum", Reduction::sum, Linearity::first);
  static constexpr GradientRule gradient = [](Gradient& r) {
    if (Reduced::of(r.node()).constant) return;
    Value g = r.g();
    r.add(0, g.rank() == 0 ? g : with_kept_dims(r, r.full_g()));
  };
};

struct MaxOp : ReductionOperation {
  static constexpr OpRow row = reduction_row("max", Reduction::max);
  static constexpr GradientRule gradient = extreme_gradient;
};

struct MinOp : ReductionOperation {
  static constexpr OpRow row = reduction_row("min", Reduction::min);
  static constexpr GradientRule gradient = extreme_gradient;
};

/// The derivative by an element is the product of all others: of those that are not zero, times the zeros among them.
/// Zeros are counted as 1 + x: two of them give 0, and a single one gives x, with value 0 and derivative 1, so that
/// second derivatives are exact too.
struct ProdOp : ReductionOperation {
  static constexpr OpRow row = reduction_row("prod", Reduction::product);
  static constexpr GradientRule gradient = [](Gradient& r) {
    const unsigned dims = Reduced::of(r.node()).dims;
    const Value x = r.x(0), zero = x.number(0), one = x.number(1);
    const Value is_zero = build::equal(x, zero), safe = build::select(is_zero, one, x);
    const Value own_zero = build::select(is_zero, one + x, zero);
    const Value other_zeros = build::sum_of(own_zero, dims, true) - own_zero;
    const Value of_zeros = build::select(build::equal(other_zeros, zero), one,
                                         build::select(build::equal(other_zeros, one), other_zeros - one, zero));
    const Value of_others = build::reduce(r.node().op, safe, dims, true) / safe;
    r.add(0, with_kept_dims(r, r.full_g()) * of_others * of_zeros);
  };
};

using ReductionOperations = OperationList<SumOp, MaxOp, MinOp, ProdOp>;

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
