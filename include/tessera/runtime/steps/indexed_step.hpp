#ifndef TESSERA_RUNTIME_STEPS_INDEXED_STEP_HPP
#define TESSERA_RUNTIME_STEPS_INDEXED_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include <tessera/base/shape.hpp>
#include <tessera/kernels/indexed.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/strided.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/steps/sum_targets.hpp>
#include <tessera/runtime/threads/team.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// Looks rows up in a table, or adds rows into one. A shard of the table answers for its own rows; the others are zeros
/// there. Additions to one row happen in the order of the indices, whatever runs in parallel.
class IndexedStep final : public PreparedStep {
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
  }

  /// Rows of all parts are added into the one table that holds their sum, part after part.
  bool attach_sum(const FrameLayout& layout, const PlanStep& reshard) override {
    const std::vector<std::int32_t> targets = sum_targets(layout, reshard);
    // Every place has as many ranges of the row.
    const int sums = layout[reshard.outputs[0]].shards();
    if (gathers_ || targets.empty() || sums != 1 || places_.empty() || parts_.size() % places_.size() != 0)
      return false;
    const std::size_t ranges = parts_.size() / places_.size();
    std::vector<Part> sorted;
    for (std::size_t r = 0; r < ranges; ++r)
      for (std::size_t p = 0; p < places_.size(); ++p) {
        const Part &part = parts_[p * ranges + r], &first = parts_[r];
        if (part.place != static_cast<int>(p) || part.dim != first.dim || part.extent != first.extent ||
            part.table_offset != first.table_offset)
          return false;
        sorted.push_back(part);
      }
    parts_ = std::move(sorted);
    terms_ = static_cast<std::int64_t>(places_.size());
    for (Place& place : places_) place.table = targets[0];
    return true;
  }

  void run(Frame& frame) const override {
    std::atomic<std::int64_t> outside{0};
    std::atomic<bool> found{false};
    if (!gathers_) fill_zero(frame);
    if (!gathers_) find_long_sums(frame);
    const std::int64_t count = static_cast<std::int64_t>(parts_.size()) / terms_;
    parallel_for(count, Cost::bytes(part_bytes_ * terms_), [&](std::int64_t chain) {
      for (std::int64_t i = chain * terms_; i < (chain + 1) * terms_; ++i) {
        const Part& part = parts_[static_cast<std::size_t>(i)];
        const Place& place = places_[static_cast<std::size_t>(part.place)];
        kernels::IndexedShape shape = place.shape;
        (gathers_ ? shape.index : shape.inner)[static_cast<std::size_t>(part.dim)] = part.extent;
        char* rows = frame.pointers[static_cast<std::size_t>(place.rows)] + part.rows_offset * element_;
        char* table = frame.pointers[static_cast<std::size_t>(place.table)] + part.table_offset * element_;
        const char* index = frame.pointers[static_cast<std::size_t>(place.index)] + part.index_offset * index_element_;
        const auto bad = gathers_ ? kernels::gather_rows(dtype_, index_dtype_, rows, table, index, shape, place.window)
                                  : kernels::scatter_add_rows(
                                        dtype_, index_dtype_, table, rows, index, shape, place.window,
                                        long_sums_[static_cast<std::size_t>(part.place)] == 0 ? kernels::LongSums::none
                                        : i == chain * terms_ ? kernels::LongSums::on_zeros
                                                              : kernels::LongSums::on_others);
        if (bad) {
          outside.store(*bad, std::memory_order_relaxed);
          found.store(true, std::memory_order_release);
        }
      }
    });
    if (found.load(std::memory_order_acquire))
      fail(errc::dim_range, "[", gathers_ ? "embedding" : "index_add", "] index in range: ", outside.load(),
           " of a table with ", places_.front().window.global, " rows", source_.line == 0 ? "" : " at ",
           source_.text());
  }

 private:
  struct Place {
    kernels::IndexedShape shape;
    kernels::RowWindow window;
    Shape table_extent;
    std::int32_t table = 0, rows = 0, index = 0;
  };
  /// A range of one dim: of the indices when gathering, of the row when adding, which keeps the order of additions.
  struct Part {
    int place, dim;
    std::int64_t extent, rows_offset, table_offset, index_offset;
  };
  bool gathers_;
  Source source_;
  DType dtype_{}, index_dtype_{};
  std::int64_t element_ = 4, index_element_ = 4;
  std::vector<Place> places_;
  mutable std::vector<std::uint8_t> long_sums_;  // by place, so that a run allocates nothing
  std::vector<Part> parts_;
  std::int64_t terms_ = 1;  // parts one after another that add to the same elements
  double part_bytes_ = 1;

  /// By place: whether some row gets so many additions that they are not to be added up in f32 alone.
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
    const auto tables = static_cast<std::int64_t>(places_.size()) / terms_;
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

    const Shape& cut = gathers_ ? place.shape.index : place.shape.inner;
    const std::int64_t bytes = volume(place.shape.index) * volume(place.shape.inner) * element_;
    if (bytes == 0) {
      places_.push_back(std::move(place));
      return;
    }
    int dim = 0;
    for (std::size_t d = 1; d < cut.size(); ++d)
      if (cut[d] > cut[static_cast<std::size_t>(dim)]) dim = static_cast<int>(d);
    const std::int64_t whole = cut.empty() ? 1 : cut[static_cast<std::size_t>(dim)];
    // A range of a row no narrower than a cache line.
    const std::int64_t least = gathers_ ? 1 : 16;
    const std::int64_t step = std::max<std::int64_t>(least, whole * (1 << 17) / bytes);
    for (std::int64_t begin = 0; begin < whole; begin += step) {
      Part part{static_cast<int>(places_.size()), dim, std::min(step, whole - begin), 0, 0, 0};
      if (!cut.empty()) {
        if (gathers_) {
          part.rows_offset = begin * place.shape.rows_strides[static_cast<std::size_t>(dim)];
          part.index_offset = begin * place.shape.index_strides[static_cast<std::size_t>(dim)];
        } else {
          part.rows_offset = begin * place.shape.rows_strides[static_cast<std::size_t>(dim) + place.shape.index.size()];
          part.table_offset = begin * place.shape.table_strides[static_cast<std::size_t>(dim) + 1];
        }
      }
      parts_.push_back(part);
      if (cut.empty()) break;
    }
    part_bytes_ = std::max(part_bytes_, 2.0 * static_cast<double>(std::min(step, whole) * bytes / whole));
    places_.push_back(std::move(place));
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
