#ifndef TESSERA_RUNTIME_STEPS_CUMULATIVE_STEP_HPP
#define TESSERA_RUNTIME_STEPS_CUMULATIVE_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/cumulative.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/executor/prepared_step.hpp>
#include <tessera/runtime/executor/work_grid.hpp>
#include <tessera/runtime/steps/step_move.hpp>
#include <tessera/runtime/threads/team.hpp>
#include <tessera/runtime/transport/communication.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// cumsum, cumprod and alike along a dim. If the dim is sharded, a first pass reduces each chunk to its total, and the
/// totals of all chunks are gathered; in the second pass each chunk starts from the combined totals of those before it.
template <ReducedTypes Types> class CumulativeStep final : public PreparedStep {
 public:
  explicit CumulativeStep(const StepContext& c)
      : layout_(c.layout), step_(c.step), gather_(c.graph[c.units[c.step.unit].root].dtype) {
    const Node& node = c.graph[c.units[c.step.unit].root];
    const PlanValue& result = layout_.value(step_.outputs[0]);
    options_ = CumulativeOptions::of(node);
    dim_ = static_cast<std::size_t>(dim_of(node));
    dtype_ = node.dtype;
    reduction_ = row_of(node).reduction;
    chunks_ = shard_count(result.sharding, layout_.mesh(), dim_of(node));
    const WorkGrid work(layout_, step_);
    Growable<std::int64_t> group_of(static_cast<std::size_t>(work.count()), -1);
    for (int w = 0; w < work.count(); ++w) {
      const Coordinates at = work.coordinates(w);
      const bool stores = work.stores(at, result.sharding);
      if ((!stores && !work.is_first(at, result.sharding)) || !layout_.holds(step_.outputs[0], at)) continue;
      Coordinates first = at;
      for (std::size_t axis = 0; axis < first.size(); ++axis)
        if (!result.sharding.uses(static_cast<int>(axis))) first[axis] = 0;
      std::int64_t chunk = 0;
      for (std::uint8_t axis : result.sharding.dims[dim_]) {
        chunk = chunk * layout_.mesh().axis_size(axis) + at[axis];
        first[axis] = 0;
      }
      std::int64_t& group = group_of[static_cast<std::size_t>(work.index_of(first))];
      if (group < 0) group = add_group(at);
      if (!stores) continue;
      groups_[static_cast<std::size_t>(group)].is_here = true;
      add_place(at, groups_[static_cast<std::size_t>(group)].totals, chunk);
    }
    if (chunks_ > 1) gather_totals(result.sharding);
  }

  std::int64_t scratch_bytes() const override { return chunks_ > 1 ? 2 * total_bytes() : 0; }

  std::int64_t moved_bytes() const override { return gather_.plan().moved_bytes(); }

  void run(Frame& frame) const override {
    with_monoid(reduction_, [&]<class M>() {
      dispatch<Types[M::kind]>(
          dtype_, [&]<class T>() { run_as<M, T>(frame); },
          [&] {
            fail(errc::dtype_mismatch, "[cumulative] dtype: the reduction ", M::name, " is not defined for ",
                 name_of(dtype_));
          });
    });
  }

 private:
  /// Some lines of one shard. Offsets are of the first element to accumulate: with `reverse`, the last of the line.
  struct Piece {
    kernels::CumulativeShape shape;
    std::int32_t from = 0, to = 0;
    std::int64_t from_offset = 0, to_offset = 0, totals = 0;  // in elements
  };
  /// The chunks of the same lines. `totals` is the offset in scratch of an array [chunks, lines], of which each device
  /// computes the row of its chunk; the gathered totals are at the same offset in a second area, which follows the
  /// totals of all groups.
  struct Group {
    std::int64_t totals, lines;
    Coordinates at;        // of one of its devices
    bool is_here = false;  // this process has one of its chunks
  };
  const FrameLayout& layout_;
  const PlanStep& step_;
  StepMove gather_;
  CumulativeOptions options_;
  std::size_t dim_ = 0;
  DType dtype_{};
  Reduction reduction_{};
  std::int64_t chunks_ = 1, total_count_ = 0;
  Growable<Piece> pieces_;
  Growable<Group> groups_;
  double piece_bytes_ = 1;

  Shape lines_of(const Box& box) const {
    Shape lines = extents(box);
    lines[dim_] = 1;
    return lines;
  }

  std::int64_t add_group(const Coordinates& at) {
    const ValueLayout& out = layout_[step_.outputs[0]];
    const std::int64_t lines = volume(lines_of(out.boxes[static_cast<std::size_t>(out.index(at))]));
    groups_.push_back({total_count_, lines, at, false});
    total_count_ += chunks_ * lines;
    return static_cast<std::int64_t>(groups_.size()) - 1;
  }

  std::int64_t total_bytes() const { return total_count_ * static_cast<std::int64_t>(size_of(dtype_)); }

  /// All devices of a group get the totals of all its chunks.
  void gather_totals(const Sharding& result) {
    const Mesh& mesh = layout_.mesh();
    unsigned along = 0;
    for (const std::uint8_t axis : result.dims[dim_]) along |= 1u << axis;
    const kernels::Strides stride{1};
    for (const Group& group : groups_) {
      const Holders all(mesh, result.used_axes() & ~along, group.at);
      const std::int64_t begin = group.totals * static_cast<std::int64_t>(size_of(dtype_));
      const int destination = gather_.add_destination({{0}, {chunks_ * group.lines}}, stride, all,
                                                      {StepMove::scratch, total_bytes() + begin});
      Growable<int> sources;
      for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
        Coordinates at = group.at;
        std::int64_t left = chunk;
        for (std::size_t a = result.dims[dim_].size(); a-- > 0; left /= mesh.axis_size(result.dims[dim_][a]))
          at[result.dims[dim_][a]] = static_cast<int>(left % mesh.axis_size(result.dims[dim_][a]));
        const std::int64_t first = chunk * group.lines;
        sources.push_back(
            gather_.add_source({{first}, {first + group.lines}}, stride, Holders(mesh, result.used_axes(), at),
                               {StepMove::scratch, begin + first * static_cast<std::int64_t>(size_of(dtype_))}));
      }
      gather_.plan().fill({&destination, 1}, sources);
    }
  }

  void add_place(const Coordinates& at, std::int64_t totals, std::int64_t chunk) {
    const ValueLayout &in = layout_[step_.inputs[0]], &out = layout_[step_.outputs[0]];
    const auto to = static_cast<std::size_t>(out.index(at));
    const Shape whole = lines_of(out.boxes[to]);
    const kernels::Strides sums = kernels::contiguous_strides(whole);
    for (int l = 0; l < in.layers; ++l) {
      const auto from = static_cast<std::size_t>(in.index(at, l));
      const std::int64_t count = extents(out.boxes[to])[dim_];
      Piece piece;
      piece.shape = {whole, in.strides[from],       out.strides[to],      sums,
                     count, in.strides[from][dim_], out.strides[to][dim_]};
      piece.from = in.first + static_cast<int>(from);
      piece.to = out.first + static_cast<int>(to);
      piece.totals = totals + chunk * volume(whole);
      if (in.layers > 1) {  // the operand's layers are separate shards, the result's are one array
        piece.shape.lines[0] = 1;
        piece.to_offset = l * out.strides[to][0];
        piece.totals += l * sums[0];
      }
      if (options_.reverse && count > 0) {
        piece.from_offset += (count - 1) * piece.shape.from_step;
        piece.to_offset += (count - 1) * piece.shape.to_step;
        piece.shape.from_step = -piece.shape.from_step;
        piece.shape.to_step = -piece.shape.to_step;
      }
      add_pieces(piece);
    }
  }

  /// Divides the lines along their longest dim into tasks.
  void add_pieces(const Piece& piece) {
    const Shape& lines = piece.shape.lines;
    if (volume(lines) == 0) return;
    std::size_t dim = 0;
    for (std::size_t d = 1; d < lines.size(); ++d)
      if (lines[d] > lines[dim]) dim = d;
    const std::int64_t whole = lines[dim];
    const std::int64_t bytes =
        std::max<std::int64_t>(1, volume(lines) * piece.shape.count * static_cast<std::int64_t>(size_of(dtype_)));
    // At least the 32 lines that the kernel accumulates side by side.
    const std::int64_t step = std::max<std::int64_t>(32, whole * (1 << 17) / bytes);
    for (std::int64_t begin = 0; begin < whole; begin += step) {
      Piece part = piece;
      part.shape.lines[dim] = std::min(step, whole - begin);
      part.from_offset += begin * piece.shape.from[dim];
      part.to_offset += begin * piece.shape.to[dim];
      part.totals += begin * piece.shape.sums[dim];
      piece_bytes_ =
          std::max(piece_bytes_, 2.0 * static_cast<double>(bytes) * static_cast<double>(std::min(step, whole)) /
                                     static_cast<double>(whole));
      pieces_.push_back(part);
    }
  }

  template <class M, class T> void run_as(Frame& frame) const {
    const auto count = static_cast<std::int64_t>(pieces_.size());
    T* const own = reinterpret_cast<T*>(frame.scratch);
    T* const totals = chunks_ > 1 ? own + total_count_ : nullptr;
    const auto operand = [&](const Piece& piece) {
      return reinterpret_cast<const T*>(frame.pointers[static_cast<std::size_t>(piece.from)]) + piece.from_offset;
    };
    if (chunks_ > 1) {  // also if all shards are empty, since the plan counts the collective
      if (CommunicationScope* scope = CommunicationScope::innermost())
        for (const CollectiveInfo& sent : step_.collectives) scope->add(layout_.mesh(), sent);
      parallel_for(count, Cost::bytes(piece_bytes_ / 2), [&](std::int64_t i) {
        const Piece& piece = pieces_[static_cast<std::size_t>(i)];
        kernels::combine_lines<M, T>(piece.shape, operand(piece), own + piece.totals);
      });
      gather_.run(frame);
      for (const Group& group : groups_) {
        if (!group.is_here) continue;
        const std::int64_t step = options_.reverse ? -group.lines : group.lines;
        T* const first = totals + group.totals + (options_.reverse ? (chunks_ - 1) * group.lines : 0);
        kernels::cumulative_lines<M, T>({{group.lines}, {1}, {1}, {1}, chunks_, step, step}, first, first, nullptr,
                                        true);
      }
    }
    parallel_for(count, Cost::bytes(piece_bytes_), [&](std::int64_t i) {
      const Piece& piece = pieces_[static_cast<std::size_t>(i)];
      T* const to = reinterpret_cast<T*>(frame.pointers[static_cast<std::size_t>(piece.to)]) + piece.to_offset;
      kernels::cumulative_lines<M, T>(piece.shape, operand(piece), to,
                                      totals == nullptr ? nullptr : totals + piece.totals, options_.exclusive);
    });
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
