#ifndef TESSERA_GRAPH_IR_NODE_HPP
#define TESSERA_GRAPH_IR_NODE_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <bit>
#include <cstdint>

#include <tessera/base/dtype.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/base/integers/hash.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/ir/op.hpp>

namespace tessera {

struct OpRow;

/// Attribute bytes of a node. Each operation has its own encoding: structs in graph/ir/attributes/ or next to the
/// operation.
using Labels = std::array<std::int8_t, 24>;

/// One operation of a graph. dtype, rank and the dims of static extent 1 (`singletons`) are known at compile time.
struct Node {
  Op op = Op::constant;  ///< by default a constant
  DType dtype = DType::f32;
  std::uint8_t rank = 0;
  std::uint8_t singletons = 0;  ///< bit d: dim d has extent 1 in every call
  std::uint8_t region = 0;      ///< the checkpoint that its gradient recomputes it in, see Module::regions; 0: none
  std::uint16_t arity = 0;      ///< number of operands
  bool derived = false;         ///< made by a gradient rule, not by the user's code
  std::int32_t first = 0;       ///< index of the first operand in the graph's operand list; an absent operand is -1
  Labels labels{};
  double value = 0;  ///< the value of a constant; the index of an argument, of a spec or of a body
  Source source{};
  std::uint64_t hash = 0;
  /// the operation's row; set when the node is added to a graph, but for a custom call, which is made with its row
  const OpRow* row = nullptr;

  constexpr bool is_singleton(int dim) const { return (singletons >> dim & 1) != 0; }
  constexpr int index() const { return static_cast<int>(value); }

  // Passes know these operations by name; everything else about an operation they read from its row.
  constexpr bool is_argument() const { return op == Op::argument; }
  constexpr bool is_dim() const { return op == Op::dim; }
  constexpr bool is_scalar() const { return op == Op::scalar; }
  constexpr bool is_constant() const { return op == Op::constant; }
  constexpr bool is_repeat() const { return op == Op::repeat; }
  constexpr bool is_projection() const { return op == Op::project; }
  constexpr bool is_variable() const { return op == Op::variable; }
  constexpr bool is_name() const { return op == Op::name; }
};

/// An argument: a tensor leaf of the program's arguments, or in a body an operand of its repeat.
constexpr Node argument_node(int index, DType dtype, int rank, unsigned singletons = 0) {
  return {.op = Op::argument,
          .dtype = dtype,
          .rank = static_cast<std::uint8_t>(rank),
          .singletons = static_cast<std::uint8_t>(singletons),
          .value = static_cast<double>(index)};
}
constexpr Node dim_node(int index) { return {.op = Op::dim, .dtype = DType::i64, .value = static_cast<double>(index)}; }
constexpr Node scalar_node(int index) {
  return {.op = Op::scalar, .dtype = DType::f64, .value = static_cast<double>(index)};
}

constexpr bool same_static_shape(const Node& x, const Node& y) {
  return x.rank == y.rank && x.singletons == y.singletons;
}

/// A read-only graph: nodes in topological order.
struct GraphView {
  const Node* nodes = nullptr;
  const std::int32_t* operands = nullptr;
  const std::int32_t* outputs = nullptr;
  int size = 0;
  int output_count = 0;

  constexpr const Node& operator[](int id) const { return nodes[id]; }
  constexpr int operand(int id, int i) const { return operands[nodes[id].first + i]; }
  constexpr const Node& operand_node(int id, int i) const { return nodes[operand(id, i)]; }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
