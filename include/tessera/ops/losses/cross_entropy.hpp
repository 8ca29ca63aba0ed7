#ifndef TESSERA_OPS_LOSSES_CROSS_ENTROPY_HPP
#define TESSERA_OPS_LOSSES_CROSS_ENTROPY_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <limits>
#include <type_traits>

#include <tessera/ops/losses/losses.hpp>

// Losses of classes: nll_loss, and cross_entropy with options.

namespace tessera {

namespace detail {

/// The losses of positions, of which those that are not kept are 0: the mean is the sum over the sum of the counts.
constexpr Value reduce_kept(Value losses, Value kept, Value counts, int lead, LossReduction reduction) {
  const Value zero = losses.number(0), some = build::select(kept, losses, zero);
  if (reduction == LossReduction::each) return some;
  const Value sum = build::reduce_loss(some, lead, LossReduction::sum);
  if (reduction == LossReduction::sum) return sum;
  return sum / build::reduce_loss(build::select(kept, counts, zero), lead, LossReduction::sum);
}
/// The losses of positions, of which those with an ignored target are 0 and are not counted in the mean.
constexpr Value reduce_kept(Value losses, Value kept, int lead, LossReduction reduction) {
  return reduce_kept(losses, kept, build::cast(kept, losses.dtype()), lead, reduction);
}
constexpr Value is_counted(Value targets, Value ignored) {
  // An unsigned element type has no -100.
  const DType type = targets.dtype() == DType::i32 ? DType::i32 : DType::i64;
  return build::apply<ops::NotEqualOp>(build::cast(targets, type), build::cast(ignored, type));
}

template <int Rank, LossReduction Reduction> struct NllTag {
  static constexpr const char* function = "nll_loss";
  template <class Scores, class Targets, class Ignored, class... Weight>
  struct result : CrossEntropyTag<Rank>::template result<Scores, Targets> {
    static constexpr int rank = Reduction == LossReduction::each ? Targets::rank : 0;
    static_assert((weighs_classes_v<Scores, Weight> && ...));
  };
  static constexpr Value emit(Value context, Value scores, Value targets, Value ignored,
                              std::same_as<Value> auto... weight) {
    check_targets(context, scores, targets, Rank);
    const int lead = scores.leading(Rank), dim = scores.rank() - 1;
    scores = build::cast(scores.at(context.source), computed_as(scores.dtype()));
    targets = targets.at(context.source);
    const Value picked = build::equal(build::iota(scores, dim, targets.dtype()), with_class_dim(targets, scores));
    const Value losses =
        build::sum_of(build::select(picked, build::unary(Op::neg, scores), scores.number(0)), 1u << dim, false);
    if constexpr (sizeof...(weight) == 1) {
      const Value counts = weights_of_targets((weights_of_classes(weight, scores), ...), picked, dim);
      return reduce_kept(losses * counts, is_counted(targets, ignored), counts, lead, Reduction);
    }
    return reduce_kept(losses, is_counted(targets, ignored), lead, Reduction);
  }
};

template <int Rank, LossReduction Reduction> struct SmoothedCrossEntropyTag {
  static constexpr const char* function = "cross_entropy";
  template <class Logits, class Targets, class Smoothing, class Z, class Ignored, class... Weight>
  struct result : CrossEntropyTag<Rank>::template result<Logits, Targets> {
    static constexpr int rank = Reduction == LossReduction::each ? Targets::rank : 0;
    static_assert((weighs_classes_v<Logits, Weight> && ...));
  };
  static constexpr Value emit(Value context, Value logits, Value targets, Value smoothing, Value z, Value ignored,
                              std::same_as<Value> auto... class_weight) {
    check_targets(context, logits, targets, Rank);
    const int lead = logits.leading(Rank), dim = logits.rank() - 1;
    logits = build::cast(logits.at(context.source), computed_as(logits.dtype()));
    targets = targets.at(context.source);
    smoothing = build::cast(smoothing, logits.dtype());
    const Value most = build::constant_reduce(Op::max, logits, 1u << dim), shifted = logits - most;
    const Value log_sum = build::log_sum_exp_of_shifted(shifted, dim), loss = log_sum - shifted;
    const Value picked = build::equal(build::iota(logits, dim, targets.dtype()), with_class_dim(targets, logits));
    // A class of weight 0 adds 0 even if its logit is -infinity, as in PyTorch without smoothing.
    const Value spread = smoothing / build::cast(build::extent(logits, dim), logits.dtype());
    Value weight = build::select(picked, 1.0 - smoothing + spread, spread);
    ((weight = weight * weights_of_classes(class_weight, logits)), ...);
    const Value some =
        build::select(build::apply<ops::GreaterOp>(weight, logits.number(0)), weight * loss, loss.number(0));
    const Value total = log_sum + most;
    const Value penalty = build::drop_singletons(build::cast(z, logits.dtype()) * total * total, 1u << dim);
    const Value losses = build::sum_of(some, 1u << dim, false) + penalty;
    if constexpr (sizeof...(class_weight) == 1) {
      const Value counts = weights_of_targets((weights_of_classes(class_weight, logits), ...), picked, dim);
      return reduce_kept(losses, is_counted(targets, ignored), counts, lead, Reduction);
    }
    return reduce_kept(losses, is_counted(targets, ignored), lead, Reduction);
  }
};

/// Cross entropy with a probability for each class.
template <int Rank, LossReduction Reduction> struct SoftCrossEntropyTag {
  static constexpr const char* function = "cross_entropy";
  template <class Logits, class Probabilities, class Smoothing, class Z, class Ignored, class... Weight> struct result {
    using type = loss_t<Logits>;
    static constexpr int rank = Reduction == LossReduction::each ? Rank - 1 : 0;
    static_assert((weighs_classes_v<Logits, Weight> && ...));
    using Checks = decltype([] {
      static_assert(floating_v<Logits>,
                    "tessera: the logits of cross_entropy must be a float, double, bf16 or f16 tensor");
    });
  };
  static constexpr Value emit(Value context, Value logits, Value targets, Value smoothing, Value z, Value ignored,
                              std::same_as<Value> auto... class_weight) {
    if (ignored.node().is_constant() && ignored.node().value >= 0)
      context.refuse(errc::option,
                     "[cross_entropy] ignore_index: targets that are probabilities have no index to ignore; give "
                     "positions to be ignored probabilities of 0");
    const int lead = logits.leading(Rank), dim = logits.rank() - 1;
    build::same_extents(logits.at(context.source), lead, targets, targets.leading(Rank), Rank,
                        build::ExtentsOf::classes);
    logits = build::cast(logits.at(context.source), computed_as(logits.dtype()));
    targets = build::cast(targets.at(context.source), logits.dtype());
    const Value most = build::constant_reduce(Op::max, logits, 1u << dim), shifted = logits - most;
    const Value log_sum = build::log_sum_exp_of_shifted(shifted, dim), loss = log_sum - shifted;
    if (!(smoothing.node().is_constant() && smoothing.node().value == 0)) {
      smoothing = build::cast(smoothing, logits.dtype());
      targets = targets * (1.0 - smoothing) + smoothing / build::cast(build::extent(logits, dim), logits.dtype());
    }
    // A class of probability 0 adds 0 even if its logit is -infinity.
    const Value none = build::equal(targets, targets.number(0));
    const Value finite = build::minimum(loss, loss.number(std::numeric_limits<float>::max()));
    Value losses = targets * build::select(none, finite, loss);
    ((losses = losses * weights_of_classes(class_weight, logits)), ...);
    const Value total = log_sum + most;
    const Value penalty = build::drop_singletons(build::cast(z, logits.dtype()) * total * total, 1u << dim);
    return build::reduce_loss(build::sum_of(losses, 1u << dim, false) + penalty, lead, Reduction);
  }
};

/// Whether the targets of a cross entropy are probabilities, not class indices.
template <class Logits, class Targets> inline constexpr bool are_probabilities_v = false;
template <class Logits, class Targets>
  requires requires { typename Targets::element; }
inline constexpr bool are_probabilities_v<Logits, Targets> =
    is_floating_v<typename Targets::element> && Targets::rank == Logits::rank;

template <LossReduction Reduction, class Logits, class Targets>
using CrossEntropyWithOptions =
    std::conditional_t<are_probabilities_v<Logits, Targets>, SoftCrossEntropyTag<Logits::rank, Reduction>,
                       SmoothedCrossEntropyTag<Logits::rank, Reduction>>;

}  // namespace detail

/// -x[target] for log-probabilities x [..., classes] and integer targets [...], as torch.nn.functional.nll_loss, which
/// has the classes in dim 1. Targets that equal `ignore_index` give 0 and are not counted in the mean, which is NaN if
/// all are ignored. Errors: shape_mismatch. Communication: as cross_entropy.
template <LossReduction Reduction = LossReduction::mean, TensorArgument X, TensorArgument Targets>
constexpr auto nll_loss(const X& x, const Targets& targets, int ignore_index = -100, Here at = Here::current()) {
  return call<detail::NllTag<X::rank, Reduction>>(Source::from(at), x, targets, static_cast<double>(ignore_index));
}
/// The same with a weight for each class, a vector, as PyTorch's argument `weight`: the loss of a position is
/// multiplied by the weight of its target, and the mean is the sum over the sum of these weights.
template <LossReduction Reduction = LossReduction::mean, TensorArgument X, TensorArgument Targets,
          TensorArgument Weight>
constexpr auto nll_loss(const X& x, const Targets& targets, const Weight& weight, int ignore_index = -100,
                        Here at = Here::current()) {
  return call<detail::NllTag<X::rank, Reduction>>(Source::from(at), x, targets, static_cast<double>(ignore_index),
                                                  weight);
}

/// Options of cross_entropy, with PyTorch's names and defaults.
struct CrossEntropy {
  double label_smoothing = 0;  ///< the part of the target distribution that is uniform over all classes
  int ignore_index = -100;     ///< targets of this value give 0 and are not counted in the mean
  double z_loss = 0;           ///< factor of logsumexp(logits)^2, which is added (PaLM, Chowdhery et al., 2204.02311)
};
/// Cross entropy with options, as torch.nn.functional.cross_entropy with the classes in the last dim:
///
///     (1 - s) (-log p[target]) + s mean over the classes of (-log p) + z logsumexp(logits)^2,  p = softmax(logits)
/// The mean is over the targets that are not ignored; NaN if all are. Targets outside of the classes select no class.
/// Errors: shape_mismatch. Communication: as cross_entropy without options. Source of smoothing: Szegedy et al.,
/// 1512.00567.
///
///     ts::cross_entropy(logits, targets, ts::CrossEntropy{.label_smoothing = 0.1, .ignore_index = 0})
template <LossReduction Reduction = LossReduction::mean, TensorArgument Logits, TensorArgument Targets>
constexpr auto cross_entropy(const Logits& logits, const Targets& targets, const CrossEntropy& options,
                             Here at = Here::current()) {
  return call<detail::CrossEntropyWithOptions<Reduction, Logits, Targets>>(Source::from(at), logits, targets,
                                                                           options.label_smoothing, options.z_loss,
                                                                           static_cast<double>(options.ignore_index));
}
/// The targets can be probabilities [..., classes], a floating-point tensor of the shape of the logits, as in PyTorch:
/// the loss of a position is the sum over the classes of -y log p, with smoothing of y (1 - s) + s / classes for y. The
/// mean is over the positions, also with a weight for each class. A class of probability 0 adds 0, also if its logit is
/// -infinity, where PyTorch gives NaN. The gradient is by the logits and by the probabilities. Errors:
/// shape_mismatch; option for an ignore_index of 0 or above.
///
///     ts::cross_entropy(ts::matmul(x, w), ts::softmax(teacher / temperature))
template <TensorArgument Logits, TensorArgument Targets>
  requires detail::are_probabilities_v<Logits, Targets>
constexpr auto cross_entropy(const Logits& logits, const Targets& targets, Here at = Here::current()) {
  return cross_entropy<LossReduction::mean>(logits, targets, CrossEntropy{}, at);
}
/// Without options, reduced otherwise: `cross_entropy<LossReduction::each>` is PyTorch's reduction="none".
template <LossReduction Reduction, TensorArgument Logits, TensorArgument Targets>
constexpr auto cross_entropy(const Logits& logits, const Targets& targets, Here at = Here::current()) {
  return cross_entropy<Reduction>(logits, targets, CrossEntropy{}, at);
}
/// The same with a weight for each class, a vector, as PyTorch's argument `weight`: -log p of each class is multiplied
/// by its weight, and the mean is the sum over the sum of the weights of the targets. z_loss has no weights.
///
///     ts::cross_entropy(logits, targets, weight, ts::CrossEntropy{.label_smoothing = 0.1})
template <LossReduction Reduction = LossReduction::mean, TensorArgument Logits, TensorArgument Targets,
          TensorArgument Weight>
constexpr auto cross_entropy(const Logits& logits, const Targets& targets, const Weight& weight,
                             const CrossEntropy& options = {}, Here at = Here::current()) {
  return call<detail::CrossEntropyWithOptions<Reduction, Logits, Targets>>(
      Source::from(at), logits, targets, options.label_smoothing, options.z_loss,
      static_cast<double>(options.ignore_index), weight);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
