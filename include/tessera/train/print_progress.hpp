#ifndef TESSERA_TRAIN_PRINT_PROGRESS_HPP
#define TESSERA_TRAIN_PRINT_PROGRESS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <cstdio>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/train/fit.hpp>

namespace tessera::train {

/// A hook that prints a line after the first step, and after every `every` steps:
///
///     step 200  epoch 2  loss 0.0891  norm 0.417  rate 0.0009  12345 rows/s
/// The speed is that since the last line, including the time for loading. `norm` is printed if steps clip, `rate` if
/// there is a schedule.
class PrintProgress {
 public:
  /// Errors: `option` for a number of steps below 1 and for a file that is null.
  explicit PrintProgress(std::int64_t every = 100, std::FILE* out = stdout, Here at = Here::current())
      : every_(every), out_(out) {
    if (every < 1) fail(errc::option, "[PrintProgress] every: ", every, " is below 1", Source::from(at));
    if (out == nullptr) fail(errc::option, "[PrintProgress] out: the file is null", Source::from(at));
  }

  void operator()(const StepReport& report) {
    rows_ += report.rows;
    seconds_ += report.loading_seconds + report.seconds;
    if (report.step != 1 && report.step % every_ != 0) return;
    std::fprintf(out_, "step %lld  epoch %lld  loss %.4g", static_cast<long long>(report.step),
                 static_cast<long long>(report.epoch), report.metrics.loss);
    if (report.metrics.gradient_norm != 0) std::fprintf(out_, "  norm %.3g", report.metrics.gradient_norm);
    if (report.learning_rate > 0) std::fprintf(out_, "  rate %.3g", report.learning_rate);
    std::fprintf(out_, "  %.0f rows/s\n", seconds_ > 0 ? static_cast<double>(rows_) / seconds_ : 0.0);
    std::fflush(out_);
    rows_ = 0;
    seconds_ = 0;
  }

 private:
  std::int64_t every_, rows_ = 0;
  double seconds_ = 0;
  std::FILE* out_;
};

}  // namespace tessera::train

#include <tessera/base/pop_macros.hpp>

#endif
