#ifndef TESSERA_OPS_LOSSES_LOSSES_HPP
#define TESSERA_OPS_LOSSES_LOSSES_HPP
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

/// A number, or a tensor of the rank and the element type of X.
template <class X, class Y>
inline constexpr bool fits_loss_v =
    is_number_v<typename Y::type> || (std::is_same_v<typename X::type, typename Y::type> && X::rank == Y::rank);
/// A tensor of labels, one for each `Dropped` last dims of X: of integers, or of the element type of X.
template <class X, class Y, int Dropped = 0>
inline constexpr bool labels_loss_v =
    Y::rank == X::rank - Dropped &&
    (std::is_integral_v<typename Y::type> || std::is_same_v<typename X::type, typename Y::type>);

/// A loss of corresponding elements of tensors: `Loss::of(x, more...)` gives the losses, one for each element, or one
/// for each row if Loss is a RowLoss. `Loss::fits` says which types it takes, `Loss::check` refuses wrong constants.
struct ElementLoss {
  static constexpr int dropped = 0;
  template <class X, class... More> static constexpr bool fits = (fits_loss_v<X, More> && ...);
};
struct RowLoss {
  static constexpr int dropped = 1;
  template <class X, class... More> static constexpr bool fits = (fits_loss_v<X, More> && ...);
};

template <class Loss, int Rank, LossReduction Reduction> struct LossTag {
  static constexpr const char* function = Loss::function;
  static_assert(Rank >= Loss::dropped, "tessera: this loss is that of rows, and takes tensors with at least one dim");
  template <class X, class... More> struct result {
    using type = loss_t<X>;
    static constexpr int rank = Reduction == LossReduction::each ? Rank - Loss::dropped : 0;
    using Checks = decltype([] {
      static_assert(
          floating_v<X> && Loss::template fits<X, More...>,
          "tessera: a loss takes float, double, bf16 or f16 tensors of equal rank and element type; labels may be "
          "integers, and those of rows have a dim less");
    });
  };
  static constexpr Value emit(Value context, Value x, auto... more) {
    if constexpr (requires { Loss::check(context, more...); }) Loss::check(context, more...);
    const DType type = computed_as(x.dtype());
    const Value losses = Loss::of(build::cast(x.at(context.source), type), build::cast(more, type)...);
    return build::reduce_loss(losses, losses.leading(Rank - Loss::dropped), Reduction);
  }
};

/// max(x, 0), with a gradient of 1 at 0, as for PyTorch's clamp.
constexpr Value at_least_zero(Value x) { return build::select(build::less(x, x.number(0)), x.number(0), x); }
constexpr bool is_constant_below(Value x, double least) { return x.node().is_constant() && !(x.node().value >= least); }

struct HuberLoss : ElementLoss {
  static constexpr const char* function = "huber";
  static constexpr void check(Value context, Value, Value delta) {
    if (delta.node().is_constant() && !(delta.node().value > 0))
      context.refuse(errc::option, "[huber] delta: delta is not above 0");
  }
  static constexpr Value of(Value x, Value y, Value delta) {
    const Value off = build::abs(x - y);
    // With c = min(|x - y|, delta), both branches are c (|x - y| - c / 2).
    const Value near = build::minimum(off, delta);
    return near * (off - near * 0.5);
  }
};
struct SmoothL1Loss : ElementLoss {
  static constexpr const char* function = "smooth_l1_loss";
  static constexpr void check(Value context, Value, Value beta) {
    if (is_constant_below(beta, 0)) context.refuse(errc::option, "[smooth_l1_loss] beta: beta is below 0");
  }
  static constexpr Value of(Value x, Value y, Value beta) {
    const Value off = build::abs(x - y), zero = beta.number(0);
    const Value divisor = build::select(build::greater(beta, zero), beta, beta.number(1));
    return build::select(build::less(off, beta), off * off * 0.5 / divisor, off - beta * 0.5);
  }
};
struct L1Loss : ElementLoss {
  static constexpr const char* function = "l1_loss";
  static constexpr Value of(Value x, Value y) { return build::abs(x - y); }
};
struct BceWithLogitsLoss : ElementLoss {
  static constexpr const char* function = "bce_with_logits";
  // y x is never subtracted from a softplus of x, which would lose digits for large x.
  static constexpr Value of(Value x, Value y) {
    return (1.0 - y) * x + build::apply<ops::SoftplusOp>(build::unary(Op::neg, x));
  }
};
struct BinaryCrossEntropyLoss : ElementLoss {
  static constexpr const char* function = "binary_cross_entropy";
  /// log(p), but not below -100, where its gradient is 0. exp(-100) is a number of f32 too.
  static constexpr Value bounded_log(Value p) {
    const Value none = build::less(build::abs(p), p.number(3.7200759760208356e-44)),
                log = build::log(build::select(none, p.number(1), p));
    return build::select(none, p.number(-100), log);
  }
  static constexpr Value of(Value x, Value y) { return -(y * bounded_log(x)) - (1.0 - y) * bounded_log(1.0 - x); }
};
template <bool OfLogarithms> struct KlDivLoss : ElementLoss {
  static constexpr const char* function = "kl_div";
  static constexpr Value of(Value x, Value y) {
    if (OfLogarithms) return build::exp(y) * (y - x);
    const Value safe = build::select(build::equal(y, y.number(0)), y.number(1), y);
    return y * build::log(safe) - y * x;
  }
};
struct FocalLoss : ElementLoss {
  static constexpr const char* function = "sigmoid_focal_loss";
  static constexpr Value of(Value x, Value y, Value alpha, Value gamma) {
    const Value p = build::sigmoid(x), other = 1.0 - y, zero = alpha.number(0);
    const Value missed = build::apply<ops::PowOp>(1.0 - (p * y + (1.0 - p) * other), gamma);
    const Value weight = build::select(build::less(alpha, zero), alpha.number(1), alpha * y + (1.0 - alpha) * other);
    return weight * missed * BceWithLogitsLoss::of(x, y);
  }
};
struct GaussianNllLoss : ElementLoss {
  static constexpr const char* function = "gaussian_nll_loss";
  static constexpr void check(Value context, Value, Value, Value eps, Value) {
    if (is_constant_below(eps, 0)) context.refuse(errc::option, "[gaussian_nll_loss] eps: eps is below 0");
  }
  static constexpr Value of(Value x, Value y, Value variance, Value eps, Value constant) {
    const Value spread = build::select(build::less(variance, eps), eps, variance), off = x - y;
    return (build::log(spread) + off * off / spread) * 0.5 + constant;
  }
};
template <bool OfLogarithms, bool Full> struct PoissonNllLoss : ElementLoss {
  static constexpr const char* function = "poisson_nll_loss";
  static constexpr Value of(Value x, Value y, Value eps) {
    const Value loss = OfLogarithms ? build::exp(x) - y * x : x - y * build::log(x + eps);
    if (!Full) return loss;
    const Value above = build::greater(y, y.number(1)), safe = build::select(above, y, y.number(1));
    const Value log = build::log(safe);
    const Value stirling = safe * log - safe + (log + 1.8378770664093454836) * 0.5;  // log(2 pi)
    return loss + build::select(above, stirling, stirling.number(0));
  }
};

/// Targets with a last dim of extent 1, to be compared with the positions of the classes.
constexpr Value with_class_dim(Value targets, Value scores) {
  return build::insert_singletons(targets, 1u << (scores.rank() - 1), scores.rank());
}
/// A vector of the weights of the classes, to be multiplied with scores [..., classes].
constexpr Value weights_of_classes(Value weight, Value scores) {
  const int lead = weight.leading(1);
  const unsigned positions = ((1u << (scores.rank() - 1)) - 1) & ~((1u << lead) - 1);
  weight = build::cast(weight, scores.dtype());
  return lead == 0 ? weight : build::insert_singletons(weight, positions, scores.rank());
}
/// The weight of the class of each target, 0 outside of the classes.
constexpr Value weights_of_targets(Value weights, Value picked, int dim) {
  return build::sum_of(build::select(picked, weights, weights.number(0)), 1u << dim, false);
}
template <class Scores, class Weight>
inline constexpr bool weighs_classes_v = [] {
  static_assert(Weight::rank == 1 && (std::is_same_v<typename Weight::type, typename Scores::type> ||
                                      std::is_same_v<typename Weight::type, loss_t<Scores>>),
                "tessera: the weight of classes is a vector with the element type of the scores, or float for bf16 and "
                "f16 scores");
  return true;
}();
struct BceWithPositiveWeightLoss : ElementLoss {
  static constexpr const char* function = "bce_with_logits";
  template <class X, class Y, class Weight>
  static constexpr bool fits = fits_loss_v<X, Y> && weighs_classes_v<X, Weight>;
  static constexpr Value of(Value x, Value y, Value weight) {
    const Value weighed = (weights_of_classes(weight, x) - 1.0) * y + 1.0;
    return (1.0 - y) * x + weighed * build::apply<ops::SoftplusOp>(build::unary(Op::neg, x));
  }
};

}  // namespace detail

/// The Huber loss, as torch.nn.functional.huber_loss: (x - y)^2 / 2 where |x - y| is at most delta, and
/// delta (|x - y| - delta / 2) elsewhere. Its gradient is x - y, clipped to [-delta, delta], and NaN where x - y is
/// NaN.
///
/// Shapes: x and y have equal shapes. The result is the mean over all elements, with `LossReduction::sum` their sum, or
/// with `LossReduction::each` a tensor of that shape. Losses of bf16 and f16 are f32. The mean of no elements is NaN,
/// as in mse. Errors: shape_mismatch; option for a constant delta that is not above 0. Communication: for sharded
/// operands one all_reduce of a scalar, or none with `LossReduction::each`. Source: Huber, Annals of Statistics 35
/// (1964).
///
///     ts::huber(model(x), target), ts::huber<ts::LossReduction::sum>(model(x), target, 0.5)
template <LossReduction Reduction = LossReduction::mean, TensorArgument X, TensorArgument Y,
          NumberOperand Delta = double>
constexpr auto huber(const X& x, const Y& y, const Delta& delta = 1.0, Here at = Here::current()) {
  return call<detail::LossTag<detail::HuberLoss, X::rank, Reduction>>(Source::from(at), x, y, delta);
}
/// (x - y)^2 / (2 beta) where |x - y| is below beta, and |x - y| - beta / 2 elsewhere, as
/// torch.nn.functional.smooth_l1_loss; with a beta of 0 l1_loss. Shapes, reductions and communication: as huber.
/// Errors: shape_mismatch; option for a constant beta below 0. Source: Girshick, 1504.08083.
template <LossReduction Reduction = LossReduction::mean, TensorArgument X, TensorArgument Y,
          NumberOperand Beta = double>
constexpr auto smooth_l1_loss(const X& x, const Y& y, const Beta& beta = 1.0, Here at = Here::current()) {
  return call<detail::LossTag<detail::SmoothL1Loss, X::rank, Reduction>>(Source::from(at), x, y, beta);
}

/// |x - y|, as torch.nn.functional.l1_loss. Shapes, reductions, errors and communication: as huber. The gradient at
/// x = y is 0.
template <LossReduction Reduction = LossReduction::mean, TensorArgument X, TensorArgument Y>
constexpr auto l1_loss(const X& x, const Y& y, Here at = Here::current()) {
  return call<detail::LossTag<detail::L1Loss, X::rank, Reduction>>(Source::from(at), x, y);
}
/// -y log sigmoid(x) - (1 - y) log(1 - sigmoid(x)) for logits x and probabilities y, without overflow, as
/// torch.nn.functional.binary_cross_entropy_with_logits. Shapes, reductions, errors and communication: as huber.
template <LossReduction Reduction = LossReduction::mean, TensorArgument X, TensorArgument Y>
constexpr auto bce_with_logits(const X& x, const Y& y, Here at = Here::current()) {
  return call<detail::LossTag<detail::BceWithLogitsLoss, X::rank, Reduction>>(Source::from(at), x, y);
}
/// The same with a weight for the positive examples of each class, a vector, as PyTorch's argument `pos_weight`: for x
/// [..., classes], the term y log sigmoid(x) is multiplied by the weight of its class.
template <LossReduction Reduction = LossReduction::mean, TensorArgument X, TensorArgument Y, TensorArgument Weight>
constexpr auto bce_with_logits(const X& x, const Y& y, const Weight& pos_weight, Here at = Here::current()) {
  return call<detail::LossTag<detail::BceWithPositiveWeightLoss, X::rank, Reduction>>(Source::from(at), x, y,
                                                                                      pos_weight);
}
/// -y log x - (1 - y) log(1 - x) for probabilities x and y, as torch.nn.functional.binary_cross_entropy: a logarithm
/// below -100 counts as -100, here with a gradient of 0. From logits use bce_with_logits, which is exact for x near 0
/// and 1. Shapes, reductions, errors and communication: as huber.
template <LossReduction Reduction = LossReduction::mean, TensorArgument X, TensorArgument Y>
constexpr auto binary_cross_entropy(const X& x, const Y& y, Here at = Here::current()) {
  return call<detail::LossTag<detail::BinaryCrossEntropyLoss, X::rank, Reduction>>(Source::from(at), x, y);
}
/// Options of kl_div, with PyTorch's names and defaults.
struct KlDiv {
  bool log_target = false;  ///< y is the logarithm of the target probability
};
/// y (log y - x) for log-probabilities x and probabilities y, as torch.nn.functional.kl_div; -y x where y is 0. For
/// log-probabilities y, `kl_div<Reduction, ts::KlDiv{.log_target = true}>(x, y)`, exp(y) (y - x). PyTorch's reduction
/// "batchmean" is the sum divided by the extent of the batch. Shapes, reductions, errors and communication: as huber.
template <LossReduction Reduction = LossReduction::mean, KlDiv Options = KlDiv{}, TensorArgument X, TensorArgument Y>
constexpr auto kl_div(const X& x, const Y& y, Here at = Here::current()) {
  return call<detail::LossTag<detail::KlDivLoss<Options.log_target>, X::rank, Reduction>>(Source::from(at), x, y);
}

/// The focal loss of logits x and probabilities y, as torchvision.ops.sigmoid_focal_loss: bce_with_logits times
/// (1 - p)^gamma, where p is the probability that x gives to the target, times alpha for a target of 1 and 1 - alpha
/// for one of 0. A negative alpha gives no weights. Shapes, reductions, errors and communication: as huber; the default
/// is the mean, torchvision's `each`. Source: Lin et al., 1708.02002.
template <LossReduction Reduction = LossReduction::mean, TensorArgument X, TensorArgument Y,
          NumberOperand Alpha = double, NumberOperand Gamma = double>
constexpr auto sigmoid_focal_loss(const X& x, const Y& y, const Alpha& alpha = 0.25, const Gamma& gamma = 2.0,
                                  Here at = Here::current()) {
  return call<detail::LossTag<detail::FocalLoss, X::rank, Reduction>>(Source::from(at), x, y, alpha, gamma);
}

/// Options of gaussian_nll_loss, with PyTorch's names and defaults.
struct GaussianNll {
  bool full = false;  ///< adds the constant log(2 pi) / 2
  double eps = 1e-6;  ///< the least variance
};
/// (log v + (x - y)^2 / v) / 2 for means x, targets y and variances v, as torch.nn.functional.gaussian_nll_loss. The
/// variance is a number, or a tensor of the shape of x; one below `eps` counts as eps, with a gradient of 0, where
/// PyTorch has that of eps. Negative variances are no error. Shapes, reductions and communication: as huber. Errors:
/// shape_mismatch; option for an eps below 0. Source: Nix, Weigend, ICNN 1994.
template <LossReduction Reduction = LossReduction::mean, TensorArgument X, TensorArgument Y, Operand Variance>
constexpr auto gaussian_nll_loss(const X& x, const Y& y, const Variance& variance, const GaussianNll& options = {},
                                 Here at = Here::current()) {
  return call<detail::LossTag<detail::GaussianNllLoss, X::rank, Reduction>>(
      Source::from(at), x, y, variance, options.eps, options.full ? 0.91893853320467274178 : 0.0);
}

/// Options of poisson_nll_loss, with PyTorch's names and defaults.
struct PoissonNll {
  bool log_input = true;  ///< x is the logarithm of the rate
  bool full = false;      ///< adds Stirling's approximation of log(y!), for y above 1
};
/// exp(x) - y x for logarithms x of rates and counts y, as torch.nn.functional.poisson_nll_loss; for rates x,
/// x - y log(x + eps). Shapes, reductions, errors and communication: as huber.
///
///     ts::poisson_nll_loss<ts::LossReduction::mean, ts::PoissonNll{.full = true}>(model(x), counts)
template <LossReduction Reduction = LossReduction::mean, PoissonNll Options = PoissonNll{}, TensorArgument X,
          TensorArgument Y, NumberOperand Eps = double>
constexpr auto poisson_nll_loss(const X& x, const Y& y, const Eps& eps = 1e-8, Here at = Here::current()) {
  return call<detail::LossTag<detail::PoissonNllLoss<Options.log_input, Options.full>, X::rank, Reduction>>(
      Source::from(at), x, y, eps);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
