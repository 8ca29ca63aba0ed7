#ifndef TESSERA_GRAPH_TRACE_TREE_HPP
#define TESSERA_GRAPH_TRACE_TREE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/graph/trace/model.hpp>

namespace tessera {

template <class T, class Visitor> constexpr void for_each_leaf(T& object, Visitor& visitor);

namespace detail {
/// What the block of a Stack contains. The number of layers is the leading extent of the block's tensors; a Stack of
/// blocks without tensors has a Dim with that number as its first leaf.
struct BlockLeaves {
  bool tensor = false, stack = false;
  template <class Leaf> constexpr void leaf(const Leaf&) { tensor = tensor || StoredOperand<Leaf>; }
  constexpr void enter_stack(const auto&) { stack = true; }
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}

  template <class Block> static constexpr BlockLeaves of() {
    BlockLeaves found;
    if constexpr (!Operand<Block>) {
      Block block{};
      for_each_leaf(block, found);
    }
    return found;
  }
};
template <class Block>
inline constexpr bool counts_layers_v = [] {
  const BlockLeaves found = BlockLeaves::of<Block>();
  return !found.tensor && !found.stack;
}();
}  // namespace detail

/// Visits the leaves of a model (tensors, Dims and Scalars) in the order of their declaration, through structs, tuples,
/// arrays and stacks: visitor.leaf(x). For a Stack it calls enter_stack(stack), enter_layer(i) before each layer, and
/// leave_stack(). The number of layers is a leaf of its own where the block has no tensors.
template <class T, class Visitor> constexpr void for_each_leaf(T& object, Visitor& visitor) {
  using U = std::remove_const_t<T>;
  if constexpr (detail::is_leaf_v<U>) {
    visitor.leaf(object);
  } else if constexpr (detail::is_stack_v<U>) {
    if constexpr (detail::counts_layers_v<typename U::block>) {
      Dim count = object.count();
      visitor.leaf(count);
      if constexpr (!std::is_const_v<T>) object.set_count(count);
    }
    visitor.enter_stack(object);
    for (int i = 0; i < object.size(); ++i) {
      visitor.enter_layer(i);
      for_each_leaf(object[i], visitor);
    }
    visitor.leave_stack();
  } else if constexpr (detail::is_tuple_v<U>) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (for_each_leaf(std::get<I>(object), visitor), ...);
    }(std::make_index_sequence<std::tuple_size_v<U>>());
  } else if constexpr (detail::is_array_v<U>) {
    for (auto& item : object) for_each_leaf(item, visitor);
  } else {
    if constexpr (detail::own_fault<U>() != detail::ModelFault::none)
      (void)sizeof(detail::ExplainField<U>);
    else if constexpr (!std::is_empty_v<U>)
      detail::with_fields(object, [&](auto&... fields) { (for_each_leaf(fields, visitor), ...); });
  }
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
