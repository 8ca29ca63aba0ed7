#ifndef TESSERA_RUNTIME_STEPS_FUSED_FUSED_STEP_HPP
#define TESSERA_RUNTIME_STEPS_FUSED_FUSED_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/sort_distinct.hpp>
#include <tessera/graph/fuse/fused.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/scratch.hpp>
#include <tessera/kernels/strided.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/executor/prepared_step.hpp>
#include <tessera/runtime/steps/fused/fused_places.hpp>
#include <tessera/runtime/steps/step_move.hpp>
#include <tessera/runtime/threads/team.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/runtime/transport/holders.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// Runs a fused kernel over all shards of its iteration space, in tiles of rows.
///
/// For a result reduced over rows, each tile has a private accumulator, and these are combined in the order of the
/// tiles: the result does not depend on the number of threads. Reductions along a sharded row are combined between
/// passes.
class FusedStep final : public PreparedStep, public Epilogue {
 public:
  TESSERA_PLANNING FusedStep(const StepContext& c, const Fused& fused, FusedKernel kernel,
                             kernels::ReduceFunction reduce)
      : fused_(fused), kernel_(kernel), reduce_(reduce), rank_(c.units[c.step.unit].rank), where_(c, fused),
        mesh_(c.layout.mesh()), step_(c.step) {
    const Unit& unit = c.units[c.step.unit];
    for (int k = 0; k < unit.uniform_count; ++k) {
      const std::int32_t node = c.units.members[unit.first_uniform + k];
      uniforms_.push_back({node, c.graph[node].dtype == DType::i64});
    }
    add_segments();
    if (where_.split_phases) group_rows();
  }

  std::int64_t scratch_bytes() const override { return completed_begin() + completed_bytes_; }
  std::int64_t moved_bytes() const override {
    std::int64_t moved = where_.halos.moved_bytes();
    for (const RowReduction& reduction : row_reductions_) moved += reduction.move.plan().moved_bytes();
    return moved;
  }
  std::int64_t table_bytes() const override {
    return static_cast<std::int64_t>(where_.places.size() * (sizeof(Place) + 512) + where_.tiles.size() * sizeof(Tile) +
                                     where_.parts.size() * sizeof(FusedPlaces::Part) +
                                     segments_.size() * sizeof(Segment) +
                                     terms_.size() * (sizeof(kernels::StridedSource) + sizeof(std::int64_t))) +
           where_.halos.table_bytes();
  }

  /// The plan fuses as epilogue only a kernel whose results have the shape of its iteration space, without reductions,
  /// and are stored at the place that computes them.
  void run_box(Frame& frame, int w, const Shape& begin, const Shape& extent) const override {
    double uniforms[64];
    read_uniforms(frame, uniforms);
    const Place& place = where_.places[static_cast<std::size_t>(w)];
    FusedView inputs[Fused::max_inputs], outputs[Fused::max_outputs];
    const auto on_box = [&](const PlacedOperand& operand, DType dtype) {
      const FusedStrides& strides = operand.unmerged;
      std::int64_t offset = begin[begin.size() - 1] * strides.row_stride;
      for (std::size_t d = 0; d + 1 < begin.size(); ++d) offset += begin[d] * strides.outer_stride[d];
      return FusedView{strides,
                       static_cast<char*>(operand.data(frame)) + offset * static_cast<std::int64_t>(size_of(dtype))};
    };
    for (std::size_t i = 0; i < place.inputs.size(); ++i) inputs[i] = on_box(place.inputs[i], fused_.inputs[i]);
    for (std::size_t o = 0; o < place.outputs.size(); ++o)
      outputs[o] = on_box(place.outputs[o], fused_.stores[o].dtype);
    FusedCall call = place.call;
    call.outer_rank = rank_ - 1;
    call.row_end = 1;
    for (int d = 0; d < rank_; ++d) call.global_offset[d] += begin[static_cast<std::size_t>(d)];
    for (int d = 0; d + 1 < rank_; ++d) {
      call.outer_extent[d] = extent[static_cast<std::size_t>(d)];
      call.row_end *= call.outer_extent[d];
    }
    call.row_begin = call.inner_begin = 0;
    call.inner_end = extent[extent.size() - 1];
    call.inputs = inputs;
    call.outputs = outputs;
    call.uniforms = uniforms;
    kernel_(call);
  }
  const char* beside(const Frame& frame, int w, const char* made, DType dtype,
                     const kernels::Strides& strides) const override {
    const Place& place = where_.places[static_cast<std::size_t>(w)];
    for (std::size_t i = 0; i < place.inputs.size(); ++i) {
      const PlacedOperand& input = place.inputs[i];
      if (!input.is_stored() || fused_.inputs[i] != dtype || input.data(frame) == made) continue;
      bool same = static_cast<int>(strides.size()) == rank_ && input.unmerged.row_stride == strides[strides.size() - 1];
      for (std::size_t d = 0; d + 1 < strides.size(); ++d) same = same && input.unmerged.outer_stride[d] == strides[d];
      if (same) return static_cast<const char*>(input.data(frame));
    }
    return nullptr;
  }

  void run(Frame& frame) const override {
    double uniforms[64];
    read_uniforms(frame, uniforms);
    where_.halos.receive(frame);
    if (!where_.split_phases) {
      run_phases(frame, uniforms, 0, fused_.phases);
    } else {
      for (int p = 0; p < fused_.phases; ++p) {
        run_phases(frame, uniforms, p, p + 1);
        if (p + 1 < fused_.phases) complete_rows(frame, p + 1);
      }
    }
    combine(frame);
  }

 private:
  /// A host scalar that the kernel reads, of an i64 its bits, since a double can't hold all integers of 64 bits.
  struct Uniform {
    std::int32_t node;
    bool in_bits;
  };

  const Fused& fused_;
  FusedKernel kernel_;
  kernels::ReduceFunction reduce_;
  int rank_;
  FusedPlaces where_;
  const Mesh& mesh_;
  const PlanStep& step_;
  Growable<Uniform> uniforms_;
  /// Elements of a result to which the same tiles add: their accumulators are combined in the order of the tiles.
  struct Segment {
    std::int32_t pointer, output;
    std::int64_t first, elements;
    std::size_t first_term, terms;  ///< range in term_at_
  };
  Growable<Segment> segments_;
  Growable<std::int64_t> term_at_;  ///< offsets in scratch
  std::int64_t combined_ = 0;       ///< most elements that are read for a segment
  // A member so that run() does not allocate: an allocation that failed halfway would leave donated arguments partly
  // overwritten.
  mutable Growable<kernels::StridedSource> terms_;

  /// The all_reduce of one row reduction along sharded rows, from row_values of each place to `completed`.
  struct RowReduction {
    int phase, index;  // the phase that reads the result; the index among the unit's row reductions
    StepMove move;
  };
  /// The places that hold shards of the same rows, and the offset in scratch of their completed reductions.
  struct RowGroup {
    Growable<int> places;
    std::int64_t completed = 0;
  };
  Growable<RowReduction> row_reductions_;
  Growable<RowGroup> row_groups_;
  std::int64_t completed_bytes_ = 0;

  using PlacedOperand = FusedPlaces::PlacedOperand;
  using Place = FusedPlaces::Place;
  using Tile = FusedPlaces::Tile;
  using Sum = FusedPlaces::Sum;

  /// Read as an addend at places where the addend must not count: added over an axis, it counts on one device only.
  static constexpr double zero = 0;

  void read_uniforms(const Frame& frame, double* to) const {
    for (std::size_t k = 0; k < uniforms_.size(); ++k) {
      const HostNumber& number = frame.numbers[static_cast<std::size_t>(uniforms_[k].node)];
      to[k] = uniforms_[k].in_bits ? std::bit_cast<double>(number.integer()) : number.real();
    }
  }
  void run_phases(Frame& frame, const double* uniforms, int begin, int end) const {
    const double cost = where_.tile_cost * (0.3 + 0.25 * fused_.instr_count * (end - begin) / 4.0);
    const auto run_tile = [&](std::int64_t t) {
      const Tile& tile = where_.tiles[static_cast<std::size_t>(t)];
      const Place& place = where_.places[static_cast<std::size_t>(tile.place)];
      FusedView inputs[Fused::max_inputs], outputs[Fused::max_outputs];
      for (std::size_t i = 0; i < place.inputs.size(); ++i) {
        const PlacedOperand& input = place.inputs[i];
        inputs[i] = {input.strides, input.is_stored() ? input.data(frame) : const_cast<double*>(&zero)};
      }
      for (std::size_t o = 0; o < place.outputs.size(); ++o) {
        const PlacedOperand& output = place.outputs[o];
        outputs[o] = {output.strides, output.is_stored() ? output.data(frame) : frame.scratch + place.unstored};
      }
      if (where_.accumulates) clear_private(frame, tile, outputs, begin == 0);
      FusedCall call = place.call;
      call.row_begin = tile.row_begin;
      call.row_end = tile.row_end;
      call.inner_begin = tile.inner_begin;
      call.inner_end = tile.inner_end;
      call.inputs = inputs;
      call.outputs = outputs;
      call.uniforms = uniforms;
      call.phase_begin = begin;
      call.phase_end = end;
      if (where_.split_phases) {
        call.row_values = reinterpret_cast<double*>(frame.scratch + place.row_values);
        call.row_values_stride = place.rows;
      }
      call.past_caches = where_.past_caches;
      for (std::size_t o = 0; o < place.outputs.size() && call.past_caches; ++o)
        for (std::size_t i = 0; i < place.inputs.size(); ++i)
          call.past_caches = call.past_caches && outputs[o].data != inputs[i].data;
      if (place.transposed != 0) copy_transposed(place, tile, inputs);
      if (place.run_rows != 0 && tile.row_end - tile.row_begin > place.run_rows)
        run_by_runs(call, tile);
      else
        kernel_(call);
    };
    if (where_.tiles.size() == 1) return run_tile(0);
    parallel_for(static_cast<std::int64_t>(where_.tiles.size()), Cost{cost}, run_tile);
  }

  /// Copies a tile's part of its transposed inputs to scratch, and makes the views of these inputs those of the copies.
  void copy_transposed(const Place& place, const Tile& tile, FusedView* inputs) const {
    const int last = place.call.outer_rank - 1;
    const std::int64_t* const extent = place.call.outer_extent;
    const std::int64_t rows = tile.row_end - tile.row_begin, columns = tile.inner_end - tile.inner_begin,
                       first = tile.row_begin % extent[last];
    const auto bytes_of = [&](int i) { return rows * columns * static_cast<std::int64_t>(size_of(fused_.inputs[i])); };
    std::int64_t bytes = 0;
    for (std::uint64_t left = place.transposed; left != 0; left &= left - 1) bytes += bytes_of(std::countr_zero(left));
    auto* to = kernels::thread_scratch<kernels::Scratch::transposed, std::byte>(static_cast<std::size_t>(bytes));
    for (std::uint64_t left = place.transposed; left != 0; left &= left - 1) {
      const int i = std::countr_zero(left);
      FusedView& view = inputs[i];
      const auto element = static_cast<std::int64_t>(size_of(fused_.inputs[i]));
      std::int64_t from = first * view.outer_stride[last] + tile.inner_begin * view.row_stride;
      std::int64_t outer = tile.row_begin / extent[last];
      for (int d = last - 1; d >= 0; outer /= extent[d--]) from += outer % extent[d] * view.outer_stride[d];
      kernels::strided_copy(to, {columns, 1}, static_cast<const char*>(view.data) + from * element,
                            {view.outer_stride[last], view.row_stride}, {rows, columns},
                            static_cast<std::size_t>(element));
      view = {};
      view.outer_stride[last] = columns;
      view.row_stride = 1;
      // Where element 0 would be: the kernel reads only the elements of the tile.
      const auto before = static_cast<std::uintptr_t>((first * columns + tile.inner_begin) * element);
      view.data = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(to) - before);
      to += bytes_of(i);
    }
  }

  /// Runs a tile in runs of rows; after each run, adds the f32 accumulators to f64 sums, since long f32 sums lose
  /// digits.
  void run_by_runs(FusedCall call, const Tile& tile) const {
    const Place& place = where_.places[static_cast<std::size_t>(tile.place)];
    // f(sum, part, accumulators indexed as the elements of the sum, index of the part's first f64 sum)
    const auto each_sum = [&](auto&& f) {
      std::int64_t at = 0;
      for (int k = place.first_sum; k < place.first_sum + place.sums; ++k) {
        const Sum& sum = where_.sums[static_cast<std::size_t>(k)];
        if (!sum.is_long) continue;
        const FusedPlaces::Part& part = where_.part(tile, k);
        f(sum, part, static_cast<float*>(call.outputs[sum.output].data), at);
        at += part.elements;
      }
      return at;
    };
    const std::int64_t count = each_sum([](const Sum&, const FusedPlaces::Part&, float*, std::int64_t) {});
    double* const sums = kernels::thread_scratch<kernels::Scratch::long_sums, double>(static_cast<std::size_t>(count));
    std::fill_n(sums, count, 0.0);
    for (const std::int64_t end = call.row_end; call.row_begin < end; call.row_begin = call.row_end) {
      call.row_end = std::min(call.row_begin + place.run_rows, end);
      kernel_(call);
      each_sum([&](const Sum& sum, const FusedPlaces::Part& part, float* own, std::int64_t at) {
        const auto [first, last] = FusedPlaces::summed_range(call, call.outputs[sum.output]);
        for (std::int64_t i = first; i < last; ++i) sums[at + i - part.first] += static_cast<double>(own[i]);
        std::fill(own + first, own + last, 0.f);
      });
    }
    each_sum([&](const Sum&, const FusedPlaces::Part& part, float* own, std::int64_t at) {
      float* const sum = own + part.first;
      for (std::int64_t i = 0; i < part.elements; ++i)
        sum[i] = static_cast<float>(sums[at + i] + static_cast<double>(sum[i]));
    });
  }

  static void fill_identity(DType dtype, Reduction reduction, void* data, std::int64_t n) {
    const auto none = [&] { fail(errc::dtype_mismatch, "[reduce] dtype: ", name_of(dtype), " is not supported"); };
    with_monoid(reduction, [&]<class M>() {
      dispatch<all_partial_types[M::kind]>(
          dtype, [&]<class T>() { std::fill_n(static_cast<T*>(data), n, M::template identity<T>()); }, none);
    });
  }

  void clear_private(Frame& frame, const Tile& tile, FusedView* outputs, bool clear) const {
    const Place& place = where_.places[static_cast<std::size_t>(tile.place)];
    for (int k = place.first_sum; k < place.first_sum + place.sums; ++k) {
      const Sum& sum = where_.sums[static_cast<std::size_t>(k)];
      const FusedPlaces::Part& part = where_.part(tile, k);
      const Store& store = fused_.stores[sum.output];
      char* const own = frame.scratch + part.scratch;
      // Where element 0 would be: the kernel adds only to the elements of the part.
      const auto before = static_cast<std::uintptr_t>(part.first) * size_of(store.dtype);
      outputs[sum.output].data = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(own) - before);
      if (clear) fill_identity(store.dtype, store.reduction, own, part.elements);
    }
  }

  /// Divides each result at the ends of the tiles' parts. Sums of one result have the same output and pointer, also
  /// across the layers of a Stack; pointer -1: another place stores the result.
  TESSERA_PLANNING void add_segments() {
    Growable<SortedPair> order;  // of the sums: by output and pointer, then by index
    for (std::size_t s = 0; s < where_.sums.size(); ++s) {
      const Sum& sum = where_.sums[s];
      if (sum.pointer < 0) continue;
      order.push_back({std::int64_t{sum.output} << 32 | sum.pointer, static_cast<std::int64_t>(s)});
    }
    sort_distinct(order);
    const auto sum_at = [&](const SortedPair& pair) -> const Sum& {
      return where_.sums[static_cast<std::size_t>(pair.second)];
    };
    Growable<FusedPlaces::Part> own;
    Growable<std::int64_t> ends;
    for (auto next = order.begin(); next != order.end();) {
      const Sum& sum = sum_at(*next);
      own.clear();
      ends = {0, sum.elements};
      for (; next != order.end() && sum_at(*next).pointer == sum.pointer && sum_at(*next).output == sum.output;
           ++next) {
        const Place& place = where_.places[static_cast<std::size_t>(sum_at(*next).place)];
        for (int t = place.first_tile; t < place.first_tile + place.tiles; ++t) {
          own.push_back(where_.part(where_.tiles[static_cast<std::size_t>(t)], static_cast<int>(next->second)));
          ends.push_back(own.back().first);
          ends.push_back(own.back().first + own.back().elements);
        }
      }
      sort_distinct(ends);
      const auto element = static_cast<std::int64_t>(size_of(fused_.stores[sum.output].dtype));
      for (std::size_t e = 0; e + 1 < ends.size(); ++e) {
        Segment made{sum.pointer, sum.output, ends[e], ends[e + 1] - ends[e], term_at_.size(), 0};
        for (const FusedPlaces::Part& part : own)
          if (part.first <= ends[e] && ends[e + 1] <= part.first + part.elements)
            term_at_.push_back(part.scratch + (ends[e] - part.first) * element);
        made.terms = term_at_.size() - made.first_term;
        segments_.push_back(made);
        combined_ = std::max(combined_, made.elements * static_cast<std::int64_t>(made.terms));
      }
    }
    terms_.resize(term_at_.size());
  }

  void combine(Frame& frame) const {
    for (std::size_t t = 0; t < terms_.size(); ++t) terms_[t] = {frame.scratch + term_at_[t], {1}};
    const Cost cost{20 + 0.1 * static_cast<double>(combined_)};
    parallel_for(static_cast<std::int64_t>(segments_.size()), cost, [&](std::int64_t i) {
      const Segment& segment = segments_[static_cast<std::size_t>(i)];
      const Store& store = fused_.stores[segment.output];
      char* const to = frame.pointers[static_cast<std::size_t>(segment.pointer)] +
                       segment.first * static_cast<std::int64_t>(size_of(store.dtype));
      if (segment.terms == 0)
        fill_identity(store.dtype, store.reduction, to, segment.elements);
      else
        reduce_(store.dtype, store.reduction, to, {1}, {terms_.data() + segment.first_term, segment.terms},
                Shape{segment.elements}, false, false);
    });
  }

  std::int64_t completed_begin() const { return (where_.scratch_bytes + 7) / 8 * 8; }

  /// Groups the places that hold shards of the same rows, and plans the moves that complete their reductions.
  TESSERA_PLANNING void group_rows() {
    Growable<int> group_of(where_.places.size(), -1);
    for (std::size_t w = 0; w < where_.places.size(); ++w) {
      if (!where_.places[w].joins_rows) continue;
      Coordinates first = where_.device_of(static_cast<int>(w));
      for (std::size_t axis = 0; axis < first.size(); ++axis)
        if ((where_.row_axes >> axis & 1) != 0) first[axis] = 0;
      int& group = group_of[static_cast<std::size_t>(where_.on_device(first, static_cast<int>(w)))];
      if (group < 0) {
        group = static_cast<int>(row_groups_.size());
        row_groups_.push_back({{}, completed_begin() + completed_bytes_});
        completed_bytes_ += where_.places[w].rows * std::int64_t{sizeof(double)};
      }
      row_groups_[static_cast<std::size_t>(group)].places.push_back(static_cast<int>(w));
    }
    int index = 0;
    for (int i = 0; i < fused_.instr_count; ++i) {
      const Instr& instr = fused_.instrs[i];
      if (instr.kind != InstrKind::reduce) continue;
      if (instr.phase > 0 && instr.phase < fused_.phases)
        row_reductions_.push_back({instr.phase, index, rows_of(instr, index)});
      ++index;
    }
  }
  /// The all_reduces of a row reduction. Rows are in f64, or in i64 for integers and bools.
  TESSERA_PLANNING StepMove rows_of(const Instr& instr, int index) const {
    StepMove move(is_floating(instr.dtype) ? DType::f64 : DType::i64, instr.reduction, &combine_rows);
    const unsigned axes = where_.work.axes();
    for (const RowGroup& group : row_groups_) {
      const Box rows{{0}, {where_.places[static_cast<std::size_t>(group.places[0])].rows}};
      Growable<int> sources;
      for (const int w : group.places)
        sources.push_back(move.add_source(rows, {1}, Holders(mesh_, axes, where_.device_of(w)),
                                          {StepMove::scratch, row_values(w, index)}));
      const Holders all(mesh_, axes & ~unsigned{where_.row_axes}, where_.device_of(group.places[0]));
      const int completed = move.add_destination(rows, {1}, all, {StepMove::scratch, group.completed});
      move.plan().fill({&completed, 1}, sources, static_cast<int>(sources.size()));
    }
    return move;
  }
  /// The offset in scratch of a row reduction of a place.
  std::int64_t row_values(int place, int index) const {
    const Place& p = where_.places[static_cast<std::size_t>(place)];
    return p.row_values + index * p.rows * std::int64_t{sizeof(double)};
  }
  /// Combines across shards the row reductions that pass `phase` reads.
  void complete_rows(Frame& frame, int phase) const {
    for (const RowReduction& reduction : row_reductions_) {
      if (reduction.phase != phase) continue;
      if (CommunicationScope* scope = CommunicationScope::innermost(); scope != nullptr && !step_.collectives.empty())
        scope->add(mesh_, step_.collectives[0]);  // all collectives of the step are equal: one per row reduction
      reduction.move.run(frame);
      for (const RowGroup& group : row_groups_)
        for (const int w : group.places)
          if (!where_.places[static_cast<std::size_t>(w)].idle)
            std::memcpy(frame.scratch + row_values(w, reduction.index), frame.scratch + group.completed,
                        static_cast<std::size_t>(where_.places[static_cast<std::size_t>(w)].rows) * sizeof(double));
    }
  }
  /// A kernels::ReduceFunction of contiguous f64 or i64.
  static void combine_rows(DType dtype, Reduction reduction, void* to, const kernels::Strides&,
                           std::span<const kernels::StridedSource> parts, const Shape& extent, bool accumulate, bool) {
    const auto combine = [&]<class M, class T>() {
      T* const total = static_cast<T*>(to);
      for (std::size_t k = 0; k < parts.size(); ++k) {
        const T* const part = static_cast<const T*>(parts[k].data);
        for (std::int64_t row = 0; row < extent[0]; ++row) {
          if (k == 0 && !accumulate)
            total[row] = part[row];
          else
            M::join(total[row], part[row]);
        }
      }
    };
    with_monoid(reduction, [&]<class M>() {
      if constexpr (all_partial_types[M::kind] != 0) {
        if (dtype == DType::i64) return combine.template operator()<M, std::int64_t>();
        combine.template operator()<M, double>();
      }
    });
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
