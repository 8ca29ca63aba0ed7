#ifndef TESSERA_RUNTIME_STEPS_INDEXED_STEP_HPP
#define TESSERA_RUNTIME_STEPS_INDEXED_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/indexed.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/strided.hpp>
#include <tessera/ops/indexing/indexed_rows.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/executor/prepared_step.hpp>
#include <tessera/runtime/executor/work_grid.hpp>
#include <tessera/runtime/steps/sum_in_place.hpp>
#include <tessera/runtime/threads/team.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// embedding (rows looked up in a table) and index_add (rows added to a table). With the table sharded by rows, a
/// lookup gives zeros for rows of other shards, so that the results are parts of a sum. Additions to a row are in the
/// order of the indices, however many threads run. With Fusion::sum, all places add into one table, in the order of the
/// places.
template <DTypeSet Types> class IndexedStep final : public PreparedStep {
 public:
  explicit IndexedStep(const StepContext& c)
      : gathers_(!row_of(c.graph[c.units[c.step.unit].root]).scatters),
        source_(c.graph[c.units[c.step.unit].root].source) {
    const FrameLayout& layout = c.layout;
    const PlanStep& step = c.step;
    const int table = gathers_ ? step.inputs[0] : step.outputs[0], rows = gathers_ ? step.outputs[0] : step.inputs[0];
    const int index = step.inputs[1];
    dtype_ = layout.value(table).dtype;
    index_dtype_ = layout.value(index).dtype;
    element_ = layout[table].element;
    index_element_ = layout[index].element;
    const WorkGrid work(layout, step);
    for (int w = 0; w < work.count(); ++w) {
      const Coordinates at = work.coordinates(w);
      if (!work.stores(at, layout.value(step.outputs[0]).sharding) || !layout.holds(step.outputs[0], at)) continue;
      add_place(layout, table, rows, index, at);
    }
    long_sums_.resize(places_.size());
    if (step.fusion == Fusion::sum)
      sum_in_place(SumInPlace(layout, *c.next));
    else
      for (std::size_t p = 0; p < places_.size(); ++p) add_parts(p, range_of(places_[p]));
  }

  std::int64_t moved_bytes() const override { return sum_.moved_bytes(); }

  void run(Frame& frame) const override {
    std::atomic<std::int64_t> outside{0};
    std::atomic<bool> found{false};
    sum_.count();
    if (!gathers_) fill_zero(frame);
    if (!gathers_) find_long_sums(frame);
    const std::int64_t count = static_cast<std::int64_t>(parts_.size()) / terms_;
    parallel_for(count, Cost::bytes(part_bytes_ * terms_), [&](std::int64_t chain) {
      for (std::int64_t i = chain * terms_; i < (chain + 1) * terms_; ++i) {
        const DimRange& part = parts_[static_cast<std::size_t>(i)];
        const Place& place = places_[static_cast<std::size_t>(part.place)];
        kernels::IndexedShape shape = place.shape;
        (gathers_ ? shape.index : shape.inner)[static_cast<std::size_t>(part.dim)] = part.extent;
        char* rows = frame.pointers[static_cast<std::size_t>(place.rows)] + part.rows_offset * element_;
        char* table = frame.pointers[static_cast<std::size_t>(place.table)] + part.table_offset * element_;
        const char* index = frame.pointers[static_cast<std::size_t>(place.index)] + part.index_offset * index_element_;
        const auto bad =
            gathers_ ? kernels::gather_rows<Types>(dtype_, index_dtype_, rows, table, index, shape, place.window)
                     : kernels::scatter_add_rows<Types>(dtype_, index_dtype_, table, rows, index, shape, place.window,
                                                        long_sums_[static_cast<std::size_t>(part.place)] == 0
                                                            ? kernels::LongSums::none
                                                        : i == chain * terms_ ? kernels::LongSums::on_zeros
                                                                              : kernels::LongSums::on_others);
        if (bad) {
          outside.store(*bad, std::memory_order_relaxed);
          found.store(true, std::memory_order_release);
        }
      }
    });
    if (found.load(std::memory_order_acquire))
      ops::fail_index(gathers_ ? "embedding" : "index_add", outside.load(),
                      concat_text("a table of ", places_.front().window.global, " rows"), source_);
  }

 private:
  struct Place {
    kernels::IndexedShape shape;
    kernels::RowWindow window;
    Shape table_extent;
    std::int32_t table = 0, rows = 0, index = 0;
  };
  /// A task: a range of the indices for embedding. For index_add a range of columns, since a range of indices would not
  /// keep the order of the additions to a row.
  struct DimRange {
    int place, dim;
    std::int64_t extent, rows_offset, table_offset, index_offset;
  };
  bool gathers_;
  Source source_;
  DType dtype_{}, index_dtype_{};
  std::int64_t element_ = 4, index_element_ = 4;
  Growable<Place> places_;
  mutable Growable<std::uint8_t> long_sums_;  // by place; a member so that run() does not allocate
  Growable<DimRange> parts_;
  SumInPlace sum_;
  std::int64_t terms_ = 1;  // consecutive entries of parts_ that add to the same elements, so that one task runs them
  double part_bytes_ = 1;

  /// By place: whether some row of the table receives too many additions for f32 sums to be accurate.
  void find_long_sums(Frame& frame) const {
    if (dtype_ != DType::f32 || parts_.empty()) return;
    const double bytes = static_cast<double>(volume(places_[0].shape.index) * index_element_);
    parallel_for(static_cast<std::int64_t>(places_.size()), Cost::bytes(4 * bytes), [&](std::int64_t i) {
      const Place& place = places_[static_cast<std::size_t>(i)];
      long_sums_[static_cast<std::size_t>(i)] = kernels::has_long_sums(
          index_dtype_, frame.pointers[static_cast<std::size_t>(place.index)], place.shape, place.window);
    });
  }

  void fill_zero(Frame& frame) const {
    constexpr std::int64_t pieces = 8;
    const auto tables = sum_ ? std::int64_t{1} : static_cast<std::int64_t>(places_.size());
    const double bytes = static_cast<double>(volume(places_.empty() ? Shape{0} : places_[0].table_extent) * element_);
    parallel_for(tables * pieces, Cost::bytes(bytes / pieces), [&](std::int64_t i) {
      const Place& place = places_[static_cast<std::size_t>(i / pieces)];
      Shape extent = place.table_extent;
      const std::int64_t begin = extent[0] * (i % pieces) / pieces;
      extent[0] = extent[0] * (i % pieces + 1) / pieces - begin;
      kernels::strided_fill_zero(
          frame.pointers[static_cast<std::size_t>(place.table)] + begin * place.shape.table_strides[0] * element_,
          place.shape.table_strides, extent, static_cast<std::size_t>(element_));
    });
  }

  void add_place(const FrameLayout& layout, int table, int rows, int index, const Coordinates& at) {
    Place place;
    const int t = layout[table].index(at), r = layout[rows].index(at), x = layout[index].index(at);
    const Box& table_box = layout[table].boxes[static_cast<std::size_t>(t)];
    place.table = layout[table].first + t;
    place.rows = layout[rows].first + r;
    place.index = layout[index].first + x;
    place.shape.index = extents(layout[index].boxes[static_cast<std::size_t>(x)]);
    place.table_extent = extents(table_box);
    for (std::size_t d = 1; d < place.table_extent.size(); ++d) place.shape.inner.push_back(place.table_extent[d]);
    place.shape.index_strides = layout[index].strides[static_cast<std::size_t>(x)];
    place.shape.rows_strides = layout[rows].strides[static_cast<std::size_t>(r)];
    place.shape.table_strides = layout[table].strides[static_cast<std::size_t>(t)];
    place.window = {layout.value(table).shape[0], table_box.begin[0], place.table_extent[0]};

    places_.push_back(std::move(place));
  }

  const Shape& cut_shape(const Place& place) const { return gathers_ ? place.shape.index : place.shape.inner; }
  std::int64_t bytes_of(const Place& place) const {
    return volume(place.shape.index) * volume(place.shape.inner) * element_;
  }
  std::size_t cut_dim(const Place& place) const {
    const Shape& cut = cut_shape(place);
    std::size_t dim = 0;
    for (std::size_t d = 1; d < cut.size(); ++d)
      if (cut[d] > cut[dim]) dim = d;
    return dim;
  }
  std::int64_t cut_extent(const Place& place) const {
    return cut_shape(place).empty() ? 1 : cut_shape(place)[cut_dim(place)];
  }
  /// Extent of one task along cut_dim(): about 128 KiB, and for index_add at least 16 columns, a cache line of f32.
  std::int64_t range_of(const Place& place) const {
    const std::int64_t bytes = std::max<std::int64_t>(bytes_of(place), 1), least = gathers_ ? 1 : 16;
    return std::max<std::int64_t>(least, cut_extent(place) * (1 << 17) / bytes);
  }

  void add_parts(std::size_t p, std::int64_t range) {
    const Place& place = places_[p];
    const std::int64_t bytes = bytes_of(place), whole = cut_extent(place);
    if (bytes == 0) return;
    const std::size_t dim = cut_dim(place);
    for (std::int64_t begin = 0; begin < whole; begin += range) {
      DimRange part{static_cast<int>(p), static_cast<int>(dim), std::min(range, whole - begin), 0, 0, 0};
      if (!cut_shape(place).empty()) {
        if (gathers_) {
          part.rows_offset = begin * place.shape.rows_strides[dim];
          part.index_offset = begin * place.shape.index_strides[dim];
        } else {
          part.rows_offset = begin * place.shape.rows_strides[dim + place.shape.index.size()];
          part.table_offset = begin * place.shape.table_strides[dim + 1];
        }
      }
      parts_.push_back(part);
    }
    part_bytes_ = std::max(part_bytes_, 2.0 * static_cast<double>(std::min(range, whole) * bytes / whole));
  }

  /// Makes all places add into the table of their sum. Places have equal ranges of columns, and the tasks of one range
  /// are consecutive, so that additions to an element are in the order of the places.
  void sum_in_place(const SumInPlace& sum) {
    sum_ = sum;
    std::int64_t range = std::numeric_limits<std::int64_t>::max();
    for (Place& place : places_) {
      place.table = sum.target(place.table);
      if (bytes_of(place) != 0) range = std::min(range, range_of(place));
    }
    terms_ = 0;
    for (std::size_t p = 0; p < places_.size(); ++p) {
      add_parts(p, range);
      terms_ += bytes_of(places_[p]) != 0 ? 1 : 0;
    }
    terms_ = std::max<std::int64_t>(terms_, 1);
    const std::size_t terms = static_cast<std::size_t>(terms_), ranges = parts_.size() / terms;
    Growable<DimRange> sorted;
    sorted.reserve(parts_.size());
    for (std::size_t r = 0; r < ranges; ++r)
      for (std::size_t t = 0; t < terms; ++t) sorted.push_back(parts_[t * ranges + r]);
    parts_ = std::move(sorted);
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
