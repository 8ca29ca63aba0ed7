#ifndef TESSERA_OPTIM_SCHEDULE_SCHEDULE_HPP
#define TESSERA_OPTIM_SCHEDULE_SCHEDULE_HPP
#include <tessera/base/push_macros.hpp>

#include <cmath>
#include <cstdint>
#include <numbers>

#include <tessera/base/error.hpp>

namespace tessera::optim {

/// A learning rate that grows linearly for `warmup` steps, from peak / warmup at step 0 to `peak`, then falls along
/// half a cosine to `floor` at step `total`, and stays there. Computed on the host and passed to a program as a Scalar.
/// Source: Loshchilov, Hutter, 1608.03983, without restarts.
inline double warmup_cosine(std::int64_t step, std::int64_t warmup, std::int64_t total, double peak, double floor = 0) {
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (step >= total) return floor;
  const double done = static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
  return floor + (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

/// rate factor^n after n `every` steps, as torch.optim.lr_scheduler.StepLR. Errors: option unless `every` is above 0.
inline double step_decay(std::int64_t step, std::int64_t every, double rate, double factor = 0.1) {
  if (every < 1) fail(errc::option, "[step_decay] every: ", every, " steps are not above 0");
  return rate * std::pow(factor, static_cast<double>(step / every));
}

/// A rate that grows linearly to `peak` at step `warmup`, then falls as 1 / sqrt(step). Source: Vaswani et al.,
/// 1706.03762, section 5.3, whose peak is 1 / sqrt(features warmup).
inline double inverse_root(std::int64_t step, std::int64_t warmup, double peak) {
  const double first = warmup < 1 ? 1 : static_cast<double>(warmup), at = static_cast<double>(step);
  return at < first ? peak * at / first : peak * std::sqrt(first / at);
}

/// rate factor^step, as torch.optim.lr_scheduler.ExponentialLR.
inline double exponential(std::int64_t step, double rate, double factor) {
  return rate * std::pow(factor, static_cast<double>(step));
}

/// rate (1 - step / total)^power down to 0 at step `total`, as torch.optim.lr_scheduler.PolynomialLR. Errors: option
/// unless `total` is above 0.
inline double polynomial(std::int64_t step, std::int64_t total, double rate, double power = 1) {
  if (total < 1) fail(errc::option, "[polynomial] total: ", total, " steps are not above 0");
  return step >= total ? 0 : rate * std::pow(1 - static_cast<double>(step) / static_cast<double>(total), power);
}

/// A half cosine from peak to floor that restarts: the first takes `period` steps, each following one `factor` times as
/// many, as torch.optim.lr_scheduler.CosineAnnealingWarmRestarts. Errors: option unless period and factor are above 0.
/// Source: Loshchilov, Hutter, 1608.03983.
inline double cosine_restarts(std::int64_t step, std::int64_t period, double peak, std::int64_t factor = 1,
                              double floor = 0) {
  if (period < 1 || factor < 1)
    fail(errc::option, "[cosine_restarts] period, factor: ", period, " and ", factor, " are not both above 0");
  if (factor == 1) step %= period;
  for (; step >= period; period *= factor) step -= period;
  const double done = static_cast<double>(step) / static_cast<double>(period);
  return floor + (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

/// Half a cosine from peak / start up to `peak`, reached after `rising` of the steps, then half a cosine down to
/// peak / (start * end) at step total - 1, as torch.optim.lr_scheduler.OneCycleLR. Source: Smith, Topin, 1708.07120.
inline double one_cycle(std::int64_t step, std::int64_t total, double peak, double rising = 0.3, double start = 25,
                        double end = 1e4) {
  const auto cosine = [](double from, double to, double done) {
    return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * done));
  };
  const double turn = rising * static_cast<double>(total) - 1, last = static_cast<double>(total - 1);
  const double at = static_cast<double>(step) < last ? static_cast<double>(step) : last;
  if (at <= turn) return turn > 0 ? cosine(peak / start, peak, at / turn) : peak;
  return cosine(peak, peak / start / end, (at - turn) / (last - turn));
}

/// The schedule `first` up to a step, then `second`, which counts its steps from there, as optax.join_schedules and
/// torch.optim.lr_scheduler.SequentialLR. A schedule is a function of the step.
///
///     chained(step, 100, [](auto s) { return 1e-5 * s; }, [](auto s) { return ts::optim::step_decay(s, 30, 1e-3); })
template <class First, class Second>
double chained(std::int64_t step, std::int64_t until, const First& first, const Second& second) {
  return step < until ? first(step) : second(step - until);
}

}  // namespace tessera::optim

#include <tessera/base/pop_macros.hpp>

#endif
