#ifndef TESSERA_OPTIM_OPTIMIZER_STEP_HPP
#define TESSERA_OPTIM_OPTIMIZER_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>

#include <tessera/base/here.hpp>
#include <tessera/optim/optimizer.hpp>
#include <tessera/optim/tree_map.hpp>
#include <tessera/optim/update.hpp>

namespace tessera::optim {

/// The state of the optimizer that a `Config` selects, for a model.
template <class State, class Config, class Model>
concept OptimizerStateOf = std::is_same_v<State, typename Optimizer<Config>::template State<stored_t<Model>>>;

/// Inside a traced function: one step of the optimizer that the type of `config` selects, as optimizer.step() of
/// PyTorch, for code that works with any optimizer. Returns (model, state). An Sgd selects SGD with momentum. For your
/// own optimizer, specialise optim::Optimizer. Errors and communication: those of the optimizer.
///
///     const auto [next, next_state] = ts::optim::optimizer_step(model, gradient, state, config);
template <class Model, GradientsOf<Model> Gradients, class State, OptimizerConfig Config>
  requires OptimizerStateOf<State, Config, Model>
constexpr auto optimizer_step(const Model& model, const Gradients& gradients, const State& state, const Config& config,
                              Here at = Here::current()) {
  return Optimizer<Config>::step(model, gradients, state, config, at);
}

}  // namespace tessera::optim

#include <tessera/base/pop_macros.hpp>

#endif
