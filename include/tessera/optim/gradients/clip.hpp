#ifndef TESSERA_OPTIM_GRADIENTS_CLIP_HPP
#define TESSERA_OPTIM_GRADIENTS_CLIP_HPP
#include <tessera/base/push_macros.hpp>

#include <limits>
#include <tuple>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/expression/composed_call.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/graph/trace/stack.hpp>
#include <tessera/graph/trace/tree.hpp>
#include <tessera/ops/constraint.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/reduce.hpp>
#include <tessera/optim/gradients/tensor_norm.hpp>
#include <tessera/optim/tree_map.hpp>

namespace tessera {

namespace optim::detail {

/// Looks for a floating-point tensor of f64 in the type of a traced model.
struct FindDouble {
  bool found = false;
  template <class Leaf> constexpr void leaf(const Leaf&) {
    if constexpr (is_parameter_v<Leaf>) found = found || std::is_same_v<typename Leaf::element, double>;
  }
  template <class Block> constexpr void enter_stack(const Stack<Block>&) { found = found || of<Block>(); }
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}

  template <class Model> static constexpr bool of() {
    FindDouble find;
    Model model{};
    for_each_leaf(model, find);
    return find.found;
  }
};
/// A sum over all tensors of models: f64 if any of them is f64, otherwise f32, also of bf16 and f16.
template <class... Model> using SumOf = Sym<std::conditional_t<(FindDouble::of<Model>() || ...), double, float>, 0>;

/// Its element type.
constexpr DType summed_as(const Growable<Value>& values) {
  for (const Value& v : values)
    if (v.dtype() == DType::f64) return DType::f64;
  return DType::f32;
}
/// A rank-0 value whose parts on the devices are summed.
constexpr Value reduced(const Value& total) {
  const auto whole = [&](const auto& x) {
    return tessera::detail::constrain(x, {}, CotangentSharding::alike, nullptr, total.source).value;
  };
  return total.dtype() == DType::f64 ? whole(Sym<double, 0>(total)) : whole(Sym<float, 0>(total));
}

/// A value in the element type in which its norm is computed: squares of f16 end at 255 x 255.
constexpr Value in_wide(const Value& v) { return build::cast(v, computed_as(v.dtype())); }

/// The sum of the squares of all elements of all tensors, including all layers of Stacks; in f64 if any tensor is f64.
constexpr Value sum_of_squares(const Growable<Value>& values, Source source) {
  if (values.empty()) fail(errc::structure, "[global_norm] the model has no floating-point tensor");
  const DType wide = summed_as(values);
  Value total{};
  for (const Value& value : values) {
    const Value v = in_wide(value.at(source));
    const Value squares = build::cast(build::sum_of(v * v, (1u << v.rank()) - 1), wide);
    total = total.module == nullptr ? squares : total + squares;
  }
  // One sum over all tensors, so that the partial sums of the devices need one all_reduce instead of one per tensor.
  return reduced(total);
}

/// The p-norm of all elements of all tensors together, for a p that is above 0 and may be infinite.
constexpr Value norm_of(const Growable<Value>& values, double p, Source source) {
  if (p == 2) return build::apply<ops::SqrtOp>(sum_of_squares(values, source));
  if (!(p > 0)) fail(errc::option, "[clip_grad_norm] norm_type: ", p, " is not above 0", source);
  const bool largest = p > std::numeric_limits<double>::max();
  if (values.empty()) fail(errc::structure, "[clip_grad_norm] gradients: the model has no floating-point tensor");
  const DType wide = summed_as(values);
  Value total{};
  for (const Value& value : values) {
    const Value v = in_wide(value.at(source)), size = build::apply<ops::AbsOp>(v);
    const unsigned all = (1u << v.rank()) - 1;
    const Value own = build::cast(
        largest ? build::max_of(size, all, false)
                : build::sum_of(p == 1 ? size : build::apply<ops::PowOp>(size, size.number(p, size.dtype())), all),
        wide);
    total = total.module == nullptr ? own : largest ? build::apply<ops::MaximumOp>(total, own) : total + own;
  }
  total = reduced(total);
  return largest || p == 1 ? total : build::apply<ops::PowOp>(total, total.number(1 / p, wide));
}

/// A gradient times a number, which need not be a number of the gradient's element type.
constexpr Value scaled(const Value& gradient, const Value& scale) {
  const Value wide = in_wide(gradient);
  return build::cast(wide * build::cast(scale, wide.dtype()), gradient.dtype());
}
template <class Model> constexpr Model scaled(const Model& gradients, const Value& scale, Source source) {
  return tree_map([&](auto g) { return decltype(g)(scaled(g.value.at(source), scale)); }, gradients);
}

/// global_norm of values of a trace.
struct GlobalNorm {
  template <class... X> constexpr SumOf<X...> operator()(Here at, const X&... x) const {
    Growable<Value> values;
    const auto add = [&](const Growable<Value>& of_one) {
      for (const Value& value : of_one) values.push_back(value);
    };
    (add(parameters_of(x)), ...);
    const Value total = sum_of_squares(values, Source::from(at));
    return SumOf<X...>(build::apply<ops::SqrtOp>(total));
  }
};

}  // namespace optim::detail

/// The Euclidean norm of all elements of a model, as optax.global_norm: of the values of a traced function, or of a
/// stored tensor or a tuple of stored tensors. Computed in f32, and in f64 if any tensor is f64, which also is the
/// element type of the result. Errors: structure without a floating-point tensor. Communication: one
/// all_reduce of a rank-0 tensor; partial values are reduced first.
template <class Model> constexpr auto global_norm(const Model& model, Here at = Here::current()) {
  optim::detail::require_traced("global_norm", "ts::global_norm", Source::from(at), model);
  return optim::detail::GlobalNorm{}(at, model);
}
template <TensorOperand X> constexpr auto global_norm(const X& x, Here at = Here::current()) {
  return detail::composed_call(optim::detail::GlobalNorm{}, at, x);
}
template <TensorOperand... X>
  requires(sizeof...(X) > 0)
constexpr auto global_norm(const std::tuple<X...>& tensors, Here at = Here::current()) {
  return std::apply([&](const X&... x) { return detail::composed_call(optim::detail::GlobalNorm{}, at, x...); },
                    tensors);
}

/// Inside a traced function: scales gradients so that their global norm is at most `max_norm`, as
/// optax.clip_by_global_norm; ts::clip_grad_norm has PyTorch's coefficient. Returns (clipped gradients, norm before
/// clipping), the norm in f64 if any tensor is f64, otherwise in f32.
///
/// Communication: one all_reduce of a rank-0 tensor, the sum over all tensors.
/// Partial gradients are reduced first. Source: Pascanu, Mikolov, Bengio, 1211.5063.
template <class Model, NumberOperand Limit>
constexpr auto clip_by_global_norm(const Model& gradients, const Limit& max_norm, Here at = Here::current()) {
  const Source source = Source::from(at);
  optim::detail::require_traced("clip_by_global_norm", "ts::clip_by_global_norm", source, gradients);
  const Value total = optim::detail::sum_of_squares(optim::detail::parameters_of(gradients), source);
  const Value norm = build::apply<ops::SqrtOp>(total);
  const Value limit = build::cast(lower(norm, max_norm), norm.dtype());
  // If the norm is below the limit, the scale is limit / limit, exactly 1.
  const Value scale = limit / build::apply<ops::MaximumOp>(norm, limit);
  return std::tuple(optim::detail::scaled(gradients, scale, source), optim::detail::SumOf<Model>(norm));
}

/// Inside a traced function: scales gradients by min(max_norm / (norm + 1e-6), 1), where `norm` is the norm of all
/// their elements together: Euclidean, or for another norm_type p the p-th root of the sum of |g|^p; with infinity the
/// largest |g|. Returns (clipped gradients, norm before clipping), the norm in f64 if any tensor is f64, as
/// torch.nn.utils.clip_grad_norm_ and FullyShardedDataParallel.clip_grad_norm_, for replicated and split gradients. If
/// the norm is not finite, all gradients are NaN or 0; check the norm (error_if_nonfinite).
///
///     const auto [clipped, norm] = ts::clip_grad_norm(gradient, 1.0, std::numeric_limits<double>::infinity());
/// Errors: `option` for a norm_type that is not above 0; `structure` for a model without floating-point tensors.
/// Communication: one all_reduce of a rank-0 tensor; for an infinite norm_type one for each tensor in parts. Partial
/// gradients are reduced first.
template <class Model, NumberOperand Limit>
constexpr auto clip_grad_norm(const Model& gradients, const Limit& max_norm, double norm_type = 2,
                              Here at = Here::current()) {
  const Source source = Source::from(at);
  optim::detail::require_traced("clip_grad_norm", "ts::clip_grad_norm", source, gradients);
  const Value norm = optim::detail::norm_of(optim::detail::parameters_of(gradients), norm_type, source);
  const Value scale = build::apply<ops::MinimumOp>(
      build::cast(lower(norm, max_norm), norm.dtype()) / (norm + norm.number(1e-6)), norm.number(1));
  return std::tuple(optim::detail::scaled(gradients, scale, source), optim::detail::SumOf<Model>(norm));
}

/// Inside a traced function: each tensor of the gradients, scaled so that its own Euclidean norm is at most `max_norm`,
/// as tf.clip_by_norm. Each layer of a Stack has separate norms. Communication: for split gradients an all_reduce of
/// each norm; partial gradients are reduced first.
template <class Model, NumberOperand Limit>
constexpr Model clip_by_norm(const Model& gradients, const Limit& max_norm, Here at = Here::current()) {
  optim::detail::require_traced("clip_by_norm", "ts::clip_by_norm", Source::from(at), gradients);
  return optim::tree_map(
      [&](auto g) {
        const Value from = g.value.at(Source::from(at)), norm = optim::detail::tensor_norm(from, decltype(g)::rank);
        const Value limit = build::cast(lower(norm, max_norm), norm.dtype());
        const Value scale = limit / build::apply<ops::MaximumOp>(norm, limit);
        return decltype(g)(optim::detail::scaled(from, scale));
      },
      gradients);
}

/// Inside a traced function: the gradients, with each element clipped to [-limit, limit], as
/// torch.nn.utils.clip_grad_value_. Communication: only partial gradients are reduced.
template <class Model, NumberOperand Limit>
constexpr Model clip_by_value(const Model& gradients, const Limit& limit, Here at = Here::current()) {
  optim::detail::require_traced("clip_by_value", "ts::clip_by_value", Source::from(at), gradients);
  return optim::tree_map(
      [&](auto g) {
        const Value from = g.value.at(Source::from(at)), most = build::cast(lower(from, limit), from.dtype());
        const Value least = build::apply<ops::NegOp>(most);
        return decltype(g)(build::apply<ops::MaximumOp>(build::apply<ops::MinimumOp>(from, most), least));
      },
      gradients);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
