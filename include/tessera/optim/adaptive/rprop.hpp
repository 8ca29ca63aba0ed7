#ifndef TESSERA_OPTIM_ADAPTIVE_RPROP_HPP
#define TESSERA_OPTIM_ADAPTIVE_RPROP_HPP
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

/// Hyper-parameters of Rprop, with the defaults of torch.optim.Rprop. They are Scalars, so new values need no new plan.
struct Rprop {
  Scalar learning_rate = 1e-2;  ///< the size of the first step of each element
  Scalar eta_minus = 0.5;       ///< factor of the step size if the sign of the gradient changed
  Scalar eta_plus = 1.2;        ///< factor of the step size if the sign of the gradient did not change
  Scalar min_step_size = 1e-6;
  Scalar max_step_size = 50.0;
};

/// The last gradient and the size of the last step of each element, sharded like the parameter, and the number of past
/// steps.
template <class Model> struct RpropState {
  Model gradient, size;
  Scalar step = 0;

  static constexpr std::array field_names{"gradient", "size", "step"};
};

}  // namespace optim

/// Inside a traced function: one step of resilient backpropagation, which uses the signs of gradients only: for
/// gradients of a whole data set, not of batches. Returns (model, state).
///
///     s = s eta_plus where the gradient has the sign of the last one, s eta_minus and g = 0 where it changed
///     p = p - sign(g) s
/// Communication: only partial gradients are reduced, into the sharding of the parameters. Errors: structure when
/// model, gradients and state differ. Source: Riedmiller, Braun, ICNN 1993, as torch.optim.Rprop.
template <class Model, optim::GradientsOf<Model> Gradients>
constexpr auto rprop(const Model& model, const Gradients& gradients,
                     const optim::RpropState<optim::stored_t<Model>>& state, const optim::Rprop& config = {},
                     Here at = Here::current()) {
  const optim::detail::OptimizerCall named("rprop", model, at);
  const Scalar step = optim::detail::next_step("rprop", model, state.step, at);
  auto [moved, last, size] = optim::detail::update_parameters(
      at,
      [&](const auto& x, Value p, Value g, Value before, Value s) {
        const Value t = x.wide(step), zero = g.number(0), agreement = g * before;
        const Value turned = build::less(agreement, zero);
        const Value factor =
            build::select(turned, x(config.eta_minus),
                          build::select(build::greater(agreement, zero), x(config.eta_plus), agreement.number(1)));
        const Value old = build::select(build::less(t.number(1), t), s, x(config.learning_rate));
        const Value next_s = build::apply<ops::MinimumOp>(
            build::apply<ops::MaximumOp>(old * factor, x(config.min_step_size)), x(config.max_step_size));
        const Value used = build::select(turned, zero, g);
        return std::tuple(p - build::apply<ops::SignOp>(used) * next_s, used, next_s);
      },
      model, gradients, state.gradient, state.size);
  return std::tuple(moved, optim::RpropState<optim::stored_t<Model>>{last, size, step});
}

namespace optim {

template <> struct Optimizer<Rprop> {
  template <class Model> using State = RpropState<Model>;
  static constexpr auto step(const auto&... call) { return rprop(call...); }
};

}  // namespace optim

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
