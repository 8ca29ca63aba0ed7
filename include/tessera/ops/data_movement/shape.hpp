#ifndef TESSERA_OPS_DATA_MOVEMENT_SHAPE_HPP
#define TESSERA_OPS_DATA_MOVEMENT_SHAPE_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>

#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/source/extent_rows.hpp>
#include <tessera/ops/source/position_rows.hpp>

namespace tessera {

/// A size: an integer or a Dim. Operations take sizes as Dims, since plans depend on their values; other numbers in an
/// expression are Scalars, on whose values no plan depends.
template <class T>
concept SizeOperand = (std::integral<T> && !std::same_as<T, bool>) || std::same_as<T, Dim>;

namespace detail {

/// `Dim` as an index from 0; negative indices count from the end.
template <int Dim, int Rank> constexpr int checked_dim() {
  static_assert(Dim >= -Rank && Dim < Rank, "tessera: the dim is out of range for the rank of the tensor");
  return Dim < 0 ? Dim + Rank : Dim;
}

/// For overloads with a dim as an argument, as in PyTorch: they do not compile.
template <class Dim, class X> constexpr auto refuse_dim_argument(const X& x) {
  static_assert(
      std::is_void_v<Dim>,
      "tessera: dims are template arguments: ts::cumsum<0>(x) for ts::cumsum(x, 0), ts::concat<0>(x, y) for "
      "ts::concat(x, y, 0), ts::gather<1>(x, indices) for ts::gather(x, 1, indices), ts::slice<0>(x, start, "
      "size), ts::flip<0, 1>(x) for ts::flip(x, {0, 1}), ts::pad<0>(x, before, after), ts::roll<0>(x, shift), "
      "ts::tile<0>(x, count)");
  return x;
}

/// Sizes are 64-bit integers in a graph.
constexpr Value as_size(Value v) { return build::cast(v, DType::i64); }

/// Computes with two sizes: returns their result, or if one is traced the node of it.
template <class Operation> constexpr Dim combine(const Dim& x, const Dim& y) {
  constexpr const OpRow& row = ops::row_v<Operation>;
  if (!x.traced() && !y.traced()) {
    std::int64_t exact = 0;
    const IntegerResult found = row.integers(x.value(), y.value(), exact);
    if (found != IntegerResult::known) fail_integers(found, row.name, x.value(), y.value());
    return Dim(exact);
  }
  const Value context = here(x.traced() ? x.placeholder() : y.placeholder());
  return Dim(build::binary(ops::op_v<Operation>, lower(context, x), lower(context, y)));
}

/// Operands of arithmetic on numbers that gives a Scalar: with a Scalar, or with a size and a floating-point number.
template <class A, class B>
concept ScalarOperands = NumberOperand<A> && NumberOperand<B> &&
                         (std::is_same_v<A, Scalar> || std::is_same_v<B, Scalar> ||
                          (std::is_same_v<A, Dim> && std::is_floating_point_v<B>) ||
                          (std::is_floating_point_v<A> && std::is_same_v<B, Dim>));
template <class A, class B>
concept ComparesScalars = ScalarOperands<A, B> && (std::is_same_v<A, Scalar> || std::is_same_v<B, Scalar>);
template <class N> constexpr double real_of(const N& n) {
  if constexpr (std::is_arithmetic_v<N>)
    return static_cast<double>(n);
  else
    return n.number().real();
}
/// Computes with two numbers in f64: returns their result, or if one is traced the node of it.
template <class Operation, class A, class B> constexpr Scalar combine_numbers(const A& a, const B& b) {
  const Value of_a = trace_of(a);
  const Value context = of_a.module != nullptr ? of_a : trace_of(b);
  if (context.module == nullptr) return Scalar(ops::row_v<Operation>.number(real_of(a), real_of(b), 0));
  const Value at = here(context);
  const Value made =
      build::binary(ops::op_v<Operation>, build::cast(lower(at, a), DType::f64), build::cast(lower(at, b), DType::f64));
  return Scalar(build::cast(made, DType::f64));
}

template <class Operation, class N> constexpr Scalar function_of_number(const N& n) {
  const Value context = trace_of(n);
  if (context.module == nullptr) return Scalar(ops::row_v<Operation>.number(real_of(n), 0, 0));
  return Scalar(build::unary(ops::op_v<Operation>, build::cast(lower(here(context), n), DType::f64)));
}

}  // namespace detail

/// A size as a number: a Scalar, which takes the element type of the tensor that it meets, whatever `To` is.
///
///     const auto mean = ts::sum<0>(x) / ts::cast<double>(ts::extent<0>(x));
template <Element To, std::same_as<Dim> N>
  requires is_floating_v<To>
constexpr Scalar cast(const N& size) {
  if (!size.traced()) return Scalar(static_cast<double>(size.value()));
  return Scalar(build::cast(here(size.placeholder()), DType::f64));
}
/// A Scalar as it is: it takes the element type of the tensor that it meets.
template <Element To, std::same_as<Scalar> N>
  requires is_floating_v<To>
constexpr Scalar cast(const N& number) {
  return number;
}

namespace detail {

template <int Rank, int Dim, class T> struct IotaTag {
  template <class A> using result = Typed<T, Rank>;
  static constexpr Value emit(Value context, Value like) {
    return build::iota(like.at(context.source), like.shifted(Dim, Rank), dtype_v<T>);
  }
};

template <class T> struct ArangeTag {
  template <class X, class Size> using result = Typed<T, 1>;
  static constexpr Value emit(Value context, Value, Value size) {
    size = as_size(size).at(context.source);
    const DType counted = size_of(dtype_v<T>) == 8 ? DType::i64 : DType::i32;
    return build::cast(build::arange(size, counted), dtype_v<T>);
  }
};
template <class T> constexpr Sym<T, 1> counted_to(Value context, const Dim& n) {
  return Sym<T, 1>(ArangeTag<T>::emit(here(context), context, lower(here(context), n)));
}

struct BroadcastTag {
  static constexpr auto leading_dims = ops::LeadingDims::like;
  template <class A, class B> static constexpr bool fills = is_number_v<typename A::type>;
  template <class A, class B> struct result {
    using type = typename std::conditional_t<fills<A, B>, B, A>::type;
    static constexpr int rank = B::rank;
    using Checks = decltype([] {
      static_assert(A::rank <= B::rank, "tessera: a tensor can't be broadcast to a tensor of lower rank");
      static_assert(!fills<A, B> || is_floating_v<typename B::type> ||
                        !std::is_same_v<typename A::type, Number<NumberKind::floating>>,
                    "tessera: a floating number can't be broadcast to an integer or bool tensor; use an integer");
    });
  };
  template <class A, class B> static constexpr void convert(Value& x, const Value& like) {
    if constexpr (fills<A, B>) x = convert_operand<A>(x, like.dtype());
  }
  static constexpr Value emit(Value context, Value x, Value like) {
    const int lead = like.rank() - x.rank();
    for (int d = 0; d < x.rank(); ++d)
      if (lead + d >= 0 && like.is_singleton(lead + d) && !x.is_singleton(d))
        context.refuse(errc::shape_mismatch,
                       "[broadcast_like] dims: the target has static extent 1 in a dim in which the operand does not");
    x = x.at(context.source);
    if (x.rank() == 0) return build::broadcast(x, like);
    return build::checked_broadcast(x, like, MadeBy::broadcast_like);
  }
};

}  // namespace detail

/// Exact arithmetic on sizes; division rounds towards zero. Inside a traced function it is recorded and computed when
/// the program is planned. Errors: capacity for a result beyond 64 bits, dim_range for a division by zero.
constexpr Dim operator+(const Dim& x, const Dim& y) { return detail::combine<ops::AddOp>(x, y); }
constexpr Dim operator-(const Dim& x, const Dim& y) { return detail::combine<ops::SubOp>(x, y); }
constexpr Dim operator*(const Dim& x, const Dim& y) { return detail::combine<ops::MulOp>(x, y); }
constexpr Dim operator/(const Dim& x, const Dim& y) { return detail::combine<ops::DivOp>(x, y); }
constexpr Dim operator%(const Dim& x, const Dim& y) { return x - x / y * y; }
constexpr Dim operator-(const Dim& x) { return Dim(0) - x; }
/// The larger, the smaller of two sizes, one of which is a Dim.
template <SizeOperand A, SizeOperand B>
  requires(std::is_same_v<A, Dim> || std::is_same_v<B, Dim>)
constexpr Dim maximum(const A& x, const B& y) {
  return detail::combine<ops::MaximumOp>(x, y);
}
template <SizeOperand A, SizeOperand B>
  requires(std::is_same_v<A, Dim> || std::is_same_v<B, Dim>)
constexpr Dim minimum(const A& x, const B& y) {
  return detail::combine<ops::MinimumOp>(x, y);
}

namespace detail {
/// The value of a size, where it is known while a function is traced.
constexpr bool is_known(const Dim& size) { return !size.traced() || size.placeholder().node().is_constant(); }
constexpr std::int64_t known_value(const Dim& size) {
  return size.traced() ? number_of(size.placeholder().node()).integer() : size.value();
}
/// Compares two sizes. Errors: unsupported where that depends on a size that is not known yet.
template <class Compare> constexpr bool compare_sizes(const SizeAt& x, const SizeAt& y, Compare compare) {
  const Dim &a = x.value, &b = y.value;
  if (is_known(a) && is_known(b)) return compare(known_value(a), known_value(b));
  if (a.traced() && b.traced() && here(a.placeholder()) == here(b.placeholder())) return compare(0, 0);
  const Value context = here(a.traced() ? a.placeholder() : b.placeholder());
  context.at(x.line).refuse(
      errc::unsupported,
      "[comparison] size: no if, while or ?: can depend on a ts::Dim of a traced function, which is not known before a "
      "plan is made; a loop over a dim is ts::fori_loop or ts::scan, a branch ts::cond(ts::cast<double>(n) < 2, ...)");
  return false;
}
template <class A, class B>
concept ComparesDimWithReal =
    (std::is_same_v<A, Dim> && std::is_floating_point_v<B>) || (std::is_floating_point_v<A> && std::is_same_v<B, Dim>);
template <class A> constexpr auto no_comparison() {
  static_assert(std::is_void_v<A>,
                "tessera: a ts::Dim can't be compared with a floating-point number; compare ts::cast<double>(n)");
  return false;
}
}  // namespace detail

/// Comparisons of sizes give a bool where both are known: outside of a traced function, and inside of it for numbers
/// and for dims of static extent 1; a size equals itself. Errors: unsupported, inside a traced function, for a size
/// that is known only when the program is planned.
constexpr bool operator==(const detail::SizeAt& x, const detail::SizeAt& y) {
  return detail::compare_sizes(x, y, [](std::int64_t a, std::int64_t b) { return a == b; });
}
constexpr bool operator!=(const detail::SizeAt& x, const detail::SizeAt& y) {
  return detail::compare_sizes(x, y, [](std::int64_t a, std::int64_t b) { return a != b; });
}
constexpr bool operator<(const detail::SizeAt& x, const detail::SizeAt& y) {
  return detail::compare_sizes(x, y, [](std::int64_t a, std::int64_t b) { return a < b; });
}
constexpr bool operator<=(const detail::SizeAt& x, const detail::SizeAt& y) {
  return detail::compare_sizes(x, y, [](std::int64_t a, std::int64_t b) { return a <= b; });
}
constexpr bool operator>(const detail::SizeAt& x, const detail::SizeAt& y) {
  return detail::compare_sizes(x, y, [](std::int64_t a, std::int64_t b) { return a > b; });
}
constexpr bool operator>=(const detail::SizeAt& x, const detail::SizeAt& y) {
  return detail::compare_sizes(x, y, [](std::int64_t a, std::int64_t b) { return a >= b; });
}
// Without these overloads, compilers would list all comparisons that exist. `auto` has the assertion fail where an
// operator is called, not later, where a trace evaluates it.
template <class A, class B>
  requires detail::ComparesDimWithReal<A, B>
constexpr auto operator==(const A&, const B&) {
  return detail::no_comparison<A>();
}
template <class A, class B>
  requires detail::ComparesDimWithReal<A, B>
constexpr auto operator<(const A&, const B&) {
  return detail::no_comparison<A>();
}
template <class A, class B>
  requires detail::ComparesDimWithReal<A, B>
constexpr auto operator<=(const A&, const B&) {
  return detail::no_comparison<A>();
}
template <class A, class B>
  requires detail::ComparesDimWithReal<A, B>
constexpr auto operator>(const A&, const B&) {
  return detail::no_comparison<A>();
}
template <class A, class B>
  requires detail::ComparesDimWithReal<A, B>
constexpr auto operator>=(const A&, const B&) {
  return detail::no_comparison<A>();
}

/// Arithmetic on Scalars, also with numbers and Dims, and of a Dim with a floating-point number, in f64: `1.0 - decay`,
/// `position + 1`, `ts::extent<0>(x) * 0.5`. Inside a traced function it is recorded, and computed once in each call;
/// a call with other values runs the same plan.
template <class A, class B>
  requires detail::ScalarOperands<A, B>
constexpr Scalar operator+(const A& a, const B& b) {
  return detail::combine_numbers<ops::AddOp>(a, b);
}
template <class A, class B>
  requires detail::ScalarOperands<A, B>
constexpr Scalar operator-(const A& a, const B& b) {
  return detail::combine_numbers<ops::SubOp>(a, b);
}
template <class A, class B>
  requires detail::ScalarOperands<A, B>
constexpr Scalar operator*(const A& a, const B& b) {
  return detail::combine_numbers<ops::MulOp>(a, b);
}
template <class A, class B>
  requires detail::ScalarOperands<A, B>
constexpr Scalar operator/(const A& a, const B& b) {
  return detail::combine_numbers<ops::DivOp>(a, b);
}
constexpr Scalar operator-(const Scalar& x) { return x * -1.0; }
template <class A, class B>
  requires detail::ScalarOperands<A, B>
constexpr Scalar pow(const A& a, const B& b) {
  return detail::combine_numbers<ops::PowOp>(a, b);
}
template <class A, class B>
  requires detail::ScalarOperands<A, B>
constexpr Scalar maximum(const A& a, const B& b) {
  return detail::combine_numbers<ops::MaximumOp>(a, b);
}
template <class A, class B>
  requires detail::ScalarOperands<A, B>
constexpr Scalar minimum(const A& a, const B& b) {
  return detail::combine_numbers<ops::MinimumOp>(a, b);
}
/// Comparisons with a Scalar give a Scalar, 1 or 0: `ts::cond(step < 100, ...)`.
template <class A, class B>
  requires detail::ComparesScalars<A, B>
constexpr Scalar operator<(const A& a, const B& b) {
  return detail::combine_numbers<ops::LessOp>(a, b);
}
template <class A, class B>
  requires detail::ComparesScalars<A, B>
constexpr Scalar operator<=(const A& a, const B& b) {
  return detail::combine_numbers<ops::LessEqualOp>(a, b);
}
template <class A, class B>
  requires detail::ComparesScalars<A, B>
constexpr Scalar operator>(const A& a, const B& b) {
  return detail::combine_numbers<ops::GreaterOp>(a, b);
}
template <class A, class B>
  requires detail::ComparesScalars<A, B>
constexpr Scalar operator>=(const A& a, const B& b) {
  return detail::combine_numbers<ops::GreaterEqualOp>(a, b);
}
namespace detail {
template <class... N>
concept NumbersWithScalar = (NumberOperand<N> && ...) && (std::is_same_v<N, Scalar> || ...);
template <class N> constexpr bool is_nonzero(const N& n) {
  if constexpr (std::is_arithmetic_v<N>)
    return n != N(0);
  else
    return n.number().real() != 0;
}
}  // namespace detail
/// A Scalar: `yes` where the condition is not 0, `no` where it is. As the arithmetic above.
template <class C, class A, class B>
  requires detail::NumbersWithScalar<C, A, B>
constexpr Scalar select(const C& condition, const A& yes, const B& no) {
  Value context = trace_of(condition);
  if (context.module == nullptr) context = trace_of(yes);
  if (context.module == nullptr) context = trace_of(no);
  if (context.module == nullptr)
    return Scalar(detail::is_nonzero(condition) ? detail::real_of(yes) : detail::real_of(no));
  const Value at = here(context);
  const auto real = [&](const auto& n) { return build::cast(lower(at, n), DType::f64); };
  return Scalar(build::select(detail::as_condition(lower(at, condition)), real(yes), real(no)));
}
template <class C, class A, class B>
  requires detail::NumbersWithScalar<C, A, B>
constexpr Scalar where(const C& condition, const A& yes, const B& no) {
  return select(condition, yes, no);
}
/// Functions of a Scalar or a Dim, in f64: `1.0 / ts::sqrt(ts::extent<1>(x))`. As the arithmetic above.
template <class N>
  requires(std::is_same_v<N, Scalar> || std::is_same_v<N, Dim>)
constexpr Scalar sqrt(const N& n) {
  return detail::function_of_number<ops::SqrtOp>(n);
}
template <class N>
  requires(std::is_same_v<N, Scalar> || std::is_same_v<N, Dim>)
constexpr Scalar exp(const N& n) {
  return detail::function_of_number<ops::ExpOp>(n);
}
template <class N>
  requires(std::is_same_v<N, Scalar> || std::is_same_v<N, Dim>)
constexpr Scalar log(const N& n) {
  return detail::function_of_number<ops::LogOp>(n);
}

/// Inside a traced function: the indices 0, ..., n - 1, where n is a size of the function, such as ts::extent<1>(x)
/// (torch.arange, jnp.arange); of a number n, with any tensor of the function as second argument; i32 when no type
/// is named. Error: unsupported for a size that is no size of a traced function. No communication.
///
///     const auto position = ts::arange<float>(ts::extent<1>(x));   // [T]
///     const auto eight = ts::arange<float>(8, x);                  // [8]
template <Element T = std::int32_t> constexpr Sym<T, 1> arange(const Dim& n, Here at = Here::current()) {
  if (!n.traced())
    fail(errc::unsupported,
         "[arange] size: a number, or outside of a traced function; give a tensor of the function "
         "as second argument, or a mesh",
         Source::from(at));
  return detail::counted_to<T>(n.placeholder().at(Source::from(at)), n);
}
template <Element T = std::int32_t, SizeOperand N, TensorArgument X>
constexpr auto arange(const N& n, const X& in, Here at = Here::current()) {
  return call<detail::ArangeTag<T>>(Source::from(at), in, Dim(n));
}

/// Inside a traced function: the extent of dim D, as a Dim. Negative dims count from the end. Errors: unsupported
/// outside of a trace.
template <int D, TensorArgument X> constexpr Dim extent(const X& x, Here at = Here::current()) {
  const Value context = trace_of(x).at(Source::from(at));
  if (context.module == nullptr)
    fail(errc::unsupported, "[extent] outside of a traced function: use ts::shape(x) of the stored tensor",
         Source::from(at));
  const Value value = lower(context, x);
  return Dim(build::extent(value, detail::checked_dim<D, X::rank>() + value.rank() - X::rank));
}

/// The global index along dim D, in the shape of the operand: `iota<-1, std::int32_t>(x)`. No communication.
template <int D, Element T, TensorArgument X> constexpr auto iota(const X& like, Here at = Here::current()) {
  return call<detail::IotaTag<X::rank, detail::checked_dim<D, X::rank>(), T>>(Source::from(at), like);
}

/// x broadcast to the shape of `like`: along dims that it lacks or that have static extent 1. Errors: shape_mismatch
/// where another dim differs. No communication.
template <Operand X, TensorArgument Like>
  requires(!std::is_same_v<X, bool>)
constexpr auto broadcast_like(const X& x, const Like& like, Here at = Here::current()) {
  return call<detail::BroadcastTag>(Source::from(at), x, like);
}
/// A tensor filled with `value`, of the shape and element type of `like`. No communication.
template <NumberOperand N, TensorArgument Like>
constexpr auto full_like(const Like& like, const N& value, Here at = Here::current()) {
  if constexpr (std::is_same_v<N, bool>)
    return full_like(like, static_cast<int>(value), at);
  else
    return call<detail::BroadcastTag>(Source::from(at), value, like);
}
template <TensorArgument Like> constexpr auto zeros_like(const Like& like, Here at = Here::current()) {
  return full_like(like, 0, at);
}
template <TensorArgument Like> constexpr auto ones_like(const Like& like, Here at = Here::current()) {
  return full_like(like, 1, at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
