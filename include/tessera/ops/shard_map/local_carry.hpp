#ifndef TESSERA_OPS_SHARD_MAP_LOCAL_CARRY_HPP
#define TESSERA_OPS_SHARD_MAP_LOCAL_CARRY_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/graph/trace/body.hpp>
#include <tessera/graph/trace/changing_scalars.hpp>
#include <tessera/ops/rows.hpp>

// Loops and branches on local values of a shard_map. Their graphs have the dims of devices that other operations on
// local values have. A carry varies along all axes along which it does in any step, and so does a result along which it
// does in any branch; structures without local values stay as they are.

namespace tessera::detail {

/// The type of a structure that takes the values of two: its local values vary along the axes of both. A where nothing
/// else differs.
template <class A, class B> struct Joined {
  using type = A;
};
template <class A, class B> using joined_t = typename Joined<A, B>::type;
template <LocalOperand A, LocalOperand B>
  requires(std::is_same_v<typename A::template varying_along<0>, typename B::template varying_along<0>>)
struct Joined<A, B> {
  using type = typename A::template varying_along<A::varying | B::varying>;
};
template <template <class...> class Tuple, class... As, class... Bs>
  requires(is_tuple_v<Tuple<As...>> && sizeof...(As) == sizeof...(Bs))
struct Joined<Tuple<As...>, Tuple<Bs...>> {
  using type = Tuple<joined_t<As, Bs>...>;
};
template <class A, class B, std::size_t Size> struct Joined<std::array<A, Size>, std::array<B, Size>> {
  using type = std::array<joined_t<A, B>, Size>;
};
template <class A, class... More> struct JoinTypes {
  using type = A;
};
template <class A, class B, class... More> struct JoinTypes<A, B, More...> : JoinTypes<joined_t<A, B>, More...> {};
template <class... Ts> using JoinedAll = typename JoinTypes<Ts...>::type;
/// Whether two types differ only in the axes along which local values vary.
template <class A, class B> inline constexpr bool join_v = std::is_same_v<joined_t<A, B>, joined_t<B, A>>;

/// A structure whose local values vary along further axes: those of Axis, if it is a local value.
template <class T, class Axis> struct VaryingAlso {
  using type = T;
};
template <class T, class Axis> using varying_also_t = typename VaryingAlso<T, Axis>::type;
template <LocalOperand T, LocalOperand Axis> struct VaryingAlso<T, Axis> {
  using type = typename T::template varying_along<T::varying | Axis::varying>;
};
template <template <class...> class Tuple, class... Ts, LocalOperand Axis>
  requires(is_tuple_v<Tuple<Ts...>>)
struct VaryingAlso<Tuple<Ts...>, Axis> {
  using type = Tuple<varying_also_t<Ts, Axis>...>;
};
template <class T, std::size_t Size, LocalOperand Axis> struct VaryingAlso<std::array<T, Size>, Axis> {
  using type = std::array<varying_also_t<T, Axis>, Size>;
};

/// A structure as a type with which its own type joins to this type.
template <class To, class From> constexpr To widened(const From& x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (LocalOperand<To>)
    return To(x.with_dims_for(To::varying));
  else
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return To{widened<std::tuple_element_t<I, To>>(std::get<I>(x))...};
    }(std::make_index_sequence<std::tuple_size_v<To>>());
}

/// A tensor of a structure as a local value; Like is any of the shard_map.
template <class Like, class Leaf> constexpr auto as_local(const Leaf& leaf) {
  if constexpr (LocalOperand<Leaf>)
    return leaf;
  else
    return typename Like::template with<typename Leaf::element, Leaf::rank, Like::region::all>(
        here(turned(leaf.placeholder())));
}
/// A tensor of all layers of a Stack in the function of a shard_map: the dim of layers is in front of those of devices.
template <class Like, class Leaf> struct LocalLayers {
  Value layers;
  constexpr unsigned differing() const { return Like::differing_layers(layers, Leaf::rank); }
  constexpr unsigned declared() const { return differing(); }
  constexpr Leaf spread(unsigned axes) const {
    Value made = Like::spread_layers(layers, Leaf::rank, axes);
    made.graph = ~made.graph;
    return Leaf(made);
  }
};
/// What the shard_map whose function is being traced does with the tensors of structs, whose types do not name it.
/// `layers`: 1 for a tensor of all layers of a Stack, whose dim of layers is in front of those of devices; else 0.
struct FieldsOfDevices {
  unsigned (*differing)(const Value& x, int rank, int layers);           ///< the axes along which devices differ
  Value (*spread)(const Value& x, int rank, int layers, unsigned axes);  ///< with full dims of devices for these axes
};
/// A tensor of a plain struct or of a Stack in the function of a shard_map, where no local value tells which one.
template <class Leaf> struct LocalField {
  Value value;
  int layers;
  constexpr const FieldsOfDevices& fields() const { return *value.module->fields; }
  constexpr unsigned differing() const { return fields().differing(value, Leaf::rank, layers); }
  constexpr unsigned declared() const { return differing(); }
  constexpr Leaf spread(unsigned axes) const {
    Value made = fields().spread(value, Leaf::rank, layers, axes);
    made.graph = ~made.graph;
    return Leaf(made);
  }
};
/// Whether a structure has a plain struct or a Stack.
template <class T>
inline constexpr bool holds_struct_v = !Operand<T> && !is_array_v<T> && std::is_class_v<T> && !std::is_empty_v<T>;
template <template <class...> class Tuple, class... Ts>
  requires(is_tuple_v<Tuple<Ts...>>)
inline constexpr bool holds_struct_v<Tuple<Ts...>> = (holds_struct_v<Ts> || ...);
template <class T, std::size_t Size> inline constexpr bool holds_struct_v<std::array<T, Size>> = holds_struct_v<T>;
/// Calls a function with each local value of a structure, also those that are tensors of a plain struct or a Stack.
template <class Like, class Visit> struct VisitLocal {
  Visit visit;
  bool in_stack = false;
  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    if constexpr (std::is_void_v<Like>) {
      if constexpr (StoredOperand<Leaf>)
        if (has_device_dims(leaf))
          visit(leaf, LocalField<std::remove_const_t<Leaf>>{here(turned(leaf.placeholder())), in_stack ? 1 : 0});
    } else if constexpr (LocalOperand<Leaf>) {
      visit(leaf, as_local<Like>(leaf));
    } else if constexpr (StoredOperand<Leaf>) {
      if (has_device_dims(leaf) && in_stack)
        visit(leaf, LocalLayers<Like, std::remove_const_t<Leaf>>{here(turned(leaf.placeholder()))});
      else if (has_device_dims(leaf))
        visit(leaf, as_local<Like>(leaf));
    }
  }
  constexpr void enter_stack(const auto&) { in_stack = true; }
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() { in_stack = false; }
};
template <class Like, class T, class Visit> constexpr void for_each_local(T& object, const Visit& visit) {
  if constexpr (!std::is_void_v<Like> || holds_struct_v<std::remove_const_t<T>>) {
    VisitLocal<Like, Visit> visitor{visit};
    for_each_leaf(object, visitor);
  }
}

/// The number of dims of devices in front of the dims of a value; 0 for all but local values.
template <class X> inline constexpr int device_dims_v = 0;
template <LocalOperand X> inline constexpr int device_dims_v<X> = std::popcount(X::varying);

/// A tensor like X of another rank.
template <class X, int Rank> struct WithRank {
  using type = Sym<typename X::element, Rank>;
};
template <LocalOperand X, int Rank> struct WithRank<X, Rank> {
  using type = typename X::template with_rank<Rank>;
};
template <class X, int Rank> using with_rank_t = typename WithRank<X, Rank>::type;

/// Gives local values of the same type full dims of devices for all axes along which any of them differs.
template <class X, std::size_t Size> constexpr void spread_alike(std::array<X, Size>& values) {
  if constexpr (LocalOperand<X>) {
    unsigned axes = 0;
    for (const X& value : values) axes |= value.differing();
    for (X& value : values) value = value.spread(axes);
  }
}

/// The axes along which the values of a structure differ between devices, for each of its local values.
template <class Like, class T> constexpr Growable<unsigned> differing_axes(const T& x) {
  Growable<unsigned> axes;
  for_each_local<Like>(x, [&](const auto&, const auto& own) { axes.push_back(own.differing()); });
  return axes;
}
/// Gives the local values of a structure full dims of devices for these axes.
template <class Like, class T> constexpr void spread(T& x, const Growable<unsigned>& axes) {
  std::size_t next = 0;
  for_each_local<Like>(
      x, [&](auto& leaf, const auto& own) { leaf = std::remove_cvref_t<decltype(leaf)>(own.spread(axes[next++])); });
}
/// The first carry of a loop: local values have full dims of devices for all axes along which their types say that they
/// vary.
template <class Like, class T> constexpr void spread_first(T& x) {
  Growable<unsigned> axes;
  for_each_local<Like>(x, [&](const auto&, const auto& own) { axes.push_back(own.declared()); });
  spread<Like>(x, axes);
}
/// Whether values differ between devices along axes along which those of a carry do not. Types don't tell in the
/// function of a shard_map that takes structs.
constexpr bool differ_more(const Growable<unsigned>& values, const Growable<unsigned>& carry) {
  for (std::size_t k = 0; k < carry.size(); ++k)
    if ((values[k] & ~carry[k]) != 0) return true;
  return false;
}

/// Traces the body of a repeat that takes a carry and returns one: `step(inside, carried, body)` returns the carry and
/// what else the body has as results. Gives init the dims of devices that the carry has after a step. `finish(body,
/// inside, rest, scalars)` ends the body.
template <class Like, class Carry, class Step, class Finish>
constexpr auto trace_carry(const Value& context, const Repeat& shape, Carry& init, const Step& step,
                           const Finish& finish) {
  spread_first<Like>(init);
  ChangingScalars scalars;
  for (;;) {
    scalars.begin(context, init);
    BodyTrace body(*context.module, shape);
    const Value inside{context.module, context.module->current, -1, context.source};
    Carry carried = init;
    BindLeaves bind{body, BindLeaves::Kind::carried};
    for_each_leaf(carried, bind);
    scalars.bind(body, carried);
    auto [next, rest] = step(inside, std::as_const(carried), body);
    const Growable<unsigned> before = differing_axes<Like>(carried), after = differing_axes<Like>(next);
    if (differ_more(after, before)) {
      body.end();
      spread<Like>(init, after);
      continue;
    }
    if (scalars.find(inside, carried, std::as_const(next))) {
      body.end();
      continue;
    }
    spread<Like>(next, before);
    GiveLeaves give{body, true};
    for_each_leaf(std::as_const(next), give);
    scalars.give(body, inside, std::as_const(next));
    return finish(body, inside, rest, scalars);
  }
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
