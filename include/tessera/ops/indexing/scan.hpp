#ifndef TESSERA_OPS_INDEXING_SCAN_HPP
#define TESSERA_OPS_INDEXING_SCAN_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/layout/shape.hpp>

namespace tessera {

namespace detail {

template <int Rank, int D, Scan S> struct CumsumTag {
  template <class A> using result = Typed<element_t<sum_type(dtype_v<typename A::type>)>, A::rank>;
  static constexpr Value emit(Value context, Value x) {
    return build::cumsum(x.at(context.source), x.shifted(D, Rank), S);
  }
};

}  // namespace detail

/// Sums along one dim, of each element those before it and itself: `cumsum<-1>(x)`. `ts::Scan{.reverse = true}` starts
/// at the last element, `.exclusive = true` leaves each element out of its own sum. Shaped like x. bf16 is summed in
/// f32, bools and integers below 32 bits in i32; wider ones wrap around. Communication: along a split dim, an
/// all_gather of one total a line from each device.
template <int D, Scan S = Scan{}, TensorOperand X> constexpr auto cumsum(const X& x, Here at = Here::current()) {
  return call<detail::CumsumTag<X::rank, detail::checked_dim<D, X::rank>(), S>>(Source::from(at), x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
