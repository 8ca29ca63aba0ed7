#ifndef TESSERA_OPS_CUMULATIVE_CUMULATIVE_HPP
#define TESSERA_OPS_CUMULATIVE_CUMULATIVE_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/cumulative/cumulative_options.hpp>
#include <tessera/ops/cumulative/cumulative_rows.hpp>
#include <tessera/ops/data_movement/shape.hpp>

namespace tessera {

namespace detail {

template <class Operation, int Rank, int D, CumulativeOptions S> struct CumulativeTag {
  template <class A>
  struct result : Typed<element_t<reduced_type(ops::row_v<Operation>.reduction, dtype_v<typename A::type>)>, A::rank> {
    static_assert(require_arithmetic<typename A::type>());
  };
  static constexpr Value emit(Value context, Value x) {
    return build::cumulative(ops::op_v<Operation>, x.at(context.source), x.shifted(D, Rank), S);
  }
};

}  // namespace detail

/// Cumulative sum along dim D: `cumsum<-1>(x)`. `ts::CumulativeOptions{.reverse = true}` sums from the last element on;
/// `.exclusive = true` leaves each element out of its own sum. The result has the shape of x. bf16 and f16 are summed
/// in f32; bools and integers below 32 bits give i32; wider integers wrap around. Communication: along a split dim, an
/// all_gather of one total per line from each device.
template <int D, CumulativeOptions S = CumulativeOptions{}, TensorArgument X>
constexpr auto cumsum(const X& x, Here at = Here::current()) {
  return call<detail::CumulativeTag<ops::CumsumOp, X::rank, detail::checked_dim<D, X::rank>(), S>>(Source::from(at), x);
}

/// Cumulative product along dim D; options, shapes and communication as cumsum. f32 is multiplied in f64 and rounded
/// when stored; along a split dim, the product of each device's elements has to be in the range of the element type.
/// The gradient is exact where elements are 0, as in PyTorch; second derivatives where a line has at most one 0.
template <int D, CumulativeOptions S = CumulativeOptions{}, TensorArgument X>
constexpr auto cumprod(const X& x, Here at = Here::current()) {
  return call<detail::CumulativeTag<ops::CumprodOp, X::rank, detail::checked_dim<D, X::rank>(), S>>(Source::from(at),
                                                                                                    x);
}

/// The largest element so far along dim D, or the smallest: `cummax<-1>(x)`. With `reverse` from the last element on.
/// NaN from the first NaN on, as in PyTorch and JAX. The result has the shape and element type of x. The gradient goes
/// to the element that is the extreme; of equal ones to the last, as in PyTorch. Communication: as cumsum; that of the
/// gradient as gather.
template <int D, CumulativeOptions S = CumulativeOptions{}, TensorArgument X>
constexpr auto cummax(const X& x, Here at = Here::current()) {
  static_assert(!S.exclusive, "tessera: cummax has no result before the first element, so it is never exclusive");
  return call<detail::CumulativeTag<ops::CummaxOp, X::rank, detail::checked_dim<D, X::rank>(), S>>(Source::from(at), x);
}
template <int D, CumulativeOptions S = CumulativeOptions{}, TensorArgument X>
constexpr auto cummin(const X& x, Here at = Here::current()) {
  static_assert(!S.exclusive, "tessera: cummin has no result before the first element, so it is never exclusive");
  return call<detail::CumulativeTag<ops::CumminOp, X::rank, detail::checked_dim<D, X::rank>(), S>>(Source::from(at), x);
}

/// With a dim as an argument they do not compile.
template <TensorArgument X, std::integral Dim> constexpr X cumsum(const X& x, Dim) {
  return detail::refuse_dim_argument<Dim>(x);
}
template <TensorArgument X, std::integral Dim> constexpr X cumprod(const X& x, Dim) {
  return detail::refuse_dim_argument<Dim>(x);
}
template <TensorArgument X, std::integral Dim> constexpr X cummax(const X& x, Dim) {
  return detail::refuse_dim_argument<Dim>(x);
}
template <TensorArgument X, std::integral Dim> constexpr X cummin(const X& x, Dim) {
  return detail::refuse_dim_argument<Dim>(x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
