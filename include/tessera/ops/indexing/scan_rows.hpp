#ifndef TESSERA_OPS_INDEXING_SCAN_ROWS_HPP
#define TESSERA_OPS_INDEXING_SCAN_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/ops/source_rows.hpp>

namespace tessera::build {

/// Reduces what comes before each element along a dim, by the operation's monoid.
constexpr Value scan(Op op, Value x, int dim, Scan how) {
  const Reduction reduction = row_of(op).reduction;
  const DType type = reduced_type(reduction, x.dtype());
  if (x.is_unit(dim) && !how.exclusive) return cast(x, type);
  const Value wide = cast(x, partial_type(reduction, x.dtype()));
  const Node& from = wide.node();
  return cast(wide.make({.op = op, .dtype = from.dtype, .rank = from.rank, .unit = from.unit, .labels = how.pack(dim)},
                        {wide.id}),
              type);
}
constexpr Value cumsum(Value x, int dim, Scan how) { return scan(Op::cumsum, x, dim, how); }

}  // namespace tessera::build

namespace tessera::ops {

constexpr BrokenRule check_scan(const NodeCheck& c) {
  return c.has_dim() ? check_like_operand(c) : "the dim is one of the rank";
}

/// Every dim passes: where the dim itself is split, devices exchange the totals of their chunks.
constexpr OpRow scan_row(std::string_view name, Reduction reduction, Linearity linear = Linearity::no) {
  return {.name = name,
          .unit = UnitKind::scan,
          .arity = 1,
          .linear = linear,
          .shape = like_shape,
          .sharding = like_sharding,
          .reduction = reduction};
}

/// What scans have besides their row and gradient.
struct ScanOperation {
  static constexpr CheckRule check = check_scan;
  static constexpr AttributeText attributes = [](const ProgramView&, const GraphView& graph, int id) {
    const Scan scan = Scan::of(graph[id]);
    return concat_text(dim_of(graph[id]), scan.reverse ? ", reverse" : "", scan.exclusive ? ", exclusive" : "");
  };
};

struct CumsumOp : ScanOperation {
  static constexpr OpRow row = scan_row("cumsum", Reduction::sum, Linearity::first);
  static constexpr GradientRule gradient = [](Gradient& r) {
    Scan scan = Scan::of(r.node());
    scan.reverse = !scan.reverse;
    r.add(0, build::cumsum(r.full_g(), dim_of(r.node()), scan));
  };
};

using ScanOperations = OperationList<CumsumOp>;

}  // namespace tessera::ops

#include <tessera/base/pop_macros.hpp>

#endif
