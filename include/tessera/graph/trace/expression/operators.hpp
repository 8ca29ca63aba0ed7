#ifndef TESSERA_GRAPH_TRACE_EXPRESSION_OPERATORS_HPP
#define TESSERA_GRAPH_TRACE_EXPRESSION_OPERATORS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <tuple>
#include <type_traits>

#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/dim.hpp>
#include <tessera/graph/trace/operand.hpp>
#include <tessera/graph/trace/scalar.hpp>

namespace tessera {

template <class Tag, class... Operands> constexpr auto call(Source source, const Operands&... operands);
template <class T, int Rank> struct Sym;
template <class T, int Rank> class ShardedTensor;

struct AddTag;
struct SubTag;
struct MulTag;
struct DivTag;
struct NegTag;
struct LessTag;
struct LessEqualTag;
struct GreaterTag;
struct GreaterEqualTag;

namespace detail {
template <class T> constexpr auto no_branch() {
  static_assert(std::is_void_v<T>,
                "tessera: if, ?: and ! can't use a tensor, whose values are not known while a function is traced; "
                "use ts::select(condition, yes, no), and ts::logical_not for !");
  return true;
}
/// A tuple, or a struct such as the result of ts::topk: no operand of arithmetic.
template <class B>
concept ManyTensors =
    std::is_class_v<B> && !Operand<B> && (std::is_aggregate_v<B> || requires { std::tuple_size<B>::value; });
template <class B, class T> constexpr auto no_arithmetic(const T& x) {
  static_assert(
      std::is_void_v<B>,
      "tessera: a tensor and a tuple or struct have no sum; a layer or an operation that returns several "
      "tensors, such as ts::nn::MoE or ts::topk, has the tensor as an item: const auto [y, balance, z] = moe(x)");
  return x;
}
/// For x[i] = y, which does not compile.
template <class B> constexpr auto no_assignment() {
  static_assert(std::is_void_v<B>,
                "tessera: tensors are immutable; instead of x[i] = y write x = ts::select_scatter<0>(x, y, i), or "
                "ts::dynamic_update_index<0>(x, y, i) with an index that is a tensor, and instead of x[i] += y "
                "ts::index_add<0>(x, indices, y)");
}

/// What x[i] returns: a const value, to which an assignment does not compile.
template <class T> constexpr std::add_const_t<T> not_assigned(const T& x) { return x; }

/// The rows of a tensor, x[i]. Defined in ops/indexing/.
template <class X> struct RowOf;
/// A size given to an operator, with the user's line, which an operator can't take as a default argument.
struct SizeAt {
  Dim value;
  Source line;
  template <class I>
    requires(std::is_integral_v<I> && !std::is_same_v<I, bool>)
  constexpr SizeAt(I i, Here at = Here::current()) : value(i), line(Source::from(at)) {}
  constexpr SizeAt(const Dim& i, Here at = Here::current()) : value(i), line(Source::from(at)) {}
};
/// An index that is known only when the program runs, with the user's line.
template <class I> struct RunIndex {
  const I& value;
  Source line;
  constexpr RunIndex(const I& i, Here at = Here::current()) : value(i), line(Source::from(at)) {}
};
template <class I> inline constexpr bool is_given_index_v = std::is_same_v<I, Dim> || std::is_same_v<I, Scalar>;
template <class I>
  requires(std::is_integral_v<I>)
inline constexpr bool is_given_index_v<I> = !std::is_same_v<I, bool>;
template <> inline constexpr bool is_given_index_v<Sym<std::int32_t, 0>> = true;
template <> inline constexpr bool is_given_index_v<Sym<std::int64_t, 0>> = true;
template <> inline constexpr bool is_given_index_v<ShardedTensor<std::int32_t, 0>> = true;
template <> inline constexpr bool is_given_index_v<ShardedTensor<std::int64_t, 0>> = true;
/// Another integer tensor of rank 0, such as an expression or a local value.
template <class I>
concept ComputedIndex = !is_given_index_v<I> && TensorOperand<I> && I::rank == 0 &&
                        std::is_integral_v<typename I::element> && !std::is_same_v<typename I::element, bool>;
template <class I>
concept NoIndex = !is_given_index_v<I> && !ComputedIndex<I>;
}  // namespace detail

/// Operators of all tensor types. They are hidden friends, so that they add no overloads to operators of other types.
/// `==` does not compile: elementwise equality is ts::equal.
template <class Self> struct Operators {
  /// `if (tensor)` does not compile, since values are not known while tracing. The static_assert is in the noexcept
  /// because compilers evaluate that where the operator is used, not only when it runs.
  constexpr explicit operator bool() const noexcept(detail::no_branch<Self>()) { return false; }
  template <Operand B> friend constexpr auto operator+(At<Self> a, const B& b) {
    return call<AddTag>(a.source, a.value, b);
  }
  template <NumberOperand B> friend constexpr auto operator+(const B& b, At<Self> a) {
    return call<AddTag>(a.source, b, a.value);
  }
  template <Operand B> friend constexpr auto operator-(At<Self> a, const B& b) {
    return call<SubTag>(a.source, a.value, b);
  }
  template <NumberOperand B> friend constexpr auto operator-(const B& b, At<Self> a) {
    return call<SubTag>(a.source, b, a.value);
  }
  template <Operand B> friend constexpr auto operator*(At<Self> a, const B& b) {
    return call<MulTag>(a.source, a.value, b);
  }
  template <NumberOperand B> friend constexpr auto operator*(const B& b, At<Self> a) {
    return call<MulTag>(a.source, b, a.value);
  }
  template <Operand B> friend constexpr auto operator/(At<Self> a, const B& b) {
    return call<DivTag>(a.source, a.value, b);
  }
  template <NumberOperand B> friend constexpr auto operator/(const B& b, At<Self> a) {
    return call<DivTag>(a.source, b, a.value);
  }
  friend constexpr auto operator-(At<Self> a) { return call<NegTag>(a.source, a.value); }
  // Without these overloads, compilers would list all arithmetic operators that exist.
  template <detail::ManyTensors B> friend constexpr auto operator+(At<Self> a, const B&) {
    return detail::no_arithmetic<B>(a.value);
  }
  template <detail::ManyTensors B> friend constexpr auto operator+(const B&, At<Self> a) {
    return detail::no_arithmetic<B>(a.value);
  }
  template <detail::ManyTensors B> friend constexpr auto operator-(At<Self> a, const B&) {
    return detail::no_arithmetic<B>(a.value);
  }
  template <detail::ManyTensors B> friend constexpr auto operator-(const B&, At<Self> a) {
    return detail::no_arithmetic<B>(a.value);
  }
  template <detail::ManyTensors B> friend constexpr auto operator*(At<Self> a, const B&) {
    return detail::no_arithmetic<B>(a.value);
  }
  template <detail::ManyTensors B> friend constexpr auto operator*(const B&, At<Self> a) {
    return detail::no_arithmetic<B>(a.value);
  }
  template <detail::ManyTensors B> friend constexpr auto operator/(At<Self> a, const B&) {
    return detail::no_arithmetic<B>(a.value);
  }
  template <detail::ManyTensors B> friend constexpr auto operator/(const B&, At<Self> a) {
    return detail::no_arithmetic<B>(a.value);
  }
  // Without these overloads, compilers would first complain about the conversion to bool for the built-in && and ||.
  template <class B> friend constexpr auto operator&&(At<Self> a, const B&) {
    static_assert(std::is_void_v<B>, "tessera: for tensors write ts::logical_and(x, y) instead of x && y");
    return call<LessTag>(a.source, a.value, a.value);
  }
  template <class B> friend constexpr auto operator||(At<Self> a, const B&) {
    static_assert(std::is_void_v<B>, "tessera: for tensors write ts::logical_or(x, y) instead of x || y");
    return call<LessTag>(a.source, a.value, a.value);
  }
  template <class B> friend constexpr auto operator%(At<Self> a, const B&) {
    static_assert(std::is_void_v<B>,
                  "tessera: for tensors write ts::remainder(x, y) for Python's x % y, of the sign of "
                  "y, or ts::fmod(x, y) for that of C++, of the sign of x");
    return call<LessTag>(a.source, a.value, a.value);
  }
  template <class B> friend constexpr auto operator&(At<Self> a, const B&) {
    static_assert(std::is_void_v<B>, "tessera: for tensors write ts::logical_and(x, y) instead of x & y, and of the "
                                     "bits of integers ts::bitwise_and(x, y)");
    return call<LessTag>(a.source, a.value, a.value);
  }
  template <class B> friend constexpr auto operator|(At<Self> a, const B&) {
    static_assert(std::is_void_v<B>, "tessera: for tensors write ts::logical_or(x, y) instead of x | y, and of the "
                                     "bits of integers ts::bitwise_or(x, y)");
    return call<LessTag>(a.source, a.value, a.value);
  }
  template <class B = void> friend constexpr auto operator~(At<Self> a) {
    static_assert(std::is_same_v<B, int>, "tessera: for tensors write ts::logical_not(x) instead of ~x, and of the "
                                          "bits of integers ts::bitwise_not(x)");
    return call<LessTag>(a.source, a.value, a.value);
  }
  // Without these overloads, compilers would list all operators == that exist.
  template <class B> friend constexpr auto operator==(const Self& x, const B&) {
    static_assert(std::is_void_v<B>,
                  "tessera: to compare tensors element by element, write ts::equal(x, y) instead of x == y");
    return call<LessTag>(Source{}, x, x);
  }
  template <class B> friend constexpr auto operator!=(const Self& x, const B&) {
    static_assert(std::is_void_v<B>,
                  "tessera: to compare tensors element by element, write ts::not_equal(x, y) instead of x != y");
    return call<LessTag>(Source{}, x, x);
  }
  template <class B> friend constexpr auto& operator+=(const Self& x, const B&) {
    static_assert(std::is_void_v<B>, "tessera: tensors are immutable; write x = x + y instead of x += y");
    return x;
  }
  template <class B> friend constexpr auto& operator-=(const Self& x, const B&) {
    static_assert(std::is_void_v<B>, "tessera: tensors are immutable; write x = x - y instead of x -= y");
    return x;
  }
  template <class B> friend constexpr auto& operator*=(const Self& x, const B&) {
    static_assert(std::is_void_v<B>, "tessera: tensors are immutable; write x = x * y instead of x *= y");
    return x;
  }
  template <class B> friend constexpr auto& operator/=(const Self& x, const B&) {
    static_assert(std::is_void_v<B>, "tessera: tensors are immutable; write x = x / y instead of x /= y");
    return x;
  }
  /// x[i], a row at an index that is known when the program is planned: ts::select<0>(x, i).
  constexpr decltype(auto) operator[](detail::SizeAt i) const {
    return detail::not_assigned(detail::RowOf<Self>::select(static_cast<const Self&>(*this), i.value, i.line));
  }
  /// At an index that is known only when the program runs: ts::dynamic_index<0>(x, i).
  constexpr decltype(auto) operator[](detail::RunIndex<Scalar> i) const { return row(i.value, i.line); }
  constexpr decltype(auto) operator[](detail::RunIndex<Sym<std::int32_t, 0>> i) const { return row(i.value, i.line); }
  constexpr decltype(auto) operator[](detail::RunIndex<Sym<std::int64_t, 0>> i) const { return row(i.value, i.line); }
  constexpr decltype(auto) operator[](detail::RunIndex<ShardedTensor<std::int32_t, 0>> i) const {
    return row(i.value, i.line);
  }
  constexpr decltype(auto) operator[](detail::RunIndex<ShardedTensor<std::int64_t, 0>> i) const {
    return row(i.value, i.line);
  }
  /// Of an index that is computed, errors name the line on which it is.
  template <detail::ComputedIndex I> constexpr decltype(auto) operator[](const I& i) const {
    return row(i, detail::RowOf<Self>::line_of(i));
  }
  template <detail::NoIndex I> constexpr decltype(auto) operator[](const I&) const {
    static_assert(
        std::is_void_v<I>,
        "tessera: the index of x[i] is an integer, a ts::Dim, a ts::Scalar or an integer tensor of rank 0; write "
        "ts::index_select<0>(x, indices) or ts::embedding(x, indices) for rows by a tensor of indices, "
        "ts::masked_select(x, mask, size) for x[mask], and ts::slice<0>(x, start, size) for a range of rows");
    return static_cast<const Self&>(*this);
  }
  template <Operand B> friend constexpr auto operator<(At<Self> a, const B& b) {
    return call<LessTag>(a.source, a.value, b);
  }
  template <Operand B> friend constexpr auto operator<=(At<Self> a, const B& b) {
    return call<LessEqualTag>(a.source, a.value, b);
  }
  template <Operand B> friend constexpr auto operator>(At<Self> a, const B& b) {
    return call<GreaterTag>(a.source, a.value, b);
  }
  template <Operand B> friend constexpr auto operator>=(At<Self> a, const B& b) {
    return call<GreaterEqualTag>(a.source, a.value, b);
  }

 private:
  template <class I> constexpr decltype(auto) row(const I& i, Source at) const {
    return detail::not_assigned(detail::RowOf<Self>::dynamic(static_cast<const Self&>(*this), i, at));
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
