#ifndef TESSERA_OPS_SCAN_HPP
#define TESSERA_OPS_SCAN_HPP

#include <tessera/ops/shape.hpp>

namespace tessera {

namespace detail {

template <int Rank, int D, Scan S> struct CumsumTag {
  template <class A> struct result : A {
    static_assert(!std::is_same_v<typename A::type, bool>,
                  "tessera: cumsum takes numbers; a bool tensor needs ts::cast first");
  };
  static constexpr Value emit(Value context, Value x) {
    return build::cumsum(x.at(context.source), D + x.rank() - Rank, S);
  }
};

}  // namespace detail

/// Sums along one dim, of each element those before it and itself: `cumsum<-1>(x)`. `ts::Scan{.reverse = true}` starts
/// at the last element, `.exclusive = true` leaves each element out of its own sum. Shaped like x. bf16 is summed in
/// f32; integers wrap around. Communication: along a split dim, an all_gather of one total a line from each device.
template <int D, Scan S = Scan{}, TensorOperand X> constexpr auto cumsum(const X& x, Here at = Here::current()) {
  return call<detail::CumsumTag<X::rank, detail::checked_dim<D, X::rank>(), S>>(Source::from(at), x);
}

}  // namespace tessera

#endif
