#ifndef TESSERA_NN_LOSSES_HPP
#define TESSERA_NN_LOSSES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <type_traits>

#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/functional.hpp>

namespace tessera {

/// How a loss reduces the losses of the elements, as PyTorch's argument `reduction`; `each` is PyTorch's "none".
enum class LossReduction : std::uint8_t { each, mean, sum };

namespace build {
/// The losses of the elements, or their mean or sum over all dims after the first `lead`.
constexpr Value reduce_loss(Value losses, int lead, LossReduction reduction) {
  if (reduction == LossReduction::each) return losses;
  if (reduction == LossReduction::mean) return mean_of_all(losses, lead);
  return reduce(Op::sum, losses, ((1u << losses.rank()) - 1) & ~((1u << lead) - 1), false);
}
}  // namespace build

namespace detail {

template <int Rank, LossReduction Reduction> struct HuberTag {
  template <class X, class Y, class Delta> struct result {
    using type = loss_t<X>;
    static constexpr int rank = Reduction == LossReduction::each ? X::rank : 0;
    using Checks = decltype([] {
      static_assert(floating_v<X> && std::is_same_v<typename X::type, typename Y::type> && X::rank == Y::rank,
                    "tessera: huber takes two float, double or bf16 tensors of equal rank and element type");
    });
  };
  static constexpr Value emit(Value context, Value x, Value y, Value delta) {
    if (delta.node().is_constant() && !(delta.node().value > 0))
      context.refuse(errc::option, "[huber] delta: delta is not above 0");
    const DType type = computed_as(x.dtype());
    const Value off = build::unary(Op::abs, build::cast(x.at(context.source), type) - build::cast(y, type));
    // With c = min(|x - y|, delta), both branches are c (|x - y| - c / 2).
    const Value near = build::binary(Op::minimum, off, build::cast(delta, type));
    return build::reduce_loss(near * (off - near * 0.5), off.leading(Rank), Reduction);
  }
};

/// A loss of corresponding elements: `Loss::of` gives the loss of the elements of x and y.
template <class Loss, int Rank, LossReduction Reduction> struct ElementLossTag {
  template <class X, class Y> struct result {
    using type = loss_t<X>;
    static constexpr int rank = Reduction == LossReduction::each ? X::rank : 0;
    using Checks = decltype([] {
      static_assert(
          floating_v<X> && std::is_same_v<typename X::type, typename Y::type> && X::rank == Y::rank,
          "tessera: a loss of elements takes two float, double or bf16 tensors of equal rank and element type");
    });
  };
  static constexpr Value emit(Value context, Value x, Value y) {
    const DType type = computed_as(x.dtype());
    const Value losses = Loss::of(build::cast(x.at(context.source), type), build::cast(y, type));
    return build::reduce_loss(losses, losses.leading(Rank), Reduction);
  }
};

struct L1Loss {
  static constexpr Value of(Value x, Value y) { return build::unary(Op::abs, x - y); }
};
struct BceWithLogitsLoss {
  // y x is never subtracted from a softplus of x, which would lose digits for large x.
  static constexpr Value of(Value x, Value y) {
    return (1.0 - y) * x + build::apply<ops::SoftplusOp>(build::unary(Op::neg, x));
  }
};
struct KlDivLoss {
  static constexpr Value of(Value x, Value y) {
    const Value safe = build::select(build::binary(Op::equal, y, y.number(0)), y.number(1), y);
    return y * build::unary(Op::log, safe) - y * x;
  }
};

/// The losses of positions, of which those with an ignored target are 0 and are not counted in the mean.
constexpr Value reduce_kept(Value losses, Value kept, int lead, LossReduction reduction) {
  const Value some = build::select(kept, losses, losses.number(0));
  if (reduction == LossReduction::each) return some;
  const Value sum = build::reduce_loss(some, lead, LossReduction::sum);
  if (reduction == LossReduction::sum) return sum;
  return sum / build::reduce_loss(build::cast(kept, losses.dtype()), lead, LossReduction::sum);
}
/// Targets with a last dim of extent 1, to be compared with the positions of the classes.
constexpr Value with_class_dim(Value targets, Value scores) {
  return build::insert_singletons(targets, 1u << (scores.rank() - 1), scores.rank());
}
constexpr Value is_counted(Value targets, Value ignored) {
  // An unsigned element type has no -100.
  const DType type = targets.dtype() == DType::i32 ? DType::i32 : DType::i64;
  return build::apply<ops::NotEqualOp>(build::cast(targets, type), build::cast(ignored, type));
}

template <int Rank, LossReduction Reduction> struct NllTag {
  template <class Scores, class Targets, class Ignored>
  struct result : CrossEntropyTag<Rank>::template result<Scores, Targets> {
    static constexpr int rank = Reduction == LossReduction::each ? Targets::rank : 0;
  };
  static constexpr Value emit(Value context, Value scores, Value targets, Value ignored) {
    const int lead = scores.leading(Rank), dim = scores.rank() - 1;
    scores = build::cast(scores.at(context.source), computed_as(scores.dtype()));
    targets = targets.at(context.source);
    const Value picked =
        build::binary(Op::equal, build::iota(scores, dim, targets.dtype()), with_class_dim(targets, scores));
    const Value losses = build::reduce(Op::sum, build::select(picked, build::unary(Op::neg, scores), scores.number(0)),
                                       1u << dim, false);
    return reduce_kept(losses, is_counted(targets, ignored), lead, Reduction);
  }
};

template <int Rank, LossReduction Reduction> struct SmoothedCrossEntropyTag {
  template <class Logits, class Targets, class Smoothing, class Z, class Ignored>
  struct result : CrossEntropyTag<Rank>::template result<Logits, Targets> {
    static constexpr int rank = Reduction == LossReduction::each ? Targets::rank : 0;
  };
  static constexpr Value emit(Value context, Value logits, Value targets, Value smoothing, Value z, Value ignored) {
    const int lead = logits.leading(Rank), dim = logits.rank() - 1;
    logits = build::cast(logits.at(context.source), computed_as(logits.dtype()));
    targets = targets.at(context.source);
    smoothing = build::cast(smoothing, logits.dtype());
    const Value most = build::constant_reduce(Op::max, logits, 1u << dim), shifted = logits - most;
    const Value log_sum = build::log_sum_exp_of_shifted(shifted, dim), loss = log_sum - shifted;
    const Value picked =
        build::binary(Op::equal, build::iota(logits, dim, targets.dtype()), with_class_dim(targets, logits));
    // A class of weight 0 adds 0 even if its logit is -infinity, as in PyTorch without smoothing.
    const Value spread = smoothing / build::cast(build::extent(logits, dim), logits.dtype());
    const Value weight = build::select(picked, 1.0 - smoothing + spread, spread);
    const Value some =
        build::select(build::apply<ops::GreaterOp>(weight, logits.number(0)), weight * loss, loss.number(0));
    const Value total = log_sum + most;
    const Value penalty = build::drop_singletons(build::cast(z, logits.dtype()) * total * total, 1u << dim);
    const Value losses = build::reduce(Op::sum, some, 1u << dim, false) + penalty;
    return reduce_kept(losses, is_counted(targets, ignored), lead, Reduction);
  }
};

}  // namespace detail

/// The Huber loss, as torch.nn.functional.huber_loss: (x - y)^2 / 2 where |x - y| is at most delta, and
/// delta (|x - y| - delta / 2) elsewhere. Its gradient is x - y, clipped to [-delta, delta], and NaN where x - y is
/// NaN.
///
/// Shapes: x and y have equal shapes. The result is the mean over all elements, with `LossReduction::sum` their sum, or
/// with `LossReduction::each` a tensor of that shape. Losses of bf16 are f32. The mean of no elements is NaN, as in
/// mse. Errors: shape_mismatch; option for a constant delta that is not above 0. Communication: for sharded operands
/// one all_reduce of a scalar, or none with `LossReduction::each`. Source: Huber, Annals of Statistics 35 (1964).
///
///     ts::huber(model(x), target), ts::huber<ts::LossReduction::sum>(model(x), target, 0.5)
template <LossReduction Reduction = LossReduction::mean, TensorOperand X, TensorOperand Y, NumberOperand Delta = double>
constexpr auto huber(const X& x, const Y& y, const Delta& delta = 1.0, Here at = Here::current()) {
  return call<detail::HuberTag<X::rank, Reduction>>(Source::from(at), x, y, delta);
}

/// |x - y|, as torch.nn.functional.l1_loss. Shapes, reductions, errors and communication: as huber. The gradient at
/// x = y is 0.
template <LossReduction Reduction = LossReduction::mean, TensorOperand X, TensorOperand Y>
constexpr auto l1_loss(const X& x, const Y& y, Here at = Here::current()) {
  return call<detail::ElementLossTag<detail::L1Loss, X::rank, Reduction>>(Source::from(at), x, y);
}
/// -y log sigmoid(x) - (1 - y) log(1 - sigmoid(x)) for logits x and probabilities y, without overflow, as
/// torch.nn.functional.binary_cross_entropy_with_logits. Shapes, reductions, errors and communication: as huber.
template <LossReduction Reduction = LossReduction::mean, TensorOperand X, TensorOperand Y>
constexpr auto bce_with_logits(const X& x, const Y& y, Here at = Here::current()) {
  return call<detail::ElementLossTag<detail::BceWithLogitsLoss, X::rank, Reduction>>(Source::from(at), x, y);
}
/// y (log y - x) for log-probabilities x and probabilities y, as torch.nn.functional.kl_div; -y x where y is 0.
/// PyTorch's reduction "batchmean" is the sum divided by the extent of the batch. Shapes, reductions, errors and
/// communication: as huber.
template <LossReduction Reduction = LossReduction::mean, TensorOperand X, TensorOperand Y>
constexpr auto kl_div(const X& x, const Y& y, Here at = Here::current()) {
  return call<detail::ElementLossTag<detail::KlDivLoss, X::rank, Reduction>>(Source::from(at), x, y);
}

/// -x[target] for log-probabilities x [..., classes] and integer targets [...], as torch.nn.functional.nll_loss, which
/// has the classes in dim 1. Targets that equal `ignore_index` give 0 and are not counted in the mean, which is NaN if
/// all are ignored. Errors: shape_mismatch. Communication: as cross_entropy.
template <LossReduction Reduction = LossReduction::mean, TensorOperand X, TensorOperand Targets>
constexpr auto nll_loss(const X& x, const Targets& targets, int ignore_index = -100, Here at = Here::current()) {
  return call<detail::NllTag<X::rank, Reduction>>(Source::from(at), x, targets, static_cast<double>(ignore_index));
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
template <LossReduction Reduction = LossReduction::mean, TensorOperand Logits, TensorOperand Targets>
constexpr auto cross_entropy(const Logits& logits, const Targets& targets, const CrossEntropy& options,
                             Here at = Here::current()) {
  return call<detail::SmoothedCrossEntropyTag<Logits::rank, Reduction>>(Source::from(at), logits, targets,
                                                                        options.label_smoothing, options.z_loss,
                                                                        static_cast<double>(options.ignore_index));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
