#ifndef EXAMPLES_DIGITS_CNN_DRAW_DIGITS_HPP
#define EXAMPLES_DIGITS_CNN_DRAW_DIGITS_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <random>
#include <utility>
#include <vector>

#include "digits.hpp"

/// Images of digits like those of MNIST, so that the example needs no download: the strokes of each digit, moved,
/// rotated, slanted and scaled at random, and drawn with a pen of random width. The same seed draws the same images
/// everywhere.
namespace digits_cnn {

struct Point {
  double x, y;  // from -1 to 1, to the right and down
};
using Stroke = std::vector<Point>;

/// An arc of an ellipse around (x, y), from an angle to another in degrees: 0 is right, 90 down, 180 left, 270 up.
inline Stroke arc(double x, double y, double width, double height, double from, double to) {
  Stroke points;
  for (int i = 0; i <= 16; ++i) {
    const double angle = (from + (to - from) * i / 16) * std::numbers::pi / 180;
    points.push_back({x + width * std::cos(angle), y + height * std::sin(angle)});
  }
  return points;
}

inline std::vector<Stroke> strokes_of(int digit) {
  switch (digit) {
    case 0:
      return {arc(0, 0, 0.6, 1, 0, 360)};
    case 1:
      return {Stroke{{-0.35, -0.55}, {0.05, -1}, {0.05, 1}}};
    case 2:
      return {arc(0, -0.45, 0.55, 0.55, 180, 400), Stroke{{0.42, -0.1}, {-0.55, 1}, {0.6, 1}}};
    case 3:
      return {arc(0, -0.5, 0.5, 0.5, 200, 450), arc(0, 0.5, 0.58, 0.5, 270, 510)};
    case 4:
      return {Stroke{{0.3, 1}, {0.3, -1}, {-0.6, 0.4}, {0.65, 0.4}}};
    case 5:
      return {Stroke{{0.5, -1}, {-0.42, -1}, {-0.46, -0.05}}, arc(0, 0.4, 0.58, 0.6, 220, 500)};
    case 6:
      return {Stroke{{0.4, -1}, {-0.1, -0.7}, {-0.45, -0.15}, {-0.55, 0.45}}, arc(0, 0.45, 0.55, 0.55, 180, 540)};
    case 7:
      return {Stroke{{-0.6, -1}, {0.6, -1}, {-0.1, 1}}};
    case 8:
      return {arc(0, -0.5, 0.45, 0.5, 0, 360), arc(0, 0.5, 0.55, 0.5, 0, 360)};
    default:
      return {arc(0, -0.45, 0.55, 0.55, 0, 360), Stroke{{0.55, -0.45}, {0.5, 0.2}, {0.2, 1}}};
  }
}

inline double distance(Point p, Point a, Point b) {
  const double dx = b.x - a.x, dy = b.y - a.y, length = dx * dx + dy * dy;
  const double along = length > 0 ? std::clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / length, 0.0, 1.0) : 0;
  return std::hypot(p.x - a.x - along * dx, p.y - a.y - along * dy);
}

inline Digits draw_digits(std::size_t count, std::uint32_t seed) {
  constexpr std::size_t side = 28;
  std::mt19937 random(seed);
  // The distributions of the standard library differ from one library to another.
  const auto between = [&](double low, double high) { return low + (high - low) * (random() / 0x1p32); };
  std::vector<std::uint8_t> pixels, labels;
  pixels.reserve(count * side * side);
  for (std::size_t n = 0; n < count; ++n) {
    const int digit = static_cast<int>(random() % 10);
    labels.push_back(static_cast<std::uint8_t>(digit));
    const double angle = between(-0.4, 0.4), slant = between(-0.4, 0.4), pen = between(0.7, 1.8);
    const double width = between(7, 10), height = between(8, 10.5), x = between(11.5, 15.5), y = between(11.5, 15.5);
    std::vector<Stroke> strokes = strokes_of(digit);
    for (Stroke& stroke : strokes)
      for (Point& p : stroke) {
        const double wobble_x = between(-0.12, 0.12), wobble_y = between(-0.12, 0.12);
        const double px = (p.x + slant * p.y + wobble_x) * width, py = (p.y + wobble_y) * height;
        p = {x + px * std::cos(angle) - py * std::sin(angle), y + px * std::sin(angle) + py * std::cos(angle)};
      }
    for (std::size_t row = 0; row < side; ++row)
      for (std::size_t column = 0; column < side; ++column) {
        double nearest = side;
        for (const Stroke& stroke : strokes)
          for (std::size_t i = 1; i < stroke.size(); ++i)
            nearest = std::min(nearest, distance({double(column), double(row)}, stroke[i - 1], stroke[i]));
        const double ink = std::clamp(pen - nearest + 0.5, 0.0, 1.0) + between(-0.3, 0.3);
        pixels.push_back(static_cast<std::uint8_t>(std::lround(255 * std::clamp(ink, 0.0, 1.0))));
      }
  }
  return {tessera::data::array(std::move(pixels), {count, side, side}), tessera::data::array(std::move(labels))};
}

}  // namespace digits_cnn

#endif
