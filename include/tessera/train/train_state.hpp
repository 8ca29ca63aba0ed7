#ifndef TESSERA_TRAIN_TRAIN_STATE_HPP
#define TESSERA_TRAIN_TRAIN_STATE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <utility>

#include <tessera/graph/trace/scalar.hpp>
#include <tessera/optim/state/init_state.hpp>

namespace tessera::train {

/// The state of `Optimizer` for a model.
template <class Model, class Optimizer>
using OptimizerState = decltype(optim::init_state(std::declval<const Optimizer&>(), std::declval<const Model&>()));

/// The state of a training, as flax.training.train_state.TrainState: a model, the hyper-parameters and the state of its
/// optimizer, and the number of steps. Make it with train_state(). To save it, save `model`, `state` and `step`.
template <class Model, class Optimizer> struct TrainState {
  Model model;
  Optimizer optimizer;  ///< an optim::AdamW, optim::Sgd, ...; a learning rate may be changed between steps
  OptimizerState<Model, Optimizer> state;
  Scalar max_norm = 1.0;  ///< of the gradient, for a step that clips
  std::int64_t step = 0;
};

/// The initial TrainState of a model. With ZeroRedundancy the optimizer state is split over an axis. Errors and
/// communication: those of optim::init_state.
///
///     auto state = ts::train::train_state(model, ts::optim::AdamW{.learning_rate = 1e-3});
template <class Model, class Optimizer>
TrainState<Model, Optimizer> train_state(Model model, Optimizer optimizer, Here at = Here::current()) {
  auto state = optim::init_state(optimizer, model, at);
  return {std::move(model), std::move(optimizer), std::move(state)};
}
template <class Model, class Optimizer>
TrainState<Model, Optimizer> train_state(Model model, Optimizer optimizer, const optim::ZeroRedundancy& zero,
                                         Here at = Here::current()) {
  auto state = optim::init_state(optimizer, model, zero, at);
  return {std::move(model), std::move(optimizer), std::move(state)};
}

}  // namespace tessera::train

#include <tessera/base/pop_macros.hpp>

#endif
