#ifndef TESSERA_OPS_LOSSES_METRICS_HPP
#define TESSERA_OPS_LOSSES_METRICS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/one_hot.hpp>
#include <tessera/ops/indexing/take_along_dim.hpp>
#include <tessera/ops/reduction/reduction.hpp>

// How often predictions are right. Without gradients.

namespace tessera {

/// The share of rows whose target is the class of the highest logit, an f32 (sklearn.metrics.accuracy_score): of logits
/// [..., classes] and integer targets [...]. Of equal logits the first counts. Communication: of the classes, if they
/// are split, as argmax; a split batch gives a partial sum.
template <TensorArgument Logits, TensorArgument Target>
constexpr auto accuracy(const Logits& logits, const Target& target, Here at = Here::current()) {
  const detail::FunctionCall named("accuracy", logits, target);
  return mean(cast<float>(tessera::equal(argmax<-1>(logits, at), target, at), at), at);
}

/// The share of rows whose target is among the k classes of the highest logits, an f32
/// (sklearn.metrics.top_k_accuracy_score): fewer than k logits are higher than that of the target. A target that is no
/// class is not among them. No communication for a split batch but a partial sum.
template <TensorArgument Logits, TensorArgument Target, NumberOperand K>
constexpr auto top_k_accuracy(const Logits& logits, const Target& target, const K& k, Here at = Here::current()) {
  const detail::FunctionCall named("top_k_accuracy", logits, target);
  static_assert(Target::rank + 1 == Logits::rank, "tessera: there is a target for each row of the logits");
  const auto is_target = tessera::equal(iota<-1, std::int32_t>(logits, at), unsqueeze<-1>(target, at), at);
  const auto own = sum<-1>(select(is_target, logits, zeros_like(logits, at), at), keepdims, at);
  // Not at most: of a logit that is NaN, all are, so that a model which diverged is not right.
  const auto higher = sum<-1>(cast<std::int32_t>(logical_not(less_equal(logits, own, at), at), at), at);
  return mean(cast<float>(tessera::logical_and(less(higher, k, at), any<-1>(is_target, at), at), at), at);
}

/// How often each class is predicted for each target, i32 [classes, classes] (sklearn.metrics.confusion_matrix): row i,
/// column j counts the elements whose target is i and whose prediction is j. Predictions and targets are integers of
/// one shape; an element with a class outside of [0, classes) is not counted. Communication: of split elements a
/// partial sum.
template <TensorArgument Predicted, TensorArgument Target, SizeOperand Classes>
constexpr auto confusion_matrix(const Predicted& predicted, const Target& target, const Classes& classes,
                                Here at = Here::current()) {
  const detail::FunctionCall named("confusion_matrix", predicted, target);
  static_assert(Predicted::rank == Target::rank, "tessera: there is a prediction for each target");
  const auto of = [&](const auto& classes_of) {
    return one_hot<std::int32_t>(detail::flattened(classes_of, at), classes, at);
  };
  return einsum<"nt,np->tp">(of(target), of(predicted), at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
