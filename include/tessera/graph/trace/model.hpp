#ifndef TESSERA_GRAPH_TRACE_MODEL_HPP
#define TESSERA_GRAPH_TRACE_MODEL_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/graph/trace/sharded_tensor.hpp>

namespace tessera {

template <class Block> class Stack;
struct Key;

namespace detail {

template <class T>
inline constexpr bool is_leaf_v =
    StoredOperand<T> || SymOperand<T> || std::is_same_v<T, Dim> || std::is_same_v<T, Scalar>;
template <class T> inline constexpr bool is_stack_v = false;
template <class Block> inline constexpr bool is_stack_v<Stack<Block>> = true;
template <class T> inline constexpr bool is_tuple_v = false;
template <class... Ts> inline constexpr bool is_tuple_v<std::tuple<Ts...>> = true;
template <class First, class Second> inline constexpr bool is_tuple_v<std::pair<First, Second>> = true;
template <class T> inline constexpr bool is_array_v = false;
template <class T, std::size_t Size> inline constexpr bool is_array_v<std::array<T, Size>> = true;

struct AnyField {
  template <class T> operator T() const { __builtin_trap(); }  // never called; clang warns without a body
};
/// Converts only to base classes of a struct.
template <class Struct> struct AnyBase {
  template <class Base>
    requires(std::is_base_of_v<Base, Struct> && !std::is_same_v<Base, Struct>)
  operator Base() const;
};
template <class T, class... Fields> constexpr int field_count() {
  if constexpr (requires { T{Fields{}..., AnyField{}}; })
    return field_count<T, Fields..., AnyField>();
  else
    return static_cast<int>(sizeof...(Fields));
}

/// Whether element i is an array. Nested braces that initialise an array take up several initialisers without them,
/// those of a class only one.
template <class T, std::size_t... Before, std::size_t... After>
constexpr bool has_array_at(std::index_sequence<Before...>, std::index_sequence<After...>) {
  return requires {
    T{(void(Before), AnyField{})..., {AnyField{}, AnyField{}}};
  } && !requires {
    T{(void(Before), AnyField{})..., {AnyField{}, AnyField{}}, (void(After), AnyField{})...};
  };
}
template <class T> constexpr bool has_array() {
  constexpr auto count = static_cast<std::size_t>(field_count<T>());
  return []<std::size_t... I>(std::index_sequence<I...>) {
    return (has_array_at<T>(std::make_index_sequence<I>(), std::make_index_sequence<count - 1 - I>()) || ...);
  }(std::make_index_sequence<count>());
}

inline constexpr int max_fields = 16;

/// Why a type can't be part of a model.
enum class ModelFault { none, number, key, container, pointer, not_plain, array, constant, too_many_fields, nested };

/// Whether T contains a Stack.
template <class T> struct HoldsStack;

/// What is wrong with T itself, whatever its fields are.
template <class T> constexpr ModelFault own_fault() {
  if constexpr (std::is_const_v<T> || std::is_reference_v<T>)
    return ModelFault::constant;
  else if constexpr (is_leaf_v<T> || is_tuple_v<T> || is_array_v<T>)
    return ModelFault::none;
  else if constexpr (is_stack_v<T>)
    return HoldsStack<typename T::block>::value ? ModelFault::nested : ModelFault::none;
  else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>)
    return ModelFault::number;
  else if constexpr (std::is_same_v<T, Key>)
    return ModelFault::key;
  else if constexpr (std::is_array_v<T>)
    return ModelFault::array;
  else if constexpr (std::is_pointer_v<T> || (!std::is_aggregate_v<T> && requires(const T& x) { x.operator->(); }))
    return ModelFault::pointer;
  else if constexpr (!std::is_aggregate_v<T> && requires { typename T::value_type; })
    return ModelFault::container;
  else if constexpr (std::is_empty_v<T> && std::is_default_constructible_v<T>)
    return ModelFault::none;
  else if constexpr (!std::is_class_v<T> || !std::is_aggregate_v<T> || requires { T{AnyBase<T>{}}; })
    return ModelFault::not_plain;
  else if constexpr (!std::is_default_constructible_v<T>)
    return ModelFault::constant;
  else if constexpr (field_count<T>() > max_fields)
    return ModelFault::too_many_fields;
  else if constexpr (has_array<T>())
    return ModelFault::array;
  else
    return ModelFault::none;
}

/// Reports once what is wrong with T; void: nothing. The assertions are in a lambda, since clang would reject every use
/// of a class whose own assertion failed with a second error.
template <class T> struct ExplainField {
  template <ModelFault Fault> static constexpr bool is = own_fault<T>() == Fault;
  using Checks = decltype([] {
    static_assert(
        !is<ModelFault::number>,
        "tessera: a number in a model or an argument of a traced function is a ts::Dim if it is a size, else a "
        "ts::Scalar, never int, float or bool; a constant can be a template parameter");
    static_assert(!is<ModelFault::key>,
                  "tessera: a ts::Key can't be in a model or an argument of a traced function; pass a ts::Scalar, such "
                  "as the number of the training step, and give the Scalar to ts::dropout as its key");
    static_assert(
        !is<ModelFault::container>,
        "tessera: a model can't contain this container or string; use std::array for a fixed number of fields "
        "of one type, and ts::Stack for layers of one type; ts::shard makes a tensor of a std::vector of numbers");
    static_assert(
        !is<ModelFault::pointer>,
        "tessera: a model can't contain a pointer, a smart pointer or a std::optional; store the value itself");
    static_assert(!is<ModelFault::not_plain>,
                  "tessera: a model is a plain struct of tensors, other models, ts::Dim and ts::Scalar: without "
                  "constructors, private fields, virtual functions and base classes; write a function that returns "
                  "the model instead of a constructor, and a field instead of a base class");
    static_assert(!is<ModelFault::constant>, "tessera: the fields of a model can't be references or const");
    static_assert(!is<ModelFault::array>, "tessera: a model can't contain a built-in array; use std::array");
    static_assert(!is<ModelFault::too_many_fields>,
                  "tessera: a model struct has at most 16 fields; move some of the fields into a nested struct");
    static_assert(
        !is<ModelFault::nested>,
        "tessera: the layers of a ts::Stack can't contain a ts::Stack or take a ts::Stack as an argument; use a "
        "std::array of blocks inside of a layer");
  });
};

template <> struct ExplainField<void> {};

/// Returns f(fields...) of a plain struct.
template <class T, class F> constexpr auto with_fields(T& object, F&& f) {
  constexpr int n = field_count<std::remove_const_t<T>>();
  // clang-format off
  if constexpr (n == 1) { auto& [a] = object; return f(a); }
  else if constexpr (n == 2) { auto& [a, b] = object; return f(a, b); }
  else if constexpr (n == 3) { auto& [a, b, c] = object; return f(a, b, c); }
  else if constexpr (n == 4) { auto& [a, b, c, d] = object; return f(a, b, c, d); }
  else if constexpr (n == 5) { auto& [a, b, c, d, e] = object; return f(a, b, c, d, e); }
  else if constexpr (n == 6) { auto& [a, b, c, d, e, g] = object; return f(a, b, c, d, e, g); }
  else if constexpr (n == 7) { auto& [a, b, c, d, e, g, h] = object; return f(a, b, c, d, e, g, h); }
  else if constexpr (n == 8) { auto& [a, b, c, d, e, g, h, i] = object; return f(a, b, c, d, e, g, h, i); }
  else if constexpr (n == 9) { auto& [a, b, c, d, e, g, h, i, j] = object; return f(a, b, c, d, e, g, h, i, j); }
  else if constexpr (n == 10) {
    auto& [a, b, c, d, e, g, h, i, j, k] = object;
    return f(a, b, c, d, e, g, h, i, j, k);
  } else if constexpr (n == 11) {
    auto& [a, b, c, d, e, g, h, i, j, k, l] = object;
    return f(a, b, c, d, e, g, h, i, j, k, l);
  } else if constexpr (n == 12) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m] = object;
    return f(a, b, c, d, e, g, h, i, j, k, l, m);
  } else if constexpr (n == 13) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m, o] = object;
    return f(a, b, c, d, e, g, h, i, j, k, l, m, o);
  } else if constexpr (n == 14) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m, o, p] = object;
    return f(a, b, c, d, e, g, h, i, j, k, l, m, o, p);
  } else if constexpr (n == 15) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m, o, p, q] = object;
    return f(a, b, c, d, e, g, h, i, j, k, l, m, o, p, q);
  } else if constexpr (n == 16) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r] = object;
    return f(a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r);
  }
  // clang-format on
}

/// Calls f(field) for every field of a plain struct.
template <class T, class F> constexpr void for_each_field(T& object, F&& f) {
  with_fields(object, [&](auto&... fields) { (f(fields), ...); });
}

template <class... Ts> struct TypeList {};

template <class T> struct FieldsOf {
  static auto list() {
    if constexpr (own_fault<T>() != ModelFault::none || is_leaf_v<T> || std::is_empty_v<T>)
      return TypeList<>{};
    else
      return decltype(with_fields(std::declval<T&>(), [](auto&... fields) {
        return TypeList<std::remove_reference_t<decltype(fields)>...>{};
      })){};
  }
  using type = decltype(list());
};
template <class Block> struct FieldsOf<Stack<Block>> {
  using type = TypeList<Block>;
};
template <class... Ts> struct FieldsOf<std::tuple<Ts...>> {
  using type = TypeList<Ts...>;
};
template <class First, class Second> struct FieldsOf<std::pair<First, Second>> {
  using type = TypeList<First, Second>;
};
template <class T, std::size_t Size> struct FieldsOf<std::array<T, Size>> {
  using type = TypeList<T>;
};

template <class List> struct AnyHoldsStack;
template <class... Parts>
struct AnyHoldsStack<TypeList<Parts...>> : std::bool_constant<(HoldsStack<Parts>::value || ...)> {};
template <class T> struct HoldsStack : AnyHoldsStack<typename FieldsOf<T>::type> {};
template <class Block> struct HoldsStack<Stack<Block>> : std::true_type {};

template <class T> struct FaultyField;
template <class List> struct FirstFaulty {
  using type = void;
};
template <class First, class... Rest>
struct FirstFaulty<TypeList<First, Rest...>> : std::conditional_t<std::is_void_v<typename FaultyField<First>::type>,
                                                                  FirstFaulty<TypeList<Rest...>>, FaultyField<First>> {
};
/// The first type in T, T itself included, that can't be part of a model; void where there is none.
template <class T>
struct FaultyField : std::conditional_t<own_fault<T>() == ModelFault::none, FirstFaulty<typename FieldsOf<T>::type>,
                                        std::type_identity<T>> {};

}  // namespace detail

/// A type that traced functions can take and return: a tensor, a Dim, a Scalar, or a std::tuple, std::pair, std::array,
/// ts::Stack or plain struct of these. A plain struct has no constructor, private field, virtual function or base
/// class.
template <class T>
concept Model = std::is_void_v<typename detail::FaultyField<T>::type>;

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
