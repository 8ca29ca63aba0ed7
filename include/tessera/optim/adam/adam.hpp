#ifndef TESSERA_OPTIM_ADAM_ADAM_HPP
#define TESSERA_OPTIM_ADAM_ADAM_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/optim/adam/adamw.hpp>
#include <tessera/optim/optimizer.hpp>
#include <tessera/optim/optimizer_call.hpp>
#include <tessera/optim/update.hpp>

namespace tessera {

namespace optim {

/// Hyper-parameters of Adam, with the defaults of torch.optim.Adam. They are Scalars, so a new learning rate needs no
/// new plan.
struct Adam {
  Scalar learning_rate = 1e-3;
  Scalar beta1 = 0.9;
  Scalar beta2 = 0.999;
  Scalar epsilon = 1e-8;
  Scalar weight_decay = 0.0;  ///< coupled: added to the gradient, of every tensor
};

}  // namespace optim

/// Inside a traced function: one step of Adam, which is AdamW with the gradient g + decay p and no decoupled decay.
/// Returns (model, state). The state is that of AdamW. Communication, errors: as adamw. Source: Kingma, Ba, 1412.6980.
///
///     auto [next, next_state] = ts::adam(model, gradients, state, config);
template <class Model, optim::GradientsOf<Model> Gradients>
constexpr auto adam(const Model& model, const Gradients& gradients,
                    const optim::AdamWState<optim::stored_t<Model>>& state, const optim::Adam& config = {},
                    Here at = Here::current()) {
  const optim::detail::OptimizerCall named("adam", model, at);
  const Model coupled = std::get<0>(optim::detail::map_parameters(
      at, [&](const auto& x, Value, Value g) { return std::tuple(x.decayed(config.weight_decay, g)); }, model,
      gradients));
  const optim::AdamW plain{config.learning_rate, config.beta1, config.beta2, config.epsilon, 0.0};
  return adamw(model, coupled, state, plain, at);
}

namespace optim {

template <> struct Optimizer<Adam> {
  template <class Model> using State = AdamWState<Model>;
  static constexpr auto step(const auto&... call) { return adam(call...); }
};

}  // namespace optim

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
