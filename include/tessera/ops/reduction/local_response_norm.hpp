#ifndef TESSERA_OPS_REDUCTION_LOCAL_RESPONSE_NORM_HPP
#define TESSERA_OPS_REDUCTION_LOCAL_RESPONSE_NORM_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/ops/contraction/window_rows.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/reduce.hpp>

namespace tessera {

/// `size`: how many neighbouring features; `alpha`, `beta`, `k` as in PyTorch.
struct LocalResponseNorm {
  std::int64_t size = 5;
  double alpha = 1e-4, beta = 0.75, k = 1;
};

namespace detail {

struct LocalResponseNormTag {
  static constexpr const char* function = "local_response_norm";
  template <class X, class Size, class... Numbers> struct result : X {
    using Checks = decltype([] {
      static_assert(is_floating_v<typename X::type> && X::rank >= 2 && X::rank < max_rank,
                    "tessera: local_response_norm takes a float, double, bf16 or f16 tensor [batch, ..., features] of "
                    "at most 7 dims");
    });
  };
  static constexpr Value emit(Value context, Value x, Value size, Value alpha, Value beta, Value k) {
    const DType type = x.dtype();
    x = build::cast(x.at(context.source), computed_as(type));
    const int dim = x.rank() - 1;
    const Value count = as_size(size), one = count.number(1), before = count / count.number(2);
    const build::PatchDim window{count, one, one, before, count - one - before};
    const Value sum = build::sum_of(build::patches(x * x, dim, 1, &window), 2u << dim, false);
    const auto number = [&](Value v) { return build::cast(v, x.dtype()); };
    const Value scale = sum * number(build::cast(alpha, DType::f64) / build::cast(count, DType::f64)) + number(k);
    return build::cast(x / build::binary(Op::pow, scale, number(beta)), type);
  }
};

}  // namespace detail

/// x over (k + alpha times the mean of the squares of `size` neighbouring features, zeros beyond the ends) to the power
/// of beta (F.local_response_norm, with features last). Of an even size there is one more neighbour before the feature
/// than after it. Errors: shape_mismatch for a size below 1. Communication: along split features a halo.
///
///     const auto y = ts::local_response_norm(x, {.size = 5});
template <TensorArgument X>
constexpr auto local_response_norm(const X& x, const LocalResponseNorm& o, Here at = Here::current()) {
  return call<detail::LocalResponseNormTag>(Source::from(at), x, Dim(o.size), o.alpha, o.beta, o.k);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
