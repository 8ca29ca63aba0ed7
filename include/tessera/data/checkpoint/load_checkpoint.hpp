#ifndef TESSERA_DATA_CHECKPOINT_LOAD_CHECKPOINT_HPP
#define TESSERA_DATA_CHECKPOINT_LOAD_CHECKPOINT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/base/compiled.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/parallel/state/state_dict.hpp>
#include <tessera/runtime/memory/storage.hpp>
#include <tessera/runtime/threads/function_ref.hpp>
#include <tessera/tensor/storage/storage_of.hpp>

#if TESSERA_HAS_DEFINITIONS
#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/source.hpp>
#include <tessera/data/checkpoint/checkpoint_format.hpp>
#include <tessera/data/mapped_file.hpp>
#include <tessera/data/safetensors_format.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/runtime/threads/team.hpp>
#include <tessera/runtime/transport/box_index.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/runtime/transport/reshard.hpp>
#include <tessera/tensor/local_shards.hpp>
#include <tessera/tensor/storage/shard_refs.hpp>
#endif

namespace tessera {

/// How load_checkpoint reads.
struct LoadCheckpoint {
  bool strict = true;  ///< each tensor of the model must be in the checkpoint, and each of the checkpoint in the model
  bool verify = true;  ///< compare the checksums of the parts that are read, all of whose bytes this reads
};

namespace detail {
/// The tensors of a checkpoint, whose files are mapped into memory.
class CheckpointFiles {
 public:
  CheckpointFiles(const std::string& path, Here at);
  CheckpointFiles(const CheckpointFiles&) = delete;
  CheckpointFiles& operator=(const CheckpointFiles&) = delete;
  ~CheckpointFiles();

  std::span<const SavedLeaf> leaves() const { return leaves_; }
  /// A tensor with the layout of `like`, of which the shards of this process are read.
  StoragePtr read(std::size_t leaf, const TensorStorage& like, bool verify, Here at) const;
  /// The bytes of a Dim or Scalar.
  const std::byte* number(std::size_t leaf) const;

 private:
  struct Contents;
  std::unique_ptr<Contents> contents_;
  std::vector<SavedLeaf> leaves_;
};
/// Calls f, and throws in all processes if it throws in one of them.
TESSERA_ONCE void load_together(runtime::FunctionRef<void()> f, Here at);
}  // namespace detail

/// A model with the values of a checkpoint, in the layouts that its tensors have, on any mesh and in any number of
/// processes, as torch.distributed.checkpoint.load. The model must have the structure that was saved; its own values
/// are not used, so that a model of ts::deferred_init never has memory for them. Each process reads the parts of files
/// that its devices store, and no others. `path` is
///
/// - a folder of save_checkpoint;
/// - a folder with model.safetensors.index.json and the files that it names, as Hugging Face's models of several files;
/// - a folder with only safetensors files, such as PyTorch's distributed checkpoints in this format;
/// - a safetensors file.
///
/// Of several processes, all call it; an error of any is thrown in each. Communication: none. Errors: `file` for what
/// can't be read, for a part that is missing or is there twice, and for bytes that do not have their checksum; as
/// load_state_dict for names, types and shapes.
///
///     auto model = ts::deferred_init([&] { return make_model(ts::Key(0), mesh); });
///     model = ts::load_checkpoint(model, "runs/gpt/1000");
template <class Model>
Model load_checkpoint(Model model, const std::string& path, LoadCheckpoint options = {}, Here at = Here::current()) {
  detail::load_together(
      [&] {
        const detail::CheckpointFiles files(path, at);
        detail::load_leaves("load_checkpoint", "the checkpoint", model, files.leaves(), options.strict, at,
                            [&](std::size_t i, auto& leaf) {
                              using Type = std::remove_cvref_t<decltype(leaf)>;
                              if constexpr (StoredOperand<Type>)
                                leaf = tensor_of<typename Type::element, Type::rank>(
                                    files.read(i, storage_of(leaf), options.verify, at));
                              else
                                detail::set_number(leaf, files.number(i));
                            });
      },
      at);
  return model;
}

#if TESSERA_HAS_DEFINITIONS
namespace detail {

struct CheckpointFiles::Contents {
  struct Part {
    FileTensor tensor;
    std::size_t file = 0;
    std::optional<std::uint64_t> checksum{};
  };
  std::vector<std::string> paths;
  std::vector<data::MappedFile> files;
  std::vector<std::string> names;        // of the leaves
  std::vector<std::vector<Part>> parts;  // of each leaf
};

/// The files that an index of Hugging Face names.
inline std::set<std::string> files_of_index(const std::string& path, Here at) {
  const data::MappedFile index = data::map_file(path, at);
  JsonReader reader{
      {reinterpret_cast<const char*>(index.bytes.data()), index.bytes.size()}, "load_checkpoint", path, at};
  std::set<std::string> files;
  reader.object([&](const std::string& key) {
    if (key != "weight_map") return reader.skip();
    reader.object([&](const std::string&) { files.insert(reader.text()); });
  });
  reader.end();
  return files;
}

/// Refuses two parts that overlap.
template <class Refuse> void check_disjoint(std::string_view name, const Growable<Box>& boxes, const Refuse& refuse) {
  const auto refuse_both = [&](const Box& both) { refuse(name, ": two parts have its elements ", text(both)); };
  std::vector<const Box*> by_begin;
  for (const Box& box : boxes)
    if (!box.empty()) by_begin.push_back(&box);
  const auto begins = [](const Box* a, const Box* b) {
    return std::lexicographical_compare(a->begin.begin(), a->begin.end(), b->begin.begin(), b->begin.end());
  };
  std::sort(by_begin.begin(), by_begin.end(), begins);
  for (std::size_t i = 1; i < by_begin.size(); ++i)
    if (by_begin[i]->begin == by_begin[i - 1]->begin) refuse_both(intersect(*by_begin[i], *by_begin[i - 1]));
  const runtime::BoxIndex index(boxes);  // of boxes that are not equal
  for (std::size_t part = 0; part < boxes.size(); ++part)
    index.for_each_overlap(boxes[part], [&](std::size_t other, const Box& both) {
      if (other != part) refuse_both(both);
    });
}

TESSERA_ONCE CheckpointFiles::CheckpointFiles(const std::string& path, Here at)
    : contents_(std::make_unique<Contents>()) {
  namespace fs = std::filesystem;
  const auto refuse = [&](const auto&... why) {
    fail(errc::file, "[load_checkpoint] ", path, ": ", why..., Source::from(at));
  };
  Contents& all = *contents_;
  Manifest manifest;
  const auto add_file = [&](const std::string& name) {
    if (name.empty() || name == ".." || name.find('/') != name.npos || name.find('\\') != name.npos)
      refuse("names the file '", name, "', which is not in its folder");
    all.paths.push_back((fs::path(path) / name).string());
  };
  std::error_code reason;
  if (!fs::exists(path, reason)) refuse("there is no such file or folder");
  if (!fs::is_directory(path, reason)) {
    all.paths.push_back(path);
  } else if (const fs::path own = fs::path(path) / manifest_name; fs::exists(own)) {
    const data::MappedFile text = data::map_file(own.string(), at);
    manifest = Manifest::parse({reinterpret_cast<const char*>(text.bytes.data()), text.bytes.size()}, "load_checkpoint",
                               own.string(), at);
    for (const auto& [name, file] : manifest.files) add_file(name);
  } else if (const fs::path index = fs::path(path) / "model.safetensors.index.json"; fs::exists(index)) {
    for (const std::string& name : files_of_index(index.string(), at)) add_file(name);
  } else {
    for (const fs::directory_entry& entry : fs::directory_iterator(path, reason))
      if (entry.path().extension() == ".safetensors") all.paths.push_back(entry.path().string());
    if (reason) refuse("can't be read: ", reason.message());
    std::sort(all.paths.begin(), all.paths.end());
    if (all.paths.empty()) refuse("has neither a manifest.json nor safetensors files");
  }

  std::map<std::string, std::size_t> index;
  for (std::size_t f = 0; f < all.paths.size(); ++f) {
    all.files.push_back(data::map_file(all.paths[f], at));
    const std::span<const std::byte> bytes = all.files[f].bytes;
    const auto listed = manifest.files.find(fs::path(all.paths[f]).filename().string());
    if (listed != manifest.files.end() && listed->second.bytes != static_cast<std::int64_t>(bytes.size()))
      refuse(listed->first, " has ", bytes.size(), " bytes, in its manifest ", listed->second.bytes);
    for (FileTensor& tensor : read_safetensors(bytes, "load_checkpoint", all.paths[f], at)) {
      const auto [leaf, is_new] = index.try_emplace(tensor.name, all.names.size());
      if (is_new) {
        all.names.push_back(tensor.name);
        all.parts.emplace_back();
      }
      Contents::Part part{std::move(tensor), f};
      if (listed != manifest.files.end())
        if (const auto sum = listed->second.checksums.find(leaf->first); sum != listed->second.checksums.end())
          part.checksum = sum->second;
      all.parts[leaf->second].push_back(std::move(part));
    }
  }
  for (std::size_t i = 0; i < all.names.size(); ++i) {
    const std::vector<Contents::Part>& parts = all.parts[i];
    SavedLeaf leaf{all.names[i], parts[0].tensor.dtype, parts[0].tensor.shape};
    Growable<Box> boxes;
    std::int64_t elements = 0;
    for (const Contents::Part& part : parts) {
      const FileTensor& tensor = part.tensor;
      if (tensor.dtype != leaf.dtype || tensor.shape.size() != leaf.shape.size())
        refuse(leaf.name, ": has parts of ", shape_text(leaf.dtype, leaf.shape), " and of ",
               shape_text(tensor.dtype, tensor.shape));
      Box box{tensor.offsets, tensor.offsets};
      for (std::size_t d = 0; d < leaf.shape.size(); ++d) {
        box.end[d] += tensor.shape[d];
        leaf.shape[d] = std::max(leaf.shape[d], box.end[d]);
      }
      elements += volume(tensor.shape);
      boxes.push_back(box);
    }
    check_disjoint(leaf.name, boxes, refuse);
    if (elements != elements_of(leaf.shape))
      refuse(leaf.name, ": a part is missing: ", elements, " of the elements of ", shape_text(leaf.dtype, leaf.shape),
             " are there");
    leaves_.push_back(leaf);
  }
}
TESSERA_ONCE CheckpointFiles::~CheckpointFiles() = default;

TESSERA_ONCE const std::byte* CheckpointFiles::number(std::size_t leaf) const {
  return contents_->parts[leaf][0].tensor.bytes.data();
}

TESSERA_ONCE StoragePtr CheckpointFiles::read(std::size_t leaf, const TensorStorage& like, bool verify, Here at) const {
  const StoragePtr to(new TensorStorage(like.layout()));
  const std::size_t element = size_of(like.dtype());
  Growable<runtime::ShardRef> sources;
  std::vector<std::vector<std::byte>> aligned;
  std::vector<const Contents::Part*> read;
  for (const Contents::Part& part : contents_->parts[leaf]) {
    const FileTensor& tensor = part.tensor;
    Box box{tensor.offsets, tensor.offsets};
    for (std::size_t d = 0; d < tensor.shape.size(); ++d) box.end[d] += tensor.shape[d];
    const std::byte* data = tensor.bytes.data();
    bool is_read = false;
    for (int shard = 0; shard < to->shard_count() && !is_read; ++shard)
      is_read = to->holds(shard) && !intersect(to->box(shard), box).empty();
    if (is_read) {
      read.push_back(&part);
      if (reinterpret_cast<std::uintptr_t>(data) % element != 0)  // other writers may not align
        data = aligned.emplace_back(tensor.bytes.begin(), tensor.bytes.end()).data();
    }
    sources.push_back(runtime::shard_ref(const_cast<std::byte*>(data), box));
  }
  parallel_for(static_cast<std::int64_t>(read.size()), Cost::bytes(static_cast<double>(to->layout()->bytes())),
               [&](std::int64_t i) {
                 const Contents::Part& part = *read[static_cast<std::size_t>(i)];
                 const std::string& path = contents_->paths[part.file];
                 check_bools(part.tensor, "load_checkpoint", path, at);
                 if (verify && part.checksum && checksum(part.tensor.bytes) != *part.checksum)
                   fail(errc::file, "[load_checkpoint] ", path, ": ", part.tensor.name,
                        ": its bytes do not have the checksum of the manifest", Source::from(at));
               });
  const Uncounted uncounted;
  runtime::reshard(like.dtype(), Reduction::sum, shard_refs(*to), sources);
  return to;
}

TESSERA_ONCE void load_together(runtime::FunctionRef<void()> f, Here at) {
  if (process_count() == 1) return f();
  std::exception_ptr own;
  std::string mistake;
  try {
    f();
  } catch (const std::exception& e) {
    own = std::current_exception();
    mistake = e.what();
  }
  const std::vector<std::string> all = SessionProcesses().rendezvous("load_checkpoint", mistake);
  if (own) std::rethrow_exception(own);
  for (std::size_t process = 0; process < all.size(); ++process)
    if (!all[process].empty()) fail(errc::file, "process ", process, ": ", all[process], Source::from(at));
}

}  // namespace detail
#endif

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
