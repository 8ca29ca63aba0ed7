#ifndef TESSERA_OPTIM_GRADIENTS_LOSS_SCALE_HPP
#define TESSERA_OPTIM_GRADIENTS_LOSS_SCALE_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstdint>
#include <limits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/ops/constraint.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/elementwise/composition.hpp>
#include <tessera/ops/reduction/reduce.hpp>
#include <tessera/optim/tree_map.hpp>
#include <tessera/tensor/creation.hpp>

// Dynamic loss scaling, for gradients that f16 would round to 0. It is computed on the devices, including whether a
// step is skipped; the host reads nothing.
namespace tessera::optim {

/// How the scale of the loss changes, with the defaults of torch.amp.GradScaler.
struct LossScaling {
  Scalar growth_factor = 2.0, backoff_factor = 0.5;
  Scalar growth_interval = 2000;  ///< steps with finite gradients before the scale grows
};

/// The scale of the loss, and the number of steps with finite gradients since its last change. It is a state: a
/// training step takes and returns it.
struct LossScale {
  ShardedTensor<float, 0> scale, steps;

  static constexpr std::array field_names{"scale", "steps"};
};

/// The initial LossScale; `scale` is init_scale of torch.amp.GradScaler. Communication: none.
inline LossScale loss_scale(const Mesh& mesh, float scale = 65536.0f) {
  return {full<float, 0>({}, scale, mesh), full<float, 0>({}, 0.0f, mesh)};
}

/// Inside a traced function: gradients divided by the scale of the loss, as scaler.unscale_ of PyTorch. Communication:
/// none.
template <class Model>
constexpr Model unscale(const Model& gradients, const LossScale& scaling, Here at = Here::current()) {
  detail::require_traced("unscale", "ts::optim::unscale", Source::from(at), gradients, scaling);
  const Value scale = detail::value_of(scaling.scale).at(Source::from(at));
  return tree_map(
      [&](auto g) {
        // In f16 the inverse of a large scale would be 0.
        const Value from = g.value.at(Source::from(at));
        const DType wide = computed_as(from.dtype());
        return decltype(g)(build::cast(build::cast(from, wide) * build::cast(1.0 / scale, wide), from.dtype()));
      },
      gradients);
}

/// Inside a traced function: whether no element of a model is an infinity or NaN. Communication: one all_reduce of a
/// rank-0 tensor; partial gradients are reduced first. Errors: structure for a model without floating-point tensors.
template <class Model> constexpr Sym<bool, 0> all_finite(const Model& gradients, Here at = Here::current()) {
  detail::require_traced("all_finite", "ts::optim::all_finite", Source::from(at), gradients);
  const Growable<Value> values = detail::parameters_of(gradients);
  if (values.empty()) fail(errc::structure, "[all_finite] gradients: the model has no floating-point tensor");
  Value total{};
  for (const Value& value : values) {
    const Value v = value.at(Source::from(at));
    // x - x is 0 for finite x and NaN for all others, and a sum keeps NaN.
    const Value zeros = build::cast(build::sum_of(v - v, (1u << v.rank()) - 1), DType::f32);
    total = total.module == nullptr ? zeros : total + zeros;
  }
  const Value whole = with_sharding(Sym<float, 0>(total), {}).value;
  return Sym<bool, 0>(build::equal(whole, whole.number(0.0)));
}

/// Inside a traced function: `after` if the condition is true, otherwise `before`, bit for bit, for the floating-point
/// tensors of a model or a state: use it to skip a step whose gradients are not finite. The number of steps in a state,
/// a Scalar, includes skipped steps, since the host does not know of them. Communication: none.
template <class Model>
constexpr Model keep_if(const Sym<bool, 0>& condition, const Model& after, const Model& before,
                        Here at = Here::current()) {
  return tree_map(
      [&](auto a, auto b) {
        const Value from = a.value.at(Source::from(at));
        return decltype(a)(build::select(condition.value, from, b.value));
      },
      after, before);
}

/// Inside a traced function: the LossScale after a step, as scaler.update() of PyTorch. The scale shrinks after
/// gradients that were not finite, and grows after growth_interval consecutive steps with finite gradients, unless it
/// would be infinite.
///
///     const auto [loss, gradient] = ts::value_and_grad([&](const auto& m, const auto& in, const auto& out) {
///       return ts::mse(m(in), out) * scaling.scale;
///     })(model, x, y);
///     const auto unscaled = ts::optim::unscale(gradient, scaling);
///     const auto finite = ts::optim::all_finite(unscaled);
///     const auto [moved, moved_state] = ts::adamw(model, unscaled, state, config);
///     const auto next = ts::optim::keep_if(finite, moved, model);
///     const auto next_state = ts::optim::keep_if(finite, moved_state, state);
///     const auto next_scaling = ts::optim::next_scale(scaling, finite);
constexpr LossScale next_scale(const LossScale& now, const Sym<bool, 0>& finite, const LossScaling& config = {},
                               Here at = Here::current()) {
  const Value scale = detail::value_of(now.scale).at(Source::from(at));
  const Value steps = detail::value_of(now.steps).at(Source::from(at));
  const auto number = [&](const Scalar& of) { return build::cast(lower(scale, of), DType::f32); };
  const Value good = steps + 1.0, enough = build::less(good, number(config.growth_interval));
  // As in PyTorch, a scale does not grow to infinity, from which it could not shrink.
  const Value larger = scale * number(config.growth_factor), most = scale.number(std::numeric_limits<float>::max());
  const Value grown = build::select(enough, scale, build::select(build::less(most, larger), scale, larger));
  const Value zero = scale.number(0.0), counted = build::select(enough, good, zero);
  LossScale next;
  next.scale = ShardedTensor<float, 0>(build::select(finite.value, grown, scale * number(config.backoff_factor)));
  next.steps = ShardedTensor<float, 0>(build::select(finite.value, counted, zero));
  return next;
}

}  // namespace tessera::optim

#include <tessera/base/pop_macros.hpp>

#endif
