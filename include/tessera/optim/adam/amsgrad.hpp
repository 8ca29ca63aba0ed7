#ifndef TESSERA_OPTIM_ADAM_AMSGRAD_HPP
#define TESSERA_OPTIM_ADAM_AMSGRAD_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <tuple>

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/optim/adam/adamw.hpp>
#include <tessera/optim/optimizer.hpp>
#include <tessera/optim/optimizer_call.hpp>
#include <tessera/optim/update.hpp>

namespace tessera {

namespace optim {

/// Hyper-parameters of AMSGrad, those of AdamW. They are Scalars, so a new learning rate needs no new plan.
struct AmsGrad {
  Scalar learning_rate = 1e-3;
  Scalar beta1 = 0.9;
  Scalar beta2 = 0.999;
  Scalar epsilon = 1e-8;
  Scalar weight_decay = 0.01;  ///< decoupled; applies to tensors of rank 2 or more, not to biases and gains
};

/// The state of AdamW, and the largest mean of squares so far.
template <class Model> struct AmsGradState {
  Model mean, square, largest;
  Scalar step = 0;

  static constexpr std::array field_names{"mean", "square", "largest", "step"};
};

}  // namespace optim

/// Inside a traced function: one step of AMSGrad, AdamW divided by the largest mean of squares so far. Returns (model,
/// state).
///
///     m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,  w = max(w, v)
///     p = p (1 - rate decay) - rate (m / (1 - b1^t)) / (sqrt(w / (1 - b2^t)) + epsilon)
/// Communication, errors: as adamw. Source: Reddi, Kale, Kumar, ICLR 2018, as torch.optim.AdamW with amsgrad=True.
template <class Model, optim::GradientsOf<Model> Gradients>
constexpr auto amsgrad(const Model& model, const Gradients& gradients,
                       const optim::AmsGradState<optim::stored_t<Model>>& state, const optim::AmsGrad& config = {},
                       Here at = Here::current()) {
  const optim::detail::OptimizerCall named("amsgrad", model, at);
  const Growable<Value> any = optim::detail::parameters_of(model);
  if (any.empty()) fail(errc::structure, "[amsgrad] model: the model has no floating-point tensor");
  const optim::AdamW as_adamw{config.learning_rate, config.beta1, config.beta2, config.epsilon, config.weight_decay};
  const optim::detail::AdamWStep step(any.front().at(Source::from(at)), as_adamw, state.step);
  auto [moved, mean, square, largest] = optim::detail::update_parameters(
      at,
      [&](const auto& x, Value p, Value g, Value m, Value v, Value w) {
        const optim::detail::AdamWStep s = step.as(p.dtype());
        const auto [next_m, next_v] = s.next_means(g, m, v);
        const Value next_w = build::apply<ops::MaximumOp>(w, next_v);
        return std::tuple(s.moved(x, next_m, next_w), next_m, next_v, next_w);
      },
      model, gradients, state.mean, state.square, state.largest);
  return std::tuple(moved, optim::AmsGradState<optim::stored_t<Model>>{mean, square, largest, Scalar(step.count)});
}

namespace optim {

template <> struct Optimizer<AmsGrad> {
  template <class Model> using State = AmsGradState<Model>;
  static constexpr auto step(const auto&... call) { return amsgrad(call...); }
};

}  // namespace optim

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
