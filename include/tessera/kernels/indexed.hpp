#ifndef TESSERA_KERNELS_INDEXED_HPP
#define TESSERA_KERNELS_INDEXED_HPP

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/strided.hpp>

namespace tessera::kernels {

/// The rows of a table that lie here: [offset, offset + count) of `global` rows.
struct RowWindow {
  std::int64_t global = 0, offset = 0, count = 0;
};

/// Extents and strides of a lookup, rows[i..., j...] = table[index[i...], j...].
struct IndexedShape {
  Shape index, inner;     ///< extents of i... and of j...
  Strides index_strides;  ///< of the dims i...
  Strides rows_strides;   ///< of the dims i..., then j...
  Strides table_strides;  ///< of the dim of rows, then j...

  /// All three arrays row-major and dense.
  static constexpr IndexedShape contiguous(const Shape& index, const Shape& inner) {
    IndexedShape shape{index, inner, kernels::contiguous_strides(index), {}, {}};
    Shape rows = index, table{1};
    for (std::int64_t extent : inner) rows.push_back(extent), table.push_back(extent);
    shape.rows_strides = contiguous_strides(rows);
    shape.table_strides = contiguous_strides(table);
    return shape;
  }
};

}  // namespace tessera::kernels

namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

constexpr Strides slice(const Strides& strides, std::size_t begin, std::size_t end) {
  Strides out;
  for (std::size_t d = begin; d < end; ++d) out.push_back(strides[d]);
  return out;
}

/// Visits index positions in row-major order of i..., and in each the parts of a row: part(rows offset, table offset,
/// lies in the window). Returns the first index outside the table.
template <class I, class Part>
std::optional<std::int64_t> for_each_indexed(const I* index, const IndexedShape& shape, const RowWindow& window,
                                             const Loops& row, const Strides& row_strides, const Strides& table_strides,
                                             Part part) {
  if (is_empty(shape.index)) return std::nullopt;
  const Strides outer_strides = slice(shape.rows_strides, 0, shape.index.size());
  // Sums must not depend on how arrays lie in memory: the order is that of the dims, not of the strides.
  const Loops outer = make_loops(shape.index, contiguous_strides(shape.index), [&](std::size_t o, std::size_t i) {
    return shape.index_strides[o] == shape.index_strides[i] * shape.index[i] &&
           outer_strides[o] == outer_strides[i] * shape.index[i];
  });
  const bool no_row = is_empty(shape.inner);
  std::optional<std::int64_t> wrong;
  for_each_outer(outer, 0, [&](const std::int64_t* at) {
    const std::int64_t wanted = index[offset_of(outer, 0, at, shape.index_strides)];
    if (wanted < 0 || wanted >= window.global) {
      if (!wrong) wrong = wanted;
      return;
    }
    if (no_row) return;
    const bool here = wanted >= window.offset && wanted < window.offset + window.count;
    const std::int64_t to = offset_of(outer, 0, at, outer_strides);
    const std::int64_t from = here ? (wanted - window.offset) * shape.table_strides[0] : 0;
    for_each_outer(row, 1, [&](const std::int64_t* j) {
      part(to + offset_of(row, 1, j, row_strides), from + offset_of(row, 1, j, table_strides), here);
    });
  });
  return wrong;
}

}  // namespace detail

/// rows[i..., j...] = table[index[i...], j...]. `table` points at row window.offset; indices of rows that lie elsewhere
/// give zeros, so that the lookups of all shards of a table add up to the whole one. Returns an index outside
/// [0, window.global) when there is one: its row is left as it was, for the caller to throw dim_range. To use several
/// threads, cut any dim.
template <class T, class I>
std::optional<std::int64_t> gather_rows(T* rows, const T* table, const I* index, const IndexedShape& shape,
                                        const RowWindow& window) {
  const Strides row_strides = detail::slice(shape.rows_strides, shape.index.size(), shape.rows_strides.size());
  const Strides table_strides = detail::slice(shape.table_strides, 1, shape.table_strides.size());
  const detail::Loops row = detail::make_loops(shape.inner, row_strides, table_strides);
  const auto inner = row.from_inside(0);
  const std::int64_t to_step = detail::stride_of(row_strides, inner),
                     from_step = detail::stride_of(table_strides, inner);
  auto* bytes = reinterpret_cast<std::byte*>(rows);
  constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  constexpr T zero{};
  return detail::for_each_indexed(
      index, shape, window, row, row_strides, table_strides, [&](std::int64_t to, std::int64_t from, bool here) {
        detail::copy_row<sizeof(T)>(bytes + to * size, to_step,
                                    reinterpret_cast<const std::byte*>(here ? table + from : &zero),
                                    here ? from_step : 0, inner.extent);
      });
}

/// table[index[i...], j...] += rows[i..., j...], in row-major order of i..., so that equal indices always add up in the
/// same order. Window and result as in gather_rows; rows of other shards are skipped. To use several threads, cut a dim
/// of j..., which keeps the order.
template <class T, class I>
std::optional<std::int64_t> scatter_add_rows(T* table, const T* rows, const I* index, const IndexedShape& shape,
                                             const RowWindow& window) {
  const Strides row_strides = detail::slice(shape.rows_strides, shape.index.size(), shape.rows_strides.size());
  const Strides table_strides = detail::slice(shape.table_strides, 1, shape.table_strides.size());
  const detail::Loops row = detail::make_loops(shape.inner, table_strides, row_strides);
  const auto inner = row.from_inside(0);
  const std::int64_t from_step = detail::stride_of(row_strides, inner),
                     to_step = detail::stride_of(table_strides, inner);
  return detail::for_each_indexed(
      index, shape, window, row, row_strides, table_strides, [&](std::int64_t from, std::int64_t to, bool here) {
        if (!here) return;
        if (to_step == 1) {
          detail::combine_block<detail::Sum>(table + to, rows + from, from_step, inner.extent);
        } else {
          for (std::int64_t i = 0; i < inner.extent; ++i)
            table[to + i * to_step] = detail::Sum::apply(table[to + i * to_step], rows[from + i * from_step]);
        }
      });
}

namespace detail {
template <class F> std::optional<std::int64_t> with_index_type(DType index_type, const void* index, F f) {
  if (index_type == DType::i32) return f(static_cast<const std::int32_t*>(index));
  if (index_type == DType::i64) return f(static_cast<const std::int64_t*>(index));
  fail(errc::dtype_mismatch, "[gather] index dtype: ", name_of(index_type), " is neither i32 nor i64");
}
}  // namespace detail

/// gather_rows for dtypes known at run time. Any element type; indices are i32 or i64.
inline std::optional<std::int64_t> gather_rows(DType type, DType index_type, void* rows, const void* table,
                                               const void* index, const IndexedShape& shape, const RowWindow& window) {
  return detail::with_index_type(index_type, index, [&](const auto* indices) {
    const auto gather = [&]<class Bits>(Bits) {
      return gather_rows(static_cast<Bits*>(rows), static_cast<const Bits*>(table), indices, shape, window);
    };
    switch (size_of(type)) {
      case 1:
        return gather(std::uint8_t{});
      case 2:
        return gather(std::uint16_t{});
      case 4:
        return gather(std::uint32_t{});
      default:
        return gather(std::uint64_t{});
    }
  });
}

/// scatter_add_rows for dtypes known at run time: f32, f64, i32, i64; indices are i32 or i64.
inline std::optional<std::int64_t> scatter_add_rows(DType type, DType index_type, void* table, const void* rows,
                                                    const void* index, const IndexedShape& shape,
                                                    const RowWindow& window) {
  return detail::with_index_type(index_type, index, [&](const auto* indices) {
    const auto scatter = [&]<class T>(T) {
      return scatter_add_rows(static_cast<T*>(table), static_cast<const T*>(rows), indices, shape, window);
    };
    switch (type) {
      case DType::f32:
        return scatter(float{});
      case DType::f64:
        return scatter(double{});
      case DType::i32:
        return scatter(std::int32_t{});
      case DType::i64:
        return scatter(std::int64_t{});
      default:
        fail(errc::dtype_mismatch, "[scatter] dtype: rows of ", name_of(type), " can't be added");
    }
  });
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#endif
