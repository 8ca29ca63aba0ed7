#ifndef TESSERA_OPTIM_LION_HPP
#define TESSERA_OPTIM_LION_HPP
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

/// Hyper-parameters of Lion. They are Scalars, so a new learning rate needs no new plan. A good learning rate is 3 to
/// 10 times smaller than AdamW's, and a good weight decay 3 to 10 times larger (section 5 of the paper).
struct Lion {
  Scalar learning_rate = 1e-4;
  Scalar beta1 = 0.9;         ///< weight of the momentum in the update
  Scalar beta2 = 0.99;        ///< decay of the momentum
  Scalar weight_decay = 0.0;  ///< decoupled; applies to tensors of rank 2 or more, not to biases and gains
};

/// The momentum: a running mean of the gradient of each parameter, sharded like the parameter.
template <class Model> struct LionState {
  Model momentum;

  static constexpr std::array field_names{"momentum"};
};

}  // namespace optim

/// Inside a traced function: one step of Lion. Returns (model, state).
///
///     p = p (1 - rate decay) - rate sign(b1 m + (1 - b1) g)
///     m = b2 m + (1 - b2) g
/// An element whose gradients were all 0 changes only by the decay, since sign(0) is 0.
/// Communication: only partial gradients are reduced, into the sharding of the parameters. Errors: structure when
/// model, gradients and state differ. Source: Chen et al., 2302.06675, algorithm 2.
///
///     auto [next, next_state] = ts::lion(model, gradients, state, config);   // first optim::init_state(config, model)
template <class Model, optim::GradientsOf<Model> Gradients>
constexpr auto lion(const Model& model, const Gradients& gradients,
                    const optim::LionState<optim::stored_t<Model>>& state, const optim::Lion& config = {},
                    Here at = Here::current()) {
  const optim::detail::OptimizerCall named("lion", model, at);
  auto [moved, momentum] = optim::detail::update_parameters(
      at,
      [&](const auto& x, Value p, Value g, Value m) {
        const Value beta1 = x.wide(config.beta1), beta2 = x.wide(config.beta2), rate = x.wide(config.learning_rate);
        const Value mixed = x.running_mean(beta1, m, g);
        const Value kept = x.decays() ? x(1.0 - rate * x.wide(config.weight_decay)) * p : p;
        return std::tuple(kept - x(rate) * build::apply<ops::SignOp>(mixed), x.running_mean(beta2, m, g));
      },
      model, gradients, state.momentum);
  return std::tuple(moved, optim::LionState<optim::stored_t<Model>>{momentum});
}

namespace optim {

template <> struct Optimizer<Lion> {
  template <class Model> using State = LionState<Model>;
  static constexpr auto step(const auto&... call) { return lion(call...); }
};

}  // namespace optim

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
