#ifndef TESSERA_TENSOR_PROGRAM_EXPRESSION_PROGRAM_HPP
#define TESSERA_TENSOR_PROGRAM_EXPRESSION_PROGRAM_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/graph/trace/trace.hpp>
#include <tessera/tensor/program/program.hpp>

namespace tessera::detail {

/// Leaves of an expression type, in order. A C++ number becomes a Scalar, so that `x * 2` and `x * 3` share a program.
template <class X> struct ExpressionLeaves {
  using type = std::tuple<X>;
};
template <class X>
  requires std::is_arithmetic_v<X>
struct ExpressionLeaves<X> {
  using type = std::tuple<Scalar>;
};
template <class Tag, class... Operands> struct ExpressionLeaves<Expr<Tag, Operands...>> {
  using type = decltype(std::tuple_cat(std::declval<typename ExpressionLeaves<Operands>::type>()...));
};

/// The index of the operand that is the extent of a dim of the result, as `size` of slice<0>(x, start, size) is. -1:
/// the operation has no such operand.
template <class Tag, std::size_t Operands> constexpr int size_operand() {
  if constexpr (requires { Tag::size_operand; })
    return Tag::size_operand < static_cast<int>(Operands) ? Tag::size_operand : -1;
  else
    return -1;
}

/// The size operands of an expression whose dims other operations use: a size of 1 makes a singleton dim, which they
/// broadcast. They are numbered from 0 in preorder, an operation before its operands.
template <class X> struct ExpressionSizes {
  static constexpr int count(bool) { return 0; }
  static void find_ones(const X&, bool, int&, unsigned&) {}
};
template <class Tag, class... Operands> struct ExpressionSizes<Expr<Tag, Operands...>> {
  static constexpr int own = size_operand<Tag, sizeof...(Operands)>();
  /// `inner`: the result is an operand of another operation of the expression.
  static constexpr int count(bool inner) {
    return ((inner && own >= 0 ? 1 : 0) + ... + ExpressionSizes<Operands>::count(true));
  }
  static void find_ones(const Expr<Tag, Operands...>& x, bool inner, int& next, unsigned& ones) {
    if constexpr (own >= 0)
      if (const int number = inner ? next++ : -1; number >= 0 && number < 32)
        if (operand_at<static_cast<std::size_t>(own)>(x.operands).value() == 1) ones |= 1u << number;
    x.operands.apply(
        [&](const auto&... operands) { (ExpressionSizes<Operands>::find_ones(operands, true, next, ones), ...); });
  }
};

/// Emits the nodes of an expression type, given the values of its leaves. Bit n of `ones`: size n is the constant 1.
template <class X> struct ExpressionEmitter {
  static constexpr Value emit(Value, const Value* leaves, int& next, unsigned, int&, bool) { return leaves[next++]; }
};
template <class Tag, class... Operands> struct ExpressionEmitter<Expr<Tag, Operands...>> {
  static constexpr int own = size_operand<Tag, sizeof...(Operands)>();

  static constexpr Value emit(Value context, const Value* leaves, int& next, unsigned ones, int& size, bool inner) {
    const int number = inner && own >= 0 ? size++ : -1;
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      const Value operands[] = {operand<static_cast<int>(I), Operands>(context, leaves, next, ones, size, number)...};
      return Emission<Expr<Tag, Operands...>>::emit(context, operands[I]...);
    }(std::index_sequence_for<Operands...>{});
  }

 private:
  template <int I, class X>
  static constexpr Value operand(Value context, const Value* leaves, int& next, unsigned ones, int& size, int number) {
    if (I != own || number < 0 || number >= 32 || (ones >> number & 1) == 0)
      return ExpressionEmitter<X>::emit(context, leaves, next, ones, size, true);
    ++next;
    return context.number(1, DType::i64);
  }
};

/// An expression type as a function of its leaves, to be traced like a function of ts::compile.
template <class E, unsigned Ones> struct ExpressionFunction {
  template <class... Leaves> constexpr auto operator()(const Leaves&... list) const {
    const Value leaves[] = {trace_of(list)...};
    int next = 0, size = 0;
    return Sym<typename E::element, E::rank>(ExpressionEmitter<E>::emit(leaves[0], leaves, next, Ones, size, false));
  }
};
template <class E, unsigned Ones, class Tuple> struct TracedExpressionOf;
template <class E, unsigned Ones, class... Leaves> struct TracedExpressionOf<E, Ones, std::tuple<Leaves...>> {
  using trace = Trace<ExpressionFunction<E, Ones>, Leaves...>;
  using type = Traced<ExpressionFunction<E, Ones>, Leaves...>;
};

/// The programs of an expression type. A trace sees that slice<0>(x, 0, 1) has a singleton dim; an expression type
/// doesn't, since its sizes are run-time values. So it has one program for each subset of its first sizes that are 1.
template <class E> class ExpressionPrograms {
 public:
  /// Three sizes make eight programs. All later sizes are treated as above 1.
  static constexpr int most_sizes = 3;

  static ProgramCache& find(const E& expression) {
    if constexpr (sizes == 0 || !any) {
      return cache_of<Of<0>>();  // if no subset can be traced, this gives the compile error with the reason
    } else {
      unsigned ones = 0;
      int next = 0;
      ExpressionSizes<E>::find_ones(expression, false, next, ones);
      ProgramCache* found = nullptr;
      [&]<unsigned... Ones>(std::integer_sequence<unsigned, Ones...>) {
        ((found = Ones == (ones & (choices - 1)) ? program<Ones>() : found), ...);
      }(std::make_integer_sequence<unsigned, choices>{});
      if (found == nullptr)
        fail(errc::shape_mismatch, "[eval] static extent: an operation needs a singleton dim, such as a slice of size "
                                   "1, but at run time the size is not 1");
      return *found;
    }
  }

 private:
  static constexpr int counted = ExpressionSizes<E>::count(false);
  static constexpr int sizes = counted < most_sizes ? counted : most_sizes;
  static constexpr unsigned choices = 1u << sizes;
  using Leaves = typename ExpressionLeaves<E>::type;
  template <unsigned Ones> using Of = typename TracedExpressionOf<E, Ones, Leaves>::type;
  template <unsigned Ones>
  static constexpr bool traceable = Traceable<typename TracedExpressionOf<E, Ones, Leaves>::trace>;
  static constexpr bool any = []<unsigned... Ones>(std::integer_sequence<unsigned, Ones...>) {
    return (traceable<Ones> || ...);
  }(std::make_integer_sequence<unsigned, choices>{});

  template <unsigned Ones> static ProgramCache* program() {
    if constexpr (traceable<Ones>)
      return &cache_of<Of<Ones>>();
    else if constexpr (traceable<0>)
      return &cache_of<Of<0>>();
    else
      return nullptr;
  }
};

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
