#ifndef TESSERA_PARALLEL_STATE_SHARD_METADATA_HPP
#define TESSERA_PARALLEL_STATE_SHARD_METADATA_HPP
#include <tessera/base/push_macros.hpp>

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/base/dtype.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/trace/named_leaves.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/tensor/storage/storage_of.hpp>

namespace tessera {

/// A shard of a tensor, and the devices that store it: several if it is replicated.
struct ShardInfo {
  Box box{};                   ///< the indices of the part in the whole tensor; its extents are extents(box)
  std::vector<int> devices{};  ///< by their numbers in the mesh: the ranks
  friend bool operator==(const ShardInfo&, const ShardInfo&) = default;
};

/// How a tensor of a model is stored.
struct ShardMetadata {
  std::string name;  ///< "blocks.3.up.weight"
  DType dtype = DType::f32;
  Shape shape{};         ///< of the whole tensor
  Mesh mesh{};           ///< world_size() is its size
  PartitionSpec spec{};  ///< with gathered_on_use for what a wrapper splits
  std::vector<ShardInfo> shards{};

  int world_size() const { return mesh.size(); }
  /// The part that a device stores.
  const Box& box_of(int device) const {
    for (const ShardInfo& shard : shards)
      for (const int own : shard.devices)
        if (own == device) return shard.box;
    fail(errc::mesh_devices, "[get_shard_metadata] device: ", device, " is not one of ", mesh.text());
  }
};

namespace detail {
struct CollectMetadata {
  std::vector<ShardMetadata> made{};
  template <class Leaf> void operator()(std::string_view name, const Leaf& leaf, int) {
    if constexpr (StoredOperand<Leaf>) made.push_back(of(name, storage_of(leaf)));
  }
  static ShardMetadata of(std::string_view name, const TensorStorage& storage) {
    ShardMetadata tensor{std::string(name), storage.dtype(), storage.shape(), storage.mesh(),
                         spec_of(storage.sharding(), storage.mesh())};
    for (int shard = 0; shard < storage.shard_count(); ++shard) tensor.shards.push_back({storage.box(shard)});
    for (int device = 0; device < storage.mesh().size(); ++device)
      tensor.shards[static_cast<std::size_t>(storage.grid().index_of(storage.mesh().coordinates_of(device)))]
          .devices.push_back(device);
    return tensor;
  }
};
}  // namespace detail

/// How each tensor of a model is stored, in the order of declaration, without reading elements: get_shard_metadata of
/// PyTorch/XLA's XlaFullyShardedDataParallel. Scalars and Dims have no shards and are left out. Errors: `empty_tensor`.
/// Communication: none.
///
///     for (const ts::ShardMetadata& tensor : ts::get_shard_metadata(wrapped))
///       std::cout << tensor.name << " " << ts::text(tensor.shards[0].box) << "\n";
template <class Model> std::vector<ShardMetadata> get_shard_metadata(const Model& model) {
  detail::CollectMetadata metadata;
  detail::for_each_named_leaf(model, detail::VisitLayers::each, metadata);
  return std::move(metadata.made);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
