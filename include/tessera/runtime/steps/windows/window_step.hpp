#ifndef TESSERA_RUNTIME_STEPS_WINDOWS_WINDOW_STEP_HPP
#define TESSERA_RUNTIME_STEPS_WINDOWS_WINDOW_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/partition/reshard/chunks.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/executor/prepared_step.hpp>
#include <tessera/runtime/executor/work_grid.hpp>
#include <tessera/runtime/steps/step_move.hpp>
#include <tessera/runtime/transport/communication.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// `at` with the coordinates along `axes` replaced by those of shard `shard` of the dim that they split.
inline Coordinates place_of_shard(Coordinates at, const AxisList& axes, const Mesh& mesh, std::int64_t shard) {
  for (std::size_t a = axes.size(); a-- > 0; shard /= mesh.axis_size(axes[a]))
    at[axes[a]] = static_cast<int>(shard % mesh.axis_size(axes[a]));
  return at;
}

/// The rows that the windows in a box cover, as a box of the dims that the windows are of. Rows may be padding.
inline Box covered_box(const WindowedDims& dims, Box runs) {
  for (std::size_t k = dims.size(); k-- > 0;) {
    const auto at = static_cast<std::size_t>(dims[k].runs);
    runs.begin.erase(at + 1);
    runs.end.erase(at + 1);
    const bool any = runs.end[at] > runs.begin[at];
    runs.begin[at] = runs.begin[at] * dims[k].stride - dims[k].before;
    runs.end[at] = any ? (runs.end[at] - 1) * dims[k].stride + dims[k].span() - dims[k].before : runs.begin[at];
  }
  return runs;
}

/// The windows of a box if each window is one row: the box without the dims of the elements of windows.
inline Box single_box(const WindowedDims& dims, Box runs) {
  for (std::size_t k = dims.size(); k-- > 0;) {
    runs.begin.erase(static_cast<std::size_t>(dims[k].runs + 1));
    runs.end.erase(static_cast<std::size_t>(dims[k].runs + 1));
  }
  return runs;
}

/// Bytes that leave each shard, counted from the copies, independently of the plan. A collective has the bytes of the
/// shard that sends most.
class SentBytes {
 public:
  void send(std::size_t shard, std::int64_t bytes) {
    if (by_shard_.size() <= shard) by_shard_.resize(shard + 1);
    by_shard_[shard] += bytes;
    most_ = std::max(most_, by_shard_[shard]);
  }
  void report(const PlanStep& step, const Mesh& mesh) const {
    CommunicationScope* const scope = CommunicationScope::innermost();
    if (scope == nullptr || most_ == 0) return;
    CollectiveInfo sent = step.collectives.empty() ? CollectiveInfo{} : step.collectives[0];
    sent.payload_bytes = sent.wire_bytes = most_;
    scope->add(mesh, sent);
  }

 private:
  Growable<std::int64_t> by_shard_;
  std::int64_t most_ = 0;
};

/// Windows of dims that are padded or split. Each shard of the result is the rows that its windows cover, once: its own
/// rows, those that other devices hold (a halo), and padding. Of windows of single rows, only these rows are stored.
template <class = void> class WindowStep final : public PreparedStep {
 public:
  explicit WindowStep(const StepContext& c)
      : layout_(c.layout), step_(c.step), move_(layout_.value(step_.outputs[0]).dtype, filler(c)) {
    const int node = c.units[c.step.unit].root;
    const ShapeContext context{c.graph, node, layout_.plan().shapes.data(), layout_.plan().numbers.data(), nullptr};
    windows_ = row_of(c.graph[node]).windows(context);
    single_ = ops::of_single_rows(windows_);
    const WorkGrid work(layout_, step_);
    for (int w = 0; w < work.count(); ++w) {
      const Coordinates at = work.coordinates(w);
      if (work.is_first(at, layout_.value(step_.outputs[0]).sharding) && layout_.holds(step_.outputs[0], at)) fill(at);
    }
  }

  std::int64_t table_bytes() const override { return move_.table_bytes(); }
  std::int64_t moved_bytes() const override { return move_.plan().moved_bytes(); }

  void run(Frame& frame) const override {
    sent_.report(step_, layout_.mesh());
    move_.run(frame);
  }

 private:
  const FrameLayout& layout_;
  const PlanStep& step_;
  StepMove move_;
  WindowedDims windows_;
  bool single_ = false;
  SentBytes sent_;

  /// Places in a windowed dim of what is copied: windows where each is one row, rows otherwise.
  IndexRange places_of(const WindowedDim& dim, const IndexRange& rows) const {
    return single_ ? windows_at(dim, rows) : rows;
  }
  std::int64_t row_of_place(const WindowedDim& dim, std::int64_t place) const {
    return single_ ? place * dim.stride - dim.before : place;
  }

  /// The reduction whose identity the padding is.
  static Reduction filler(const StepContext& c) {
    return c.graph[c.units[c.step.unit].root].labels[2] != 0 ? Reduction::max : Reduction::sum;
  }

  static std::int64_t offset(const Box& of, const Box& part, const kernels::Strides& strides) {
    std::int64_t first = 0;
    for (std::size_t d = 0; d < strides.size(); ++d) first += (part.begin[d] - of.begin[d]) * strides[d];
    return first;
  }

  void fill(const Coordinates& at) {
    const ValueLayout &out = layout_[step_.outputs[0]], &in = layout_[step_.inputs[0]];
    const PlanValue& value = layout_.value(step_.inputs[0]);
    const auto to = static_cast<std::size_t>(out.index(at));
    const Box all = single_ ? single_box(windows_, out.boxes[to]) : covered_box(windows_, out.boxes[to]);
    if (all.empty()) return;
    const kernels::Strides strides = kernels::contiguous_strides(extents(all));
    const auto destination = [&](const Box& part) {
      return move_.add_destination(part, strides, layout_.holders(step_.outputs[0], static_cast<int>(to)),
                                   {out.first + static_cast<int>(to), offset(all, part, strides) * out.element});
    };
    Box inside = all;
    for (const WindowedDim& dim : windows_) {
      const auto d = static_cast<std::size_t>(dim.line);
      const IndexRange exist = places_of(dim, {0, dim.extent});
      const std::int64_t low = std::clamp(exist.begin, all.begin[d], all.end[d]);
      const std::int64_t high = std::clamp(exist.end, low, all.end[d]);
      Box before = inside, behind = inside;
      before.end[d] = low;
      behind.begin[d] = high;
      inside.begin[d] = low;
      inside.end[d] = high;
      for (const Box& padding : {before, behind})
        if (!padding.empty()) move_.plan().fill_identity(destination(padding));
    }
    if (inside.empty()) return;
    // The shards of the operand that have these rows, in each windowed dim.
    Shape first, count;
    for (const WindowedDim& dim : windows_) {
      const auto d = static_cast<std::size_t>(dim.line);
      const std::int64_t rows =
          std::max<std::int64_t>(1, rows_of_chunk(dim.extent, shard_count(value.sharding, layout_.mesh(), dim.line)));
      first.push_back(row_of_place(dim, inside.begin[d]) / rows);
      count.push_back(row_of_place(dim, inside.end[d] - 1) / rows - first.back() + 1);
    }
    const int own = in.index(at);
    for (std::int64_t i = 0; i < volume(count); ++i) {
      Coordinates place = at;
      std::int64_t rest = i;
      for (std::size_t k = 0; k < windows_.size(); rest /= count[k++])
        place =
            place_of_shard(place, value.sharding.dims[windows_[k].line], layout_.mesh(), first[k] + rest % count[k]);
      const int from = in.index(place);
      const auto shard = static_cast<std::size_t>(from);
      Box part = in.boxes[shard], rows = part;
      kernels::Strides steps = in.strides[shard];
      for (const WindowedDim& dim : windows_) {
        const auto d = static_cast<std::size_t>(dim.line);
        const IndexRange held = places_of(dim, {part.begin[d], part.end[d]});
        part.begin[d] = held.begin;
        part.end[d] = held.end;
        if (single_) steps[d] *= dim.stride;
      }
      part = intersect(inside, part);
      if (part.empty()) continue;
      rows.begin = part.begin;
      for (const WindowedDim& dim : windows_) {
        const auto d = static_cast<std::size_t>(dim.line);
        rows.begin[d] = row_of_place(dim, part.begin[d]);
      }
      const int target = destination(part);
      const int source =
          move_.add_source(part, steps, layout_.holders(step_.inputs[0], from),
                           {in.first + from, offset(in.boxes[shard], rows, in.strides[shard]) * in.element});
      move_.plan().fill({&target, 1}, {&source, 1});
      if (from != own) sent_.send(shard, volume(extents(part)) * in.element);
    }
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
