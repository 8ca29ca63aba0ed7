#ifndef TESSERA_OPTIM_ADAPTIVE_ADAGRAD_HPP
#define TESSERA_OPTIM_ADAPTIVE_ADAGRAD_HPP
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

/// Hyper-parameters of Adagrad, with the defaults of torch.optim.Adagrad. They are Scalars, so a new learning rate
/// needs no new plan.
struct Adagrad {
  Scalar learning_rate = 1e-2;
  Scalar epsilon = 1e-10;
  Scalar weight_decay = 0.0;  ///< coupled: added to the gradient
};

/// The sum of the squares of all past gradients of each parameter, sharded like the parameter.
template <class Model> struct AdagradState {
  Model sum;

  static constexpr std::array field_names{"sum"};
};

}  // namespace optim

/// Inside a traced function: one step of Adagrad. Returns (model, state).
///
///     g = g + decay p,  s = s + g^2,  p = p - rate g / (sqrt(s) + epsilon)
/// Communication: only partial gradients are reduced, into the sharding of the parameters. Errors: structure when
/// model, gradients and state differ. Source: Duchi, Hazan, Singer, JMLR 12 (2011), as torch.optim.Adagrad.
template <class Model, optim::GradientsOf<Model> Gradients>
constexpr auto adagrad(const Model& model, const Gradients& gradients,
                       const optim::AdagradState<optim::stored_t<Model>>& state, const optim::Adagrad& config = {},
                       Here at = Here::current()) {
  const optim::detail::OptimizerCall named("adagrad", model, at);
  auto [moved, sum] = optim::detail::update_parameters(
      at,
      [&](const auto& x, Value p, Value g, Value s) {
        const Value slope = x.decayed(config.weight_decay, g);
        const Value next = s + slope * slope;
        const Value spread = build::apply<ops::SqrtOp>(next) + x(config.epsilon);
        return std::tuple(p - x(config.learning_rate) * slope / spread, next);
      },
      model, gradients, state.sum);
  return std::tuple(moved, optim::AdagradState<optim::stored_t<Model>>{sum});
}

namespace optim {

template <> struct Optimizer<Adagrad> {
  template <class Model> using State = AdagradState<Model>;
  static constexpr auto step(const auto&... call) { return adagrad(call...); }
};

}  // namespace optim

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
