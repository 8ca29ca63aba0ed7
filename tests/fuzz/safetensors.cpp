// Safetensors files, whatever their bytes are: a file is read as tensors that fill their shapes, or refused.
#include <vector>

#include "fuzz.hpp"

#include <tessera/data/safetensors.hpp>

namespace ts = tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of its own, so that a read past its end is seen.
  const std::vector<std::uint8_t> bytes(data, data + size);
  const auto expect = [&](bool holds, std::string_view rule) {
    fuzz::expect(holds, rule, {reinterpret_cast<const char*>(data), size});
  };
  try {
    std::size_t read = 0;
    for (const ts::StateEntry& entry : ts::detail::parse_safetensors(std::as_bytes(std::span(bytes)), "input", {})) {
      std::size_t count = ts::size_of(entry.dtype);
      for (const std::int64_t extent : entry.shape) {
        expect(extent >= 0, "no extent is negative");
        count *= static_cast<std::size_t>(extent);
      }
      expect(count == entry.bytes.size(), "the shape is that of the elements");
      expect(ts::extents(entry.box) == entry.shape, "the tensor is whole");
      read += count;
    }
    expect(read + 8 <= size, "all elements are those of the file");
  } catch (const ts::error& e) {
    expect(e.id() == ts::errc::file, "what can't be read is refused as a file");
  }
  return 0;
}
