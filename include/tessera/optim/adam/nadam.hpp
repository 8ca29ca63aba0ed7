#ifndef TESSERA_OPTIM_ADAM_NADAM_HPP
#define TESSERA_OPTIM_ADAM_NADAM_HPP
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

/// Hyper-parameters of NAdam, with the defaults of torch.optim.NAdam. They are Scalars, so a new learning rate needs no
/// new plan.
struct NAdam {
  Scalar learning_rate = 2e-3;
  Scalar beta1 = 0.9;
  Scalar beta2 = 0.999;
  Scalar epsilon = 1e-8;
  Scalar weight_decay = 0.0;      ///< coupled: added to the gradient
  Scalar momentum_decay = 0.004;  ///< how fast the momentum rises from near beta1 / 2 to beta1
};

/// The state of AdamW, and the product of the momentums of all past steps, which is 1 before the first.
template <class Model> struct NAdamState {
  Model mean, square;
  Scalar step = 0, product = 1;

  static constexpr std::array field_names{"mean", "square", "step", "product"};
};

}  // namespace optim

/// Inside a traced function: one step of NAdam, Adam with Nesterov's momentum. Returns (model, state).
///
///     u(t) = b1 (1 - 0.96^(t momentum_decay) / 2),  product = product u(t)
///     g = g + decay p,  m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2
///     n = u(t + 1) m / (1 - product u(t + 1)) + (1 - u(t)) g / (1 - product)
///     p = p - rate n / (sqrt(v / (1 - b2^t)) + epsilon)
/// Communication: only partial gradients are reduced, into the sharding of the parameters. Errors: structure when
/// model, gradients and state differ. Source: Dozat, ICLR workshop 2016, as torch.optim.NAdam.
template <class Model, optim::GradientsOf<Model> Gradients>
constexpr auto nadam(const Model& model, const Gradients& gradients,
                     const optim::NAdamState<optim::stored_t<Model>>& state, const optim::NAdam& config = {},
                     Here at = Here::current()) {
  const optim::detail::OptimizerCall named("nadam", model, at);
  const Scalar step = optim::detail::next_step("nadam", model, state.step, at);
  const Value root = optim::detail::parameters_of(model).front().at(Source::from(at));
  const Value t = lower(root, step), beta1 = lower(root, config.beta1), beta2 = lower(root, config.beta2);
  const auto momentum = [&](const Value& of) {
    const Value exponent = of * lower(root, config.momentum_decay);
    return beta1 * (1.0 - build::apply<ops::PowOp>(exponent.number(0.96), exponent) * 0.5);
  };
  const Value now = momentum(t), next = momentum(t + 1.0), product = lower(root, state.product) * now;
  const Value of_mean = next / (1.0 - product * next), of_gradient = (1.0 - now) / (1.0 - product);
  const Value inverse_root = build::apply<ops::RsqrtOp>(1.0 - build::apply<ops::PowOp>(beta2, t));
  auto [moved, mean, square] = optim::detail::update_parameters(
      at,
      [&](const auto& x, Value p, Value g, Value m, Value v) {
        const Value slope = x.decayed(config.weight_decay, g);
        const Value next_m = x.running_mean(beta1, m, slope);
        const Value next_v = x.running_mean(beta2, v, slope * slope);
        const Value ahead = x(of_mean) * next_m + x(of_gradient) * slope;
        const Value spread = build::apply<ops::SqrtOp>(next_v) * x(inverse_root) + x(config.epsilon);
        return std::tuple(p - x(config.learning_rate) * (ahead / spread), next_m, next_v);
      },
      model, gradients, state.mean, state.square);
  return std::tuple(moved, optim::NAdamState<optim::stored_t<Model>>{mean, square, step, Scalar(product)});
}

namespace optim {

template <> struct Optimizer<NAdam> {
  template <class Model> using State = NAdamState<Model>;
  static constexpr auto step(const auto&... call) { return nadam(call...); }
};

}  // namespace optim

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
