#ifndef TESSERA_OPTIM_ASGD_HPP
#define TESSERA_OPTIM_ASGD_HPP
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

/// Hyper-parameters of averaged gradient descent, with the names and defaults of torch.optim.ASGD. They are Scalars, so
/// a new learning rate needs no new plan.
struct Asgd {
  Scalar learning_rate = 1e-2;
  Scalar lambda = 1e-4;       ///< decay of the parameters, and of the rate
  Scalar alpha = 0.75;        ///< power of the decay of the rate
  Scalar t0 = 1e6;            ///< the step at which the average begins
  Scalar weight_decay = 0.0;  ///< coupled: added to the gradient
};

/// The average of the parameters since step `start`, sharded like them, and the number of past steps.
template <class Model> struct AsgdState {
  Model average;
  Scalar step = 0;

  static constexpr std::array field_names{"average", "step"};
};

}  // namespace optim

/// Inside a traced function: one step of averaged gradient descent. Returns (model, state). `state.average` is the
/// model to evaluate; before step `start` it equals the parameters.
///
///     eta = rate / (1 + lambda rate (t - 1))^alpha,  p = p (1 - lambda eta) - eta (g + decay p)
///     a = a + (p - a) / max(1, t - 1 - start)
/// Communication: only partial gradients are reduced, into the sharding of the parameters. Errors: structure when
/// model, gradients and state differ. Source: Polyak, Juditsky, SIAM J. Control Optim. 30 (1992), as torch.optim.ASGD.
template <class Model, optim::GradientsOf<Model> Gradients>
constexpr auto asgd(const Model& model, const Gradients& gradients,
                    const optim::AsgdState<optim::stored_t<Model>>& state, const optim::Asgd& config = {},
                    Here at = Here::current()) {
  const optim::detail::OptimizerCall named("asgd", model, at);
  const Scalar step = optim::detail::next_step("asgd", model, state.step, at);
  auto [moved, average] = optim::detail::update_parameters(
      at,
      [&](const auto& x, Value p, Value g, Value a) {
        const Value past = x.wide(step) - 1.0, rate = x.wide(config.learning_rate), lambda = x.wide(config.lambda);
        const Value eta = rate / build::apply<ops::PowOp>(lambda * rate * past + 1.0, x.wide(config.alpha));
        const Value share = 1.0 / build::apply<ops::MaximumOp>(past - x.wide(config.t0), past.number(1));
        const Value next = x(1.0 - lambda * eta) * p - x(eta) * x.decayed(config.weight_decay, g);
        return std::tuple(next, a + x(share) * (next - a));
      },
      model, gradients, state.average);
  return std::tuple(moved, optim::AsgdState<optim::stored_t<Model>>{average, step});
}

namespace optim {

template <> struct Optimizer<Asgd> {
  template <class Model> using State = AsgdState<Model>;
  static constexpr auto step(const auto&... call) { return asgd(call...); }
};

}  // namespace optim

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
