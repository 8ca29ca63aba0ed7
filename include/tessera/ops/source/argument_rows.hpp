#ifndef TESSERA_OPS_SOURCE_ARGUMENT_ROWS_HPP
#define TESSERA_OPS_SOURCE_ARGUMENT_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <string>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/fixed_string.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/ops/operation.hpp>

TESSERA_PLANNING_BEGIN

// What a program is given: its arguments, Dims, Scalars and constants, and the sizes of mesh axes.

namespace tessera::ops {

constexpr Shape argument_shape(const ShapeContext& c) { return c.arguments[c.node().index()]; }
constexpr HostNumber number_of_argument(const HostContext& c) {
  return c.arguments != nullptr ? c.arguments[c.node().index()] : HostNumber();
}
[[noreturn]] inline void fail_named_axis(std::string_view rule, const Name& axis, const Node& node, const Mesh& mesh) {
  fail(errc::spec_axis, "[shard_map] ", rule, ": '", axis.view(), "' is not an axis of ", mesh.text(), node.source);
}
[[noreturn]] inline void fail_axis_of_wrapper(const Name& axis, const Node& node, const Mesh& mesh) {
  fail(errc::mesh_axis, "[wrapper] axis: the parameters of a wrapped model are gathered over the axis '", axis.view(),
       "', but ", mesh.text(), " has no axis '", axis.view(), "'", node.source);
}
constexpr HostNumber size_of_axis(const HostContext& c) {
  if (c.mesh == nullptr) return c.numbers[c.id];
  const Name axis = axis_of(c.node());
  if (!c.mesh->has_axis(axis.view())) fail_named_axis("unknown axis", axis, c.node(), *c.mesh);
  return c.mesh->axis_size(c.mesh->axis_index(axis.view()));
}

constexpr BrokenRule check_argument(const NodeCheck& c) {
  return c.node().index() < 0 || (c.graph_index == 0 && c.node().index() >= c.program.argument_count)
             ? "the index of an argument is that of an argument of the program"
             : BrokenRule{};
}

inline std::string index_text(const ProgramView&, const GraphView& graph, int id) {
  return std::to_string(graph[id].index()) + (is_in_layers(graph[id]) ? ", stacked" : "");
}

struct ArgumentOp {
  static constexpr OpRow row{
      .name = "argument", .kind = OpKind::source, .shape = argument_shape, .sharding = no_factors, .flops = 0};
  static constexpr CheckRule check = check_argument;
  static constexpr AttributeText attributes = index_text;
};

struct DimOp {
  static constexpr OpRow row{.name = "dim",
                             .kind = OpKind::source,
                             .shape = scalar_shape,
                             .sharding = no_factors,
                             .host = number_of_argument,
                             .host_source = HostSource::planned,
                             .flops = 0,
                             .recomputed = true};
  static constexpr CheckRule check = check_size;
  static constexpr AttributeText attributes = index_text;
};

struct ScalarOp {
  static constexpr OpRow row{.name = "scalar",
                             .kind = OpKind::source,
                             .shape = scalar_shape,
                             .sharding = no_factors,
                             .host = number_of_argument,
                             .host_source = HostSource::run,
                             .flops = 0,
                             .recomputed = true};
  static constexpr CheckRule check = check_number;
  static constexpr AttributeText attributes = index_text;
};

struct ConstantOp {
  static constexpr OpRow row{.name = "constant",
                             .kind = OpKind::source,
                             .shape = scalar_shape,
                             .sharding = no_factors,
                             .host = [](const HostContext& c) { return number_of(c.node()); },
                             .host_source = HostSource::planned,
                             .flops = 0,
                             .recomputed = true};
  static constexpr CheckRule check = check_number;
  static constexpr AttributeText attributes = [](const ProgramView&, const GraphView& graph, int id) {
    return tessera::detail::number_text(graph[id]);
  };
};

struct AxisSizeOp {
  static constexpr OpRow row{.name = "axis_size",
                             .kind = OpKind::source,
                             .shape = scalar_shape,
                             .sharding = no_factors,
                             .host = size_of_axis,
                             .host_source = HostSource::planned,
                             .flops = 0,
                             .recomputed = true};
  static constexpr CheckRule check = check_size;
  static constexpr AttributeText attributes = [](const ProgramView&, const GraphView& graph, int id) {
    return std::string(axis_of(graph[id]).view());
  };
};

using ArgumentOperations = OperationList<ArgumentOp, DimOp, ScalarOp, ConstantOp, AxisSizeOp>;

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
