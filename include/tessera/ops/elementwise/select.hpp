#ifndef TESSERA_OPS_ELEMENTWISE_SELECT_HPP
#define TESSERA_OPS_ELEMENTWISE_SELECT_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/elementwise/elementwise_operation.hpp>

namespace tessera::ops {

constexpr double select(double condition, double yes, double no) { return condition != 0 ? yes : no; }

/// Operands: a condition, the value where it holds, the value where it does not.
struct SelectOp : ElementwiseOperation<3> {
  static constexpr std::string_view name = "select";
  static constexpr Linearity linear = Linearity::choice;
  static constexpr CheckRule check = [](const NodeCheck& c) {
    return c.x(0).dtype == DType::bool_ ? check_types(c, 1) : BrokenRule("a condition is a bool");
  };
  static TESSERA_INLINE constexpr auto value(const auto& condition, const auto& yes, const auto& no) {
    return select(condition, yes, no);
  }
  static constexpr void gradient(Gradient& r) {
    const Value zero = r.x(1).number(0);
    r.add(1, build::select(r.x(0), r.g(), zero));
    r.add(2, build::select(r.x(0), zero, r.g()));
  }
};

/// Who computes with it converts between the element types.
struct CastOp : ElementwiseOperation<1> {
  static constexpr std::string_view name = "cast";
  static constexpr CheckRule check = check_broadcast;
  static constexpr bool folds = true, of_integers = true;
  static TESSERA_INLINE constexpr auto value(const auto& x) { return x; }
  static constexpr void gradient(Gradient& r) { r.add(0, build::uncast(r.g(), r.x(0).dtype())); }
};

/// The first operand spread over the shape of the second, whose elements are not read.
struct BroadcastOp {
  static constexpr OpRow row{.name = "broadcast",
                             .kind = OpKind::elementwise,
                             .arity = 2,
                             .linear = Linearity::first,
                             .shape = broadcast_shape,
                             .sharding = elementwise_sharding,
                             .number = [](double x, double, double) { return x; },
                             .flops = 0,
                             .shape_only = 1u << 1};
  static constexpr bool by_part = false;
  static constexpr CheckRule check = [](const NodeCheck& c) {
    if (const BrokenRule broken = check_broadcast(c); !broken.empty()) return broken;
    if (c.node().dtype != c.x(0).dtype) return BrokenRule("the result has the element type of its operands");
    return same_static_shape(c.node(), c.x(1)) ? BrokenRule{} : "a broadcast has the shape of its second operand";
  };
  static TESSERA_INLINE constexpr auto value(const auto& x, const auto&) { return x; }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g()); }
};

using SelectOperations = OperationList<SelectOp, CastOp, BroadcastOp>;

}  // namespace tessera::ops

namespace tessera {

namespace detail {

struct SelectTag {
  template <class C, class A, class B> struct result {
    using Said = decltype([] {
      static_assert(std::is_same_v<typename C::type, bool>, "tessera: the condition of select is a bool tensor");
    });
    using type = typename Promote<A, B>::type;
    static constexpr int rank = C::rank > Promote<A, B>::rank ? C::rank : Promote<A, B>::rank;
  };
  template <class C, class A, class B> static constexpr void convert(Value&, Value& yes, Value& no) {
    yes = convert_operand<A>(yes, Promote<A, B>::dtype);
    no = convert_operand<B>(no, Promote<A, B>::dtype);
  }
  static constexpr Value emit(Value context, Value condition, Value yes, Value no) {
    return build::select(condition, yes.at(context.source), no);
  }
};

template <class To> struct CastTag {
  template <class A> using result = Typed<To, A::rank>;
  static constexpr Value emit(Value context, Value x) { return build::cast(x.at(context.source), dtype_v<To>); }
};

}  // namespace detail

/// yes where the condition holds, no elsewhere.
template <TensorOperand C, Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto select(const C& condition, const A& yes, const B& no, Here at = Here::current()) {
  return call<detail::SelectTag>(Source::from(at), condition, yes, no);
}

/// x with another element type. Floating to integer truncates; to bool tests against zero.
template <Element To, TensorOperand X> constexpr auto cast(const X& x, Here at = Here::current()) {
  return call<detail::CastTag<To>>(Source::from(at), x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
