#ifndef TRAIN_GPT_CHART_HPP
#define TRAIN_GPT_CHART_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text.hpp"

namespace train_gpt {

/// The ticks of an axis, at round numbers: the first is at or below `low`, the last at or above `high`.
struct Ticks {
  double first = 0, step = 1;
  int count = 2;

  double operator[](int i) const { return first + step * i; }
  double last() const { return first + step * (count - 1); }

  static Ticks around(double low, double high, int about, double least_step = 0) {
    if (!(high - low > 1e-9 * std::max(1.0, std::abs(high)))) low -= 0.5, high += 0.5;
    const double rough = std::max(least_step, (high - low) / about),
                 power = std::pow(10, std::floor(std::log10(rough)));
    double step = 10 * power;
    for (const double nice : {5.0, 2.0, 1.0})
      if (nice * power >= rough * 0.999) step = nice * power;
    // The slack avoids a further tick where `high` equals a tick up to rounding.
    const double begin = std::floor(low / step + 1e-9), end = std::ceil(high / step - 1e-9);
    return {begin * step, step, static_cast<int>(end - begin) + 1};
  }
};

/// A loss curve as SVG: a light line with every step, and a strong line with their moving average.
class LossChart {
 public:
  LossChart(std::string title, std::string subtitle, std::string unit = "cross-entropy, nats a character")
      : title_(std::move(title)), subtitle_(std::move(subtitle)), unit_(std::move(unit)) {}

  std::string svg(const std::vector<double>& losses) const {
    std::vector<double> finite;
    std::copy_if(losses.begin(), losses.end(), std::back_inserter(finite), [](double x) { return std::isfinite(x); });
    if (finite.empty()) finite.push_back(0);
    const auto [low, high] = std::minmax_element(finite.begin(), finite.end());
    const double steps = std::max(1.0, static_cast<double>(losses.size()));
    const Frame frame{Ticks::around(0, steps, 8, 1), Ticks::around(*low, *high, 6), steps};

    std::string out = begin();
    add_axes(out, frame);
    const std::vector<double> smooth = moving_average(losses);
    add_line(out, frame, losses, "raw");
    add_line(out, frame, smooth, "smooth");
    if (!smooth.empty() && std::isfinite(smooth.back())) add_last(out, frame, smooth.back());
    add_legend(out);
    return out + "</svg>\n";
  }

 private:
  static constexpr double width = 800, height = 460, left = 72, right = 728, top = 84, bottom = 392;

  struct Frame {
    Ticks steps, loss;
    double x_end = 1;
    double x(double step) const { return left + (right - left) * step / x_end; }
    double y(double value) const { return bottom - (bottom - top) * (value - loss.first) / (loss.last() - loss.first); }
  };

  std::string title_, subtitle_, unit_;

  template <class... Args> static std::string format(const char* pattern, Args... args) {
    char text[512];
    std::snprintf(text, sizeof text, pattern, args...);
    return text;
  }
  static std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
      if (c == '&')
        out += "&amp;";
      else if (c == '<')
        out += "&lt;";
      else if (c == '>')
        out += "&gt;";
      else
        out += c;
    }
    return out;
  }

  /// The average of each step and its neighbours, a twentieth of the run, so that runs of 50 and of 50,000 steps look
  /// alike. Near the beginning, where the loss falls fast, a shorter window has as many steps before as after.
  static std::vector<double> moving_average(const std::vector<double>& values) {
    const std::size_t n = values.size();
    std::vector<double> sums{0}, out;
    std::vector<int> counts{0};
    for (const double value : values) {
      sums.push_back(sums.back() + (std::isfinite(value) ? value : 0));
      counts.push_back(counts.back() + (std::isfinite(value) ? 1 : 0));
    }
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t reach = std::min(n / 40, i), begin = i - reach, end = std::min(n, i + reach + 1);
      const int count = counts[end] - counts[begin];
      out.push_back(count > 0 ? (sums[end] - sums[begin]) / count : NAN);
    }
    return out;
  }

  std::string begin() const {
    std::string out = format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" height=\"%g\" role=\"img\" "
        "font-family=\"system-ui, -apple-system, 'Segoe UI', sans-serif\" font-size=\"13\">\n",
        width, height, width, height);
    out += "<title>" + escaped(title_) + "</title>\n";
    out += "<style>.grid{stroke:#e7e9ee}.axis{stroke:#8b93a3}.tick{fill:#5b6375}.name{fill:#1d2433}"
           ".raw,.smooth{fill:none;stroke:#2f6fde;stroke-linejoin:round;stroke-linecap:round}"
           ".raw{stroke-width:1;opacity:.35}.smooth{stroke-width:2.5}.last{fill:#2f6fde}</style>\n";
    out += format("<rect width=\"%g\" height=\"%g\" rx=\"10\" fill=\"#fff\"/>\n", width, height);
    out += format("<text class=\"name\" x=\"%g\" y=\"38\" font-size=\"19\" font-weight=\"600\">", left) +
           escaped(title_) + "</text>\n";
    out += format("<text class=\"tick\" x=\"%g\" y=\"60\">", left) + escaped(subtitle_) + "</text>\n";
    return out;
  }

  void add_axes(std::string& out, const Frame& frame) const {
    for (int i = 0; i < frame.loss.count; ++i) {
      const double y = frame.y(frame.loss[i]);
      out += format("<line class=\"%s\" x1=\"%g\" y1=\"%.1f\" x2=\"%g\" y2=\"%.1f\"/>\n", i == 0 ? "axis" : "grid",
                    left, y, right, y);
      out += format("<text class=\"tick\" x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n", left - 10, y + 4.5,
                    std::abs(frame.loss[i]) < 1e-9 * frame.loss.step ? 0.0 : frame.loss[i]);
    }
    for (int i = 0; i < frame.steps.count && frame.steps[i] <= frame.x_end; ++i) {
      const double x = frame.x(frame.steps[i]);
      out += format("<line class=\"axis\" x1=\"%.1f\" y1=\"%g\" x2=\"%.1f\" y2=\"%g\"/>\n", x, bottom, x, bottom + 5);
      out += format("<text class=\"tick\" x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%s</text>\n", x, bottom + 22,
                    grouped(std::llround(frame.steps[i])).c_str());
    }
    out += format("<text class=\"name\" x=\"%g\" y=\"%g\" text-anchor=\"middle\">training step</text>\n",
                  (left + right) / 2, bottom + 50);
    out += format("<text class=\"name\" transform=\"translate(24 %g) rotate(-90)\" text-anchor=\"middle\">",
                  (top + bottom) / 2) +
           escaped(unit_) + "</text>\n";
  }

  /// Steps are counted from 1. Of a long run each stretch of a few steps is drawn as its smallest and largest
  /// loss, so that no spike is lost.
  static void add_line(std::string& out, const Frame& frame, const std::vector<double>& values, const char* style) {
    const std::size_t stretch = std::max<std::size_t>(1, values.size() / 330);
    std::string path;
    bool pen_down = false;
    const auto draw_to = [&](std::size_t i) {
      const bool drawn = std::isfinite(values[i]);
      if (drawn)
        path += format("%s%.1f %.1f", pen_down ? "L" : "M", frame.x(static_cast<double>(i + 1)), frame.y(values[i]));
      pen_down = drawn;
    };
    for (std::size_t i = 0; i < values.size(); i += stretch) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i);
      const auto [low, high] =
          std::minmax_element(begin, begin + static_cast<std::ptrdiff_t>(std::min(stretch, values.size() - i)));
      const auto low_at = static_cast<std::size_t>(low - values.begin()),
                 high_at = static_cast<std::size_t>(high - values.begin());
      draw_to(std::min(low_at, high_at));
      if (low_at != high_at) draw_to(std::max(low_at, high_at));
    }
    if (!path.empty()) out += std::string("<path class=\"") + style + "\" d=\"" + path + "\"/>\n";
  }

  static void add_legend(std::string& out) {
    const char* styles[] = {"raw", "smooth"};
    const char* names[] = {"each step", "average"};
    for (int i = 0; i < 2; ++i) {
      const double x = right - 190 + 110 * i, y = top - 28;
      out += format("<path class=\"%s\" d=\"M%g %gh22\"/>\n", styles[i], x, y);
      out += format("<text class=\"tick\" x=\"%g\" y=\"%g\">%s</text>\n", x + 29, y + 4.5, names[i]);
    }
  }

  static void add_last(std::string& out, const Frame& frame, double value) {
    const double x = frame.x(frame.x_end), y = frame.y(value);
    out += format("<circle class=\"last\" cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\"/>\n", x, y);
    out +=
        format("<text class=\"last\" x=\"%.1f\" y=\"%.1f\" font-weight=\"600\">%.3f</text>\n", x + 9, y + 4.5, value);
  }
};

}  // namespace train_gpt

#endif
