#ifndef TESSERA_OPTIM_SCHEDULE_REDUCE_ON_PLATEAU_HPP
#define TESSERA_OPTIM_SCHEDULE_REDUCE_ON_PLATEAU_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include <tessera/base/error.hpp>

namespace tessera::optim {

/// Options of reduce_on_plateau, with the names and defaults of torch.optim.lr_scheduler.ReduceLROnPlateau.
struct PlateauOptions {
  bool maximize = false;       ///< a larger metric is better, as mode="max"
  double factor = 0.1;         ///< the next rate is the rate times this
  std::int64_t patience = 10;  ///< the number of consecutive metrics that may be no better
  double threshold =
      1e-4;              ///< a metric is better below best (1 - threshold), with `maximize` above best (1 + threshold)
  bool relative = true;  ///< false: best - threshold, best + threshold, as threshold_mode="abs"
  std::int64_t cooldown = 0;  ///< the number of metrics that are ignored after a reduction
  double min_rate = 0;        ///< the smallest rate, min_lr
  double epsilon = 1e-8;      ///< smaller changes of the rate are not made
};

/// The current rate, and the state of reduce_on_plateau. Begin with `{.rate = 1e-3}`.
struct Plateau {
  double rate = 0;
  std::optional<double> best{};  ///< the best metric so far
  std::int64_t bad = 0;          ///< how many metrics since then were no better
  std::int64_t cooling = 0;      ///< how many of the next metrics are not counted
};

/// A learning rate that is multiplied by a factor when a metric, such as the validation loss, has stopped improving.
/// Computed on the host, like the other schedules, and passed to a program as a Scalar. NaN is not an improvement.
/// Errors: option unless the factor is below 1. Source: torch.optim.lr_scheduler.ReduceLROnPlateau.
///
///     ts::optim::Plateau plateau{.rate = 1e-3};
///     // after each epoch
///     plateau = ts::optim::reduce_on_plateau(plateau, validation_loss, {.factor = 0.5, .patience = 3});
///     config.learning_rate = plateau.rate;
inline Plateau reduce_on_plateau(const Plateau& now, double metric, const PlateauOptions& options = {}) {
  if (!(options.factor < 1)) fail(errc::option, "[reduce_on_plateau] factor: ", options.factor, " is not below 1");
  const double worst = std::numeric_limits<double>::infinity() * (options.maximize ? -1 : 1);
  const double best = now.best.value_or(worst), sign = options.maximize ? 1 : -1;
  const double bound = options.relative ? best * (1 + sign * options.threshold) : best + sign * options.threshold;
  Plateau next = now;
  if (options.maximize ? metric > bound : metric < bound)
    next.best = metric, next.bad = 0;
  else
    ++next.bad;
  if (next.cooling > 0) --next.cooling, next.bad = 0;
  if (next.bad > options.patience) {
    const double reduced = std::max(now.rate * options.factor, options.min_rate);
    if (now.rate - reduced > options.epsilon) next.rate = reduced;
    next.cooling = options.cooldown;
    next.bad = 0;
  }
  return next;
}

}  // namespace tessera::optim

#include <tessera/base/pop_macros.hpp>

#endif
