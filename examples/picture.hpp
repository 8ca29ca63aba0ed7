#ifndef EXAMPLES_PICTURE_HPP
#define EXAMPLES_PICTURE_HPP

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

/// Pictures that the examples write: panels side by side, each with a title, of points or of a grid of values.
namespace examples {

class Picture {
 public:
  explicit Picture(int panels) : panels_(panels) {
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" font-size=\"13\">\n",
        panels * (side + gap) + gap, side + 2 * gap + title_height);
    text_ += "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  }

  /// Begins the next panel, whose coordinates are -1 to 1 in both directions, y upwards.
  void panel(const std::string& title) {
    if (next_ == panels_) throw std::logic_error("a picture has fewer panels than were begun");
    left_ = gap + next_++ * (side + gap);
    add("<text x=\"%g\" y=\"%g\" fill=\"#1d2433\">%s</text>\n", left_, gap + 8, title.c_str());
    add("<rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" fill=\"none\" stroke=\"#d5d9e0\"/>\n", left_, top, side, side);
  }

  /// A dot of the panel; `kind` selects the color.
  void point(double x, double y, int kind, double radius = 1.6) {
    static constexpr const char* colors[] = {"#2f6fde", "#d9542b", "#1f9d63", "#8b4fc9", "#c99a1b", "#4b5563"};
    if (std::abs(x) > 1 || std::abs(y) > 1) return;
    add("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\" fill=\"%s\"/>\n", left_ + side * (1 + x) / 2, top + side * (1 - y) / 2,
        radius, colors[static_cast<std::size_t>(kind) % std::size(colors)]);
  }

  /// A matrix [rows, columns] of values from 0 (white) to 1 (red), in 64 colors; neighbours of one color are one rectangle.
  void grid(const std::vector<float>& values, int rows, int columns) {
    const double height = side / rows, width = side / columns;
    const auto color = [&](int r, int c) {
      const double value = values[static_cast<std::size_t>(r * columns + c)];
      return static_cast<int>(std::lround(63 * std::fmin(1, std::fmax(0, value))));
    };
    text_ += "<g shape-rendering=\"crispEdges\">\n";
    for (int r = 0; r < rows; ++r)
      for (int c = 0, end = 0; c < columns; c = end) {
        for (end = c + 1; end < columns && color(r, end) == color(r, c);) ++end;
        const double value = color(r, c) / 63.0;
        if (value == 0) continue;
        add("<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"#%02x%02x%02x\"/>\n",
            left_ + c * width, top + r * height, (end - c) * width, height, 255 - static_cast<int>(35 * value * value),
            255 - static_cast<int>(215 * value), 255 - static_cast<int>(225 * std::sqrt(value)));
      }
    text_ += "</g>\n";
  }

  void write(const std::string& path) const {
    std::ofstream file(path);
    file << text_ << "</svg>\n";
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
    std::printf("wrote %s\n", path.c_str());
  }

 private:
  static constexpr double side = 260, gap = 16, title_height = 12, top = gap + title_height + 4;

  int panels_, next_ = 0;
  double left_ = 0;
  std::string text_;

  template <class First, class... Args> void add(const char* pattern, First first, Args... args) {
    char line[400];
    std::snprintf(line, sizeof line, pattern, first, args...);
    text_ += line;
  }
};

}  // namespace examples

#endif
