#ifndef TESSERA_OPS_ELEMENTWISE_FLOAT_TESTS_HPP
#define TESSERA_OPS_ELEMENTWISE_FLOAT_TESTS_HPP
#include <tessera/base/push_macros.hpp>

#include <limits>

#include <tessera/ops/elementwise.hpp>

// Functions that treat NaN and infinities on their own, made of other operations.

namespace tessera {

namespace detail {
template <bool Positive> struct InfinityTag {
  template <class X> using result = Typed<bool, X::rank>;
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    const double most = std::numeric_limits<double>::infinity();
    if (!is_floating(x.dtype())) return build::not_equal(x, x);
    x = build::cast(x, computed_as(x.dtype()));
    return build::equal(x, x.number(Positive ? most : -most));
  }
};
}  // namespace detail

/// Which elements are infinity, -infinity: bool tensors of the shape of x. No integer is. No gradient, no
/// communication. torch.isposinf, isneginf.
template <TensorArgument X> constexpr auto isposinf(const X& x, Here at = Here::current()) {
  return call<detail::InfinityTag<true>>(Source::from(at), x);
}
template <TensorArgument X> constexpr auto isneginf(const X& x, Here at = Here::current()) {
  return call<detail::InfinityTag<false>>(Source::from(at), x);
}

/// The larger, the smaller of two elements, and of a number and NaN the number, where maximum and minimum give NaN
/// (torch.fmax, fmin). Operands are broadcast and promoted. Gradients: as for maximum; a NaN gets 0 unless both
/// operands are NaN. Errors: shape_mismatch. No communication.
template <TensorArgument A, TensorArgument B> constexpr auto fmax(const A& a, const B& b, Here at = Here::current()) {
  const auto least = -std::numeric_limits<double>::infinity();
  if constexpr (!is_floating_v<typename A::element> || !is_floating_v<typename B::element>)
    return maximum(a, b, at);
  else
    return select(isnan(a, at), b, maximum(a, select(isnan(b, at), least, b, at), at), at);
}
template <TensorArgument A, TensorArgument B> constexpr auto fmin(const A& a, const B& b, Here at = Here::current()) {
  const auto most = std::numeric_limits<double>::infinity();
  if constexpr (!is_floating_v<typename A::element> || !is_floating_v<typename B::element>)
    return minimum(a, b, at);
  else
    return select(isnan(a, at), b, minimum(a, select(isnan(b, at), most, b, at), at), at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
