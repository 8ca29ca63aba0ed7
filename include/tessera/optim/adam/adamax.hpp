#ifndef TESSERA_OPTIM_ADAM_ADAMAX_HPP
#define TESSERA_OPTIM_ADAM_ADAMAX_HPP
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

/// Hyper-parameters of Adamax, with the defaults of torch.optim.Adamax. They are Scalars, so a new learning rate needs
/// no new plan.
struct Adamax {
  Scalar learning_rate = 2e-3;
  Scalar beta1 = 0.9;
  Scalar beta2 = 0.999;
  Scalar epsilon = 1e-8;
  Scalar weight_decay = 0.0;  ///< coupled: added to the gradient
};

/// The running mean and the decaying maximum of each gradient, sharded like the parameter, and the number of past
/// steps.
template <class Model> struct AdamaxState {
  Model mean, largest;
  Scalar step = 0;

  static constexpr std::array field_names{"mean", "largest", "step"};
};

}  // namespace optim

/// Inside a traced function: one step of Adamax, Adam with the infinity norm. Returns (model, state).
///
///     g = g + decay p,  m = b1 m + (1 - b1) g,  u = max(b2 u, |g| + epsilon),  p = p - rate / (1 - b1^t) m / u
/// Communication: only partial gradients are reduced, into the sharding of the parameters. Errors: structure when
/// model, gradients and state differ. Source: Kingma, Ba, 1412.6980, section 7.1, as torch.optim.Adamax.
template <class Model, optim::GradientsOf<Model> Gradients>
constexpr auto adamax(const Model& model, const Gradients& gradients,
                      const optim::AdamaxState<optim::stored_t<Model>>& state, const optim::Adamax& config = {},
                      Here at = Here::current()) {
  const optim::detail::OptimizerCall named("adamax", model, at);
  const Scalar step = optim::detail::next_step("adamax", model, state.step, at);
  auto [moved, mean, largest] = optim::detail::update_parameters(
      at,
      [&](const auto& x, Value p, Value g, Value m, Value u) {
        const Value beta1 = x.wide(config.beta1);
        const Value slope = x.decayed(config.weight_decay, g);
        const Value next_m = x.running_mean(beta1, m, slope);
        const Value next_u =
            build::apply<ops::MaximumOp>(x(config.beta2) * u, build::apply<ops::AbsOp>(slope) + x(config.epsilon));
        const Value rate = x.wide(config.learning_rate) / (1.0 - build::apply<ops::PowOp>(beta1, x.wide(step)));
        return std::tuple(p - x(rate) * (next_m / next_u), next_m, next_u);
      },
      model, gradients, state.mean, state.largest);
  return std::tuple(moved, optim::AdamaxState<optim::stored_t<Model>>{mean, largest, step});
}

namespace optim {

template <> struct Optimizer<Adamax> {
  template <class Model> using State = AdamaxState<Model>;
  static constexpr auto step(const auto&... call) { return adamax(call...); }
};

}  // namespace optim

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
