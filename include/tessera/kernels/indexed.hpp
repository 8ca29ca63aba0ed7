#ifndef TESSERA_KERNELS_INDEXED_HPP
#define TESSERA_KERNELS_INDEXED_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/long_sums.hpp>
#include <tessera/kernels/scratch.hpp>
#include <tessera/kernels/strided.hpp>

namespace tessera::kernels {

/// The rows of a table that a shard holds: [offset, offset + count) of `global` rows.
struct RowWindow {
  std::int64_t global = 0, offset = 0, count = 0;
};

/// Extents and strides of a lookup, rows[i..., j...] = table[index[i...], j...].
struct IndexedShape {
  Shape index, inner;     ///< extents of i... and of j...
  Strides index_strides;  ///< along i...
  Strides rows_strides;   ///< along i..., then j...
  Strides table_strides;  ///< along the rows of the table, then j...

  /// All three arrays are contiguous and row-major.
  static constexpr IndexedShape contiguous(const Shape& index, const Shape& inner) {
    IndexedShape shape{index, inner, kernels::contiguous_strides(index), {}, {}};
    Shape rows = index, table{1};
    for (std::int64_t extent : inner) rows.push_back(extent), table.push_back(extent);
    shape.rows_strides = contiguous_strides(rows);
    shape.table_strides = contiguous_strides(table);
    return shape;
  }
};

/// Whether a row of the table receives more than sum_run additions, hence needs f64 sums; and whether the table starts
/// with zeros or with the additions of an earlier place.
enum class LongSums : std::uint8_t { none, on_zeros, on_others };

}  // namespace tessera::kernels

namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

constexpr Strides slice(const Strides& strides, std::size_t begin, std::size_t end) {
  Strides out;
  for (std::size_t d = begin; d < end; ++d) out.push_back(strides[d]);
  return out;
}

inline std::int64_t index_count(const IndexedShape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape.index) count *= extent;
  return count;
}

/// For each index in row-major order of i..., calls row(offset in rows, row of the window or -1). Returns the first
/// index outside the table.
template <class I, class Row>
std::optional<std::int64_t> for_each_index(const I* index, const IndexedShape& shape, const RowWindow& window,
                                           Row row) {
  if (is_empty(shape.index)) return std::nullopt;
  const Strides outer_strides = slice(shape.rows_strides, 0, shape.index.size());
  // The order is that of the dims, not of the strides, so that sums don't depend on the memory layout.
  const Loops outer = make_loops(shape.index, contiguous_strides(shape.index), [&](std::size_t o, std::size_t i) {
    return shape.index_strides[o] == shape.index_strides[i] * shape.index[i] &&
           outer_strides[o] == outer_strides[i] * shape.index[i];
  });
  const auto inner = outer.from_inside(0);
  const std::int64_t index_step = stride_of(shape.index_strides, inner), to_step = stride_of(outer_strides, inner);
  const auto global = static_cast<std::uint64_t>(window.global), count = static_cast<std::uint64_t>(window.count);
  std::optional<std::int64_t> wrong;
  for_each_outer(outer, 1, [&](const std::int64_t* at) {
    const I* const own = index + offset_of(outer, 1, at, shape.index_strides);
    const std::int64_t to = offset_of(outer, 1, at, outer_strides);
    for (std::int64_t i = 0; i < inner.extent; ++i) {
      const std::int64_t wanted = own[i * index_step];
      if (static_cast<std::uint64_t>(wanted) >= global) [[unlikely]] {  // or below 0
        if (!wrong) wrong = wanted;
        continue;
      }
      const std::int64_t here = wanted - window.offset;
      row(to + i * to_step, static_cast<std::uint64_t>(here) < count ? here : -1);
    }
  });
  return wrong;
}

/// for_each_index for rows of any shape: calls part(offset in rows, offset in table, row of the window or -1) for each
/// contiguous part of a row.
template <class I, class Part>
std::optional<std::int64_t> for_each_indexed(const I* index, const IndexedShape& shape, const RowWindow& window,
                                             const Loops& row, const Strides& row_strides, const Strides& table_strides,
                                             Part part) {
  const std::int64_t table_step = shape.table_strides[0];
  if (is_empty(shape.inner)) return for_each_index(index, shape, window, [](std::int64_t, std::int64_t) {});
  if (row.size() <= 1)
    return for_each_index(index, shape, window, [&](std::int64_t to, std::int64_t here) {
      part(to, here < 0 ? 0 : here * table_step, here);
    });
  return for_each_index(index, shape, window, [&](std::int64_t to, std::int64_t here) {
    const std::int64_t from = here < 0 ? 0 : here * table_step;
    for_each_outer(row, 1, [&](const std::int64_t* j) {
      part(to + offset_of(row, 1, j, row_strides), from + offset_of(row, 1, j, table_strides), here);
    });
  });
}

/// Copies rows of `Bytes` bytes: moves of a size that the compiler knows, since a call of memcpy takes longer than they
/// do.
template <std::int64_t Bytes, class I>
std::optional<std::int64_t> gather_short_rows(std::byte* rows, const std::byte* table, const I* index,
                                              const IndexedShape& shape, const RowWindow& window, std::int64_t size) {
  const std::int64_t step = shape.table_strides[0] * size;
  return for_each_index(index, shape, window, [&](std::int64_t to, std::int64_t here) {
    if (here >= 0)
      std::memcpy(rows + to * size, table + here * step, Bytes);
    else
      std::memset(rows + to * size, 0, Bytes);
  });
}

}  // namespace detail

/// rows[i..., j...] = table[index[i...], j...]. `table` points at row window.offset. Rows of other shards give zeros,
/// so that the results of all shards of the table sum to the full lookup. Does not write rows whose index is not below
/// window.global, and returns the first such index: the caller throws dim_range. Threads may divide any dim.
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
  if (row.size() == 0 || (row.size() == 1 && to_step == 1 && from_step == 1)) {
    const auto copies = [&]<std::int64_t Bytes>() {
      return detail::gather_short_rows<Bytes>(bytes, reinterpret_cast<const std::byte*>(table), index, shape, window,
                                              size);
    };
    if (inner.extent == 1) return copies.template operator()<size>();
    if (inner.extent * size == 8) return copies.template operator()<8>();
    if (inner.extent * size == 16) return copies.template operator()<16>();
    if (inner.extent * size == 32) return copies.template operator()<32>();
  }
  constexpr T zero{};
  return detail::for_each_indexed(
      index, shape, window, row, row_strides, table_strides, [&](std::int64_t to, std::int64_t from, std::int64_t at) {
        const bool here = at >= 0;
        detail::copy_row<sizeof(T)>(bytes + to * size, to_step,
                                    reinterpret_cast<const std::byte*>(here ? table + from : &zero),
                                    here ? from_step : 0, inner.extent);
      });
}

namespace detail {
/// Counts the additions to each row of the window up to sum_run + 1; calls report(row) for each row that reaches it.
template <class I, class Report>
void count_additions(const I* index, const IndexedShape& shape, const RowWindow& window, std::uint8_t* terms,
                     Report report) {
  std::memset(terms, 0, static_cast<std::size_t>(window.count));
  const Loops loops = make_loops(shape.index, shape.index_strides, shape.index_strides);
  const auto inner = loops.from_inside(0);
  const std::int64_t step = stride_of(shape.index_strides, inner);
  for_each_outer(loops, 1, [&](const std::int64_t* at) {
    const I* const own = index + offset_of(loops, 1, at, shape.index_strides);
    for (std::int64_t i = 0; i < inner.extent; ++i) {
      const std::int64_t row = static_cast<std::int64_t>(own[i * step]) - window.offset;
      if (row < 0 || row >= window.count || terms[row] > sum_run) continue;
      if (++terms[row] > sum_run) report(row);
    }
  });
}

/// f64 sums for the rows of a table that receive more than sum_run additions: after each run of additions, the f32 row
/// is added to its f64 sum and cleared. Uses the thread's scratch memory.
class LongRowSums {
 public:
  /// Only rows with at least `run` additions get f64 sums, so that there are at most `additions` / `run` of them.
  LongRowSums(float* table, std::int64_t row_step, std::int64_t rows, std::int64_t count, std::int64_t step,
              std::int64_t additions, std::int64_t run)
      : table_(table), row_step_(row_step), rows_(rows), count_(count), step_(step) {
    terms_ = thread_scratch<Scratch::row_counts, std::uint8_t>(static_cast<std::size_t>(rows));
    slot_ = thread_scratch<Scratch::row_slots, std::int32_t>(static_cast<std::size_t>(rows));
    sums_ =
        thread_scratch<Scratch::long_sums, double>(static_cast<std::size_t>(std::min(rows, additions / run) * count));
    std::memset(terms_, 0, static_cast<std::size_t>(rows));
    std::fill_n(slot_, rows, -1);
  }
  /// move_at_first() moves rows with more additions than this.
  static constexpr std::int64_t early_run = sum_run / 8;

  /// Lets rows with more than early_run additions move to f64 before the first: their f32 values may be long sums too.
  template <class I> void move_at_first(const I* index, const IndexedShape& shape, const RowWindow& window) {
    count_additions(index, shape, window, terms_, [](std::int64_t) {});
    for (std::int64_t row = 0; row < window.count; ++row)
      terms_[row] = terms_[row] > early_run ? static_cast<std::uint8_t>(sum_run) : std::uint8_t{0};
  }
  /// To be called before each addition to a row: ends the row's run after sum_run additions.
  void before_addition(std::int64_t row) {
    if (++terms_[row] > sum_run) move(row), terms_[row] = 1;
  }
  /// Adds the f64 sums to the rows.
  void finish() {
    for (std::int64_t row = 0; moved_ > 0 && row < rows_; ++row) {
      if (slot_[row] < 0) continue;
      const double* const sum = sums_ + slot_[row] * count_;
      for (std::int64_t i = 0; i < count_; ++i) {
        float& element = table_[row * row_step_ + i * step_];
        element = static_cast<float>(sum[i] + static_cast<double>(element));
      }
    }
  }

 private:
  float* table_;
  std::int64_t row_step_, rows_, count_, step_;
  std::uint8_t* terms_;  // by row: additions in the current run
  std::int32_t* slot_;   // by row: index of its f64 sums; -1: none
  double* sums_;         // by slot: `count_` f64 sums
  std::int32_t moved_ = 0;

  void move(std::int64_t row) {
    const bool first = slot_[row] < 0;
    if (first) slot_[row] = moved_++;
    double* const sum = sums_ + slot_[row] * count_;
    if (first) std::fill_n(sum, count_, 0.0);
    for (std::int64_t i = 0; i < count_; ++i) {
      float& element = table_[row * row_step_ + i * step_];
      sum[i] += static_cast<double>(element);
      element = 0;
    }
  }
};

}  // namespace detail

/// Whether some row of the window receives more than sum_run additions.
template <class I> bool has_long_sums(const I* index, const IndexedShape& shape, const RowWindow& window) {
  if (detail::index_count(shape) <= sum_run) return false;
  auto* const terms = thread_scratch<Scratch::row_counts, std::uint8_t>(static_cast<std::size_t>(window.count));
  bool found = false;
  detail::count_additions(index, shape, window, terms, [&](std::int64_t) { found = true; });
  return found;
}

/// table[index[i...], j...] += rows[i..., j...], in row-major order of i..., so that sums are reproducible. Window and
/// result as in gather_rows; rows of other shards are skipped. Only dims of j... may be divided among threads: dividing
/// i... would change the order of additions.
template <class T, class I>
std::optional<std::int64_t> scatter_add_rows(T* table, const T* rows, const I* index, const IndexedShape& shape,
                                             const RowWindow& window, LongSums long_sums = LongSums::none) {
  const Strides row_strides = detail::slice(shape.rows_strides, shape.index.size(), shape.rows_strides.size());
  const Strides table_strides = detail::slice(shape.table_strides, 1, shape.table_strides.size());
  const detail::Loops row = detail::make_loops(shape.inner, table_strides, row_strides);
  const auto inner = row.from_inside(0);
  const std::int64_t from_step = detail::stride_of(row_strides, inner),
                     to_step = detail::stride_of(table_strides, inner);
  const auto add = [&](std::int64_t from, std::int64_t to) {
    if (to_step == 1) {
      detail::combine_block<monoids::Sum>(table + to, rows + from, from_step, inner.extent);
    } else {
      for (std::int64_t i = 0; i < inner.extent; ++i)
        monoids::Sum::join(table[to + i * to_step], rows[from + i * from_step]);
    }
  };
  if constexpr (std::is_same_v<T, float>)
    if (long_sums != LongSums::none) {
      // Part by part: for each contiguous part of the columns all rows, so that f64 sums are as long as one part.
      detail::Loops part;
      part.loops.push_back(inner);
      std::optional<std::int64_t> wrong;
      detail::for_each_outer(row, 1, [&](const std::int64_t* j) {
        const std::int64_t first_from = detail::offset_of(row, 1, j, row_strides),
                           first_to = detail::offset_of(row, 1, j, table_strides);
        const bool on_others = long_sums == LongSums::on_others;
        detail::LongRowSums sums(table + first_to, shape.table_strides[0], window.count, inner.extent, to_step,
                                 detail::index_count(shape), on_others ? detail::LongRowSums::early_run : sum_run);
        if (on_others) sums.move_at_first(index, shape, window);
        wrong = detail::for_each_indexed(index, shape, window, part, row_strides, table_strides,
                                         [&](std::int64_t from, std::int64_t to, std::int64_t at) {
                                           if (at < 0) return;
                                           sums.before_addition(at);
                                           add(first_from + from, first_to + to);
                                         });
        sums.finish();
      });
      return wrong;
    }
  if (row.size() == 0)  // rows of one element
    return detail::for_each_index(index, shape, window, [&](std::int64_t from, std::int64_t at) {
      if (at >= 0) monoids::Sum::join(table[at * shape.table_strides[0]], rows[from]);
    });
  return detail::for_each_indexed(index, shape, window, row, row_strides, table_strides,
                                  [&](std::int64_t from, std::int64_t to, std::int64_t at) {
                                    if (at >= 0) add(from, to);
                                  });
}

namespace detail {
template <class F> auto with_index_type(const char* kernel, DType index_type, const void* index, F f) {
  if (index_type == DType::i32) return f(static_cast<const std::int32_t*>(index));
  if (index_type == DType::i64) return f(static_cast<const std::int64_t*>(index));
  fail(errc::dtype_mismatch, "[", kernel, "] index dtype: ", name_of(index_type), " is neither i32 nor i64");
}
}  // namespace detail

/// gather_rows for dtypes known at run time, of which `type` is one of `Types`; indices are i32 or i64.
template <DTypeSet Types = all_dtypes>
std::optional<std::int64_t> gather_rows(DType type, DType index_type, void* rows, const void* table, const void* index,
                                        const IndexedShape& shape, const RowWindow& window) {
  return detail::with_index_type("embedding", index_type, index, [&](const auto* indices) {
    return dispatch<Types>(
        type,
        [&]<class T>() {  // one copy for all types of a size
          using Bits = detail::Word<sizeof(T)>;
          return gather_rows(static_cast<Bits*>(rows), static_cast<const Bits*>(table), indices, shape, window);
        },
        [&]() -> std::optional<std::int64_t> {
          fail(errc::dtype_mismatch, "[embedding] dtype: ", name_of(type), " is not a type of the program's tables");
        });
  });
}

/// has_long_sums for a dtype known at run time.
template <class = void>
bool has_long_sums(DType index_type, const void* index, const IndexedShape& shape, const RowWindow& window) {
  return detail::with_index_type("index_add", index_type, index,
                                 [&](const auto* indices) { return has_long_sums(indices, shape, window); });
}

/// scatter_add_rows for dtypes known at run time: of f32, f64, i32 and i64 those in `Types`; indices are i32 or i64.
template <DTypeSet Types = all_dtypes>
std::optional<std::int64_t> scatter_add_rows(DType type, DType index_type, void* table, const void* rows,
                                             const void* index, const IndexedShape& shape, const RowWindow& window,
                                             LongSums long_sums = LongSums::none) {
  constexpr DTypeSet added = set_of(DType::f32) | set_of(DType::f64) | set_of(DType::i32) | set_of(DType::i64);
  return detail::with_index_type("index_add", index_type, index, [&](const auto* indices) {
    return dispatch<static_cast<DTypeSet>(Types & added)>(
        type,
        [&]<class T>() {
          return scatter_add_rows(static_cast<T*>(table), static_cast<const T*>(rows), indices, shape, window,
                                  long_sums);
        },
        [&]() -> std::optional<std::int64_t> {
          fail(errc::dtype_mismatch, "[index_add] dtype: ", name_of(type), " is none of f32, f64, i32, i64");
        });
  });
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
