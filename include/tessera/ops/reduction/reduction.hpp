#ifndef TESSERA_OPS_REDUCTION_REDUCTION_HPP
#define TESSERA_OPS_REDUCTION_REDUCTION_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/reduce.hpp>
#include <tessera/ops/reduction/reduction_rows.hpp>
#include <tessera/ops/source/extent_rows.hpp>
#include <tessera/ops/source/position_rows.hpp>

namespace tessera {

namespace detail {
/// In a noexcept, which compilers evaluate where the constructor is called.
template <class Dim> constexpr auto refuse_dims() {
  static_assert(std::is_void_v<Dim>,
                "tessera: the dims of a reduction are template arguments: ts::sum<1>(x) for ts::sum(x, 1), "
                "ts::sum<0, 1>(x, ts::keepdims); the larger of two elements is ts::maximum(x, y)");
  return true;
}
template <class Other> constexpr auto refuse_second_tensor() {
  static_assert(std::is_void_v<Other>, "tessera: a reduction takes one tensor: the larger of two elements is "
                                       "ts::maximum(x, y), the smaller ts::minimum(x, y)");
  return true;
}
}  // namespace detail

/// Argument of reductions: reduced dims stay, with static extent 1, so that the result broadcasts against the operand.
struct KeepDims {
  constexpr KeepDims() = default;
  template <std::integral Dim, std::integral... Dims>
  constexpr KeepDims(Dim, Dims...) noexcept(detail::refuse_dims<Dim>()) {}
  template <TensorOperand Other> constexpr KeepDims(const Other&) noexcept(detail::refuse_second_tensor<Other>()) {}
};
inline constexpr KeepDims keepdims{};

namespace detail {

/// For overloads that take dims and keepdim as arguments, as in PyTorch: they do not compile.
template <class Dim, class X> constexpr X refuse_keepdim_argument(const X& x) {
  static_assert(std::is_void_v<Dim>, "tessera: ts::keepdims stands for keepdim=True: ts::mean<1>(x, ts::keepdims) for "
                                     "ts::mean(x, 1, true)");
  return x;
}

/// The dims as a bit set; negative dims count from the end; no dims means all.
template <int Rank, int... Dims> constexpr unsigned dim_set() {
  static_assert(((Dims >= -Rank && Dims < Rank) && ...), "tessera: the dim is out of range for the rank of the tensor");
  if constexpr (sizeof...(Dims) == 0)
    return (1u << Rank) - 1;
  else
    return ((1u << ((Dims + Rank) % Rank)) | ...);
}
constexpr int bit_count(unsigned bits) {
  int n = 0;
  for (; bits != 0; bits &= bits - 1) ++n;
  return n;
}

template <class Operation, bool Mean, bool Keep, int... Dims> struct Reduce {
  template <class A> struct result {
    static_assert(require_arithmetic<typename A::type>());
    static constexpr DType from = dtype_v<typename A::type>;
    using type = element_t<Mean ? floating_type(from) : reduced_type(ops::row_v<Operation>.reduction, from)>;
    static constexpr unsigned dims = dim_set<A::rank, Dims...>();
    static constexpr int rank = Keep ? A::rank : A::rank - bit_count(dims);
    using Checks = decltype([] {
      static_assert(bit_count(dims) == sizeof...(Dims) || sizeof...(Dims) == 0,
                    "tessera: a dim is given twice to a reduction");
    });
  };
  template <int Rank> static constexpr unsigned dims = dim_set<Rank, Dims...>();

  static constexpr Value emit(Value context, Value x, int rank, unsigned set) {
    // A stacked value has a leading dim of layers, which its static rank does not count.
    set <<= x.rank() - rank;
    const DType type = floating_type(x.dtype());
    if constexpr (Mean) x = build::cast(x, computed_as(type));
    Value made = build::reduce(ops::op_v<Operation>, x.at(context.source), set, Keep);
    if constexpr (Mean)
      made = build::cast(made / build::cast(build::element_count(x.at(context.source), set), made.dtype()), type);
    return made;
  }
};

/// A reduction of the operand cast to another element type.
template <class To, class R> struct ReduceAs {
  template <class A> using result = typename R::template result<Typed<To, A::rank>>;
  template <int Rank> static constexpr unsigned dims = R::template dims<Rank>;
  static constexpr Value emit(Value context, Value x, int rank, unsigned set) {
    return R::emit(context, build::cast(x.at(context.source), dtype_v<To>), rank, set);
  }
};

/// Argmax or argmin: the smallest position of elements that equal the extreme or are NaN.
template <class Extreme, class Index, bool Keep, int... Dims> struct ArgReduce {
  static constexpr const char* function = std::is_same_v<Extreme, ops::MaxOp> ? "argmax" : "argmin";
  using R = Reduce<Extreme, false, Keep, Dims...>;
  template <class A> struct result : R::template result<A> {
    using type = Index;
    using IndexChecks = decltype([] {
      static_assert(std::is_same_v<Index, std::int32_t> || std::is_same_v<Index, std::int64_t>,
                    "tessera: the type of indices must be std::int32_t or std::int64_t");
    });
  };
  template <int Rank> static constexpr unsigned dims = R::template dims<Rank>;

  static constexpr Value emit(Value context, Value x, int rank, unsigned set) {
    x = x.at(context.source);
    set <<= x.rank() - rank;
    Value found = build::equal(x, build::reduce(ops::op_v<Extreme>, x, set, true));
    if (is_floating(x.dtype())) found = build::logical_or(found, build::not_equal(x, x));
    return first_of(x, found, set);
  }

  /// Larger than all positions (no tensor has 2^53 elements), and exact as a double, in which kernels take constants.
  static constexpr double past_all = std::is_same_v<Index, std::int32_t> ? 0x1p31 - 1 : 0x1p53;
  /// The smallest position along a set of dims of x at which `found` holds; past_all where it does not.
  static constexpr Value first_of(Value x, Value found, unsigned set) {
    constexpr DType type = dtype_v<Index>;
    Value position = x.number(0, type);
    for (int d = 0; d < x.rank(); ++d)
      if ((set >> d & 1) != 0) position = position * build::cast(build::extent(x, d), type) + build::iota(x, d, type);
    return build::reduce(ops::op_v<ops::MinOp>, build::select(found, position, x.number(past_all, type)), set, Keep,
                         std::is_same_v<Extreme, ops::MaxOp> ? PositionOf::argmax : PositionOf::argmin);
  }
};

template <class R> struct NamedLike {};
template <class R>
  requires requires { R::function; }
struct NamedLike<R> {
  static constexpr const char* function = R::function;
};
/// A reduction together with the static rank of its operand, from which the bit set of dims follows.
template <int Rank, class R> struct RankedReduce : NamedLike<R> {
  template <class A> using result = typename R::template result<A>;
  static constexpr Value emit(Value context, Value x) { return R::emit(context, x, Rank, R::template dims<Rank>); }
};

template <class R, TensorArgument X> constexpr auto reduce_by(const X& x, Here at) {
  return call<RankedReduce<X::rank, R>>(Source::from(at), x);
}
template <class Operation, bool Mean, bool Keep, int... Dims, TensorArgument X>
constexpr auto reduce(const X& x, Here at) {
  return call<RankedReduce<X::rank, Reduce<Operation, Mean, Keep, Dims...>>>(Source::from(at), x);
}
template <class Operation, bool Keep, int... Dims, TensorArgument X> constexpr auto reduce_bools(const X& x, Here at) {
  return reduce_by<ReduceAs<bool, Reduce<Operation, false, Keep, Dims...>>>(x, at);
}

}  // namespace detail

/// Sum over the named dims, by default all: `sum<-1>(x)`, `mean<0, 1>(x, ts::keepdims)`; mean, max and min likewise.
/// Results have the other dims; with keepdims also the reduced dims, of extent 1. Sums of bools and of integers below
/// 32 bits are i32, means of integers are f32; max of bools tells whether any element holds. NaN in any element gives
/// NaN. Gradient of max and min: elements that share the extreme get equal parts. Communication: over a sharded dim the
/// result is a partial value, which is reduced before its first non-linear reader.
template <int... Dims, TensorArgument X> constexpr auto sum(const X& x, Here at = Here::current()) {
  return detail::reduce<ops::SumOp, false, false, Dims...>(x, at);
}
template <int... Dims, TensorArgument X> constexpr auto sum(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce<ops::SumOp, false, true, Dims...>(x, at);
}
template <int... Dims, TensorArgument X> constexpr auto mean(const X& x, Here at = Here::current()) {
  return detail::reduce<ops::SumOp, true, false, Dims...>(x, at);
}
template <int... Dims, TensorArgument X> constexpr auto mean(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce<ops::SumOp, true, true, Dims...>(x, at);
}
template <int... Dims, TensorArgument X> constexpr auto max(const X& x, Here at = Here::current()) {
  return detail::reduce<ops::MaxOp, false, false, Dims...>(x, at);
}
template <int... Dims, TensorArgument X> constexpr auto max(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce<ops::MaxOp, false, true, Dims...>(x, at);
}
template <int... Dims, TensorArgument X> constexpr auto min(const X& x, Here at = Here::current()) {
  return detail::reduce<ops::MinOp, false, false, Dims...>(x, at);
}
template <int... Dims, TensorArgument X> constexpr auto min(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce<ops::MinOp, false, true, Dims...>(x, at);
}

/// Product over the named dims, by default all: `prod<-1>(x)`, `prod<0, 1>(x, ts::keepdims)`. Products of bools and of
/// integers below 32 bits are i32; wider integers wrap around. The product of no elements is 1; NaN in any element
/// gives NaN. f32 is multiplied in f32, with a relative error of at most n 2^-23 for n elements; bf16 and f16 are
/// multiplied in f32 and rounded once. The gradient and second derivatives are exact where elements are 0, as in
/// PyTorch. Shapes and communication: as `sum`; partial values of a sharded dim are multiplied.
template <int... Dims, TensorArgument X> constexpr auto prod(const X& x, Here at = Here::current()) {
  return detail::reduce<ops::ProdOp, false, false, Dims...>(x, at);
}
template <int... Dims, TensorArgument X> constexpr auto prod(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce<ops::ProdOp, false, true, Dims...>(x, at);
}

/// Whether any (all) elements along the named dims are nonzero; NaN counts as nonzero. The result is bool. Of no
/// elements, `any` is false and `all` is true. Shapes and communication as `max`.
template <int... Dims, TensorArgument X> constexpr auto any(const X& x, Here at = Here::current()) {
  return detail::reduce_bools<ops::MaxOp, false, Dims...>(x, at);
}
template <int... Dims, TensorArgument X> constexpr auto any(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce_bools<ops::MaxOp, true, Dims...>(x, at);
}
template <int... Dims, TensorArgument X> constexpr auto all(const X& x, Here at = Here::current()) {
  return detail::reduce_bools<ops::MinOp, false, Dims...>(x, at);
}
template <int... Dims, TensorArgument X> constexpr auto all(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce_bools<ops::MinOp, true, Dims...>(x, at);
}

/// The index of the largest (smallest) element along one dim: `argmax<-1>(x)`, `argmin<0, std::int64_t>(x)`; without a
/// dim, `argmax(x)`, the row-major position among all elements. Of equal elements the first; where any is NaN, the
/// first NaN. `Index` has to hold the number of elements. Shapes as `max`; no gradient. Errors: dim_range for a dim
/// without elements. Communication: over a sharded dim, one all_reduce of the extremes and one of the indices.
template <int D, Element Index = std::int32_t, TensorArgument X>
constexpr auto argmax(const X& x, Here at = Here::current()) {
  return detail::reduce_by<detail::ArgReduce<ops::MaxOp, Index, false, D>>(x, at);
}
template <Element Index = std::int32_t, TensorArgument X> constexpr auto argmax(const X& x, Here at = Here::current()) {
  return detail::reduce_by<detail::ArgReduce<ops::MaxOp, Index, false>>(x, at);
}
template <int D, Element Index = std::int32_t, TensorArgument X>
constexpr auto argmax(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce_by<detail::ArgReduce<ops::MaxOp, Index, true, D>>(x, at);
}
template <Element Index = std::int32_t, TensorArgument X>
constexpr auto argmax(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce_by<detail::ArgReduce<ops::MaxOp, Index, true>>(x, at);
}
template <int D, Element Index = std::int32_t, TensorArgument X>
constexpr auto argmin(const X& x, Here at = Here::current()) {
  return detail::reduce_by<detail::ArgReduce<ops::MinOp, Index, false, D>>(x, at);
}
template <Element Index = std::int32_t, TensorArgument X> constexpr auto argmin(const X& x, Here at = Here::current()) {
  return detail::reduce_by<detail::ArgReduce<ops::MinOp, Index, false>>(x, at);
}
template <int D, Element Index = std::int32_t, TensorArgument X>
constexpr auto argmin(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce_by<detail::ArgReduce<ops::MinOp, Index, true, D>>(x, at);
}
template <Element Index = std::int32_t, TensorArgument X>
constexpr auto argmin(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce_by<detail::ArgReduce<ops::MinOp, Index, true>>(x, at);
}

/// With a dim and keepdim as arguments they do not compile.
template <TensorArgument X, std::integral Dim> constexpr X sum(const X& x, Dim, bool) {
  return detail::refuse_keepdim_argument<Dim>(x);
}
template <TensorArgument X, std::integral Dim> constexpr X mean(const X& x, Dim, bool) {
  return detail::refuse_keepdim_argument<Dim>(x);
}
template <TensorArgument X, std::integral Dim> constexpr X max(const X& x, Dim, bool) {
  return detail::refuse_keepdim_argument<Dim>(x);
}
template <TensorArgument X, std::integral Dim> constexpr X min(const X& x, Dim, bool) {
  return detail::refuse_keepdim_argument<Dim>(x);
}
template <TensorArgument X, std::integral Dim> constexpr X prod(const X& x, Dim, bool) {
  return detail::refuse_keepdim_argument<Dim>(x);
}
template <TensorArgument X, std::integral Dim> constexpr X any(const X& x, Dim, bool) {
  return detail::refuse_keepdim_argument<Dim>(x);
}
template <TensorArgument X, std::integral Dim> constexpr X all(const X& x, Dim, bool) {
  return detail::refuse_keepdim_argument<Dim>(x);
}
template <TensorArgument X, std::integral Dim> constexpr X argmax(const X& x, Dim, bool) {
  return detail::refuse_keepdim_argument<Dim>(x);
}
template <TensorArgument X, std::integral Dim> constexpr X argmin(const X& x, Dim, bool) {
  return detail::refuse_keepdim_argument<Dim>(x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
