#ifndef TESSERA_DATA_SAFETENSORS_FORMAT_HPP
#define TESSERA_DATA_SAFETENSORS_FORMAT_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/compiled.hpp>

#if TESSERA_HAS_DEFINITIONS
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/source.hpp>
#include <tessera/data/json_reader.hpp>
#include <tessera/data/json_text.hpp>
#include <tessera/data/replaced_file.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/ops/rows.hpp>

// The format safetensors: https://github.com/huggingface/safetensors. A file has the length of its header in 8 bytes,
// the header, which is JSON with the element type, shape and place of each tensor, and the elements of all tensors,
// little-endian.

namespace tessera::detail {

static_assert(std::endian::native == std::endian::little,
              "tessera: safetensors files are read and written on little-endian processors");

/// The names of element types in the format, in the order of DType.
inline constexpr std::string_view safetensors_types[] = {"F32", "F64", "BF16", "F16",  "I8",      "I16",
                                                         "I32", "I64", "U8",   "BOOL", "F8_E4M3", "F8_E5M2"};
static_assert(std::size(safetensors_types) == dtype_count);

/// A tensor of a file, or the part of a tensor that the file has.
struct FileTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape{};                       // of the part
  Shape offsets{};                     // of the part in the whole tensor: zeros, unless the file says otherwise
  std::span<const std::byte> bytes{};  // of the elements of the part, in row-major order
};

/// Where the parts of a file begin in their tensors, by name: in the metadata of PyTorch's distributed checkpoints.
inline constexpr std::string_view sharding_info_key = "DCP_SHARDING_INFO";

/// The tensors in the bytes of a file, in the order of the header. Errors: `file`.
inline std::vector<FileTensor> read_safetensors(std::span<const std::byte> bytes, std::string_view operation,
                                                std::string_view name, Here at) {
  JsonReader reader{{}, operation, name, at};
  std::uint64_t length = 0;
  if (bytes.size() < sizeof(length)) reader.refuse("is too short for a safetensors file");
  std::memcpy(&length, bytes.data(), sizeof(length));
  const std::span<const std::byte> behind = bytes.subspan(sizeof(length));
  if (length > behind.size()) reader.refuse("is no safetensors file, or ends in its header");
  reader.rest = {reinterpret_cast<const char*>(behind.data()), static_cast<std::size_t>(length)};
  const std::span<const std::byte> elements = behind.subspan(static_cast<std::size_t>(length));

  std::vector<FileTensor> made;
  std::string sharding_info;
  std::vector<std::pair<std::int64_t, std::int64_t>> found;  // the place of each tensor
  reader.object([&](const std::string& tensor) {
    if (tensor == "__metadata__")
      return reader.object([&](const std::string& key) {
        std::string value = reader.text();
        if (key == sharding_info_key) sharding_info = std::move(value);
      });
    const auto refuse = [&](std::string_view why) { reader.refuse(concat_text(tensor, ": ", why)); };
    FileTensor entry{.name = tensor};
    std::string type;
    std::vector<std::int64_t> offsets;
    bool has_shape = false;
    reader.object([&](const std::string& key) {
      if (key == "dtype") {
        type = reader.text();
      } else if (key == "shape") {
        has_shape = true;
        reader.array([&](std::int64_t extent) {
          if (entry.shape.size() == static_cast<std::size_t>(max_rank)) refuse("has more than 8 dims");
          entry.shape.push_back(extent);
        });
      } else if (key == "data_offsets") {
        reader.array([&](std::int64_t offset) { offsets.push_back(offset); });
      } else {
        refuse(concat_text("has a field that no tensor has, ", key));
      }
    });
    const auto* const known = std::find(std::begin(safetensors_types), std::end(safetensors_types), type);
    if (known == std::end(safetensors_types))
      refuse(concat_text("has elements of the type ", type, ", which is none here"));
    if (!has_shape || offsets.size() != 2) refuse("has no dtype, shape and data_offsets");
    entry.dtype = static_cast<DType>(known - std::begin(safetensors_types));
    const std::int64_t count = elements_of(entry.shape);
    if (count < 0) refuse("has more elements than a tensor can have");
    const std::int64_t expected = count * static_cast<std::int64_t>(size_of(entry.dtype));
    const std::int64_t begin = offsets[0], end = offsets[1];
    if (begin > end || end > static_cast<std::int64_t>(elements.size())) refuse("has elements outside of the file");
    if (end - begin != expected)
      refuse(concat_text("has ", std::to_string(end - begin), " bytes, which are not those of ",
                         shape_text(entry.dtype, entry.shape)));
    entry.offsets = Shape(entry.shape.size(), 0);
    found.emplace_back(begin, end);
    made.push_back(std::move(entry));
  });
  reader.end();
  std::vector<std::pair<std::int64_t, std::int64_t>> places;
  for (const auto& place : found)
    if (place.first < place.second) places.push_back(place);
  std::sort(places.begin(), places.end());
  std::int64_t next = 0;
  for (const auto& [begin, end] : places) {
    if (begin != next) reader.refuse("has tensors that overlap, or bytes of no tensor");
    next = end;
  }
  if (next != static_cast<std::int64_t>(elements.size()))
    reader.refuse("has tensors that overlap, or bytes of no tensor");
  std::vector<std::size_t> by_name(made.size());
  std::iota(by_name.begin(), by_name.end(), std::size_t{0});
  std::sort(by_name.begin(), by_name.end(), [&](std::size_t a, std::size_t b) { return made[a].name < made[b].name; });
  for (std::size_t i = 1; i < by_name.size(); ++i)
    if (made[by_name[i]].name == made[by_name[i - 1]].name)
      reader.refuse(concat_text(made[by_name[i]].name, ": is in the file twice"));
  for (std::size_t i = 0; i < made.size(); ++i)
    made[i].bytes = elements.subspan(static_cast<std::size_t>(found[i].first),
                                     static_cast<std::size_t>(found[i].second - found[i].first));
  if (sharding_info.empty()) return made;

  reader.rest = sharding_info;
  reader.object([&](const std::string& tensor) {
    const auto of = std::lower_bound(by_name.begin(), by_name.end(), tensor,
                                     [&](std::size_t i, const std::string& wanted) { return made[i].name < wanted; });
    Shape offsets;
    reader.object([&](const std::string& key) {
      if (key != "saved_offsets") return reader.skip();
      offsets = {};
      reader.array([&](std::int64_t offset) {
        if (offsets.size() == static_cast<std::size_t>(max_rank))
          reader.refuse(concat_text(tensor, ": has more than 8 offsets"));
        offsets.push_back(offset);
      });
    });
    if (of == by_name.end() || made[*of].name != tensor) return;
    if (offsets.size() != made[*of].shape.size())
      reader.refuse(concat_text(tensor, ": has saved_offsets of another rank than its shape"));
    made[*of].offsets = offsets;
  });
  reader.end();
  return made;
}

/// Refuses a bool that is neither 0 nor 1. Errors: `file`.
inline void check_bools(const FileTensor& tensor, std::string_view operation, std::string_view file, Here at) {
  if (tensor.dtype == DType::bool_ &&
      std::any_of(tensor.bytes.begin(), tensor.bytes.end(), [](std::byte b) { return std::to_integer<int>(b) > 1; }))
    fail(errc::file, "[", operation, "] ", file, ": ", tensor.name, ": has a bool that is neither 0 nor 1",
         Source::from(at));
}

/// Writes a file of tensors with different names. `metadata` is the JSON of `__metadata__`, or empty. Errors: `file`;
/// `structure` for a name that the format does not allow.
inline void write_safetensors(std::string_view operation, const std::string& path, std::span<const FileTensor> tensors,
                              std::string_view metadata, Here at) {
  // Elements of 8 bytes come first, so that all elements are aligned, as readers that map the file expect.
  std::vector<std::size_t> order(tensors.size()), begins(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return size_of(tensors[a].dtype) > size_of(tensors[b].dtype); });
  std::size_t total = 0;
  for (const std::size_t i : order) {
    begins[i] = total;
    total += tensors[i].bytes.size();
  }
  std::string header = "{";
  if (!metadata.empty()) header += concat_text("\"__metadata__\":", metadata);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const FileTensor& tensor = tensors[i];
    if (tensor.name == "__metadata__")
      fail(errc::structure, "[", operation, "] __metadata__ is no name of a tensor in a safetensors file",
           Source::from(at));
    if (header.size() > 1) header += ',';
    header += concat_text(json_text(tensor.name), ":{\"dtype\":\"",
                          safetensors_types[static_cast<std::size_t>(tensor.dtype)], "\",\"shape\":[");
    for (std::size_t d = 0; d < tensor.shape.size(); ++d)
      header += (d > 0 ? "," : "") + std::to_string(tensor.shape[d]);
    header += "],\"data_offsets\":[" + std::to_string(begins[i]) + "," +
              std::to_string(begins[i] + tensor.bytes.size()) + "]}";
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');

  data::detail::ReplacedFile file(operation, path, at);
  const std::uint64_t length = header.size();
  file.write(&length, sizeof(length));
  file.write(header.data(), header.size());
  for (const std::size_t i : order) file.write(tensors[i].bytes.data(), tensors[i].bytes.size());
  file.finish();
}

}  // namespace tessera::detail
#endif

#include <tessera/base/pop_macros.hpp>

#endif
