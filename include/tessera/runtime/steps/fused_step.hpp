#ifndef TESSERA_RUNTIME_STEPS_FUSED_STEP_HPP
#define TESSERA_RUNTIME_STEPS_FUSED_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/sort_pairs.hpp>
#include <tessera/graph/fuse/fused.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/scratch.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/executor/prepared_step.hpp>
#include <tessera/runtime/steps/fused_places.hpp>
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
    for (int k = 0; k < unit.uniform_count; ++k) uniforms_.push_back(c.units.members[unit.first_uniform + k]);
    std::size_t terms = 0;
    for (const Sum& sum : where_.sums)
      terms += static_cast<std::size_t>(where_.places[static_cast<std::size_t>(sum.place)].tiles);
    terms_.reserve(terms);
    order_sums();
    if (where_.split_phases) group_rows();
  }

  std::int64_t scratch_bytes() const override { return where_.scratch_bytes; }
  std::int64_t moved_bytes() const override {
    std::int64_t completed = 0;
    for (int i = 0; i < fused_.instr_count; ++i) {
      const Instr& instr = fused_.instrs[i];
      completed += instr.kind == InstrKind::reduce && instr.phase > 0 && instr.phase < fused_.phases ? 1 : 0;
    }
    return completed * moved_rows_;
  }
  std::int64_t table_bytes() const override {
    return static_cast<std::int64_t>(where_.places.size() * (sizeof(Place) + 512) + where_.tiles.size() * sizeof(Tile));
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

  void run(Frame& frame) const override {
    double uniforms[64];
    read_uniforms(frame, uniforms);
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
  const Fused& fused_;
  FusedKernel kernel_;
  kernels::ReduceFunction reduce_;
  int rank_;
  FusedPlaces where_;
  const Mesh& mesh_;
  const PlanStep& step_;
  std::vector<std::int32_t> uniforms_;
  // Used by combine() and combine_rows(). Members so that run() does not allocate: an allocation that failed halfway
  // would leave donated arguments partly overwritten.
  mutable std::vector<kernels::StridedSource> terms_;
  mutable std::vector<double*> row_parts_;
  std::vector<std::size_t> sum_order_;
  std::vector<std::vector<int>> row_groups_;
  std::int64_t moved_rows_ = 0;  // bytes moved between devices by one reduction along sharded rows

  using PlacedOperand = FusedPlaces::PlacedOperand;
  using Place = FusedPlaces::Place;
  using Tile = FusedPlaces::Tile;
  using Sum = FusedPlaces::Sum;

  /// Read as an addend at places where the addend must not count: added over an axis, it counts on one device only.
  static constexpr double zero = 0;

  void read_uniforms(const Frame& frame, double* to) const {
    for (std::size_t k = 0; k < uniforms_.size(); ++k)
      to[k] = frame.numbers[static_cast<std::size_t>(uniforms_[k])].real();
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
      if (place.run_rows != 0 && tile.row_end - tile.row_begin > place.run_rows)
        run_by_runs(call, tile.place);
      else
        kernel_(call);
    };
    if (where_.tiles.size() == 1) return run_tile(0);
    parallel_for(static_cast<std::int64_t>(where_.tiles.size()), Cost{cost}, run_tile);
  }

  /// Runs a tile in runs of rows; after each run, adds the f32 accumulators to f64 sums, since long f32 sums lose
  /// digits.
  void run_by_runs(FusedCall call, int place_index) const {
    const Place& place = where_.places[static_cast<std::size_t>(place_index)];
    const auto count = static_cast<std::size_t>(place.long_sums);
    double* const sums = kernels::thread_scratch<kernels::Scratch::long_sums, double>(count);
    std::fill_n(sums, count, 0.0);
    const auto each_sum = [&](auto&& f) {
      for (const Sum& sum : where_.sums)
        if (sum.place == place_index && sum.long_sum >= 0)
          f(sum, static_cast<float*>(call.outputs[sum.output].data), sums + sum.long_sum);
    };
    for (const std::int64_t end = call.row_end; call.row_begin < end; call.row_begin = call.row_end) {
      call.row_end = std::min(call.row_begin + place.run_rows, end);
      kernel_(call);
      each_sum([&](const Sum& sum, float* own, double* long_sum) {
        const auto [first, last] = summed_range(call, call.outputs[sum.output]);
        for (std::int64_t i = first; i < last; ++i) long_sum[i] += static_cast<double>(own[i]);
        std::fill(own + first, own + last, 0.f);
      });
    }
    each_sum([&](const Sum& sum, float* own, const double* long_sum) {
      for (std::int64_t i = 0; i < sum.elements; ++i)
        own[i] = static_cast<float>(long_sum[i] + static_cast<double>(own[i]));
    });
  }
  /// A range of a private accumulator that contains all elements to which the call's rows are added.
  static std::pair<std::int64_t, std::int64_t> summed_range(const FusedCall& call, const FusedView& view) {
    std::int64_t first = 0, last = 0, begin = call.row_begin, end = call.row_end - 1;
    for (int d = call.outer_rank - 1; d >= 0; --d) {
      const std::int64_t extent = call.outer_extent[d], stride = view.outer_stride[d];
      // If the rows span several indices of an outer dim, they cover this inner dim completely.
      const bool whole = begin / extent != end / extent;
      first += whole ? 0 : begin % extent * stride;
      last += whole ? (extent - 1) * stride : end % extent * stride;
      begin /= extent, end /= extent;
    }
    if (view.row_stride == 0) return {first, last + 1};
    return {first + call.inner_begin, last + call.inner_end};
  }

  static void fill_identity(DType dtype, Reduction reduction, void* data, std::int64_t n) {
    const auto none = [&] { fail(errc::dtype_mismatch, "[reduce] dtype: ", name_of(dtype), " has no arithmetic"); };
    with_monoid(reduction, [&]<class M>() {
      dispatch<all_partial_types[M::kind]>(
          dtype, [&]<class T>() { std::fill_n(static_cast<T*>(data), n, M::template identity<T>()); }, none);
    });
  }

  void clear_private(Frame& frame, const Tile& tile, FusedView* outputs, bool clear) const {
    const Place& place = where_.places[static_cast<std::size_t>(tile.place)];
    for (int s = place.first_sum; s < place.first_sum + place.sums; ++s) {
      const Sum& sum = where_.sums[static_cast<std::size_t>(s)];
      char* own = frame.scratch + tile.scratch + sum.offset;
      outputs[sum.output].data = own;
      if (clear) fill_identity(fused_.stores[sum.output].dtype, fused_.stores[sum.output].reduction, own, sum.elements);
    }
  }

  /// Orders the sums so that those of one result are adjacent, in the order of the places. Sums of one result have the
  /// same output and pointer, also across the layers of a Stack; pointer -1: another place stores the result.
  TESSERA_PLANNING void order_sums() {
    std::vector<KeyedIndex> order;
    for (std::size_t s = 0; s < where_.sums.size(); ++s)
      if (const Sum& sum = where_.sums[s]; sum.pointer >= 0)
        order.push_back({std::int64_t{sum.output} << 32 | sum.pointer, static_cast<std::int64_t>(s)});
    sort_pairs(order);
    for (const KeyedIndex& sum : order) sum_order_.push_back(static_cast<std::size_t>(sum.second));
  }

  void combine(Frame& frame) const {
    for (std::size_t i = 0; i < sum_order_.size();) {
      const Sum& sum = where_.sums[sum_order_[i]];
      const Store& store = fused_.stores[sum.output];
      terms_.clear();
      for (; i < sum_order_.size(); ++i) {
        const Sum& part = where_.sums[sum_order_[i]];
        if (part.pointer != sum.pointer || part.output != sum.output) break;
        const Place& place = where_.places[static_cast<std::size_t>(part.place)];
        for (int t = place.first_tile; t < place.first_tile + place.tiles; ++t)
          terms_.push_back({frame.scratch + where_.tiles[static_cast<std::size_t>(t)].scratch + part.offset, {1}});
      }
      char* to = frame.pointers[static_cast<std::size_t>(sum.pointer)];
      const Shape extent{sum.elements};
      if (terms_.empty())
        fill_identity(store.dtype, store.reduction, to, sum.elements);
      else
        reduce_(store.dtype, store.reduction, to, {1}, terms_, extent, false, false);
    }
  }

  /// Groups the places that hold shards of the same rows.
  TESSERA_PLANNING void group_rows() {
    std::vector<int> group_of(where_.places.size(), -1);
    for (std::size_t w = 0; w < where_.places.size(); ++w) {
      Coordinates first = where_.work.coordinates(static_cast<int>(w));
      for (std::size_t axis = 0; axis < first.size(); ++axis)
        if ((where_.row_axes >> axis & 1) != 0) first[axis] = 0;
      int& group = group_of[static_cast<std::size_t>(where_.work.index_of(first))];
      if (group < 0) {
        group = static_cast<int>(row_groups_.size());
        row_groups_.emplace_back();
      }
      if (!where_.places[w].idle) row_groups_[static_cast<std::size_t>(group)].push_back(static_cast<int>(w));
    }
    row_parts_.reserve(where_.places.size());
    const int replicas = mesh_.size() / where_.work.count();
    for (const std::vector<int>& group : row_groups_) {
      if (group.empty()) continue;
      const int parts = static_cast<int>(group.size());
      const std::int64_t rows = where_.places[static_cast<std::size_t>(group[0])].rows;
      moved_rows_ += rows * static_cast<std::int64_t>(sizeof(double)) * replicas *
                     sends(Holders::group(0, parts), parts, [](int k) { return Holders::member(0, k); });
    }
  }

  /// Combines across shards the row reductions that pass `phase` reads.
  void complete_rows(Frame& frame, int phase) const {
    int reduce = 0;
    for (int i = 0; i < fused_.instr_count; ++i) {
      if (fused_.instrs[i].kind != InstrKind::reduce) continue;
      const int r = reduce++;
      if (fused_.instrs[i].phase != phase) continue;
      if (CommunicationScope* scope = CommunicationScope::innermost(); scope != nullptr && !step_.collectives.empty()) {
        scope->add(mesh_, step_.collectives[0]);  // all collectives of the step are equal: one per row reduction
        scope->add_moved(moved_rows_);
      }
      for (const std::vector<int>& group : row_groups_)
        if (!group.empty()) combine_rows(frame, fused_.instrs[i], r, group);
    }
  }
  double* row_values(Frame& frame, int place, int reduce) const {
    const Place& p = where_.places[static_cast<std::size_t>(place)];
    return reinterpret_cast<double*>(frame.scratch + p.row_values) + reduce * p.rows;
  }
  void combine_rows(Frame& frame, const Instr& instr, int reduce, const std::vector<int>& group) const {
    std::vector<double*>& parts = row_parts_;
    parts.clear();
    for (const int place : group) parts.push_back(row_values(frame, place, reduce));
    const std::int64_t rows = where_.places[static_cast<std::size_t>(group[0])].rows;
    const auto combine = [&]<class M, class T>() {
      for (std::int64_t row = 0; row < rows; ++row) {
        T total = std::bit_cast<T>(parts[0][row]);
        for (std::size_t k = 1; k < parts.size(); ++k) M::join(total, std::bit_cast<T>(parts[k][row]));
        for (double* part : parts) part[row] = std::bit_cast<double>(total);
      }
    };
    with_monoid(instr.reduction, [&]<class M>() {
      if constexpr (all_partial_types[M::kind] != 0) {
        if (!is_floating(instr.dtype)) return combine.template operator()<M, std::int64_t>();
        combine.template operator()<M, double>();
      }
    });
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
