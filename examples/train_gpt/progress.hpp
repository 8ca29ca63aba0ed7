#ifndef TRAIN_GPT_PROGRESS_HPP
#define TRAIN_GPT_PROGRESS_HPP

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "text.hpp"
#include <sys/ioctl.h>
#include <unistd.h>

namespace train_gpt {

/// The progress of a run after a step.
struct Moment {
  int step = 0, steps = 0;
  double loss = 0, tokens_per_second = 0, seconds_left = 0;
};

inline std::string figures_text(const Moment& m) {
  char loss[32];
  std::snprintf(loss, sizeof loss, "loss %.4f", m.loss);
  return std::string(loss) + "  " + grouped(std::llround(m.tokens_per_second)) + " tokens/s  ETA " +
         duration_text(m.seconds_left);
}

/// One line of at most `columns` columns: a bar and the figures, or the figures alone where there is no room for a bar.
inline std::string bar_text(const Moment& m, int columns) {
  const std::string total = std::to_string(m.steps), step = std::to_string(m.step);
  const std::string count = std::string(total.size() - step.size(), ' ') + step + "/" + total,
                    figures = figures_text(m);
  const int used = static_cast<int>(count.size() + figures.size()) + 4, width = std::min(40, columns - used);
  if (width < 8) return (count + "  " + figures).substr(0, static_cast<std::size_t>(std::max(0, columns)));
  const auto filled = static_cast<int>(static_cast<std::int64_t>(m.step) * width / std::max(1, m.steps));
  std::string bar;
  for (int i = 0; i < width; ++i) bar += i < filled ? "█" : "░";
  return count + "  " + bar + "  " + figures;
}

/// Prints the progress of a run: on a terminal a bar that is redrawn, otherwise about twenty lines in the whole run.
class Progress {
 public:
  Progress(int steps, std::int64_t tokens_per_step, std::FILE* out = stdout)
      : steps_(steps), tokens_(static_cast<double>(tokens_per_step)), out_(out), terminal_(isatty(fileno(out)) != 0) {}

  /// Reports step `step`, counted from 1, which took `seconds`.
  void add(int step, double loss, double seconds) {
    // The first step includes planning, so its time is not used for later steps.
    rate_ = step <= 2 ? seconds : 0.9 * rate_ + 0.1 * seconds;
    const Moment moment{step, steps_, loss, tokens_ / rate_, rate_ * (steps_ - step)};
    const bool last = step == steps_;
    if (terminal_) {
      const auto now = std::chrono::steady_clock::now();
      if (!last && drawn_ && now - last_drawn_ < std::chrono::milliseconds(80)) return;
      last_drawn_ = now;
      drawn_ = true;
      std::fprintf(out_, "\r%s\033[K", bar_text(moment, columns()).c_str());
    } else if (last || step == 1 || step % std::max(1, steps_ / 20) == 0) {
      std::fprintf(out_, "step %d/%d  %s\n", step, steps_, figures_text(moment).c_str());
    }
    std::fflush(out_);
  }

  /// Ends the line of the bar, so that further output begins on a new line.
  void end() {
    if (terminal_ && drawn_) std::fputs("\n", out_);
    drawn_ = false;
  }

 private:
  int steps_;
  double tokens_, rate_ = 0;
  std::FILE* out_;
  bool terminal_, drawn_ = false;
  std::chrono::steady_clock::time_point last_drawn_{};

  int columns() const {
    winsize size{};
    return ioctl(fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  }
};

}  // namespace train_gpt

#endif
