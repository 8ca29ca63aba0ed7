#ifndef TESSERA_OPTIM_SGD_HPP
#define TESSERA_OPTIM_SGD_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/optim/tree_map.hpp>

namespace tessera {

namespace optim {

/// Hyper-parameters of gradient descent. They are Scalars, so a new learning rate needs no new plan.
struct Sgd {
  Scalar learning_rate = 1e-2;
  Scalar momentum = 0.9;      ///< used only by ts::sgd with a state
  Scalar weight_decay = 0.0;  ///< coupled: added to the gradient
};

/// The velocity of each parameter, with the parameter's shape and sharding.
template <class Model> struct SgdState {
  Model velocity;
};

}  // namespace optim

namespace optim::detail {

struct SgdStep {
  Value rate, momentum, decay;

  constexpr SgdStep(Value at, const Sgd& config)
      : rate(build::cast(lower(at, config.learning_rate), at.dtype())),
        momentum(build::cast(lower(at, config.momentum), at.dtype())),
        decay(build::cast(lower(at, config.weight_decay), at.dtype())) {}
};

}  // namespace optim::detail

/// Inside a traced function: one step of gradient descent, p - rate (g + decay p). Returns the model.
/// Communication: none of its own; partial gradients are reduced here, into the sharding of the parameters.
template <class Model>
constexpr Model sgd(const Model& model, const Model& gradients, const optim::Sgd& config = {},
                    Here at = Here::current()) {
  return optim::tree_map(
      [&](auto p, auto g) {
        const optim::detail::SgdStep s(p.value.at(Source::from(at)), config);
        return decltype(p)(p.value.at(s.rate.source) - s.rate * (s.decay * p.value + g.value));
      },
      model, gradients);
}

/// One step with momentum: velocity = momentum velocity + g + decay p, and p - rate velocity. Returns (model, state).
/// Source: Sutskever, Martens, Dahl, Hinton, ICML 2013, with the rate outside the velocity, as in torch.optim.SGD.
template <class Model>
constexpr auto sgd(const Model& model, const Model& gradients, const optim::SgdState<Model>& state,
                   const optim::Sgd& config = {}, Here at = Here::current()) {
  auto [moved, velocity] = optim::tree_map(
      [&](auto p, auto g, auto v) {
        using S = decltype(p);
        const optim::detail::SgdStep s(p.value.at(Source::from(at)), config);
        const Value next = s.momentum * v.value + (s.decay * p.value + g.value);
        return std::tuple(S(p.value.at(s.rate.source) - s.rate * next), S(next));
      },
      model, gradients, state.velocity);
  return std::tuple(moved, optim::SgdState<Model>{velocity});
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
