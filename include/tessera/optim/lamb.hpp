#ifndef TESSERA_OPTIM_LAMB_HPP
#define TESSERA_OPTIM_LAMB_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/elementwise/composition.hpp>
#include <tessera/optim/adam/adamw.hpp>
#include <tessera/optim/gradients/tensor_norm.hpp>
#include <tessera/optim/optimizer.hpp>
#include <tessera/optim/optimizer_call.hpp>
#include <tessera/optim/update.hpp>

namespace tessera {

namespace optim {

/// Hyper-parameters of LAMB, with the defaults of optax.lamb. They are Scalars, so a new learning rate needs no new
/// plan.
struct Lamb {
  Scalar learning_rate = 1e-3;
  Scalar beta1 = 0.9;
  Scalar beta2 = 0.999;
  Scalar epsilon = 1e-6;
  Scalar weight_decay = 0.0;  ///< applies to tensors of rank 2 or more, not to biases and gains
};

}  // namespace optim

/// Inside a traced function: one step of LAMB, Adam with a rate for each tensor. Returns (model, state); the state is
/// that of AdamW.
///
///     m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2
///     u = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon) + decay p,  p = p - rate (|p| / |u|) u
/// |p| / |u| is 1 if one of the norms is 0. Each layer of a Stack has separate norms. Communication: for a split
/// parameter, an all_reduce of each norm. Errors: structure when model, gradients and state differ. Source: You et al.,
/// 1904.00962, algorithm 2, as optax.lamb except for the tensors without decay.
template <class Model, optim::GradientsOf<Model> Gradients>
constexpr auto lamb(const Model& model, const Gradients& gradients,
                    const optim::AdamWState<optim::stored_t<Model>>& state, const optim::Lamb& config = {},
                    Here at = Here::current()) {
  const optim::detail::OptimizerCall named("lamb", model, at);
  const Scalar step = optim::detail::next_step("lamb", model, state.step, at);
  auto [moved, mean, square] = optim::detail::update_parameters(
      at,
      [&](const auto& x, Value p, Value g, Value m, Value v) {
        const Value beta1 = x.wide(config.beta1), beta2 = x.wide(config.beta2), count = x.wide(step);
        const Value next_m = x.running_mean(beta1, m, g);
        const Value next_v = x.running_mean(beta2, v, g * g);
        const Value mean_hat = next_m * x(1.0 / (1.0 - build::apply<ops::PowOp>(beta1, count)));
        const Value scale = x(build::apply<ops::RsqrtOp>(1.0 - build::apply<ops::PowOp>(beta2, count)));
        const Value step_of = mean_hat / (build::apply<ops::SqrtOp>(next_v) * scale + x(config.epsilon));
        const Value u = x.decays() ? step_of + x(config.weight_decay) * p : step_of;
        const Value size = optim::detail::tensor_norm(p, x.rank), length = optim::detail::tensor_norm(u, x.rank);
        const Value one = size.number(1.0), zero = size.number(0.0);
        const Value ratio = build::select(build::greater(size, zero),
                                          build::select(build::greater(length, zero), size / length, one), one);
        return std::tuple(p - x(config.learning_rate) * (x(ratio) * u), next_m, next_v);
      },
      model, gradients, state.mean, state.square);
  return std::tuple(moved, optim::AdamWState<optim::stored_t<Model>>{mean, square, step});
}

namespace optim {

template <> struct Optimizer<Lamb> {
  template <class Model> using State = AdamWState<Model>;
  static constexpr auto step(const auto&... call) { return lamb(call...); }
};

}  // namespace optim

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
