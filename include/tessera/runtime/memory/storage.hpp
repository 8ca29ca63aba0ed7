#ifndef TESSERA_RUNTIME_MEMORY_STORAGE_HPP
#define TESSERA_RUNTIME_MEMORY_STORAGE_HPP
#include <tessera/base/push_macros.hpp>

#include <utility>

#include <tessera/base/shape.hpp>
#include <tessera/runtime/memory/buffer.hpp>
#include <tessera/runtime/memory/tensor_layout.hpp>

namespace tessera {

/// The elements of a tensor. Each distinct shard is stored once, even if several devices hold replicas of it.
/// Immutable while it is shared: only the owner of the sole reference (`unique()`) may write.
class TensorStorage final : public RefCounted {
 public:
  /// Allocates all shards in one uninitialised block.
  explicit TensorStorage(TensorLayoutPtr layout) : layout_(std::move(layout)), block_(layout_->bytes()) {}
  TensorStorage(const Mesh& mesh, DType dtype, const Shape& shape, const Sharding& sharding)
      : TensorStorage(TensorLayout::of(mesh, dtype, shape, sharding)) {}

  const TensorLayoutPtr& layout() const { return layout_; }
  const Mesh& mesh() const { return layout_->mesh(); }
  DType dtype() const { return layout_->dtype(); }
  const Shape& shape() const { return layout_->shape(); }
  const Sharding& sharding() const { return layout_->sharding(); }
  const Sharding& placement() const { return layout_->placement(); }
  ShardGrid grid() const { return ShardGrid(mesh(), sharding()); }
  int shard_count() const { return layout_->shard_count(); }
  const Box& box(int shard) const { return layout_->shard(shard).box; }
  void* data(int shard) { return static_cast<char*>(block_.data()) + layout_->shard(shard).offset; }
  const void* data(int shard) const { return static_cast<const char*>(block_.data()) + layout_->shard(shard).offset; }

 private:
  TensorLayoutPtr layout_;
  runtime::Block block_;
};

using StoragePtr = IntrusivePtr<TensorStorage>;

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
