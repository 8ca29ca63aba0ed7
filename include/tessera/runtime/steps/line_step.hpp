#ifndef TESSERA_RUNTIME_STEPS_LINE_STEP_HPP
#define TESSERA_RUNTIME_STEPS_LINE_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/executor/prepared_step.hpp>
#include <tessera/runtime/executor/work_grid.hpp>
#include <tessera/runtime/threads/team.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// What a LineStep does, which decides how its work is divided.
enum class LineWork : std::uint8_t { sort, gather, scatter };

/// Base of steps that process each line along a dim by itself (sort, gather, scatter). The dim is not sharded, so
/// shards are independent; threads divide the lines, and of a gather the elements of each line.
class LineStep : public PreparedStep {
 protected:
  /// `values`: inputs and outputs of the step, in the order of Piece's arrays; the first determines the lines.
  LineStep(const StepContext& c, const InlineVector<std::int32_t, 4>& values, LineWork work_kind)
      : layout_(c.layout), node_(c.graph[c.units[c.step.unit].root]), dim_(static_cast<std::size_t>(dim_of(node_))),
        kind_(work_kind), values_(values) {
    const WorkGrid work(layout_, c.step);
    for (int w = 0; w < work.count(); ++w) {
      const Coordinates at = work.coordinates(w);
      if (work.stores(at, layout_.value(c.step.outputs[0]).sharding) && layout_.holds(c.step.outputs[0], at))
        add_place(at);
    }
  }

  static constexpr DTypeSet index_types = static_cast<DTypeSet>(set_of(DType::i32) | set_of(DType::i64));
  /// Some lines of one shard. The arrays are by value.
  struct Piece {
    Shape lines;
    std::int32_t pointers[4]{};
    std::int64_t offsets[4]{};
    kernels::Strides strides[4];
    std::int64_t extents[4]{};  // along the dim
  };
  const FrameLayout& layout_;
  const Node node_;
  std::size_t dim_;
  Growable<Piece> places_, pieces_;  // the lines of each shard, and these divided among threads

  DType dtype(std::size_t i) const { return layout_.value(values_[i]).dtype; }
  /// Calls `f` with the C++ type of the indices.
  template <class F> void on_index(F&& f) const {
    dispatch<index_types>(dtype(1), f, [&] {
      fail(errc::dtype_mismatch, "[", row_of(node_).name, "] index dtype: ", name_of(dtype(1)),
           " is neither i32 nor i64");
    });
  }
  template <class T> T* at(Frame& frame, const Piece& piece, std::size_t i) const {
    T* const shard = reinterpret_cast<T*>(frame.pointers[static_cast<std::size_t>(piece.pointers[i])]);
    return shard == nullptr ? shard : shard + piece.offsets[i];  // null if the shard is empty
  }
  template <class F> void for_each_piece(F&& f) const {
    parallel_for(static_cast<std::int64_t>(pieces_.size()), Cost{piece_cost_},
                 [&](std::int64_t i) { f(pieces_[static_cast<std::size_t>(i)]); });
  }

 private:
  LineWork kind_;
  InlineVector<std::int32_t, 4> values_;
  double piece_cost_ = 0;

  void add_place(const Coordinates& at) {
    int layers = 1;  // of values whose layers are separate shards
    for (const std::int32_t v : values_) layers = std::max(layers, layout_[v].layers);
    for (int l = 0; l < layers; ++l) {
      Piece piece;
      for (std::size_t i = 0; i < values_.size(); ++i) {
        const ValueLayout& own = layout_[values_[i]];
        const bool apart = own.layers > 1;
        const auto shard = static_cast<std::size_t>(own.index(at, apart ? l : 0));
        const Shape extent = extents(own.boxes[shard]);
        if (i == 0) piece.lines = extent;
        piece.pointers[i] = own.first + static_cast<int>(shard);
        piece.strides[i] = own.strides[shard];
        for (std::size_t d = 0; d < extent.size(); ++d)  // indices that several elements share
          if (d != dim_ && extent[d] == 1) piece.strides[i][d] = 0;
        piece.extents[i] = extent[dim_];
        if (layers > 1 && !apart) piece.offsets[i] = l * own.strides[shard][0];
      }
      piece.lines[dim_] = 1;
      if (layers > 1) piece.lines[0] = 1;
      add_pieces(piece);
    }
  }

  void add_pieces(const Piece& piece) {
    const bool sorts = kind_ == LineWork::sort;
    if (volume(piece.lines) == 0 || (sorts && piece.extents[1] == 0)) return;
    places_.push_back(piece);
    if (kind_ == LineWork::gather) return cut_line(piece);
    const std::size_t dim = cut_dim(piece);
    const std::int64_t whole = piece.lines[dim], others = volume(piece.lines) / whole;
    const std::int64_t longest = std::max(piece.extents[0], std::int64_t{1});
    // Sorting takes about 2 ns * n * log2(n) for a line of n elements, gather and scatter about 1 ns per element.
    const double line =
        static_cast<double>(longest) * (sorts ? 2.0 * std::bit_width(static_cast<std::uint64_t>(longest)) : 1.0);
    // Neighbours in memory stay together, whole cache lines of them.
    const std::int64_t least = !sorts && piece.strides[0][dim] == 1 ? 64 : 1;
    const auto step = std::max(static_cast<std::int64_t>(std::clamp(1e5 / (line * static_cast<double>(others)), 1.0,
                                                                    static_cast<double>(whole))),
                               least);
    for (std::int64_t begin = 0; begin < whole; begin += step) {
      Piece part = piece;
      part.lines[dim] = std::min(step, whole - begin);
      for (std::size_t i = 0; i < values_.size(); ++i) part.offsets[i] += begin * piece.strides[i][dim];
      piece_cost_ = std::max(piece_cost_, line * static_cast<double>(others * part.lines[dim]));
      pieces_.push_back(part);
    }
  }
  /// The dim of the lines that is cut: the longest, but of a scatter the first of enough lines, so that the elements of
  /// a piece are neighbours in memory.
  std::size_t cut_dim(const Piece& piece) const {
    constexpr std::int64_t enough = 8;
    std::size_t dim = 0;
    for (std::size_t d = 1; d < piece.lines.size(); ++d)
      if (piece.lines[d] > piece.lines[dim]) dim = d;
    for (std::size_t d = 0; d < piece.lines.size() && kind_ == LineWork::scatter; ++d)
      if (piece.lines[d] >= enough) return d;
    return dim;
  }
  /// Cuts a gather along its dim.
  void cut_line(const Piece& piece) {
    const std::int64_t whole = piece.extents[1], others = volume(piece.lines);
    const auto step =
        static_cast<std::int64_t>(std::clamp(1e5 / static_cast<double>(others), 1.0, static_cast<double>(whole) + 1));
    for (std::int64_t begin = 0; begin < whole; begin += step) {
      Piece part = piece;
      part.extents[0] = part.extents[1] = std::min(step, whole - begin);
      part.offsets[0] += begin * piece.strides[0][dim_];
      part.offsets[1] += begin * piece.strides[1][dim_];
      piece_cost_ = std::max(piece_cost_, static_cast<double>(others * part.extents[1]));
      pieces_.push_back(part);
    }
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
