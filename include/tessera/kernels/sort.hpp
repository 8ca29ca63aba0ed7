#ifndef TESSERA_KERNELS_SORT_HPP
#define TESSERA_KERNELS_SORT_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/scratch.hpp>
#include <tessera/kernels/strided.hpp>

namespace tessera::kernels {

/// A gather or scatter along a dim. `index`: extents of the indices; `moved`, `indices`, `array`: strides of the
/// gathered or scattered elements, of the indices, and of the indexed array. The dim has extent `extent` in the array
/// and stride `step`; its entry in `array` is 0.
struct AlongShape {
  Shape index;
  Strides moved, indices, array;
  std::int64_t extent = 0, step = 0;
};

}  // namespace tessera::kernels

namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

template <class T> using SortKey = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
/// An unsigned integer that compares as x does, in descending order the other way round: equal for 0 and -0. NaN is the
/// largest value, as in PyTorch and JAX.
template <class T> SortKey<T> sort_key(T x, bool descending) {
  using Key = SortKey<T>;
  if constexpr (is_half_v<T>) {
    return sort_key(static_cast<float>(x), descending);
  } else if constexpr (std::is_floating_point_v<T>) {
    constexpr Key sign = Key{1} << (8 * sizeof(T) - 1);
    if (x != x) return descending ? Key{0} : std::numeric_limits<Key>::max();
    const Key bits = std::bit_cast<Key>(x == 0 ? T{0} : x), key = (bits & sign) != 0 ? ~bits : bits | sign;
    return descending ? ~key : key;
  } else {
    constexpr Key sign = std::is_signed_v<T> ? Key{1} << (8 * sizeof(Key) - 1) : Key{0};
    const Key key = static_cast<Key>(x) ^ sign;
    return descending ? static_cast<Key>(~key) : key;
  }
}

/// A 64-bit sort key with its index, compared by key, then by index. (32-bit keys are packed with it into 64 bits.)
struct KeyOfTwo {
  std::uint64_t key, index;
  friend bool operator<(const KeyOfTwo& x, const KeyOfTwo& y) {
    return x.key != y.key ? x.key < y.key : x.index < y.index;
  }
};

}  // namespace detail

/// argsort of from[0 .. count): to[i] = the index of the i-th element in sorted order, for i < `kept`. Stable; NaN
/// is the largest value.
template <class T, class I>
void argsort_line(const T* from, std::int64_t from_step, I* to, std::int64_t to_step, std::int64_t count,
                  std::int64_t kept, bool descending) {
  constexpr bool fits = sizeof(detail::SortKey<T>) == 4;  // with a 32-bit index: no line has 2^32 elements
  using Word = std::conditional_t<fits, std::uint64_t, detail::KeyOfTwo>;
  Word* const words = thread_scratch<Scratch::sort, Word>(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t key = detail::sort_key(from[i * from_step], descending);
    if constexpr (fits)
      words[i] = key << 32 | static_cast<std::uint64_t>(i);
    else
      words[i] = {key, static_cast<std::uint64_t>(i)};
  }
  if (kept < count) std::nth_element(words, words + kept, words + count);
  std::sort(words, words + kept);
  for (std::int64_t i = 0; i < kept; ++i) {
    if constexpr (fits)
      to[i * to_step] = static_cast<I>(words[i] & 0xffffffffu);
    else
      to[i * to_step] = static_cast<I>(words[i].index);
  }
}

/// Calls visit(moved[.., k, ..], array[.., indices[.., k, ..], ..]) in row-major order of the indices. Skips indices
/// outside of the dim, and returns the first of them.
template <class Moved, class Array, class I, class Visit>
std::optional<std::int64_t> visit_along(const AlongShape& shape, Moved* moved, Array* array, const I* indices,
                                        Visit visit) {
  if (detail::is_empty(shape.index)) return std::nullopt;
  const Strides order = contiguous_strides(shape.index);
  const detail::Loops loops = detail::make_loops(shape.index, order, [&](std::size_t o, std::size_t i) {
    const std::int64_t n = shape.index[i];
    return shape.moved[o] == shape.moved[i] * n && shape.indices[o] == shape.indices[i] * n &&
           shape.array[o] == shape.array[i] * n;
  });
  const auto inner = loops.from_inside(0);
  const std::int64_t moved_step = detail::stride_of(shape.moved, inner),
                     index_step = detail::stride_of(shape.indices, inner),
                     array_step = detail::stride_of(shape.array, inner);
  std::optional<std::int64_t> wrong;
  detail::for_each_outer(loops, 1, [&](const std::int64_t* at) {
    auto* const own = moved + detail::offset_of(loops, 1, at, shape.moved);
    const I* const index = indices + detail::offset_of(loops, 1, at, shape.indices);
    auto* const line = array + detail::offset_of(loops, 1, at, shape.array);
    if (index_step == 0) {  // all elements have one index
      const auto wanted = static_cast<std::int64_t>(*index);
      if (wanted < 0 || wanted >= shape.extent) {
        if (!wrong) wrong = wanted;
        return;
      }
      auto* const row = line + wanted * shape.step;
      if (moved_step == 1 && array_step == 1)
        for (std::int64_t i = 0; i < inner.extent; ++i) visit(own[i], row[i]);
      else
        for (std::int64_t i = 0; i < inner.extent; ++i) visit(own[i * moved_step], row[i * array_step]);
      return;
    }
    for (std::int64_t i = 0; i < inner.extent; ++i) {
      const auto wanted = static_cast<std::int64_t>(index[i * index_step]);
      if (wanted < 0 || wanted >= shape.extent) {
        if (!wrong) wrong = wanted;
        continue;
      }
      visit(own[i * moved_step], line[i * array_step + wanted * shape.step]);
    }
  });
  return wrong;
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
