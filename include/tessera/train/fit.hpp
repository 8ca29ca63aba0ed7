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

/// The argument of a hook that fit() calls after each step. A hook that sets `stop` ends training.
struct StepReport {
  std::int64_t step = 0;   ///< the number of steps that the state was trained for, including this one
  std::int64_t epoch = 1;  ///< of this call of fit(), counted from 1
  std::int64_t rows = 0;   ///< of the batch: the extent of dim 0 of its first tensor
  StepMetrics metrics;
  double learning_rate = 0;    ///< that of the schedule; 0 without a schedule
  double loading_seconds = 0;  ///< spent waiting for the batch
  double seconds = 0;          ///< spent in the step
  bool stop = false;
};

/// The argument of a hook that fit() calls after each epoch. A hook that sets `stop` ends training.
struct EpochReport {
  std::int64_t epoch = 0, steps = 0, rows = 0;  ///< steps and rows of this epoch
  double loss = 0;                              ///< the mean over rows
  bool stop = false;
};

/// When fit() ends, and what it calls. Without `steps`, it ends after `epochs`, by default 1; with both, after the
/// first of them.
struct FitOptions {
  std::int64_t epochs = 0;  ///< passes over the batches; 0: as many as `steps` take
  std::int64_t steps = 0;   ///< ends when the state was trained for this total of steps; 0: when the epochs end
  /// The learning rate of a step, counted from 0, such as optim::warmup_cosine; empty: the learning rate is not
  /// changed.
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

/// A training loop: calls step(state, batch...), which returns StepMetrics, for the batches of each epoch, and calls
/// hooks after steps and epochs.
///
///     ts::train::fit(state, step, loader, {.epochs = 3, .after_step = ts::train::PrintProgress()});
/// `batches` is a DataLoader, or another range; an epoch is one loop over it. Each item of a tuple is an argument of
/// the step. The state is a TrainState, or your own struct with a field `step` that the step increments, and, for a
/// schedule, `optimizer.learning_rate`. Errors: option for negative numbers, and for an epoch without batches;
/// exceptions of a step, a hook or the loader, after which the state is that after the last completed step.
/// Communication: that of the steps.
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
