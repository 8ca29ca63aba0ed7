#ifndef TESSERA_TRAIN_EVALUATE_HPP
#define TESSERA_TRAIN_EVALUATE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/train/batch.hpp>

namespace tessera::train {

/// The mean of metric(model, batch...) over the rows of all batches of one epoch. The metric is a compiled function
/// that returns a tensor of one element, the mean over the rows of a batch; batches are weighted by their rows.
///
///     constexpr auto accuracy = ts::compile([](auto model, auto x, auto labels) {
///       return ts::mean(ts::cast<float>(ts::equal(ts::argmax<1>(model(x)), labels)));
///     });
///     const double share = ts::train::evaluate(accuracy, state.model, tests);
/// Errors: option if there are no batches; those of the metric. Communication: that of the metric.
template <class Metric, class Model, class Batches>
double evaluate(const Metric& metric, const Model& model, Batches&& batches, Here at = Here::current()) {
  double sum = 0;
  std::int64_t rows = 0;
  for (const auto& batch : batches) {
    const std::int64_t own = detail::rows_of(batch);
    sum += static_cast<double>(own) * static_cast<double>(item(detail::call_with_batch(metric, batch, model)));
    rows += own;
  }
  if (rows == 0) fail(errc::option, "[evaluate] batches: there are none", Source::from(at));
  return sum / static_cast<double>(rows);
}

}  // namespace tessera::train

#include <tessera/base/pop_macros.hpp>

#endif
