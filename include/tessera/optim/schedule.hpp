#ifndef TESSERA_OPTIM_SCHEDULE_HPP
#define TESSERA_OPTIM_SCHEDULE_HPP
#include <tessera/base/push_macros.hpp>

#include <cmath>
#include <cstdint>
#include <numbers>

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

}  // namespace tessera::optim

#include <tessera/base/pop_macros.hpp>

#endif
