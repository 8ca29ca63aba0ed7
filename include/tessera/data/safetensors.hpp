#ifndef TESSERA_DATA_SAFETENSORS_HPP
#define TESSERA_DATA_SAFETENSORS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <tessera/base/compiled.hpp>
#include <tessera/base/here.hpp>
#include <tessera/data/mapped_file.hpp>
#include <tessera/parallel/state/state_dict.hpp>

#if TESSERA_HAS_DEFINITIONS
#include <algorithm>
#include <vector>

#include <tessera/base/error.hpp>
#include <tessera/base/source.hpp>
#include <tessera/data/safetensors_format.hpp>
#endif

// State dicts in files of the format safetensors, which PyTorch and JAX read and write.

namespace tessera {

/// Writes a dict to one file, as safetensors.torch.save_file, or `torch.save(model.state_dict(), path)`. Shards are
/// joined to whole tensors first. The file is written to `path`.partial, and renamed when it is on the disk (fsync), so
/// an error, a killed process or a loss of power leaves the previous file. If two savers write one path at once, the
/// file of the last one to finish stays.
///
///     ts::save_file(ts::full_state_dict(state), "state.safetensors");
///
/// Communication: none. Errors: `file` with the name of a file that can't be written; `structure` for a name that is in
/// the dict twice, for an entry with other bytes than its elements, and as consolidate.
TESSERA_ONCE void save_file(const StateDict& dict, const std::string& path, Here at = Here::current());

/// The dict in a file, with whole tensors in the order of its header, as safetensors.torch.load_file. Communication:
/// none. Errors: `file` with the name of the file and the problem.
///
///     state = ts::load_state_dict(state, ts::load_file("state.safetensors"));
TESSERA_ONCE StateDict load_file(const std::string& path, Here at = Here::current());

namespace detail {
/// The dict in the bytes of a file. Errors: `file`.
TESSERA_ONCE StateDict parse_safetensors(std::span<const std::byte> bytes, std::string_view name, Here at);
}  // namespace detail

#if TESSERA_HAS_DEFINITIONS
namespace detail {

/// Empty if all names differ.
inline std::string_view name_that_is_twice(const StateDict& dict) {
  std::vector<std::string_view> names;
  for (const StateEntry& entry : dict) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  return twice == names.end() ? std::string_view() : *twice;
}

TESSERA_ONCE StateDict parse_safetensors(std::span<const std::byte> bytes, std::string_view name, Here at) {
  StateDict made;
  for (const FileTensor& tensor : read_safetensors(bytes, "safetensors", name, at)) {
    check_bools(tensor, "safetensors", name, at);
    made.push_back(
        {tensor.name, tensor.dtype, tensor.shape, whole_box(tensor.shape), {tensor.bytes.begin(), tensor.bytes.end()}});
  }
  return made;
}

}  // namespace detail

TESSERA_ONCE StateDict load_file(const std::string& path, Here at) {
  return detail::parse_safetensors(data::map_file(path, at).bytes, path, at);
}

TESSERA_ONCE void save_file(const StateDict& dict, const std::string& path, Here at) {
  if (detail::has_parts(dict)) return save_file(consolidate(dict, at), path, at);
  if (const std::string_view twice = detail::name_that_is_twice(dict); !twice.empty())
    fail(errc::structure, "[save_file] ", twice, ": is in the dict twice", Source::from(at));
  std::vector<detail::FileTensor> tensors;
  for (const StateEntry& entry : dict) {
    detail::check_entry("save_file", entry, at);
    tensors.push_back({entry.name, entry.dtype, entry.shape, Shape(entry.shape.size(), 0), entry.bytes});
  }
  detail::write_safetensors("save_file", path, tensors, {}, at);
}
#endif

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
