#ifndef TESSERA_OPS_VMAP_EXAMPLE_STRUCT_HPP
#define TESSERA_OPS_VMAP_EXAMPLE_STRUCT_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/graph/trace/stack.hpp>
#include <tessera/graph/trace/sym.hpp>
#include <tessera/ops/rows.hpp>

namespace tessera::detail {

template <class T> struct ExampleOf;
/// What one slice along dim 0 of a structure is: a tensor of one rank less, a layer of a Stack, a structure of these. A
/// plain struct is a class template whose parameter is the rank, or the types of fields; void for any other struct,
/// since its fields have fixed ranks.
template <class T> using example_t = typename ExampleOf<T>::type;

/// Whether the fields of One are slices of those of All.
template <class All, class One> struct AreExamples : std::false_type {};
template <class... All, class... One>
  requires(sizeof...(All) == sizeof...(One))
struct AreExamples<TypeList<All...>, TypeList<One...>>
    : std::bool_constant<(std::is_same_v<example_t<All>, One> && ...)> {};

/// One if it has the slices of the fields of All, else void.
template <class All, class One>
using example_struct_t =
    std::conditional_t<AreExamples<typename FieldsOf<All>::type, typename FieldsOf<One>::type>::value, One, void>;

/// A template argument that is the type of a field becomes that of its slice; any other stays.
template <class T> using example_argument_t = std::conditional_t<std::is_void_v<example_t<T>>, T, example_t<T>>;

/// Whether each field of a struct has slices.
template <class Fields> inline constexpr bool have_examples_v = false;
template <class... Fields>
inline constexpr bool have_examples_v<TypeList<Fields...>> =
    sizeof...(Fields) > 0 && !(std::is_void_v<example_t<Fields>> || ...);

template <class T> struct ExampleStruct {
  using type = void;
};
template <template <int> class S, int N>
  requires have_examples_v<typename FieldsOf<S<N>>::type>
struct ExampleStruct<S<N>> {
  using type = example_struct_t<S<N>, S<N - 1>>;
};
template <template <class, int> class S, class T, int N>
  requires have_examples_v<typename FieldsOf<S<T, N>>::type>
struct ExampleStruct<S<T, N>> {
  using type = example_struct_t<S<T, N>, S<T, N - 1>>;
};
template <template <class...> class S, class... Ts>
  requires have_examples_v<typename FieldsOf<S<Ts...>>::type>
struct ExampleStruct<S<Ts...>> {
  using type = example_struct_t<S<Ts...>, S<example_argument_t<Ts>...>>;
};

template <class T> struct ExampleOf {
  static constexpr bool is_struct = std::is_class_v<T> && std::is_aggregate_v<T> && !Operand<T> && !std::is_empty_v<T>;
  using type = typename std::conditional_t<is_struct, ExampleStruct<T>, std::type_identity<void>>::type;
};
template <NumberOperand T> struct ExampleOf<T> {
  using type = T;
};
template <class T, int Rank>
  requires(Rank > 0)
struct ExampleOf<ShardedTensor<T, Rank>> {
  using type = ShardedTensor<T, Rank - 1>;
};
template <class T, int Rank>
  requires(Rank > 0)
struct ExampleOf<Sym<T, Rank>> {
  using type = Sym<T, Rank - 1>;
};
template <class Block> struct ExampleOf<Stack<Block>> {
  using type = Block;
};
template <template <class...> class Tuple, class... Ts>
  requires(is_tuple_v<Tuple<Ts...>>)
struct ExampleOf<Tuple<Ts...>> {
  using type = typename std::conditional_t<(std::is_void_v<example_t<Ts>> || ...), std::type_identity<void>,
                                           std::type_identity<Tuple<example_t<Ts>...>>>::type;
};
template <class T, std::size_t Size> struct ExampleOf<std::array<T, Size>> {
  using type = typename std::conditional_t<std::is_void_v<example_t<T>>, std::type_identity<void>,
                                           std::type_identity<std::array<example_t<T>, Size>>>::type;
};

/// Whether a structure has a struct whose slice is the tuple of its fields, since these have fixed ranks.
template <class T> constexpr bool has_fixed_ranks() {
  if constexpr (Operand<T> || std::is_empty_v<T> || is_stack_v<T> || !std::is_class_v<T>)
    return false;
  else if constexpr (is_tuple_v<T>)
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (has_fixed_ranks<std::tuple_element_t<I, T>>() || ...);
    }(std::make_index_sequence<std::tuple_size_v<T>>());
  else if constexpr (is_array_v<T>)
    return has_fixed_ranks<typename T::value_type>();
  else
    return std::is_void_v<example_t<T>>;
}

/// The slice of a field, of which the tensors may be Syms, as the type that the struct has for it.
template <class Field, class X> constexpr Field as_field(const X& x) {
  if constexpr (std::is_same_v<Field, X>)
    return x;
  else if constexpr (StoredOperand<Field> && LocalOperand<X>)
    return Field(x.kept());
  else if constexpr (StoredOperand<Field>)
    return Field(x.value);
  else if constexpr (is_array_v<Field>)
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return Field{as_field<typename Field::value_type>(x[I])...};
    }(std::make_index_sequence<std::tuple_size_v<Field>>());
  else if constexpr (is_tuple_v<Field>)
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return Field{as_field<std::tuple_element_t<I, Field>>(std::get<I>(x))...};
    }(std::make_index_sequence<std::tuple_size_v<Field>>());
  else
    return x;
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
