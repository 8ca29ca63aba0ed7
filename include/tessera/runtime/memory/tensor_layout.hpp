#ifndef TESSERA_RUNTIME_MEMORY_TENSOR_LAYOUT_HPP
#define TESSERA_RUNTIME_MEMORY_TENSOR_LAYOUT_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/integers/hash.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/at_fork.hpp>
#include <tessera/kernels/made_once.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/runtime/memory/buffer.hpp>
#include <tessera/runtime/memory/stored_grid.hpp>

namespace tessera {

/// One shard in memory, contiguous and row-major.
struct StoredShard {
  std::int64_t offset = 0;  ///< in bytes, in the storage's block; -1: only other processes hold the shard
  Box box;
};

/// Mesh, element type, shape, sharding and shards of a tensor. Equal tensors usually share one TensorLayout. Equal ids
/// mean equal layouts (not conversely), so that a cached call compares ids instead of shapes and shardings.
class TensorLayout final : public RefCounted {
 public:
  TensorLayout(const Mesh& mesh, DType dtype, const Shape& shape, const Sharding& sharding)
      : id_(next_id()), mesh_(mesh), dtype_(dtype), shape_(shape), sharding_(sharding),
        placement_(canonical(sharding, mesh)) {
    if (detail::own_process.left && mesh.size() > 1)
      fail(errc::processes, "[tensor] session: the session of several processes has ended, and with it the use of ",
           mesh.text());
    const ShardGrid grid = runtime::stored_grid(mesh, sharding);
    shards_.reserve(static_cast<std::size_t>(grid.count()));
    for (int s = 0; s < grid.count(); ++s) {
      const Box box = shard_box(shape, sharding, mesh, grid.coordinates(s));
      if (!is_held_here(mesh, grid, s)) {
        shards_.push_back({-1, box});
        is_whole_ = false;
        continue;
      }
      shards_.push_back({bytes_, box});
      const std::int64_t own = volume(extents(box)) * static_cast<std::int64_t>(size_of(dtype));
      bytes_ += (own + runtime::block_alignment - 1) / runtime::block_alignment * runtime::block_alignment;
    }
    if (mesh.size() > 1) divisible_exists().store(true, std::memory_order_relaxed);
  }

  /// The shared layout of such tensors if it was used recently; otherwise a new layout.
  static IntrusivePtr<TensorLayout> of(const Mesh& mesh, DType dtype, const Shape& shape, const Sharding& sharding) {
    std::uint64_t hash = hash_mix(hash_mix(mesh.hash(), sharding.hash()), static_cast<std::uint64_t>(dtype));
    for (std::int64_t extent : shape) hash = hash_mix(hash, static_cast<std::uint64_t>(extent));
    Recent& recent = Recent::instance();
    IntrusivePtr<TensorLayout>& slot = recent.layouts[hash % recent.layouts.size()];
    {
      const std::lock_guard lock(recent.mutex);
      if (slot && slot->is(mesh, dtype, shape, sharding)) return slot;
    }
    IntrusivePtr<TensorLayout> made(new TensorLayout(mesh, dtype, shape, sharding));
    IntrusivePtr<TensorLayout> last = made;  // declared before the lock, so that the replaced layout dies after it
    const std::lock_guard lock(recent.mutex);
    std::swap(slot, last);
    return made;
  }

  /// Forgets which layouts were used recently.
  static void forget_recent() {
    Recent& recent = Recent::instance();
    decltype(recent.layouts) forgotten;  // declared before the lock, so that the layouts die after it
    const std::lock_guard lock(recent.mutex);
    std::swap(forgotten, recent.layouts);
  }

  /// Unique in the process and never reused; not 0.
  std::uint64_t id() const { return id_; }
  const Mesh& mesh() const { return mesh_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  /// The sharding as the user wrote it.
  const Sharding& sharding() const { return sharding_; }
  /// The canonical form of the sharding: equal for any two shardings that mean the same.
  const Sharding& placement() const { return placement_; }
  int shard_count() const { return static_cast<int>(shards_.size()); }
  const StoredShard& shard(int s) const { return shards_[static_cast<std::size_t>(s)]; }
  /// Bytes of all shards of this process together.
  std::int64_t bytes() const { return bytes_; }
  /// Whether this process holds all shards.
  bool is_whole() const { return is_whole_; }
  /// Whether this process has made a layout on a mesh of several devices, which several processes would divide.
  static std::atomic<bool>& divisible_exists() {
    static constinit std::atomic<bool> exists{false};
    return exists;
  }

 private:
  struct Recent {
    std::mutex mutex;
    std::array<IntrusivePtr<TensorLayout>, 256> layouts;
    static Recent& instance() {
      static constinit tessera::detail::MadeOnce<Recent> recent;
      return recent.get([] { return new Recent; });
    }
    Recent() {
      tessera::detail::hold_at_fork<[]() -> std::mutex& { return instance().mutex; }>();
    }
  };

  std::uint64_t id_;
  Mesh mesh_;
  DType dtype_;
  Shape shape_;
  Sharding sharding_, placement_;
  Growable<StoredShard> shards_;
  std::int64_t bytes_ = 0;
  bool is_whole_ = true;

  static std::uint64_t next_id() {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  bool is(const Mesh& mesh, DType dtype, const Shape& shape, const Sharding& sharding) const {
    return dtype_ == dtype && shape_ == shape && sharding_ == sharding && mesh_ == mesh;
  }
};

using TensorLayoutPtr = IntrusivePtr<TensorLayout>;

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
