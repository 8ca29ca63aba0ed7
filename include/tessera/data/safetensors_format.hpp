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

/// Reads the header of a safetensors file.
class SafetensorsHeader {
 public:
  SafetensorsHeader(std::span<const std::byte> bytes, std::string_view operation, std::string_view name, Here at)
      : reader_{{}, operation, name, at} {
    std::uint64_t length = 0;
    if (bytes.size() < sizeof(length)) reader_.refuse("is too short for a safetensors file");
    std::memcpy(&length, bytes.data(), sizeof(length));
    const std::span<const std::byte> after = bytes.subspan(sizeof(length));
    if (length > after.size()) reader_.refuse("is no safetensors file, or ends in its header");
    reader_.rest = {reinterpret_cast<const char*>(after.data()), static_cast<std::size_t>(length)};
    elements_ = after.subspan(static_cast<std::size_t>(length));
  }

  std::vector<FileTensor> read() {
    std::string sharding_info;
    reader_.object([&](const std::string& tensor) {
      if (tensor != "__metadata__") return read_tensor(tensor);
      reader_.object([&](const std::string& key) {
        std::string value = reader_.text();
        if (key == sharding_info_key) sharding_info = std::move(value);
      });
    });
    reader_.end();
    check_ranges();
    sort_names();
    for (std::size_t i = 0; i < made_.size(); ++i)
      made_[i].bytes = elements_.subspan(static_cast<std::size_t>(ranges_[i].first),
                                         static_cast<std::size_t>(ranges_[i].second - ranges_[i].first));
    if (!sharding_info.empty()) read_offsets(sharding_info);
    return std::move(made_);
  }

 private:
  using Range = std::pair<std::int64_t, std::int64_t>;

  JsonReader reader_;
  std::span<const std::byte> elements_{};
  std::vector<FileTensor> made_;
  std::vector<Range> ranges_;         // by tensor: its bytes in elements_
  std::vector<std::size_t> by_name_;  // indices of the tensors, in the order of their names

  void read_tensor(const std::string& tensor) {
    const auto refuse = [&](std::string_view why) { reader_.refuse(concat_text(tensor, ": ", why)); };
    FileTensor entry{.name = tensor};
    std::string type;
    std::vector<std::int64_t> offsets;
    bool has_shape = false;
    reader_.object([&](const std::string& key) {
      if (key == "dtype") {
        type = reader_.text();
      } else if (key == "shape") {
        has_shape = true;
        reader_.array([&](std::int64_t extent) {
          if (entry.shape.size() == static_cast<std::size_t>(max_rank)) refuse("has more than 8 dims");
          entry.shape.push_back(extent);
        });
      } else if (key == "data_offsets") {
        reader_.array([&](std::int64_t offset) { offsets.push_back(offset); });
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
    if (begin > end || end > static_cast<std::int64_t>(elements_.size())) refuse("has elements outside of the file");
    if (end - begin != expected)
      refuse(concat_text("has ", std::to_string(end - begin), " bytes, which are not those of ",
                         shape_text(entry.dtype, entry.shape)));
    entry.offsets = Shape(entry.shape.size(), 0);
    ranges_.emplace_back(begin, end);
    made_.push_back(std::move(entry));
  }

  // Each byte after the header belongs to one tensor.
  void check_ranges() {
    std::vector<Range> sorted;
    for (const Range& range : ranges_)
      if (range.first < range.second) sorted.push_back(range);
    std::sort(sorted.begin(), sorted.end());
    std::int64_t next = 0;
    for (const auto& [begin, end] : sorted) {
      if (begin != next) reader_.refuse("has tensors that overlap, or bytes of no tensor");
      next = end;
    }
    if (next != static_cast<std::int64_t>(elements_.size()))
      reader_.refuse("has tensors that overlap, or bytes of no tensor");
  }

  void sort_names() {
    by_name_.resize(made_.size());
    std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
    std::sort(by_name_.begin(), by_name_.end(),
              [&](std::size_t a, std::size_t b) { return made_[a].name < made_[b].name; });
    for (std::size_t i = 1; i < by_name_.size(); ++i)
      if (made_[by_name_[i]].name == made_[by_name_[i - 1]].name)
        reader_.refuse(concat_text(made_[by_name_[i]].name, ": is in the file twice"));
  }

  // Where the parts of tensors begin, from the text at sharding_info_key.
  void read_offsets(std::string_view sharding_info) {
    reader_.rest = sharding_info;
    reader_.object([&](const std::string& tensor) {
      const auto of =
          std::lower_bound(by_name_.begin(), by_name_.end(), tensor,
                           [&](std::size_t i, const std::string& wanted) { return made_[i].name < wanted; });
      Shape offsets;
      reader_.object([&](const std::string& key) {
        if (key != "saved_offsets") return reader_.skip();
        offsets = {};
        reader_.array([&](std::int64_t offset) {
          if (offsets.size() == static_cast<std::size_t>(max_rank))
            reader_.refuse(concat_text(tensor, ": has more than 8 offsets"));
          offsets.push_back(offset);
        });
      });
      if (of == by_name_.end() || made_[*of].name != tensor) return;
      if (offsets.size() != made_[*of].shape.size())
        reader_.refuse(concat_text(tensor, ": has saved_offsets of another rank than its shape"));
      made_[*of].offsets = offsets;
    });
    reader_.end();
  }
};

/// The tensors in the bytes of a file, in the order of the header. Errors: `file`.
inline std::vector<FileTensor> read_safetensors(std::span<const std::byte> bytes, std::string_view operation,
                                                std::string_view name, Here at) {
  return SafetensorsHeader(bytes, operation, name, at).read();
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
