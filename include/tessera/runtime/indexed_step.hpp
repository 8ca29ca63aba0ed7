#ifndef TESSERA_RUNTIME_INDEXED_STEP_HPP
#define TESSERA_RUNTIME_INDEXED_STEP_HPP

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include <tessera/kernels/indexed.hpp>
#include <tessera/kernels/strided.hpp>
#include <tessera/ops/row_entry.hpp>
#include <tessera/runtime/frame.hpp>
#include <tessera/runtime/team.hpp>

namespace tessera::runtime {

/// Looks rows up in a table, or adds rows into one. A shard of the table answers for its own rows; the others are zeros
/// there. Additions to one row happen in the order of the indices, whatever runs in parallel.
class IndexedStep final : public PreparedStep {
 public:
  explicit IndexedStep(const StepContext& c)
      : gathers_(c.graph[c.units[c.step.unit].root].op == Op::gather),
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
  }

  void run(Frame& frame) const override {
    std::atomic<std::int64_t> outside{0};
    std::atomic<bool> found{false};
    for (const Place& place : places_)
      if (!gathers_)
        kernels::strided_fill_zero(frame.pointers[static_cast<std::size_t>(place.table)], place.shape.table_strides,
                                   place.table_extent, static_cast<std::size_t>(element_));
    parallel_for(static_cast<std::int64_t>(parts_.size()), Cost::bytes(part_bytes_), [&](std::int64_t i) {
      const Part& part = parts_[static_cast<std::size_t>(i)];
      const Place& place = places_[static_cast<std::size_t>(part.place)];
      kernels::IndexedShape shape = place.shape;
      (gathers_ ? shape.index : shape.inner)[static_cast<std::size_t>(part.dim)] = part.extent;
      char* rows = frame.pointers[static_cast<std::size_t>(place.rows)] + part.rows_offset * element_;
      char* table = frame.pointers[static_cast<std::size_t>(place.table)] + part.table_offset * element_;
      const char* index = frame.pointers[static_cast<std::size_t>(place.index)] + part.index_offset * index_element_;
      const auto bad = gathers_
                           ? kernels::gather_rows(dtype_, index_dtype_, rows, table, index, shape, place.window)
                           : kernels::scatter_add_rows(dtype_, index_dtype_, table, rows, index, shape, place.window);
      if (bad) {
        outside.store(*bad, std::memory_order_relaxed);
        found.store(true, std::memory_order_release);
      }
    });
    if (found.load(std::memory_order_acquire))
      fail(errc::dim_range, "[", gathers_ ? "gather" : "scatter", "] index in range: ", outside.load(),
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
  std::vector<Part> parts_;
  double part_bytes_ = 1;

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

}  // namespace tessera::runtime

#endif
