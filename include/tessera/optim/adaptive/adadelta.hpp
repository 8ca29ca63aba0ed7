#ifndef TESSERA_OPTIM_ADAPTIVE_ADADELTA_HPP
#define TESSERA_OPTIM_ADAPTIVE_ADADELTA_HPP
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

/// Hyper-parameters of Adadelta, with the defaults of torch.optim.Adadelta. They are Scalars, so a new learning rate
/// needs no new plan.
struct Adadelta {
  Scalar learning_rate = 1.0;
  Scalar rho = 0.9;  ///< decay of both running means
  Scalar epsilon = 1e-6;
  Scalar weight_decay = 0.0;  ///< coupled: added to the gradient
};

/// Running means of the squares of each gradient and of each change, sharded like the parameter.
template <class Model> struct AdadeltaState {
  Model square, change;

  static constexpr std::array field_names{"square", "change"};
};

}  // namespace optim

/// Inside a traced function: one step of Adadelta. Returns (model, state).
///
///     g = g + decay p,  v = rho v + (1 - rho) g^2,  d = g sqrt(u + epsilon) / sqrt(v + epsilon)
///     u = rho u + (1 - rho) d^2,  p = p - rate d
/// Communication: only partial gradients are reduced, into the sharding of the parameters. Errors: structure when
/// model, gradients and state differ. Source: Zeiler, 1212.5701, as torch.optim.Adadelta.
template <class Model, optim::GradientsOf<Model> Gradients>
constexpr auto adadelta(const Model& model, const Gradients& gradients,
                        const optim::AdadeltaState<optim::stored_t<Model>>& state, const optim::Adadelta& config = {},
                        Here at = Here::current()) {
  const optim::detail::OptimizerCall named("adadelta", model, at);
  auto [moved, square, change] = optim::detail::update_parameters(
      at,
      [&](const auto& x, Value p, Value g, Value v, Value u) {
        const Value rho = x(config.rho), fresh = x(1.0 - x.wide(config.rho)), epsilon = x(config.epsilon);
        const Value slope = x.decayed(config.weight_decay, g);
        const Value next_v = rho * v + fresh * (slope * slope);
        const Value ratio = build::apply<ops::SqrtOp>(u + epsilon) / build::apply<ops::SqrtOp>(next_v + epsilon);
        const Value delta = ratio * slope;
        return std::tuple(p - x(config.learning_rate) * delta, next_v, rho * u + fresh * (delta * delta));
      },
      model, gradients, state.square, state.change);
  return std::tuple(moved, optim::AdadeltaState<optim::stored_t<Model>>{square, change});
}

namespace optim {

template <> struct Optimizer<Adadelta> {
  template <class Model> using State = AdadeltaState<Model>;
  static constexpr auto step(const auto&... call) { return adadelta(call...); }
};

}  // namespace optim

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
