#ifndef TESSERA_RUNTIME_STEPS_WINDOWS_FOLD_WINDOWS_STEP_HPP
#define TESSERA_RUNTIME_STEPS_WINDOWS_FOLD_WINDOWS_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/sort_distinct.hpp>
#include <tessera/kernels/fold.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/executor/prepared_step.hpp>
#include <tessera/runtime/executor/work_grid.hpp>
#include <tessera/runtime/steps/step_move.hpp>
#include <tessera/runtime/steps/windows/window_step.hpp>
#include <tessera/runtime/threads/team.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// Adds windows of several dims back into the dims. Where the dims are split, each device first adds its own windows,
/// in scratch memory; then each row is the sum of what the devices have of it, in their order, so that rows near
/// borders are sent as in the halo of the windows. Windows of single rows need no sum: they are copied between zeros.
template <DTypeSet Types> class FoldWindowsStep final : public PreparedStep {
 public:
  explicit FoldWindowsStep(const StepContext& c)
      : layout_(c.layout), step_(c.step), dtype_(c.graph[c.units[c.step.unit].root].dtype),
        move_(dtype_, Reduction::sum, &kernels::strided_reduce<sums>) {
    const int node = c.units[c.step.unit].root;
    const ShapeContext context{c.graph, node, layout_.plan().shapes.data(), layout_.plan().numbers.data(), nullptr};
    windows_ = row_of(c.graph[node]).windows(context);
    const PlanValue& result = layout_.value(step_.outputs[0]);
    for (const WindowedDim& dim : windows_) split_ = split_ || !result.sharding.dims[dim.line].empty();
    single_ = ops::of_single_rows(windows_);
    const WorkGrid work(layout_, step_);
    places_.resize(static_cast<std::size_t>(work.count()));
    for (int w = 0; w < work.count(); ++w) {
      const Coordinates at = work.coordinates(w);
      const bool stores = work.stores(at, result.sharding);
      if ((stores || work.is_first(at, result.sharding)) && layout_.holds(step_.outputs[0], at))
        add_place(w, at, stores);
    }
    for (int w = 0; w < work.count() && split_; ++w) {
      const Coordinates at = work.coordinates(w);
      if (work.is_first(at, result.sharding) && layout_.holds(step_.outputs[0], at))
        single_ ? place_rows(at) : combine(work, at);
    }
  }

  std::int64_t scratch_bytes() const override { return scratch_; }
  std::int64_t table_bytes() const override { return move_.table_bytes(); }
  std::int64_t moved_bytes() const override { return move_.plan().moved_bytes(); }

  void run(Frame& frame) const override {
    dispatch<Types>(
        dtype_,
        [&]<class T>() {
          parallel_for(static_cast<std::int64_t>(pieces_.size()), Cost::bytes(piece_bytes_), [&](std::int64_t i) {
            const Piece& piece = pieces_[static_cast<std::size_t>(i)];
            char* const to = piece.to < 0 ? frame.scratch : frame.pointers[static_cast<std::size_t>(piece.to)];
            kernels::fold_windows<T>(
                piece.shape,
                reinterpret_cast<const T*>(frame.pointers[static_cast<std::size_t>(piece.from)]) + piece.from_offset,
                reinterpret_cast<T*>(to + piece.to_bytes) + piece.to_offset);
          });
        },
        [&] { fail(errc::dtype_mismatch, "[fold] dtype: ", name_of(dtype_), " is not supported"); });
    if (!split_) return;
    sent_.report(step_, layout_.mesh());
    move_.run(frame);
  }

 private:
  static constexpr ReducedTypes sums = [] {
    ReducedTypes own;
    own.add(Reduction::sum, Types);
    return own;
  }();
  struct Piece {
    kernels::FoldWindowsShape shape;
    std::int32_t from = 0, to = -1;               // -1: scratch memory
    std::int64_t from_offset = 0, to_offset = 0;  // in elements
    std::int64_t to_bytes = 0;
  };
  /// What one device adds up: the rows of `box` that its windows cover, at an offset in scratch memory.
  struct Place {
    Box box;
    std::int64_t at = 0;
  };
  const FrameLayout& layout_;
  const PlanStep& step_;
  DType dtype_;
  StepMove move_;
  WindowedDims windows_;
  bool split_ = false, single_ = false;
  Growable<Piece> pieces_;
  Growable<Place> places_;
  std::int64_t scratch_ = 0;
  double piece_bytes_ = 1;
  SentBytes sent_;

  /// `here`: whether this process computes the place. For a place of another process only the box is known.
  void add_place(int w, const Coordinates& at, bool here) {
    const ValueLayout &in = layout_[step_.inputs[0]], &out = layout_[step_.outputs[0]];
    const auto from = static_cast<std::size_t>(in.index(at)), to = static_cast<std::size_t>(out.index(at));
    Place& place = places_[static_cast<std::size_t>(w)];
    place.box = out.boxes[to];
    const bool adds_up = split_ && !single_;  // in scratch memory; otherwise in the result
    if (adds_up) {
      place.box = covered_box(windows_, in.boxes[from]);
      for (const WindowedDim& dim : windows_) {
        const auto d = static_cast<std::size_t>(dim.line);
        place.box.begin[d] = std::clamp<std::int64_t>(place.box.begin[d], 0, dim.extent);
        place.box.end[d] = std::clamp(place.box.end[d], place.box.begin[d], dim.extent);
      }
      place.at = scratch_;
      if (here)
        scratch_ += (volume(extents(place.box)) * in.element + block_alignment - 1) / block_alignment * block_alignment;
    }
    if (!here) return;
    Piece piece;
    piece.shape.rows = extents(place.box);
    piece.shape.to = adds_up ? kernels::contiguous_strides(piece.shape.rows) : out.strides[to];
    piece.shape.from = in.strides[from];
    for (std::size_t k = windows_.size(); k-- > 0;) {
      const WindowedDim& dim = windows_[k];
      const auto d = static_cast<std::size_t>(dim.line), r = static_cast<std::size_t>(dim.runs);
      piece.shape.windows[k] = {d,
                                split_ && single_ ? 0 : in.boxes[from].end[r] - in.boxes[from].begin[r],
                                dim.size,
                                dim.stride,
                                dim.dilation,
                                in.boxes[from].begin[r] * dim.stride - dim.before - place.box.begin[d],
                                in.strides[from][r],
                                in.strides[from][r + 1]};
      piece.shape.from.erase(r + 1);
    }
    piece.shape.count = static_cast<int>(windows_.size());
    piece.from = in.first + static_cast<int>(from);
    piece.to = adds_up ? -1 : out.first + static_cast<int>(to);
    piece.to_bytes = place.at;
    add_pieces(piece);
  }

  /// Divides the rows of a fold into tasks, along its outermost dims first: a task writes memory that other tasks do
  /// not, mostly contiguous, and little enough of it to stay in a cache while all elements of windows are added.
  void add_pieces(const Piece& piece) {
    const double bytes = bytes_of(piece);
    if (bytes > 0) split(piece, std::max(0x1p18, bytes / 2048));
  }
  double bytes_of(const Piece& piece) const {
    double bytes = static_cast<double>(volume(piece.shape.rows)) * static_cast<double>(size_of(dtype_));
    for (int k = 0; k < piece.shape.count; ++k) bytes *= static_cast<double>(1 + piece.shape.windows[k].size);
    return bytes;
  }
  void split(const Piece& piece, double most_bytes) {
    const Shape& rows = piece.shape.rows;
    std::size_t outermost = rows.size();
    // The innermost dim is what a loop adds up.
    for (std::size_t d = 0; d + 1 < rows.size(); ++d)
      if (rows[d] > 1 && (outermost == rows.size() || piece.shape.to[d] > piece.shape.to[outermost])) outermost = d;
    const double bytes = bytes_of(piece);
    if (bytes <= most_bytes || outermost == rows.size()) {
      piece_bytes_ = std::max(piece_bytes_, bytes);
      pieces_.push_back(piece);
      return;
    }
    const std::int64_t whole = rows[outermost];
    const auto step =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(whole) * most_bytes / bytes));
    for (std::int64_t begin = 0; begin < whole; begin += step) {
      Piece part = piece;
      part.shape.rows[outermost] = std::min(step, whole - begin);
      part.to_offset += begin * piece.shape.to[outermost];
      bool windowed = false;
      for (int k = 0; k < part.shape.count; ++k)
        if (part.shape.windows[k].dim == outermost) {
          part.shape.windows[k].first -= begin;
          windowed = true;
        }
      if (!windowed) part.from_offset += begin * piece.shape.from[outermost];
      split(part, most_bytes);
    }
  }

  /// Along one dim: rows of a shard of the result to which the same devices add.
  struct Run {
    std::int64_t begin, end;
    Growable<std::int64_t> shards;
  };
  Growable<Run> runs(const WindowedDim& dim, std::int64_t count, std::int64_t begin, std::int64_t end) const {
    Growable<IndexRange> read;
    Growable<std::int64_t> ends{begin, end};
    for (std::int64_t s = 0; s < count; ++s) {
      const IndexRange own = chunk_of(dim.count, count, s);
      IndexRange rows{own.begin * dim.stride - dim.before, (own.end - 1) * dim.stride + dim.span() - dim.before};
      if (own.size() == 0) rows = {};
      read.push_back(rows.within({begin, end}));
      if (read.back().size() == 0) continue;
      ends.push_back(read.back().begin);
      ends.push_back(read.back().end);
    }
    sort_distinct(ends);
    Growable<Run> found;
    for (std::size_t i = 0; i + 1 < ends.size(); ++i) {
      Run run{ends[i], ends[i + 1], {}};
      for (std::int64_t s = 0; s < count; ++s)
        if (read[static_cast<std::size_t>(s)].within({run.begin, run.end}).size() > 0) run.shards.push_back(s);
      found.push_back(std::move(run));
    }
    return found;
  }

  void combine(const WorkGrid& work, const Coordinates& at) {
    const ValueLayout &in = layout_[step_.inputs[0]], &out = layout_[step_.outputs[0]];
    const Sharding& sharding = layout_.value(step_.outputs[0]).sharding;
    const auto to = static_cast<std::size_t>(out.index(at));
    const Box& box = out.boxes[to];
    if (box.empty()) return;
    Growable<Growable<Run>> along;
    Shape counts;
    for (const WindowedDim& dim : windows_) {
      const auto d = static_cast<std::size_t>(dim.line);
      along.push_back(runs(dim, shard_count(sharding, layout_.mesh(), dim.line), box.begin[d], box.end[d]));
      counts.push_back(static_cast<std::int64_t>(along.back().size()));
    }
    for (std::int64_t i = 0; i < volume(counts); ++i) {
      Box cell = box;
      std::int64_t rest = i, added = 1;
      Growable<const Run*> own;
      for (std::size_t k = 0; k < windows_.size(); rest /= counts[k++]) {
        own.push_back(&along[k][static_cast<std::size_t>(rest % counts[k])]);
        cell.begin[static_cast<std::size_t>(windows_[k].line)] = own.back()->begin;
        cell.end[static_cast<std::size_t>(windows_[k].line)] = own.back()->end;
        added *= static_cast<std::int64_t>(own.back()->shards.size());
      }
      const std::int64_t first = offset(box, cell, out.strides[to]);
      const int destination =
          move_.add_destination(cell, out.strides[to], layout_.holders(step_.outputs[0], static_cast<int>(to)),
                                {out.first + static_cast<int>(to), first * out.element});
      if (added == 0) {
        move_.plan().fill_identity(destination);
        continue;
      }
      Growable<int> sources;
      for (std::int64_t s = 0; s < added; ++s) {
        Coordinates from = at;
        std::int64_t left = s;
        for (std::size_t k = 0; k < windows_.size(); left /= static_cast<std::int64_t>(own[k++]->shards.size()))
          from = place_of_shard(from, sharding.dims[windows_[k].line], layout_.mesh(),
                                own[k]->shards[static_cast<std::size_t>(left) % own[k]->shards.size()]);
        const Place& place = places_[static_cast<std::size_t>(work.stored_at(from, sharding))];
        const kernels::Strides strides = kernels::contiguous_strides(extents(place.box));
        sources.push_back(
            move_.add_source(cell, strides, layout_.holders(step_.inputs[0], in.index(from)),
                             {StepMove::scratch, place.at + offset(place.box, cell, strides) * out.element}));
        if (from != at) sent_.send(static_cast<std::size_t>(in.index(from)), volume(extents(cell)) * out.element);
      }
      move_.plan().fill({&destination, 1}, sources, static_cast<int>(added));
    }
  }
  /// Copies each window of one row to its row of a shard of the result, which is zeros before.
  void place_rows(const Coordinates& at) {
    const ValueLayout &in = layout_[step_.inputs[0]], &out = layout_[step_.outputs[0]];
    const Sharding& sharding = layout_.value(step_.outputs[0]).sharding;
    const auto to = static_cast<std::size_t>(out.index(at));
    const Box& box = out.boxes[to];
    if (box.empty()) return;
    Box runs = box;
    kernels::Strides steps = out.strides[to];
    Shape first, count;  // the shards that have these windows, in each windowed dim
    for (const WindowedDim& dim : windows_) {
      const auto d = static_cast<std::size_t>(dim.line);
      const IndexRange own = windows_at(dim, {box.begin[d], box.end[d]}).within({0, dim.count});
      if (own.size() == 0) return;
      runs.begin[d] = own.begin;
      runs.end[d] = own.end;
      steps[d] *= dim.stride;
      const std::int64_t chunk = rows_of_chunk(dim.count, shard_count(sharding, layout_.mesh(), dim.line));
      first.push_back(own.begin / chunk);
      count.push_back((own.end - 1) / chunk - first.back() + 1);
    }
    for (std::int64_t i = 0; i < volume(count); ++i) {
      Coordinates from = at;
      std::int64_t rest = i;
      for (std::size_t k = 0; k < windows_.size(); rest /= count[k++])
        from = place_of_shard(from, sharding.dims[windows_[k].line], layout_.mesh(), first[k] + rest % count[k]);
      const int shard = in.index(from);
      const Box held = single_box(windows_, in.boxes[static_cast<std::size_t>(shard)]);
      kernels::Strides strides = in.strides[static_cast<std::size_t>(shard)];
      for (std::size_t k = windows_.size(); k-- > 0;) strides.erase(static_cast<std::size_t>(windows_[k].runs + 1));
      const Box part = intersect(runs, held);
      if (part.empty()) continue;
      Box rows = part;
      for (const WindowedDim& dim : windows_) {
        const auto d = static_cast<std::size_t>(dim.line);
        rows.begin[d] = part.begin[d] * dim.stride - dim.before;
      }
      const int destination =
          move_.add_destination(part, steps, layout_.holders(step_.outputs[0], static_cast<int>(to)),
                                {out.first + static_cast<int>(to), offset(box, rows, out.strides[to]) * out.element});
      const int source = move_.add_source(part, strides, layout_.holders(step_.inputs[0], shard),
                                          {in.first + shard, offset(held, part, strides) * in.element});
      move_.plan().fill({&destination, 1}, {&source, 1});
      if (from != at) sent_.send(static_cast<std::size_t>(shard), volume(extents(part)) * out.element);
    }
  }
  static std::int64_t offset(const Box& of, const Box& part, const kernels::Strides& strides) {
    std::int64_t first = 0;
    for (std::size_t d = 0; d < strides.size(); ++d) first += (part.begin[d] - of.begin[d]) * strides[d];
    return first;
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
