#ifndef TESSERA_OPS_LOSSES_METRICS_HPP
#define TESSERA_OPS_LOSSES_METRICS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <tuple>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/cumulative/cumulative.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/repeat.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/gather.hpp>
#include <tessera/ops/indexing/one_hot.hpp>
#include <tessera/ops/indexing/take_along_dim.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/ops/sorting/sort.hpp>

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

/// How the metrics of classes become one number (average of torchmetrics): their mean over the classes that occur among
/// predictions or targets; the metric of the counts of all classes together; their mean, weighted by how many targets
/// each class has; or no number, but the metric of each class.
enum class Average : std::uint8_t { macro, micro, weighted, each };

namespace detail {

/// How many predictions of each class are right, how many there are, and how many targets: three f32 [classes].
template <class Predicted, class Target, class Classes>
constexpr auto class_counts(const Predicted& predicted, const Target& target, const Classes& classes, Here at) {
  static_assert(Predicted::rank == Target::rank, "tessera: there is a prediction for each target");
  const auto of = [&](const auto& given) { return one_hot<std::int32_t>(flattened(given, at), classes, at); };
  // An element with a class outside of [0, classes) is not counted, neither for its prediction nor for its target.
  const auto p = of(predicted), t = of(target);
  const auto both = call<MulTag>(Source::from(at), sum<-1>(p, keepdims, at), sum<-1>(t, keepdims, at));
  const auto count = [&](const auto& x) { return cast<float>(sum<0>(x, at), at); };
  return std::tuple(count(call<MulTag>(Source::from(at), p, t)), count(call<MulTag>(Source::from(at), p, both)),
                    count(call<MulTag>(Source::from(at), t, both)));
}
/// n / d, or 0 where d is 0.
template <class N, class D> constexpr auto share_of(const N& n, const D& d, Here at) {
  return select(greater(d, 0, at), call<DivTag>(Source::from(at), n, maximum(d, 1, at)), 0.0, at);
}
/// The metric right / (w_p predicted + w_t target), where w_p + w_t = 1.
template <Average A, class Counts> constexpr auto averaged(const Counts& counts, double of_predicted, Here at) {
  const auto& [right, predicted, target] = counts;
  const auto metric = [&](const auto& r, const auto& p, const auto& t) {
    const Source source = Source::from(at);
    return share_of(
        r, call<AddTag>(source, call<MulTag>(source, p, of_predicted), call<MulTag>(source, t, 1 - of_predicted)), at);
  };
  if constexpr (A == Average::micro) {
    return metric(sum(right, at), sum(predicted, at), sum(target, at));
  } else if constexpr (A == Average::each) {
    return metric(right, predicted, target);
  } else {
    const auto own = metric(right, predicted, target);
    if constexpr (A == Average::macro) {
      const auto occurs = cast<float>(greater(call<AddTag>(Source::from(at), predicted, target), 0, at), at);
      return share_of(sum(own, at), sum(occurs, at), at);  // of a class that does not occur it is 0
    } else {
      return share_of(sum(call<MulTag>(Source::from(at), own, target), at), sum(target, at), at);
    }
  }
}

}  // namespace detail

/// The share of the predictions of a class that are right, averaged over classes, an f32
/// (torchmetrics.functional.precision, sklearn.metrics.precision_score): true positives over true and false positives,
/// 0 for a class that is not predicted. Predictions and targets are integers of one shape; an element with a class
/// outside of [0, classes) is not counted. With Average::each an f32 [classes]. Communication: of split elements
/// partial sums.
///
///     const auto macro = ts::precision(ts::argmax<-1>(logits), target, 10);
template <Average A = Average::macro, TensorArgument Predicted, TensorArgument Target, SizeOperand Classes>
constexpr auto precision(const Predicted& predicted, const Target& target, const Classes& classes,
                         Here at = Here::current()) {
  const detail::FunctionCall named("precision", predicted, target);
  return detail::averaged<A>(detail::class_counts(predicted, target, classes, at), 1, at);
}
/// The share of the targets of a class that are predicted (recall, recall_score): true positives over true positives
/// and false negatives, 0 for a class that is no target. Otherwise as precision.
template <Average A = Average::macro, TensorArgument Predicted, TensorArgument Target, SizeOperand Classes>
constexpr auto recall(const Predicted& predicted, const Target& target, const Classes& classes,
                      Here at = Here::current()) {
  const detail::FunctionCall named("recall", predicted, target);
  return detail::averaged<A>(detail::class_counts(predicted, target, classes, at), 0, at);
}
/// The harmonic mean of precision and recall of each class (f1_score): 2 true positives over predictions and targets.
/// Otherwise as precision.
template <Average A = Average::macro, TensorArgument Predicted, TensorArgument Target, SizeOperand Classes>
constexpr auto f1_score(const Predicted& predicted, const Target& target, const Classes& classes,
                        Here at = Here::current()) {
  const detail::FunctionCall named("f1_score", predicted, target);
  return detail::averaged<A>(detail::class_counts(predicted, target, classes, at), 0.5, at);
}

/// The area under the receiver operating characteristic, an f32 (torchmetrics.functional.auroc of a binary task,
/// sklearn.metrics.roc_auc_score): the share of pairs of a positive and a negative element in which the positive has
/// the higher score; equal scores count half. Scores and targets are vectors; a target is positive if it is not 0. 0
/// without positive or without negative elements, as in torchmetrics. Errors: shape_mismatch. Communication: as sort,
/// and of a split vector as cumsum.
template <TensorArgument Scores, TensorArgument Target>
constexpr auto auroc(const Scores& scores, const Target& target, Here at = Here::current()) {
  static_assert(Scores::rank == 1 && Target::rank == 1, "tessera: auroc takes a vector of scores and one of targets");
  const detail::FunctionCall named("auroc", scores, target);
  const Source source = Source::from(at);
  const auto order = argsort<0>(scores, at);
  const auto sorted = gather<0>(scores, order, at);
  const auto targets = broadcast_like(target, scores, at);
  const auto positive = cast<double>(gather<0>(cast<std::int32_t>(not_equal(targets, 0, at), at), order, at), at);
  // The first and the last position of the scores that equal each score.
  const auto position = cast<double>(iota<0, std::int32_t>(sorted, at), at);
  const auto count = cast<double>(sum(ones_like(position, at), at), at);
  const auto differs = [&](const auto& other) { return not_equal(sorted, other, at); };
  const auto first = cummax<0>(
      select(logical_or(differs(roll<0>(sorted, 1, at)), equal(position, 0.0, at), at), position, 0.0, at), at);
  const auto last = cummin<0, CumulativeOptions{.reverse = true}>(
      select(logical_or(differs(roll<0>(sorted, -1, at)), equal(position, call<SubTag>(source, count, 1.0), at), at),
             position, count, at),
      at);
  const auto positives = sum(positive, at);
  const auto negatives = call<SubTag>(source, count, positives);
  // The sum of the ranks of positive elements, from 0, less the pairs of these among themselves.
  const auto middle = call<MulTag>(source, call<AddTag>(source, first, last), 0.5);
  const auto ranks = sum(call<MulTag>(source, positive, middle), at);
  const auto other = call<MulTag>(source, call<SubTag>(source, positives, 1.0), 0.5);
  const auto pairs = call<SubTag>(source, ranks, call<MulTag>(source, positives, other));
  return cast<float>(detail::share_of(pairs, call<MulTag>(source, positives, negatives), at), at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
