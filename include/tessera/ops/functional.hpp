#ifndef TESSERA_OPS_FUNCTIONAL_HPP
#define TESSERA_OPS_FUNCTIONAL_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <limits>
#include <type_traits>

#include <tessera/graph/ir/attributes/reduced.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/custom/given_gradient.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/reduction/reduction.hpp>

namespace tessera {

// Functions composed of other operations. Each is one node of an expression; a trace records a few nodes, which fuse
// into one kernel: rows are reduced with keepdims. Operands of bf16 and f16 are computed in f32, and results rounded
// once; losses of both stay f32.

namespace build {

constexpr Value row_sum(Value x, int dim) { return reduce(Op::sum, x, 1u << dim, true); }
constexpr Value row_mean(Value x, int dim) { return row_sum(x, dim) / cast(extent(x, dim), x.dtype()); }

/// A reduction over a bit set of dims that has no gradient: for a shift that cancels in its use, such as the maximum in
/// a softmax.
constexpr Value constant_reduce(Op op, Value x, unsigned dims) {
  Node made = reduce(op, x, dims, true).node();
  Reduced reduced = Reduced::of(made);
  reduced.constant = true;
  made.labels = reduced.pack();
  return x.make(made, {x.id});
}
/// x minus its maximum along a dim.
constexpr Value shifted(Value x, int dim) { return x - constant_reduce(Op::max, x, 1u << dim); }
constexpr Value log_sum_exp_of_shifted(Value x, int dim) { return unary(Op::log, row_sum(unary(Op::exp, x), dim)); }
constexpr Value softmax(Value x, int dim) {
  const Value e = unary(Op::exp, shifted(x, dim));
  return e / row_sum(e, dim);
}

/// The mean over all dims but the first `lead`; NaN if they have no elements.
constexpr Value mean_of_all(Value x, int lead) {
  const unsigned dims = ((1u << x.rank()) - 1) & ~((1u << lead) - 1);
  return reduce(Op::sum, x, dims, false) / cast(element_count(x, dims), x.dtype());
}

}  // namespace build

namespace detail {

template <class A> inline constexpr bool floating_v = is_floating_v<typename A::type>;

/// The element type of a loss: f32 for bf16 and f16.
template <class A> using loss_t = computed_t<typename A::type>;

template <int Rank, int D, bool Log> struct SoftmaxTag {
  template <class A> struct result : A {
    using Checks =
        decltype([] { static_assert(floating_v<A>, "tessera: softmax takes float, double, bf16 and f16 tensors"); });
  };
  static constexpr Value emit(Value context, Value x) {
    const DType type = x.dtype();
    x = build::cast(x.at(context.source), computed_as(type));
    const int dim = x.shifted(D, Rank);
    if constexpr (!Log) return build::cast(build::softmax(x, dim), type);
    const Value shifted = build::shifted(x, dim);
    return build::cast(shifted - build::log_sum_exp_of_shifted(shifted, dim), type);
  }
};

template <bool Keep, int... Dims> struct LogSumExp {
  using R = Reduce<ops::MaxOp, false, Keep, Dims...>;
  template <class A> struct result : R::template result<A> {
    using Floats =
        decltype([] { static_assert(floating_v<A>, "tessera: logsumexp takes float, double, bf16 and f16 tensors"); });
  };
  template <int Rank> static constexpr unsigned dims = R::template dims<Rank>;

  static constexpr Value emit(Value context, Value x, int rank, unsigned set) {
    const DType type = x.dtype();
    set <<= x.rank() - rank;
    x = build::cast(x.at(context.source), computed_as(type));
    // Rows whose maximum is infinite are not shifted: infinity minus infinity would be NaN.
    const Value most = build::constant_reduce(Op::max, x, set),
                infinity = x.number(std::numeric_limits<double>::infinity());
    const Value shift = build::select(build::equal(build::abs(most), infinity), x.number(0), most);
    const Value sum = build::sum_of(build::exp(x - shift), set, true);
    const Value made = build::log(sum) + shift;
    return build::cast(Keep ? made : build::drop_singletons(made, set), type);
  }
};

template <class X, class... Parameters> struct NormResult : X {
  template <class T> static constexpr bool meets = std::is_same_v<T, typename X::type> || std::is_same_v<T, loss_t<X>>;
  using Checks = decltype([] {
    static_assert(floating_v<X> && X::rank >= 1,
                  "tessera: layer_norm and rms_norm take float, double, bf16 and f16 tensors with at least one dim");
    static_assert(((meets<typename Parameters::type> && Parameters::rank == 1) && ...),
                  "tessera: gain and bias of a norm are vectors with the element type of the tensor, or float for bf16 "
                  "and f16 tensors");
  });
};

struct LayerNormTag {
  static constexpr const char* function = "layer_norm";
  static constexpr auto leading_dims = ops::LeadingDims::aligned;
  template <class X, class Gain, class Bias, class Eps> using result = NormResult<X, Gain, Bias>;
  static constexpr Value emit(Value context, Value x, Value gain, Value bias, Value eps) {
    const DType type = x.dtype();
    x = build::cast(x.at(context.source), computed_as(type));
    gain = build::cast(gain, x.dtype()), bias = build::cast(bias, x.dtype());
    const int dim = x.rank() - 1;
    // Rounding of a mean far from 0 leaves a second mean, which is subtracted as well: it shares a pass over the row
    // with the variance, and has no gradient.
    const Value count = build::cast(build::extent(x, dim), x.dtype());
    const Value near = x - build::row_sum(x, dim) / count;
    const Value rest = build::constant_reduce(Op::sum, near, 1u << dim) / count;
    const Value variance = build::row_sum(near * near, dim) / count - rest * rest;
    const Value scale = build::rsqrt(variance + build::cast(eps, x.dtype()));
    return build::cast((near - rest) * scale * gain + bias, type);
  }
};

/// A norm without a gain and a bias, and what it takes between x and eps, such as groups.
template <class Norm, int Parameters> struct PlainNormTag {
  static constexpr const char* function = Norm::function;
  static constexpr auto leading_dims = Norm::leading_dims;
  template <class X, class... Numbers> using result = NormResult<X>;
  template <class... Numbers> static constexpr Value emit(Value context, Value x, Numbers... numbers) {
    if constexpr (Parameters == 1)
      return Norm::emit(context, x, x.number(1), numbers...);
    else
      return Norm::emit(context, x, x.number(1), x.number(0), numbers...);
  }
};

struct RmsNormTag {
  static constexpr const char* function = "rms_norm";
  static constexpr auto leading_dims = ops::LeadingDims::aligned;
  template <class X, class Gain, class Eps> using result = NormResult<X, Gain>;
  static constexpr Value emit(Value context, Value x, Value gain, Value eps) {
    const DType type = x.dtype();
    x = build::cast(x.at(context.source), computed_as(type));
    gain = build::cast(gain, x.dtype());
    const Value square = build::row_mean(x * x, x.rank() - 1);
    return build::cast(x * build::rsqrt(square + build::cast(eps, x.dtype())) * gain, type);
  }
};

/// Checks at the front of a loss that targets are as many as the rows of scores [..., classes].
constexpr void check_targets(Value context, Value scores, Value targets, int rank) {
  const int lead = scores.leading(rank);
  build::same_extents(scores.at(context.source), lead, targets, targets.leading(rank - 1), rank - 1,
                      build::ExtentsOf::positions);
}

template <int Rank> struct CrossEntropyTag {
  static constexpr const char* function = "cross_entropy";
  template <class Logits, class Targets> struct result {
    using type = loss_t<Logits>;
    static constexpr int rank = 0;
    using Checks = decltype([] {
      static_assert(floating_v<Logits>,
                    "tessera: the logits of cross_entropy must be a float, double, bf16 or f16 tensor");
      static_assert(
          std::is_integral_v<typename Targets::type> && !std::is_same_v<typename Targets::type, bool>,
          "tessera: the targets of cross_entropy must be an integer tensor of class indices, or probabilities, a "
          "floating-point tensor of the rank of the logits");
      static_assert(Targets::rank == Logits::rank - 1,
                    "tessera: the targets of cross_entropy must have the dims of the logits except the last");
    });
  };
  // The logit of the target is selected by comparing positions, so sharded classes are not gathered.
  static constexpr Value emit(Value context, Value logits, Value targets) {
    check_targets(context, logits, targets, Rank);
    const int lead = logits.leading(Rank), dim = logits.rank() - 1;
    logits = build::cast(logits.at(context.source), computed_as(logits.dtype()));
    const Value target = build::insert_singletons(targets.at(context.source), 1u << dim, logits.rank());
    const Value shifted = build::shifted(logits, dim), exponential = build::exp(shifted);
    const Value sum = build::row_sum(exponential, dim), loss = build::log(sum) - shifted;
    const Value picked = build::equal(build::iota(logits, dim, target.dtype()), target);
    const unsigned all = ((1u << logits.rank()) - 1) & ~((1u << lead) - 1);
    const Value positions = build::element_count(logits, all & ~(1u << dim)), zero = loss.number(0);
    const Value share = build::cast(logits.number(1, DType::f64) / build::cast(positions, DType::f64), logits.dtype());
    const Value made = build::sum_of(build::select(picked, loss * share, zero), all, false);
    // The gradient of the logarithm is the share of rows that have a target: by operations it would be another sum of
    // each row, and a value for each row to be reduced where classes are split.
    const Value cotangent = build::variable_like(made), class_of = build::cast(target, DType::i64);
    const Value own = (lead == 0 ? cotangent : build::insert_singletons(cotangent, all, logits.rank())) * share;
    const Value exists = build::logical_and(build::greater_equal(class_of, class_of.number(0, DType::i64)),
                                            build::less(class_of, build::extent(logits, dim)));
    const Value values[] = {logits};
    const Value gradients[] = {exponential * (build::select(exists, own, zero) / sum) -
                               build::select(picked, own, zero)};
    return build::with_gradients(made, cotangent, values, gradients);
  }
};

template <int Rank> struct MseTag {
  static constexpr const char* function = "mse";
  template <class X, class Y> struct result {
    using type = loss_t<X>;
    static constexpr int rank = 0;
    using Checks = decltype([] {
      static_assert(floating_v<X> && std::is_same_v<typename X::type, typename Y::type> && X::rank == Y::rank,
                    "tessera: mse takes two float, double, bf16 or f16 tensors of equal rank and element type");
    });
  };
  static constexpr Value emit(Value context, Value x, Value y) {
    const DType type = computed_as(x.dtype());
    const Value difference = build::cast(x.at(context.source), type) - build::cast(y, type);
    return build::mean_of_all(difference * difference, difference.leading(Rank));
  }
};

}  // namespace detail

/// exp(x) over its sum along one dim, by default the last, computed without overflow. x is floating; the result has its
/// shape and element type. A row with NaN or +infinity gives NaN. Communication: along a sharded dim, one all_reduce of
/// the maxima and one of the sums.
template <int D = -1, TensorArgument X> constexpr auto softmax(const X& x, Here at = Here::current()) {
  return call<detail::SoftmaxTag<X::rank, detail::checked_dim<D, X::rank>(), false>>(Source::from(at), x);
}
/// softmax of -x (torch.nn.functional.softmin). Communication: as softmax.
template <int D = -1, TensorArgument X> constexpr auto softmin(const X& x, Here at = Here::current()) {
  return softmax<D>(call<NegTag>(Source::from(at), x), at);
}
/// The logarithm of softmax, accurate where softmax underflows. Communication: as softmax.
template <int D = -1, TensorArgument X> constexpr auto log_softmax(const X& x, Here at = Here::current()) {
  return call<detail::SoftmaxTag<X::rank, detail::checked_dim<D, X::rank>(), true>>(Source::from(at), x);
}

/// With a dim as an argument they do not compile.
template <TensorArgument X, std::integral Dim> constexpr X softmax(const X& x, Dim) {
  static_assert(std::is_void_v<Dim>, "tessera: the dim of a softmax is a template argument: ts::softmax<1>(x) for "
                                     "ts::softmax(x, 1)");
  return x;
}
template <TensorArgument X, std::integral Dim> constexpr X log_softmax(const X& x, Dim) {
  static_assert(std::is_void_v<Dim>, "tessera: the dim of a softmax is a template argument: ts::log_softmax<1>(x) for "
                                     "ts::log_softmax(x, 1)");
  return x;
}

/// The logarithm of the sum of exponentials over the named dims, by default all: `logsumexp<-1>(x)`, computed without
/// overflow. -infinity where all elements are, NaN where any is. The gradient is softmax. Shapes as `max`.
/// Communication: as softmax.
template <int... Dims, TensorArgument X> constexpr auto logsumexp(const X& x, Here at = Here::current()) {
  return detail::reduce_by<detail::LogSumExp<false, Dims...>>(x, at);
}
template <int... Dims, TensorArgument X> constexpr auto logsumexp(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce_by<detail::LogSumExp<true, Dims...>>(x, at);
}

/// Layer norm of rows (the last dim): (x - mean) / sqrt(variance + eps) * gain + bias; gain and bias are vectors. The
/// result has the shape and element type of x. Errors: shape_mismatch. Communication: all_reduces of row sums where
/// rows are split. Source: Ba, Kiros, Hinton, 1607.06450.
template <TensorArgument X, TensorArgument Gain, TensorArgument Bias, NumberOperand Eps = double>
constexpr auto layer_norm(const X& x, const Gain& gain, const Bias& bias, const Eps& eps = 1e-5,
                          Here at = Here::current()) {
  return call<detail::LayerNormTag>(Source::from(at), x, gain, bias, eps);
}
/// Layer norm without gain and bias: elementwise_affine=False of torch.nn.LayerNorm.
template <TensorArgument X, NumberOperand Eps = double>
constexpr auto layer_norm(const X& x, const Eps& eps = 1e-5, Here at = Here::current()) {
  return call<detail::PlainNormTag<detail::LayerNormTag, 2>>(Source::from(at), x, eps);
}
/// RMS norm of rows (the last dim): x / sqrt(mean of squares + eps) * gain. Otherwise as layer_norm. Source: Zhang,
/// Sennrich, 1910.07467.
template <TensorArgument X, TensorArgument Gain, NumberOperand Eps = double>
constexpr auto rms_norm(const X& x, const Gain& gain, const Eps& eps = 1e-5, Here at = Here::current()) {
  return call<detail::RmsNormTag>(Source::from(at), x, gain, eps);
}
template <TensorArgument X, NumberOperand Eps = double>
constexpr auto rms_norm(const X& x, const Eps& eps = 1e-5, Here at = Here::current()) {
  return call<detail::PlainNormTag<detail::RmsNormTag, 1>>(Source::from(at), x, eps);
}

/// The mean over all positions of -log softmax(logits)[target], for logits [..., classes] and integer targets [...];
/// rank 0. A target outside of the classes, also -100, adds 0 and counts in the mean; it is no error, as in one_hot,
/// since targets are compared with positions, not looked up. Errors: shape_mismatch. Communication: with sharded
/// classes, all_reduces of one value per position; logits are never gathered.
template <TensorArgument Logits, TensorArgument Targets>
constexpr auto cross_entropy(const Logits& logits, const Targets& targets, Here at = Here::current()) {
  return call<detail::CrossEntropyTag<Logits::rank>>(Source::from(at), logits, targets);
}
/// The mean of the squared difference of x and y, which have equal shapes; rank 0, NaN for tensors without elements.
/// Errors: shape_mismatch.
template <TensorArgument X, TensorArgument Y> constexpr auto mse(const X& x, const Y& y, Here at = Here::current()) {
  return call<detail::MseTag<X::rank>>(Source::from(at), x, y);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
