#ifndef TESSERA_OPTIM_AVERAGE_HPP
#define TESSERA_OPTIM_AVERAGE_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/function_call.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/optim/update.hpp>

namespace tessera {

namespace optim {

/// Inside a traced function: the next exponential moving average (EMA) of the parameters, decay a + (1 - decay) p.
/// `average` starts as a copy of the model. Communication: none; the averages are sharded like the parameters. Source:
/// Polyak, Juditsky, SIAM J. Control Optim. 30 (1992), as torch.optim.swa_utils.get_ema_avg_fn.
///
///     average = ts::optim::moving_average(average, model, 0.999);
template <class Model>
constexpr Model moving_average(const Model& average, const Model& model, const Scalar& decay,
                               Here at = Here::current()) {
  detail::require_traced("moving_average", "ts::optim::moving_average", Source::from(at), average, model);
  const tessera::detail::FunctionCall named("moving_average", average);
  return std::get<0>(detail::update_parameters(
      at, [&](const auto& x, Value a, Value p) { return std::tuple(x(decay) * a + x(1.0 - x.wide(decay)) * p); },
      average, model));
}

/// Inside a traced function: the mean of `count` past models and this one (SWA), a + (p - a) / (count + 1).
/// Communication: as moving_average. Source: Izmailov et al., 1803.05407, as torch.optim.swa_utils.AveragedModel.
template <class Model>
constexpr Model mean_of_models(const Model& average, const Model& model, const Scalar& count,
                               Here at = Here::current()) {
  detail::require_traced("mean_of_models", "ts::optim::mean_of_models", Source::from(at), average, model);
  const tessera::detail::FunctionCall named("mean_of_models", average);
  return std::get<0>(detail::update_parameters(
      at, [&](const auto& x, Value a, Value p) { return std::tuple(a + x(1.0 / (x.wide(count) + 1)) * (p - a)); },
      average, model));
}

}  // namespace optim

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
