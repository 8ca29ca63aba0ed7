#ifndef TESSERA_OPS_INDEXING_LOGCUMSUMEXP_HPP
#define TESSERA_OPS_INDEXING_LOGCUMSUMEXP_HPP
#include <tessera/base/push_macros.hpp>

#include <limits>
#include <tuple>

#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/reduction.hpp>

namespace tessera {

/// The logarithm of the cumulative sum of exponentials along dim D (torch.logcumsumexp, lax.cumlogsumexp), without
/// overflow and exact in each element's own range. It is a ts::scan of logaddexp, one step for each element of the dim,
/// so it is called inside a traced function. Communication: a split dim is gathered; others stay split.
template <int D, TensorArgument X> constexpr auto logcumsumexp(const X& x, Here at = Here::current()) {
  static_assert(is_floating_v<typename X::element>, "tessera: logcumsumexp takes float, double, bf16 and f16 tensors");
  const auto lines = detail::settle(movedim<D, 0>(x, at));
  const auto none_yet = detail::settle(full_like(sum<0>(lines, at), -std::numeric_limits<double>::infinity(), at));
  const auto step = [at](const auto& so_far, const auto& next) {
    const auto sum = logaddexp(so_far, next, at);
    return std::tuple(sum, sum);
  };
  return movedim<0, D>(std::get<1>(scan(step, none_yet, lines, {}, at)), at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
