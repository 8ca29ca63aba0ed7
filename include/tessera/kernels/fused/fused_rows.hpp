#ifndef TESSERA_KERNELS_FUSED_FUSED_ROWS_HPP
#define TESSERA_KERNELS_FUSED_FUSED_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tessera/graph/fuse/fused.hpp>
#include <tessera/kernels/simd/simd.hpp>

// Memory access of fused kernels. Does not depend on the program, so that all kernels share the code.
namespace tessera::kernels::inline TESSERA_ISA {

inline constexpr int max_operands = Fused::max_inputs + Fused::max_outputs;

/// Most elements of a window if all operands are contiguous.
inline constexpr std::int64_t window_size = 4096;
/// Most elements of a window if a strided operand must be copied to or from a staging buffer.
inline constexpr std::int64_t staged_window_size = 256;

/// Iterates over the rows of a call, with the address of the row in each operand (inputs, then outputs).
struct RowWalk {
  std::byte* row[max_operands];        ///< element 0 of the current row of each operand
  std::int64_t stride[max_operands];   ///< along the row, in elements
  std::int64_t step[7][max_operands];  ///< along each outer dim, in bytes
  std::int64_t extent[7];
  std::int64_t index[7];
  int rank, count;
  bool contiguous;  ///< every operand that is read or written along the row has row stride 1
  bool in_place;    ///< a result is written over an operand

  /// `sizes`: bytes of an element, by operand; `in_row`: bits of the operands that are read or written along the row.
  TESSERA_NO_INLINE void start(const FusedCall& call, int inputs, int outputs, const std::uint8_t* sizes,
                               std::uint64_t in_row) {
    rank = call.outer_rank;
    count = inputs + outputs;
    contiguous = true;
    in_place = false;
    for (int o = 0; o < outputs; ++o)
      for (int i = 0; i < inputs; ++i) in_place = in_place || call.outputs[o].data == call.inputs[i].data;
    for (int i = 0; i < count; ++i) {
      const FusedView& view = i < inputs ? call.inputs[i] : call.outputs[i - inputs];
      row[i] = static_cast<std::byte*>(view.data);
      stride[i] = view.row_stride;
      if ((in_row >> i & 1) != 0 && stride[i] != 1) contiguous = false;
      for (int d = 0; d < rank; ++d) step[d][i] = view.outer_stride[d] * sizes[i];
    }
    std::int64_t left = call.row_begin;
    for (int d = rank - 1; d >= 0; --d) {
      extent[d] = call.outer_extent[d];
      index[d] = extent[d] == 0 ? 0 : left % extent[d];
      left = extent[d] == 0 ? 0 : left / extent[d];
      for (int i = 0; i < count; ++i) row[i] += index[d] * step[d][i];
    }
  }

  /// The rows from the current one to the end of the innermost outer dim.
  std::int64_t left_along_dim() const { return extent[rank - 1] - index[rank - 1]; }
  /// Goes on by `n` rows, at most left_along_dim().
  void skip(std::int64_t n) {
    index[rank - 1] += n - 1;
    for (int i = 0; i < count; ++i) row[i] += (n - 1) * step[rank - 1][i];
    next();
  }
  TESSERA_INLINE void next() {
    if (const int d = rank - 1; d >= 0 && index[d] + 1 < extent[d]) {
      ++index[d];
      for (int i = 0; i < count; ++i) row[i] += step[d][i];
    } else {
      next_of_outer_dims();
    }
  }

 private:
  TESSERA_NO_INLINE void next_of_outer_dims() {
    for (int d = rank - 1; d >= 0; --d) {
      if (++index[d] < extent[d]) {
        for (int i = 0; i < count; ++i) row[i] += step[d][i];
        return;
      }
      for (int i = 0; i < count; ++i) row[i] -= (extent[d] - 1) * step[d][i];
      index[d] = 0;
    }
  }
};

/// A range of a row in which all operands are contiguous, in place or in a staging buffer, padded to whole registers.
struct Window {
  std::byte* at[max_operands];  ///< first element of each operand: in place, or in the staging buffer
  std::int64_t begin;           ///< index along the row
  std::int64_t size;            ///< elements
  std::int64_t padded;          ///< elements rounded up to those of one iteration
};

namespace detail {

template <class T>
inline void gather(std::byte* to, const std::byte* from, std::int64_t stride, std::int64_t size, std::int64_t padded) {
  T* target = reinterpret_cast<T*>(to);
  const T* source = reinterpret_cast<const T*>(from);
  if (stride == 1) {
    std::memcpy(target, source, static_cast<std::size_t>(size) * sizeof(T));
  } else if (stride == 0 && size > 0) {
    const T value = *source;
    for (std::int64_t i = 0; i < size; ++i) target[i] = value;
  } else {
    for (std::int64_t i = 0; i < size; ++i) target[i] = source[i * stride];
  }
  for (std::int64_t i = size; i < padded; ++i) target[i] = T{};
}

template <class T> inline void scatter(std::byte* to, const std::byte* from, std::int64_t stride, std::int64_t size) {
  T* target = reinterpret_cast<T*>(to);
  const T* source = reinterpret_cast<const T*>(from);
  if (stride == 1)
    std::memcpy(target, source, static_cast<std::size_t>(size) * sizeof(T));
  else
    for (std::int64_t i = 0; i < size; ++i) target[i * stride] = source[i];
}

}  // namespace detail

/// How a pass treats the ends of a row that is no multiple of an iteration.
struct RowEnds {
  std::int64_t repeats_from;  ///< elements from here on may be computed twice
  int aligned = -1;           ///< the operand whose stores past the caches must be aligned; -1: none
};

/// The windows of one pass over the current row. `sizes`: bytes of an element by operand; `offsets`: of each operand in
/// the staging buffer.
class WindowWalk {
 public:
  WindowWalk(const RowWalk& rows, const std::uint8_t* sizes, const std::uint32_t* offsets, std::byte* buffer,
             std::uint64_t reads, std::uint64_t writes, int granularity, std::int64_t longest, RowEnds ends)
      : rows_(rows), sizes_(sizes), offsets_(offsets), buffer_(buffer), reads_(reads), writes_(writes),
        granularity_(granularity), longest_(longest), ends_(ends) {}

  /// Opens the window at `begin`, which ends at `end` or before. A remainder below the granularity is a padded window;
  /// where elements may be computed twice, it is a window of full size that begins before `begin`. The elements before
  /// the first that can be stored past the caches are a padded window too.
  TESSERA_NO_INLINE void open(Window& window, std::int64_t begin, std::int64_t end) const {
    const std::int64_t limit = rows_.contiguous || longest_ < staged_window_size ? longest_ : staged_window_size;
    if (end - begin < granularity_ && end - granularity_ >= ends_.repeats_from) begin = end - granularity_;
    const std::int64_t left = end - begin, whole = left - left % granularity_;
    window.begin = begin;
    window.size = whole == 0 ? left : whole < limit ? whole : limit;
    window.padded = whole == 0 ? granularity_ : window.size;
    if (ends_.aligned >= 0 && whole > granularity_)
      if (const std::int64_t unaligned = until_aligned(ends_.aligned, begin); unaligned != 0) {
        window.size = unaligned;
        window.padded = granularity_;
      }
    for (std::uint64_t operands = reads_ | writes_; operands != 0; operands &= operands - 1) {
      const int i = __builtin_ctzll(operands);
      if (in_place(i, window)) {
        window.at[i] = element(i, begin);
      } else {
        window.at[i] = buffer_ + offsets_[i];
        if ((reads_ >> i & 1) != 0) fill(i, window);
      }
    }
  }

  /// Writes staged outputs back.
  void close(const Window& window) const {
    if (!(rows_.contiguous && window.size == window.padded)) drain_all(window);
  }

 private:
  TESSERA_NO_INLINE void drain_all(const Window& window) const {
    for (std::uint64_t operands = writes_; operands != 0; operands &= operands - 1) {
      const int i = __builtin_ctzll(operands);
      if (!in_place(i, window)) drain(i, window);
    }
  }
  std::int64_t until_aligned(int i, std::int64_t begin) const {
    const auto at = reinterpret_cast<std::uintptr_t>(element(i, begin)) / sizes_[i];
    const auto step = static_cast<std::uintptr_t>(granularity_);
    return static_cast<std::int64_t>((step - at % step) % step);
  }
  bool in_place(int i, const Window& window) const { return rows_.stride[i] == 1 && window.size == window.padded; }
  std::byte* element(int i, std::int64_t index) const { return rows_.row[i] + index * rows_.stride[i] * sizes_[i]; }
  void fill(int i, const Window& window) const {
    const std::byte* from = element(i, window.begin);
    switch (sizes_[i]) {
      case 1:
        return detail::gather<std::uint8_t>(window.at[i], from, rows_.stride[i], window.size, window.padded);
      case 2:
        return detail::gather<std::uint16_t>(window.at[i], from, rows_.stride[i], window.size, window.padded);
      case 4:
        return detail::gather<std::uint32_t>(window.at[i], from, rows_.stride[i], window.size, window.padded);
      default:
        return detail::gather<std::uint64_t>(window.at[i], from, rows_.stride[i], window.size, window.padded);
    }
  }
  void drain(int i, const Window& window) const {
    std::byte* to = element(i, window.begin);
    switch (sizes_[i]) {
      case 1:
        return detail::scatter<std::uint8_t>(to, window.at[i], rows_.stride[i], window.size);
      case 2:
        return detail::scatter<std::uint16_t>(to, window.at[i], rows_.stride[i], window.size);
      case 4:
        return detail::scatter<std::uint32_t>(to, window.at[i], rows_.stride[i], window.size);
      default:
        return detail::scatter<std::uint64_t>(to, window.at[i], rows_.stride[i], window.size);
    }
  }

  const RowWalk& rows_;
  const std::uint8_t* sizes_;
  const std::uint32_t* offsets_;
  std::byte* buffer_;
  std::uint64_t reads_, writes_;
  int granularity_;
  std::int64_t longest_;  // most elements of a window over contiguous operands
  RowEnds ends_;
};

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
