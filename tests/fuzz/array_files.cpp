// Files of arrays, whatever their bytes are: a .npy or IDX file is read as an array that lies within its bytes, or
// refused. The first byte says which format and which element type are expected.
#include <vector>

#include "fuzz.hpp"

#include <tessera/data/idx.hpp>
#include <tessera/data/npy.hpp>

namespace ts = tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto dtype = static_cast<ts::DType>(*data % ts::dtype_count);
  const int rank = 1 + *data / 16 % 4;
  const bool npy = *data < 128;
  // A copy of its own, so that a read past its end is seen.
  const std::vector<std::uint8_t> bytes(data + 1, data + size);
  const ts::data::MappedFile file{nullptr, std::as_bytes(std::span(bytes))};
  const auto expect = [&](bool holds, std::string_view rule) {
    fuzz::expect(holds, rule, {reinterpret_cast<const char*>(data), size});
  };
  ts::Shape shape;
  try {
    ts::data::MappedFile read = file;
    if (npy)
      read = ts::data::detail::npy_elements(file, dtype, rank, "input", shape, {});
    else
      read.bytes = ts::data::detail::idx_elements(file.bytes, dtype, rank, "input", shape, {});
    const std::span<const std::byte> elements = read.bytes;
    expect(static_cast<int>(shape.size()) == rank, "the rank is that which was expected");
    std::size_t count = ts::size_of(dtype);
    for (const std::int64_t extent : shape) {
      expect(extent >= 0, "no extent is negative");
      count *= static_cast<std::size_t>(extent);
    }
    expect(count == elements.size() || elements.empty(), "the shape is that of the elements");
    std::size_t sum = 0;
    for (const std::byte b : elements) sum += std::to_integer<std::size_t>(b);
    expect(sum <= 255 * elements.size(), "all elements can be read");
  } catch (const ts::error& e) {
    expect(e.id() == ts::errc::file, "what can't be read is refused as a file");
  }
  return 0;
}
