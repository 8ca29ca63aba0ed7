#ifndef TESSERA_OPS_CONTROL_ROWS_HPP
#define TESSERA_OPS_CONTROL_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/planning.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/transform/repeat_gradient.hpp>
#include <tessera/ops/operation.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::ops {

constexpr BrokenRule check_repeat(const NodeCheck& c) {
  const Node& node = c.node();
  const Repeat repeat = Repeat::of(node);
  if (node.index() <= 0 || node.index() >= c.program.graph_count || node.index() == c.graph_index)
    return "a repeat has a body of its own";
  const GraphView& body = c.program.graphs[node.index()];
  if (repeat.carried + repeat.stacked + (repeat.limited ? 1 : 0) + (repeat.counted ? 1 : 0) > node.arity)
    return "carried and stacked values are operands";
  if (repeat.counted == (repeat.stacked > 0)) return "a repeat has stacked operands or a size to count its layers";
  if (repeat.counted && (c.x(node.arity - 1).rank != 0 || is_floating(c.x(node.arity - 1).dtype)))
    return "the number of layers is an integer of rank 0";
  if (repeat.limited && (c.x(repeat.limit(node.arity)).rank != 0 || c.x(repeat.limit(node.arity)).dtype != DType::i32))
    return "the limit of layers is an i32 of rank 0";
  if (body.output_count < repeat.carried) return "a body returns each carried value";
  for (int k = 0; k < repeat.carried; ++k)
    if (!same_type(body[body.outputs[k]], c.x(k))) return "a carried value keeps its type";
  for (int a = 0; a < body.size; ++a) {
    if (!body[a].is_argument()) continue;
    const int i = body[a].index();
    if (i >= node.arity) return "an argument of a body is an operand of its repeat";
    if (!(repeat.is_stacked(i) ? stacks(c.x(i), body[a]) : same_type(c.x(i), body[a])))
      return "an argument of a body has the type of the operand";
  }
  return {};
}
constexpr BrokenRule check_project(const NodeCheck& c) {
  const Node &node = c.node(), &from = c.x(0);
  const GraphView& body = c.program.graphs[from.index()];
  const int output = output_of(node);
  if (output < 0 || output >= body.output_count) return "a projection selects an output of the body";
  const Node& type = body[body.outputs[output]];
  const bool carried = output < Repeat::of(from).carried;
  return (carried ? same_type(node, type) : stacks(node, type)) ? BrokenRule{}
                                                                : "a projection has the type of the output";
}

struct RepeatOp {
  static constexpr OpRow row{.name = "repeat", .unit = UnitKind::repeat, .arity = any_arity, .flops = 0};
  static constexpr GradientRule gradient = repeat_gradient;
  static constexpr CheckRule check = check_repeat;
  static constexpr AttributeText attributes = [](const ProgramView&, const GraphView& graph, int id) {
    const Repeat repeat = Repeat::of(graph[id]);
    return concat_text("graph ", graph[id].index(), ", ", repeat.carried, " carried, ", repeat.stacked, " stacked",
                       repeat.counted ? ", counted by its last operand" : "", repeat.reverse ? ", last to first" : "",
                       repeat.limited ? ", limited" : "", repeat.scan ? ", of a scan" : "");
  };
};

// No gradient rule: that of the repeat reads the cotangents of its projections.
struct ProjectOp {
  static constexpr OpRow row{
      .name = "project", .unit = UnitKind::repeat, .arity = 1, .linear = Linearity::first, .flops = 0};
  static constexpr CheckRule check = check_project;
  static constexpr AttributeText attributes = [](const ProgramView&, const GraphView& graph, int id) {
    return std::to_string(output_of(graph[id]));
  };
};

using ControlOperations = OperationList<RepeatOp, ProjectOp>;

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
