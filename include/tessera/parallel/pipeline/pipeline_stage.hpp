#ifndef TESSERA_PARALLEL_PIPELINE_PIPELINE_STAGE_HPP
#define TESSERA_PARALLEL_PIPELINE_PIPELINE_STAGE_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/base/error.hpp>
#include <tessera/base/fixed_string.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/integers/checked.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/stack.hpp>
#include <tessera/graph/trace/tree.hpp>
#include <tessera/kernels/strides.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/ops/shard_map/axis_text.hpp>
#include <tessera/ops/shard_map/shard_map.hpp>
#include <tessera/parallel/required_axis.hpp>
#include <tessera/runtime/memory/storage.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/runtime/transport/reshard.hpp>
#include <tessera/tensor/storage/allocate.hpp>
#include <tessera/tensor/storage/shard_refs.hpp>
#include <tessera/tensor/storage/storage_of.hpp>

namespace tessera {

namespace detail {

/// Replaces the tensors of a block by those of another block where a local condition is true.
template <class Condition> struct ReplaceWhere {
  const Condition& condition;
  const Growable<Value>& others;
  std::size_t next = 0;
  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    if constexpr (StoredOperand<Leaf>)
      leaf = Leaf(select(condition, local_of(Leaf(others[next++]), condition), local_of(leaf, condition)));
  }
  constexpr void enter_stack(const auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};
struct CollectTensors {
  Growable<Value> values;
  template <class Leaf> constexpr void leaf(const Leaf& leaf) {
    if constexpr (StoredOperand<Leaf>) values.push_back(leaf.placeholder());
  }
  constexpr void enter_stack(const auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};

}  // namespace detail

namespace detail {

/// The text of a shard_map over one axis, @, whose arguments are all split over the axis: "{@}, {@} -> {@}".
template <std::size_t Arguments> consteval auto stage_specs() {
  char made[5 * Arguments + 6]{};
  std::size_t at = 0;
  const auto write = [&](std::string_view text) {
    for (const char c : text) made[at++] = c;
  };
  for (std::size_t i = 0; i < Arguments; ++i) write(i == 0 ? "{@}" : ", {@}");
  write(" -> {@}");
  return FixedString<sizeof made>(made);
}

/// The entry of one stage, from a value of all stages.
template <class X> constexpr auto own_entry(const X& x) {
  if constexpr (!LocalOperand<X>) {
    return x;
  } else if constexpr (X::rank == 1) {
    return sum<0>(x);
  } else {
    // A dim of static extent 1 keeps it, so that it is broadcast as outside.
    const Value& all = x.value;
    const bool is_singleton = (all.node().singletons >> (all.rank() - X::rank + 1) & 1u) != 0;
    if constexpr (std::is_same_v<typename X::element, bool>)
      return is_singleton ? cast<bool>(sum<0>(cast<std::int32_t>(x))) : merge_dims<0, 1>(x);
    else
      return is_singleton ? sum<0>(x) : merge_dims<0, 1>(x);
  }
}

}  // namespace detail

/// A layer of each stage of a pipeline whose stages are the devices of a mesh axis, or one of each chunk of layers that
/// a stage has. The tensors of the block are those of the stages' layers, one after the other along dim 0, which is
/// split over the axis: each device has the tensors of its own layer. A stage that has fewer layers than others has a
/// copy of the last layer in their place, which is not applied and has a gradient of zeros. ts::pipeline_stages() makes
/// a Stack of them from the layers of a model; ts::pipeline_gpipe and ts::pipeline_1f1b run it.
template <FixedString Axis, class Block, int Chunks = 1> struct PipelineStage {
  static_assert(Chunks >= 1, "tessera: a stage of a pipeline has at least one chunk of layers");
  using Blocks = std::conditional_t<Chunks == 1, Block, std::array<Block, static_cast<std::size_t>(Chunks)>>;
  Blocks blocks;
  Dim layers;  ///< of all stages together

  static constexpr std::array field_names{"", "pipeline_layers"};  // the paths of parameters are those of the block

  /// Each stage applies a layer to its entry of dim 0 of x: the layer of the chunk whose index `chunks` [stages] has
  /// for the stage. `numbers` [stages] has the number of this layer, where the first layers of all stages are counted
  /// first, then their second layers; numbers from `layers` on belong to no layer. Further arguments of the layer are
  /// tensors of all stages, as x is, and Dims and Scalars.
  template <class X, class Numbers, class ChunkNumbers, class... Extra>
  constexpr auto apply(const X& x, const Numbers& numbers, const ChunkNumbers& chunks, const Extra&... extra) const {
    constexpr std::size_t tensors = (std::size_t{TensorOperand<Extra>} + ... + 0);
    if constexpr (Chunks == 1)
      return shard_map<detail::with_axis<detail::stage_specs<3 + tensors>(), Axis>()>(Own{})(blocks, x, numbers, layers,
                                                                                             extra...);
    else
      return shard_map<detail::with_axis<detail::stage_specs<4 + tensors>(), Axis>()>(OwnOfChunk{})(
          *this, x, numbers, chunks, layers, extra...);
  }

 private:
  struct Own {
    constexpr auto operator()(const auto& block, const auto& x, const auto& numbers, const auto& count,
                              const auto&... extra) const {
      const auto own = merge_dims<0, 1>(x);
      return unsqueeze<0>(select(sum<0>(numbers) < count, block(own, detail::own_entry(extra)...), own));
    }
  };
  struct OwnOfChunk {
    constexpr auto operator()(const PipelineStage& stage, const auto& x, const auto& numbers, const auto& chunks,
                              const auto& count, const auto&... extra) const {
      Block own = stage.blocks[0];
      for (std::size_t i = 1; i < stage.blocks.size(); ++i) {
        detail::CollectTensors others;
        for_each_leaf(stage.blocks[i], others);
        const auto chosen = equal(sum<0>(chunks), static_cast<int>(i));
        detail::ReplaceWhere<decltype(chosen)> replace{chosen, others.values};
        for_each_leaf(own, replace);
      }
      return Own{}(own, x, numbers, count, extra...);
    }
  };
};

namespace detail {

/// Writes parts that are not written yet one after the other, each `rows` long, without messages to other processes:
/// each makes the parts of which it has rows, one at a time.
inline void write_parts_here(TensorStorage& to, const std::vector<TensorStorage::Write>& parts, std::int64_t rows) {
  const Uncounted uncounted;
  Box part{Shape(to.shape().size(), 0), to.shape()};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    part.begin[0] = static_cast<std::int64_t>(i) * rows;
    part.end[0] = part.begin[0] + rows;
    StoragePtr whole;
    for (int shard = 0; shard < to.shard_count(); ++shard) {
      const Box& box = to.box(shard);
      const Box both = intersect(part, box);
      if (!to.holds(shard) || both.empty()) continue;
      if (!whole) {
        const int rank = static_cast<int>(part.begin.size());
        whole = StoragePtr(new TensorStorage(Mesh{}, to.dtype(), extents(part), replicated(rank)));
        parts[i](*whole);
      }
      const kernels::Strides strides = kernels::contiguous_strides(extents(box));
      const std::int64_t offset = (both.begin[0] - box.begin[0]) * strides[0];
      auto* const data =
          static_cast<std::byte*>(to.data(shard)) + offset * static_cast<std::int64_t>(size_of(to.dtype()));
      const runtime::ShardRef destination{data, both, strides}, source = runtime::shard_ref(whole->data(0), part);
      runtime::reshard(to.dtype(), Reduction::sum, {&destination, 1}, {&source, 1});
    }
  }
}

/// The parts one after the other along dim 0, which is split over `axis`, and below that as it was in the parts.
inline StoragePtr joined_along_axis(const std::vector<StoragePtr>& parts, const Mesh& mesh, const Name& axis, Here at) {
  const TensorStorage& first = *parts[0];
  std::vector<TensorStorage::Write> deferred;
  for (const StoragePtr& part : parts) {
    if (TensorStorage::Write own = part->deferred()) deferred.push_back(std::move(own));
    if (part->shape() != first.shape())
      fail(errc::shape_mismatch, "[pipeline_stages] layers: a tensor is ", shape_text(first.dtype(), first.shape()),
           " in one layer and ", shape_text(part->dtype(), part->shape()), " in another", Source::from(at));
  }
  PartitionSpec spec = first.mesh() == mesh ? spec_of(first.sharding(), mesh) : PartitionSpec{};
  if (spec.entries.empty()) spec.entries.push_back(none);
  if (spec.entries[0].priority > 0)
    fail(errc::unsupported, "[pipeline_stages] layers: dim 0 of ", sharded_type_text(first),
         " is gathered on use; make the stages first, and call ts::fsdp with them", Source::from(at));
  SpecEntry split(axis);
  for (const Name& own : spec.entries[0].axes) split.axes.push_back(own);
  spec.entries[0] = split;

  const std::int64_t rows = first.shape()[0];
  Shape shape = first.shape();
  shape[0] = checked_product(rows, static_cast<std::int64_t>(parts.size()), "[pipeline_stages] dim 0");
  const auto write = [parts, rows](TensorStorage& to) {
    const Uncounted uncounted;  // as for every tensor that is made
    Growable<runtime::ShardRef> sources;
    for (std::size_t i = 0; i < parts.size(); ++i)
      for (runtime::ShardRef source : shard_refs(*parts[i])) {
        source.box.begin[0] += static_cast<std::int64_t>(i) * rows;
        source.box.end[0] += static_cast<std::int64_t>(i) * rows;
        sources.push_back(source);
      }
    runtime::reshard(to.dtype(), Reduction::sum, shard_refs(to), sources);
  };
  const int rank = static_cast<int>(shape.size());
  // One of several processes may be the first that reads the tensor, so writing it later must not send messages.
  if (process_count() > 1 && deferred.size() == parts.size())
    return allocate("pipeline_stages", first.dtype(), shape, rank, mesh, spec, at,
                    [deferred, rows](TensorStorage& to) { write_parts_here(to, deferred, rows); });
  if (process_count() == 1 && !deferred.empty())
    return allocate("pipeline_stages", first.dtype(), shape, rank, mesh, spec, at, write);
  const StoragePtr joined = allocate("pipeline_stages", first.dtype(), shape, rank, mesh, spec, at);
  write(*joined);
  return joined;
}

/// The rows of one part of such a tensor, in the sharding that the parts had.
inline StoragePtr part_along_axis(const TensorStorage& joined, std::int64_t part, std::int64_t parts, Here at) {
  PartitionSpec spec = spec_of(joined.sharding(), joined.mesh());
  SpecEntry own;
  for (std::size_t i = 1; i < spec.entries[0].axes.size(); ++i) own.axes.push_back(spec.entries[0].axes[i]);
  spec.entries[0] = own;
  Shape shape = joined.shape();
  const std::int64_t rows = shape[0] / parts;
  shape[0] = rows;
  const StoragePtr made =
      allocate("unwrap", joined.dtype(), shape, static_cast<int>(shape.size()), joined.mesh(), spec, at);
  const Uncounted uncounted;
  Growable<runtime::ShardRef> sources = shard_refs(joined);
  for (runtime::ShardRef& source : sources) {
    source.box.begin[0] -= part * rows;
    source.box.end[0] -= part * rows;
  }
  runtime::reshard(made->dtype(), Reduction::sum, shard_refs(*made), sources);
  return made;
}

/// Visits the tensors of a block; `visit(position, tensor)`.
template <class Visit> struct VisitTensors {
  Visit& visit;
  std::size_t next = 0;
  template <class Leaf> void leaf(Leaf& leaf) {
    if constexpr (StoredOperand<std::remove_const_t<Leaf>>) visit(next++, leaf);
  }
  void enter_stack(const auto&) {}
  void enter_layer(int) {}
  void leave_stack() {}
};
template <class Block, class Visit> void for_each_tensor_of(Block& block, Visit&& visit) {
  VisitTensors<Visit> visitor{visit};
  for_each_leaf(block, visitor);
}

}  // namespace detail

namespace detail {
/// How layers are shared out among groups: as evenly as possible, the first groups have one more.
struct LayersOfGroups {
  int layers, groups;
  constexpr int most() const { return (layers + groups - 1) / groups; }
  constexpr int with_most() const { return layers - (most() - 1) * groups; }
  constexpr bool has(int group, int layer) const { return layer < most() - 1 || group < with_most(); }
  /// The number, among all layers, of a layer of a group.
  constexpr int number(int group, int layer) const {
    return group * (most() - 1) + (group < with_most() ? group : with_most()) + layer;
  }
};
}  // namespace detail

/// Distributes the layers of a model over the stages of a pipeline, the devices of a mesh axis, in order: of 8 layers
/// on 4 devices, the first device has layers 0 and 1. If the number of stages does not divide the number of layers, the
/// first stages have one more: of 5 layers on 3 devices, 2, 2 and 1; the last device then stores a copy of a layer that
/// it does not apply. With several chunks, each stage has several groups of layers, and an example passes all stages
/// several times, so stages wait less (interleaved stages): with 2 chunks the first device has layers 0 and 4. Dims
/// other than 0 stay split; layers of another mesh are moved to `mesh`. Layers may be deferred (ts::deferred_init).
///
///     auto stages = ts::pipeline_stages<"pipe">(blocks, mesh);   // ts::Stack<ts::PipelineStage<"pipe", Block>>
///     auto interleaved = ts::pipeline_stages<"pipe", 2>(blocks, mesh);
/// All stages have the Dims and Scalars of the first layer. Errors: `mesh_axis` for an axis that the mesh lacks;
/// `structure` without layers; `shape_mismatch` for layers of different shapes; `unsupported` for a dim 0 that is
/// gathered on use. Communication: reshards of the parameters.
template <FixedString Axis, int Chunks = 1, class Block>
Stack<PipelineStage<Axis, Block, Chunks>> pipeline_stages(const Stack<Block>& layers, const Mesh& mesh,
                                                          Here at = Here::current()) {
  const int stages = mesh.axis_size(detail::required_axis("pipeline_stages", mesh, Axis.view(), at));
  if (layers.size() == 0)
    fail(errc::structure, "[pipeline_stages] layers: there are none to share out among ", stages,
         " stages, the devices of the axis '", Axis.view(), "'", Source::from(at));
  const detail::LayersOfGroups shared{layers.size(), stages * Chunks};
  const auto joined = [&](int chunk, int layer) {
    Block block = layers[0];
    detail::for_each_tensor_of(block, [&]<class T, int Rank>(std::size_t position, ShardedTensor<T, Rank>& tensor) {
      static_assert(Rank > 0,
                    "tessera: the layers of a pipeline have no tensors of rank 0; use vectors of one element");
      std::vector<StoragePtr> parts;
      for (int stage = 0; stage < stages; ++stage) {
        const int group = chunk * stages + stage;
        const int number = shared.has(group, layer) ? shared.number(group, layer) : layers.size() - 1;
        detail::for_each_tensor_of(layers[number], [&](std::size_t own, const auto& part) {
          if (own == position) parts.push_back(StoragePtr(const_cast<TensorStorage*>(&storage_of(part))));
        });
      }
      tensor = tensor_of<T, Rank>(detail::joined_along_axis(parts, mesh, Name(Axis.view()), at));
    });
    return block;
  };
  return Stack<PipelineStage<Axis, Block, Chunks>>(shared.most(), [&](int layer) {
    PipelineStage<Axis, Block, Chunks> made;
    made.layers = Dim(layers.size());
    if constexpr (Chunks == 1)
      made.blocks = joined(0, layer);
    else
      for (int chunk = 0; chunk < Chunks; ++chunk) made.blocks[static_cast<std::size_t>(chunk)] = joined(chunk, layer);
    return made;
  });
}

/// The inverse of pipeline_stages(): the layers in the order of the model, on the mesh of the stages.
template <FixedString Axis, class Block, int Chunks>
Stack<Block> unwrap(const Stack<PipelineStage<Axis, Block, Chunks>>& stages, Here at = Here::current()) {
  Growable<Block> layers;
  int count = 1;
  for (int chunk = 0; chunk < Chunks; ++chunk)
    for (int stage = 0; stage < count; ++stage)
      for (int i = 0; i < stages.size(); ++i) {
        const Block* joined = nullptr;
        if constexpr (Chunks == 1)
          joined = &stages[i].blocks;
        else
          joined = &stages[i].blocks[static_cast<std::size_t>(chunk)];
        Block block = *joined;
        detail::for_each_tensor_of(block, [&]<class T, int Rank>(std::size_t, ShardedTensor<T, Rank>& tensor) {
          const TensorStorage& of_stages = storage_of(tensor);
          count = of_stages.mesh().axis_size(of_stages.mesh().axis_index(Axis.view()));
          tensor = tensor_of<T, Rank>(detail::part_along_axis(of_stages, stage, count, at));
        });
        const detail::LayersOfGroups shared{static_cast<int>(stages[0].layers.value()), count * Chunks};
        if (shared.has(chunk * count + stage, i)) layers.push_back(std::move(block));
      }
  return Stack<Block>(std::move(layers));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
