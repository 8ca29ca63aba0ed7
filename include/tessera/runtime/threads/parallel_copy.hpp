#ifndef TESSERA_RUNTIME_THREADS_PARALLEL_COPY_HPP
#define TESSERA_RUNTIME_THREADS_PARALLEL_COPY_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include <tessera/base/compiled.hpp>
#include <tessera/base/dtype.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/strides.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <tessera/kernels/strided.hpp>
#include <tessera/runtime/memory/past_caches.hpp>
#include <tessera/runtime/threads/team.hpp>
#endif

namespace tessera::runtime {

/// A part of a copy that is a task of its own: its extents, and where it begins in the result and in the operand, in
/// elements.
struct CopyPart {
  Shape extent;
  std::int64_t to = 0, from = 0;
};

/// Divides a strided copy into tasks, along the outermost dims of the result first. A dim whose elements follow each
/// other in the result or in the operand is divided into multiples of 64, which transpositions are fast for.
TESSERA_ONCE Growable<CopyPart> parts_of_copy(const Shape& extent, const kernels::Strides& to,
                                              const kernels::Strides& from, std::int64_t element_size);

/// kernels::strided_copy by all threads. The arrays must not overlap.
TESSERA_ONCE void parallel_copy(DType type, void* to, const kernels::Strides& to_strides, const void* from,
                                const kernels::Strides& from_strides, const Shape& extent);

#if TESSERA_HAS_DEFINITIONS
namespace detail {
/// Adds about `count` parts of a part, which is divided along `dims`.
inline void divide_copy(const CopyPart& whole, const kernels::Strides& to, const kernels::Strides& from,
                        std::int64_t count, std::uint32_t dims, Growable<CopyPart>& parts) {
  std::size_t outermost = whole.extent.size();
  for (std::size_t d = 0; d < whole.extent.size(); ++d)
    if ((dims >> d & 1) != 0 && whole.extent[d] > 1 && (outermost == whole.extent.size() || to[d] > to[outermost]))
      outermost = d;
  if (count <= 1 || outermost == whole.extent.size()) return parts.push_back(whole);
  const std::int64_t extent = whole.extent[outermost];
  const std::int64_t least = to[outermost] == 1 || std::abs(from[outermost]) == 1 ? 64 : 1;
  const std::int64_t step = ((extent + count - 1) / count + least - 1) / least * least;
  const std::int64_t made = (extent + step - 1) / step;
  for (std::int64_t begin = 0; begin < extent; begin += step) {
    CopyPart part = whole;
    part.extent[outermost] = std::min(step, extent - begin);
    part.to += begin * to[outermost];
    part.from += begin * from[outermost];
    divide_copy(part, to, from, (count + made - 1) / made, dims & ~(1u << outermost), parts);
  }
}
}  // namespace detail

TESSERA_ONCE Growable<CopyPart> parts_of_copy(const Shape& extent, const kernels::Strides& to,
                                              const kernels::Strides& from, std::int64_t element_size) {
  constexpr std::int64_t most_bytes = 1 << 18;
  Growable<CopyPart> parts;
  const std::int64_t bytes = volume(extent) * element_size;
  if (bytes > 0) detail::divide_copy({extent}, to, from, (bytes + most_bytes - 1) / most_bytes, ~0u, parts);
  return parts;
}

TESSERA_ONCE void parallel_copy(DType type, void* to, const kernels::Strides& to_strides, const void* from,
                                const kernels::Strides& from_strides, const Shape& extent) {
  const auto size = static_cast<std::int64_t>(size_of(type));
  const std::int64_t bytes = volume(extent) * size;
  if (Cost::bytes(2 * static_cast<double>(bytes)).nanoseconds <= inline_nanoseconds)
    return kernels::strided_copy(type, to, to_strides, from, from_strides, extent);
  const Growable<CopyPart> parts = parts_of_copy(extent, to_strides, from_strides, size);
  const auto count = static_cast<std::int64_t>(parts.size());
  const bool past_caches = bytes >= past_caches_from();
  parallel_for(count, Cost::bytes(2 * static_cast<double>(bytes) / static_cast<double>(count)), [&](std::int64_t i) {
    const CopyPart& part = parts[static_cast<std::size_t>(i)];
    kernels::strided_copy(type, static_cast<char*>(to) + part.to * size, to_strides,
                          static_cast<const char*>(from) + part.from * size, from_strides, part.extent, past_caches);
  });
}
#endif

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
