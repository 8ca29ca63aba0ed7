#ifndef TESSERA_DATA_SAFETENSORS_HPP
#define TESSERA_DATA_SAFETENSORS_HPP
#include <tessera/base/push_macros.hpp>

#include <string>

#include <tessera/base/compiled.hpp>
#include <tessera/base/here.hpp>
#include <tessera/data/mapped_file.hpp>
#include <tessera/parallel/state_dict.hpp>

#if TESSERA_HAS_DEFINITIONS
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/json_text.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/source.hpp>
#include <tessera/data/replaced_file.hpp>
#include <tessera/ops/operation.hpp>
#endif

// State dicts in files of the format safetensors, which PyTorch and JAX read and write:
// https://github.com/huggingface/safetensors. A file has the length of its header in 8 bytes, the header, which is JSON
// with the element type, shape and place of each tensor, and the elements of all tensors, little-endian.

namespace tessera {

/// Writes a dict to one file, as safetensors.torch.save_file; `torch.save(model.state_dict(), path)` of PyTorch. Parts
/// are joined to whole tensors first. The file is written beside its place, in `path`.partial, and renamed when it is
/// on the disk (fsync), so that an error, a killed process and a loss of power leave the file that was there before.
/// Two savers of one path at once each write a file of their own; that of the last one to finish stays.
///
///     ts::save_file(ts::full_state_dict(state), "state.safetensors");
///
/// Communication: none. Errors: `file` with the name of a file that can't be written; `structure` for a name that is in
/// the dict twice, for an entry with other bytes than its elements, and as consolidate.
TESSERA_ONCE void save_file(const StateDict& dict, const std::string& path, Here at = Here::current());

/// The dict in a file, whole tensors in the order of its header, as safetensors.torch.load_file. Communication: none.
/// Errors: `file` with the name of the file and what is wrong with it.
///
///     state = ts::load_state_dict(state, ts::load_file("state.safetensors"));
TESSERA_ONCE StateDict load_file(const std::string& path, Here at = Here::current());

namespace detail {
/// The dict in the bytes of a file. Errors: `file`.
TESSERA_ONCE StateDict parse_safetensors(std::span<const std::byte> bytes, std::string_view name, Here at);

#if TESSERA_HAS_DEFINITIONS
static_assert(std::endian::native == std::endian::little,
              "tessera: safetensors files are read and written on little-endian processors");

/// The names of element types in the format, in the order of DType.
inline constexpr std::string_view safetensors_types[] = {"F32", "F64", "BF16", "F16",  "I8",      "I16",
                                                         "I32", "I64", "U8",   "BOOL", "F8_E4M3", "F8_E5M2"};
static_assert(std::size(safetensors_types) == dtype_count);

/// Reads the JSON of a header: objects, texts and arrays of whole numbers.
struct SafetensorsReader {
  std::string_view rest;
  std::string_view name;
  Here at;

  [[noreturn]] void refuse(std::string_view why) const {
    fail(errc::file, "[safetensors] ", name, ": ", why, Source::from(at));
  }
  bool take(char c) {
    const std::size_t begin = rest.find_first_not_of(" \t\r\n");
    if (begin == rest.npos || rest[begin] != c) return false;
    rest.remove_prefix(begin + 1);
    return true;
  }
  void expect(char c) {
    if (!take(c))
      refuse(concat_text("has a header that is no JSON of tensors: ", std::string_view(&c, 1), " is missing"));
  }
  /// Calls f with each key of an object; f reads the value.
  template <class F> void object(F&& f) {
    expect('{');
    if (take('}')) return;
    do {
      const std::string key = text();
      expect(':');
      f(key);
    } while (take(','));
    expect('}');
  }
  std::string text() {
    expect('"');
    std::string made;
    while (!rest.empty() && rest[0] != '"') {
      char c = rest[0];
      rest.remove_prefix(1);
      if (c != '\\') {
        made += c;
        continue;
      }
      if (rest.empty()) break;
      c = rest[0];
      rest.remove_prefix(1);
      constexpr std::string_view letters = "bfnrt", meanings = "\b\f\n\r\t";
      if (c == 'u')
        add_code_point(made);
      else if (const std::size_t letter = letters.find(c); letter != letters.npos)
        made += meanings[letter];
      else if (c == '"' || c == '\\' || c == '/')
        made += c;
      else
        refuse("has a header with an unknown escape in a text");
    }
    expect('"');
    return made;
  }
  std::int64_t number() {
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t\r\n"), rest.size()));
    std::int64_t made = 0;
    std::size_t digits = 0;
    while (digits < rest.size() && rest[digits] >= '0' && rest[digits] <= '9') {
      if (digits == 18) refuse("has a number of more than 18 digits in its header");
      made = 10 * made + (rest[digits++] - '0');
    }
    if (digits == 0) refuse("has a header that is no JSON of tensors: a whole number is missing");
    rest.remove_prefix(digits);
    return made;
  }
  template <class F> void array(F&& f) {
    expect('[');
    if (take(']')) return;
    do f(number());
    while (take(','));
    expect(']');
  }

 private:
  unsigned four_digits() {
    unsigned made = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = rest.empty() ? ' ' : rest[0];
      const unsigned digit = c >= '0' && c <= '9'   ? static_cast<unsigned>(c - '0')
                             : c >= 'a' && c <= 'f' ? static_cast<unsigned>(c - 'a') + 10
                             : c >= 'A' && c <= 'F' ? static_cast<unsigned>(c - 'A') + 10
                                                    : 16;
      if (digit == 16) refuse("has a header with an unknown escape in a text");
      made = 16 * made + digit;
      rest.remove_prefix(1);
    }
    return made;
  }
  /// \u00e4, or \ud83d\ude00 for a code point beyond 16 bits, as UTF-8.
  void add_code_point(std::string& made) {
    unsigned code = four_digits();
    if (code >= 0xd800 && code < 0xe000) {
      if (code >= 0xdc00 || !rest.starts_with("\\u")) refuse("has a header with half a pair of surrogates");
      rest.remove_prefix(2);
      const unsigned low = four_digits();
      if (low < 0xdc00 || low >= 0xe000) refuse("has a header with half a pair of surrogates");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    constexpr unsigned first[] = {0, 0xc0, 0xe0, 0xf0};
    made += static_cast<char>(first[more] | code >> (6 * more));
    for (int i = more - 1; i >= 0; --i) made += static_cast<char>(0x80 | (code >> (6 * i) & 0x3f));
  }
};

/// Empty if all names differ.
inline std::string_view name_that_is_twice(const StateDict& dict) {
  std::vector<std::string_view> names;
  for (const StateEntry& entry : dict) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  return twice == names.end() ? std::string_view() : *twice;
}

TESSERA_ONCE StateDict parse_safetensors(std::span<const std::byte> bytes, std::string_view name, Here at) {
  SafetensorsReader reader{{}, name, at};
  std::uint64_t length = 0;
  if (bytes.size() < sizeof(length)) reader.refuse("is too short for a safetensors file");
  std::memcpy(&length, bytes.data(), sizeof(length));
  const std::span<const std::byte> behind = bytes.subspan(sizeof(length));
  if (length > behind.size()) reader.refuse("is no safetensors file, or ends in its header");
  reader.rest = {reinterpret_cast<const char*>(behind.data()), static_cast<std::size_t>(length)};
  const std::span<const std::byte> elements = behind.subspan(static_cast<std::size_t>(length));

  StateDict made;
  std::vector<std::pair<std::int64_t, std::int64_t>> found;  // the place of each tensor
  reader.object([&](const std::string& tensor) {
    if (tensor == "__metadata__") return reader.object([&](const std::string&) { (void)reader.text(); });
    const auto refuse = [&](std::string_view why) { reader.refuse(concat_text(tensor, ": ", why)); };
    StateEntry entry{.name = tensor};
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
    entry.box = whole_box(entry.shape);
    found.emplace_back(begin, end);
    made.push_back(std::move(entry));
  });
  if (reader.rest.find_first_not_of(" \t\r\n") != reader.rest.npos) reader.refuse("has text behind its header");
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
  if (const std::string_view twice = name_that_is_twice(made); !twice.empty())
    reader.refuse(concat_text(twice, ": is in the file twice"));
  // Copied only now: many tensors of one place would need more memory than the file has bytes.
  for (std::size_t i = 0; i < made.size(); ++i) {
    const auto [begin, end] = found[i];
    const auto own = elements.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    if (made[i].dtype == DType::bool_ &&
        std::any_of(own.begin(), own.end(), [](std::byte b) { return std::to_integer<int>(b) > 1; }))
      reader.refuse(concat_text(made[i].name, ": has a bool that is neither 0 nor 1"));
    made[i].bytes.assign(own.begin(), own.end());
  }
  return made;
}
#endif
}  // namespace detail

#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE StateDict load_file(const std::string& path, Here at) {
  return detail::parse_safetensors(data::map_file(path, at).bytes, path, at);
}

TESSERA_ONCE void save_file(const StateDict& dict, const std::string& path, Here at) {
  if (detail::has_parts(dict)) return save_file(consolidate(dict, at), path, at);
  if (const std::string_view twice = detail::name_that_is_twice(dict); !twice.empty())
    fail(errc::structure, "[save_file] ", twice, ": is in the dict twice", Source::from(at));
  // Elements of 8 bytes come first, so that all elements are aligned, as readers that map the file expect.
  std::vector<std::size_t> order(dict.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return size_of(dict[a].dtype) > size_of(dict[b].dtype); });
  std::vector<std::size_t> begins(dict.size());
  std::size_t total = 0;
  for (const std::size_t i : order) {
    begins[i] = total;
    total += dict[i].bytes.size();
  }
  std::string header = "{";
  for (std::size_t i = 0; i < dict.size(); ++i) {
    const StateEntry& entry = dict[i];
    detail::check_entry("save_file", entry, at);
    if (entry.name == "__metadata__")
      fail(errc::structure, "[save_file] __metadata__ is no name of a tensor in a safetensors file", Source::from(at));
    if (i > 0) header += ',';
    header += detail::json_text(entry.name) + ":{\"dtype\":\"" +
              std::string(detail::safetensors_types[static_cast<std::size_t>(entry.dtype)]) + "\",\"shape\":[";
    for (std::size_t d = 0; d < entry.shape.size(); ++d) header += (d > 0 ? "," : "") + std::to_string(entry.shape[d]);
    header += "],\"data_offsets\":[" + std::to_string(begins[i]) + "," +
              std::to_string(begins[i] + entry.bytes.size()) + "]}";
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');

  data::detail::ReplacedFile file("save_file", path, at);
  const std::uint64_t length = header.size();
  file.write(&length, sizeof(length));
  file.write(header.data(), header.size());
  for (const std::size_t i : order) file.write(dict[i].bytes.data(), dict[i].bytes.size());
  file.finish();
}
#endif

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
