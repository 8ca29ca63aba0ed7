#ifndef TESSERA_KERNELS_GEMM_CONTRACTION_PLAN_HPP
#define TESSERA_KERNELS_GEMM_CONTRACTION_PLAN_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/gemm/bf16/bf16_gemm.hpp>
#include <tessera/kernels/gemm/contraction_loops.hpp>
#include <tessera/kernels/gemm/gemm.hpp>
#include <tessera/kernels/gemm/gemm_timing.hpp>
#include <tessera/kernels/gemm/gemm_variant.hpp>
#include <tessera/kernels/gemm/packed_gemm.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/long_sums.hpp>
#include <tessera/kernels/strided.hpp>

namespace tessera::kernels::inline TESSERA_ISA {

/// An einsum of two strided operands. Each dim has a label, an integer below 3 * max_rank. As in numpy.einsum, a label
/// of both operands and of out is a batch label, a label that out lacks is summed over ("bij,bjk->bik": b and j), and a
/// label that an operand repeats takes the diagonal.
struct ContractionShape {
  using Labels = InlineVector<std::int8_t, max_rank>;

  Labels a, b, out;
  InlineVector<std::int64_t, 3 * max_rank> extents;  ///< by label
  Strides a_strides, b_strides, out_strides;         ///< by dim, in elements
  friend bool operator==(const ContractionShape&, const ContractionShape&) = default;
};

struct ContractionOptions {
  int parallelism = 1;  ///< threads among which the items are divided
  /// Number of equal contractions that read the same operand, so that it is packed once for all.
  int readers_of_a = 1, readers_of_b = 1;
  bool whole_last_dim = false;  ///< every item covers out's whole last dim, for an epilogue that reduces along it
};

/// A box of the output.
struct OutputRegion {
  Shape begin, extent;
};

/// A callback for each box of the output, called as soon as the box is final, while it is in the cache.
struct FinishedBox {
  void (*call)(const void* context, const OutputRegion& box) = nullptr;
  const void* context = nullptr;
  std::uintptr_t beside = 0;  ///< as in FinishedPart
};

/// How a contraction is computed: which labels are the m, n and k of a matrix product, which are looped over, and how
/// the work is divided into independent items, each of which writes its own box of the output.
class ContractionPlan {
 public:
  ContractionPlan() = default;
  TESSERA_PLANNING explicit ContractionPlan(const ContractionShape& shape, ContractionOptions options = {});

  /// Number of items, which may run in any order and concurrently; 0 if the output is empty.
  std::int64_t item_count() const { return loop_.blocks() * row_.blocks() * col_.blocks(); }

  /// The box of the output that `item` writes.
  OutputRegion rows_of(std::int64_t item) const;

  /// Computes one item: out = alpha * einsum(a, b) in its box, or out += with `accumulate`. The chosen provider
  /// multiplies f32 and f64; integers wrap around. Does not allocate once the thread has run an item of that size.
  /// `packed`: the result of pack() if packed_size() is not 0, or null: then each item packs its own panels.
  /// `rounded`, allowed if can_round(): a product of bf16 or f16 is stored there, rounded to T, instead of in out.
  template <class T>
  void run(std::int64_t item, const T* a, const T* b, product_t<T>* out, bool accumulate = false,
           product_t<T> alpha = product_t<T>(1), const T* packed = nullptr, FinishedBox finished = {},
           const RoundedResult<T>& rounded = {}) const;

  /// Elements of the operand that is packed once for all items; 0 if it is faster that each item packs its own panels.
  template <class T> std::int64_t packed_size() const;
  /// Number of tasks of the packing, which may run in any order and concurrently, before the first item.
  template <class T> std::int64_t pack_count() const { return col_.blocks() * pack_parts<T>(); }
  template <class T> void pack(std::int64_t part, const T* a, const T* b, T* packed) const;
  /// Whether the packed operand is a, rather than b.
  bool packs_first() const { return swapped_; }
  /// Whether both plans pack the same operand in the same way.
  bool packs_as(const ContractionPlan& other) const;
  /// Whether both plans have equal items: item i writes the same box in both.
  bool cuts_as(const ContractionPlan& other) const;

  /// Multiplications and additions of the whole contraction.
  double flops() const { return flops_; }

  /// Whether each element is computed by a single matrix product, so that it can be rounded as it is stored. `biased`:
  /// after adding a bias row along the last dim.
  bool can_round(bool biased) const {
    const bool along_columns =
        col_.dims.size() == 1 && col_.dims[0].out == 1 && col_.dims[0].out_dim == static_cast<int>(out_rank_) - 1;
    return !as_loops_ && k_loops_.empty() && (!biased || along_columns);
  }

 private:
  using Axis = detail::BlockAxis;
  using Dim = detail::ContractionDim;
  struct Item {
    Axis::Range loop, row, col;
  };

  Item ranges_of(std::int64_t item) const;
  void block(ContractionOptions options);
  double cost_of(ContractionOptions options) const;
  bool shares_packing() const;
  template <class T> PackedLayout packed_layout_of(std::int64_t col_block) const {
    return packed_layout<T>(k_.extent, col_.range(col_block).count);
  }
  template <class T> std::int64_t pack_parts() const {
    constexpr std::int64_t panels = 4;
    return (packed_layout_of<T>(0).panels() + panels - 1) / panels;
  }
  void tell(const Item& item, std::int64_t loop, const PartOfC& part, FinishedBox finished) const;
  /// Extent along k of a block of the contraction, and the number of blocks that are added to each element.
  template <class T> std::int64_t block_depth() const {
    return std::max<std::int64_t>(detail::equal_parts(k_.extent, detail::most_depth<T>, 4), 4);
  }
  template <class T> std::int64_t sum_blocks() const {
    return depth_ / k_.extent * ((k_.extent + block_depth<T>() - 1) / block_depth<T>());
  }
  template <class T> bool has_long_sums() const { return std::is_same_v<T, float> && sum_blocks<T>() > product_run; }
  template <class T>
  void multiply_range(std::int64_t first, std::int64_t count, Gemm<T> part, const T* a, const T* b, const T* packed,
                      std::int64_t item) const;
  template <class T>
  void run_loops(const Item& item, const T* a, const T* b, product_t<T>* out, bool accumulate,
                 product_t<T> alpha) const;

  std::size_t out_rank_ = 0;
  bool swapped_ = false;  // a and b are exchanged, so that out is contiguous along columns
  bool as_loops_ = false;
  int readers_ = 1;        // number of contractions that read the right operand
  Axis loop_, row_, col_;  // out's labels: those looped over, rows and columns of the matrix product
  Dim k_;                  // the contracted dim of the matrix product; further ones are in k_loops_
  detail::ContractionDims k_loops_;
  std::int64_t depth_ = 1;
  double flops_ = 0;
};

namespace detail {

/// The labels of one class (batch, rows, columns or contracted) before a run of them becomes a dim of the product.
struct ContractionClass {
  ContractionDims labels;

  /// The run of labels around label `first` that merge into a single strided dim in all tensors.
  constexpr BlockAxis run_from(std::size_t first) const {
    BlockAxis axis;
    axis.push_inside(labels[first]);
    for (bool grown = true; grown;) {
      grown = false;
      for (std::size_t i = 0; i < labels.size(); ++i) {
        if (axis.has(labels[i].out_dim)) continue;
        if (labels[i].steps_over(axis.dims[0])) {
          axis.push_outside(labels[i]);
          grown = true;
        } else if (axis.dims.back().steps_over(labels[i])) {
          axis.push_inside(labels[i]);
          grown = true;
        }
      }
    }
    return axis;
  }

  /// Removes and returns the longest run; an empty axis if the class is empty.
  constexpr BlockAxis take_longest() {
    BlockAxis best;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const BlockAxis run = run_from(i);
      if (best.dims.empty() || run.volume() > best.volume()) best = run;
    }
    for (const ContractionDim& dim : best.dims) labels.erase(labels.find(dim));
    return best;
  }
};

}  // namespace detail

TESSERA_PLANNING inline ContractionPlan::ContractionPlan(const ContractionShape& given, ContractionOptions options)
    : out_rank_(given.out.size()) {
  const auto check = [](const ContractionShape::Labels& labels, const Strides& strides, std::size_t count,
                        const char* which) {
    if (labels.size() != strides.size())
      fail(errc::rank_mismatch, "[contraction] strides of ", which, ": ", strides.size(), " strides for ",
           labels.size(), " labels");
    for (std::int8_t label : labels)
      if (label < 0 || static_cast<std::size_t>(label) >= count)
        fail(errc::rank_mismatch, "[contraction] labels of ", which, ": label ", static_cast<int>(label),
             " has no extent");
  };
  check(given.a, given.a_strides, given.extents.size(), "a");
  check(given.b, given.b_strides, given.extents.size(), "b");
  check(given.out, given.out_strides, given.extents.size(), "out");

  detail::ContractionClass batch, rows, cols, summed;
  flops_ = 2;
  for (std::size_t l = 0; l < given.extents.size(); ++l) {
    const auto label = static_cast<std::int8_t>(l);
    const bool in_a = given.a.contains(label), in_b = given.b.contains(label), in_out = given.out.contains(label);
    if (!in_a && !in_b && !in_out) continue;
    flops_ *= static_cast<double>(given.extents[l]);
    if (given.extents[l] == 1) continue;
    detail::ContractionDim dim{given.extents[l], 0, 0, 0, -1};
    for (std::size_t i = 0; i < given.a.size(); ++i)
      if (given.a[i] == label) dim.a += given.a_strides[i];
    for (std::size_t i = 0; i < given.b.size(); ++i)
      if (given.b[i] == label) dim.b += given.b_strides[i];
    for (std::size_t i = 0; i < given.out.size(); ++i) {
      if (given.out[i] != label) continue;
      if (dim.out_dim >= 0) fail(errc::shape_mismatch, "[contraction] labels of out: label ", l, " occurs twice");
      dim.out = given.out_strides[i];
      dim.out_dim = static_cast<std::int8_t>(i);
    }
    (!in_out ? summed : in_a == in_b ? batch : in_a ? rows : cols).labels.push_back(dim);
  }

  // Contracted labels are not dims of out: distinct negative values tell them apart.
  for (std::size_t i = 0; i < summed.labels.size(); ++i) {
    summed.labels[i].out_dim = static_cast<std::int8_t>(-1 - static_cast<int>(i));
    depth_ *= summed.labels[i].extent;
  }
  row_ = rows.take_longest();
  col_ = cols.take_longest();
  k_ = summed.take_longest().fused();
  for (const auto* rest : {&batch, &rows, &cols})
    for (const detail::ContractionDim& dim : rest->labels) loop_.insert_by_out_stride(dim);
  while (!summed.labels.empty()) k_loops_.push_back(summed.take_longest().fused());

  // Providers are fastest if out is contiguous along columns.
  const auto far = [](std::int64_t stride) { return stride < 0 ? -stride : stride; };
  swapped_ = !row_.dims.empty() && !col_.dims.empty() && far(row_.fused().out) < far(col_.fused().out);
  if (swapped_) {
    std::swap(row_, col_);
    for (auto* axis : {&loop_, &row_, &col_})
      for (detail::ContractionDim& dim : axis->dims) std::swap(dim.a, dim.b);
    std::swap(k_.a, k_.b);
    for (detail::ContractionDim& dim : k_loops_) std::swap(dim.a, dim.b);
  }
  readers_ = std::max(swapped_ ? options.readers_of_a : options.readers_of_b, 1);
  block(options);
}

/// Whether one operand is packed once for all items. That needs a parallel loop of its own and reads panels from other
/// cores' caches, so it is faster only with enough items.
inline bool ContractionPlan::shares_packing() const {
  constexpr std::int64_t most_elements = std::int64_t(1) << 24, enough_items = 3;
  if (as_loops_ || !k_loops_.empty() || col_.volume() < 32 || k_.extent * col_.volume() > most_elements) return false;
  for (const Dim& dim : loop_.dims)
    if (dim.b != 0) return false;
  constexpr double worthwhile = 1 << 24;
  return readers_ * flops_ >= worthwhile && readers_ * row_.blocks() * loop_.volume() >= enough_items;
}

/// Estimated cycles of a division into items, on a core with two 512-bit FMA units. Only ratios between divisions
/// matter, which differ little between processors.
TESSERA_PLANNING inline double ContractionPlan::cost_of(ContractionOptions options) const {
  constexpr double product = 1.0 / 32, packed = 0.4, brought = 0.3, item_overhead = 2000, loop_overhead = 20000;
  const double rows = static_cast<double>(row_.block_size()), cols = static_cast<double>(col_.block_size());
  const double depth = static_cast<double>(depth_), threads = std::max(options.parallelism, 1);
  // Items by which threads with equal work end apart. Of many threads, some share a core, and may be half as fast: one
  // of them may begin its last item when the others end. See docs/decisions/0087.
  const double skew = threads > 2 ? 1 : threads > 1 ? 0.05 : 0;
  const double products = static_cast<double>(loop_.volume() * row_.blocks() * col_.blocks());
  const bool shared = shares_packing();
  const double one = rows * cols * depth * product + rows * depth * packed +
                     cols * depth * (shared ? brought : packed) + item_overhead;
  const double before = shared ? loop_overhead + static_cast<double>(col_.volume()) * depth * packed / threads : 0;
  return before / readers_ + (std::ceil(products / threads) + skew) * one;
}

/// Divides the axes into blocks by the lowest cost_of(); the right operand's columns of a block must fit the L2 cache.
TESSERA_PLANNING inline void ContractionPlan::block(ContractionOptions options) {
  const std::int64_t m = row_.volume(), n = col_.volume(), loops = loop_.volume();
  if (m * n * loops == 0) {
    loop_.cut(1, -1), row_.cut(1, -1), col_.cut(1, -1);
    return;
  }
  const auto last = static_cast<std::int8_t>(options.whole_last_dim ? static_cast<int>(out_rank_) - 1 : -1);
  as_loops_ = depth_ <= 1 || m * n * k_.extent <= 16 || (m == 1 && n == 1 && loops > 1);

  constexpr double large = 1 << 29;
  if (flops_ >= large && !as_loops_) detail::time_gemm_variants();
  const std::int64_t most_cols =
      detail::columns_in_cache<float>(detail::most_depth<float>, 32, gemm_variant(cpu_level()));
  constexpr std::int64_t least = 64;
  const std::int64_t most_parts = 8 * std::max(options.parallelism, 1);
  const std::int64_t first_cols = (n + most_cols - 1) / most_cols;
  Axis best_row = row_, best_col = col_;
  double best = std::numeric_limits<double>::infinity();
  for (std::int64_t r = 1; r <= most_parts && (r == 1 || m / r >= least / 2); ++r) {
    row_.cut((m + r - 1) / r, last);
    for (std::int64_t c = first_cols; c <= first_cols + most_parts / r && (c == first_cols || n / c >= least); ++c) {
      col_.cut((n + c - 1) / c, last);
      if (const double cost = cost_of(options); cost < best) best = cost, best_row = row_, best_col = col_;
    }
  }
  row_ = best_row, col_ = best_col;

  // An item should have at least 2^20 operations, to be worth a task, and its output should fit the L2 cache.
  constexpr double worthwhile = 1 << 20, most_elements = 1 << 17;
  const std::int64_t tiles = row_.blocks() * col_.blocks();
  const double tile = static_cast<double>(row_.block_size() * col_.block_size());
  const double work = 2.0 * tile * static_cast<double>(depth_) * (as_loops_ ? 8 : 1);
  const auto enough = static_cast<std::int64_t>(worthwhile / std::max(work, 1.0)) + 1;
  const std::int64_t fair = std::max<std::int64_t>(loops * tiles / (2 * std::max(options.parallelism, 1)), 1);
  const auto cached = static_cast<std::int64_t>(std::max(most_elements / tile, 1.0));
  loop_.cut(std::min({enough, fair, cached}), last);
}

inline ContractionPlan::Item ContractionPlan::ranges_of(std::int64_t item) const {
  if (item == 0) return {loop_.range(0), row_.range(0), col_.range(0)};
  // Consecutive items have the same columns, so that the packed panel stays in the cache.
  const std::int64_t cols = col_.blocks(), rows = row_.blocks();
  return {loop_.range(item / rows / cols), row_.range(item % rows), col_.range(item / rows % cols)};
}

inline OutputRegion ContractionPlan::rows_of(std::int64_t item) const {
  OutputRegion region{Shape(out_rank_, 0), Shape(out_rank_, 1)};
  const Item ranges = ranges_of(item);
  const auto place = [&](const detail::ContractionDim& dim, std::int64_t begin, std::int64_t count) {
    region.begin[static_cast<std::size_t>(dim.out_dim)] = begin;
    region.extent[static_cast<std::size_t>(dim.out_dim)] = count;
  };
  loop_.for_each_dim(ranges.loop, place);
  row_.for_each_dim(ranges.row, place);
  col_.for_each_dim(ranges.col, place);
  return region;
}

inline void ContractionPlan::tell(const Item& item, std::int64_t loop, const PartOfC& part,
                                  FinishedBox finished) const {
  row_.for_each_box({item.row.begin + part.row, part.rows}, [&](Axis::Range rows) {
    col_.for_each_box({item.col.begin + part.col, part.cols}, [&](Axis::Range cols) {
      OutputRegion region{Shape(out_rank_, 0), Shape(out_rank_, 1)};
      const auto place = [&](const Dim& dim, std::int64_t begin, std::int64_t count) {
        region.begin[static_cast<std::size_t>(dim.out_dim)] = begin;
        region.extent[static_cast<std::size_t>(dim.out_dim)] = count;
      };
      loop_.for_each_dim_of_box({loop, 1}, place);
      row_.for_each_dim_of_box(rows, place);
      col_.for_each_dim_of_box(cols, place);
      finished.call(finished.context, region);
    });
  });
}

inline bool ContractionPlan::packs_as(const ContractionPlan& other) const {
  if (swapped_ != other.swapped_ || k_.extent != other.k_.extent || k_.b != other.k_.b) return false;
  if (col_.volume() != other.col_.volume() || col_.fused().b != other.col_.fused().b) return false;
  return col_.blocks() == other.col_.blocks() && col_.block_size() == other.col_.block_size();
}

inline bool ContractionPlan::cuts_as(const ContractionPlan& other) const {
  if (item_count() != other.item_count()) return false;
  for (std::int64_t i = 0; i < item_count(); ++i) {
    const OutputRegion own = rows_of(i), its = other.rows_of(i);
    if (!(own.begin == its.begin) || !(own.extent == its.extent)) return false;
  }
  return true;
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
