#ifndef TESSERA_RUNTIME_STEPS_SORT_STEP_HPP
#define TESSERA_RUNTIME_STEPS_SORT_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <vector>

#include <tessera/base/shape.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/sort.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/threads/team.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// Finds the order along a dim, or takes or adds elements along it. The dim is whole on every device: each shard is
/// worked on alone, and what its threads share are its lines. `Sorted` are the element types that are put in order,
/// `Moved` those that are taken or added.
template <DTypeSet Sorted, DTypeSet Moved> class SortStep final : public PreparedStep {
 public:
  explicit SortStep(const StepContext& c)
      : layout_(c.layout), step_(c.step), node_(c.graph[c.units[c.step.unit].root]),
        dim_(static_cast<std::size_t>(dim_of(node_))) {
    // Of argsort: operand, result. Of the others: what is moved, indices, the array with the dim.
    if (node_.op == Op::argsort)
      values_ = {step_.inputs[0], step_.outputs[0]};
    else if (node_.op == Op::gather)
      values_ = {step_.outputs[0], step_.inputs[1], step_.inputs[0]};
    else
      values_ = {step_.inputs[0], step_.inputs[1], step_.outputs[0]};
    const WorkGrid work(layout_, step_);
    for (int w = 0; w < work.count(); ++w) {
      const Coordinates at = work.coordinates(w);
      if (work.stores(at, layout_.value(step_.outputs[0]).sharding) && layout_.holds(step_.outputs[0], at))
        add_place(at);
    }
  }

  void run(Frame& frame) const override {
    const auto on_index = [&](DType type, auto&& f) {
      dispatch<index_types>(type, f, [&] { fail(errc::dtype_mismatch, "[argsort] indices: ", name_of(type)); });
    };
    if (node_.op == Op::argsort)
      return dispatch<Sorted>(
          dtype(0), [&]<class T>() { on_index(dtype(1), [&]<class I>() { find<T, I>(frame); }); },
          [&] { fail(errc::dtype_mismatch, "[argsort] dtype: ", name_of(dtype(0)), " has no order"); });
    dispatch<Moved>(
        dtype(0), [&]<class T>() { on_index(dtype(1), [&]<class I>() { move<T, I>(frame); }); },
        [&] { fail(errc::dtype_mismatch, "[gather] dtype: ", name_of(dtype(0)), " can't be moved"); });
  }

 private:
  static constexpr DTypeSet index_types = static_cast<DTypeSet>(set_of(DType::i32) | set_of(DType::i64));
  /// Some lines of one shard: of each value, where they begin and their strides.
  struct Piece {
    Shape lines;
    std::int32_t pointers[3]{};
    std::int64_t offsets[3]{};
    kernels::Strides strides[3];
    std::int64_t extents[3]{};  // of the dim
  };
  const FrameLayout& layout_;
  const PlanStep& step_;
  const Node node_;
  std::size_t dim_;
  InlineVector<std::int32_t, 3> values_;
  std::vector<Piece> pieces_;
  double piece_cost_ = 0;

  DType dtype(std::size_t i) const { return layout_.value(values_[i]).dtype; }

  void add_place(const Coordinates& at) {
    int layers = 1;  // of operands that are stored one by one
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
        piece.extents[i] = extent[dim_];
        if (layers > 1 && !apart) piece.offsets[i] = l * own.strides[shard][0];
      }
      piece.lines[dim_] = 1;
      if (layers > 1) piece.lines[0] = 1;
      add_pieces(piece);
    }
  }

  void add_pieces(const Piece& piece) {
    if (volume(piece.lines) == 0 || (node_.op == Op::argsort && piece.extents[1] == 0)) return;
    std::size_t dim = 0;
    for (std::size_t d = 1; d < piece.lines.size(); ++d)
      if (piece.lines[d] > piece.lines[dim]) dim = d;
    const std::int64_t whole = piece.lines[dim], others = volume(piece.lines) / whole;
    const std::int64_t longest = std::max({piece.extents[0], piece.extents[1], piece.extents[2], std::int64_t{1}});
    // About 2 ns an element and a halving of the line to sort; 1 ns to move one.
    const double line = static_cast<double>(longest) *
                        (node_.op == Op::argsort ? 2.0 * std::bit_width(static_cast<std::uint64_t>(longest)) : 1.0);
    const auto step = static_cast<std::int64_t>(
        std::clamp(1e5 / (line * static_cast<double>(others)), 1.0, static_cast<double>(whole)));
    for (std::int64_t begin = 0; begin < whole; begin += step) {
      Piece part = piece;
      part.lines[dim] = std::min(step, whole - begin);
      for (std::size_t i = 0; i < values_.size(); ++i) part.offsets[i] += begin * piece.strides[i][dim];
      piece_cost_ = std::max(piece_cost_, line * static_cast<double>(others * part.lines[dim]));
      pieces_.push_back(part);
    }
  }

  template <class T> T* at(Frame& frame, const Piece& piece, std::size_t i) const {
    T* const shard = reinterpret_cast<T*>(frame.pointers[static_cast<std::size_t>(piece.pointers[i])]);
    return shard == nullptr ? shard : shard + piece.offsets[i];  // null: an empty one
  }
  template <class F> void for_each_piece(F&& f) const {
    parallel_for(static_cast<std::int64_t>(pieces_.size()), Cost{piece_cost_},
                 [&](std::int64_t i) { f(pieces_[static_cast<std::size_t>(i)]); });
  }

  template <class T, class I> void find(Frame& frame) const {
    for_each_piece([&](const Piece& piece) {
      const T* const from = at<T>(frame, piece, 0);
      I* const to = at<I>(frame, piece, 1);
      Shape index(piece.lines.size(), 0);
      std::int64_t from_at = 0, to_at = 0;
      for (std::int64_t left = volume(piece.lines); left > 0; --left) {
        kernels::argsort_line(from + from_at, piece.strides[0][dim_], to + to_at, piece.strides[1][dim_],
                              piece.extents[0], piece.extents[1], order_of(node_) == Order::descending);
        for (std::size_t d = index.size(); d-- > 0;) {
          from_at += piece.strides[0][d], to_at += piece.strides[1][d];
          if (++index[d] < piece.lines[d]) break;
          from_at -= piece.strides[0][d] * index[d], to_at -= piece.strides[1][d] * index[d];
          index[d] = 0;
        }
      }
    });
  }

  template <class T, class I> void move(Frame& frame) const {
    const bool adds = node_.op == Op::scatter_add;
    std::atomic<std::int64_t> outside{0};
    std::atomic<bool> found{false};
    for_each_piece([&](const Piece& piece) {
      kernels::AlongShape shape{piece.lines,      piece.strides[0], piece.strides[1],
                                piece.strides[2], piece.extents[2], piece.strides[2][dim_]};
      shape.index[dim_] = piece.extents[1];
      T *const moved = at<T>(frame, piece, 0), *const array = at<T>(frame, piece, 2);
      const I* const indices = at<I>(frame, piece, 1);
      if (adds) {
        Shape whole = piece.lines;
        whole[dim_] = piece.extents[2];
        kernels::strided_fill_zero(array, shape.array, whole, sizeof(T));
      }
      shape.array[dim_] = 0;
      const auto bad = adds ? kernels::move_along<true, T, I>(shape, moved, array, indices)
                            : kernels::move_along<false, T, I>(shape, moved, array, indices);
      if (bad) {
        outside.store(*bad, std::memory_order_relaxed);
        found.store(true, std::memory_order_release);
      }
    });
    if (found.load(std::memory_order_acquire))
      fail(errc::dim_range, "[", adds ? "scatter_add" : "gather", "] index in range: ", outside.load(),
           " of a dim with ", pieces_.front().extents[2], " elements", node_.source.line == 0 ? "" : " at ",
           node_.source.text());
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
