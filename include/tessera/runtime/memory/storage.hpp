#ifndef TESSERA_RUNTIME_MEMORY_STORAGE_HPP
#define TESSERA_RUNTIME_MEMORY_STORAGE_HPP
#include <tessera/base/push_macros.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include <tessera/base/intrusive_ptr.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/runtime/memory/buffer.hpp>
#include <tessera/runtime/memory/tensor_layout.hpp>

namespace tessera {

/// The elements of a tensor. Each distinct shard is stored once, even if several devices hold replicas of it.
/// Immutable while it is shared: only the owner of the sole reference (`unique()`) may write.
class TensorStorage final : public RefCounted {
 public:
  /// A function that writes all elements, in whichever shards they are stored; copies share it. Not a std::function,
  /// since <functional> would be 5,600 lines more for each user.
  class Write {
   public:
    Write() = default;
    template <class F>
      requires(!std::is_same_v<F, Write>)
    Write(F function) : function_(new Held<F>(std::move(function))) {}
    explicit operator bool() const { return static_cast<bool>(function_); }
    void operator()(TensorStorage& to) const { function_->run(to); }

   private:
    struct Function : RefCounted {
      virtual void run(TensorStorage& to) const = 0;
    };
    template <class F> struct Held final : Function {
      F function;
      explicit Held(F of) : function(std::move(of)) {}
      void run(TensorStorage& to) const override { function(to); }
    };
    IntrusivePtr<Function> function_;
  };

  /// Allocates all shards in one uninitialised block.
  explicit TensorStorage(TensorLayoutPtr layout) : layout_(std::move(layout)), block_(layout_->bytes()) {}
  TensorStorage(const Mesh& mesh, DType dtype, const Shape& shape, const Sharding& sharding)
      : TensorStorage(TensorLayout::of(mesh, dtype, shape, sharding)) {}
  /// Without memory: elements are allocated and written when they are first read.
  TensorStorage(TensorLayoutPtr layout, Write write)
      : layout_(std::move(layout)), block_(0), deferred_(std::make_unique<Deferred>(std::move(write))) {}

  const TensorLayoutPtr& layout() const { return layout_; }
  const Mesh& mesh() const { return layout_->mesh(); }
  DType dtype() const { return layout_->dtype(); }
  const Shape& shape() const { return layout_->shape(); }
  const Sharding& sharding() const { return layout_->sharding(); }
  const Sharding& placement() const { return layout_->placement(); }
  ShardGrid grid() const { return ShardGrid(mesh(), sharding()); }
  int shard_count() const { return layout_->shard_count(); }
  const Box& box(int shard) const { return layout_->shard(shard).box; }
  /// The first element of a shard; null if only other processes hold it.
  void* data(int shard) {
    if (deferred_ && process_count() > 1) forget_write();  // the caller may change the elements
    return at(layout_->shard(shard).offset);
  }
  const void* data(int shard) const { return at(layout_->shard(shard).offset); }
  bool holds(int shard) const { return layout_->shard(shard).offset >= 0; }

  /// Whether the elements are in memory.
  bool is_written() const { return !deferred_ || deferred_->written.load(std::memory_order_acquire) != nullptr; }
  /// What will write the elements; empty if they are written. If several processes run the program, one process may
  /// read the elements and another may not, but all must reshard in the same way. There it is kept after the elements
  /// are written, until they may have changed.
  Write deferred() const {
    if (!deferred_) return {};
    const std::lock_guard lock(deferred_->mutex);
    return deferred_->write;
  }

 private:
  struct Deferred {
    explicit Deferred(Write of) : write(std::move(of)) {}
    std::mutex mutex;  // of `write`, which is empty when deferred() is, and of `elements`
    Write write;
    IntrusivePtr<TensorStorage> elements;
    std::atomic<const TensorStorage*> written{nullptr};
  };
  TensorLayoutPtr layout_;
  runtime::Block block_;
  std::unique_ptr<Deferred> deferred_;

  char* at(std::int64_t offset) const {
    char* const block = first();  // also without a shard: all processes write deferred elements at the same time
    return offset < 0 ? nullptr : block + offset;
  }
  char* first() const {
    const TensorStorage& storage = deferred_ ? written() : *this;
    return static_cast<char*>(const_cast<void*>(storage.block_.data()));
  }
  void forget_write() {
    (void)written();
    const std::lock_guard lock(deferred_->mutex);
    deferred_->write = {};
  }
  const TensorStorage& written() const {
    if (const TensorStorage* const elements = deferred_->written.load(std::memory_order_acquire)) return *elements;
    const std::lock_guard lock(deferred_->mutex);
    if (!deferred_->elements) {
      const IntrusivePtr<TensorStorage> made(new TensorStorage(layout_));
      deferred_->write(*made);  // may throw; the next reader tries again
      deferred_->elements = made;
      if (process_count() == 1) deferred_->write = {};
      deferred_->written.store(made.get(), std::memory_order_release);
    }
    return *deferred_->elements;
  }
};

using StoragePtr = IntrusivePtr<TensorStorage>;

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
