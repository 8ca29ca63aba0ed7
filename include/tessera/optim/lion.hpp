#ifndef TESSERA_OPTIM_LION_HPP
#define TESSERA_OPTIM_LION_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/optim/tree_map.hpp>

namespace tessera {

namespace optim {

/// Hyper-parameters of Lion. They are Scalars, so a new learning rate needs no new plan. A good learning rate is 3 to
/// 10 times smaller than AdamW's, and a good weight decay 3 to 10 times larger (section 5 of the paper).
struct Lion {
  Scalar learning_rate = 1e-4;
  Scalar beta1 = 0.9;         ///< weight of the momentum in the update
  Scalar beta2 = 0.99;        ///< decay of the momentum
  Scalar weight_decay = 0.0;  ///< decoupled; applies to tensors of rank 2 or more, not to biases and gains
};

/// The momentum: a running mean of the gradient of each parameter, sharded like the parameter.
template <class Model> struct LionState {
  Model momentum;
};

}  // namespace optim

/// Inside a traced function: one step of Lion. Returns (model, state).
///
///     p = p (1 - rate decay) - rate sign(b1 m + (1 - b1) g)
///     m = b2 m + (1 - b2) g
/// An element whose gradients were all 0 changes only by the decay, since sign(0) is 0.
/// Communication: none of its own; partial gradients are reduced here, into the sharding of the parameters. Errors:
/// structure when model, gradients and state differ. Source: Chen and others, 2302.06675, algorithm 2.
///
///     auto [next, next_state] = ts::lion(model, gradients, state, config);   // first optim::init_state(config, model)
template <class Model>
constexpr auto lion(const Model& model, const Model& gradients, const optim::LionState<Model>& state,
                    const optim::Lion& config = {}, Here at = Here::current()) {
  auto [moved, momentum] = optim::tree_map(
      [&](auto p, auto g, auto m) {
        using S = decltype(p);
        const Value from = p.value.at(Source::from(at));
        const auto number = [&](Value of) { return build::cast(of, from.dtype()); };
        const Value beta1 = lower(from, config.beta1), beta2 = lower(from, config.beta2);
        const Value rate = lower(from, config.learning_rate);
        const Value mixed = number(beta1) * m.value + number(1.0 - beta1) * g.value;
        const Value kept = S::rank >= 2 ? number(1.0 - rate * lower(from, config.weight_decay)) * from : from;
        return std::tuple(S(kept - number(rate) * build::apply<ops::SignOp>(mixed)),
                          S(number(beta2) * m.value + number(1.0 - beta2) * g.value));
      },
      model, gradients, state.momentum);
  return std::tuple(moved, optim::LionState<Model>{momentum});
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
