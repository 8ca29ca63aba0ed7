#ifndef TESSERA_KERNELS_REDUCE_ROWS_HPP
#define TESSERA_KERNELS_REDUCE_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <tessera/kernels/isa.hpp>

// Rows are combined and copied by whole cache lines, with vector extensions instead of relying on auto-vectorisation. A
// vector is a register: g++ keeps a vector that is longer in memory, and each operation on it then waits for a store.
namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

#if defined(__AVX512F__)
inline constexpr int register_bytes = 64;
#elif defined(__AVX__)
inline constexpr int register_bytes = 32;
#else
inline constexpr int register_bytes = 16;
#endif

/// A register of elements.
template <class T> struct LineRegister {
  typedef T type __attribute__((vector_size(register_bytes)));
  static constexpr std::int64_t size = register_bytes / static_cast<std::int64_t>(sizeof(T));
};

/// A non-temporal store of a register.
template <class T> TESSERA_INLINE void store_register_past_caches(T* to, const typename LineRegister<T>::type& value) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), (__m512i)value);
#elif defined(__AVX__)
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), (__m256i)value);
#elif defined(__SSE2__)
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), (__m128i)value);
#else
  std::memcpy(to, &value, sizeof(value));
#endif
}

/// Number of elements before the first aligned cache line of `to`.
template <class T> std::int64_t before_line(const T* to, std::int64_t count) {
  const auto off = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % 64);
  if (off % static_cast<std::int64_t>(sizeof(T)) != 0) return count;
  return std::min(count, (64 - off) % 64 / static_cast<std::int64_t>(sizeof(T)));
}

/// Prefetches the address a page ahead: hardware prefetch stops at the page. Prefetching past the end is harmless.
template <class T> TESSERA_INLINE void fetch_page_ahead(const T* from) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(from) + 4096));
}

/// to[i] = from[0][i] combined with from[1][i], ..., in this order, line by line of all sources; within the caches, two
/// lines at a time. `to` may be one of the sources. After calls with `past_caches`, the caller calls fence_stores().
template <class M, class T>
void reduce_rows(T* to, const T* const* from, int sources, std::int64_t count, bool past_caches) {
  using Vector = typename LineRegister<T>::type;
  constexpr std::int64_t line = 64 / static_cast<std::int64_t>(sizeof(T)), size = LineRegister<T>::size;
  const auto one = [&](std::int64_t i) {
    T value = from[0][i];
    for (int s = 1; s < sources; ++s) M::join(value, from[s][i]);
    to[i] = value;
  };
  std::int64_t i = 0;
  for (const std::int64_t first = before_line(to, count); i < first; ++i) one(i);
  // Near enough that what is fetched of many sources stays in the first-level cache: docs/decisions/0010.
  const std::uintptr_t ahead = past_caches ? 256 : 512;
  constexpr auto registers = static_cast<std::size_t>(line / size);
  const auto fetch = [&](const T* at, std::size_t index) TESSERA_INLINE_LAMBDA {
    if (index % registers == 0)
      __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(at) + ahead));
  };
  const auto combine = [&]<std::size_t... R>(std::index_sequence<R...>) TESSERA_INLINE_LAMBDA {
    const auto load = [](Vector& value, const T* at) TESSERA_INLINE_LAMBDA { std::memcpy(&value, at, sizeof(Vector)); };
    Vector sum[sizeof...(R)];
    (fetch(from[0] + i + static_cast<std::int64_t>(R) * size, R), ...);
    (load(sum[R], from[0] + i + static_cast<std::int64_t>(R) * size), ...);
    for (int s = 1; s < sources; ++s) {
      const T* const at = from[s] + i;
      (fetch(at + static_cast<std::int64_t>(R) * size, R), ...);
      Vector term[sizeof...(R)];
      (load(term[R], at + static_cast<std::int64_t>(R) * size), ...);
      (M::join(sum[R], term[R]), ...);
    }
    if (past_caches)
      (store_register_past_caches<T>(to + i + static_cast<std::int64_t>(R) * size, sum[R]), ...);
    else
      (std::memcpy(to + i + static_cast<std::int64_t>(R) * size, &sum[R], sizeof(Vector)), ...);
  };
  if (!past_caches)
    for (; i + 2 * line <= count; i += 2 * line) combine(std::make_index_sequence<2 * registers>{});
  for (; i + line <= count; i += line) combine(std::make_index_sequence<registers>{});
  for (; i < count; ++i) one(i);
}

/// to[i] = to[i] combined with from[i], for rows that are in the caches.
template <class M, class T> void join_row(T* to, const T* from, std::int64_t count) {
  using Vector = typename LineRegister<T>::type;
  constexpr std::int64_t size = LineRegister<T>::size;
  std::int64_t i = 0;
  for (; i + size <= count; i += size) {
    Vector sum, term;
    std::memcpy(&sum, to + i, sizeof(Vector));
    std::memcpy(&term, from + i, sizeof(Vector));
    M::join(sum, term);
    std::memcpy(to + i, &sum, sizeof(Vector));
  }
  for (; i < count; ++i) M::join(to[i], from[i]);
}

/// Copies bytes with non-temporal stores. The caller calls fence_stores() afterwards.
inline void copy_past_caches(std::byte* to, const std::byte* from, std::int64_t bytes) {
  std::int64_t i = before_line(to, bytes);
  std::memcpy(to, from, static_cast<std::size_t>(i));
  for (; i + 64 <= bytes; i += 64) {
    fetch_page_ahead(from + i);
    for (std::int64_t at = i; at < i + 64; at += register_bytes) {
      typename LineRegister<char>::type value;
      std::memcpy(&value, from + at, register_bytes);
      store_register_past_caches<char>(reinterpret_cast<char*>(to + at), value);
    }
  }
  std::memcpy(to + i, from + i, static_cast<std::size_t>(bytes - i));
}

inline void fence_stores() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace detail

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
