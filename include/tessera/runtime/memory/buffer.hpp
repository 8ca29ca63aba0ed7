#ifndef TESSERA_RUNTIME_MEMORY_BUFFER_HPP
#define TESSERA_RUNTIME_MEMORY_BUFFER_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <tessera/base/error.hpp>
#include <tessera/base/intrusive_ptr.hpp>
#include <tessera/kernels/at_fork.hpp>
#include <tessera/kernels/made_once.hpp>

namespace tessera {

/// Bytes held by buffers in this process. Blocks are counted at their size class, not at the requested size.
struct MemoryUse {
  std::int64_t in_use = 0;  ///< in live buffers
  std::int64_t peak = 0;    ///< largest in_use since the start or the last reset_memory_peak()
  std::int64_t cached = 0;  ///< in freed blocks kept for reuse
};

namespace runtime {

inline constexpr std::int64_t block_alignment = 64;
inline constexpr std::int64_t huge_page = std::int64_t{2} << 20;

/// Block sizes: four per power of two (..., 512, 640, 768, 896, 1024, ...), so that at most a fifth of a block is
/// unused and a freed block fits requests of similar size.
struct SizeClass {
  static constexpr int count = 164;
  static constexpr std::int64_t largest = std::int64_t{7} << 44;

  static constexpr int of(std::int64_t bytes) {
    const std::uint64_t units = (static_cast<std::uint64_t>(bytes) + block_alignment - 1) / block_alignment;
    if (units <= 4) return static_cast<int>(units);
    const int shift = std::bit_width(units - 1) - 3;
    return 4 * shift + static_cast<int>(((units - 1) >> shift) + 1);
  }
  static constexpr std::int64_t bytes(int size_class) {
    if (size_class <= 4) return size_class * block_alignment;
    const int shift = (size_class - 5) / 4;
    return static_cast<std::int64_t>((size_class - 5) % 4 + 5) * block_alignment << shift;
  }
};

/// Caches freed blocks: a new block from the system costs a page fault per page, five times as much as copying it.
/// Bytes in use and cached together never exceed the peak of bytes in use.
class BlockPool {
 public:
  static BlockPool& instance() {
    static constinit tessera::detail::MadeOnce<BlockPool> pool;
    return pool.get([] { return new BlockPool; });
  }
  BlockPool() {
    tessera::detail::hold_at_fork<[]() -> std::mutex& { return instance().mutex_; }>();
  }

  void* take(int size_class) {
    const std::int64_t size = SizeClass::bytes(size_class);
    Freed* surplus = nullptr;
    {
      const std::lock_guard lock(mutex_);
      Freed*& head = free_[static_cast<std::size_t>(size_class)];
      if (head) {
        void* found = head;
        head = head->next;
        use_.cached -= size;
        count(size);
        return found;
      }
      surplus = evict(allowance(size));
    }
    release(surplus);
    void* fresh = from_system(size);
    if (!fresh) {
      trim();
      fresh = from_system(size);
    }
    // Counted only now: a failed allocation must not raise the peak.
    if (fresh) {
      const std::lock_guard lock(mutex_);
      count(size);
    }
    return fresh;
  }

  void give(void* memory, int size_class) noexcept {
    const std::int64_t size = SizeClass::bytes(size_class);
    Freed* surplus = nullptr;
    {
      const std::lock_guard lock(mutex_);
      Freed*& head = free_[static_cast<std::size_t>(size_class)];
      head = new (memory) Freed{head, size_class};
      use_.in_use -= size;
      use_.cached += size;
      surplus = evict(allowance());
    }
    release(surplus);
  }

  void trim(std::int64_t keep = 0) noexcept {
    Freed* surplus = nullptr;
    {
      const std::lock_guard lock(mutex_);
      surplus = evict(keep);
      high_water_ = use_.in_use + use_.cached;
    }
    release(surplus);
  }

  void set_limit(std::int64_t bytes) noexcept {
    Freed* surplus = nullptr;
    {
      const std::lock_guard lock(mutex_);
      limit_ = bytes;
      surplus = evict(allowance());
    }
    release(surplus);
  }

  MemoryUse use() const {
    const std::lock_guard lock(mutex_);
    return use_;
  }

  void reset_peak() noexcept {
    const std::lock_guard lock(mutex_);
    use_.peak = use_.in_use;
  }

 private:
  struct Freed {
    Freed* next;
    int size_class;
  };

  mutable std::mutex mutex_;
  std::array<Freed*, SizeClass::count> free_{};
  MemoryUse use_;
  std::int64_t limit_ = INT64_MAX;
  std::int64_t high_water_ = 0;  // largest in_use since the last trim

  void count(std::int64_t taken) {
    use_.in_use += taken;
    use_.peak = std::max(use_.peak, use_.in_use);
    high_water_ = std::max(high_water_, use_.in_use);
  }
  /// Bytes that may be cached once `more` bytes are in use.
  std::int64_t allowance(std::int64_t more = 0) const { return std::min(limit_, high_water_ - use_.in_use - more); }

  // Unlinks blocks, the largest first, until at most `keep` bytes are cached. They are freed outside the lock.
  Freed* evict(std::int64_t keep) noexcept {
    Freed* out = nullptr;
    for (int c = SizeClass::count - 1; c > 0 && use_.cached > keep; --c) {
      Freed*& head = free_[static_cast<std::size_t>(c)];
      while (head && use_.cached > keep) {
        Freed* block = head;
        head = block->next;
        use_.cached -= SizeClass::bytes(c);
        block->next = out;
        out = block;
      }
    }
    return out;
  }

  static std::align_val_t alignment_of(std::int64_t size) {
    return std::align_val_t(static_cast<std::size_t>(size >= huge_page ? huge_page : block_alignment));
  }

  static void* from_system(std::int64_t size) noexcept {
    void* memory = ::operator new(static_cast<std::size_t>(size), alignment_of(size), std::nothrow);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    // The result is ignored: where huge pages are disabled, the call fails and the block has normal pages.
    if (memory && size >= huge_page) (void)::madvise(memory, static_cast<std::size_t>(size), MADV_HUGEPAGE);
#endif
    return memory;
  }

  static void release(Freed* list) noexcept {
    while (list) {
      Freed* next = list->next;
      ::operator delete(list, alignment_of(SizeClass::bytes(list->size_class)));
      list = next;
    }
  }
};

/// Uninitialised memory with a single owner: aligned to 64 bytes, from 2 MiB on to huge pages.
/// Errors: errc::capacity when the size is negative or the system has no such block.
class Block {
 public:
  explicit Block(std::int64_t bytes) {
    if (bytes < 0) fail(errc::capacity, "[buffer] size: ", bytes, " bytes is below 0");
    if (bytes == 0) return;
    if (bytes <= SizeClass::largest) {
      size_class_ = SizeClass::of(bytes);
      data_ = BlockPool::instance().take(size_class_);
    }
    if (!data_) fail(errc::capacity, "[buffer] memory: the system can't provide ", bytes, " bytes");
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() {
    if (data_) BlockPool::instance().give(data_, size_class_);
  }

  void* data() noexcept { return data_; }
  const void* data() const noexcept { return data_; }

 private:
  void* data_ = nullptr;
  int size_class_ = 0;
};

}  // namespace runtime

/// A reference-counted block.
/// Immutable while it is shared: only the owner of the sole reference (`unique()`) may write.
/// Errors: errc::capacity when the size is negative or the system has no such block.
class Buffer final : public RefCounted {
 public:
  static IntrusivePtr<Buffer> allocate(std::int64_t bytes) { return IntrusivePtr<Buffer>(new Buffer(bytes)); }

  void* data() noexcept { return block_.data(); }
  const void* data() const noexcept { return block_.data(); }
  std::int64_t bytes() const noexcept { return bytes_; }

  template <class T> T* as() noexcept { return static_cast<T*>(data()); }
  template <class T> const T* as() const noexcept { return static_cast<const T*>(data()); }

 private:
  explicit Buffer(std::int64_t bytes) : block_(bytes), bytes_(bytes) {}

  runtime::Block block_;
  std::int64_t bytes_;
};

using BufferPtr = IntrusivePtr<Buffer>;

inline MemoryUse memory_use() { return runtime::BlockPool::instance().use(); }

/// Sets MemoryUse::peak to the bytes in use now, as torch.cuda.reset_peak_memory_stats.
inline void reset_memory_peak() { runtime::BlockPool::instance().reset_peak(); }

/// Returns cached free blocks to the system until at most `keep` bytes are cached.
inline void trim_memory(std::int64_t keep = 0) { runtime::BlockPool::instance().trim(keep); }

/// Bounds the bytes of freed blocks that are cached, in addition to the bound by the peak of bytes in use.
inline void set_memory_cache_limit(std::int64_t bytes) { runtime::BlockPool::instance().set_limit(bytes); }

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
