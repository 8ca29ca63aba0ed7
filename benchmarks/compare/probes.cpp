#include "probes.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#ifdef __AVX__
#include <immintrin.h>
#endif
#include <xsimd/xsimd.hpp>

#include <tessera/runtime/memory/buffer.hpp>
#include <tessera/runtime/threads/team.hpp>

namespace compare {

namespace {

using Lanes = xsimd::batch<float>;

constexpr int chains = 12, rounds = 100'000, pieces_per_thread = 8;

// Accumulators are separate variables, since compilers would keep an array of them in memory, not in registers.
template <class... Accumulators> float multiply_add(Lanes factor, Lanes addend, Accumulators... sums) {
  static_assert(sizeof...(sums) == chains);
  for (int i = 0; i < rounds; ++i) ((sums = xsimd::fma(sums, factor, addend)), ...);
  return (sums + ...).get(0);
}

// Each chain starts with another value; the compiler would merge equal chains into one.
template <int... I> float multiply_add_piece(float start, std::integer_sequence<int, I...>) {
  return multiply_add(Lanes(0.999f), Lanes(1e-3f), Lanes(start + static_cast<float>(I))...);
}

constexpr std::int64_t line = 64;

void copy_cached(char* to, const char* from, std::int64_t bytes) {
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

/// Copies with streaming stores, which don't read a cache line before they overwrite it: faster if the data exceeds the
/// caches.
void copy_streaming(char* to, const char* from, std::int64_t bytes) {
#ifdef __AVX__
  for (std::int64_t i = 0; i < bytes; i += 32)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i)));
  _mm_sfence();
#else
  copy_cached(to, from, bytes);
#endif
}

float sum_of(const float* from, std::int64_t count) {
  constexpr std::int64_t size = Lanes::size;
  Lanes a(0.0f), b(0.0f), c(0.0f), d(0.0f);
  for (std::int64_t i = 0; i < count; i += 4 * size) {
    a += Lanes::load_aligned(from + i);
    b += Lanes::load_aligned(from + i + size);
    c += Lanes::load_aligned(from + i + 2 * size);
    d += Lanes::load_aligned(from + i + 3 * size);
  }
  return ((a + b) + (c + d)).get(0);
}

}  // namespace

Probe fma_probe(int threads) {
  const int pieces = pieces_per_thread * threads;
  const auto run = [pieces] {
    tessera::parallel_for(pieces, [](std::int64_t i) {
      volatile float sink = multiply_add_piece(static_cast<float>(i), std::make_integer_sequence<int, chains>());
      static_cast<void>(sink);
    });
  };
  return {Task(run), 2.0 * chains * rounds * static_cast<double>(Lanes::size) * pieces};
}

Probe copy_probe(double bytes) {
  const auto lines = static_cast<std::int64_t>(std::clamp(bytes / 2, 4096.0, 256e6)) / line;
  const auto from = tessera::Buffer::allocate(lines * line), to = tessera::Buffer::allocate(lines * line);
  std::memset(from->data(), 1, static_cast<std::size_t>(lines * line));
  std::memset(to->data(), 1, static_cast<std::size_t>(lines * line));
  const auto copy_with = [&](void (*copy)(char*, const char*, std::int64_t)) {
    return Task([=] {
      tessera::parallel_ranges(lines, tessera::Cost::bytes(2 * line), [&](std::int64_t begin, std::int64_t end) {
        copy(to->as<char>() + begin * line, from->as<char>() + begin * line, (end - begin) * line);
      });
    });
  };
  const Task plain = copy_with(copy_cached), streaming = copy_with(copy_streaming);
  const auto best_time = [](const Task& task) {
    double best = task.seconds(1);
    for (int i = 0; i < 3; ++i) best = std::min(best, task.seconds(1));
    return best;
  };
  return {best_time(streaming) < best_time(plain) ? streaming : plain, 2.0 * static_cast<double>(lines * line)};
}

Probe read_probe(double bytes) {
  constexpr std::int64_t block = 1024;
  const auto blocks = static_cast<std::int64_t>(std::clamp(bytes, 4096.0, 512e6)) / block;
  const auto from = tessera::Buffer::allocate(blocks * block);
  std::memset(from->data(), 0, static_cast<std::size_t>(blocks * block));
  const auto run = [=] {
    tessera::parallel_ranges(blocks, tessera::Cost::bytes(block), [&](std::int64_t begin, std::int64_t end) {
      constexpr std::int64_t floats = block / 4;
      volatile float sink = sum_of(from->as<float>() + begin * floats, (end - begin) * floats);
      static_cast<void>(sink);
    });
  };
  return {Task(run), static_cast<double>(blocks * block)};
}

}  // namespace compare
