#ifndef TESSERA_TRAIN_FIT_HPP
#define TESSERA_TRAIN_FIT_HPP
#include <tessera/base/push_macros.hpp>

#include <chrono>
#include <cstdint>
#include <functional>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/train/batch.hpp>
#include <tessera/train/train_step.hpp>

namespace tessera::train {

/// What a hook of fit() gets after each step. A hook that sets `stop` ends training.
struct StepReport {
  std::int64_t step = 0;   ///< how many steps the state was trained for, this one included
  std::int64_t epoch = 1;  ///< of this call of fit(), counted from 1
  std::int64_t rows = 0;   ///< of the batch: the extent of dim 0 of its first tensor
  StepMetrics metrics;
  double learning_rate = 0;    ///< that of the schedule; 0 without a schedule
  double loading_seconds = 0;  ///< spent waiting for the batch
  double seconds = 0;          ///< spent in the step
  bool stop = false;
};

/// What a hook of fit() gets after each epoch. A hook that sets `stop` ends training.
struct EpochReport {
  std::int64_t epoch = 0, steps = 0, rows = 0;  ///< steps and rows of this epoch
  double loss = 0;                              ///< the mean over rows
  bool stop = false;
};

/// When fit() ends, and what it calls. Without `steps` it ends after `epochs`, 1 by default; with both, after whichever
/// comes first.
struct FitOptions {
  std::int64_t epochs = 0;  ///< passes over the batches; 0: as many as `steps` take
  std::int64_t steps = 0;   ///< ends when the state was trained for so many steps in all; 0: when the epochs end
  /// The learning rate of a step, counted from 0, such as optim::warmup_cosine; empty: that of the optimizer stays.
  std::function<double(std::int64_t step)> learning_rate{};
  std::function<void(StepReport&)> after_step{};    ///< for progress, logs, checkpoints
  std::function<void(EpochReport&)> after_epoch{};  ///< for evaluations
};

namespace detail {
inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class State> void set_learning_rate(State& state, double rate, Here at) {
  if constexpr (requires { state.optimizer.learning_rate = rate; })
    state.optimizer.learning_rate = rate;
  else
    fail(errc::option, "[fit] learning_rate: ", rate, ", but the state has no optimizer.learning_rate",
         Source::from(at));
}
}  // namespace detail

/// A training loop: calls step(state, batch...) for the batches of each epoch, which returns StepMetrics, and hooks in
/// between. A loop by hand can do the same.
///
///     ts::train::fit(state, step, loader, {.epochs = 3, .after_step = ts::train::PrintProgress()});
///
/// `batches` is a DataLoader, or another range; an epoch is one loop over it. Items of a tuple are arguments of their
/// own. The state is a TrainState, or a struct of your own with a field `step` that `step` counts up, and for a
/// schedule `optimizer.learning_rate`. Errors: option for negative numbers, and for an epoch without batches; what a
/// step, a hook or the loader throws, after which the state is that of the last step. Communication: that of the steps.
template <class State, class Step, class Batches>
void fit(State& state, const Step& step, Batches&& batches, const FitOptions& options = {}, Here at = Here::current()) {
  using Clock = std::chrono::steady_clock;
  if (options.epochs < 0 || options.steps < 0)
    fail(errc::option, "[fit] epochs, steps: ", options.epochs, " and ", options.steps, " are not both 0 or more",
         Source::from(at));
  const std::int64_t epochs = options.epochs == 0 && options.steps == 0 ? 1 : options.epochs;
  const auto ended = [&] { return options.steps > 0 && state.step >= options.steps; };

  StepReport report;
  bool empty = false;  // An epoch without batches is the end of one that a call before has used up; two are an error.
  for (; !ended() && !report.stop && (epochs == 0 || report.epoch <= epochs);) {
    EpochReport epoch{.epoch = report.epoch};
    Clock::time_point start = Clock::now();
    // The end comes before the next batch is taken, which the next call finds.
    const auto last = batches.end();
    for (auto it = batches.begin(); it != last; ++it) {
      const auto& batch = *it;
      report.loading_seconds = detail::seconds_since(start);
      start = Clock::now();
      if (options.learning_rate)
        detail::set_learning_rate(state, report.learning_rate = options.learning_rate(state.step), at);
      report.metrics = detail::call_with_batch(step, batch, state);
      report.seconds = detail::seconds_since(start);
      report.step = state.step;
      report.rows = detail::rows_of(batch);
      ++epoch.steps;
      epoch.rows += report.rows;
      epoch.loss += report.metrics.loss * static_cast<double>(report.rows);
      if (options.after_step) options.after_step(report);
      if (ended() || report.stop) break;
      start = Clock::now();
    }
    if (epoch.steps == 0) {
      if (empty) fail(errc::option, "[fit] batches: there are none", Source::from(at));
      empty = true;
      continue;
    }
    empty = false;
    ++report.epoch;
    epoch.loss /= static_cast<double>(epoch.rows);
    if (options.after_epoch) options.after_epoch(epoch);
    report.stop |= epoch.stop;
  }
}

}  // namespace tessera::train

#include <tessera/base/pop_macros.hpp>

#endif
