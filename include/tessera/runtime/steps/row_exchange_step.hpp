#ifndef TESSERA_RUNTIME_STEPS_ROW_EXCHANGE_STEP_HPP
#define TESSERA_RUNTIME_STEPS_ROW_EXCHANGE_STEP_HPP
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

/// Operations whose rows move along one dim: slices, pads, concats, permutations. Rows that another device holds come
/// from that device's shard (a halo).
template <class = void> class RowExchangeStep final : public PreparedStep {
 public:
  explicit RowExchangeStep(const StepContext& c)
      : layout_(c.layout), graph_(c.graph), node_(c.units[c.step.unit].root), step_(c.step),
        dim_(static_cast<std::size_t>(dim_of(c.graph[node_]))), move_(layout_.value(step_.outputs[0]).dtype) {
    const WorkGrid work(layout_, step_);
    const bool permutes = row_of(graph_[node_]).permutation != nullptr;
    if (!step_.collectives.empty()) sent_ = step_.collectives[0];
    if (!permutes) sent_.payload_bytes = sent_.wire_bytes = 0;
    for (int w = 0; w < work.count(); ++w) {
      const Coordinates at = work.coordinates(w);
      if (!work.is_first(at, layout_.value(step_.outputs[0]).sharding) || !layout_.holds(step_.outputs[0], at))
        continue;
      for (int l = 0; l < layout_[step_.outputs[0]].layers; ++l) permutes ? permute(at, l) : shift(at, l);
    }
    sends_ = permutes ? !step_.collectives.empty() : sent_.payload_bytes != 0;
  }

  std::int64_t table_bytes() const override { return move_.table_bytes(); }
  std::int64_t moved_bytes() const override { return move_.plan().moved_bytes(); }

  void run(Frame& frame) const override {
    if (CommunicationScope* scope = CommunicationScope::innermost(); scope != nullptr && sends_)
      scope->add(layout_.mesh(), sent_);
    move_.run(frame);
  }

 private:
  const FrameLayout& layout_;
  const GraphView& graph_;
  int node_;
  const PlanStep& step_;
  std::size_t dim_;
  StepMove move_;
  CollectiveInfo sent_;  // the rows sent between devices, counted from the copies, independently of the plan
  Growable<std::int64_t> sent_by_;
  bool sends_ = false;

  /// Rows [begin, end) of shard `to` of the result.
  Box rows(std::size_t to, std::int64_t begin, std::int64_t end) const {
    Box box = layout_[step_.outputs[0]].boxes[to];
    box.begin[dim_] = begin;
    box.end[dim_] = end;
    return box;
  }
  int add_destination(std::size_t to, const Box& box) {
    const ValueLayout& out = layout_[step_.outputs[0]];
    const std::int64_t first = (box.begin[dim_] - out.boxes[to].begin[dim_]) * out.strides[to][dim_];
    return move_.add_destination(box, out.strides[to], layout_.holders(step_.outputs[0], static_cast<int>(to)),
                                 {out.first + static_cast<int>(to), first * out.element});
  }
  /// Fills a box of shard `to` of the result with the rows from `row` on of shard `from` of an operand.
  void copy(std::size_t to, const Box& box, int operand, int from, std::int64_t row) {
    const ValueLayout& in = layout_[operand];
    const auto shard = static_cast<std::size_t>(from);
    const std::int64_t first = (row - in.boxes[shard].begin[dim_]) * in.strides[shard][dim_];
    const int destination = add_destination(to, box);
    const int source =
        move_.add_source(box, in.strides[shard], layout_.holders(operand, from), {in.first + from, first * in.element});
    move_.plan().fill({&destination, 1}, {&source, 1});
  }
  void fill_zeros(std::size_t to, const Box& box) { move_.plan().fill_identity(add_destination(to, box)); }

  /// Copies each index of the permuted dim, whose source index may be in a shard on another device.
  void permute(const Coordinates& at, int layer) {
    const ValueLayout &out = layout_[step_.outputs[0]], &in = layout_[step_.inputs[0]];
    const PlanValue& value = layout_.value(step_.inputs[0]);
    const std::int64_t extent = value.shape[dim_];
    const auto to = static_cast<std::size_t>(out.index(at, layer));
    for (std::int64_t row = out.boxes[to].begin[dim_]; row < out.boxes[to].end[dim_]; ++row) {
      const std::int64_t source = row_of(graph_[node_]).permutation(context(), row, extent);
      const Box box = rows(to, row, row + 1);
      if (source < 0) {
        fill_zeros(to, box);
        continue;
      }
      const Coordinates place = at_shard(at, value.sharding.dims[dim_], source / chunk(value));
      copy(to, box, step_.inputs[0], in.index(place, value.stacked ? layer : 0), source);
    }
  }

  /// Slice, pad, concat: copies each operand's rows, and zeros where no operand has any.
  void shift(const Coordinates& at, int layer) {
    const ValueLayout& out = layout_[step_.outputs[0]];
    const auto to = static_cast<std::size_t>(out.index(at, layer));
    const Box& box = out.boxes[to];
    std::int64_t next = box.begin[dim_];
    for (std::size_t i = 0; i < step_.inputs.size() && next < box.end[dim_]; ++i) {
      const ValueLayout& in = layout_[step_.inputs[i]];
      const PlanValue& value = layout_.value(step_.inputs[i]);
      const AxisList& axes = value.sharding.dims[dim_];
      const std::int64_t offset = row_of(graph_[node_]).offset(context(), static_cast<int>(i));
      const std::int64_t begin = std::max(next, offset), end = std::min(box.end[dim_], offset + value.shape[dim_]);
      const int own = in.index(at, value.stacked ? layer : 0);
      // For a partial result, each device contributes its own rows.
      const bool partial = shard_count(value.sharding, layout_.mesh(), static_cast<int>(dim_)) > 1 &&
                           layout_.value(step_.outputs[0]).sharding.dims[dim_].empty();
      for (std::int64_t row = begin, last = 0; row < end; row = last) {
        const std::int64_t shard = (row - offset) / chunk(value);
        last = std::min(end, (shard + 1) * chunk(value) + offset);
        const int from = in.index(at_shard(at, axes, shard), value.stacked ? layer : 0);
        if (partial && from != own) continue;
        if (next < row) fill_zeros(to, rows(to, next, row));
        const Box copied = rows(to, row, last);
        copy(to, copied, step_.inputs[i], from, row - offset);
        if (from != own) send(static_cast<std::size_t>(from % in.grid.count()), volume(extents(copied)) * in.element);
        next = last;
      }
    }
    if (next < box.end[dim_]) fill_zeros(to, rows(to, next, box.end[dim_]));
  }

  /// How many rows each shard has, except the last ones.
  std::int64_t chunk(const PlanValue& value) const {
    const std::int64_t count = shard_count(value.sharding, layout_.mesh(), static_cast<int>(dim_));
    return std::max<std::int64_t>(1, rows_of_chunk(value.shape[dim_], count));
  }
  /// `at` with the coordinates along `axes` replaced by those of shard `shard` of the dim that they split.
  Coordinates at_shard(Coordinates at, const AxisList& axes, std::int64_t shard) const {
    for (std::size_t a = axes.size(); a-- > 0; shard /= layout_.mesh().axis_size(axes[a]))
      at[axes[a]] = static_cast<int>(shard % layout_.mesh().axis_size(axes[a]));
    return at;
  }
  /// Counts bytes that leave a shard; the collective's wire_bytes are those of the shard that sends most.
  void send(std::size_t shard, std::int64_t bytes) {
    if (sent_by_.size() <= shard) sent_by_.resize(shard + 1);
    sent_by_[shard] += bytes;
    sent_.payload_bytes = sent_.wire_bytes = std::max(sent_.payload_bytes, sent_by_[shard]);
  }
  ShapeContext context() const {
    return {graph_, node_, layout_.plan().shapes.data(), layout_.plan().numbers.data(), nullptr};
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
