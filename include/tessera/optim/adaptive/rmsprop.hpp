#ifndef TESSERA_OPTIM_ADAPTIVE_RMSPROP_HPP
#define TESSERA_OPTIM_ADAPTIVE_RMSPROP_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <tuple>

#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/optim/optimizer.hpp>
#include <tessera/optim/optimizer_call.hpp>
#include <tessera/optim/update.hpp>

namespace tessera {

namespace optim {

/// Hyper-parameters of RMSprop, with the defaults of torch.optim.RMSprop. They are Scalars, so a new learning rate
/// needs no new plan.
struct RmsProp {
  Scalar learning_rate = 1e-2;
  Scalar alpha = 0.99;  ///< decay of the running mean of squares
  Scalar epsilon = 1e-8;
  Scalar momentum = 0.0;
  Scalar weight_decay = 0.0;  ///< coupled: added to the gradient
};

/// The running mean of the square of each gradient, and the velocity, sharded like the parameter.
template <class Model> struct RmsPropState {
  Model square, velocity;

  static constexpr std::array field_names{"square", "velocity"};
};

/// Hyper-parameters of ts::rmsprop_centered: those of RmsProp.
struct CenteredRmsProp {
  Scalar learning_rate = 1e-2;
  Scalar alpha = 0.99;  ///< decay of the running means
  Scalar epsilon = 1e-8;
  Scalar momentum = 0.0;
  Scalar weight_decay = 0.0;  ///< coupled: added to the gradient
};

/// The state of RMSprop, and the running mean of each gradient.
template <class Model> struct CenteredRmsPropState {
  Model square, mean, velocity;

  static constexpr std::array field_names{"square", "mean", "velocity"};
};

}  // namespace optim

/// Inside a traced function: one step of RMSprop. Returns (model, state).
///
///     g = g + decay p,  v = alpha v + (1 - alpha) g^2
///     b = momentum b + g / (sqrt(v) + epsilon),  p = p - rate b
/// Communication: only partial gradients are reduced, into the sharding of the parameters. Errors: structure when
/// model, gradients and state differ. Source: torch.optim.RMSprop, not centered; Hinton, lecture 6e of "Neural Networks
/// for Machine Learning", 2012.
template <class Model, optim::GradientsOf<Model> Gradients>
constexpr auto rmsprop(const Model& model, const Gradients& gradients,
                       const optim::RmsPropState<optim::stored_t<Model>>& state, const optim::RmsProp& config = {},
                       Here at = Here::current()) {
  const optim::detail::OptimizerCall named("rmsprop", model, at);
  auto [moved, square, velocity] = optim::detail::update_parameters(
      at,
      [&](const auto& x, Value p, Value g, Value v, Value b) {
        const Value alpha = x.wide(config.alpha);
        const Value slope = x.decayed(config.weight_decay, g);
        const Value next_v = x.running_mean(alpha, v, slope * slope);
        const Value spread = build::apply<ops::SqrtOp>(next_v) + x(config.epsilon);
        const Value next_b = x(config.momentum) * b + slope / spread;
        return std::tuple(p - x(config.learning_rate) * next_b, next_v, next_b);
      },
      model, gradients, state.square, state.velocity);
  return std::tuple(moved, optim::RmsPropState<optim::stored_t<Model>>{square, velocity});
}

/// Inside a traced function: one step of RMSprop whose divisor is the deviation of each gradient. Returns (model,
/// state).
///
///     g = g + decay p,  v = alpha v + (1 - alpha) g^2,  m = alpha m + (1 - alpha) g
///     b = momentum b + g / (sqrt(max(v - m^2, 0)) + epsilon),  p = p - rate b
/// Communication and errors: as rmsprop. Source: torch.optim.RMSprop(centered=True), where a variance that rounding
/// makes negative gives NaN; Graves, 1308.0850.
template <class Model, optim::GradientsOf<Model> Gradients>
constexpr auto rmsprop_centered(const Model& model, const Gradients& gradients,
                                const optim::CenteredRmsPropState<optim::stored_t<Model>>& state,
                                const optim::CenteredRmsProp& config = {}, Here at = Here::current()) {
  const optim::detail::OptimizerCall named("rmsprop_centered", model, at);
  auto [moved, square, mean, velocity] = optim::detail::update_parameters(
      at,
      [&](const auto& x, Value p, Value g, Value v, Value m, Value b) {
        const Value alpha = x.wide(config.alpha);
        const Value slope = x(config.weight_decay) * p + g;
        const Value next_v = x(alpha) * v + x(1.0 - alpha) * (slope * slope);
        const Value next_m = x(alpha) * m + x(1.0 - alpha) * slope;
        const Value variance = build::maximum(next_v - next_m * next_m, next_v.number(0));
        const Value spread = build::apply<ops::SqrtOp>(variance) + x(config.epsilon);
        const Value next_b = x(config.momentum) * b + slope / spread;
        return std::tuple(p - x(config.learning_rate) * next_b, next_v, next_m, next_b);
      },
      model, gradients, state.square, state.mean, state.velocity);
  return std::tuple(moved, optim::CenteredRmsPropState<optim::stored_t<Model>>{square, mean, velocity});
}

namespace optim {

template <> struct Optimizer<RmsProp> {
  template <class Model> using State = RmsPropState<Model>;
  static constexpr auto step(const auto&... call) { return rmsprop(call...); }
};
template <> struct Optimizer<CenteredRmsProp> {
  template <class Model> using State = CenteredRmsPropState<Model>;
  static constexpr auto step(const auto&... call) { return rmsprop_centered(call...); }
};

}  // namespace optim

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
