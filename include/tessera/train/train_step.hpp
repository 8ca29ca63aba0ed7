#ifndef TESSERA_TRAIN_TRAIN_STEP_HPP
#define TESSERA_TRAIN_TRAIN_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/optim/gradients/accumulate.hpp>
#include <tessera/optim/gradients/clip.hpp>
#include <tessera/optim/optimizer_step.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/train/train_state.hpp>

namespace tessera::train {

/// Options of a training step. They are a template argument, since they change the traced program.
struct TrainStepOptions {
  /// The number of microbatches of a batch, which are computed one after the other, see optim::accumulate. It must
  /// divide the number of rows, and the loss must be a mean over rows.
  int microbatches = 1;
  /// Whether gradients are scaled to a global norm of at most TrainState::max_norm.
  bool clip = false;
};

/// The result of a training step.
struct StepMetrics {
  double loss = 0;
  double gradient_norm = 0;  ///< before clipping; 0 for a step that does not clip
};

namespace detail {

template <TrainStepOptions options, class Loss> struct TracedStep {
  constexpr auto operator()(const auto& model, const auto& state, const auto& optimizer, const auto& max_norm,
                            const auto&... batch) const {
    const auto [loss, gradient] = [&] {
      if constexpr (options.microbatches > 1)
        return optim::accumulate<options.microbatches>(Loss{})(model, batch...);
      else
        return value_and_grad(Loss{})(model, batch...);
    }();
    if constexpr (options.clip) {
      const auto [clipped, norm] = clip_by_global_norm(gradient, max_norm);
      const auto [next, next_state] = optim::optimizer_step(model, clipped, state, optimizer);
      return std::tuple(next, next_state, loss, norm);
    } else {
      const auto [next, next_state] = optim::optimizer_step(model, gradient, state, optimizer);
      return std::tuple(next, next_state, loss);
    }
  }
};

}  // namespace detail

/// A training step as one program; make it with train_step().
template <TrainStepOptions options, class Loss> class TrainStep {
 public:
  constexpr explicit TrainStep(Source source) : program_(source) {}

  /// Trains a TrainState with one batch, in place. Errors: those of the program; the state is then unchanged or empty,
  /// as the moved arguments of a compiled function.
  template <class State, class... Batch> StepMetrics operator()(State& state, const Batch&... batch) const {
    auto made = program_(std::move(state.model), std::move(state.state), state.optimizer, state.max_norm, batch...);
    state.model = std::move(std::get<0>(made));
    state.state = std::move(std::get<1>(made));
    ++state.step;
    StepMetrics metrics{static_cast<double>(item(std::get<2>(made)))};
    if constexpr (options.clip) metrics.gradient_norm = static_cast<double>(item(std::get<3>(made)));
    return metrics;
  }

  /// The plan of a step with these arguments, and the plan as text. Neither runs the step.
  template <class State, class... Batch> Plan plan(const State& state, const Batch&... batch) const {
    return program_.plan(state.model, state.state, state.optimizer, state.max_norm, batch...);
  }
  template <class State, class... Batch> std::string explain(const State& state, const Batch&... batch) const {
    return program_.explain(state.model, state.state, state.optimizer, state.max_norm, batch...);
  }

 private:
  Compiled<detail::TracedStep<options, Loss>> program_;
};

/// A training step for a loss `loss(model, batch...)`, which is a function without captures: value_and_grad, clipping,
/// and the step of the optimizer, compiled as one program.
///
///     constexpr ts::train::TrainStepOptions in_parts{.microbatches = 4, .clip = true};
///     constexpr auto step = ts::train::train_step<in_parts>(
///         [](const auto& m, const auto& x, const auto& t) { return ts::cross_entropy(m(x), t); });
///     const auto [loss, norm] = step(state, x, t);   // state: a TrainState, which changes
/// Communication: that of the model and its gradients, and for clipping an all_reduce of a rank-0 tensor.
template <TrainStepOptions options = TrainStepOptions{}, class Loss>
constexpr auto train_step(const Loss&, Here at = Here::current()) {
  static_assert(options.microbatches >= 1, "tessera: TrainStepOptions::microbatches is at least 1");
  static_assert(
      std::is_empty_v<Loss> && std::is_default_constructible_v<Loss>,
      "tessera: the loss of train_step is traced by the compiler, so it can't capture variables; pass what it "
      "needs as part of the batch or of the model");
  return TrainStep<options, Loss>(Source::from(at));
}

}  // namespace tessera::train

#include <tessera/base/pop_macros.hpp>

#endif
