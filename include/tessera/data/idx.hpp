#ifndef TESSERA_DATA_IDX_HPP
#define TESSERA_DATA_IDX_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/base/compiled.hpp>
#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/source.hpp>
#include <tessera/data/array.hpp>
#include <tessera/data/mapped_file.hpp>
#include <tessera/ops/operation.hpp>

namespace tessera::data {

namespace detail {
/// The elements of an IDX file, big-endian as they are stored, and their shape.
TESSERA_ONCE std::span<const std::byte> idx_elements(std::span<const std::byte> bytes, DType dtype, int rank,
                                                     std::string_view name, Shape& shape, Here at);
#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE std::span<const std::byte> idx_elements(std::span<const std::byte> bytes, DType dtype, int rank,
                                                     std::string_view name, Shape& shape, Here at) {
  const auto refuse = [&](const auto&... why) { fail(errc::file, "[idx] ", name, ": ", why..., Source::from(at)); };
  const auto byte = [&](std::size_t i) { return std::to_integer<unsigned>(bytes[i]); };
  if (bytes.size() >= 2 && byte(0) == 0x1f && byte(1) == 0x8b) refuse("is compressed; decompress it with gunzip");
  if (bytes.size() < 4 || byte(0) != 0 || byte(1) != 0) refuse("is no IDX file: it does not begin with two zero bytes");
  // In the order of DType; 0: IDX has no such type.
  constexpr unsigned types[dtype_count] = {0x0d, 0x0e, 0, 0, 0x09, 0x0b, 0x0c, 0, 0x08, 0};
  if (byte(2) != types[static_cast<std::size_t>(dtype)] || byte(2) == 0)
    refuse("has elements of the IDX type ", byte(2), ", not of ", name_of(dtype));
  if (static_cast<int>(byte(3)) != rank) refuse("has ", byte(3), " dims, not ", rank);
  const std::size_t header = 4 + 4 * static_cast<std::size_t>(rank);
  if (bytes.size() < header) refuse("ends in its header");
  for (std::size_t dim = 0; dim < static_cast<std::size_t>(rank); ++dim) {
    std::int64_t extent = 0;
    for (std::size_t i = 0; i < 4; ++i) extent = extent << 8 | byte(4 + 4 * dim + i);
    shape.push_back(extent);
  }
  const std::int64_t elements = elements_of(shape);
  const std::size_t available = bytes.size() - header;
  if (elements < 0 || static_cast<std::uint64_t>(elements) * size_of(dtype) != available)
    refuse("has ", available, " bytes of elements, which are not those of the shape in its header");
  return bytes.subspan(header);
}
#endif
}  // namespace detail

/// The array of an IDX file, the format of MNIST (torchvision.datasets.MNIST): elements T in `Rank` dims, the first of
/// which are the rows of the column. Single bytes are read when they are used; larger elements, which are stored
/// big-endian, are converted at once. Errors: `file` with the name of the file and the problem.
///
///     const auto images = ts::data::idx<std::uint8_t, 3>("train-images-idx3-ubyte");   // [60000, 28, 28]
template <Element T, int Rank> Array<T, Rank - 1> idx(const std::string& path, Here at = Here::current()) {
  static_assert(Rank >= 1, "tessera: a column has at least the dim of its rows");
  const MappedFile file = map_file(path, at);
  Shape shape;
  const std::span<const std::byte> stored = detail::idx_elements(file.bytes, dtype_v<T>, Rank, path, shape, at);
  if constexpr (sizeof(T) == 1) {
    return {file.owner, {reinterpret_cast<const T*>(stored.data()), stored.size()}, shape, at};
  } else {
    std::vector<T> values(stored.size() / sizeof(T));
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::byte element[sizeof(T)];
      std::copy_n(stored.data() + i * sizeof(T), sizeof(T), element);
      if constexpr (std::endian::native == std::endian::little) std::reverse(std::begin(element), std::end(element));
      std::memcpy(&values[i], element, sizeof(T));
    }
    auto kept = std::make_shared<const std::vector<T>>(std::move(values));
    const std::span<const T> seen(*kept);
    return {std::move(kept), seen, shape, at};
  }
}

}  // namespace tessera::data

#include <tessera/base/pop_macros.hpp>

#endif
