#ifndef EXAMPLES_DIGITS_CNN_BATCHES_HPP
#define EXAMPLES_DIGITS_CNN_BATCHES_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../picture.hpp"
#include "digits.hpp"

#include <tessera/data/data.hpp>
#include <tessera/tessera.hpp>

namespace digits_cnn {

/// A batch of images [n, height, width, 1] with values from 0 to 1, and of labels, both split along the batch.
struct Batch {
  tessera::ShardedTensor<float, 4> images;
  tessera::ShardedTensor<std::int32_t, 1> labels;
};

inline auto loader_of(const tessera::Mesh& mesh, const Digits& digits,
                      const tessera::data::DataLoaderOptions& options) {
  const auto images =
      tessera::data::map<float>(digits.images, {digits.height(), digits.width(), 1}, [](auto bytes, auto values) {
        for (std::size_t i = 0; i < bytes.size(); ++i) values[i] = static_cast<float>(bytes[i]) / 255;
      });
  const auto labels = tessera::data::map<std::int32_t>(digits.labels, [](std::uint8_t label) { return label; });
  return tessera::data::data_loader<Batch>(mesh, options, images, labels);
}

/// At most 36 of the chosen images, in six rows.
inline void add_panel(examples::Picture& picture, const std::string& title, const Digits& digits,
                      const std::vector<std::size_t>& chosen) {
  const auto height = static_cast<std::size_t>(digits.height()), width = static_cast<std::size_t>(digits.width());
  const std::size_t rows = 6 * height, columns = 6 * width;
  std::vector<float> sheet(rows * columns);
  for (std::size_t i = 0; i < std::min<std::size_t>(36, chosen.size()); ++i)
    for (std::size_t r = 0; r < height; ++r)
      for (std::size_t c = 0; c < width; ++c)
        sheet[(i / 6 * height + r) * columns + i % 6 * width + c] =
            static_cast<float>(digits.images.values()[(chosen[i] * height + r) * width + c] / 32) / 8;
  picture.panel(title);
  picture.grid(sheet, static_cast<int>(rows), static_cast<int>(columns));
}

}  // namespace digits_cnn

#endif
