#ifndef TESSERA_RUNTIME_MEMORY_RUN_MEMORY_HPP
#define TESSERA_RUNTIME_MEMORY_RUN_MEMORY_HPP
#include <tessera/base/push_macros.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <tessera/runtime/memory/buffer.hpp>

namespace tessera::runtime {

/// The memory of a running program's intermediates. One block, as large as the largest program so far needed, is reused
/// by all programs; a program that starts while the block is in use gets another from the pool.
class RunMemory {
 public:
  explicit RunMemory(std::int64_t bytes) {
    if (bytes == 0) return;
    block_ = kept().exchange(nullptr, std::memory_order_acq_rel);
    if (block_ != nullptr && block_->bytes() < bytes) destroy(std::exchange(block_, nullptr));
    if (block_ == nullptr) {
      BufferPtr made = Buffer::allocate(SizeClass::bytes(size_class(bytes)));
      block_ = made.give_up();
    }
  }
  RunMemory(const RunMemory&) = delete;
  RunMemory& operator=(const RunMemory&) = delete;
  ~RunMemory() {
    if (block_ == nullptr) return;
    Buffer* other = kept().exchange(nullptr, std::memory_order_acq_rel);
    if (other != nullptr && other->bytes() > block_->bytes()) std::swap(other, block_);
    destroy(other);
    destroy(kept().exchange(block_, std::memory_order_acq_rel));
  }

  /// Not null even for 0 bytes.
  char* data() const noexcept { return block_ == nullptr ? nothing : block_->as<char>(); }

  /// Returns the block that is kept for the next program to the pool.
  static void release() noexcept { destroy(kept().exchange(nullptr, std::memory_order_acq_rel)); }

 private:
  alignas(block_alignment) static inline char nothing[block_alignment];

  Buffer* block_ = nullptr;

  static std::atomic<Buffer*>& kept() noexcept {
    static constinit std::atomic<Buffer*> block{nullptr};
    return block;
  }
  static void destroy(Buffer* block) noexcept {
    if (block != nullptr) block->release();
  }
  // A size above all size classes goes to Buffer, which reports the error.
  static int size_class(std::int64_t bytes) {
    if (bytes < 0 || bytes > SizeClass::largest)
      fail(errc::capacity, "[buffer] memory: the system can't provide ", bytes, " bytes");
    return SizeClass::of(bytes);
  }
};

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
