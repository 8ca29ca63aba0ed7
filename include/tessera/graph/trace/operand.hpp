#ifndef TESSERA_GRAPH_TRACE_OPERAND_HPP
#define TESSERA_GRAPH_TRACE_OPERAND_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include <tessera/base/here.hpp>
#include <tessera/base/promotion.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/dim.hpp>
#include <tessera/graph/trace/scalar.hpp>

namespace tessera {

// The three kinds of tensor operand: a placeholder of a trace (Sym), a stored tensor (ShardedTensor), an expression
// (Expr).
struct SymTag {};
struct TensorTag {};
struct ExprTag {};
/// A placeholder inside a shard_map: the block that one device holds.
struct LocalTag : SymTag {};

template <class T>
concept SymOperand = std::is_base_of_v<SymTag, T>;
template <class T>
concept StoredOperand = std::is_base_of_v<TensorTag, T>;
template <class T>
concept ExprOperand = std::is_base_of_v<ExprTag, T>;

template <class T>
concept LocalOperand = std::is_base_of_v<LocalTag, T>;

/// Any tensor operand: it has a static element type and rank.
template <class T>
concept TensorOperand = SymOperand<T> || StoredOperand<T> || ExprOperand<T>;

namespace detail {
template <class T>
concept TupleLike = std::is_class_v<T> && requires { std::tuple_size<T>::value; };
/// False; does not compile for a tuple. The message comes before the compiler's list of functions that do not match.
template <class T> struct RefusedTuple {
  static constexpr bool is_tuple = TupleLike<T>;
  static_assert(!is_tuple,
                "tessera: an operation takes a tensor, and was given a tuple; a layer that returns a tuple, such as "
                "ts::nn::MoE or ts::nn::Lstm, has the tensor as an item: const auto [y, balance, z] = moe(x)");
  static constexpr bool value = false;
};
}  // namespace detail

/// A tensor given to an operation, in declarations of functions. For what is no tensor it is false, as TensorOperand,
/// but a tuple ends the compilation with a sentence.
template <class T>
concept TensorArgument = TensorOperand<T> || detail::RefusedTuple<T>::value;

/// An arithmetic literal, a Dim or a Scalar. It has no width of its own: see promote.
template <class T>
concept NumberOperand = std::is_arithmetic_v<T> || std::same_as<T, Dim> || std::same_as<T, Scalar>;

template <class T>
concept Operand = TensorOperand<T> || NumberOperand<T>;

/// Element type and rank of a result, known at compile time. An arithmetic literal, Dim or Scalar has element type
/// `Number` and rank 0.
template <NumberKind Kind> struct Number {};
template <class T> inline constexpr bool is_number_v = false;
template <NumberKind Kind> inline constexpr bool is_number_v<Number<Kind>> = true;

template <class T, int Rank> struct Typed {
  using type = T;
  static constexpr int rank = Rank;
};

namespace detail {
template <class T> struct TypedOf {
  using result = Typed<typename T::element, T::rank>;
};
template <NumberOperand T> struct TypedOf<T> {
  static constexpr bool whole = std::is_integral_v<T> || std::same_as<T, Dim>;
  using result = Typed<Number<whole ? NumberKind::integer : NumberKind::floating>, 0>;
};
template <> struct TypedOf<bool> {
  using result = Typed<bool, 0>;
};
}  // namespace detail
template <Operand T> using typed_of = typename detail::TypedOf<T>::result;

namespace detail {
/// The element type of a tensor that is filled with a number: double gives float, other element types are kept.
template <class Number> struct FilledWith {
  using type = Number;
};
template <> struct FilledWith<double> {
  using type = float;
};
template <> struct FilledWith<Scalar> {
  using type = float;
};
template <> struct FilledWith<Dim> {
  using type = std::int64_t;
};
template <class Number> using filled_with_t = typename FilledWith<Number>::type;
}  // namespace detail

/// Captures the user's line in an operator, which can't have a default argument.
template <class T> struct At {
  const T& value;
  Source source;
  constexpr At(const T& v, Here at = Here::current()) : value(v), source(Source::from(at)) {}
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
