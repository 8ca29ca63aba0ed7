#ifndef TESSERA_OPTIM_ADAM_RADAM_HPP
#define TESSERA_OPTIM_ADAM_RADAM_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/optim/adam/adamw.hpp>
#include <tessera/optim/optimizer.hpp>
#include <tessera/optim/optimizer_call.hpp>
#include <tessera/optim/update.hpp>

namespace tessera {

namespace optim {

/// Hyper-parameters of RAdam, with the defaults of torch.optim.RAdam. They are Scalars, so a new learning rate needs no
/// new plan.
struct RAdam {
  Scalar learning_rate = 1e-3;
  Scalar beta1 = 0.9;
  Scalar beta2 = 0.999;
  Scalar epsilon = 1e-8;
  Scalar weight_decay = 0.0;  ///< coupled: added to the gradient
};

}  // namespace optim

/// Inside a traced function: one step of RAdam, Adam whose rate is rectified while few squares are known. Returns
/// (model, state). The state is that of AdamW.
///
///     g = g + decay p,  m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,  n = m / (1 - b1^t)
///     most = 2 / (1 - b2) - 1,  length = most - 2 t b2^t / (1 - b2^t)
///     r = sqrt((length - 4) (length - 2) most / ((most - 4) (most - 2) length))
///     p = p - rate n r sqrt(1 - b2^t) / (sqrt(v) + epsilon)  if length is above 5, otherwise p = p - rate n
/// Communication: only partial gradients are reduced, into the sharding of the parameters. Errors: structure when
/// model, gradients and state differ. Source: Liu et al., 1908.03265, as torch.optim.RAdam.
template <class Model, optim::GradientsOf<Model> Gradients>
constexpr auto radam(const Model& model, const Gradients& gradients,
                     const optim::AdamWState<optim::stored_t<Model>>& state, const optim::RAdam& config = {},
                     Here at = Here::current()) {
  const optim::detail::OptimizerCall named("radam", model, at);
  const Scalar step = optim::detail::next_step("radam", model, state.step, at);
  const Value root = optim::detail::parameters_of(model).front().at(Source::from(at));
  const Value t = lower(root, step), beta1 = lower(root, config.beta1), beta2 = lower(root, config.beta2);
  const Value rate = lower(root, config.learning_rate) / (1.0 - build::apply<ops::PowOp>(beta1, t));
  const Value power = build::apply<ops::PowOp>(beta2, t), rest = 1.0 - power;
  const Value most = 2.0 / (1.0 - beta2) - 1.0, length = most - t * power * 2.0 / rest;
  const Value is_long = build::greater(length, length.number(5));
  // For a short length the square root would be NaN.
  const Value part = (length - 4.0) * (length - 2.0) * most / ((most - 4.0) * (most - 2.0) * length) * rest;
  const Value scale = build::apply<ops::SqrtOp>(build::select(is_long, part, part.number(0)));
  const Value flag = build::select(is_long, part.number(1), part.number(0));
  auto [moved, mean, square] = optim::detail::update_parameters(
      at,
      [&](const auto& x, Value p, Value g, Value m, Value v) {
        const Value slope = x.decayed(config.weight_decay, g);
        const Value next_m = x.running_mean(beta1, m, slope);
        const Value next_v = x.running_mean(beta2, v, slope * slope);
        const Value rectified = x(scale) / (build::apply<ops::SqrtOp>(next_v) + x(config.epsilon));
        const Value factor = build::select(build::greater(x(flag), p.number(0)), rectified, p.number(1));
        return std::tuple(p - x(rate) * (next_m * factor), next_m, next_v);
      },
      model, gradients, state.mean, state.square);
  return std::tuple(moved, optim::AdamWState<optim::stored_t<Model>>{mean, square, step});
}

namespace optim {

template <> struct Optimizer<RAdam> {
  template <class Model> using State = AdamWState<Model>;
  static constexpr auto step(const auto&... call) { return radam(call...); }
};

}  // namespace optim

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
