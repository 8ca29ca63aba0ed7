#ifndef TESSERA_KERNELS_SCRATCH_HPP
#define TESSERA_KERNELS_SCRATCH_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <new>
#include <utility>

namespace tessera::kernels {

/// The use of a scratch buffer. Each use has a buffer per thread; buffers in use at the same time need different names.
enum class Scratch {
  packed_a,
  packed_b,
  packed_c,
  panel_a,
  panel_b,
  staging,
  kept_values,
  attention,
  attention_bias,
  wide_a,
  wide_b,
  sums,
  long_sums,
  row_counts,
  row_slots,
  transposed,
  partial_products,
  sort,
  custom,
  ragged_matrix,
  ragged_ranges
};

/// Memory of one thread that only grows. Trivially destructible: destructors of static objects run after those of
/// thread_local objects, and may still run kernels.
struct ScratchBuffer {
  static constexpr std::align_val_t alignment{64};
  std::byte* bytes;
  std::size_t size;
  ScratchBuffer* next;  // in the thread's list of buffers, if `listed`
  bool listed;

  inline void grow(std::size_t wanted);
  void free() noexcept {
    ::operator delete[](std::exchange(bytes, nullptr), alignment);
    size = 0;
  }
};

/// Frees the buffers of a thread when the thread ends.
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

/// Uninitialised memory for `count` elements, aligned to a cache line, of the calling thread; valid until the thread's
/// next call with the same `Use`. Buffers only grow, so that repeated kernels do not allocate.
template <Scratch Use, class T> T* thread_scratch(std::size_t count) {
  static constinit thread_local ScratchBuffer buffer{};
  if (const std::size_t size = count * sizeof(T); size > buffer.size) buffer.grow(size);
  return reinterpret_cast<T*>(buffer.bytes);
}

}  // namespace tessera::kernels

#include <tessera/base/pop_macros.hpp>

#endif
