#ifndef TESSERA_GRAPH_STACK_HPP
#define TESSERA_GRAPH_STACK_HPP

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/graph/repeat_gradient.hpp>
#include <tessera/graph/tree.hpp>

namespace tessera {

namespace detail {

/// Lists the values behind the placeholders of a traced structure.
struct CollectValues {
  Growable<Value> values;
  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    if constexpr (SymOperand<std::remove_const_t<Leaf>>)
      values.push_back(leaf.value);
    else if constexpr (StoredOperand<std::remove_const_t<Leaf>>)
      values.push_back(leaf.placeholder());
  }
  constexpr void enter_stack(const auto&) { fail(errc::unsupported, "[stack] nesting: a Stack inside a Stack"); }
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};

/// Gives every tensor of a structure an argument of a body; Dims and Scalars stay what they are: they are the
/// program's.
struct BindArguments {
  Module* module;
  int body;
  int next;
  bool sliced;  ///< the values outside have a leading dim of layers
  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    if constexpr (SymOperand<Leaf> || StoredOperand<Leaf>) {
      Value outer;
      if constexpr (SymOperand<Leaf>)
        outer = leaf.value;
      else
        outer = leaf.placeholder();
      Node type = outer.node();
      if (sliced) {
        type.rank = static_cast<std::uint8_t>(type.rank - 1);
        type.unit = static_cast<std::uint8_t>(type.unit >> 1);
      }
      const int id = module->graph(body).add(build::argument_node(type, next++));
      leaf = Leaf(Value{module, body, id, type.source});
    } else if (leaf.traced()) {
      // Numbers of the program are sources: the body has nodes of its own for them.
      const Node node = leaf.placeholder().node();
      if (node.arity > 0)
        fail(errc::unsupported, "[stack] extra argument: a size that was computed can't enter a stack; "
                                "compute it in the block");
      leaf = Leaf(Value{module, body, module->graph(body).add(node), node.source});
    }
  }
  constexpr void enter_stack(auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};

}  // namespace detail

template <class Block>
template <SymOperand X, class... Extra>
constexpr X Stack<Block>::operator()(const X& x, const Extra&... extra) const {
  if (layers_.empty() || x.value.module == nullptr)
    fail(errc::structure, "[stack] layers: a Stack is called inside a traced function, and has at least one layer");
  Module* module = x.value.module;
  const int outer = x.value.graph;

  Growable<std::int32_t> operands{x.value.id};
  detail::CollectValues stacked, invariant;
  for_each_leaf(layers_.front(), stacked);
  (for_each_leaf(extra, invariant), ...);
  for (const Value& v : stacked.values) operands.push_back(v.id);
  for (const Value& v : invariant.values) operands.push_back(v.id);

  const int body = module->add_graph();
  detail::BindArguments bind{module, body, 0, false};
  X carried = x;
  for_each_leaf(carried, bind);
  Block layer = layers_.front();
  bind.sliced = true;
  for_each_leaf(layer, bind);
  bind.sliced = false;
  std::tuple<Extra...> captured(extra...);
  for_each_leaf(captured, bind);
  const X result = [&]<std::size_t... I>(std::index_sequence<I...>) -> X {
    return layer(carried, std::get<I>(captured)...);
  }(std::index_sequence_for<Extra...>{});
  const Value full = build::broadcast(result.value, carried.value);
  module->graph(body).outputs.push_back(full.id);

  const Repeat repeat{1, static_cast<std::uint8_t>(stacked.values.size()), false};
  const Source source = full.node().source;  // a call of a stack has no line of its own
  Node node{.op = Op::repeat, .labels = repeat.pack(), .value = static_cast<double>(body), .source = source};
  const Value made{module, outer, module->graph(outer).add(node, operands.data(), static_cast<int>(operands.size())),
                   source};
  return X(build::project(made, 0, x.value.node()));
}

}  // namespace tessera

#endif
