#ifndef TESSERA_OPS_OPERATION_HPP
#define TESSERA_OPS_OPERATION_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/attributes/alike.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/row.hpp>
#include <tessera/graph/transform/batch.hpp>

namespace tessera {

namespace ops {

/// An operation is a struct in ops/ with
///   row       what passes need to know (graph/ir/row.hpp); elementwise operations give parts of it
///             (elementwise_operation.hpp)
///   gradient  a GradientRule, if it has a gradient
///   batch     a BatchRule; without one, vmap runs the operation in a loop over examples
///   simplify  a SimplifyRule, if it has one
/// It is in the list of its family; rows.hpp joins these lists.
template <class... Operation> struct OperationList {};

/// How a function (its `leading_dims`) works on local values of a shard_map, which in the graph have a leading dim for
/// each mesh axis along which they differ.
enum class LeadingDims : std::uint8_t {
  counted,   ///< it works on trailing dims, counted from the static rank; leading dims pass through
  aligned,   ///< operands are broadcast against each other, trailing dims aligned
  extended,  ///< all operands need all leading dims in their full extents
  labels,    ///< leading dims become labels of the contraction, see its `labels`
  like,      ///< the first operand is broadcast to the leading dims of the second
  batch,     ///< leading dims are merged into the first dim of the operands and of the result; see `batched`
  mapped,    ///< it is made for one device, and then for all devices as in vmap
};
template <class Function>
inline constexpr LeadingDims leading_dims_v = [] {
  if constexpr (requires { Function::leading_dims; })
    return Function::leading_dims;
  else
    return LeadingDims::counted;
}();

template <class... List> struct JoinedLists;
template <class... A, class... B, class... More>
struct JoinedLists<OperationList<A...>, OperationList<B...>, More...>
    : JoinedLists<OperationList<A..., B...>, More...> {};
template <class... A> struct JoinedLists<OperationList<A...>> {
  using type = OperationList<A...>;
};

constexpr OpRow row_of_rules(OpRow row, bool simplifies) {
  row.simplifies = simplifies;
  return row;
}
/// The row of an operation. It is a variable of its own, so that a program contains only the rows of its operations.
template <class Operation>
inline constexpr OpRow row_v = row_of_rules(
    Operation::row, requires { Operation::simplify; });

template <class Operation> inline constexpr Op op_v = static_cast<Op>(operation_id(row_v<Operation>.name));

}  // namespace ops

TESSERA_PLANNING inline std::string shape_text(DType dtype, const Shape& shape) {
  std::string text(name_of(dtype));
  text += '[';
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (d > 0) text += ',';
    text += std::to_string(shape[d]);
  }
  return text + ']';
}

/// The element type of an operand as messages show it. A scatter_add gets its source in the type in which it adds; the
/// tensor to which it adds has the type that the program has given.
constexpr DType shown_dtype(const ShapeContext& c, int operand) {
  return c.graph.operand_node(c.id, c.node().op == Op::scatter_add && operand == 0 ? 2 : operand).dtype;
}

/// The name of a function that makes a column of each vector, for a function that takes matrices. Errors show the
/// vectors, which the user gave.
inline constexpr const char* column_of_vector = "column";
TESSERA_PLANNING inline const Shape& given_shape(const ShapeContext& c, int operand) {
  const int id = c.graph.operand(c.id, operand);
  return c.shapes[c.graph[id].source.function() == column_of_vector ? c.graph.operand(id, 0) : id];
}
/// The shapes of an operation's tensors and the values of its sizes. `shown`: how many operands the message shows,
/// where the user did not give the later ones.
TESSERA_PLANNING inline std::string operands_text(const ShapeContext& c, int shown) {
  const OpRow& row = row_of(c.node());
  std::string operands;
  for (int i = 0; i < c.node().arity && i < shown; ++i) {
    if (!c.has(i)) continue;
    const Node& x = c.graph.operand_node(c.id, i);
    const bool size =
        (row.unit == UnitKind::data_movement || row.unit == UnitKind::sort || row.unit == UnitKind::along) &&
        x.rank == 0 && x.dtype == DType::i64 && c.numbers != nullptr;
    // Of other operations the rule tells what is wrong with a size.
    const bool known = c.host != nullptr && c.host[c.graph.operand(c.id, i)] != 0;
    if (!size && (x.is_constant() || known)) continue;
    if (!operands.empty()) operands += size ? ", " : " x ";
    operands += size ? std::to_string(c.number(i)) : shape_text(shown_dtype(c, i), given_shape(c, i));
  }
  return operands;
}
/// Throws an error with the operation, the shapes of its tensors, the values of its sizes and the user's line.
[[noreturn]] inline void fail_operation(errc id, const ShapeContext& c, const std::string& why, std::string_view name,
                                        int shown = std::numeric_limits<int>::max()) {
  const std::string_view own = name.empty() ? row_of(c.node()).name : name, function = c.node().source.function();
  const std::string operands = operands_text(c, shown);
  fail(id, "[", own, "] ", why, operands.empty() ? "" : ": ", operands,
       function.empty() || function == own ? "" : " in ", function == own ? "" : function, c.node().source);
}

TESSERA_PLANNING inline bool names_parameter(const Node& node) {
  return node.op == Op::alike && Alike::of(node).of_update;
}
/// The optimizer in whose update of a parameter an operation is; empty outside of one. An `alike` of an update has the
/// name of the parameter instead, and its first operand, or if that is a gradient the operations that read it, have
/// that of the optimizer.
TESSERA_PLANNING inline std::string_view update_function(const GraphView& graph, int id) {
  if (!names_parameter(graph[id])) return graph[id].source.function();
  std::string_view function = graph.operand_node(id, 0).source.function();
  for (int reader = id + 1; reader < graph.size && function.empty(); ++reader)
    for (int i = 0; i < graph[reader].arity; ++i)
      if (graph.operand(reader, i) == id && !names_parameter(graph[reader])) function = graph[reader].source.function();
  return function;
}
/// The `alike` that ends the update to which an operation of an optimizer belongs; -1 for all other operations. The
/// updates of two parameters have no operations in common but numbers, such as a norm of all gradients.
TESSERA_PLANNING inline int find_update(const GraphView& graph, int id) {
  const std::string_view function = update_function(graph, id);
  if (function.empty()) return -1;
  Growable<bool> found(static_cast<std::size_t>(graph.size));
  found[static_cast<std::size_t>(id)] = true;
  const auto belongs = [&](int other) {
    const Node& node = graph[other];
    return (node.rank > 0 || node.is_repeat()) && node.source.function() == function;
  };
  for (bool grows = true; grows;) {
    grows = false;
    for (int reader = 0; reader < graph.size; ++reader)
      for (int i = 0; i < graph[reader].arity; ++i) {
        const int read = graph.operand(reader, i);
        if (read < 0 || found[static_cast<std::size_t>(read)] == found[static_cast<std::size_t>(reader)]) continue;
        const int next = found[static_cast<std::size_t>(read)] ? reader : read;
        if (!belongs(next)) continue;
        found[static_cast<std::size_t>(next)] = grows = true;
      }
  }
  for (int last = 0; last < graph.size; ++last) {
    if (names_parameter(graph[last]) && (last == id || found[static_cast<std::size_t>(graph.operand(last, 0))]))
      return last;
  }
  return -1;
}
/// Throws shape_mismatch; in the update of a parameter by an optimizer, `structure`. Not constexpr on purpose: in a
/// constant expression it ends the compilation.
[[noreturn]] inline void fail_shapes(const ShapeContext& c, const std::string& why, std::string_view name = {},
                                     int shown = std::numeric_limits<int>::max()) {
  if (const int update = find_update(c.graph, c.id); update >= 0) {
    const std::string_view path = c.graph[update].source.inside;
    const int parameter = c.graph.operand(update, 1);
    fail(
        errc::structure, "[", update_function(c.graph, c.id),
        "] shapes: model, gradients and state must be of one model; ", path.empty() ? "the tensor" : path,
        parameter < c.id ? concat_text(" is ", shape_text(c.graph[parameter].dtype, c.shapes[parameter]), ", but") : "",
        " its update has ", operands_text(c, shown), c.node().source);
  }
  fail_operation(errc::shape_mismatch, c, why, name, shown);
}
/// Throws shape_mismatch where the result, of i32, counts more elements than i32 can. `counted`: what has them.
constexpr void check_countable(const ShapeContext& c, std::int64_t elements, const char* counted = "the dim has",
                               std::string_view name = {}) {
  if (c.node().dtype == DType::i32 && elements > 0x7fffffff)
    fail_shapes(c, concat_text(counted, " more elements than i32 indices can count; use std::int64_t indices"), name);
}
/// Throws capacity, for a result that exceeds the limits of tensors.
[[noreturn]] inline void fail_large(const ShapeContext& c, const Shape& result) {
  fail_operation(errc::capacity, c, concat_text("more than 2^52 elements in ", shape_text(c.node().dtype, result)), {});
}
[[noreturn]] inline void fail_large(const ShapeContext& c) {
  fail_operation(errc::capacity, c, "more than 2^52 elements", {});
}

TESSERA_PLANNING_BEGIN

namespace ops {

// Rules that rows of several families have.

constexpr Shape scalar_shape(const ShapeContext&) { return {}; }
constexpr Shape like_shape(const ShapeContext& c) { return c.operand(0); }
constexpr void no_factors(const GraphView& graph, int id, FactorRule& rule) {
  rule.operands.resize(static_cast<std::size_t>(graph[id].arity));
}
constexpr void like_sharding(const GraphView& graph, int id, FactorRule& rule) {
  rule.operands.resize(static_cast<std::size_t>(graph[id].arity));
  for (int d = 0; d < graph[id].rank; ++d)
    if (!graph[id].is_singleton(d)) {
      rule.result.dims[d].push_back(static_cast<std::int8_t>(rule.add(FactorKind::pass)));
      rule.operands[0].dims[d] = rule.result.dims[d];
    }
}

constexpr BrokenRule check_number(const NodeCheck& c) { return c.node().rank == 0 ? BrokenRule{} : "the rank is 0"; }
constexpr BrokenRule check_size(const NodeCheck& c) {
  if (c.node().rank != 0) return "the rank is 0";
  return c.node().dtype == DType::i64 ? BrokenRule{} : "the element type of a size is i64";
}
constexpr BrokenRule check_like_operand(const NodeCheck& c) {
  return same_type(c.node(), c.x(0)) ? BrokenRule{} : "the result has the type of the operand";
}

}  // namespace ops

TESSERA_PLANNING_END

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
