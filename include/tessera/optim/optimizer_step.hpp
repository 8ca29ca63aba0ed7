#ifndef TESSERA_OPTIM_OPTIMIZER_STEP_HPP
#define TESSERA_OPTIM_OPTIMIZER_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/here.hpp>
#include <tessera/optim/adam/adam.hpp>
#include <tessera/optim/adam/adamax.hpp>
#include <tessera/optim/adam/adamw.hpp>
#include <tessera/optim/adam/amsgrad.hpp>
#include <tessera/optim/adam/nadam.hpp>
#include <tessera/optim/adam/radam.hpp>
#include <tessera/optim/adaptive/adadelta.hpp>
#include <tessera/optim/adaptive/adafactor.hpp>
#include <tessera/optim/adaptive/adagrad.hpp>
#include <tessera/optim/adaptive/rmsprop.hpp>
#include <tessera/optim/adaptive/rprop.hpp>
#include <tessera/optim/asgd.hpp>
#include <tessera/optim/lamb.hpp>
#include <tessera/optim/lbfgs.hpp>
#include <tessera/optim/lion.hpp>
#include <tessera/optim/muon.hpp>
#include <tessera/optim/sgd.hpp>
#include <tessera/optim/update.hpp>

namespace tessera::optim {

/// Inside a traced function: one step of the optimizer that the type of `config` selects, as optimizer.step() of
/// PyTorch, for code that works with any optimizer. Returns (model, state). An Sgd selects SGD with momentum. For your
/// own optimizer, declare an overload in the namespace of its hyper-parameters. Errors and communication: those of the
/// optimizer.
///
///     const auto [next, next_state] = ts::optim::optimizer_step(model, gradient, state, config);
template <class Model, GradientsOf<Model> Gradients>
constexpr auto optimizer_step(const Model& model, const Gradients& gradients, const AdamWState<stored_t<Model>>& state,
                              const AdamW& config, Here at = Here::current()) {
  return adamw(model, gradients, state, config, at);
}
template <class Model, GradientsOf<Model> Gradients>
constexpr auto optimizer_step(const Model& model, const Gradients& gradients,
                              const AmsGradState<stored_t<Model>>& state, const AmsGrad& config,
                              Here at = Here::current()) {
  return amsgrad(model, gradients, state, config, at);
}
template <class Model, GradientsOf<Model> Gradients>
constexpr auto optimizer_step(const Model& model, const Gradients& gradients, const AdamWState<stored_t<Model>>& state,
                              const Adam& config, Here at = Here::current()) {
  return adam(model, gradients, state, config, at);
}
template <class Model, GradientsOf<Model> Gradients>
constexpr auto optimizer_step(const Model& model, const Gradients& gradients, const AdamaxState<stored_t<Model>>& state,
                              const Adamax& config, Here at = Here::current()) {
  return adamax(model, gradients, state, config, at);
}
template <class Model, GradientsOf<Model> Gradients>
constexpr auto optimizer_step(const Model& model, const Gradients& gradients, const NAdamState<stored_t<Model>>& state,
                              const NAdam& config, Here at = Here::current()) {
  return nadam(model, gradients, state, config, at);
}
template <class Model, GradientsOf<Model> Gradients>
constexpr auto optimizer_step(const Model& model, const Gradients& gradients, const AdamWState<stored_t<Model>>& state,
                              const RAdam& config, Here at = Here::current()) {
  return radam(model, gradients, state, config, at);
}
template <class Model, GradientsOf<Model> Gradients>
constexpr auto optimizer_step(const Model& model, const Gradients& gradients,
                              const AdadeltaState<stored_t<Model>>& state, const Adadelta& config,
                              Here at = Here::current()) {
  return adadelta(model, gradients, state, config, at);
}
template <class Model, GradientsOf<Model> Gradients>
constexpr auto optimizer_step(const Model& model, const Gradients& gradients,
                              const AdafactorState<stored_t<Model>>& state, const Adafactor& config,
                              Here at = Here::current()) {
  return adafactor(model, gradients, state, config, at);
}
template <class Model, GradientsOf<Model> Gradients>
constexpr auto optimizer_step(const Model& model, const Gradients& gradients,
                              const AdagradState<stored_t<Model>>& state, const Adagrad& config,
                              Here at = Here::current()) {
  return adagrad(model, gradients, state, config, at);
}
template <class Model, GradientsOf<Model> Gradients>
constexpr auto optimizer_step(const Model& model, const Gradients& gradients, const AdamWState<stored_t<Model>>& state,
                              const Lamb& config, Here at = Here::current()) {
  return lamb(model, gradients, state, config, at);
}
template <class Model, GradientsOf<Model> Gradients>
constexpr auto optimizer_step(const Model& model, const Gradients& gradients, const LionState<stored_t<Model>>& state,
                              const Lion& config, Here at = Here::current()) {
  return lion(model, gradients, state, config, at);
}
template <class Model, GradientsOf<Model> Gradients>
constexpr auto optimizer_step(const Model& model, const Gradients& gradients, const MuonState<stored_t<Model>>& state,
                              const Muon& config, Here at = Here::current()) {
  return muon(model, gradients, state, config, at);
}
template <class Model, GradientsOf<Model> Gradients>
constexpr auto optimizer_step(const Model& model, const Gradients& gradients,
                              const RmsPropState<stored_t<Model>>& state, const RmsProp& config,
                              Here at = Here::current()) {
  return rmsprop(model, gradients, state, config, at);
}
template <class Model, GradientsOf<Model> Gradients>
constexpr auto optimizer_step(const Model& model, const Gradients& gradients, const SgdState<stored_t<Model>>& state,
                              const Sgd& config, Here at = Here::current()) {
  return sgd(model, gradients, state, config, at);
}
template <class Model, GradientsOf<Model> Gradients>
constexpr auto optimizer_step(const Model& model, const Gradients& gradients,
                              const DampenedSgdState<stored_t<Model>>& state, const DampenedSgd& config,
                              Here at = Here::current()) {
  return sgd_dampened(model, gradients, state, config, at);
}
template <class Model, GradientsOf<Model> Gradients>
constexpr auto optimizer_step(const Model& model, const Gradients& gradients,
                              const CenteredRmsPropState<stored_t<Model>>& state, const CenteredRmsProp& config,
                              Here at = Here::current()) {
  return rmsprop_centered(model, gradients, state, config, at);
}
template <class Model, GradientsOf<Model> Gradients>
constexpr auto optimizer_step(const Model& model, const Gradients& gradients, const RpropState<stored_t<Model>>& state,
                              const Rprop& config, Here at = Here::current()) {
  return rprop(model, gradients, state, config, at);
}
template <class Model, GradientsOf<Model> Gradients>
constexpr auto optimizer_step(const Model& model, const Gradients& gradients, const AsgdState<stored_t<Model>>& state,
                              const Asgd& config, Here at = Here::current()) {
  return asgd(model, gradients, state, config, at);
}
template <class Model, int History, GradientsOf<Model> Gradients>
constexpr auto optimizer_step(const Model& model, const Gradients& gradients,
                              const LbfgsState<stored_t<Model>, History>& state, const Lbfgs& config,
                              Here at = Here::current()) {
  return lbfgs(model, gradients, state, config, at);
}

}  // namespace tessera::optim

#include <tessera/base/pop_macros.hpp>

#endif
