#ifndef EXAMPLES_DIGITS_CNN_DIGITS_HPP
#define EXAMPLES_DIGITS_CNN_DIGITS_HPP

#include <cstdint>
#include <stdexcept>
#include <string>

#include <tessera/data/data.hpp>

namespace digits_cnn {

/// Images [count, height, width] of bytes, and the label of each.
struct Digits {
  tessera::data::Array<std::uint8_t, 2> images;
  tessera::data::Array<std::uint8_t, 0> labels;

  std::int64_t count() const { return images.rows(); }
  std::int64_t height() const { return images.row_shape()[0]; }
  std::int64_t width() const { return images.row_shape()[1]; }
};

/// Images and labels of two IDX files, the format of MNIST. Throws for files that are none, where their numbers differ,
/// and for labels above 9.
inline Digits read_digits(const std::string& images, const std::string& labels) {
  Digits read{tessera::data::idx<std::uint8_t, 3>(images), tessera::data::idx<std::uint8_t, 1>(labels)};
  if (read.images.rows() != read.labels.rows())
    throw std::runtime_error(labels + ": has " + std::to_string(read.labels.rows()) + " labels for " +
                             std::to_string(read.images.rows()) + " images");
  for (const std::uint8_t label : read.labels.values())
    if (label > 9) throw std::runtime_error(labels + ": has the label " + std::to_string(label));
  return read;
}

}  // namespace digits_cnn

#endif
