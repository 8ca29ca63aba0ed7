#ifndef TESSERA_RUNTIME_STEPS_DATA_MOVEMENT_STEP_HPP
#define TESSERA_RUNTIME_STEPS_DATA_MOVEMENT_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>

#include <tessera/base/dtype.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/strided.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/executor/prepared_step.hpp>
#include <tessera/runtime/executor/work_grid.hpp>
#include <tessera/runtime/memory/past_caches.hpp>
#include <tessera/runtime/threads/parallel_copy.hpp>
#include <tessera/runtime/threads/team.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// Rearranges and other data movement that no view can express: copies within each device. A host scalar, such as the
/// cotangent 1 of a loss, is no stored input: the step writes it where a rearrange makes it a tensor of one element.
template <class = void> class DataMovementStep final : public PreparedStep {
 public:
  explicit DataMovementStep(const StepContext& c)
      : layout_(c.layout), element_(c.layout[c.step.outputs[0]].element),
        dtype_(c.graph[c.units[c.step.unit].root].dtype) {
    const int node = c.units[c.step.unit].root;
    const PlanStep& step = c.step;
    const WorkGrid work(layout_, step);
    if (step.inputs.empty()) number_ = c.graph.operand(node, 0);
    for (int w = 0; w < work.count(); ++w) {
      const Coordinates at = work.coordinates(w);
      if (!work.stores(at, layout_.value(step.outputs[0]).sharding) || !layout_.holds(step.outputs[0], at)) continue;
      add(c.graph, node, step, at);
    }
    past_caches_ = written_ >= past_caches_from();
  }

  std::int64_t table_bytes() const override { return static_cast<std::int64_t>(pieces_.size() * sizeof(Piece)); }

  void run(Frame& frame) const override {
    if (number_ >= 0)
      for (const Piece& piece : pieces_)
        write_number(dtype_, frame.pointers[static_cast<std::size_t>(piece.to)],
                     frame.numbers[static_cast<std::size_t>(number_)]);
    else
      copy(frame);
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
  Growable<Piece> pieces_;
  double piece_bytes_ = 1;
  std::int32_t number_ = -1;  // the node of a host scalar that is written; -1: stored values are copied
  DType dtype_;
  std::int64_t written_ = 0;  // bytes
  bool past_caches_ = false;

  void copy(Frame& frame) const {
    parallel_for(static_cast<std::int64_t>(pieces_.size()), Cost::bytes(piece_bytes_), [&](std::int64_t i) {
      const Piece& piece = pieces_[static_cast<std::size_t>(i)];
      kernels::strided_copy(dtype_, frame.pointers[static_cast<std::size_t>(piece.to)] + piece.to_offset * element_,
                            piece.to_strides,
                            frame.pointers[static_cast<std::size_t>(piece.from)] + piece.from_offset * element_,
                            piece.from_strides, piece.extent, past_caches_);
    });
  }

  /// Adds a copy, divided into tasks.
  void add_pieces(const Piece& whole) {
    for (const CopyPart& part : parts_of_copy(whole.extent, whole.to_strides, whole.from_strides, element_)) {
      Piece piece = whole;
      piece.extent = part.extent;
      piece.to_offset += part.to;
      piece.from_offset += part.from;
      const std::int64_t bytes = volume(piece.extent) * element_;
      written_ += bytes;
      piece_bytes_ = std::max(piece_bytes_, 2.0 * static_cast<double>(bytes));
      pieces_.push_back(piece);
    }
  }

  void add(const GraphView& graph, int node, const PlanStep& step, const Coordinates& at) {
    const ValueLayout& out = layout_[step.outputs[0]];
    const int layers = out.layers;
    for (int l = 0; l < layers; ++l) {
      const int to = out.index(at, l);
      if (number_ >= 0) pieces_.emplace_back().to = out.first + to;
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
        } else if (row_of(graph[node]).reverses) {  // the operand's dim is whole
          const Box& made = out.boxes[static_cast<std::size_t>(to)];
          const auto dim = static_cast<std::size_t>(dim_of(graph[node]));
          piece.from_offset = (piece.extent[dim] - 1 - made.begin[dim]) * piece.from_strides[dim];
          piece.from_strides[dim] = -piece.from_strides[dim];
          piece.extent = extents(made);
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
