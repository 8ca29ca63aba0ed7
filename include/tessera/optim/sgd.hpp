#ifndef TESSERA_OPTIM_SGD_HPP
#define TESSERA_OPTIM_SGD_HPP
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

/// Hyper-parameters of gradient descent. They are Scalars, so a new learning rate needs no new plan.
struct Sgd {
  Scalar learning_rate = 1e-2;
  Scalar momentum = 0.9;      ///< used only by ts::sgd with a state
  Scalar weight_decay = 0.0;  ///< coupled: added to the gradient
};

/// The velocity of each parameter, with the parameter's shape and sharding.
template <class Model> struct SgdState {
  Model velocity;

  static constexpr std::array field_names{"velocity"};
};

/// Hyper-parameters of ts::sgd_dampened: those of Sgd, and the dampening, the part of each gradient that the velocity
/// ignores.
struct DampenedSgd {
  Scalar learning_rate = 1e-2;
  Scalar momentum = 0.9;
  Scalar dampening = 0.0;
  Scalar weight_decay = 0.0;  ///< coupled: added to the gradient
};

/// The velocity of each parameter, with the parameter's shape and sharding, and the number of steps so far.
template <class Model> struct DampenedSgdState {
  Model velocity;
  Scalar step = 0;

  static constexpr std::array field_names{"velocity", "step"};
};

/// Inside a traced function: the negative gradients, with which an optimizer maximizes the objective, as
/// `maximize=True` of PyTorch's optimizers. Communication: none.
///
///     const auto [next, next_state] = ts::adamw(model, ts::optim::maximize(gradient), state, config);
template <class Model> constexpr auto maximize(const Model& gradients, Here at = Here::current()) {
  return tree_map([&](auto g) { return call<NegTag>(Source::from(at), g); }, gradients);
}

}  // namespace optim

namespace optim::detail {

/// SGD with momentum; `ahead` adds the momentum once more to the step, as Nesterov's method does.
template <bool ahead, class Model, class Gradients>
constexpr auto sgd_with_momentum(const Model& model, const Gradients& gradients, const SgdState<stored_t<Model>>& state,
                                 const Sgd& config, Here at) {
  auto [moved, velocity] = update_parameters(
      at,
      [&](const auto& x, Value p, Value g, Value v) {
        const Value momentum = x(config.momentum), slope = x.decayed(config.weight_decay, g);
        const Value next = momentum * v + slope;
        return std::tuple(p - x(config.learning_rate) * (ahead ? slope + momentum * next : next), next);
      },
      model, gradients, state.velocity);
  return std::tuple(moved, SgdState<stored_t<Model>>{velocity});
}

}  // namespace optim::detail

/// Inside a traced function: one step of gradient descent, p - rate (g + decay p). Returns the model. Communication:
/// none of its own; partial gradients are reduced here, into the sharding of the parameters. Errors: structure when
/// model and gradients differ.
template <class Model, optim::GradientsOf<Model> Gradients>
constexpr Model sgd(const Model& model, const Gradients& gradients, const optim::Sgd& config = {},
                    Here at = Here::current()) {
  const optim::detail::OptimizerCall named("sgd", model, at);
  return std::get<0>(optim::detail::update_parameters(
      at,
      [&](const auto& x, Value p, Value g) {
        return std::tuple(p - x(config.learning_rate) * x.decayed(config.weight_decay, g));
      },
      model, gradients));
}

/// Inside a traced function: one step with momentum, velocity = momentum velocity + g + decay p, and p - rate velocity.
/// Returns (model, state). Communication and errors: as ts::sgd without a state. Source: Sutskever, Martens, Dahl,
/// Hinton, ICML 2013, with the rate outside the velocity, as in torch.optim.SGD.
template <class Model, optim::GradientsOf<Model> Gradients>
constexpr auto sgd(const Model& model, const Gradients& gradients, const optim::SgdState<optim::stored_t<Model>>& state,
                   const optim::Sgd& config = {}, Here at = Here::current()) {
  const optim::detail::OptimizerCall named("sgd", model, at);
  return optim::detail::sgd_with_momentum<false>(model, gradients, state, config, at);
}

/// Inside a traced function: one step with Nesterov momentum, as torch.optim.SGD with nesterov=True: the velocity of
/// ts::sgd, and p - rate (g + decay p + momentum velocity). Returns (model, state). Communication, errors and source:
/// as ts::sgd with a state.
template <class Model, optim::GradientsOf<Model> Gradients>
constexpr auto sgd_nesterov(const Model& model, const Gradients& gradients,
                            const optim::SgdState<optim::stored_t<Model>>& state, const optim::Sgd& config = {},
                            Here at = Here::current()) {
  const optim::detail::OptimizerCall named("sgd_nesterov", model, at);
  return optim::detail::sgd_with_momentum<true>(model, gradients, state, config, at);
}

/// Inside a traced function: one step with momentum and dampening, as torch.optim.SGD: velocity = momentum velocity +
/// (1 - dampening) (g + decay p), in the first step g + decay p, and p - rate velocity. Returns (model, state).
/// Communication and errors: as ts::sgd. Source: torch.optim.SGD.
template <class Model, optim::GradientsOf<Model> Gradients>
constexpr auto sgd_dampened(const Model& model, const Gradients& gradients,
                            const optim::DampenedSgdState<optim::stored_t<Model>>& state,
                            const optim::DampenedSgd& config = {}, Here at = Here::current()) {
  const optim::detail::OptimizerCall named("sgd_dampened", model, at);
  const Scalar step = optim::detail::next_step("sgd_dampened", model, state.step, at);
  const Value root = optim::detail::parameters_of(model).front().at(Source::from(at));
  const Value t = lower(root, step), one = t.number(1);
  const Value taken = build::select(build::less(one, t), 1.0 - lower(root, config.dampening), one);
  auto [moved, velocity] = optim::detail::update_parameters(
      at,
      [&](const auto& x, Value p, Value g, Value v) {
        const Value next = x(config.momentum) * v + x(taken) * (x(config.weight_decay) * p + g);
        return std::tuple(p - x(config.learning_rate) * next, next);
      },
      model, gradients, state.velocity);
  return std::tuple(moved, optim::DampenedSgdState<optim::stored_t<Model>>{velocity, step});
}

namespace optim {

template <> struct Optimizer<Sgd> {
  template <class Model> using State = SgdState<Model>;
  static constexpr auto step(const auto&... call) { return sgd(call...); }
};
template <> struct Optimizer<DampenedSgd> {
  template <class Model> using State = DampenedSgdState<Model>;
  static constexpr auto step(const auto&... call) { return sgd_dampened(call...); }
};

}  // namespace optim

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
