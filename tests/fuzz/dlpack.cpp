// Arrays of DLPack, whose fields are whatever the sender wrote: from_dlpack copies elements that the array has, or
// refuses it. The first bytes are the fields, the rest is the memory that the array says it describes.
#include <algorithm>
#include <cstring>

#include "fuzz.hpp"

#include <tessera/interop/dlpack.hpp>

namespace ts = tessera;
using fuzz::expect;

namespace {

struct Reader {
  const std::uint8_t* data;
  std::size_t size;
  std::uint8_t byte() {
    if (size == 0) return 0;
    --size;
    return *data++;
  }
  /// Small numbers mostly; a byte of 128 or more says that eight bytes follow.
  std::int64_t number() {
    const std::uint8_t first = byte();
    if (first < 128) return static_cast<std::int64_t>(first) - 8;
    std::uint64_t all = 0;
    for (int i = 0; i < 8; ++i) all = all << 8 | byte();
    return static_cast<std::int64_t>(all);
  }
};

// What is not a lie about memory: all elements are within it. What the sender lies about, no reader can know.
bool within(const std::int64_t* shape, const std::int64_t* strides, int rank, std::int64_t elements) {
  std::int64_t low = 0, high = 0;
  for (int d = 0; d < rank; ++d) {
    if (shape[d] <= 0) return true;  // refused, or empty
    if (shape[d] > elements) return false;
    const std::int64_t step = strides[d];
    if (shape[d] == 1) continue;
    if (step > elements || step < -elements) return false;
    (step < 0 ? low : high) += step * (shape[d] - 1);
  }
  return low >= 0 && high < elements;
}

template <class T, int Rank> void import_as(Reader reader) {
  ts::dlpack::DLManagedTensorVersioned array{};
  array.version.major = reader.byte() % 3;
  ts::dlpack::DLTensor& x = array.dl_tensor;
  x.device.device_type = reader.byte() % 3;
  const ts::dlpack::DLDataType wanted = ts::dlpack::type_of(ts::dtype_v<T>);
  x.dtype = reader.byte() % 4 != 0 ? wanted : ts::dlpack::DLDataType{reader.byte(), reader.byte(), reader.byte()};
  x.ndim = reader.byte() % 4 != 0 ? Rank : static_cast<std::int32_t>(reader.number());
  std::int64_t shape[8]{}, strides[8]{};
  for (int d = 0; d < Rank; ++d) shape[d] = reader.number();
  for (int d = 0; d < Rank; ++d) strides[d] = reader.number();
  x.shape = reader.byte() % 8 != 0 ? shape : nullptr;
  x.strides = reader.byte() % 2 != 0 ? strides : nullptr;
  T memory[64]{};
  std::memcpy(memory, reader.data, std::min(sizeof memory, reader.size));
  x.data = reader.byte() % 8 != 0 ? memory : nullptr;
  if (x.strides == nullptr) {
    std::int64_t step = 1;
    for (int d = Rank; d-- > 0;) {
      strides[d] = step;
      if (shape[d] > 0 && shape[d] <= 64 && step <= 64) step *= shape[d];
    }
  }
  if (!within(shape, strides, Rank, 64)) return;
  static bool released;
  released = false;
  array.deleter = [](ts::dlpack::DLManagedTensorVersioned*) { released = true; };
  static const ts::Mesh mesh({{"a", 2}});
  try {
    const auto made = ts::from_dlpack<T, Rank>(&array, mesh, {"a"});
    expect(x.shape != nullptr || Rank == 0, "an array without a shape is refused", "");
    for (int d = 0; d < Rank; ++d)
      expect(ts::storage_of(made).shape()[static_cast<std::size_t>(d)] == shape[d], "extents are the array's", "");
  } catch (const ts::error&) {
  }
  expect(released, "the array is released, by an error too", "");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Reader reader{data, size};
  if (reader.byte() % 2 == 0)
    import_as<float, 2>(reader);
  else
    import_as<std::int8_t, 3>(reader);
  return 0;
}
