#ifndef TESSERA_OPTIM_RMSPROP_HPP
#define TESSERA_OPTIM_RMSPROP_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <tuple>

#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/ops/elementwise.hpp>
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

}  // namespace optim

/// Inside a traced function: one step of RMSprop. Returns (model, state).
///
///     g = g + decay p,  v = alpha v + (1 - alpha) g^2
///     b = momentum b + g / (sqrt(v) + epsilon),  p = p - rate b
/// Communication: none of its own; partial gradients are reduced here, into the sharding of the parameters. Errors:
/// structure when model, gradients and state differ. Source: torch.optim.RMSprop, not centered; Hinton, lecture 6e of
/// "Neural Networks for Machine Learning", 2012.
template <class Model>
constexpr auto rmsprop(const Model& model, const Model& gradients, const optim::RmsPropState<Model>& state,
                       const optim::RmsProp& config = {}, Here at = Here::current()) {
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
  return std::tuple(moved, optim::RmsPropState<Model>{square, velocity});
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
