#ifndef TESSERA_OPS_INDEXING_SCAN_ROWS_HPP
#define TESSERA_OPS_INDEXING_SCAN_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/ops/source_rows.hpp>

namespace tessera::build {

constexpr Value cumsum(Value x, int dim, Scan scan) {
  if (x.is_unit(dim) && !scan.exclusive) return cast(x, sum_type(x.dtype()));
  const Value wide = cast(x, summed_as(x.dtype()));
  const Node& from = wide.node();
  return cast(
      wide.make({.op = Op::cumsum, .dtype = from.dtype, .rank = from.rank, .unit = from.unit, .labels = scan.pack(dim)},
                {wide.id}),
      sum_type(x.dtype()));
}

}  // namespace tessera::build

namespace tessera::ops {

constexpr BrokenRule check_scan(const NodeCheck& c) {
  return c.has_dim() ? check_like_operand(c) : "the dim is one of the rank";
}

// Every dim passes: where the dim itself is split, devices exchange the totals of their chunks.
struct CumsumOp {
  static constexpr OpRow row{.name = "cumsum",
                             .unit = UnitKind::scan,
                             .arity = 1,
                             .linear = Linearity::first,
                             .shape = like_shape,
                             .sharding = like_sharding};
  static constexpr GradientRule gradient = [](Gradient& r) {
    Scan scan = Scan::of(r.node());
    scan.reverse = !scan.reverse;
    r.add(0, build::cumsum(r.full_g(), dim_of(r.node()), scan));
  };
  static constexpr CheckRule check = check_scan;
  static constexpr AttributeText attributes = [](const ProgramView&, const GraphView& graph, int id) {
    const Scan scan = Scan::of(graph[id]);
    return concat_text(dim_of(graph[id]), scan.reverse ? ", reverse" : "", scan.exclusive ? ", exclusive" : "");
  };
};

using ScanOperations = OperationList<CumsumOp>;

}  // namespace tessera::ops

#include <tessera/base/pop_macros.hpp>

#endif
