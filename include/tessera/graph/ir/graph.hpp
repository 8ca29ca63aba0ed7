#ifndef TESSERA_GRAPH_IR_GRAPH_HPP
#define TESSERA_GRAPH_IR_GRAPH_HPP
#include <tessera/base/push_macros.hpp>

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/integers/narrow.hpp>
#include <tessera/graph/ir/precision.hpp>
#include <tessera/graph/ir/row.hpp>
#include <tessera/mesh/partition_spec.hpp>

namespace tessera {

/// A graph under construction. Adding a node equal to an existing node returns that node: common subexpressions are
/// shared from the start.
class Graph {
 public:
  Growable<Node> nodes;
  Growable<std::int32_t> operands;
  Growable<std::int32_t> outputs;

  constexpr int size() const { return static_cast<int>(nodes.size()); }
  constexpr const Node& operator[](int id) const { return nodes.data()[id]; }
  constexpr int operand(int id, int i) const { return operands.data()[nodes.data()[id].first + i]; }
  constexpr const Node& operand_node(int id, int i) const { return nodes.data()[operand(id, i)]; }
  constexpr GraphView view() const {
    return {nodes.data(), operands.data(), outputs.data(), size(), static_cast<int>(outputs.size())};
  }

  constexpr int add(Node node, const std::int32_t* begin, int arity) {
    node.arity = narrow<std::uint16_t>(arity, "[graph] operands of one operation");
    const Words words = std::bit_cast<Words>(node.labels);
    const auto value = std::bit_cast<std::uint64_t>(node.value);
    std::uint64_t h = static_cast<std::uint64_t>(node.op) << 24 | static_cast<std::uint64_t>(node.dtype) << 16 |
                      static_cast<std::uint64_t>(node.rank) << 8 | node.singletons;
    // One expression a word: compilers count statements towards the limit on constant expressions.
    h = ((h * mix ^ value) * mix ^ words.a) * mix ^ (words.b * 31 + words.c);
    for (int i = 0; i < arity; ++i) h = (h ^ h >> 29 ^ static_cast<std::uint64_t>(begin[i] + 2)) * mix;
    node.hash = h ^ h >> 32;
    std::int32_t& head = heads_[node.hash % buckets];
    const Node* const all = nodes.data();
    for (int id = head - 1; id >= 0; id = next_.data()[id] - 1)
      if (all[id].hash == node.hash && same(all[id], node, words, value, begin)) return id;
    next_.push_back(head);
    head = size() + 1;
    if (node.op != Op::custom_call) node.row = &row_of(node.op);
    node.first = static_cast<std::int32_t>(operands.size());
    for (int i = 0; i < arity; ++i) operands.push_back(begin[i]);
    nodes.push_back(node);
    return head - 1;
  }
  constexpr int add(const Node& node, std::initializer_list<std::int32_t> list = {}) {
    return add(node, list.begin(), static_cast<int>(list.size()));
  }
  /// Adds a node that is known to be new, without entering it in the hash table: add() will not find it.
  constexpr int append(Node node, const std::int32_t* begin) {
    node.first = static_cast<std::int32_t>(operands.size());
    for (int i = 0; i < node.arity; ++i) operands.push_back(begin[i]);
    nodes.push_back(node);
    return size() - 1;
  }

 private:
  struct Words {
    std::uint64_t a, b, c;
  };
  static constexpr std::uint64_t mix = 0x9e3779b97f4a7c15ull;
  static constexpr std::size_t buckets = 512;
  std::int32_t heads_[buckets]{};  ///< by bucket: 1 + its newest node; 0: none
  Growable<std::int32_t> next_;    ///< by node: 1 + the next older node of its bucket; 0: none

  constexpr bool same(const Node& x, const Node& y, const Words& words, std::uint64_t value,
                      const std::int32_t* begin) const {
    if (x.op != y.op || x.dtype != y.dtype || x.rank != y.rank || x.singletons != y.singletons || x.arity != y.arity)
      return false;
    const Words other = std::bit_cast<Words>(x.labels);
    if (other.a != words.a || other.b != words.b || other.c != words.c ||
        std::bit_cast<std::uint64_t>(x.value) != value)
      return false;
    for (int i = 0; i < x.arity; ++i)
      if (operands.data()[x.first + i] != begin[i]) return false;
    return true;
  }
};

/// Why a trace was refused: the message of the operation that can't take its operands, a value at the end of the
/// message (optional), and the line of the call.
struct Refusal {
  const char* text = nullptr;
  std::uint32_t line = 0;
  std::string_view given{};  ///< a constant, such as a string literal
};

/// A body of a repeat while it is traced.
struct OpenBody {
  int graph = 0, around = 0;  ///< its graph, and the graph in which it is called
  int arguments = 0;          ///< how many it has so far
  /// The values of the graph around it that it reads, and the arguments that these are in the body.
  Growable<std::int32_t> captured, inside;
  // Of the function of a vmap with a name for its axis:
  Name axis{};
  std::int32_t index_of_example = -1;  ///< an argument of the body
};

/// Which values of a checkpointed function are stored for its gradient; it recomputes all others.
struct CheckpointPolicy {
  enum class Kind : std::uint8_t {
    nothing,
    everything,
    dots,
    dots_without_batch_dims,
    names,
    names_but,       ///< all values with a name, except for some names
    everything_but,  ///< all values but those with one of some names
    all_but_constraints,
    all_but_gathers  ///< all values but the parameters that a wrapper gathers
  };
  static constexpr int max_names = 8;

  Kind kind = Kind::nothing;
  Kind other = Kind::nothing;  ///< a second rule: values that either rule stores are stored
  Name names[max_names]{};     ///< of the kind that has names

  constexpr bool has(const Name& name) const {
    for (const Name& own : names)
      if (!own.empty() && own == name) return true;
    return false;
  }
  constexpr bool is(Kind wanted) const { return kind == wanted || other == wanted; }
  constexpr bool has_names() const { return is(Kind::names) || is(Kind::names_but) || is(Kind::everything_but); }
};

namespace detail {
/// How the tensors of structs are spread over the devices of a ts::shard_map. Defined in ops/shard_map/.
struct FieldsOfDevices;
}  // namespace detail

/// A traced program: graph 0 is the program itself, the others are bodies of repeats.
struct Module {
  Growable<Graph> graphs = Growable<Graph>(1);
  Growable<OpenBody> open;             ///< the bodies that are being traced, the innermost last
  int current = 0;                     ///< the graph to which the trace adds nodes: the innermost body, or the program
  Growable<PartitionSpec> specs;       ///< of the constraint nodes
  Growable<bool> results_in_layers;    ///< by output of the program: whether it is a field of a Stack
  Growable<CheckpointPolicy> regions;  ///< of the checkpoints: Node::region counts them from 1
  int variables = 0;                   ///< how many nodes `variable` there are, each different from all others
  Precision matmul_precision = Precision::full;  ///< of f32 products that the traced function gives none
  DType product_type = DType::f32;  ///< the element type of their operands and results, as ts::autocast sets it
  Source layer_call{};              ///< the user's call of the layer that is being traced; see LayerCall
  const char* function = nullptr;   ///< the library function that the user called; see FunctionCall
  const detail::FieldsOfDevices* fields = nullptr;  ///< of the shard_map whose function is being traced
  Refusal refusal{};                                ///< the first
  /// an outline: operations are not recorded but counted, and return values of the right types. It finds out whether a
  /// function can be traced
  bool outline = false;
  int operations = 0;  ///< counted by an outline

  constexpr Graph& main() { return graphs[0]; }
  constexpr const Graph& main() const { return graphs[0]; }
  constexpr Graph& graph(int index) { return graphs[static_cast<std::size_t>(index)]; }
  constexpr int add_graph() {
    graphs.emplace_back();
    return static_cast<int>(graphs.size()) - 1;
  }
  /// Reports that an operation can't take its operands. In a constant expression the trace continues as an outline and
  /// ends with this message; if it ended here, compilers would list all calls that led here.
  constexpr void refuse(errc id, const char* text, Source at = {}, std::string_view given = {}) {
    if (!__builtin_is_constant_evaluated()) fail(id, text, given.empty() ? "" : ": ", given, at);
    if (refusal.text == nullptr) refusal = {text, at.line, given};
    outline = true;
  }
  constexpr int add_spec(const PartitionSpec& spec) {
    for (std::size_t i = 0; i < specs.size(); ++i)
      if (specs[i] == spec) return static_cast<int>(i);
    specs.push_back(spec);
    return static_cast<int>(specs.size()) - 1;
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
