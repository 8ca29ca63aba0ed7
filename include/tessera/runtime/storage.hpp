#ifndef TESSERA_RUNTIME_STORAGE_HPP
#define TESSERA_RUNTIME_STORAGE_HPP

#include <cstdint>
#include <vector>

#include <tessera/base/dtype.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/runtime/buffer.hpp>

namespace tessera {

/// One shard in memory: row-major, of the box that ShardGrid and shard_box give it.
struct StoredShard {
  std::int64_t offset = 0;  ///< in bytes, in the storage's buffer
  Box box;
};

/// What a tensor holds: its layout, and one block of memory for each distinct shard, however many devices hold it.
/// Immutable while it is shared: whoever holds the only reference (`unique()`) may write. Its buffer is its own.
class TensorStorage final : public RefCounted {
 public:
  /// Shards with memory of their own, uninitialised, in one buffer.
  TensorStorage(const Mesh& mesh, DType dtype, const Shape& shape, const Sharding& sharding)
      : mesh_(mesh), dtype_(dtype), shape_(shape), sharding_(sharding) {
    const ShardGrid grid(mesh, sharding);
    std::int64_t bytes = 0;
    for (int s = 0; s < grid.count(); ++s) {
      const Box box = shard_box(shape, sharding, mesh, grid.coordinates(s));
      shards_.push_back({bytes, box});
      const std::int64_t own = volume(extents(box)) * static_cast<std::int64_t>(size_of(dtype));
      bytes += (own + runtime::block_alignment - 1) / runtime::block_alignment * runtime::block_alignment;
    }
    buffer_ = Buffer::allocate(bytes);
  }

  const Mesh& mesh() const { return mesh_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  const Sharding& sharding() const { return sharding_; }
  ShardGrid grid() const { return ShardGrid(mesh_, sharding_); }
  int shard_count() const { return static_cast<int>(shards_.size()); }
  const Box& box(int shard) const { return shards_[static_cast<std::size_t>(shard)].box; }
  void* data(int shard) { return buffer_->as<char>() + shards_[static_cast<std::size_t>(shard)].offset; }
  const void* data(int shard) const { return buffer_->as<char>() + shards_[static_cast<std::size_t>(shard)].offset; }

 private:
  Mesh mesh_;
  DType dtype_;
  Shape shape_;
  Sharding sharding_;
  BufferPtr buffer_;
  std::vector<StoredShard> shards_;
};

using StoragePtr = IntrusivePtr<TensorStorage>;

}  // namespace tessera

#endif
