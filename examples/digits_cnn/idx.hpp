#ifndef EXAMPLES_DIGITS_CNN_IDX_HPP
#define EXAMPLES_DIGITS_CNN_IDX_HPP

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/// IDX files of bytes, the format of MNIST: two zero bytes, the element type (8: unsigned byte), the number of dims,
/// the extent of each dim as a big-endian 32-bit number, and the elements in row-major order.
namespace digits_cnn {

struct IdxArray {
  std::vector<std::uint32_t> shape;
  std::vector<std::uint8_t> bytes;
};

/// An array of `rank` dims. Throws std::runtime_error, with the name of the file, for a file that is no such array.
inline IdxArray read_idx(const std::string& path, std::size_t rank) {
  const auto refuse = [&](const std::string& why) { throw std::runtime_error(path + ": " + why); };
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse("cannot be opened");
  const std::vector<char> read{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(read[i]); };
  if (read.size() >= 2 && byte(0) == 0x1f && byte(1) == 0x8b) refuse("is compressed; decompress it with gunzip");
  if (read.size() < 4 || byte(0) != 0 || byte(1) != 0) refuse("is no IDX file: it does not begin with two zero bytes");
  if (byte(2) != 8) refuse("has elements of the type " + std::to_string(byte(2)) + "; only bytes, type 8, are read");
  if (byte(3) != rank)
    refuse("has " + std::to_string(byte(3)) + " dims, but " + std::to_string(rank) + " are expected");
  const std::size_t header = 4 + 4 * rank;
  if (read.size() < header) refuse("ends in its header");

  IdxArray array;
  std::uint64_t elements = 1;
  const std::uint64_t available = read.size() - header;
  bool fits = true;
  for (std::size_t d = 0; d < rank; ++d) {
    std::uint32_t extent = 0;
    for (std::size_t i = 0; i < 4; ++i) extent = extent << 8 | byte(4 + 4 * d + i);
    if (extent == 0) refuse("has a dim of extent 0");
    array.shape.push_back(extent);
    fits = fits && extent <= available / elements;  // else the product could exceed 64 bits
    if (fits) elements *= extent;
  }
  if (!fits || elements != available)
    refuse("has " + std::to_string(available) + " bytes of elements, which is not the number in its header");
  for (std::size_t i = header; i < read.size(); ++i) array.bytes.push_back(byte(i));
  return array;
}

/// Images [count, height, width] of bytes with the label of each.
struct Digits {
  std::size_t count = 0, height = 0, width = 0;
  std::vector<std::uint8_t> pixels, labels;
};

/// Images and labels of two IDX files. Throws std::runtime_error as read_idx, where their numbers differ, and for
/// labels above 9.
inline Digits read_digits(const std::string& images_path, const std::string& labels_path) {
  IdxArray images = read_idx(images_path, 3), labels = read_idx(labels_path, 1);
  if (images.shape[0] != labels.shape[0])
    throw std::runtime_error(labels_path + ": has " + std::to_string(labels.shape[0]) + " labels for " +
                             std::to_string(images.shape[0]) + " images");
  for (const std::uint8_t label : labels.bytes)
    if (label > 9) throw std::runtime_error(labels_path + ": has the label " + std::to_string(label));
  return {images.shape[0], images.shape[1], images.shape[2], std::move(images.bytes), std::move(labels.bytes)};
}

}  // namespace digits_cnn

#endif
