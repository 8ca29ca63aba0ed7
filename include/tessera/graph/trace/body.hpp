#ifndef TESSERA_GRAPH_TRACE_BODY_HPP
#define TESSERA_GRAPH_TRACE_BODY_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/graph/ir/attributes/repeat.hpp>
#include <tessera/graph/trace/settle.hpp>
#include <tessera/graph/transform/repeat_gradient.hpp>

namespace tessera::detail {

/// A tuple, pair or array of the results of f for each item, computed in order.
template <class T, class F> constexpr auto map_items(const T& items, F&& f) {
  if constexpr (is_array_v<T>)
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return std::array<decltype(f(std::declval<const typename T::value_type&>())), sizeof...(I)>{f(items[I])...};
    }(std::make_index_sequence<std::tuple_size_v<T>>());
  else
    return [&]<template <class...> class Tuple, class... Ts, std::size_t... I>(const Tuple<Ts...>& tuple,
                                                                               std::index_sequence<I...>) {
      return Tuple<decltype(f(std::declval<const Ts&>()))...>{f(std::get<I>(tuple))...};
    }(items, std::make_index_sequence<std::tuple_size_v<T>>());
}

struct FindValue {
  Value found{};
  constexpr void leaf(const auto& leaf) {
    if (found.module == nullptr) found = trace_of(leaf);
  }
  constexpr void enter_stack(const auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};
/// A value whose graph index is stored inverted, as that of a tensor in a struct in a ts::shard_map, has its own here.
constexpr Value turned(Value value) {
  if (value.graph < 0) value.graph = ~value.graph;
  return value;
}
/// The first value of a trace in a structure; a null value where there is none.
template <class T> constexpr Value trace_in(const T& x) {
  Value found{};
  if constexpr (std::is_arithmetic_v<T>) {
    return found;
  } else if constexpr (Operand<T>) {
    found = here(turned(trace_of(x)));
  } else if constexpr (is_tuple_v<T> || is_array_v<T>) {
    const auto look = [&](const auto& item) {
      if (found.module == nullptr) found = trace_in(item);
    };
    if constexpr (is_array_v<T>)
      for (const auto& item : x) look(item);
    else
      std::apply([&](const auto&... items) { (look(items), ...); }, x);
  } else {
    FindValue find;
    for_each_leaf(x, find);
    found = here(turned(find.found));
  }
  return found;
}

/// Whether a structure holds a local value of a shard_map.
template <class T> inline constexpr bool holds_local_v = LocalOperand<T>;
template <template <class...> class Tuple, class... Ts>
  requires(is_tuple_v<Tuple<Ts...>>)
inline constexpr bool holds_local_v<Tuple<Ts...>> = (holds_local_v<Ts> || ...);
template <class T, std::size_t Size> inline constexpr bool holds_local_v<std::array<T, Size>> = holds_local_v<T>;

/// The first type in a list that is not void; void if there is none.
template <class... Ts> struct FirstOf {
  using type = void;
};
template <class T, class... Rest> struct FirstOf<T, Rest...> {
  using type = typename std::conditional_t<std::is_void_v<T>, FirstOf<Rest...>, std::type_identity<T>>::type;
};
/// The first local value of a shard_map in a structure; void if it holds none.
template <class T> struct LocalIn {
  using type = void;
};
template <LocalOperand T> struct LocalIn<T> {
  using type = T;
};
template <template <class...> class Tuple, class... Ts>
  requires(is_tuple_v<Tuple<Ts...>>)
struct LocalIn<Tuple<Ts...>> : FirstOf<typename LocalIn<Ts>::type...> {};
template <class T, std::size_t Size> struct LocalIn<std::array<T, Size>> : LocalIn<T> {};
template <class... Ts> using local_in_t = typename FirstOf<typename LocalIn<Ts>::type...>::type;

/// A tensor that is made where structures hold values like `Like`: beside local values of a shard_map it is one of
/// these, the same on all devices; `Like` is void without them.
template <class Like, class T, int Rank> struct TensorBeside {
  using type = typename Like::template with<T, Rank, 0>;
};
template <class T, int Rank> struct TensorBeside<void, T, Rank> {
  using type = Sym<T, Rank>;
};
template <class Like, class T, int Rank> using tensor_beside_t = typename TensorBeside<Like, T, Rank>::type;

/// Whether an item of a structure is a Dim or a Scalar; those in a plain struct are part of a model.
template <class T> inline constexpr bool holds_number_v = std::is_same_v<T, Dim> || std::is_same_v<T, Scalar>;
template <template <class...> class Tuple, class... Ts>
  requires(is_tuple_v<Tuple<Ts...>>)
inline constexpr bool holds_number_v<Tuple<Ts...>> = (holds_number_v<Ts> || ...);
template <class T, std::size_t Size> inline constexpr bool holds_number_v<std::array<T, Size>> = holds_number_v<T>;

/// A structure with its expressions recorded and its numbers as rank-0 tensors: what a step of a repeat hands to the
/// next one. A floating number becomes an f32, an integer an i32, as in JAX. `Like`: see TensorBeside.
template <class Like = void, class T> constexpr auto as_carry(const Value& context, const T& x) {
  if constexpr (TensorOperand<T>)
    return as_sym(x);
  else if constexpr (std::is_same_v<T, bool>)
    return tensor_beside_t<Like, bool, 0>(context.integer(x ? 1 : 0, DType::bool_));
  else if constexpr (std::is_integral_v<T>)
    return tensor_beside_t<Like, std::int32_t, 0>(context.integer(static_cast<std::int64_t>(x), DType::i32));
  else if constexpr (std::is_floating_point_v<T>)
    return tensor_beside_t<Like, float, 0>(context.number(static_cast<double>(x), DType::f32));
  else if constexpr (is_tuple_v<T> || is_array_v<T>)
    return map_items(x, [&](const auto& item) { return as_carry<Like>(context, item); });
  else
    return x;
}
template <class T, class Like = void>
using carry_t = decltype(as_carry<Like>(std::declval<const Value&>(), std::declval<const T&>()));

/// The value for which a placeholder stands, in whichever graph it is.
template <class Leaf> constexpr const Value& value_behind(const Leaf& leaf) {
  if constexpr (SymOperand<Leaf>)
    return leaf.value;
  else
    return leaf.placeholder();
}

/// Replaces a tensor of a structure; see `turned`.
template <class Leaf> constexpr void replace_leaf(Leaf& leaf, Value made) {
  if (value_behind(leaf).graph < 0) made.graph = ~made.graph;
  leaf = Leaf(made);
}
/// Whether a tensor is a local value of a shard_map, or a tensor of a struct in one: its value has further dims.
template <class Leaf> constexpr bool has_device_dims(const Leaf& leaf) {
  return LocalOperand<Leaf> || value_behind(leaf).graph < 0;
}

/// Which dim of a carry a message is about: "dim 0 of tensor 1 of the carry", both counted from 0.
class CarryPlace {
 public:
  static constexpr int named = 8;  ///< tensors that have their own text

  constexpr CarryPlace() = default;
  constexpr CarryPlace(int tensor, int dim) {
    append("dim ", '0' + dim);
    if (tensor < named)
      append(" of tensor ", '0' + tensor);
    else
      append(" of a tensor behind the first ", '0' + named);
    append(" of the carry");
  }
  constexpr std::string_view view() const { return {text_, size_}; }

 private:
  char text_[56]{};
  std::size_t size_ = 0;

  constexpr void append(std::string_view words, int digit = 0) {
    for (const char letter : words) text_[size_++] = letter;
    if (digit != 0) text_[size_++] = static_cast<char>(digit);
  }
};
inline constexpr auto carry_places = [] {
  std::array<std::array<CarryPlace, max_rank>, CarryPlace::named + 1> made;
  for (int tensor = 0; tensor <= CarryPlace::named; ++tensor)
    for (int dim = 0; dim < max_rank; ++dim)
      made[static_cast<std::size_t>(tensor)][static_cast<std::size_t>(dim)] = CarryPlace(tensor, dim);
  return made;
}();

/// Traces the body of a repeat, from its construction to close(). First its arguments are made, carried values before
/// slices; then the function runs; then its results are given, carried values before those of each step.
class BodyTrace {
 public:
  constexpr BodyTrace(Module& module, const Repeat& shape) : module_(&module), shape_(shape) {
    OpenBody body;
    body.graph = graph_ = module.add_graph();
    body.around = module.current;
    module.current = body.graph;
    module.open.push_back(std::move(body));
  }

  /// A value in the graph around the body.
  constexpr Value outside(const Value& v) const { return brought_to(v, module_->open.size() - 1); }
  constexpr Value carry(const Value& v, Storage storage) {
    ++shape_.carried;
    const Value outer = outside(v);
    carried_.push_back(argument(outer, outer.node(), storage));
    return carried_.back();
  }
  constexpr Value slice(const Value& v, Storage storage) {
    ++shape_.stacked;
    const Value outer = outside(v);
    Node type = outer.node();
    type.rank = static_cast<std::uint8_t>(type.rank - 1);
    type.singletons = static_cast<std::uint8_t>(type.singletons >> 1);
    return argument(outer, type, storage);
  }
  constexpr void give_carry(const Value& value) {
    const std::size_t tensor = given_++;
    if (const Node &own = carried_[tensor].node(), &made = value.node(); !same_static_shape(made, own)) {
      const unsigned differing = own.rank == made.rank ? unsigned{own.singletons} ^ made.singletons : 0;
      value.refuse(
          errc::shape_mismatch,
          shape_.scan
              ? "[scan] carry: a step must return the shape of its carry, but here only one of the two (or of the "
                "results of two branches) has static extent 1, as from keepdims or a slice of size 1; "
                "ts::broadcast_like gives both one shape"
              : "[stack] result of a layer: a layer must return the shape of its argument, but here only one of the "
                "two has static extent 1, as from keepdims or a slice of size 1; ts::broadcast_like gives both one "
                "shape",
          differing == 0 ? std::string_view()
                         : carry_places[tensor < CarryPlace::named ? tensor : CarryPlace::named]
                                       [static_cast<std::size_t>(std::countr_zero(differing))]
                                           .view());
    }
    give(value);
  }
  constexpr void give(const Value& value) { module_->graph(module_->current).outputs.push_back(value.id); }

  /// Ends the body, which traces no further operations.
  constexpr OpenBody end() {
    const OpenBody body = module_->open.back();
    module_->open.pop_back();
    module_->current = body.around;
    for (std::int32_t id : body.captured) operands_.push_back(id);
    return body;
  }
  /// The values around the body that are its arguments, in their order.
  constexpr const Growable<std::int32_t>& operands() const { return operands_; }
  constexpr bool is_slice(int argument) const { return shape_.is_stacked(argument); }
  /// After the end: a Dim or a Scalar of the body, which is the same in each step, in the graph around it.
  constexpr Value number_outside(const Value& number) const {
    if (number.graph != graph_ || !is_host_number(number)) return here(number);
    return recomputed(number, module_->current, [&](const Value& operand) { return number_outside(operand); });
  }

  /// Adds the repeat to the graph around the body. `count`: the number of steps, where nothing is sliced; `limit`: how
  /// many of them run, where that is limited.
  constexpr Value close(const Value& count, Source source, const Value& limit = {}) {
    const OpenBody body = end();
    shape_.counted = shape_.stacked == 0;
    shape_.limited = limit.module != nullptr;
    if (shape_.limited) operands_.push_back(here(limit).id);
    if (shape_.counted) operands_.push_back(here(count).id);
    const int id = module_->graph(body.around)
                       .add(shape_.node(body.graph, source), operands_.data(), static_cast<int>(operands_.size()));
    return {module_, body.around, id, source};
  }

  constexpr bool of_scan() const { return shape_.scan; }
  /// The type of a carried value, after close().
  constexpr const Node& carried_type(int k) const { return carried_[static_cast<std::size_t>(k)].node(); }
  constexpr int carried() const { return shape_.carried; }

 private:
  Module* module_;
  Repeat shape_;
  int graph_ = 0;
  Growable<std::int32_t> operands_;
  Growable<Value> carried_;
  std::size_t given_ = 0;

  constexpr Value argument(const Value& outer, const Node& type, Storage storage) {
    operands_.push_back(outer.id);
    OpenBody& body = module_->open.back();
    const Node made = stored_as(storage, build::argument_node(type, body.arguments++));
    return {module_, body.graph, module_->graph(body.graph).add(made), type.source};
  }
};

/// Replaces the leaves of a structure by their values inside a body. Dims and Scalars become nodes of the body.
struct BindLeaves {
  enum class Kind { carried, layer, captured };
  BodyTrace& body;
  Kind kind;
  bool in_stack = false;

  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    if constexpr (TensorOperand<Leaf>) {
      const Value outer = turned(value_behind(leaf));
      const bool is_local = has_device_dims(leaf);
      if (!is_local && outer.rank() != Leaf::rank + (in_stack || kind == Kind::layer ? 1 : 0))
        outer.refuse(errc::structure,
                     body.of_scan()
                         ? "[scan] operands: the carry is a field of all layers of a Stack, or a field of the Stack "
                           "was replaced by a tensor without a dim of layers"
                         : "[stack] operands: an extra argument of a Stack is a field of all layers, or a field of "
                           "the Stack was replaced by a tensor without a dim of layers");
      if (kind == Kind::carried)
        replace_leaf(leaf, body.carry(outer, in_stack && !is_local ? Storage::layers : Storage::block));
      else if (kind == Kind::layer)
        replace_leaf(leaf, body.slice(outer, is_local ? Storage::block : Storage::layer));
      else
        replace_leaf(leaf, here(outer));
    } else if (leaf.traced()) {
      leaf = Leaf(here(leaf.placeholder()));
    }
  }
  constexpr void enter_stack(auto&) { in_stack = true; }
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() { in_stack = false; }
};

/// Gives the tensors of a structure as results of the body.
struct GiveLeaves {
  BodyTrace& body;
  bool carried;
  template <class Leaf> constexpr void leaf(const Leaf& leaf) {
    if constexpr (TensorOperand<Leaf>) {
      if (carried)
        body.give_carry(here(turned(trace_of(leaf))));
      else
        body.give(here(turned(trace_of(leaf))));
    }
  }
  constexpr void enter_stack(const auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};

/// Replaces the tensors of a carry by their values after the last step.
struct ProjectLeaves {
  const Value& made;
  const BodyTrace& body;
  int next = 0;
  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    if constexpr (TensorOperand<Leaf>) {
      const Node& type = body.carried_type(next);
      replace_leaf(leaf, build::project(made, next++, type, storage_of(type)));
    }
  }
  constexpr void enter_stack(const auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
