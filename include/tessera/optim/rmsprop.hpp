#ifndef TESSERA_OPTIM_RMSPROP_HPP
#define TESSERA_OPTIM_RMSPROP_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/optim/tree_map.hpp>

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
  auto [moved, square, velocity] = optim::tree_map(
      [&](auto p, auto g, auto v, auto b) {
        using S = decltype(p);
        const Value from = p.value.at(Source::from(at));
        const auto number = [&](const Value& of) { return build::cast(of, from.dtype()); };
        const Value alpha = lower(from, config.alpha);
        const Value slope = number(lower(from, config.weight_decay)) * from + g.value;
        const Value next_v = number(alpha) * v.value + number(1.0 - alpha) * (slope * slope);
        const Value spread = build::apply<ops::SqrtOp>(next_v) + number(lower(from, config.epsilon));
        const Value next_b = number(lower(from, config.momentum)) * b.value + slope / spread;
        return std::tuple(S(from - number(lower(from, config.learning_rate)) * next_b), S(next_v), S(next_b));
      },
      model, gradients, state.square, state.velocity);
  return std::tuple(moved, optim::RmsPropState<Model>{square, velocity});
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
