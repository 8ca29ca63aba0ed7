#ifndef TESSERA_OPS_CUMULATIVE_CUMULATIVE_ROWS_HPP
#define TESSERA_OPS_CUMULATIVE_CUMULATIVE_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/planning.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/cumulative/cumulative_options.hpp>
#include <tessera/ops/elementwise/comparison.hpp>
#include <tessera/ops/indexing/sort_rows.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/ops/source/extent_rows.hpp>
#include <tessera/ops/source/position_rows.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::build {

/// A cumulative operation along a dim by the monoid of operation `op`.
constexpr Value cumulative(Op op, Value x, int dim, CumulativeOptions how) {
  require_arithmetic(x);
  const Reduction reduction = row_of(op).reduction;
  const DType type = reduced_type(reduction, x.dtype());
  if (x.is_singleton(dim) && !how.exclusive) return cast(x, type);
  const Value wide = cast(x, partial_type(reduction, x.dtype()));
  const Node& from = wide.node();
  return cast(
      wide.make(
          {.op = op, .dtype = from.dtype, .rank = from.rank, .singletons = from.singletons, .labels = how.pack(dim)},
          {wide.id}),
      type);
}
constexpr Value cumsum(Value x, int dim, CumulativeOptions how) { return cumulative(Op::cumsum, x, dim, how); }

}  // namespace tessera::build

namespace tessera::ops {

constexpr BrokenRule check_cumulative(const NodeCheck& c) {
  return c.has_dim() ? check_like_operand(c) : "the dim is a dim of the node";
}

/// Every dim can be split; devices exchange the totals of their chunks where that dim is.
constexpr OpRow cumulative_row(std::string_view name, Reduction reduction, Linearity linear = Linearity::no) {
  return {.name = name,
          .unit = UnitKind::cumulative,
          .arity = 1,
          .linear = linear,
          .shape = like_shape,
          .sharding = like_sharding,
          .reduction = reduction};
}

/// What all cumulative operations share besides their row and gradient.
struct CumulativeOperation {
  static constexpr BatchRule batch = batch_along_dim;
  static constexpr CheckRule check = check_cumulative;
  static constexpr AttributeText attributes = [](const ProgramView&, const GraphView& graph, int id) {
    const CumulativeOptions options = CumulativeOptions::of(graph[id]);
    return concat_text(dim_of(graph[id]), options.reverse ? ", reverse" : "", options.exclusive ? ", exclusive" : "");
  };
};

struct CumsumOp : CumulativeOperation {
  static constexpr OpRow row = cumulative_row("cumsum", Reduction::sum, Linearity::first);
  static constexpr GradientRule gradient = [](Gradient& r) {
    CumulativeOptions options = CumulativeOptions::of(r.node());
    options.reverse = !options.reverse;
    r.add(0, build::cumsum(r.full_g(), dim_of(r.node()), options));
  };
};

/// dL/dx of y = cumprod(x), by line: before the first zero, the sum of g y from that element on, divided by x; at the
/// first zero, the sum of g times the products without it; after it, that sum divided by x and multiplied by the zero.
/// Zeros are counted as 1 + x: the count minus 1 is the single zero, with derivative 1, for second derivatives.
struct CumprodOp : CumulativeOperation {
  static constexpr OpRow row = cumulative_row("cumprod", Reduction::product);
  static constexpr GradientRule gradient = [](Gradient& r) {
    const CumulativeOptions how = CumulativeOptions::of(r.node()), back{!how.reverse, how.exclusive};
    const int dim = dim_of(r.node());
    const Value x = r.x(0), g = r.full_g(), zero = x.number(0), one = x.number(1);
    const Value is_zero = build::equal(x, zero), safe = build::select(is_zero, one, x);
    const Value zeros = build::cumsum(build::select(is_zero, one + x, zero), dim, {.reverse = how.reverse});
    const Value is_first = build::equal(zeros, one);  // the first zero, and the elements after it up to the next zero
    const Value first = build::logical_and(is_zero, is_first);
    const Value passed = build::cumulative(r.node().op, build::select(first, one, x), dim, how);
    const Value before = build::cumsum(g * r.y(), dim, back) / safe, at_first = build::cumsum(g * passed, dim, back);
    const Value behind = build::select(is_first, (zeros - one) * at_first / safe, zero);
    r.add(0, build::select(build::equal(zeros, zero), before, build::select(first, at_first, behind)));
  };
};

/// The cotangent goes to the element that is the extreme, of equal ones to the one that the scan reaches last, as in
/// PyTorch. The index of that element is a scan as well: the extreme of the positions at which the result changes.
struct CumulativeExtreme : CumulativeOperation {
  static constexpr GradientRule gradient = [](Gradient& r) {
    const CumulativeOptions how = CumulativeOptions::of(r.node());
    const int dim = dim_of(r.node());
    const Value x = r.x(0);
    const double sign = (row_of(r.node()).reduction == Reduction::max) == how.reverse ? -1 : 1;
    const Value is_extreme =
        build::logical_or(build::equal(x, r.y()), build::not_equal(x, x));  // NaN is one from the first on
    const Value position = build::iota(x, dim, DType::i64), signed_position = position * sign;
    const Value before = how.reverse ? build::extent(x, dim) * sign : position.number(-sign);
    const Value index =
        build::cumulative(r.node().op, build::select(is_extreme, signed_position, before), dim, how) * sign;
    const Value g = build::cast(r.full_g(), computed_as(x.dtype()));
    r.add(0, build::cast(build::scatter_add(g, dim, index, x), x.dtype()));
  };
};
struct CummaxOp : CumulativeExtreme {
  static constexpr OpRow row = cumulative_row("cummax", Reduction::max);
};
struct CumminOp : CumulativeExtreme {
  static constexpr OpRow row = cumulative_row("cummin", Reduction::min);
};

using CumulativeOperations = OperationList<CumsumOp, CumprodOp, CummaxOp, CumminOp>;

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
