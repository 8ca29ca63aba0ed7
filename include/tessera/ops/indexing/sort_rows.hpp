#ifndef TESSERA_OPS_INDEXING_SORT_ROWS_HPP
#define TESSERA_OPS_INDEXING_SORT_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/data_movement/data_movement_rows.hpp>
#include <tessera/ops/elementwise/select.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/ops/sorting/order.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::build {

/// The indices that sort a dim: all of them, or the first `count` if it is given.
constexpr Value argsort(Value x, int dim, Order order, DType type, Value count = {}) {
  const bool all = count.module == nullptr;
  require_arithmetic(x);
  Node made{.op = Op::argsort,
            .dtype = type,
            .rank = x.node().rank,
            .singletons = x.node().singletons,
            .labels = pack_order(dim, order)};
  if (!all && count.is_number(1))
    made.singletons = static_cast<std::uint8_t>(made.singletons | 1u << dim);
  else if (!all)
    made.singletons = static_cast<std::uint8_t>(made.singletons & ~(1u << dim));
  const std::int32_t operands[] = {x.id, count.id};
  return x.make(made, operands, all ? 1 : 2);
}
/// The indices may have singleton dims along which x extends: elements there have one index, which kernels read once.
constexpr Value gather(Value x, int dim, Value indices) {
  const unsigned own = 1u << dim, others = x.node().singletons & ~own;
  return x.make({.op = Op::gather,
                 .dtype = x.dtype(),
                 .rank = x.node().rank,
                 .singletons = static_cast<std::uint8_t>(others | (indices.node().singletons & own)),
                 .labels = pack_dim(dim)},
                {x.id, indices.id});
}
constexpr Value scatter_add(Value x, int dim, Value indices, Value like) {
  return x.make({.op = Op::scatter_add,
                 .dtype = x.dtype(),
                 .rank = x.node().rank,
                 .singletons = like.node().singletons,
                 .labels = pack_dim(dim)},
                {x.id, indices.id, like.id});
}

}  // namespace tessera::build

namespace tessera::ops {

constexpr Shape argsort_shape(const ShapeContext& c) {
  Shape shape = c.operand(0);
  std::int64_t& extent = shape[static_cast<std::size_t>(dim_of(c.node()))];
  check_countable(c, extent);
  if (c.node().arity == 1) return shape;
  if (c.number(1) < 0 || c.number(1) > extent) fail_shapes(c, "k is not between 0 and the extent of the dim", "topk");
  extent = c.number(1);
  return shape;
}

/// Whether elements along dim d of a gather or scatter share their index.
constexpr bool has_one_index(const ShapeContext& c, std::size_t d) {
  return static_cast<int>(d) != dim_of(c.node()) && c.graph.operand_node(c.id, 1).is_singleton(static_cast<int>(d));
}
constexpr void check_indices(const ShapeContext& c, const Shape& table, const Shape& indices) {
  for (std::size_t d = 0; d < table.size(); ++d)
    if (static_cast<int>(d) != dim_of(c.node()) && !has_one_index(c, d) && table[d] != indices[d])
      fail_shapes(c, "operand and indices differ in a dim other than the gathered dim", "gather");
}

/// Checks that source and indices have one shape; the result is shaped like operand 2.
constexpr Shape scatter_shape(const ShapeContext& c) {
  const Shape &source = c.operand(0), &indices = c.operand(1), &result = c.operand(2);
  for (std::size_t d = 0; d < result.size(); ++d)
    if ((!has_one_index(c, d) && source[d] != indices[d]) ||
        (static_cast<int>(d) != dim_of(c.node()) && result[d] != source[d]))
      fail_shapes(
          c, "source and indices have equal shapes, and differ from the first operand only in the dim of the scatter");
  return result;
}

/// Sharding of a gather, or of a scatter whose parts combine: its dim of the indexed array has to be whole, but indices
/// can be split along the dim: each device gathers the elements at its own, or scatters its own elements.
constexpr void split_indices_sharding(const GraphView& graph, int id, FactorRule& rule) {
  along_dim_sharding(graph, id, rule);
  const bool scatters = row_of(graph[id]).scatters;
  const int dim = dim_of(graph[id]);
  if (graph.operand_node(id, 1).is_singleton(dim)) return;
  const auto own = static_cast<std::int8_t>(rule.add(scatters ? FactorKind::reduction : FactorKind::pass));
  for (DimFactors* split : {&rule.operands[1], scatters ? rule.operands.data() : &rule.result}) {
    split->dims[dim].clear();
    split->dims[dim].push_back(own);
  }
}

/// Checks that all dims but that of the node are those of the first `operands` operands.
constexpr BrokenRule check_other_dims(const NodeCheck& c, int operands, DType index) {
  if (!c.has_dim()) return "the dim is a dim of the node";
  for (int i = 0; i < operands; ++i) {
    const unsigned own = c.x(i).singletons, result = c.node().singletons, one_index = i == 1 ? own : 0u;
    if (c.x(i).rank != c.node().rank || (((own ^ result) & ~one_index) & ~(1u << dim_of(c.node()))) != 0)
      return "only the extent of one dim changes";
  }
  return index == DType::i32 || index == DType::i64 ? BrokenRule{} : "indices are integers";
}
constexpr BrokenRule check_argsort(const NodeCheck& c) {
  if (const BrokenRule broken = check_other_dims(c, 1, c.node().dtype); !broken.empty()) return broken;
  return c.node().arity == 1 || (c.node().arity == 2 && c.is_size(1)) ? BrokenRule{} : "k is an i64 scalar";
}
constexpr BrokenRule check_gather(const NodeCheck& c) {
  if (const BrokenRule broken = check_other_dims(c, c.node().arity, c.x(1).dtype); !broken.empty()) return broken;
  return c.node().dtype == c.x(0).dtype ? BrokenRule{} : "the result has the element type of the operand";
}
constexpr BrokenRule check_scatter_add(const NodeCheck& c) {
  if (!same_static_shape(c.node(), c.x(2))) return "the result has the shape of the third operand";
  return check_gather(c);
}

struct ArgsortOp {
  static constexpr OpRow row{.name = "argsort",
                             .unit = UnitKind::sort,
                             .arity = any_arity,
                             .shape = argsort_shape,
                             .sharding = along_dim_sharding};
  static constexpr BatchRule batch = batch_along_dim;
  static constexpr CheckRule check = check_argsort;
  static constexpr AttributeText attributes = [](const ProgramView&, const GraphView& graph, int id) {
    return concat_text(dim_of(graph[id]), order_of(graph[id]) == Order::descending ? ", descending" : "");
  };
};

struct GatherOp {
  static constexpr OpRow row{.name = "gather",
                             .unit = UnitKind::along,
                             .arity = 2,
                             .linear = Linearity::first,
                             .shape =
                                 [](const ShapeContext& c) {
                                   check_indices(c, c.operand(0), c.operand(1));
                                   const auto dim = static_cast<std::size_t>(dim_of(c.node()));
                                   Shape shape = c.operand(0);
                                   shape[dim] = c.operand(1)[dim];
                                   return shape;
                                 },
                             .sharding = split_indices_sharding,
                             .flops = 0};
  static constexpr GradientRule gradient = [](Gradient& r) {
    const Value x = build::stored_parameter(r.x(0)), g = build::cast(r.full_g(), computed_as(x.dtype()));
    r.add(0, build::cast(build::scatter_add(g, dim_of(r.node()), r.x(1), x), x.dtype()));
  };
  static constexpr BatchRule batch = batch_along_dim;
  static constexpr CheckRule check = check_gather;
  static constexpr AttributeText attributes = tessera::detail::dim_text;
};

struct ScatterAddOp {
  static constexpr OpRow row{.name = "scatter_add",
                             .unit = UnitKind::along,
                             .arity = 3,
                             .linear = Linearity::first,
                             .shape = scatter_shape,
                             .sharding = split_indices_sharding,
                             .partial = always_partial,
                             .shape_only = 1u << 2,
                             .scatters = true};
  static constexpr GradientRule gradient = [](Gradient& r) {
    r.add(0, build::gather(r.full_g(), dim_of(r.node()), r.x(1)));
  };
  static constexpr BatchRule batch = batch_along_dim;
  static constexpr CheckRule check = check_scatter_add;
  static constexpr AttributeText attributes = tessera::detail::dim_text;
};

using SortOperations = OperationList<ArgsortOp, GatherOp, ScatterAddOp>;

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
