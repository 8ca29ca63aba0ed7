#ifndef TESSERA_RUNTIME_STEPS_DATA_MOVEMENT_STEP_HPP
#define TESSERA_RUNTIME_STEPS_DATA_MOVEMENT_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

#include <tessera/base/shape.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/strided.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/executor/prepared_step.hpp>
#include <tessera/runtime/executor/work_grid.hpp>
#include <tessera/runtime/threads/team.hpp>
#include <tessera/runtime/transport/communication.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// Copies of data movement operations: rearranges that no view can express, slices, pads, concats, permutations along a
/// dim. If the result needs rows that another device holds, they are copied from that device's shard.
class DataMovementStep final : public PreparedStep {
 public:
  explicit DataMovementStep(const StepContext& c) : layout_(c.layout), element_(c.layout[c.step.outputs[0]].element) {
    const int node = c.units[c.step.unit].root;
    const PlanStep& step = c.step;
    const WorkGrid work(layout_, step);
    const bool moves = row_of(c.graph[node]).offset != nullptr;
    if (!step.collectives.empty()) sent_ = step.collectives[0];
    if (moves) sent_.payload_bytes = sent_.wire_bytes = 0;
    for (int w = 0; w < work.count(); ++w) {
      const Coordinates at = work.coordinates(w);
      if (!work.stores(at, layout_.value(step.outputs[0]).sharding) || !layout_.holds(step.outputs[0], at)) continue;
      if (row_of(c.graph[node]).permutation != nullptr)
        add_permuted(c.graph, node, step, at);
      else if (moves)
        add_moved(c.graph, node, step, at);
      else
        add(c.graph, node, step, at);
    }
    sends_ = moves ? sent_.payload_bytes != 0 : !step.collectives.empty();
  }

  std::int64_t table_bytes() const override {
    return static_cast<std::int64_t>((pieces_.size() + zeros_.size()) * sizeof(Piece));
  }

  std::int64_t moved_bytes() const override { return moved_; }

  void run(Frame& frame) const override {
    if (CommunicationScope* scope = CommunicationScope::innermost(); scope != nullptr && sends_) {
      scope->add(layout_.mesh(), sent_);
      scope->add_moved(moved_);
    }
    for (const Piece& piece : zeros_) run_piece(frame, piece, true);
    parallel_for(static_cast<std::int64_t>(pieces_.size()), Cost::bytes(piece_bytes_),
                 [&](std::int64_t i) { run_piece(frame, pieces_[static_cast<std::size_t>(i)], false); });
  }

 private:
  struct Piece {
    std::int32_t to = 0, from = 0;
    std::int64_t to_offset = 0, from_offset = 0;  // in elements
    Shape extent;
    kernels::Strides to_strides, from_strides;
  };
  const FrameLayout& layout_;
  std::int64_t element_;
  std::vector<Piece> pieces_, zeros_;
  double piece_bytes_ = 1;
  CollectiveInfo sent_;  // the rows sent between devices, counted from the copies, independently of the plan
  std::vector<std::int64_t> sent_by_;
  bool sends_ = false;
  std::int64_t moved_ = 0;

  /// Adds to moved_ the bytes of a piece, once for each destination device that does not hold the source shard.
  void count_moved(const PlanStep& step, int to, int input, int from, const Piece& piece) {
    moved_ += volume(piece.extent) * element_ *
              sends(layout_.holders(step.outputs[0], to), 1, [&](int) { return layout_.holders(input, from); });
  }

  void run_piece(Frame& frame, const Piece& piece, bool zero) const {
    char* to = frame.pointers[static_cast<std::size_t>(piece.to)] + piece.to_offset * element_;
    if (zero) return kernels::strided_fill_zero(to, piece.to_strides, piece.extent, static_cast<std::size_t>(element_));
    kernels::strided_copy(to, piece.to_strides,
                          frame.pointers[static_cast<std::size_t>(piece.from)] + piece.from_offset * element_,
                          piece.from_strides, piece.extent, static_cast<std::size_t>(element_));
  }

  /// Divides a copy along its longest dim into tasks.
  void add_pieces(Piece piece) {
    constexpr std::int64_t most_bytes = 1 << 18;
    const std::int64_t bytes = volume(piece.extent) * element_;
    if (bytes == 0) return;
    std::size_t dim = 0;
    for (std::size_t d = 1; d < piece.extent.size(); ++d)
      if (piece.extent[d] > piece.extent[dim]) dim = d;
    if (bytes <= most_bytes || piece.extent.empty()) {
      piece_bytes_ = std::max(piece_bytes_, 2.0 * static_cast<double>(bytes));
      pieces_.push_back(piece);
      return;
    }
    const std::int64_t whole = piece.extent[dim];
    const std::int64_t step = std::max<std::int64_t>(1, whole * most_bytes / bytes);
    for (std::int64_t begin = 0; begin < whole; begin += step) {
      Piece part = piece;
      part.extent[dim] = std::min(step, whole - begin);
      part.to_offset += begin * piece.to_strides[dim];
      part.from_offset += begin * piece.from_strides[dim];
      piece_bytes_ = std::max(piece_bytes_, 2.0 * static_cast<double>(volume(part.extent) * element_));
      pieces_.push_back(part);
    }
  }

  /// Adds a copy for each index of the permuted dim, whose source index may be in the shard of another place.
  void add_permuted(const GraphView& graph, int node, const PlanStep& step, const Coordinates& at) {
    const ValueLayout &out = layout_[step.outputs[0]], &in = layout_[step.inputs[0]];
    const auto dim = static_cast<std::size_t>(dim_of(graph[node]));
    const PlanValue& value = layout_.value(step.inputs[0]);
    const std::int64_t extent = value.shape[dim];
    const AxisList& axes = value.sharding.dims[dim];
    const std::int64_t count = shard_count(value.sharding, layout_.mesh(), dim_of(graph[node]));
    const std::int64_t chunk = std::max<std::int64_t>(1, (extent + count - 1) / count);
    for (int l = 0; l < out.layers; ++l) {
      const auto to = static_cast<std::size_t>(out.index(at, l));
      const Box& box = out.boxes[to];
      for (std::int64_t place = box.begin[dim]; place < box.end[dim]; ++place) {
        const std::int64_t source = row_of(graph[node]).permutation(context_of(graph, node), place, extent);
        Piece piece;
        piece.to = out.first + static_cast<int>(to);
        piece.to_strides = out.strides[to];
        piece.to_offset = (place - box.begin[dim]) * piece.to_strides[dim];
        piece.extent = extents(box);
        piece.extent[dim] = 1;
        if (source < 0) {
          zeros_.push_back(piece);
          continue;
        }
        const int from = in.index(at_shard(at, axes, source / chunk), value.stacked ? l : 0);
        piece.from = in.first + from;
        piece.from_strides = in.strides[static_cast<std::size_t>(from)];
        piece.from_offset = (source - in.boxes[static_cast<std::size_t>(from)].begin[dim]) * piece.from_strides[dim];
        count_moved(step, static_cast<int>(to), step.inputs[0], from, piece);
        add_pieces(piece);
      }
    }
  }

  /// Slice, pad, concat along a dim: adds copies of each operand's rows into the result, from the shard of this or of
  /// another place, and zeros for rows that no operand fills.
  void add_moved(const GraphView& graph, int node, const PlanStep& step, const Coordinates& at) {
    const ValueLayout& out = layout_[step.outputs[0]];
    const int dim_index = dim_of(graph[node]);
    const auto dim = static_cast<std::size_t>(dim_index);
    const ShapeContext context = context_of(graph, node);
    for (int l = 0; l < out.layers; ++l) {
      const auto to = static_cast<std::size_t>(out.index(at, l));
      const Box& box = out.boxes[to];
      const auto piece_of = [&](std::int64_t begin, std::int64_t end) {
        Piece piece;
        piece.to = out.first + static_cast<int>(to);
        piece.to_strides = out.strides[to];
        piece.to_offset = (begin - box.begin[dim]) * piece.to_strides[dim];
        piece.extent = extents(box);
        piece.extent[dim] = end - begin;
        return piece;
      };
      std::int64_t next = box.begin[dim];
      for (std::size_t i = 0; i < step.inputs.size() && next < box.end[dim]; ++i) {
        const ValueLayout& in = layout_[step.inputs[i]];
        const PlanValue& value = layout_.value(step.inputs[i]);
        const std::int64_t offset = row_of(graph[node]).offset(context, static_cast<int>(i));
        const std::int64_t extent = value.shape[dim], count = shard_count(value.sharding, layout_.mesh(), dim_index);
        const std::int64_t chunk = std::max<std::int64_t>(1, (extent + count - 1) / count);
        const std::int64_t begin = std::max(next, offset), end = std::min(box.end[dim], offset + extent);
        const int own = in.index(at, value.stacked ? l : 0);
        const bool part = count > 1 && layout_.value(step.outputs[0]).sharding.dims[dim_index].empty();
        for (std::int64_t row = begin, last = 0; row < end; row = last) {
          const std::int64_t shard = (row - offset) / chunk;
          last = std::min(end, (shard + 1) * chunk + offset);
          const int from = in.index(at_shard(at, value.sharding.dims[dim_index], shard), value.stacked ? l : 0);
          if (part && from != own) continue;  // the result is a partial value: each place contributes its own rows
          if (next < row) zeros_.push_back(piece_of(next, row));
          Piece piece = piece_of(row, last);
          piece.from = in.first + from;
          piece.from_strides = in.strides[static_cast<std::size_t>(from)];
          piece.from_offset =
              (row - offset - in.boxes[static_cast<std::size_t>(from)].begin[dim]) * piece.from_strides[dim];
          if (from != own) send(static_cast<std::size_t>(from % in.grid.count()), volume(piece.extent) * element_);
          count_moved(step, static_cast<int>(to), step.inputs[i], from, piece);
          add_pieces(piece);
          next = last;
        }
      }
      if (next < box.end[dim]) zeros_.push_back(piece_of(next, box.end[dim]));
    }
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

  void add(const GraphView& graph, int node, const PlanStep& step, const Coordinates& at) {
    const ValueLayout& out = layout_[step.outputs[0]];
    const int layers = out.layers;
    for (int l = 0; l < layers; ++l) {
      const int to = out.index(at, l);
      const kernels::Strides& to_strides = out.strides[static_cast<std::size_t>(to)];
      for (std::size_t i = 0; i < step.inputs.size(); ++i) {
        const ValueLayout& in = layout_[step.inputs[i]];
        const int from = in.index(at, layout_.value(step.inputs[i]).stacked ? l : 0);
        Piece piece;
        piece.to = out.first + to;
        piece.from = in.first + from;
        piece.extent = extents(in.boxes[static_cast<std::size_t>(from)]);
        piece.from_strides = in.strides[static_cast<std::size_t>(from)];
        piece.to_strides = to_strides;
        if (row_of(graph[node]).factor_extents != nullptr) {
          const Factors f = Factors::of(graph[node]);
          const Shape factors = layout_.local_factors(graph, node, layout_.value(step.inputs[i]).sharding,
                                                      in.boxes[static_cast<std::size_t>(from)]);
          piece.from_strides = FrameLayout::factor_strides(f, factors, piece.from_strides);
          piece.extent = factors;
          piece.to_strides = kernels::Strides(factors.size(), 0);
          for (int d = 0; d < graph[node].rank; ++d) {
            std::int64_t stride = to_strides[static_cast<std::size_t>(d)];
            for (int p = f.count - 1; p >= 0; --p) {
              if (f.out_dim[p] != d) continue;
              piece.to_strides[static_cast<std::size_t>(f.order[p])] = stride;
              stride *= factors[static_cast<std::size_t>(f.order[p])];
            }
          }
        } else if (const ViewRule view = row_of(graph[node]).view) {
          piece.extent = extents(out.boxes[static_cast<std::size_t>(to)]);
          piece.from_strides = view(context_of(graph, node), piece.from_strides);
        }
        add_pieces(piece);
      }
    }
  }
  ShapeContext context_of(const GraphView& graph, int node) const {
    return {graph, node, layout_.plan().shapes.data(), layout_.plan().numbers.data(), nullptr};
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
