#ifndef TESSERA_OPS_SOURCE_POSITION_ROWS_HPP
#define TESSERA_OPS_SOURCE_POSITION_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>

#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/elementwise/select.hpp>
#include <tessera/ops/operation.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::build {

constexpr Value arange(Value count, DType type) {
  return count.make({.op = Op::arange, .dtype = type, .rank = 1}, {count.id});
}
constexpr Value iota(Value like, int dim, DType type) {
  // Broadcast within a fused kernel, it would count along the dim of the kernel.
  if (like.is_singleton(dim)) return broadcast(like.number(0, type), like);
  like = shape_source(like).at(like.source);
  return like.make({.op = Op::iota,
                    .dtype = type,
                    .rank = like.node().rank,
                    .singletons = like.node().singletons,
                    .labels = pack_dim(dim)},
                   {like.id});
}

}  // namespace tessera::build

namespace tessera::ops {

/// Whether some node reads the elements of a node, and not only its shape.
constexpr bool reads_elements(const ShapeContext& c) {
  for (int i = 0; i < c.graph.output_count; ++i)
    if (c.graph.outputs[i] == c.id) return true;
  for (int id = c.id + 1; id < c.graph.size; ++id)
    for (int i = 0; i < c.graph[id].arity; ++i)
      if (c.graph.operand(id, i) == c.id && !has_operand(row_of(c.graph[id]).shape_only, i)) return true;
  return false;
}
/// check_countable for positions, of which it does not matter that they wrap around if they only give a shape.
constexpr void check_positions(const ShapeContext& c, std::int64_t extent, std::string_view name = {}) {
  if (c.node().dtype == DType::i32 && extent > 0x7fffffff && reads_elements(c))
    check_countable(c, extent, "the dim has", name);
}

constexpr BrokenRule check_arange(const NodeCheck& c) {
  if (!c.has_dim()) return "the dim is a dim of the node";
  return c.is_size(0) && c.node().rank == 1 && c.node().singletons == 0
             ? BrokenRule{}
             : "the operand is the extent of the result, a vector";
}
constexpr BrokenRule check_iota(const NodeCheck& c) {
  if (!c.has_dim()) return "the dim is a dim of the node";
  return same_static_shape(c.node(), c.x(0)) ? BrokenRule{} : "the result has the shape of the operand";
}

struct ArangeOp {
  static constexpr OpRow row{.name = "arange",
                             .kind = OpKind::index,
                             .arity = 1,
                             .shape =
                                 [](const ShapeContext& c) {
                                   const std::int64_t count = c.number(0);
                                   if (count < 0 && maker_of(c.node()) == MadeBy::fori_loop)
                                     fail(errc::shape_mismatch, "[fori_loop] steps: `to` is less than `from`, by ",
                                          -count, c.node().source);
                                   if (count < 0)
                                     fail_shapes(c, concat_text("negative size ", count), name_of(maker_of(c.node())));
                                   check_positions(c, c.number(0), name_of(maker_of(c.node())));
                                   return Shape{c.number(0)};
                                 },
                             .sharding =
                                 [](const GraphView&, int, FactorRule& rule) {
                                   rule.operands.resize(1);
                                   rule.result.dims[0].push_back(static_cast<std::int8_t>(rule.add(FactorKind::pass)));
                                 },
                             .flops = 0,
                             .shape_only = 1,
                             .recomputed = true};
  static constexpr CheckRule check = check_arange;
  static constexpr AttributeText attributes = tessera::detail::dim_text;
};

struct IotaOp {
  static constexpr OpRow row{.name = "iota",
                             .kind = OpKind::index,
                             .arity = 1,
                             .shape =
                                 [](const ShapeContext& c) {
                                   check_positions(c, c.operand(0)[static_cast<std::size_t>(dim_of(c.node()))]);
                                   return c.operand(0);
                                 },
                             .sharding = like_sharding,
                             .flops = 0,
                             .shape_only = 1,
                             .recomputed = true};
  static constexpr BatchRule batch = batch_along_dim;
  static constexpr CheckRule check = check_iota;
  static constexpr AttributeText attributes = tessera::detail::dim_text;
};

using PositionOperations = OperationList<ArangeOp, IotaOp>;

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
