#ifndef TESSERA_KERNELS_REDUCE_ROWS_HPP
#define TESSERA_KERNELS_REDUCE_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <tessera/kernels/isa.hpp>

// Rows are combined and copied by whole cache lines, with vector extensions instead of relying on auto-vectorisation.
namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// Elements of T that fill a cache line.
template <class T> struct Line {
  typedef T type __attribute__((vector_size(64)));
  static constexpr std::int64_t size = 64 / sizeof(T);
};

template <class T> TESSERA_INLINE void store_line_past_caches(T* to, const typename Line<T>::type& line) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), (__m512i)line);
#elif defined(__SSE2__)
  alignas(64) char bytes[64];
  std::memcpy(bytes, &line, 64);
  for (int i = 0; i < 4; ++i)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, _mm_load_si128(reinterpret_cast<const __m128i*>(bytes) + i));
#else
  std::memcpy(to, &line, 64);
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

/// to[i] = from[0][i] combined with from[1][i], ..., in this order, two cache lines of all sources at a time. `to` may
/// be one of the sources. After calls with `past_caches`, the caller calls fence_stores().
template <class M, class T>
void reduce_rows(T* to, const T* const* from, int sources, std::int64_t count, bool past_caches) {
  using Vector = typename Line<T>::type;
  constexpr std::int64_t line = Line<T>::size;
  const auto one = [&](std::int64_t i) {
    T value = from[0][i];
    for (int s = 1; s < sources; ++s) M::join(value, from[s][i]);
    to[i] = value;
  };
  std::int64_t i = 0;
  for (const std::int64_t first = before_line(to, count); i < first; ++i) one(i);
  for (; i + 2 * line <= count; i += 2 * line) {
    const auto load = [&](int s, Vector& a, Vector& b) TESSERA_INLINE_LAMBDA {
      const T* const at = from[s] + i;
      fetch_page_ahead(at);
      fetch_page_ahead(at + line);
      std::memcpy(&a, at, 64);
      std::memcpy(&b, at + line, 64);
    };
    Vector low, high, a, b;
    load(0, low, high);
    for (int s = 1; s < sources; ++s) {
      load(s, a, b);
      M::join(low, a);
      M::join(high, b);
    }
    if (past_caches) {
      store_line_past_caches<T>(to + i, low);
      store_line_past_caches<T>(to + i + line, high);
    } else {
      std::memcpy(to + i, &low, 64);
      std::memcpy(to + i + line, &high, 64);
    }
  }
  for (; i < count; ++i) one(i);
}

/// Copies bytes with non-temporal stores. The caller calls fence_stores() afterwards.
inline void copy_past_caches(std::byte* to, const std::byte* from, std::int64_t bytes) {
  std::int64_t i = before_line(to, bytes);
  std::memcpy(to, from, static_cast<std::size_t>(i));
  for (; i + 64 <= bytes; i += 64) {
    typename Line<char>::type line;
    fetch_page_ahead(from + i);
    std::memcpy(&line, from + i, 64);
    store_line_past_caches<char>(reinterpret_cast<char*>(to + i), line);
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
