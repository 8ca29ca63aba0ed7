#ifndef TESSERA_KERNELS_SCRATCH_HPP
#define TESSERA_KERNELS_SCRATCH_HPP

#include <cstddef>
#include <memory>
#include <new>

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
  partial_products,
  sort
};

/// Raw memory that only grows.
struct ScratchBuffer {
  static constexpr std::align_val_t alignment{64};
  struct Free {
    void operator()(std::byte* block) const noexcept { ::operator delete[](block, alignment); }
  };
  std::unique_ptr<std::byte, Free> bytes;
  std::size_t size = 0;
};

/// Uninitialised room for `count` elements, aligned to a cache line, owned by the calling thread and valid until its
/// next request under the same name. It only grows, so that kernels allocate nothing once warm.
template <Scratch Use, class T> T* thread_scratch(std::size_t count) {
  thread_local ScratchBuffer buffer;
  if (const std::size_t size = count * sizeof(T); size > buffer.size) {
    buffer = {};
    buffer.bytes.reset(static_cast<std::byte*>(::operator new[](size, ScratchBuffer::alignment)));
    buffer.size = size;
  }
  return reinterpret_cast<T*>(buffer.bytes.get());
}

}  // namespace tessera::kernels

#endif
