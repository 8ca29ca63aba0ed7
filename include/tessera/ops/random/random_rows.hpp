#ifndef TESSERA_OPS_RANDOM_RANDOM_ROWS_HPP
#define TESSERA_OPS_RANDOM_RANDOM_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <string>

#include <tessera/base/planning.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/ops/random/random_draw.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::ops {

constexpr BrokenRule check_random(const NodeCheck& c) {
  if (c.x(1).rank != 0 || (c.x(1).dtype != DType::f64 && c.x(1).dtype != DType::i64))
    return "the key is an f64 or an i64 of rank 0";
  return same_static_shape(c.node(), c.x(0)) ? BrokenRule{} : "the result has the shape of the operand";
}

// Operands: a tensor of which only the shape is used, and the key.
struct RandomOp {
  static constexpr OpRow row{.name = "random",
                             .unit = UnitKind::random,
                             .arity = 2,
                             .shape = like_shape,
                             .sharding = like_sharding,
                             .flops = 20,
                             .shape_only = 1};
  /// A number as key gives each example its own draws. A tensor gives all examples that have it the same draws.
  static constexpr BatchRule batch = [](const Batch& b) -> Batched {
    if (b.differs(1)) return {};
    if (b.one(1).dtype == DType::f64) return b.make(b.batched(), {b.full(0).id, b.x(1).id});
    const Batched made = b.make(b.node(), {b.shape_of_one(0).id, b.x(1).id});
    return {made.id, -1};
  };
  static constexpr CheckRule check = check_random;
  static constexpr AttributeText attributes = [](const ProgramView&, const GraphView& graph, int id) {
    const RandomDraw draw = RandomDraw::of(graph[id]);
    return (draw.distribution == Distribution::uniform ? "uniform, stream " : "normal, stream ") +
           std::to_string(draw.stream);
  };
};

using RandomOperations = OperationList<RandomOp>;

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
