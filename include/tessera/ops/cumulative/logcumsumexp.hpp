#ifndef TESSERA_OPS_CUMULATIVE_LOGCUMSUMEXP_HPP
#define TESSERA_OPS_CUMULATIVE_LOGCUMSUMEXP_HPP
#include <tessera/base/push_macros.hpp>

#include <limits>
#include <tuple>

#include <tessera/base/dtype.hpp>
#include <tessera/graph/trace/expression/composed_call.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/reduction.hpp>

namespace tessera {

namespace detail {

template <int D> struct Logcumsumexp {
  template <class X> constexpr auto operator()(Here at, const X& x) const {
    using T = typename X::element;
    // Carried in 16 bits, a sum would stop growing.
    if constexpr (is_half_v<T>)
      return cast<T>((*this)(at, settle(cast<float>(x, at))), at);
    else
      return scanned(at, x);
  }

 private:
  template <class X> static constexpr auto scanned(Here at, const X& x) {
    const auto lines = settle(movedim<D, 0>(x, at));
    const auto none_yet = settle(full_like(sum<0>(lines, at), -std::numeric_limits<double>::infinity(), at));
    const auto step = [at](const auto& so_far, const auto& next) {
      const auto sum = logaddexp(so_far, next, at);
      return std::tuple(sum, sum);
    };
    return movedim<0, D>(std::get<1>(tessera::scan(step, none_yet, lines, {}, at)), at);
  }
};

}  // namespace detail

/// The logarithm of the cumulative sum of exponentials along dim D (torch.logcumsumexp, lax.cumlogsumexp), without
/// overflow and exact in each element's own range, in f32 for bf16 and f16. It is a ts::scan of logaddexp, one step for
/// each element of the dim. Communication: a split dim is gathered; others stay split.
template <int D, TensorArgument X> constexpr auto logcumsumexp(const X& x, Here at = Here::current()) {
  static_assert(is_floating_v<typename X::element>, "tessera: logcumsumexp takes float, double, bf16 and f16 tensors");
  return detail::composed_call(detail::Logcumsumexp<D>{}, at, x);
}

/// With a dim as an argument it does not compile.
template <TensorArgument X, std::integral Dim> constexpr X logcumsumexp(const X& x, Dim) {
  return detail::refuse_dim_argument<Dim>(x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
