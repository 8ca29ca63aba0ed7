#ifndef TESSERA_OPS_ELEMENTWISE_INTEGER_HPP
#define TESSERA_OPS_ELEMENTWISE_INTEGER_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <type_traits>

#include <tessera/ops/elementwise/comparison.hpp>
#include <tessera/ops/elementwise/composition.hpp>
#include <tessera/ops/elementwise/each_element.hpp>
#include <tessera/ops/elementwise/rounding.hpp>

// Remainders, and operations on bits.

namespace tessera::ops {

/// The remainder of the quotient towards zero; for integers and a divisor of 0 it is the dividend, as in XLA.
struct FmodOp : ElementwiseOperation<2> {
  static constexpr std::string_view name = "fmod";
  static constexpr std::uint8_t flops = 20, lane_cost = 60;
  static constexpr bool of_bools = false, by_part = true;
  static TESSERA_INLINE auto value(const auto& x, const auto& y) {
    return each_element(
        [](auto a, auto b) {
          using T = decltype(a);
          if constexpr (std::is_same_v<T, double>)
            return __builtin_fmod(a, b);
          else if constexpr (std::is_floating_point_v<T>)
            return __builtin_fmodf(a, b);
          else
            return b == 0 ? a : b == static_cast<T>(-1) ? T(0) : static_cast<T>(a % b);
        },
        x, y);
  }
  static constexpr void gradient(Gradient& r) {
    r.add(0, r.g());
    if (r.needs(1)) r.add(1, -(r.g() * build::apply<TruncOp>(r.x(0) / r.x(1))));
  }
};

template <int Arity> struct BitwiseOperation : ElementwiseOperation<Arity> {
  static constexpr bool of_bools = false, of_floats = false, by_part = true;
};
/// A function of 64-bit integers, of the doubles that hold them on the host.
template <class F> constexpr double of_whole(F f, double x, double y = 0) {
  return static_cast<double>(f(static_cast<std::int64_t>(x), static_cast<std::int64_t>(y)));
}

struct BitwiseAndOp : BitwiseOperation<2> {
  static constexpr std::string_view name = "bitwise_and";
  static TESSERA_INLINE auto value(const auto& x, const auto& y) { return x & y; }
  static double value(const double& x, const double& y) {
    return of_whole([](auto a, auto b) { return a & b; }, x, y);
  }
};
struct BitwiseOrOp : BitwiseOperation<2> {
  static constexpr std::string_view name = "bitwise_or";
  static TESSERA_INLINE auto value(const auto& x, const auto& y) { return x | y; }
  static double value(const double& x, const double& y) {
    return of_whole([](auto a, auto b) { return a | b; }, x, y);
  }
};
struct BitwiseXorOp : BitwiseOperation<2> {
  static constexpr std::string_view name = "bitwise_xor";
  static TESSERA_INLINE auto value(const auto& x, const auto& y) { return x ^ y; }
  static double value(const double& x, const double& y) {
    return of_whole([](auto a, auto b) { return a ^ b; }, x, y);
  }
};
struct BitwiseNotOp : BitwiseOperation<1> {
  static constexpr std::string_view name = "bitwise_not";
  static TESSERA_INLINE auto value(const auto& x) { return ~x; }
  static double value(const double& x) {
    return of_whole([](auto a, auto) { return ~a; }, x);
  }
};

/// Shifts by less than 0 or by all bits and more shift everything out.
template <bool Left> struct Shifted {
  template <class T> constexpr auto operator()(T a, T by) const {
    if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>((*this)(static_cast<std::int64_t>(a), static_cast<std::int64_t>(by)));
    } else {
      constexpr T bits = 8 * sizeof(T);
      const bool out = by < 0 || by >= bits;
      if constexpr (Left)
        return out ? T(0) : static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) << by);
      else
        return static_cast<T>(a >> (out ? bits - 1 : by));
    }
  }
};
struct LeftShiftOp : BitwiseOperation<2> {
  static constexpr std::string_view name = "bitwise_left_shift";
  static constexpr std::uint8_t lane_cost = 8;
  static TESSERA_INLINE auto value(const auto& x, const auto& y) { return each_element(Shifted<true>{}, x, y); }
};
struct RightShiftOp : BitwiseOperation<2> {
  static constexpr std::string_view name = "bitwise_right_shift";
  static constexpr std::uint8_t lane_cost = 8;
  static TESSERA_INLINE auto value(const auto& x, const auto& y) { return each_element(Shifted<false>{}, x, y); }
};

using IntegerOperations =
    OperationList<FmodOp, BitwiseAndOp, BitwiseOrOp, BitwiseXorOp, BitwiseNotOp, LeftShiftOp, RightShiftOp>;

}  // namespace tessera::ops

namespace tessera {

namespace detail {

/// The remainder towards zero, and whether its sign is not that of the divisor.
struct SignedRemainder {
  Value rest, differs;
  constexpr SignedRemainder(Value x, Value y)
      : rest(build::apply<ops::FmodOp>(x, y)),
        differs(build::logical_and(build::not_equal(rest, x.number(0)),
                                   build::not_equal(build::less(rest, x.number(0)), build::less(y, x.number(0))))) {}
};
struct RemainderTag : Binary<ops::FmodOp> {
  static constexpr Value emit(Value context, Value x, Value y) {
    const SignedRemainder r(x.at(context.source), y);
    return build::select(r.differs, r.rest + y, r.rest);
  }
};
struct FloorDivideTag : Binary<ops::FmodOp> {
  static constexpr Value emit(Value context, Value x, Value y) {
    x = x.at(context.source);
    const SignedRemainder r(x, y);
    const Value zero = x.number(0), by_zero = build::equal(y, zero), quotient = x / y;
    const Value whole = is_floating(x.dtype()) ? (x - r.rest) / y : quotient;
    const Value below = build::select(r.differs, whole - 1.0, whole);
    if (!is_floating(x.dtype())) return build::select(by_zero, build::broadcast(zero, below), below);
    const Value nearest = build::apply<ops::RoundOp>(below);  // whole but for the rounding of the division
    // 0 with the sign of the quotient, and x / 0.
    const Value signed_zero = build::select(build::equal(nearest, zero), quotient * 0.0, nearest);
    return build::select(by_zero, quotient, signed_zero);
  }
};

/// Operations on bits, of integers; of bools they are those of logic.
template <class Operation, Op OfBools> struct Bitwise : Binary<Operation> {
  template <class A, class B> struct result : Promote<A, B> {
    using Checks = decltype([] {
      static_assert(!is_floating(Promote<A, B>::dtype), "tessera: bitwise operations take integer and bool tensors");
    });
  };
  static constexpr Value emit(Value context, Value x, Value y) {
    return build::binary(x.dtype() == DType::bool_ ? OfBools : ops::op_v<Operation>, x.at(context.source), y);
  }
};
template <class Operation> struct Shift : Binary<Operation> {
  template <class A, class B> struct result : Promote<A, B> {
    using Checks = decltype([] {
      static_assert(is_integer(Promote<A, B>::dtype), "tessera: bitwise shifts take integer tensors");
    });
  };
};
struct BitwiseNotTag : Unary<ops::BitwiseNotOp> {
  template <class A> struct result : A {
    using Checks = decltype([] {
      static_assert(!is_floating(dtype_v<typename A::type>),
                    "tessera: bitwise operations take integer and bool tensors");
    });
  };
  static constexpr Value emit(Value context, Value x) {
    return build::unary(x.dtype() == DType::bool_ ? Op::logical_not : ops::op_v<ops::BitwiseNotOp>,
                        x.at(context.source));
  }
};

}  // namespace detail

/// The remainder of a / b that has the sign of a, C's fmod and, of integers, its %; exact. Floats give NaN where b is 0
/// or a infinite; integers with a divisor of 0 give the dividend, as in XLA, where PyTorch throws. Operands are
/// broadcast and promoted. Gradients: 1 and -trunc(a / b). Errors: shape_mismatch. No communication.
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto fmod(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Binary<ops::FmodOp>>(Source::from(at), a, b);
}
/// The remainder of a / b that has the sign of b, Python's % and PyTorch's and JAX's remainder. NaN as for fmod; the
/// sum of the remainder of fmod and b is rounded once. Gradients: 1 and -floor(a / b). Otherwise as fmod.
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto remainder(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::RemainderTag>(Source::from(at), a, b);
}
/// a / b rounded down, Python's //, in the element type of the operands. For floats a divisor of 0 gives a / b; for
/// integers it gives 0, where PyTorch throws. The gradient is 0. Otherwise as fmod.
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto floor_divide(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::FloorDivideTag>(Source::from(at), a, b);
}

/// Operations on the bits of integers in two's complement, or on bools, broadcast and promoted; no gradient. Errors:
/// shape_mismatch. No communication.
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto bitwise_and(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Bitwise<ops::BitwiseAndOp, Op::logical_and>>(Source::from(at), a, b);
}
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto bitwise_or(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Bitwise<ops::BitwiseOrOp, Op::logical_or>>(Source::from(at), a, b);
}
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto bitwise_xor(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Bitwise<ops::BitwiseXorOp, Op::not_equal>>(Source::from(at), a, b);
}
template <TensorArgument X> constexpr auto bitwise_not(const X& x, Here at = Here::current()) {
  return call<detail::BitwiseNotTag>(Source::from(at), x);
}
/// Bits moved by b positions, to the left with zeros from the right, to the right with copies of the sign. All are
/// moved out where b is below 0 or at least the number of bits, as in PyTorch: 0, or, to the right, the sign.
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto bitwise_left_shift(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Shift<ops::LeftShiftOp>>(Source::from(at), a, b);
}
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto bitwise_right_shift(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Shift<ops::RightShiftOp>>(Source::from(at), a, b);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
