#ifndef TESSERA_GRAPH_TREE_HPP
#define TESSERA_GRAPH_TREE_HPP

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/graph/expr.hpp>

namespace tessera {

template <class Block> class Stack;

namespace detail {

template <class T>
inline constexpr bool is_leaf_v =
    StoredOperand<T> || SymOperand<T> || std::is_same_v<T, Dim> || std::is_same_v<T, Scalar>;
template <class T> inline constexpr bool is_stack_v = false;
template <class B> inline constexpr bool is_stack_v<Stack<B>> = true;
template <class T> inline constexpr bool is_tuple_v = false;
template <class... Ts> inline constexpr bool is_tuple_v<std::tuple<Ts...>> = true;
template <class T> inline constexpr bool is_array_v = false;
template <class T, std::size_t N> inline constexpr bool is_array_v<std::array<T, N>> = true;

struct AnyField {
  template <class T> constexpr operator T() const;
};
template <class T, class... Fields> constexpr int field_count() {
  if constexpr (requires { T{Fields{}..., AnyField{}}; })
    return field_count<T, Fields..., AnyField>();
  else
    return static_cast<int>(sizeof...(Fields));
}

/// A field that a model can't have: its run-time value would be ignored by the trace.
template <class Field>
inline constexpr bool is_model_field_v = is_leaf_v<Field> || is_stack_v<Field> || is_tuple_v<Field> ||
                                         is_array_v<Field> || (std::is_aggregate_v<Field> && std::is_class_v<Field>);

/// Calls f(field) for every field of a plain struct.
template <class T, class F> constexpr void for_each_field(T& object, F&& f) {
  constexpr int n = field_count<std::remove_const_t<T>>();
  static_assert(n <= 16,
                "tessera: a model struct has at most 16 fields; group some of them into a struct of their own");
  // clang-format off
  if constexpr (n == 1) { auto& [a] = object; f(a); }
  else if constexpr (n == 2) { auto& [a, b] = object; f(a); f(b); }
  else if constexpr (n == 3) { auto& [a, b, c] = object; f(a); f(b); f(c); }
  else if constexpr (n == 4) { auto& [a, b, c, d] = object; f(a); f(b); f(c); f(d); }
  else if constexpr (n == 5) { auto& [a, b, c, d, e] = object; f(a); f(b); f(c); f(d); f(e); }
  else if constexpr (n == 6) { auto& [a, b, c, d, e, g] = object; f(a); f(b); f(c); f(d); f(e); f(g); }
  else if constexpr (n == 7) { auto& [a, b, c, d, e, g, h] = object; f(a); f(b); f(c); f(d); f(e); f(g); f(h); }
  else if constexpr (n == 8) {
    auto& [a, b, c, d, e, g, h, i] = object;
    f(a); f(b); f(c); f(d); f(e); f(g); f(h); f(i);
  } else if constexpr (n == 9) {
    auto& [a, b, c, d, e, g, h, i, j] = object;
    f(a); f(b); f(c); f(d); f(e); f(g); f(h); f(i); f(j);
  } else if constexpr (n == 10) {
    auto& [a, b, c, d, e, g, h, i, j, k] = object;
    f(a); f(b); f(c); f(d); f(e); f(g); f(h); f(i); f(j); f(k);
  } else if constexpr (n == 11) {
    auto& [a, b, c, d, e, g, h, i, j, k, l] = object;
    f(a); f(b); f(c); f(d); f(e); f(g); f(h); f(i); f(j); f(k); f(l);
  } else if constexpr (n == 12) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m] = object;
    f(a); f(b); f(c); f(d); f(e); f(g); f(h); f(i); f(j); f(k); f(l); f(m);
  } else if constexpr (n == 13) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m, o] = object;
    f(a); f(b); f(c); f(d); f(e); f(g); f(h); f(i); f(j); f(k); f(l); f(m); f(o);
  } else if constexpr (n == 14) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m, o, p] = object;
    f(a); f(b); f(c); f(d); f(e); f(g); f(h); f(i); f(j); f(k); f(l); f(m); f(o); f(p);
  } else if constexpr (n == 15) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m, o, p, q] = object;
    f(a); f(b); f(c); f(d); f(e); f(g); f(h); f(i); f(j); f(k); f(l); f(m); f(o); f(p); f(q);
  } else if constexpr (n == 16) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r] = object;
    f(a); f(b); f(c); f(d); f(e); f(g); f(h); f(i); f(j); f(k); f(l); f(m); f(o); f(p); f(q); f(r);
  }
  // clang-format on
}

}  // namespace detail

template <class T, class Visitor> constexpr void for_each_leaf(T& object, Visitor& visitor);

namespace detail {
/// What the block of a Stack holds. Without tensors nothing that a program takes says how many layers there are: a
/// Stack of it has a Dim for that as its first leaf.
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

/// n layers of one structure. Inside a traced function the block is traced once, whatever n is: calling the stack is
/// one repeat node, forward and backward. Every layer has the same shapes, Dims and Scalars.
template <class Block> class Stack {
 public:
  using block = Block;

  constexpr Stack() = default;
  explicit Stack(std::vector<Block> layers) : layers_(std::move(layers)) {}
  /// Makes layer i with make(i).
  template <class Make> Stack(int n, Make&& make) {
    if (n < 0) fail(errc::structure, "[stack] layers: their number is not negative, and is ", n, " here");
    layers_.reserve(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) layers_.push_back(make(i));
  }

  constexpr int size() const { return static_cast<int>(layers_.size()); }
  constexpr Block& operator[](int i) { return layers_[static_cast<std::size_t>(i)]; }
  constexpr const Block& operator[](int i) const { return layers_[static_cast<std::size_t>(i)]; }
  constexpr std::vector<Block>& layers() { return layers_; }
  constexpr const std::vector<Block>& layers() const { return layers_; }

  /// x through every layer: layer(x, extra...) for each. A layer returns a tensor of the dtype, rank and shape of what
  /// it is given, in any layout.
  template <class X, class... Extra> constexpr auto operator()(const X& x, const Extra&... extra) const;

  /// The number of layers as a leaf: of a traced Stack, the placeholder for it.
  constexpr Dim count() const { return count_.traced() ? count_ : Dim(size()); }
  constexpr void set_count(const Dim& count) {
    if (count.traced())
      count_ = count;
    else
      layers_.resize(static_cast<std::size_t>(count.value()));
  }

 private:
  std::vector<Block> layers_;
  Dim count_{};  // a placeholder, in a trace of a block without tensors
};

/// Walks the leaves of a model: tensors, Dims and Scalars, in the order in which they are declared, through structs,
/// tuples, arrays and stacks. `visitor` has leaf(x), and enter_stack(stack) and leave_stack() around the layers of one,
/// with enter_layer(i) before each. The number of layers is a leaf where no tensor of theirs says it.
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
    static_assert(
        detail::is_model_field_v<U>,
        "tessera: a model's fields are tensors, other models, ts::Stack, ts::Dim for a size or ts::Scalar for a "
        "number; a field of another type would be ignored by the trace: make it a template parameter");
    if constexpr (detail::is_model_field_v<U> && !std::is_empty_v<U>)
      detail::for_each_field(object, [&](auto& field) { for_each_leaf(field, visitor); });
  }
}

}  // namespace tessera

#endif
