#ifndef TESSERA_PARALLEL_STATE_STATE_DICT_HPP
#define TESSERA_PARALLEL_STATE_STATE_DICT_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
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

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/named_leaves.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/storage/storage_of.hpp>

namespace tessera {

/// One tensor of a model or an optimizer state, whole or a shard, in row-major order on the host. Dims are i64 of rank
/// 0, Scalars f64 of rank 0.
struct StateEntry {
  std::string name;  ///< "blocks.3.up.weight"
  DType dtype = DType::f32;
  Shape shape{};  ///< of the whole tensor
  Box box{};      ///< the part: its indices in the whole tensor
  std::vector<std::byte> bytes{};
};
using StateDict = std::vector<StateEntry>;

namespace detail {
inline Box whole_box(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }
template <class T> StateEntry number_entry(std::string_view name, DType dtype, T value) {
  StateEntry made{std::string(name), dtype, {}, {}, std::vector<std::byte>(sizeof(T))};
  std::memcpy(made.bytes.data(), &value, sizeof(T));
  return made;
}
template <class F> struct CallWithName {
  F& f;
  void operator()(std::string_view name, auto& leaf, int) { f(name, leaf); }
};
/// Calls f for the leaves of a model with their names, layer by layer.
template <class Model, class F> void for_each_state(Model& model, F&& f) {
  for_each_named_leaf(model, VisitLayers::each, CallWithName<std::remove_reference_t<F>>{f});
}
/// Copies the rows of a part to or from the whole, `of_whole(offset in the whole, offset in the part, elements)`.
template <class F> void for_each_run(const Shape& shape, const Box& box, F&& f) {
  const std::int64_t elements = volume(extents(box));
  if (elements == 0) return;
  if (shape.empty()) return f(std::int64_t{0}, std::int64_t{0}, std::int64_t{1});
  const std::size_t last = shape.size() - 1;
  const std::int64_t run = box.end[last] - box.begin[last];
  Shape at = box.begin;
  for (std::int64_t done = 0; done < elements; done += run) {
    std::int64_t offset = 0;
    for (std::size_t dim = 0; dim <= last; ++dim) offset = offset * shape[dim] + at[dim];
    f(offset, done, run);
    for (std::size_t dim = last; dim-- > 0;) {
      if (++at[dim] < box.end[dim]) break;
      at[dim] = box.begin[dim];
    }
  }
}
}  // namespace detail

/// All tensors of a model or an optimizer state, each whole, as model.state_dict() of PyTorch with
/// StateDictType.FULL_STATE_DICT. Communication: none is counted; shards are copied to the host. Errors:
/// `empty_tensor`.
template <class Model> StateDict full_state_dict(const Model& model) {
  StateDict made;
  detail::for_each_state(model, [&](std::string_view name, const auto& leaf) {
    using Type = std::remove_cvref_t<decltype(leaf)>;
    if constexpr (StoredOperand<Type>) {
      using T = typename Type::element;
      const auto values = to_host(leaf);
      StateEntry entry{std::string(name), dtype_v<T>, shape(leaf), detail::whole_box(shape(leaf)),
                       std::vector<std::byte>(static_cast<std::size_t>(size(leaf)) * sizeof(T))};
      for (std::size_t i = 0; i < values.size(); ++i) {
        const T value = values[i];
        std::memcpy(entry.bytes.data() + i * sizeof(T), &value, sizeof(T));
      }
      made.push_back(std::move(entry));
    } else if constexpr (std::is_same_v<Type, Dim>) {
      made.push_back(detail::number_entry(name, DType::i64, leaf.value()));
    } else {
      made.push_back(detail::number_entry(name, DType::f64, leaf.value()));
    }
  });
  return made;
}

namespace detail {
/// Refuses an entry whose box is not in its shape, or whose bytes are not those of its box.
inline void check_entry(std::string_view operation, const StateEntry& entry, Here at) {
  const Box& box = entry.box;
  bool inside = box.begin.size() == entry.shape.size() && box.end.size() == entry.shape.size();
  for (std::size_t d = 0; inside && d < entry.shape.size(); ++d)
    inside = 0 <= box.begin[d] && box.begin[d] <= box.end[d] && box.end[d] <= entry.shape[d];
  if (!inside || elements_of(entry.shape) < 0)
    fail(errc::structure, "[", operation, "] ", entry.name, ": a part has a box that is not in ",
         shape_text(entry.dtype, entry.shape), Source::from(at));
  if (entry.bytes.size() != static_cast<std::size_t>(volume(extents(box))) * size_of(entry.dtype))
    fail(errc::structure, "[", operation, "] ", entry.name, ": a part has ", entry.bytes.size(),
         " bytes, not those of its box", Source::from(at));
}
}  // namespace detail

/// The tensor, or the shard, with its dims in the opposite order: a weight [out, in] of PyTorch becomes the [in, out]
/// of ts::nn::Linear, and a convolution weight [out, in, height, width] becomes [width, height, in, out]. Errors:
/// `structure` for an entry whose bytes are not those of its box.
inline StateEntry transposed(const StateEntry& entry, Here at = Here::current()) {
  detail::check_entry("transposed", entry, at);
  const auto reversed = [](const Shape& shape) {
    Shape back;
    for (std::size_t d = shape.size(); d-- > 0;) back.push_back(shape[d]);
    return back;
  };
  StateEntry made{entry.name,
                  entry.dtype,
                  reversed(entry.shape),
                  {reversed(entry.box.begin), reversed(entry.box.end)},
                  std::vector<std::byte>(entry.bytes.size())};
  const Shape from = extents(entry.box), to = extents(made.box);
  Shape strides(from.size(), static_cast<std::int64_t>(size_of(entry.dtype)));  // of the given bytes, by reversed dim
  for (std::size_t d = 1; d < to.size(); ++d) strides[d] = strides[d - 1] * to[d - 1];
  Shape index(to.size(), 0);
  for (std::size_t done = 0; done < made.bytes.size(); done += size_of(entry.dtype)) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < to.size(); ++d) offset += index[d] * strides[d];
    std::memcpy(made.bytes.data() + done, entry.bytes.data() + offset, size_of(entry.dtype));
    for (std::size_t d = to.size(); d-- > 0;) {
      if (++index[d] < to[d]) break;
      index[d] = 0;
    }
  }
  return made;
}

/// The distinct shards in this process, as StateDictType.SHARDED_STATE_DICT. The box of an entry says which shard it
/// is, as get_shard_metadata of PyTorch/XLA. Communication: none.
template <class Model> StateDict sharded_state_dict(const Model& model) {
  StateDict made;
  detail::for_each_state(model, [&](std::string_view name, const auto& leaf) {
    using Type = std::remove_cvref_t<decltype(leaf)>;
    if constexpr (StoredOperand<Type>) {
      const TensorStorage& storage = storage_of(leaf);
      for (int shard = 0; shard < storage.shard_count(); ++shard) {
        if (!storage.holds(shard)) continue;
        const Box& box = storage.box(shard);
        const auto bytes = static_cast<std::size_t>(volume(extents(box))) * size_of(storage.dtype());
        const auto* const data = static_cast<const std::byte*>(storage.data(shard));
        made.push_back({std::string(name), storage.dtype(), storage.shape(), box, {data, data + bytes}});
      }
    } else if constexpr (std::is_same_v<Type, Dim>) {
      made.push_back(detail::number_entry(name, DType::i64, leaf.value()));
    } else {
      made.push_back(detail::number_entry(name, DType::f64, leaf.value()));
    }
  });
  return made;
}

/// Joins the shards of one dict, or of several dicts in any order, to whole tensors, in the order of the first entries
/// of each name; as consolidate_sharded_model_checkpoints of PyTorch/XLA, in memory. Errors: `structure` for a tensor
/// with a missing part or with parts that overlap, for a part outside of its tensor or with other bytes than its
/// elements, and for parts of one name with two shapes or element types.
inline StateDict consolidate(const StateDict& parts, Here at = Here::current()) {
  StateDict made;
  std::vector<std::vector<bool>> filled;
  for (const StateEntry& part : parts) {
    detail::check_entry("consolidate", part, at);
    const auto same = std::find_if(made.begin(), made.end(), [&](const StateEntry& e) { return e.name == part.name; });
    const auto index = static_cast<std::size_t>(same - made.begin());
    const std::size_t element = size_of(part.dtype);
    if (same == made.end()) {
      const auto elements = static_cast<std::size_t>(volume(part.shape));
      made.push_back({part.name, part.dtype, part.shape, detail::whole_box(part.shape),
                      std::vector<std::byte>(elements * element)});
      filled.push_back(std::vector<bool>(elements, false));
    }
    StateEntry& whole = made[index];
    if (whole.dtype != part.dtype || !(whole.shape == part.shape))
      fail(errc::structure, "[consolidate] ", part.name, ": parts of ", shape_text(whole.dtype, whole.shape),
           " and of ", shape_text(part.dtype, part.shape), Source::from(at));
    detail::for_each_run(part.shape, part.box, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        if (filled[index][static_cast<std::size_t>(to + i)])
          fail(errc::structure, "[consolidate] ", part.name, ": two parts have the element ", to + i, Source::from(at));
        filled[index][static_cast<std::size_t>(to + i)] = true;
      }
      std::copy_n(part.bytes.data() + static_cast<std::size_t>(from) * element,
                  static_cast<std::size_t>(count) * element,
                  whole.bytes.data() + static_cast<std::size_t>(to) * element);
    });
  }
  for (std::size_t i = 0; i < made.size(); ++i)
    if (const auto gap = std::find(filled[i].begin(), filled[i].end(), false); gap != filled[i].end())
      fail(errc::structure, "[consolidate] ", made[i].name, ": no part has the element ", gap - filled[i].begin(),
           " of ", shape_text(made[i].dtype, made[i].shape), Source::from(at));
  return made;
}

/// Whether each tensor of the model must be in the dict, and each entry of the dict in the model, as `strict` of
/// PyTorch's load_state_dict.
struct LoadStateDict {
  bool strict = true;
};

namespace detail {
/// Whether an entry of the dict is a part of its tensor.
inline bool has_parts(const StateDict& dict) {
  return std::any_of(dict.begin(), dict.end(),
                     [](const StateEntry& e) { return elements_of(extents(e.box)) != elements_of(e.shape); });
}
inline void add_name(std::string& names, std::string_view name) {
  if (!names.empty()) names += ", ";
  names += name;
}

/// A tensor or number that was saved, without its elements.
struct SavedLeaf {
  std::string_view name;
  DType dtype = DType::f32;
  Shape shape{};
};

/// Calls load(index, leaf) for each leaf of a model that was saved under its name, with the index in `saved`; other
/// leaves stay as they are. `source` names what was saved in messages: "the dict".
template <class Model, class Load>
void load_leaves(std::string_view operation, std::string_view source, Model& model, std::span<const SavedLeaf> saved,
                 bool strict, Here at, Load&& load) {
  std::vector<std::size_t> by_name(saved.size());
  for (std::size_t i = 0; i < saved.size(); ++i) by_name[i] = i;
  std::sort(by_name.begin(), by_name.end(),
            [&](std::size_t a, std::size_t b) { return saved[a].name < saved[b].name; });
  std::vector<bool> used(saved.size(), false);
  std::string missing, missing_numbers, unexpected;
  bool has_numbers = false;
  for_each_state(model, [&](std::string_view name, auto& leaf) {
    using Type = std::remove_cvref_t<decltype(leaf)>;
    constexpr bool is_tensor = StoredOperand<Type>;
    const auto first = std::lower_bound(by_name.begin(), by_name.end(), name,
                                        [&](std::size_t i, std::string_view of) { return saved[i].name < of; });
    if (first == by_name.end() || saved[*first].name != name)
      return add_name(is_tensor ? missing : missing_numbers, name);
    if (first + 1 != by_name.end() && saved[first[1]].name == name)
      fail(errc::structure, "[", operation, "] ", name, ": is in ", source, " twice", Source::from(at));
    const SavedLeaf& found = saved[*first];
    used[*first] = true;
    has_numbers = has_numbers || !is_tensor;
    DType dtype = std::is_same_v<Type, Dim> ? DType::i64 : DType::f64;
    Shape expected;
    if constexpr (is_tensor) {
      dtype = dtype_v<typename Type::element>;
      expected = shape(leaf);
    }
    if (found.dtype != dtype)
      fail(errc::dtype_mismatch, "[", operation, "] ", name, ": the model has ", name_of(dtype), ", ", source, " ",
           name_of(found.dtype),
           is_floating(dtype) && is_floating(found.dtype)
               ? "; load into a model of that element type, and convert it with ts::cast_model"
               : "",
           Source::from(at));
    if (!(found.shape == expected)) {
      Shape opposite = expected;
      std::reverse(opposite.begin(), opposite.end());
      fail(errc::shape_mismatch, "[", operation, "] ", name, ": the model has ", shape_text(dtype, expected), ", ",
           source, " ", shape_text(found.dtype, found.shape),
           found.shape == opposite ? "; ts::transposed(entry) has the dims in the opposite order" : "",
           Source::from(at));
    }
    load(*first, leaf);
  });
  // PyTorch and JAX save no Dims and Scalars, so if the source has none, those of the model stay. If it has some of
  // them, the others were lost.
  if (has_numbers && !missing_numbers.empty()) add_name(missing, missing_numbers);
  for (std::size_t i = 0; i < saved.size(); ++i)
    if (!used[i]) add_name(unexpected, saved[i].name);
  if (!strict && !saved.empty() && std::find(used.begin(), used.end(), true) == used.end())
    fail(errc::structure, "[", operation, "] names: the model has no name of ", source, ", ", saved[0].name,
         saved.size() > 1 ? ", ..." : "", "; ", source, " lacks ", missing, Source::from(at));
  if (strict && !(missing.empty() && unexpected.empty()))
    fail(errc::structure, "[", operation, "] names: ", missing.empty() ? std::string() : concat_text(source, " lacks "),
         missing, missing.empty() || unexpected.empty() ? "" : "; ", unexpected.empty() ? "" : "the model lacks ",
         unexpected, Source::from(at));
}

/// Sets a Dim or a Scalar to a value of its type in memory.
template <class Number> void set_number(Number& leaf, const std::byte* bytes) {
  decltype(leaf.value()) value{};
  std::memcpy(&value, bytes, sizeof(value));
  leaf = Number(value);
}
}  // namespace detail

/// Returns the model with the values of a dict, in the shardings of its tensors, as load_state_dict of PyTorch. The
/// dict has whole tensors or shards. The model must have the structure that was saved. If the dict has none of its Dims
/// and Scalars, such as `heads` and `epsilon`, which other libraries do not save, these keep their values. With
/// `{.strict = false}`, tensors that the dict lacks keep their values, and entries that the model lacks are ignored,
/// unless no name matches. Errors: `structure` for missing and unexpected names, all of which the message lists, for a
/// name that is in the dict twice, and as consolidate; `dtype_mismatch`; `shape_mismatch`.
///
///     model = ts::load_state_dict(model, pretrained, {.strict = false});   // with a new head
template <class Model>
Model load_state_dict(Model model, const StateDict& dict, LoadStateDict options = {}, Here at = Here::current()) {
  if (detail::has_parts(dict)) return load_state_dict(std::move(model), consolidate(dict, at), options, at);
  std::vector<detail::SavedLeaf> saved;
  for (const StateEntry& entry : dict) saved.push_back({entry.name, entry.dtype, entry.shape});
  detail::load_leaves("load_state_dict", "the dict", model, saved, options.strict, at, [&](std::size_t i, auto& leaf) {
    using Type = std::remove_cvref_t<decltype(leaf)>;
    detail::check_entry("load_state_dict", dict[i], at);
    const std::vector<std::byte>& bytes = dict[i].bytes;
    if constexpr (StoredOperand<Type>) {
      using T = typename Type::element;
      const PartitionSpec spec = spec_of(sharding(leaf), mesh(leaf));
      // std::byte may alias elements, but elements not bytes: copy them.
      const auto values = std::make_unique<T[]>(std::max<std::size_t>(bytes.size() / sizeof(T), 1));
      std::memcpy(static_cast<void*>(values.get()), bytes.data(), bytes.size());
      leaf = shard<Type::rank>(std::span<const T>(values.get(), bytes.size() / sizeof(T)), Shape(shape(leaf)),
                               mesh(leaf), spec, at);
    } else {
      detail::set_number(leaf, bytes.data());
    }
  });
  return model;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
