#ifndef TESSERA_RUNTIME_STEPS_FOLD_STEP_HPP
#define TESSERA_RUNTIME_STEPS_FOLD_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

#include <tessera/base/shape.hpp>
#include <tessera/kernels/fold.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/executor/prepared_step.hpp>
#include <tessera/runtime/executor/work_grid.hpp>
#include <tessera/runtime/threads/team.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// Adds windows back into the dim that they were taken from, as torch.nn.functional.fold. The dim is not sharded.
template <DTypeSet Types> class FoldStep final : public PreparedStep {
 public:
  explicit FoldStep(const StepContext& c) : dtype_(c.graph[c.units[c.step.unit].root].dtype) {
    const int node = c.units[c.step.unit].root;
    const FrameLayout& layout = c.layout;
    const PlanStep& step = c.step;
    const auto dim = static_cast<std::size_t>(dim_of(c.graph[node]));
    const auto number = [&](int i) {
      return layout.plan().numbers[static_cast<std::size_t>(c.graph.operand(node, i))].integer();
    };
    const ValueLayout &in = layout[step.inputs[0]], &out = layout[step.outputs[0]];
    const WorkGrid work(layout, step);
    for (int w = 0; w < work.count(); ++w) {
      const Coordinates at = work.coordinates(w);
      if (!work.stores(at, layout.value(step.outputs[0]).sharding) || !layout.holds(step.outputs[0], at)) continue;
      const auto to = static_cast<std::size_t>(out.index(at));
      for (int l = 0; l < in.layers; ++l) {
        const auto from = static_cast<std::size_t>(in.index(at, l));
        const Shape runs = extents(in.boxes[from]);
        kernels::Strides lines = in.strides[from];
        lines.erase(dim + 1);
        Piece piece;
        piece.shape = {extents(out.boxes[to]),
                       lines,
                       out.strides[to],
                       runs[dim],
                       runs[dim + 1],
                       out.boxes[to].end[dim] - out.boxes[to].begin[dim],
                       in.strides[from][dim],
                       in.strides[from][dim + 1],
                       out.strides[to][dim],
                       number(1),
                       number(2)};
        piece.shape.lines[dim] = 1;
        piece.from = in.first + static_cast<int>(from);
        piece.to = out.first + static_cast<int>(to);
        if (in.layers > 1) {  // the operand's layers are separate shards, the result's are one array
          piece.shape.lines[0] = 1;
          piece.to_offset = l * out.strides[to][0];
        }
        add_pieces(piece);
      }
    }
  }

  void run(Frame& frame) const override {
    dispatch<Types>(
        dtype_,
        [&]<class T>() {
          parallel_for(static_cast<std::int64_t>(pieces_.size()), Cost::bytes(piece_bytes_), [&](std::int64_t i) {
            const Piece& piece = pieces_[static_cast<std::size_t>(i)];
            kernels::fold_lines<T>(
                piece.shape,
                reinterpret_cast<const T*>(frame.pointers[static_cast<std::size_t>(piece.from)]) + piece.from_offset,
                reinterpret_cast<T*>(frame.pointers[static_cast<std::size_t>(piece.to)]) + piece.to_offset);
          });
        },
        [&] { fail(errc::dtype_mismatch, "[fold] dtype: ", name_of(dtype_), " is not supported"); });
  }

 private:
  struct Piece {
    kernels::FoldShape shape;
    std::int32_t from = 0, to = 0;
    std::int64_t from_offset = 0, to_offset = 0;  // in elements
  };
  DType dtype_;
  std::vector<Piece> pieces_;
  double piece_bytes_ = 1;

  void add_pieces(const Piece& piece) {
    const Shape& lines = piece.shape.lines;
    if (volume(lines) == 0) return;
    std::size_t dim = 0;
    for (std::size_t d = 1; d < lines.size(); ++d)
      if (lines[d] > lines[dim]) dim = d;
    const std::int64_t whole = lines[dim];
    const std::int64_t bytes = volume(lines) * (piece.shape.extent + 2 * piece.shape.runs * piece.shape.size) *
                               static_cast<std::int64_t>(size_of(dtype_));
    const std::int64_t step = std::max<std::int64_t>(1, whole * (1 << 18) / std::max<std::int64_t>(bytes, 1));
    for (std::int64_t begin = 0; begin < whole; begin += step) {
      Piece part = piece;
      part.shape.lines[dim] = std::min(step, whole - begin);
      part.from_offset += begin * piece.shape.from[dim];
      part.to_offset += begin * piece.shape.to[dim];
      piece_bytes_ = std::max(piece_bytes_, static_cast<double>(bytes) * static_cast<double>(part.shape.lines[dim]) /
                                                static_cast<double>(whole));
      pieces_.push_back(part);
    }
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
