#ifndef TESSERA_PARTITION_PROPAGATION_SHAPES_HPP
#define TESSERA_PARTITION_PROPAGATION_SHAPES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/attributes/repeat.hpp>
#include <tessera/graph/ir/attributes/storage.hpp>
#include <tessera/graph/ir/program.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/ops/rows.hpp>
#include <tessera/partition/plan/planned_mesh.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// The shapes and host scalars of the nodes of one graph, for given shapes of the arguments.
struct GraphShapes {
  Growable<Shape> shapes;        ///< by node; empty for host scalars and repeats
  Growable<HostNumber> numbers;  ///< by node: the values of host scalars, 0 for other nodes
  std::int64_t layers = 1;       ///< of the body of a repeat: how many layers it runs
};

namespace detail {

/// The axes of the refined mesh that a named axis or sub-axis consists of, one bit each.
constexpr unsigned named_axes(const Name& axis, const Node& node, const PlannedMesh& mesh) {
  if (!mesh.given.has_axis(axis.view())) ops::fail_named_axis("unknown axis", axis, node, mesh.given);
  return axes_mask(mesh.given, mesh.cuts, axis.view());
}

/// The value of a host scalar, from the values of earlier nodes. Integers are exact, and divide towards zero as in C++.
/// `mesh` gives sizes of axes; null keeps the sizes that `numbers` has. `known` is false for what depends on a Scalar:
/// its integers wrap instead of failing.
constexpr HostNumber host_number(const GraphView& graph, int id, const Shape* shapes, const HostNumber* numbers,
                                 const HostNumber* arguments, const Mesh* mesh, bool known) {
  const Node& node = graph[id];
  const OpRow& row = row_of(node);
  if (row.host != nullptr) return row.host({graph, id, shapes, numbers, arguments, mesh});
  const HostNumber first = numbers[graph.operand(id, 0)];
  const HostNumber second = node.arity > 1 ? numbers[graph.operand(id, 1)] : HostNumber();
  if (row.integers != nullptr && !is_floating(graph.operand_node(id, 0).dtype)) {
    std::int64_t exact = 0;
    const IntegerResult found = row.integers(first.integer(), second.integer(), exact);
    if (found == IntegerResult::known) return exact;
    if (known) fail_integers(found, row.name, first.integer(), second.integer(), node.source);
    return found == IntegerResult::too_large ? exact : 0;
  }
  // A constant expression cannot divide by 0. The divisor is a Scalar whose value is not known yet; no shape depends on
  // it.
  if (row.divides && second.real() == 0 && __builtin_is_constant_evaluated()) return 0;
  double result = 0;
  if (row.folds_constants || !__builtin_is_constant_evaluated()) result = row.number(first.real(), second.real(), 0);
  if (node.dtype == DType::bool_) return result != 0;
  if (!is_floating(node.dtype)) return HostNumber(result).integer();
  return computed_as(node.dtype) == DType::f32 ? static_cast<double>(static_cast<float>(result)) : HostNumber(result);
}

[[noreturn]] inline void fail_program(const ShapeContext& c) {
  fail_operation(errc::capacity, c,
                 "the values of the program up to this operation have more than 2^55 elements together", {});
}
/// Reports that operand `found` has a different number of layers or steps than operand `first`; if `first` is -1, than
/// `expected`, the number that the program gives.
[[noreturn]] inline void fail_layers(const GraphView& graph, int id, const Growable<Shape>& shapes, int first,
                                     int found, std::int64_t expected) {
  const Node& node = graph[id];
  const auto shape_of = [&](int operand) -> const Shape& {
    return shapes[static_cast<std::size_t>(graph.operand(id, operand))];
  };
  const auto text_of = [&](int operand) {
    return shape_text(graph.operand_node(id, operand).dtype, shape_of(operand));
  };
  if (Repeat::of(node).scan && first >= 0)
    fail(errc::structure, "[scan] steps: the leading dims of xs must have one extent, but xs have ", text_of(first),
         " and ", text_of(found), node.source);
  if (Repeat::of(node).scan)
    fail(errc::structure, "[scan] steps: xs have ", text_of(found), " for ", expected, " steps", node.source);
  fail(errc::structure, "[stack] layers: a tensor has ", shape_of(found)[0],
       " layers, but an earlier tensor of the Stack has ", expected, node.source);
}

[[noreturn]] inline void fail_layer_count(std::int64_t layers) {
  fail(errc::structure, "[stack] layers: a Stack has at least 1 layer, but this Stack has ", layers);
}
[[noreturn]] inline void fail_step_count(const Node& node, std::int64_t steps) {
  fail(errc::structure, "[scan] number of steps: ", steps, " is negative", node.source);
}
/// A layer's results have to have the shapes of the arguments that the next layer takes in their place, and a branch of
/// a ts::cond those of the other branch.
[[noreturn]] inline void fail_a_layer_returns_another_shape_than_it_is_given(const Node& repeat, int tensor,
                                                                             const Node& result, const Shape& given,
                                                                             const Shape& returned) {
  const Source& source = result.source.line != 0 ? result.source : repeat.source;
  const Repeat kind = Repeat::of(repeat);
  if (kind.scan && kind.limited)
    fail(errc::shape_mismatch,
         "[cond] results: the branches of ts::cond and ts::switch_case must return one shape, and a step of "
         "ts::while_loop the shape of its carry, but here the shapes are ",
         shape_text(result.dtype, given), " and ", shape_text(result.dtype, returned), source);
  fail(errc::shape_mismatch,
       kind.scan ? "[scan] carry: a step must return the shape of its carry "
                 : "[stack] result of a layer: a layer must return the shape of its argument ",
       shape_text(result.dtype, given), ", but returns ", shape_text(result.dtype, returned),
       kind.carried > 1 ? concat_text(" as tensor ", std::to_string(tensor), " of it") : std::string(), source);
}

class ShapeInference {
 public:
  constexpr ShapeInference(const ProgramView& program, const Mesh& mesh, const HostNumber* numbers,
                           Growable<GraphShapes>& found)
      : program_(program), mesh_(mesh), argument_numbers_(numbers), found_(found) {}

  constexpr void infer(int g, const Shape* arguments) {
    const GraphView graph = program_.graphs[g];
    const Growable<std::uint8_t> host = host_scalars(graph);
    Growable<Shape> shapes(static_cast<std::size_t>(graph.size));
    Growable<HostNumber> numbers(static_cast<std::size_t>(graph.size));
    for (int id = 0; id < graph.size; ++id) {
      const Node& node = graph[id];
      const auto at = static_cast<std::size_t>(id);
      if (host[at]) {
        numbers[at] = host_number(graph, id, shapes.data(), numbers.data(), argument_numbers_, &mesh_, host[at] == 1);
      } else if (node.is_repeat()) {
        infer_body(graph, id, shapes, numbers);
      } else if (node.is_projection()) {
        shapes[at] = projected(graph, id);
        count({graph, id, shapes.data(), numbers.data(), arguments}, shapes[at]);
      } else {
        const ShapeContext context{graph, id, shapes.data(), numbers.data(), arguments, host.data()};
        shapes[at] = row_of(node).shape(context);
        count(context, shapes[at]);
        if (node.is_argument() && shapes[at].size() != node.rank)
          fail(errc::rank_mismatch, "[argument] rank: argument ", node.index(), " has rank ", shapes[at].size(),
               ", but the program was traced for rank ", int{node.rank});
      }
    }
    found_[static_cast<std::size_t>(g)].shapes = std::move(shapes);
    found_[static_cast<std::size_t>(g)].numbers = std::move(numbers);
  }

 private:
  ProgramView program_;
  const Mesh& mesh_;
  const HostNumber* argument_numbers_;
  Growable<GraphShapes>& found_;
  std::int64_t elements_ = 0;  ///< of all values together

  /// Checks the sizes of a value before anything is computed from its shape.
  constexpr void count(const ShapeContext& c, const Shape& shape) {
    const std::int64_t own = elements_of(shape);
    if (own < 0) fail_large(c, shape);
    elements_ += own;
    if (elements_ > max_program_elements) fail_program(c);
  }
  constexpr void infer_body(const GraphView& graph, int id, const Growable<Shape>& shapes,
                            const Growable<HostNumber>& numbers) {
    const Node& node = graph[id];
    const Repeat repeat = Repeat::of(node);
    std::int64_t layers =
        repeat.counted ? numbers[static_cast<std::size_t>(graph.operand(id, node.arity - 1))].integer() : -1;
    if (repeat.counted && !repeat.scan && layers < 1) fail_layer_count(layers);
    if (repeat.counted && layers < 0) fail_step_count(node, layers);
    Growable<Shape> arguments;
    int first = -1;  // of the operands with layers
    for (int i = 0; i < node.arity; ++i) {
      Shape shape = shapes[static_cast<std::size_t>(graph.operand(id, i))];
      if (repeat.is_stacked(i)) {
        if (shape.empty())
          fail(errc::structure, "[repeat] layers: a tensor of rank 0 has no leading dim for layers or steps");
        if (layers >= 0 && layers != shape[0]) fail_layers(graph, id, shapes, first, i, layers);
        layers = shape[0];
        if (first < 0) first = i;
        shape.erase(0);
      }
      arguments.push_back(shape);
    }
    infer(node.index(), arguments.data());
    GraphShapes& inner = found_[static_cast<std::size_t>(node.index())];
    inner.layers = layers;
    const GraphView& body = program_.graphs[node.index()];
    for (int k = 0; k < repeat.carried; ++k) {
      const int result = body.outputs[k];
      const Shape& returned = inner.shapes[static_cast<std::size_t>(result)];
      if (!(returned == arguments[static_cast<std::size_t>(k)]))
        fail_a_layer_returns_another_shape_than_it_is_given(node, k, body[result],
                                                            arguments[static_cast<std::size_t>(k)], returned);
    }
  }

  constexpr Shape projected(const GraphView& graph, int id) const {
    const Node& repeat = graph.operand_node(id, 0);
    const int output = output_of(graph[id]), body = repeat.index();
    const GraphShapes& inner = found_[static_cast<std::size_t>(body)];
    Shape shape = inner.shapes[static_cast<std::size_t>(program_.graphs[body].outputs[output])];
    if (output >= Repeat::of(repeat).carried) shape.insert(0, inner.layers);
    return shape;
  }
};

}  // namespace detail

/// Infers the shapes of all nodes of all graphs from `arguments` (shapes) and `numbers` (values of Dims and Scalars),
/// both by argument. The value of a Scalar need not be known, since no shape depends on it. `numbers` may be null when
/// the program has neither Dims nor Scalars.
/// Errors: `shape_mismatch` from the operations' shape rules; `capacity` for a value of more than max_elements, for all
/// values together of more than max_program_elements, and for sizes beyond 64 bits; `dim_range` for a Dim divided by
/// zero; `spec_axis` for the size of an axis that the mesh lacks; `structure` for stacked operands with different
/// numbers of layers.
constexpr Growable<GraphShapes> infer_shapes(const ProgramView& program, const Shape* arguments,
                                             const HostNumber* numbers, const Mesh& mesh = {}) {
  Growable<GraphShapes> found(static_cast<std::size_t>(program.graph_count));
  detail::ShapeInference(program, mesh, numbers, found).infer(0, arguments);
  return found;
}

/// Computes the host scalars of a graph for the arguments of one call; a plan from the cache was made for other values
/// of Scalars. `host` marks host scalars (see host_scalars). `values` is by node; entries of other nodes are not
/// changed.
inline void evaluate_numbers(const GraphView& graph, const Growable<std::uint8_t>& host, const Growable<Shape>& shapes,
                             const HostNumber* arguments, Growable<HostNumber>& values) {
  for (int id = 0; id < graph.size; ++id)
    if (host[static_cast<std::size_t>(id)])
      values[static_cast<std::size_t>(id)] = detail::host_number(graph, id, shapes.data(), values.data(), arguments,
                                                                 nullptr, host[static_cast<std::size_t>(id)] == 1);
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
