#ifndef TESSERA_OPS_LOSSES_MARGIN_LOSSES_HPP
#define TESSERA_OPS_LOSSES_MARGIN_LOSSES_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/cumulative/cumulative_rows.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/losses/cross_entropy.hpp>
#include <tessera/ops/losses/losses.hpp>
#include <tessera/ops/reduction/statistics.hpp>

// Losses of embeddings and ranks: what is alike is moved together, what is not is moved apart up to a margin.

namespace tessera {

namespace detail {

struct MarginRankingLoss : ElementLoss {
  static constexpr const char* function = "margin_ranking_loss";
  template <class X, class Y, class Labels, class Margin>
  static constexpr bool fits = fits_loss_v<X, Y> && labels_loss_v<X, Labels>;
  static constexpr Value of(Value x, Value y, Value label, Value margin) {
    return at_least_zero(label * (y - x) + margin);
  }
};
struct HingeEmbeddingLoss : ElementLoss {
  static constexpr const char* function = "hinge_embedding_loss";
  template <class X, class Labels, class Margin> static constexpr bool fits = labels_loss_v<X, Labels>;
  // A label that is neither 1 nor -1 counts as both, as in PyTorch.
  static constexpr Value of(Value x, Value label, Value margin) {
    const Value zero = x.number(0);
    return build::select(build::equal(label, label.number(1)), zero, at_least_zero(margin - x)) +
           build::select(build::equal(label, label.number(-1)), zero, x);
  }
};
struct CosineEmbeddingLoss : RowLoss {
  static constexpr const char* function = "cosine_embedding_loss";
  template <class X, class Y, class Labels, class Margin>
  static constexpr bool fits = fits_loss_v<X, Y> && labels_loss_v<X, Labels, 1>;
  static constexpr Value of(Value x, Value y, Value label, Value margin) {
    const auto dot = [dim = x.rank() - 1](Value a, Value b) { return build::sum_of(a * b, 1u << dim, false); };
    const Value squares = (dot(x, x) + 1e-12) * (dot(y, y) + 1e-12);
    const Value cosine = dot(x, y) / build::sqrt(squares), zero = cosine.number(0);
    return build::select(build::equal(label, label.number(1)), 1.0 - cosine, zero) +
           build::select(build::equal(label, label.number(-1)), at_least_zero(cosine - margin), zero);
  }
};
/// The P-norms of the rows of x - y + eps, as torch.nn.functional.pairwise_distance.
template <int P> constexpr Value distance_of_rows(Value x, Value y, Value eps) {
  const Value off = x - y + eps;
  const unsigned row = 1u << (x.rank() - 1);
  const Value size = build::abs(off);
  if (P == 1) return build::sum_of(size, row, false);
  if (P == 2) return flat_root(build::sum_of(off * off, row, false));
  const Value sum = build::sum_of(build::apply<ops::PowOp>(size, size.number(P)), row, false);
  return build::apply<ops::PowOp>(sum, sum.number(1.0 / P));
}
template <int P, bool Swap> struct TripletMarginLoss : RowLoss {
  static constexpr const char* function = "triplet_margin_loss";
  static_assert(P >= 1, "tessera: the norm of a triplet_margin_loss is 1 or more");
  static constexpr Value of(Value anchor, Value positive, Value negative, Value margin, Value eps) {
    const Value near = distance_of_rows<P>(anchor, positive, eps);
    Value far = distance_of_rows<P>(anchor, negative, eps);
    if (Swap) far = build::minimum(far, distance_of_rows<P>(positive, negative, eps));
    return at_least_zero(near - far + margin);
  }
};

struct SoftMarginLoss : ElementLoss {
  static constexpr const char* function = "soft_margin_loss";
  template <class X, class Labels> static constexpr bool fits = labels_loss_v<X, Labels>;
  static constexpr Value of(Value x, Value label) { return build::apply<ops::SoftplusOp>(-(label * x)); }
};
struct MultilabelSoftMarginLoss : RowLoss {
  static constexpr const char* function = "multilabel_soft_margin_loss";
  template <class X, class Labels, class... Weight>
  static constexpr bool fits = labels_loss_v<X, Labels> && (weighs_classes_v<X, Weight> && ...);
  static constexpr Value of(Value x, Value label, std::same_as<Value> auto... weight) {
    const int dim = x.rank() - 1;
    Value losses = BceWithLogitsLoss::of(x, label);
    ((losses = losses * weights_of_classes(weight, x)), ...);
    return build::sum_of(losses, 1u << dim, false) / build::cast(build::extent(x, dim), x.dtype());
  }
};
template <int P> struct MultiMarginLoss : RowLoss {
  static constexpr const char* function = "multi_margin_loss";
  static_assert(P == 1 || P == 2, "tessera: the power of multi_margin_loss is 1 or 2");
  template <class X, class Targets, class Margin, class... Weight>
  static constexpr bool fits = std::is_integral_v<typename Targets::type> && labels_loss_v<X, Targets, 1> &&
                               (weighs_classes_v<X, Weight> && ...);
  static constexpr Value of(Value x, Value target, Value margin, std::same_as<Value> auto... weight) {
    check_targets(x, x, target, x.rank());
    const int dim = x.rank() - 1;
    const Value zero = x.number(0), classes = build::cast(build::iota(x, dim, DType::i32), x.dtype());
    const Value picked = build::equal(classes, with_class_dim(target, x));
    const Value own = build::row_sum(build::select(picked, x, zero), dim);
    const Value hinge = at_least_zero(margin - own + x);
    const Value others = build::select(picked, zero, P == 1 ? hinge : hinge * hinge);
    const Value losses = build::sum_of(others, 1u << dim, false) / build::cast(build::extent(x, dim), x.dtype());
    if constexpr (sizeof...(weight) == 1)
      return losses * weights_of_targets((weights_of_classes(weight, x), ...), picked, dim);
    else
      return losses;
  }
};
struct MultilabelMarginLoss : RowLoss {
  static constexpr const char* function = "multilabel_margin_loss";
  template <class X, class Targets>
  static constexpr bool fits = std::is_integral_v<typename Targets::type> && labels_loss_v<X, Targets>;
  static constexpr Value of(Value x, Value target) {
    const int t = x.rank() - 1, c = t + 1;  // the dims of targets and of classes, of [..., t, c]
    const auto column = [&](Value v) { return build::insert_singletons(v, 1u << c, c + 1); };
    const Value row = build::insert_singletons(x, 1u << t, c + 1), zero = x.number(0);
    const Value negative = build::cast(build::less(target, target.number(0)), DType::i32);
    const Value ended = build::cumsum(negative, t, CumulativeOptions{});
    const Value counts = column(build::equal(ended, ended.number(0)));
    const Value classes = build::cast(build::iota(row, c, DType::i32), x.dtype());
    const Value is = build::logical_and(build::equal(classes, column(target)), counts);
    const Value member = build::sum_of(build::select(is, x.number(1), zero), 1u << t, true);
    const Value own = build::row_sum(build::select(is, row, zero), c), gap = 1.0 - own + row;
    const Value pairs = build::logical_and(counts, build::equal(member, zero));
    const Value above = build::logical_and(pairs, build::greater(gap, zero));
    const Value sum = build::sum_of(build::select(above, gap, zero), 3u << t, false);
    return sum / build::cast(build::extent(x, t), x.dtype());
  }
};
template <int P> struct PairwiseDistance : RowLoss {
  static constexpr const char* function = "pairwise_distance";
  static_assert(P >= 1, "tessera: the norm of a pairwise_distance is 1 or more");
  static constexpr Value of(Value x, Value y, Value eps) { return distance_of_rows<P>(x, y, eps); }
};

/// Rows of length 1, as torch.nn.functional.normalize; rows of zeros stay.
struct UnitRowsTag {
  template <class X> using result = Typed<loss_t<X>, X::rank>;
  static constexpr Value emit(Value context, Value x) {
    x = build::cast(x.at(context.source), computed_as(x.dtype()));
    const Value length = flat_root(build::row_sum(x * x, x.rank() - 1));
    return x / build::maximum(length, x.number(1e-12));
  }
};
template <class T> inline constexpr bool has_rank_0_v = NumberOperand<T>;
template <TensorOperand T> inline constexpr bool has_rank_0_v<T> = T::rank == 0;
/// What scores can be divided by.
template <class T>
concept TemperatureOperand = Operand<T> && has_rank_0_v<T>;

template <class X> constexpr auto unit_rows(const X& x, Here at) { return call<UnitRowsTag>(Source::from(at), x); }

}  // namespace detail

/// max(0, margin - label (x - y)) for labels 1, where x should be larger, and -1, as
/// torch.nn.functional.margin_ranking_loss. Shapes: x, y and labels have equal shapes; labels are integers or of the
/// element type of x. Reductions, errors and communication: as huber.
template <LossReduction Reduction = LossReduction::mean, TensorArgument X, TensorArgument Y, TensorArgument Labels,
          NumberOperand Margin = double>
constexpr auto margin_ranking_loss(const X& x, const Y& y, const Labels& labels, const Margin& margin = 0.0,
                                   Here at = Here::current()) {
  return call<detail::LossTag<detail::MarginRankingLoss, X::rank, Reduction>>(Source::from(at), x, y, labels, margin);
}
/// x where the label is 1, and max(0, margin - x) where it is -1, as torch.nn.functional.hinge_embedding_loss, for
/// distances x. Shapes, reductions, errors and communication: as margin_ranking_loss.
template <LossReduction Reduction = LossReduction::mean, TensorArgument X, TensorArgument Labels,
          NumberOperand Margin = double>
constexpr auto hinge_embedding_loss(const X& x, const Labels& labels, const Margin& margin = 1.0,
                                    Here at = Here::current()) {
  return call<detail::LossTag<detail::HingeEmbeddingLoss, X::rank, Reduction>>(Source::from(at), x, labels, margin);
}
/// 1 - cos(x, y) for rows with label 1, max(0, cos(x, y) - margin) for rows with label -1, and 0 for others, as
/// torch.nn.functional.cosine_embedding_loss. Shapes: x and y [..., features], labels [...], integers or of the element
/// type of x; one loss for each row. Reductions and errors: as huber. Communication: for split features all_reduces of
/// three values for each row.
template <LossReduction Reduction = LossReduction::mean, TensorArgument X, TensorArgument Y, TensorArgument Labels,
          NumberOperand Margin = double>
constexpr auto cosine_embedding_loss(const X& x, const Y& y, const Labels& labels, const Margin& margin = 0.0,
                                     Here at = Here::current()) {
  return call<detail::LossTag<detail::CosineEmbeddingLoss, X::rank, Reduction>>(Source::from(at), x, y, labels, margin);
}

/// log(1 + exp(-label x)) for labels 1 and -1, without overflow, as torch.nn.functional.soft_margin_loss. Shapes,
/// reductions, errors and communication: as margin_ranking_loss.
template <LossReduction Reduction = LossReduction::mean, TensorArgument X, TensorArgument Labels>
constexpr auto soft_margin_loss(const X& x, const Labels& labels, Here at = Here::current()) {
  return call<detail::LossTag<detail::SoftMarginLoss, X::rank, Reduction>>(Source::from(at), x, labels);
}
/// The mean over the classes of bce_with_logits, for labels 0 and 1 of each class, as
/// torch.nn.functional.multilabel_soft_margin_loss. Shapes: x and labels [..., classes]; one loss for each row. Labels
/// are integers or of the element type of x. Reductions and errors: as huber. Communication: for split classes an
/// all_reduce of one value for each row.
template <LossReduction Reduction = LossReduction::mean, TensorArgument X, TensorArgument Labels>
constexpr auto multilabel_soft_margin_loss(const X& x, const Labels& labels, Here at = Here::current()) {
  return call<detail::LossTag<detail::MultilabelSoftMarginLoss, X::rank, Reduction>>(Source::from(at), x, labels);
}
/// The same with a weight for each class, a vector, as PyTorch's argument `weight`: the loss of each class is
/// multiplied by its weight, and divided by the number of classes.
template <LossReduction Reduction = LossReduction::mean, TensorArgument X, TensorArgument Labels, TensorArgument Weight>
constexpr auto multilabel_soft_margin_loss(const X& x, const Labels& labels, const Weight& weight,
                                           Here at = Here::current()) {
  return call<detail::LossTag<detail::MultilabelSoftMarginLoss, X::rank, Reduction>>(Source::from(at), x, labels,
                                                                                     weight);
}
/// The sum over all classes but the target of max(0, margin - x[target] + x[class])^P, over the number of classes, as
/// torch.nn.functional.multi_margin_loss; P is 1 or 2. Shapes: x [..., classes], integer targets [...]; one loss for
/// each row. A target outside of the classes counts as a class of score 0. Reductions and errors: as huber.
/// Communication: for split classes all_reduces of two values for each row.
template <LossReduction Reduction = LossReduction::mean, int P = 1, TensorArgument X, TensorArgument Targets,
          NumberOperand Margin = double>
constexpr auto multi_margin_loss(const X& x, const Targets& targets, const Margin& margin = 1.0,
                                 Here at = Here::current()) {
  return call<detail::LossTag<detail::MultiMarginLoss<P>, X::rank, Reduction>>(Source::from(at), x, targets, margin);
}

/// The same with a weight for each class, a vector, as PyTorch's argument `weight`: the loss of a row is multiplied by
/// the weight of its target, and the mean is that over the rows.
template <LossReduction Reduction = LossReduction::mean, int P = 1, TensorArgument X, TensorArgument Targets,
          TensorArgument Weight, NumberOperand Margin = double>
constexpr auto multi_margin_loss(const X& x, const Targets& targets, const Weight& weight, const Margin& margin = 1.0,
                                 Here at = Here::current()) {
  return call<detail::LossTag<detail::MultiMarginLoss<P>, X::rank, Reduction>>(Source::from(at), x, targets, margin,
                                                                               weight);
}
/// The sum over the targets t and all classes c that are no target of max(0, 1 - x[t] + x[c]), over the number of
/// classes, as torch.nn.functional.multilabel_margin_loss. Shapes: x [..., classes] and integer targets [..., classes],
/// of which those in front of the first negative number count; one loss for each row. Reductions and errors: as huber.
/// Computed for all pairs of classes. Communication: split classes are gathered.
template <LossReduction Reduction = LossReduction::mean, TensorArgument X, TensorArgument Targets>
constexpr auto multilabel_margin_loss(const X& x, const Targets& targets, Here at = Here::current()) {
  static_assert(X::rank < max_rank, "tessera: multilabel_margin_loss takes tensors of at most 7 dims");
  return call<detail::LossTag<detail::MultilabelMarginLoss, X::rank, Reduction>>(Source::from(at), x, targets);
}
/// The P-norm of the rows of x - y + eps, as torch.nn.functional.pairwise_distance: x and y [..., features] give [...].
/// The gradient of a norm of 0 is 0. Losses of bf16 and f16 are f32. Errors: shape_mismatch. Communication: for split
/// features an all_reduce of one value for each row.
template <int P = 2, TensorArgument X, TensorArgument Y, NumberOperand Eps = double>
constexpr auto pairwise_distance(const X& x, const Y& y, const Eps& eps = 1e-6, Here at = Here::current()) {
  return call<detail::LossTag<detail::PairwiseDistance<P>, X::rank, LossReduction::each>>(Source::from(at), x, y, eps);
}

/// Options of triplet_margin_loss, with PyTorch's names and defaults.
struct TripletMargin {
  int p = 2;          ///< the norm of the distances, 1 or more
  bool swap = false;  ///< with the distance of the negative from the positive, where that is less
};
/// max(0, d(anchor, positive) - d(anchor, negative) + margin), as torch.nn.functional.triplet_margin_loss, where d is
/// the norm of the difference plus eps. Shapes: all three [..., features]; one loss for each row. Reductions and
/// errors: as huber. Communication: for split features all_reduces of two values for each row. Source: Balntas et al.,
/// BMVC 2016.
///
///     ts::triplet_margin_loss<ts::LossReduction::mean, ts::TripletMargin{.p = 1}>(anchor, positive, negative, 0.5)
template <LossReduction Reduction = LossReduction::mean, TripletMargin Options = TripletMargin{}, TensorArgument Anchor,
          TensorArgument Positive, TensorArgument Negative, NumberOperand Margin = double>
constexpr auto triplet_margin_loss(const Anchor& anchor, const Positive& positive, const Negative& negative,
                                   const Margin& margin = 1.0, double eps = 1e-6, Here at = Here::current()) {
  return call<detail::LossTag<detail::TripletMarginLoss<Options.p, Options.swap>, Anchor::rank, Reduction>>(
      Source::from(at), anchor, positive, negative, margin, eps);
}

/// Cross entropy of the cosines of each query with all keys, over the temperature, where key i is that of query i and
/// the other keys are its negatives: the loss of contrastive learning. Shapes: query and keys [batch, features].
/// The temperature is a number, or a tensor of rank 0, which has a gradient: CLIP's `logit_scale` s is a parameter, and
/// 1 / exp(s) the temperature. Reductions and errors: as huber. Communication: with a split batch an all_gather of the
/// keys. Source: van den Oord et al., 1807.03748; Radford et al., 2103.00020.
///
///     ts::info_nce(m.image(x), m.text(y), ts::exp(-m.logit_scale))
template <LossReduction Reduction = LossReduction::mean, TensorArgument Query, TensorArgument Keys,
          detail::TemperatureOperand Temperature = double>
constexpr auto info_nce(const Query& query, const Keys& keys, const Temperature& temperature = 0.1,
                        Here at = Here::current()) {
  const detail::FunctionCall named("info_nce", query, keys);
  static_assert(Query::rank == 2 && Keys::rank == 2, "tessera: info_nce takes query and keys of [batch, features]");
  const auto cosines = einsum<"id,jd->ij">(detail::unit_rows(query, at), detail::unit_rows(keys, at), at);  // [B, B]
  const auto logits = call<DivTag>(Source::from(at), cosines, temperature);
  return cross_entropy<Reduction>(logits, iota<0, std::int32_t>(sum<1>(query, at), at), CrossEntropy{}, at);
}
/// The same with separate negatives [count, features] that all queries share: key i against these negatives.
template <LossReduction Reduction = LossReduction::mean, TensorArgument Query, TensorArgument Keys,
          TensorArgument Negatives, Operand Temperature = double>
  requires(!detail::TemperatureOperand<Negatives>)
constexpr auto info_nce(const Query& query, const Keys& keys, const Negatives& negatives,
                        const Temperature& temperature = 0.1, Here at = Here::current()) {
  const detail::FunctionCall named("info_nce", query, keys);
  static_assert(
      Query::rank == 2 && Keys::rank == 2 && Negatives::rank == 2,
      "tessera: info_nce takes query and keys of [batch, features], then negatives of [count, features], or a "
      "temperature, which is a number or a tensor of rank 0");
  static_assert(detail::TemperatureOperand<Temperature>,
                "tessera: the temperature of info_nce is a number or a tensor of rank 0");
  const auto rows = detail::unit_rows(query, at);
  const Source source = Source::from(at);
  const auto of_key = sum<1>(call<MulTag>(source, rows, detail::unit_rows(keys, at)), at);    // [B]
  const auto of_negatives = einsum<"id,jd->ij">(rows, detail::unit_rows(negatives, at), at);  // [B, count]
  const auto cosines = concat<1>(unsqueeze<1>(of_key, at), of_negatives, at);                 // [B, 1 + count]
  const auto logits = call<DivTag>(source, cosines, temperature);
  const auto first = cast<std::int32_t>(zeros_like(of_key, at), at);
  return cross_entropy<Reduction>(logits, first, CrossEntropy{}, at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
