#ifndef TESSERA_GRAPH_IR_VALUE_HPP
#define TESSERA_GRAPH_IR_VALUE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include <tessera/base/defined_in_ops.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/attributes/made_by.hpp>
#include <tessera/graph/ir/attributes/number_rule.hpp>
#include <tessera/graph/ir/attributes/storage.hpp>
#include <tessera/graph/ir/graph.hpp>
#include <tessera/graph/ir/host_number.hpp>

namespace tessera {

/// A handle of a node in a graph under construction, without static type: gradient rules and the typed functions build
/// graphs with it.
struct Value {
  Module* module = nullptr;
  int graph = 0;
  int id = -1;
  Source source{};  ///< the user's line, given to nodes that are made from this value

  constexpr const Node& node() const { return module->graphs[static_cast<std::size_t>(graph)].nodes.data()[id]; }
  constexpr int rank() const { return node().rank; }
  constexpr DType dtype() const { return node().dtype; }
  constexpr bool is_singleton(int dim) const { return (node().singletons >> dim & 1) != 0; }
  /// How many dims the value has in front of the `typed_rank` dims of its static type: the layers of a stack, or the
  /// devices of a shard_map.
  constexpr int leading(int typed_rank) const { return rank() - typed_rank; }
  /// The dim of the value that corresponds to dim `dim` of its static type.
  constexpr int shifted(int dim, int typed_rank) const { return dim + leading(typed_rank); }
  /// The same value with another line: nodes that are made from it have the line `where`, or the user's line if `where`
  /// is in a layer of the library.
  constexpr Value at(Source where) const {
    if (module == nullptr) return {module, graph, id, where};
    if (where.inside == nullptr) where.inside = module->function;
    if (module->layer_call.line == 0 || !where.in_library()) return {module, graph, id, where};
    const char* const inside = where.inside != nullptr ? where.inside : where.file;
    return {module, graph, id, {module->layer_call.file, module->layer_call.line, inside}};
  }
  /// `given`: a constant that the message shows after the text, such as a pattern.
  constexpr void refuse(errc rule, const char* text, std::string_view given = {}) const {
    module->refuse(rule, text, source, given);
  }
  constexpr Value with(int other) const { return {module, graph, other, source}; }
  constexpr Value make(Node made, std::initializer_list<std::int32_t> operands) const {
    return make(made, operands.begin(), static_cast<int>(operands.size()));
  }
  constexpr Value make(Node made, const std::int32_t* operands, int arity) const {
    made.source = source;
    return with(module->graph(graph).add(made, operands, arity));
  }
  constexpr Value number(double value, DType type) const { return make({.dtype = type, .value = value}, {}); }
  constexpr Value number(double value) const { return number(value, dtype()); }
  constexpr Value integer(std::int64_t value, DType type) const { return make(integer_node(value, type), {}); }
  constexpr bool is_number(double value) const {
    const Node& own = node();
    return own.is_constant() && own.value == value;
  }
  friend constexpr bool operator==(const Value& x, const Value& y) { return x.graph == y.graph && x.id == y.id; }
};

/// Whether a node is a host scalar: computed on the host from constants, sizes, Dims and Scalars.
constexpr bool is_host_number(const Graph& graph, int id) {
  const Node& node = graph[id];
  if (node.rank != 0) return false;
  const OpRow& row = row_of(node);
  if (row.host_source != HostSource::no) return true;
  bool all = row.kind == OpKind::elementwise;
  for (int i = 0; i < node.arity && all; ++i) all = is_host_number(graph, graph.operand(id, i));
  return all;
}
constexpr bool is_host_number(const Value& v) { return is_host_number(v.module->graph(v.graph), v.id); }

namespace build {

/// Refuses a computation with 8-bit floats. Public functions refuse their types at compile time; compositions of
/// operations, and sums of gradients, come here.
constexpr void require_arithmetic(Value x) {
  if (is_float8(x.dtype()))
    x.refuse(errc::unsupported,
             "[arithmetic] element type: 8-bit floats are stored and moved, not computed with; cast them first");
}

/// The dims along which x extends (is not broadcast), as bits of the dims of a result of the given rank.
constexpr unsigned extending_dims(const Node& x, int rank) {
  const unsigned own = ~unsigned{x.singletons} & ((1u << x.rank) - 1);
  return rank >= x.rank ? own << (rank - x.rank) : own >> (x.rank - rank);
}

/// Sets the rank and static singleton dims of `made` to those of x and y broadcast against each other, trailing dims
/// aligned.
constexpr void broadcast_type(Node& made, const Node& x, const Node& y) {
  made.rank = x.rank > y.rank ? x.rank : y.rank;
  // Dims of an operand that are not of static extent 1, shifted to their positions in the result.
  const unsigned extends = (~x.singletons & ((1u << x.rank) - 1)) << (made.rank - x.rank) |
                           (~y.singletons & ((1u << y.rank) - 1)) << (made.rank - y.rank);
  made.singletons = static_cast<std::uint8_t>(~extends & ((1u << made.rank) - 1));
}

constexpr Value unary(Op op, Value x) {
  const Node& from = x.node();
  require_arithmetic(x);
  return x.make(
      {.op = op, .dtype = row_of(op).result_type(from.dtype), .rank = from.rank, .singletons = from.singletons}, &x.id,
      1);
}
constexpr Value binary(Op op, Value x, Value y) {
  const Node &a = x.node(), &b = y.node();
  require_arithmetic(x);
  Node made{.op = op, .dtype = row_of(op).result_type(a.dtype)};
  broadcast_type(made, a, b);
  const std::int32_t operands[] = {x.id, y.id};
  return x.make(made, operands, 2);
}

TESSERA_DEFINED_IN_OPS_BEGIN
// Nodes that code outside of ops/ makes too. Each is defined in ops/ with its operation.
constexpr Value cast(Value x, DType type);
/// A cast that checks `rule`: a constant now, any other host scalar when its value is known.
constexpr Value checked_cast(Value x, DType type, NumberRule rule);
/// x broadcast to the shape of `like`; x itself when the shapes are statically equal.
constexpr Value broadcast(Value x, Value like);
/// The earliest value in the graph that has the shape of x by construction.
constexpr Value shape_source(Value x);
/// x, checked to have the shape of `like`: shapes are compared when the program is planned, unless they are equal by
/// construction.
constexpr Value of_shape(Value x, Value like, MadeBy by);
/// The transpose of broadcast: sums x over the dims along which `like` was broadcast.
constexpr Value sum_to(Value x, Value like);
constexpr Value extent(Value x, int dim);
/// The vector 0, 1, ..., count - 1 for a host scalar `count`.
constexpr Value arange(Value count, DType type = DType::i32);
/// Inserts singleton dims at the positions (of the result) whose bits are set.
constexpr Value insert_singletons(Value x, unsigned singletons, int out_rank);
/// Moves dim `from` to position `to`; the other dims stay in order.
constexpr Value move_dim(Value x, int from, int to);
/// Sums over a bit set of dims.
constexpr Value sum_of(Value x, unsigned dims, bool keep = false);
TESSERA_DEFINED_IN_OPS_END
constexpr Value project(Value repeat, int output, const Node& type, Storage storage = Storage::block) {
  return repeat.make(projection_node(output, type, storage), {repeat.id});
}

}  // namespace build

TESSERA_DEFINED_IN_OPS_BEGIN
constexpr Value operator+(Value x, Value y);
constexpr Value operator-(Value x);
constexpr Value operator-(Value x, Value y);
constexpr Value operator*(Value x, Value y);
constexpr Value operator/(Value x, Value y);
TESSERA_DEFINED_IN_OPS_END
constexpr Value operator+(Value x, double y) { return x + x.number(y); }
constexpr Value operator-(Value x, double y) { return x - x.number(y); }
constexpr Value operator-(double x, Value y) { return y.number(x) - y; }
constexpr Value operator*(Value x, double y) { return x * x.number(y); }
constexpr Value operator*(double x, Value y) { return y * x; }
constexpr Value operator/(double x, Value y) { return y.number(x) / y; }

namespace build {
/// The sum of two cotangents of a value; of a value of 8-bit floats, which can't be added, it is computed in f32.
constexpr Value add_cotangents(Value x, Value y) {
  if (!is_float8(x.dtype())) return x + y;
  return cast(cast(x, DType::f32) + cast(y, DType::f32), x.dtype());
}
}  // namespace build

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
