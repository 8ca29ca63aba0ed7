#ifndef TESSERA_KERNELS_SCRATCH_HPP
#define TESSERA_KERNELS_SCRATCH_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <new>
#include <utility>

namespace tessera::kernels {

/// Who uses a scratch buffer. Two buffers that are alive together have two names.
enum class Scratch {
  packed_a,
  packed_b,
  packed_c,
  panel_a,
  panel_b,
  kept_values,
  attention,
  wide_a,
  wide_b,
  sums,
  long_sums,
  row_counts,
  row_slots,
  partial_products,
  sort
};

/// Raw memory of one thread that only grows. Plain words: objects with static storage are destroyed after those of the
/// main thread, and what they compute then still finds its scratch.
struct ScratchBuffer {
  static constexpr std::align_val_t alignment{64};
  std::byte* bytes;
  std::size_t size;
  ScratchBuffer* next;  // of the thread, once it is listed
  bool listed;

  inline void grow(std::size_t wanted);
  void free() noexcept {
    ::operator delete[](std::exchange(bytes, nullptr), alignment);
    size = 0;
  }
};

/// The buffers of a thread, which are freed when it ends.
struct ThreadScratch {
  static ScratchBuffer*& first() {
    static constinit thread_local ScratchBuffer* buffer = nullptr;
    return buffer;
  }
  ~ThreadScratch() {
    for (ScratchBuffer* buffer = first(); buffer != nullptr; buffer = buffer->next) buffer->free();
  }
};

inline void ScratchBuffer::grow(std::size_t wanted) {
  static thread_local const ThreadScratch thread;
  free();
  bytes = static_cast<std::byte*>(::operator new[](wanted, alignment));
  size = wanted;
  if (!std::exchange(listed, true)) next = std::exchange(ThreadScratch::first(), this);
}

/// Uninitialised room for `count` elements, aligned to a cache line, owned by the calling thread and valid until its
/// next request under the same name. It only grows, so that kernels allocate nothing once warm.
template <Scratch Use, class T> T* thread_scratch(std::size_t count) {
  static constinit thread_local ScratchBuffer buffer{};
  if (const std::size_t size = count * sizeof(T); size > buffer.size) buffer.grow(size);
  return reinterpret_cast<T*>(buffer.bytes);
}

}  // namespace tessera::kernels

#include <tessera/base/pop_macros.hpp>

#endif
