#ifndef TESSERA_OPS_RANDOM_LOGIT_FILTERS_HPP
#define TESSERA_OPS_RANDOM_LOGIT_FILTERS_HPP
#include <tessera/base/push_macros.hpp>

#include <limits>
#include <type_traits>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/cumulative/cumulative.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/functional.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/ops/sorting/sort.hpp>

// Which tokens a language model may draw: logits [..., classes], of which all but some become -infinity. Of equal
// logits either all are kept or none.
//
//     const auto token = ts::categorical(ts::top_p_logits(ts::top_k_logits(logits / temperature, 40), 0.9), key);

namespace tessera {

namespace detail {

template <class X, class Lowest> constexpr auto logits_from(const X& x, const Lowest& lowest, Here at) {
  return select(tessera::greater_equal(x, lowest, at), x, -std::numeric_limits<float>::infinity(), at);
}
/// The number p of a filter of the logits x, checked, in the element type of x.
template <NumberRule Rule> struct ShareTag {
  template <class X, class P> using result = Typed<typename X::type, 0>;
  static constexpr Value emit(Value context, Value x, Value p) {
    return build::cast(build::checked_cast(p.at(context.source), DType::f64, Rule), x.dtype());
  }
};

}  // namespace detail

/// The k highest logits of each row (TopKLogitsWarper of Hugging Face). Errors: shape_mismatch for k above the number
/// of classes, option for a number k below 1. Communication: split classes are made whole, as for sort.
template <TensorArgument X, SizeOperand K>
constexpr auto top_k_logits(const X& x, const K& k, Here at = Here::current()) {
  const detail::FunctionCall named("top_k_logits", x);
  if constexpr (std::is_integral_v<K>)
    if (k < 1) fail(errc::option, "[top_k_logits] k: ", k, " is below 1", Source::from(at));
  return detail::logits_from(x, min<-1>(topk<-1>(x, k, at).values, keepdims, at), at);
}

/// The fewest highest logits of each row whose probabilities have a sum of at least p, and at least one (nucleus
/// sampling; TopPLogitsWarper of Hugging Face). Errors: option for a p below 0 or above 1. Communication: as
/// top_k_logits. Source: Holtzman et al., 1904.09751.
template <TensorArgument X, NumberOperand P>
constexpr auto top_p_logits(const X& x, const P& p, Here at = Here::current()) {
  const detail::FunctionCall named("top_p_logits", x);
  const auto sorted = sort<-1, Order::descending>(x, at);
  const auto shares = softmax<-1>(sorted, at);
  const auto before = call<SubTag>(Source::from(at), cumsum<-1>(shares, at), shares);
  const auto first = tessera::equal(iota<-1, std::int32_t>(x, at), 0, at);
  const auto share = call<detail::ShareTag<NumberRule::top_p>>(Source::from(at), x, p);
  const auto kept = select(logical_or(tessera::less(before, share, at), first, at), sorted,
                           std::numeric_limits<float>::infinity(), at);
  return detail::logits_from(x, min<-1>(kept, keepdims, at), at);
}

/// The logits of each row whose probability is at least p times the highest (MinPLogitsWarper of Hugging Face). Errors:
/// option for a p below 0 or above 1. Communication: of split classes as max. Source: Nguyen et al., 2407.01082.
template <TensorArgument X, NumberOperand P>
constexpr auto min_p_logits(const X& x, const P& p, Here at = Here::current()) {
  const detail::FunctionCall named("min_p_logits", x);
  const auto share = softmax<-1>(x, at);
  const auto least = call<MulTag>(Source::from(at), max<-1>(share, keepdims, at),
                                  call<detail::ShareTag<NumberRule::min_p>>(Source::from(at), x, p));
  return select(tessera::greater_equal(share, least, at), x, -std::numeric_limits<float>::infinity(), at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
