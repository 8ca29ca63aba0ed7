#ifndef TESSERA_DATA_CHECKPOINT_SAVE_CHECKPOINT_HPP
#define TESSERA_DATA_CHECKPOINT_SAVE_CHECKPOINT_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/base/compiled.hpp>
#include <tessera/base/dtype.hpp>
#include <tessera/base/here.hpp>
#include <tessera/data/json_text.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/parallel/state/state_dict.hpp>
#include <tessera/runtime/memory/storage.hpp>
#include <tessera/tensor/storage/storage_of.hpp>

#if TESSERA_HAS_DEFINITIONS
#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <system_error>

#include <tessera/base/error.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/source.hpp>
#include <tessera/data/checkpoint/checkpoint_format.hpp>
#include <tessera/data/replaced_file.hpp>
#include <tessera/data/safetensors_format.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/parallel/process_group.hpp>
#endif

namespace tessera {

namespace detail {
/// A tensor of a model, whose elements it shares, or a Dim or Scalar.
struct CheckpointLeaf {
  std::string name;
  DType dtype = DType::f32;
  const TensorStorage* tensor = nullptr;
  IntrusivePtr<RefCounted> owner{};
  std::array<std::byte, 8> number{};
};
template <class Model> std::vector<CheckpointLeaf> checkpoint_leaves(const Model& model) {
  std::vector<CheckpointLeaf> made;
  for_each_state(model, [&](std::string_view name, const auto& leaf) {
    using Type = std::remove_cvref_t<decltype(leaf)>;
    if constexpr (StoredOperand<Type>) {
      const TensorStorage& storage = storage_of(leaf);
      made.push_back({std::string(name), storage.dtype(), &storage, leaf.storage()});
    } else {
      const auto value = leaf.value();
      CheckpointLeaf number{std::string(name), std::is_same_v<Type, Dim> ? DType::i64 : DType::f64};
      static_assert(sizeof(value) == sizeof(number.number));
      std::memcpy(number.number.data(), &value, sizeof(value));
      made.push_back(std::move(number));
    }
  });
  return made;
}

/// A checkpoint that is being saved. begin() and finish() are called by all processes, run() by each, on any thread.
struct CheckpointSave {
  std::string folder;
  std::vector<CheckpointLeaf> leaves{};
  Here at{};
  int first_file = 0;   // the files of this process are numbered from here on
  std::string error{};  // of run()

  std::string partial() const { return folder + ".partial"; }
  void begin();
  void run() noexcept;
  void finish();

 private:
  void write();
};
TESSERA_ONCE void save_checkpoint(std::vector<CheckpointLeaf> leaves, const std::string& folder, Here at);
}  // namespace detail

/// Saves a model, a state or a tuple of them in a folder, as torch.distributed.checkpoint.save. Each process writes the
/// shards that it stores, and of replicas only the first, so that nothing is gathered; no tensor is copied. The folder
/// must be one that all processes see. It has
///
/// - `shard-00001-model-00001-of-00001.safetensors` and so on: files of PyTorch's distributed checkpoints
///   (HuggingFaceStorageReader), which say where each part begins in its tensor;
/// - `manifest.json`: sizes and checksums of the files, and the type and sharding of each tensor.
///
/// All is written to `folder`.partial first, and to the disk (fsync), and then takes its name, so that an error, a
/// killed process and a loss of power leave the folder that was there before. Only one job at a time may save a folder.
///
///     ts::save_checkpoint(std::tuple(model, state), "runs/gpt/1000");
///     std::tie(model, state) = ts::load_checkpoint(std::tuple(model, state), "runs/gpt/1000");   // on any mesh
///
/// Of several processes, all call it; an error of any is thrown in each. Communication: none is counted. Errors: `file`
/// for what can't be written; `empty_tensor`; `structure` for two tensors of one name.
template <class Model> void save_checkpoint(const Model& model, const std::string& folder, Here at = Here::current()) {
  detail::save_checkpoint(detail::checkpoint_leaves(model), folder, at);
}

#if TESSERA_HAS_DEFINITIONS
namespace detail {

/// The parts of tensors that this process writes, in as many files as it has parts of one tensor.
inline std::vector<std::vector<FileTensor>> files_of(const std::vector<CheckpointLeaf>& leaves) {
  std::vector<std::vector<FileTensor>> files;
  const auto add = [&](std::size_t file, FileTensor part) {
    if (file == files.size()) files.emplace_back();
    files[file].push_back(std::move(part));
  };
  for (const CheckpointLeaf& leaf : leaves) {
    if (leaf.tensor == nullptr) {
      if (process_index() == 0) add(0, {leaf.name, leaf.dtype, {}, {}, leaf.number});
      continue;
    }
    const TensorStorage& tensor = *leaf.tensor;
    const ShardGrid grid = tensor.grid();
    const bool is_empty = elements_of(tensor.shape()) == 0;
    std::size_t file = 0;
    for (int shard = 0; shard < tensor.shard_count(); ++shard) {
      const int device = tensor.mesh().device_at(grid.coordinates(shard, 0));
      const int writer = spans_processes(tensor.mesh()) ? process_of(tensor.mesh(), device) : 0;
      const Box& box = tensor.box(shard);
      if (writer != process_index() || (box.empty() && !is_empty)) continue;
      const Shape shape = extents(box);
      const auto bytes = static_cast<std::size_t>(volume(shape)) * size_of(leaf.dtype);
      add(file++,
          {leaf.name, leaf.dtype, shape, box.begin, {static_cast<const std::byte*>(tensor.data(shard)), bytes}});
    }
  }
  return files;
}

TESSERA_ONCE void CheckpointSave::begin() {
  std::vector<std::string_view> names;
  for (const CheckpointLeaf& leaf : leaves) {
    names.push_back(leaf.name);
    // Elements that are not written yet may come from other processes, with which another thread must not speak.
    if (leaf.tensor != nullptr && leaf.tensor->shard_count() > 0) (void)leaf.tensor->data(0);
  }
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    fail(errc::structure, "[save_checkpoint] ", *twice, ": two tensors have this name", Source::from(at));
  std::string mistake;
  if (process_index() == 0) {
    std::error_code reason;
    const std::filesystem::path before = folder + ".replaced";
    if (!std::filesystem::exists(folder, reason) && std::filesystem::exists(before, reason))
      std::filesystem::rename(before, folder, reason);  // ended between the two renames of write()
    if (!reason) std::filesystem::remove_all(partial(), reason);
    if (!reason) std::filesystem::create_directories(partial(), reason);
    if (reason)
      mistake = concat_text("[save_checkpoint] ", partial(), ": can't be made: ", reason.message(), Source::from(at));
  }
  const std::size_t own = files_of(leaves).size();
  agree_on_error("save_checkpoint", mistake, at);
  const std::vector<std::string> counts =
      SessionProcesses().rendezvous(concat_text("save_checkpoint ", folder), std::to_string(own));
  first_file = 0;
  for (int process = 0; process < process_index(); ++process)
    first_file += std::stoi(counts[static_cast<std::size_t>(process)]);
}

TESSERA_ONCE void CheckpointSave::run() noexcept {
  try {
    write();
  } catch (const std::exception& e) {
    error = e.what();
    if (process_index() == 0) return;
    try {  // process 0 waits for what this process wrote
      data::detail::ReplacedFile file("save_checkpoint", part_of_manifest(partial(), process_index()), at);
      const std::string text = concat_text("{\"error\": ", json_text(error), "}");
      file.write(text.data(), text.size());
      file.finish();
    } catch (const std::exception&) {
    }
  }
}

TESSERA_ONCE void CheckpointSave::write() {
  namespace fs = std::filesystem;
  Manifest manifest;
  const std::vector<std::vector<FileTensor>> files = files_of(leaves);
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string name = checkpoint_file_name(first_file + static_cast<int>(i));
    Manifest::File& file = manifest.files[name];
    std::string info = "{";
    for (const FileTensor& part : files[i]) {
      file.checksums[part.name] = checksum(part.bytes);
      if (info.size() > 1) info += ", ";
      info += concat_text(json_text(part.name), ": {\"saved_offsets\": [");
      for (std::size_t d = 0; d < part.offsets.size(); ++d)
        info += concat_text(d > 0 ? ", " : "", std::to_string(part.offsets[d]));
      info += "]}";
    }
    info += '}';
    const std::string metadata =
        concat_text("{\"format\":\"pt\",\"DCP_VERSION\":\"1.0\",\"", sharding_info_key, "\":", json_text(info), "}");
    const std::string path = (fs::path(partial()) / name).string();
    write_safetensors("save_checkpoint", path, files[i], metadata, at);
    file.bytes = static_cast<std::int64_t>(fs::file_size(path));
  }
  const auto write_text = [&](const std::string& path, const std::string& text) {
    data::detail::ReplacedFile file("save_checkpoint", path, at);
    file.write(text.data(), text.size());
    file.finish();
  };
  if (process_index() > 0) return write_text(part_of_manifest(partial(), process_index()), manifest.text());

  for (int process = 1; process < process_count(); ++process)
    manifest.add(wait_for_part_of_manifest(partial(), process, at));
  for (const CheckpointLeaf& leaf : leaves)
    manifest.tensors[leaf.name] =
        leaf.tensor == nullptr ? std::string(name_of(leaf.dtype)) : sharded_type_text(*leaf.tensor);
  write_text((fs::path(partial()) / manifest_name).string(), manifest.text());

  std::error_code reason;
  const fs::path before = folder + ".replaced";
  fs::remove_all(before, reason);
  if (!reason && fs::exists(folder, reason)) fs::rename(folder, before, reason);
  if (!reason) fs::rename(partial(), folder, reason);
  if (reason)
    fail(errc::file, "[save_checkpoint] ", folder, ": can't be written: ", reason.message(), Source::from(at));
  data::detail::sync_folder_of("save_checkpoint", folder, at);
  fs::remove_all(before, reason);
}

TESSERA_ONCE void CheckpointSave::finish() { agree_on_error("save_checkpoint", error, at); }

TESSERA_ONCE void save_checkpoint(std::vector<CheckpointLeaf> leaves, const std::string& folder, Here at) {
  std::string name = folder;  // "runs/1/" is "runs/1": what is beside it must not be in it
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  CheckpointSave save{name, std::move(leaves), at};
  save.begin();
  save.run();
  save.finish();
}

}  // namespace detail
#endif

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
