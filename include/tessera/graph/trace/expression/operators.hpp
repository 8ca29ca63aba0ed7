#ifndef TESSERA_GRAPH_TRACE_EXPRESSION_OPERATORS_HPP
#define TESSERA_GRAPH_TRACE_EXPRESSION_OPERATORS_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>
#include <type_traits>

#include <tessera/base/source.hpp>
#include <tessera/graph/trace/operand.hpp>

namespace tessera {

template <class Tag, class... Operands> constexpr auto call(Source source, const Operands&... operands);

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
  template <class B> friend constexpr auto& operator+=(Self& x, const B&) {
    static_assert(std::is_void_v<B>, "tessera: tensors are immutable; write x = x + y instead of x += y");
    return x;
  }
  template <class B> friend constexpr auto& operator-=(Self& x, const B&) {
    static_assert(std::is_void_v<B>, "tessera: tensors are immutable; write x = x - y instead of x -= y");
    return x;
  }
  template <class B> friend constexpr auto& operator*=(Self& x, const B&) {
    static_assert(std::is_void_v<B>, "tessera: tensors are immutable; write x = x * y instead of x *= y");
    return x;
  }
  template <class B> friend constexpr auto& operator/=(Self& x, const B&) {
    static_assert(std::is_void_v<B>, "tessera: tensors are immutable; write x = x / y instead of x /= y");
    return x;
  }
  template <class I> constexpr const auto& operator[](const I&) const {
    static_assert(std::is_void_v<I>,
                  "tessera: tensors have no operator[]; write ts::select<0>(x, 2) for x[2], ts::dynamic_index<0>(x, i) "
                  "with the index of a loop, ts::slice<0>(x, start, size) for a range of rows, ts::embedding(x, "
                  "indices) for rows by index, and ts::select(condition, x, y) instead of an "
                  "assignment to elements");
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
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
