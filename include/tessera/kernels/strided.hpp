#ifndef TESSERA_KERNELS_STRIDED_HPP
#define TESSERA_KERNELS_STRIDED_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/inline.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/base/monoid.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/reduce_rows.hpp>
#include <tessera/kernels/strides.hpp>

namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// The loops over a strided box, outermost first. A loop covers adjacent dims that merge in every operand: its extent
/// is the product of theirs, and its stride in an operand is that of `dim`, the innermost of these dims.
struct Loops {
  struct Loop {
    std::int64_t extent = 1;
    std::int8_t dim = 0;
    friend constexpr bool operator==(const Loop&, const Loop&) = default;
  };
  InlineVector<Loop, max_rank> loops;

  constexpr std::size_t size() const { return loops.size(); }
  constexpr const Loop& operator[](std::size_t i) const { return loops[i]; }
  /// Loop `i` counted from the innermost; a loop of extent 1 if i >= size().
  constexpr Loop from_inside(std::size_t i) const { return i < size() ? loops[size() - 1 - i] : Loop{1, -1}; }
};

constexpr std::int64_t stride_of(const Strides& strides, const Loops::Loop& loop) {
  return loop.dim < 0 ? 0 : strides[static_cast<std::size_t>(loop.dim)];
}

/// Orders the dims by descending stride in `major` and merges adjacent dims that are contiguous in all operands.
/// `fits(outer, inner)`: whether stride[outer] == stride[inner] * extents[inner] in the operands besides `major`.
template <class Fits> constexpr Loops make_loops(const Shape& extents, const Strides& major, Fits fits) {
  const auto magnitude = [&](std::size_t dim) { return major[dim] < 0 ? -major[dim] : major[dim]; };
  InlineVector<std::size_t, max_rank> dims;
  for (std::size_t d = 0; d < extents.size(); ++d) {
    if (extents[d] == 1) continue;
    std::size_t at = dims.size();
    while (at > 0 && magnitude(dims[at - 1]) < magnitude(d)) --at;
    dims.insert(at, d);
  }
  Loops out;
  for (std::size_t dim : dims) {
    if (!out.loops.empty()) {
      auto& last = out.loops.back();
      const auto outer = static_cast<std::size_t>(last.dim);
      if (major[outer] == major[dim] * extents[dim] && fits(outer, dim)) {
        last = {last.extent * extents[dim], static_cast<std::int8_t>(dim)};
        continue;
      }
    }
    out.loops.push_back({extents[dim], static_cast<std::int8_t>(dim)});
  }
  return out;
}

constexpr Loops make_loops(const Shape& extents, const Strides& major, const Strides& other) {
  return make_loops(extents, major, [&](std::size_t outer, std::size_t inner) {
    return other[outer] == other[inner] * extents[inner];
  });
}

/// Calls body(index) for every index of the loops outside of the `inner` innermost loops.
template <class Body> void for_each_outer(const Loops& loops, std::size_t inner, Body body) {
  std::int64_t index[max_rank] = {};
  const std::size_t outer = loops.size() > inner ? loops.size() - inner : 0;
  for (;;) {
    body(static_cast<const std::int64_t*>(index));
    std::size_t d = outer;
    while (d > 0 && ++index[d - 1] == loops[d - 1].extent) index[--d] = 0;
    if (d == 0) return;
  }
}

constexpr std::int64_t offset_of(const Loops& loops, std::size_t inner, const std::int64_t* index,
                                 const Strides& strides) {
  std::int64_t offset = 0;
  for (std::size_t d = 0; d + inner < loops.size(); ++d) offset += index[d] * stride_of(strides, loops[d]);
  return offset;
}

constexpr bool is_empty(const Shape& extents) {
  for (std::int64_t extent : extents)
    if (extent == 0) return true;
  return false;
}

/// An element of N bytes. It is loaded and stored through memcpy, since the array may be of any type of that size.
template <std::size_t N>
using Word = std::conditional_t<
    N == 1, std::uint8_t,
    std::conditional_t<N == 2, std::uint16_t, std::conditional_t<N == 4, std::uint32_t, std::uint64_t>>>;

template <std::size_t N> Word<N> load_word(const std::byte* at) {
  Word<N> word;
  std::memcpy(&word, at, N);
  return word;
}

template <std::size_t N> void store_word(std::byte* at, Word<N> word) { std::memcpy(at, &word, N); }

/// The elements of a register in reverse order.
template <std::size_t N> TESSERA_INLINE auto reversed(const typename LineRegister<Word<N>>::type& value) {
  constexpr int size = LineRegister<Word<N>>::size;
  return [&]<int... I>(std::integer_sequence<int, I...>) TESSERA_INLINE_LAMBDA {
    return __builtin_shufflevector(value, value, (size - 1 - I)...);
  }(std::make_integer_sequence<int, size>{});
}

/// dst[i] = src[-i]. After calls with `past_caches`, the caller calls fence_stores().
template <std::size_t N>
void copy_reversed(std::byte* dst, const std::byte* src, std::int64_t count, bool past_caches) {
  using Register = LineRegister<Word<N>>;
  constexpr auto size = static_cast<std::int64_t>(N);
  constexpr std::int64_t line = 64 / size;
  const auto one = [&](std::int64_t i) { store_word<N>(dst + i * size, load_word<N>(src - i * size)); };
  const auto lines = [&](std::int64_t& i, auto store) TESSERA_INLINE_LAMBDA {
    for (; i + line <= count; i += line)
      for (std::int64_t at = i; at < i + line; at += Register::size) {
        typename Register::type value;
        std::memcpy(&value, src - (at + Register::size - 1) * size, register_bytes);
        value = reversed<N>(value);
        store(dst + at * size, value);
      }
  };
  std::int64_t i = 0;
  if (past_caches) {
    for (const std::int64_t first = before_line(dst, count * size) / size; i < first; ++i) one(i);
    lines(i, [](std::byte* to, const auto& value)
                 TESSERA_INLINE_LAMBDA { store_register_past_caches<Word<N>>(reinterpret_cast<Word<N>*>(to), value); });
  } else {
    lines(i, [](std::byte* to, const auto& value) TESSERA_INLINE_LAMBDA { std::memcpy(to, &value, register_bytes); });
  }
  for (; i < count; ++i) one(i);
}

/// After calls with `past_caches`, the caller calls fence_stores().
template <std::size_t N>
void copy_row(std::byte* dst, std::int64_t dst_stride, const std::byte* src, std::int64_t src_stride,
              std::int64_t count, bool past_caches = false) {
  constexpr auto size = static_cast<std::int64_t>(N);
  if (dst_stride == 1 && src_stride == 1) {
    // For a short row, calling memcpy costs more than a loop.
    if (past_caches) {
      copy_past_caches(dst, src, count * size);
    } else if (count * size >= 64) {
      std::memcpy(dst, src, static_cast<std::size_t>(count * size));
    } else {
      for (std::int64_t i = 0; i < count; ++i) store_word<N>(dst + i * size, load_word<N>(src + i * size));
    }
  } else if (dst_stride == 1 && src_stride == -1) {
    copy_reversed<N>(dst, src, count, past_caches);
  } else if (dst_stride == 1 && src_stride == 0) {
    const Word<N> word = load_word<N>(src);
    for (std::int64_t i = 0; i < count; ++i) store_word<N>(dst + i * size, word);
  } else {
    for (std::int64_t i = 0; i < count; ++i)
      store_word<N>(dst + i * dst_stride * size, load_word<N>(src + i * src_stride * size));
  }
}

/// dst[i, j] = src[i, j] in a square tile with rows of one cache line; dst is contiguous along j, src along i. Not
/// inlined: with a constant stride, g++ stores single elements instead of shuffling registers.
template <std::size_t N>
__attribute__((noinline)) void copy_transposed_line(std::byte* dst, std::int64_t dst_row, const std::byte* src,
                                                    std::int64_t src_col) {
  constexpr auto size = static_cast<std::int64_t>(N);
  constexpr std::int64_t block = 64 / size;
  Word<N> tile[block][block];
  for (std::int64_t j = 0; j < block; ++j) std::memcpy(tile[j], src + j * src_col * size, 64);
  for (std::int64_t i = 0; i < block; ++i) {
    Word<N> line[block];
    for (std::int64_t j = 0; j < block; ++j) line[j] = tile[j][i];
    std::memcpy(dst + i * dst_row * size, line, 64);
  }
}

/// copy_transposed_line for any size. Groups of tiles are transposed in a buffer, then written row by row: rows whose
/// distance is a power of two map to the same cache sets, so each row should be written without interruption.
template <std::size_t N>
void copy_transposed(std::byte* dst, std::int64_t dst_row, const std::byte* src, std::int64_t src_col,
                     std::int64_t rows, std::int64_t cols) {
  constexpr auto size = static_cast<std::int64_t>(N);
  constexpr std::int64_t block = 64 / size, group = N == 8 ? 32 : 64;
  alignas(64) std::byte buffer[group * group * size];
  for (std::int64_t i0 = 0; i0 < rows; i0 += group)
    for (std::int64_t j0 = 0; j0 < cols; j0 += group) {
      const std::int64_t height = std::min(group, rows - i0), length = std::min(group, cols - j0);
      const std::byte* from = src + (j0 * src_col + i0) * size;
      std::byte* to = dst + (i0 * dst_row + j0) * size;
      if (height == group && length == group) {
        for (std::int64_t j = 0; j < group; j += block)
          for (std::int64_t i = 0; i < group; i += block)
            copy_transposed_line<N>(buffer + (i * group + j) * size, group, from + (j * src_col + i) * size, src_col);
        for (std::int64_t i = 0; i < group; ++i)
          std::memcpy(to + i * dst_row * size, buffer + i * group * size, static_cast<std::size_t>(group * size));
      } else {
        for (std::int64_t i = 0; i < height; ++i)
          for (std::int64_t j = 0; j < length; ++j)
            store_word<N>(to + (i * dst_row + j) * size, load_word<N>(from + (j * src_col + i) * size));
      }
    }
}

template <std::size_t N>
void copy_box(std::byte* dst, const Strides& dst_strides, const std::byte* src, const Strides& src_strides,
              const Shape& extents, bool past_caches) {
  constexpr std::int64_t size = static_cast<std::int64_t>(N), long_row = 4096 / size;
  Loops loops = make_loops(extents, dst_strides, src_strides);
  const auto inner = loops.from_inside(0);
  // The loop along which src is contiguous or reversed, if it is not the innermost loop: then the copy is a
  // transposition.
  std::size_t turn = loops.size();
  if (loops.size() > 1 && stride_of(dst_strides, inner) == 1 && stride_of(src_strides, inner) != 1)
    for (std::size_t i = 0; i + 1 < loops.size(); ++i)
      if (std::abs(stride_of(src_strides, loops[i])) == 1) turn = i;
  if (turn == loops.size()) {
    past_caches = past_caches && stride_of(dst_strides, inner) == 1 && std::abs(stride_of(src_strides, inner)) == 1 &&
                  inner.extent >= long_row;
    for_each_outer(loops, 1, [&](const std::int64_t* index) {
      copy_row<N>(dst + offset_of(loops, 1, index, dst_strides) * size, stride_of(dst_strides, inner),
                  src + offset_of(loops, 1, index, src_strides) * size, stride_of(src_strides, inner), inner.extent,
                  past_caches);
    });
    if (past_caches) fence_stores();
    return;
  }
  const auto row = loops[turn];
  std::rotate(loops.loops.begin() + turn, loops.loops.begin() + turn + 1, loops.loops.end() - 1);
  // A reversed loop runs backwards in both arrays.
  const std::int64_t dst_row = stride_of(dst_strides, row);
  const bool backwards = stride_of(src_strides, row) < 0;
  const std::int64_t last = backwards ? row.extent - 1 : 0;
  for_each_outer(loops, 2, [&](const std::int64_t* index) {
    copy_transposed<N>(dst + (offset_of(loops, 2, index, dst_strides) + last * dst_row) * size,
                       backwards ? -dst_row : dst_row, src + (offset_of(loops, 2, index, src_strides) - last) * size,
                       stride_of(src_strides, inner), row.extent, inner.extent);
  });
}

}  // namespace detail

/// dst[i] = src[i] for every index of the box, for any dtype of `element_size` 1, 2, 4 or 8 bytes. The arrays must not
/// overlap. With `past_caches`, for arrays larger than the caches, long rows are written with non-temporal stores.
inline void strided_copy(void* dst, const Strides& dst_strides, const void* src, const Strides& src_strides,
                         const Shape& extents, std::size_t element_size, bool past_caches = false) {
  if (detail::is_empty(extents)) return;
  auto* to = static_cast<std::byte*>(dst);
  const auto* from = static_cast<const std::byte*>(src);
  switch (element_size) {
    case 1:
      return detail::copy_box<1>(to, dst_strides, from, src_strides, extents, past_caches);
    case 2:
      return detail::copy_box<2>(to, dst_strides, from, src_strides, extents, past_caches);
    case 4:
      return detail::copy_box<4>(to, dst_strides, from, src_strides, extents, past_caches);
    case 8:
      return detail::copy_box<8>(to, dst_strides, from, src_strides, extents, past_caches);
    default:
      fail(errc::dtype_mismatch, "[strided_copy] element size: ", element_size, " is none of 1, 2, 4, 8");
  }
}

/// strided_copy for a dtype.
inline void strided_copy(DType type, void* dst, const Strides& dst_strides, const void* src, const Strides& src_strides,
                         const Shape& extents, bool past_caches = false) {
  strided_copy(dst, dst_strides, src, src_strides, extents, size_of(type), past_caches);
}

/// dst[i] = 0 for every index of the box: zero is all zero bytes in every dtype.
inline void strided_fill_zero(void* dst, const Strides& dst_strides, const Shape& extents, std::size_t element_size) {
  if (detail::is_empty(extents)) return;
  const auto size = static_cast<std::int64_t>(element_size);
  auto* to = static_cast<std::byte*>(dst);
  const detail::Loops loops = detail::make_loops(extents, dst_strides, [](std::size_t, std::size_t) { return true; });
  const auto inner = loops.from_inside(0);
  const std::int64_t step = detail::stride_of(dst_strides, inner);
  detail::for_each_outer(loops, 1, [&](const std::int64_t* index) {
    std::byte* row = to + detail::offset_of(loops, 1, index, dst_strides) * size;
    if (step == 1 || inner.extent == 1) {
      std::memset(row, 0, static_cast<std::size_t>(inner.extent * size));
    } else {
      for (std::int64_t i = 0; i < inner.extent; ++i) std::memset(row + i * step * size, 0, element_size);
    }
  });
}

/// dst[i] = the element with the bytes `element`, for every index of the box.
inline void strided_fill(void* dst, const Strides& dst_strides, const Shape& extents, const std::byte* element,
                         std::size_t element_size) {
  if (std::all_of(element, element + element_size, [](std::byte b) { return b == std::byte{}; }))
    return strided_fill_zero(dst, dst_strides, extents, element_size);
  if (detail::is_empty(extents)) return;
  const auto size = static_cast<std::int64_t>(element_size);
  const detail::Loops loops = detail::make_loops(extents, dst_strides, [](std::size_t, std::size_t) { return true; });
  const auto inner = loops.from_inside(0);
  const std::int64_t step = detail::stride_of(dst_strides, inner) * size;
  detail::for_each_outer(loops, 1, [&](const std::int64_t* index) {
    std::byte* row = static_cast<std::byte*>(dst) + detail::offset_of(loops, 1, index, dst_strides) * size;
    for (std::int64_t i = 0; i < inner.extent; ++i) std::memcpy(row + i * step, element, element_size);
  });
}

namespace detail {

template <class A, class T> void load_block(A* block, const T* src, std::int64_t stride, std::int64_t count) {
  if (stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) block[i] = src[i];
  } else {
    for (std::int64_t i = 0; i < count; ++i) block[i] = src[i * stride];
  }
}

template <class M, class A, class T>
void combine_block(A* block, const T* src, std::int64_t stride, std::int64_t count) {
  if constexpr (std::is_same_v<A, T> && std::is_floating_point_v<T>)
    if (stride == 1) return join_row<M>(block, src, count);
  if (stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) M::join(block[i], static_cast<A>(src[i]));
  } else {
    for (std::int64_t i = 0; i < count; ++i) M::join(block[i], static_cast<A>(src[i * stride]));
  }
}

template <class M, class A, class T> void combine_block(A* block, const T* first, const T* second, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    A value = block[i];
    M::join(value, static_cast<A>(first[i]));
    M::join(value, static_cast<A>(second[i]));
    block[i] = value;
  }
}

constexpr std::size_t reduced_batch = 32;  // sources combined sequentially; sums of batches are then combined

/// Combines the sources of a row whose elements are adjacent. Each batch is reduced by itself, and the result of the
/// earlier batches is its last term: at most 33 f32 terms are added sequentially, which keeps the rounding error small.
template <class M, class T, class Source>
inline void reduce_adjacent(T* row, const Source& source, std::size_t sources, std::int64_t extent, bool accumulate,
                            bool past_caches) {
  const T* from[reduced_batch + 1];
  for (std::size_t next = 0; next < sources;) {
    int count = 0;
    const bool first = next == 0;
    if (accumulate && first) from[count++] = row;
    for (const std::size_t end = std::min(next + reduced_batch, sources); next < end; ++next)
      from[count++] = source(next);
    if (!first) from[count++] = row;
    reduce_rows<M>(row, from, count, extent, past_caches);
  }
}

/// Combines the sources in order in `block`, which holds `count` elements; with `accumulate`, what it contains is the
/// first term. source(i) and stride(i) are those of the elements of source i.
template <class M, class Wide, class Source, class Stride>
void reduce_block(Wide* block, Wide* earlier, std::int64_t count, std::size_t sources, const Source& source,
                  const Stride& stride, bool accumulate) {
  std::size_t next = 0, end_of_batch = reduced_batch;
  bool has_earlier = false;
  if (!accumulate) {
    load_block(block, source(0), stride(0), count);
    next = 1;
  }
  const auto add_earlier = [&] {
    if (has_earlier) combine_block<M>(block, earlier, 1, count);
  };
  while (next < sources) {
    if (std::is_floating_point_v<Wide> && next >= end_of_batch) {
      add_earlier();
      std::copy(block, block + count, earlier);
      has_earlier = true;
      end_of_batch = next + reduced_batch;
      load_block(block, source(next), stride(next), count);
      ++next;
    } else if (stride(next) == 1 && next + 1 < sources && stride(next + 1) == 1) {
      combine_block<M>(block, source(next), source(next + 1), count);
      next += 2;
    } else {
      combine_block<M>(block, source(next), stride(next), count);
      ++next;
    }
  }
  add_earlier();
}

template <class M, class T>
void reduce_box(T* dst, const Strides& dst_strides, std::span<const StridedSource> sources, const Shape& extents,
                bool accumulate, bool past_caches) {
  const Loops loops = make_loops(extents, dst_strides, [&](std::size_t outer, std::size_t inner) {
    for (const StridedSource& source : sources)
      if (source.strides[outer] != source.strides[inner] * extents[inner]) return false;
    return true;
  });
  const auto inner = loops.from_inside(0);
  const std::int64_t step = stride_of(dst_strides, inner);
  bool adjacent = step == 1;
  for (const StridedSource& source : sources) adjacent = adjacent && stride_of(source.strides, inner) == 1;
  for_each_outer(loops, 1, [&](const std::int64_t* index) {
    T* const row = dst + offset_of(loops, 1, index, dst_strides);
    const auto row_of = [&](std::size_t i) {
      return static_cast<const T*>(sources[i].data) + offset_of(loops, 1, index, sources[i].strides);
    };
    if constexpr (std::is_floating_point_v<T>)
      if (adjacent) return reduce_adjacent<M>(row, row_of, sources.size(), inner.extent, accumulate, past_caches);
    // A block fits the L1 cache, so that each source is read once and dst is written once. dst may be a source: a block
    // of it is written after all sources were read.
    constexpr std::int64_t block_size = 512;
    using Wide = computed_t<T>;
    alignas(64) Wide block[block_size], earlier[block_size];
    const auto stride = [&](std::size_t i) { return stride_of(sources[i].strides, inner); };
    for (std::int64_t begin = 0; begin < inner.extent; begin += block_size) {
      const std::int64_t count = std::min(block_size, inner.extent - begin);
      const auto source = [&](std::size_t i) { return row_of(i) + begin * stride(i); };
      T* const to = row + begin * step;
      if (accumulate) load_block(block, static_cast<const T*>(to), step, count);
      reduce_block<M>(block, earlier, count, sources.size(), source, stride, accumulate);
      if (step == 1) {
        for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(block[i]);
      } else {
        for (std::int64_t i = 0; i < count; ++i) to[i * step] = static_cast<T>(block[i]);
      }
    }
  });
  if (past_caches) fence_stores();
}

}  // namespace detail

/// dst[i] = sources[0][i] combined with sources[1][i], ..., in this order; with `accumulate`, dst[i] is the first term.
/// dst may be one of the sources if the strides are equal. `past_caches`, for arrays larger than the caches, writes dst
/// with non-temporal stores. The element type is one of `Types` of the reduction; bools are reduced as bytes 0 and 1,
/// so that max is "or" and min is "and". Errors: dtype_mismatch for other element types: 8-bit floats, sums and
/// products of bools.
template <ReducedTypes Types = all_partial_types>
void strided_reduce(DType type, Reduction reduction, void* dst, const Strides& dst_strides,
                    std::span<const StridedSource> sources, const Shape& extents, bool accumulate = false,
                    bool past_caches = false) {
  if (detail::is_empty(extents) || (accumulate && sources.empty())) return;
  if (sources.empty()) fail(errc::graph_invalid, "[strided_reduce] sources: no source is given");
  const auto none = [&] {
    fail(errc::dtype_mismatch, "[strided_reduce] dtype: this reduction is not defined for ", name_of(type));
  };
  with_monoid(reduction, [&]<class M>() {
    constexpr DTypeSet bools = set_of(DType::bool_), own = Types[M::kind];
    constexpr auto types = static_cast<DTypeSet>((own & ~bools) | ((own & bools) != 0 ? set_of(DType::u8) : 0));
    const DType as = (own & bools) != 0 && type == DType::bool_ ? DType::u8 : type;
    dispatch<types>(
        as,
        [&]<class T>() {
          detail::reduce_box<M>(static_cast<T*>(dst), dst_strides, sources, extents, accumulate, past_caches);
        },
        none);
  });
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
