#ifndef TESSERA_OPTIM_ADAM_ADAMW_HPP
#define TESSERA_OPTIM_ADAM_ADAMW_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <tuple>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/optim/optimizer.hpp>
#include <tessera/optim/optimizer_call.hpp>
#include <tessera/optim/tree_map.hpp>
#include <tessera/optim/update.hpp>

namespace tessera {

namespace optim {

/// Hyper-parameters of AdamW. They are Scalars, so a new learning rate needs no new plan.
struct AdamW {
  Scalar learning_rate = 1e-3;
  Scalar beta1 = 0.9;
  Scalar beta2 = 0.999;
  Scalar epsilon = 1e-8;
  Scalar weight_decay = 0.01;  ///< decoupled; applies to tensors of rank 2 or more, not to biases and gains
};

/// Running means of the gradient and of its square, sharded like the parameters, and the number of past steps.
template <class Model> struct AdamWState {
  Model mean, square;
  Scalar step = 0;

  static constexpr std::array field_names{"mean", "square", "step"};
};

namespace detail {

/// The scalars of one step, such as the bias corrections, computed once per step in double on the host.
struct AdamWStep {
  Value beta1, beta2, keep1, keep2, rate, inverse_root2, epsilon, decay, count;

  constexpr AdamWStep(Value at, const AdamW& config, const Scalar& last) {
    count = lower(at, last) + 1;
    beta1 = lower(at, config.beta1);
    beta2 = lower(at, config.beta2);
    keep1 = 1.0 - beta1;
    keep2 = 1.0 - beta2;
    const Value learning_rate = lower(at, config.learning_rate);
    rate = learning_rate / (1.0 - build::apply<ops::PowOp>(beta1, count));
    inverse_root2 = build::apply<ops::RsqrtOp>(1.0 - build::apply<ops::PowOp>(beta2, count));
    epsilon = lower(at, config.epsilon);
    decay = 1.0 - learning_rate * lower(at, config.weight_decay);
  }
  /// The same scalars, converted to the element type of a parameter.
  constexpr AdamWStep as(DType type) const {
    AdamWStep made = *this;
    for (Value* v : {&made.beta1, &made.beta2, &made.keep1, &made.keep2, &made.rate, &made.inverse_root2, &made.epsilon,
                     &made.decay})
      *v = build::cast(*v, type);
    return made;
  }
  /// The next means of a gradient and of its square.
  constexpr auto next_means(const Value& g, const Value& m, const Value& v) const {
    return std::tuple(beta1 * m + keep1 * g, beta2 * v + keep2 * (g * g));
  }
  /// The next value of a parameter.
  constexpr Value moved(const Updated& x, const Value& next_m, const Value& next_v) const {
    const Value spread = build::apply<ops::SqrtOp>(next_v) * inverse_root2 + epsilon;
    const Value kept = x.decays() ? decay * x.parameter : x.parameter;
    return kept - rate * next_m / spread;
  }
};

}  // namespace detail
}  // namespace optim

/// Inside a traced function: one step of AdamW. Returns (model, state).
///
///     m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2
///     p = p (1 - rate decay) - rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)
/// Communication: only partial gradients are reduced, into the sharding of the parameters. Errors: structure when
/// model, gradients and state differ. Source: Loshchilov, Hutter, 1711.05101, with the decay multiplied by the learning
/// rate, as in torch.optim.AdamW.
///
///     auto [next, next_state] = ts::adamw(model, gradients, state, config);
template <class Model, optim::GradientsOf<Model> Gradients>
constexpr auto adamw(const Model& model, const Gradients& gradients,
                     const optim::AdamWState<optim::stored_t<Model>>& state, const optim::AdamW& config = {},
                     Here at = Here::current()) {
  const optim::detail::OptimizerCall named("adamw", model, at);
  const Growable<Value> any = optim::detail::parameters_of(model);
  if (any.empty()) fail(errc::structure, "[adamw] model: the model has no floating-point tensor");
  const optim::detail::AdamWStep step(any.front().at(Source::from(at)), config, state.step);
  const optim::detail::AdamWStep of[] = {step.as(DType::f32), step.as(DType::f64)};
  auto [moved, mean, square] = optim::detail::update_parameters(
      at,
      [&](const auto& x, Value p, Value g, Value m, Value v) {
        const optim::detail::AdamWStep& s = of[p.dtype() == DType::f64];
        const auto [next_m, next_v] = s.next_means(g, m, v);
        return std::tuple(s.moved(x, next_m, next_v), next_m, next_v);
      },
      model, gradients, state.mean, state.square);
  return std::tuple(moved, optim::AdamWState<optim::stored_t<Model>>{mean, square, Scalar(step.count)});
}

namespace optim {

template <> struct Optimizer<AdamW> {
  template <class Model> using State = AdamWState<Model>;
  static constexpr auto step(const auto&... call) { return adamw(call...); }
};

}  // namespace optim

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
