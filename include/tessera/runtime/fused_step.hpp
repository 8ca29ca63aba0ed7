#ifndef TESSERA_RUNTIME_FUSED_STEP_HPP
#define TESSERA_RUNTIME_FUSED_STEP_HPP

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/graph/fused.hpp>
#include <tessera/runtime/frame.hpp>
#include <tessera/runtime/team.hpp>

namespace tessera::runtime {

/// Runs a fused kernel over all shards of its iteration space, in tiles of rows.
///
/// Results that are reduced over rows are accumulated by each tile on its own, and the parts added in the order of the
/// tiles: the sum does not depend on who ran what. A reduction along a row that is itself sharded is completed across
/// shards between passes.
class FusedStep final : public PreparedStep, public Epilogue {
 public:
  FusedStep(const StepContext& c, const Fused& fused, FusedKernel kernel, kernels::ReduceFunction reduce)
      : layout_(c.layout), fused_(fused), kernel_(kernel), reduce_(reduce), rank_(c.units[c.step.unit].rank),
        work_(c.layout, c.step) {
    const Unit& unit = c.units[c.step.unit];
    for (int k = 0; k < unit.uniform_count; ++k) uniforms_.push_back(c.units.members[unit.first_uniform + k]);
    make_places(c.units, c.step);
    make_tiles();
  }

  std::int64_t scratch_bytes() const override { return scratch_; }

  /// Whether any box of the iteration space can be computed on its own: all results have an element for each of the
  /// space's, which is stored where it is made.
  bool works_on_boxes() const {
    bool alone = fused_.phases == 1 && rank_ > 0 && static_cast<int>(places_.size()) == work_.count();
    for (int s = 0; s < fused_.store_count; ++s) alone = alone && fused_.stores[s].kind == StoreKind::element;
    for (const Place& place : places_)
      for (std::int32_t at : place.output_at) alone = alone && (at >= 0 || place.idle);
    return alone;
  }

  void run_box(Frame& frame, int w, const Shape& begin, const Shape& extent) const override {
    double uniforms[64];
    read_uniforms(frame, uniforms);
    const Place& place = places_[static_cast<std::size_t>(w)];
    FusedView inputs[Fused::max_inputs], outputs[Fused::max_outputs];
    auto shift = [&](FusedView& view, const FusedView& whole, char* data, std::int64_t element) {
      view = whole;
      std::int64_t offset = begin[begin.size() - 1] * whole.row_stride;
      for (std::size_t d = 0; d + 1 < begin.size(); ++d) offset += begin[d] * whole.outer_stride[d];
      view.data = data + reinterpret_cast<std::intptr_t>(whole.data) + offset * element;
    };
    for (std::size_t i = 0; i < place.inputs.size(); ++i)
      shift(inputs[i], place.whole_inputs[i], frame.pointers[static_cast<std::size_t>(place.input_at[i])],
            static_cast<std::int64_t>(size_of(fused_.inputs[i])));
    for (std::size_t o = 0; o < place.outputs.size(); ++o)
      shift(outputs[o], place.whole_outputs[o], frame.pointers[static_cast<std::size_t>(place.output_at[o])],
            static_cast<std::int64_t>(size_of(fused_.stores[o].dtype)));
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
    if (!split_phases_) {
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
  /// A kernel call on one shard of the space, and where its operands are.
  struct Place {
    FusedCall call;
    std::int64_t inner = 1, rows = 1;
    std::vector<FusedView> inputs, outputs;            // strides; data is the byte offset from the shard's pointer
    std::vector<FusedView> whole_inputs, whole_outputs;  // the same before neighbouring dims were merged
    std::vector<std::int32_t> input_at, output_at;     // pointers in the frame; -1: not stored here
    std::int64_t row_values = 0;                       // offset in scratch
    std::int64_t unstored = 0, unstored_bytes = 0;     // scratch for results that another place stores
    int first_tile = 0, tiles = 0;
    bool idle = false;  ///< nothing is made here
  };
  struct Tile {
    int place;
    std::int64_t row_begin, row_end, inner_begin, inner_end;
    std::int64_t scratch;  // offset of its private results
  };
  /// The parts of one accumulated result.
  struct Sum {
    int pointer;
    int output;
    int place;
    std::int64_t elements, offset;
  };

  const FrameLayout& layout_;
  const Fused& fused_;
  FusedKernel kernel_;
  kernels::ReduceFunction reduce_;
  int rank_;
  WorkGrid work_;
  std::vector<std::int32_t> uniforms_;
  std::vector<Place> places_;
  std::vector<Tile> tiles_;
  std::vector<Sum> sums_;
  std::int64_t scratch_ = 0;
  int reduces_ = 0;
  bool accumulates_ = false, split_phases_ = false;
  std::uint16_t row_axes_ = 0;
  double tile_cost_ = 0;
  bool past_caches_ = false;

  /// Bytes of results from which on they are written past the caches, unless they replace what is read: so much would
  /// not be there any more when the next step comes to it, and is then better not fetched before it is written over.
  static constexpr std::int64_t past_caches_from = std::int64_t{32} << 20;

  /// A number that does not count where it is added.
  static constexpr double zero = 0;

  void read_uniforms(const Frame& frame, double* to) const {
    for (std::size_t k = 0; k < uniforms_.size(); ++k) to[k] = frame.numbers[static_cast<std::size_t>(uniforms_[k])];
  }
  static std::int64_t aligned(std::int64_t bytes) { return (bytes + block_alignment - 1) / block_alignment * block_alignment; }

  void make_places(const UnitsView& units, const PlanStep& step) {
    const Unit& unit = units[step.unit];
    const GraphPlan& plan = layout_.plan();
    const Shape& space = plan.shapes[static_cast<std::size_t>(unit.space)];
    Sharding sharding = replicated(rank_);
    for (int d = 0; d < rank_ && d < static_cast<int>(step.factors.size()); ++d)
      sharding.dims[d] = step.factors[static_cast<std::size_t>(d)];
    for (int i = 0; i < fused_.instr_count; ++i) reduces_ += fused_.instrs[i].kind == InstrKind::reduce ? 1 : 0;
    for (int s = 0; s < fused_.store_count; ++s) accumulates_ = accumulates_ || fused_.stores[s].kind == StoreKind::accumulate;
    if (rank_ > 0)
      for (std::uint8_t axis : sharding.dims[rank_ - 1]) row_axes_ = static_cast<std::uint16_t>(row_axes_ | 1u << axis);
    split_phases_ = row_axes_ != 0 && fused_.phases > 1;

    int layer_dim = -1, layers = 1;
    auto find_layers = [&](int value, const UnitOperand& operand) {
      if (!layout_.value(value).stacked) return;
      for (int d = 0; d < rank_; ++d)
        if (operand.dim_at[d] == 0) {
          layer_dim = d;
          layers = layout_[value].layers;
        }
    };
    for (int i = 0; i < unit.input_count; ++i) find_layers(step.inputs[static_cast<std::size_t>(i)], units.input(step.unit, i));
    for (int o = 0; o < unit.output_count; ++o)
      if (step.outputs[static_cast<std::size_t>(o)] >= 0)
        find_layers(step.outputs[static_cast<std::size_t>(o)], units.output(step.unit, o));

    if (split_phases_ && layers > 1)
      fail(errc::unsupported, "[fused] stacked rows: a sharded row of a stacked value is reduced outside its Stack");
    const bool has_index = uses_index();
    for (int w = 0; w < work_.count(); ++w)
      for (int l = 0; l < layers; ++l) {
        const Coordinates at = work_.coordinates(w);
        Box box = shard_box(space, sharding, layout_.mesh(), at);
        if (layer_dim >= 0) {
          box.begin[static_cast<std::size_t>(layer_dim)] = l;
          box.end[static_cast<std::size_t>(layer_dim)] = l + 1;
        }
        const Shape local = extents(box);
        Place place;
        for (int d = 0; d < rank_; ++d) place.call.global_offset[d] = box.begin[static_cast<std::size_t>(d)];
        bool lacks_input = false;
        for (int i = 0; i < unit.input_count; ++i) {
          const int value = step.inputs[static_cast<std::size_t>(i)];
          add_operand(place.inputs, place.input_at, value, units.input(step.unit, i), box, at, l);
          lacks_input = lacks_input || !layout_.holds(value, at);
          if (!counts_at(at, step.added_over & ~unsigned{layout_.value(value).sharding.unreduced}))
            place.input_at.back() = -1;
        }
        bool makes = false;
        for (int o = 0; o < unit.output_count; ++o) {
          const int value = step.outputs[static_cast<std::size_t>(o)];
          add_operand(place.outputs, place.output_at, value, units.output(step.unit, o), box, at, l);
          const ValueLayout& own = layout_[value];
          const auto shard = static_cast<std::size_t>(place.output_at.back() - own.first);
          if (work_.stores(at, layout_.value(value).sharding) && layout_.holds(value, at)) {
            makes = makes || volume(extents(own.boxes[shard])) > 0;
          } else {
            place.output_at.back() = -1;
            std::int64_t elements = 1;  // rows without elements have row values too
            for (std::int64_t extent : local) elements *= std::max<std::int64_t>(extent, 1);
            place.unstored_bytes = std::max(place.unstored_bytes, aligned(elements * 8));
          }
        }
        // Other places of a row that is split need what this one finds out about its part.
        place.idle = !makes && (lacks_input || !split_phases_ || volume(local) == 0);
        if (place.idle) place.unstored_bytes = 0;
        if (fused_.phases == 1 && !accumulates_) {
          place.whole_inputs = place.inputs;
          place.whole_outputs = place.outputs;
        }
        // An empty shard may have any strides: dims must not seem to be neighbours by them.
        set_extents(place, local, !has_index && volume(local) > 0);
        places_.push_back(std::move(place));
      }
    std::int64_t written = 0;
    for (int s = 0; s < fused_.store_count; ++s)
      if (fused_.stores[s].kind == StoreKind::element)
        written += layout_.value(step.outputs[static_cast<std::size_t>(s)]).stored_bytes;
    past_caches_ = written >= past_caches_from;
  }

  void add_operand(std::vector<FusedView>& views, std::vector<std::int32_t>& pointers, int value, const UnitOperand& operand,
                   const Box& box, const Coordinates& at, int layer) const {
    const ValueLayout& layout = layout_[value];
    const int shard = layout.index(at, layout_.value(value).stacked ? layer : 0);
    const Box& own = layout.boxes[static_cast<std::size_t>(shard)];
    const kernels::Strides& strides = layout.strides[static_cast<std::size_t>(shard)];
    FusedView view;
    std::int64_t offset = 0;
    for (int d = 0; d < rank_; ++d) {
      std::int64_t stride = 0;
      if (const int dim = operand.dim_at[d]; dim >= 0) {
        stride = strides[static_cast<std::size_t>(dim)];
        offset += (box.begin[static_cast<std::size_t>(d)] - own.begin[static_cast<std::size_t>(dim)]) * stride;
      }
      if (d + 1 < rank_) view.outer_stride[d] = stride;
      else view.row_stride = stride;
    }
    view.data = reinterpret_cast<void*>(offset * layout.element);
    views.push_back(view);
    pointers.push_back(layout.first + shard);
  }

  static bool counts_at(const Coordinates& at, unsigned axes) {
    for (std::size_t axis = 0; axis < at.size(); ++axis)
      if ((axes >> axis & 1u) != 0 && at[axis] != 0) return false;
    return true;
  }

  bool uses_index() const {
    for (int i = 0; i < fused_.instr_count; ++i)
      if (fused_.instrs[i].kind == InstrKind::index) return true;
    return false;
  }

  /// Extents of the call. Neighbouring dims that every operand walks as one are one, so that rows are long.
  void set_extents(Place& place, const Shape& local, bool may_merge) const {
    FusedCall& call = place.call;
    std::int64_t outer[8]{};
    int rank = rank_ > 0 ? rank_ - 1 : 0;
    for (int d = 0; d < rank; ++d) outer[d] = local[static_cast<std::size_t>(d)];
    place.inner = rank_ > 0 ? local[static_cast<std::size_t>(rank_ - 1)] : 1;
    bool row_free = reduces_ == 0;
    for (int s = 0; s < fused_.store_count; ++s) row_free = row_free && fused_.stores[s].kind != StoreKind::row;
    auto each_view = [&](auto&& f) {
      bool all = true;
      for (FusedView& view : place.inputs) all = all && f(view);
      for (FusedView& view : place.outputs) all = all && f(view);
      return all;
    };
    if (may_merge) {
      for (int d = rank - 1; d > 0; --d) {  // dim d into dim d - 1
        if (outer[d] != 1 && outer[d - 1] != 1 &&
            !each_view([&](FusedView& v) { return v.outer_stride[d - 1] == v.outer_stride[d] * outer[d]; }))
          continue;
        each_view([&](FusedView& v) {
          if (outer[d] != 1) v.outer_stride[d - 1] = v.outer_stride[d];
          for (int e = d; e + 1 < rank; ++e) v.outer_stride[e] = v.outer_stride[e + 1];
          return true;
        });
        outer[d - 1] *= outer[d];
        for (int e = d; e + 1 < rank; ++e) outer[e] = outer[e + 1];
        --rank;
      }
      while (row_free && rank > 0) {  // the last outer dim into the row
        const int d = rank - 1;
        if (outer[d] != 1 && place.inner != 1 &&
            !each_view([&](FusedView& v) { return v.outer_stride[d] == v.row_stride * place.inner; }))
          break;
        // An operand that is read once a row must not start to vary along it.
        bool varies = false;
        for (std::size_t i = 0; i < place.inputs.size(); ++i)
          varies = varies || (!fused_.input_in_row[i] && place.inputs[i].outer_stride[d] != 0 && outer[d] != 1);
        // Nor must a result that is reduced along the row be kept along it, or the other way round.
        for (int k = 0; k < fused_.store_count; ++k)
          varies = varies || (fused_.stores[k].kind == StoreKind::accumulate && outer[d] != 1 &&
                              fused_.stores[k].along_row != (place.outputs[static_cast<std::size_t>(k)].outer_stride[d] == 0));
        if (varies) break;
        if (place.inner == 1) each_view([&](FusedView& v) { v.row_stride = outer[d] == 1 ? v.row_stride : v.outer_stride[d]; return true; });
        place.inner *= outer[d];
        --rank;
      }
    }
    call.outer_rank = rank;
    place.rows = 1;
    for (int d = 0; d < rank; ++d) {
      call.outer_extent[d] = outer[d];
      place.rows *= outer[d];
    }
  }

  void make_tiles() {
    constexpr std::int64_t tile_elements = 16384;
    std::int64_t scratch = 0;
    for (std::size_t p = 0; p < places_.size(); ++p) {
      Place& place = places_[p];
      place.first_tile = static_cast<int>(tiles_.size());
      place.unstored = scratch;
      scratch += place.unstored_bytes;
      if (place.idle) continue;
      if (split_phases_) {
        place.row_values = scratch;
        scratch += aligned(reduces_ * place.rows * 8);
      }
      std::int64_t row_step = std::max<std::int64_t>(1, tile_elements / std::max<std::int64_t>(place.inner, 1));
      std::int64_t inner_step = place.inner;
      if (fused_.phases == 1 && place.inner > 2 * tile_elements) inner_step = tile_elements;
      if (accumulates_) {
        // Each tile has results of its own; a bounded number keeps them small.
        constexpr std::int64_t most = 16;
        const std::int64_t across = place.inner == 0 ? 1 : (place.inner + inner_step - 1) / inner_step;
        if (across > most) inner_step = (place.inner + most - 1) / most / 64 * 64 + 64;
        row_step = std::max(row_step, (place.rows + most - 1) / most);
      }
      if (inner_step == 0) inner_step = 1;
      for (std::int64_t row = 0; row < place.rows; row += row_step)
        for (std::int64_t inner = 0; inner == 0 || inner < place.inner; inner += inner_step)  // empty rows have results too
          tiles_.push_back({static_cast<int>(p), row, std::min(row + row_step, place.rows), inner,
                            std::min(inner + inner_step, place.inner), 0});
      place.tiles = static_cast<int>(tiles_.size()) - place.first_tile;
      tile_cost_ = std::max(tile_cost_, static_cast<double>(std::min(row_step, place.rows) * std::min(inner_step, place.inner)));
      if (accumulates_) scratch = add_sums(static_cast<int>(p), scratch);
    }
    scratch_ = scratch;
  }

  std::int64_t add_sums(int p, std::int64_t scratch) {
    Place& place = places_[static_cast<std::size_t>(p)];
    std::int64_t bytes = 0;
    for (int s = 0; s < fused_.store_count; ++s) {
      if (fused_.stores[s].kind != StoreKind::accumulate) continue;
      // The private result has the extents that the output keeps, row-major.
      FusedView& view = place.outputs[static_cast<std::size_t>(s)];
      std::int64_t elements = 1;
      if (view.row_stride != 0 && !fused_.stores[s].along_row) {
        view.row_stride = 1;
        elements = place.inner;
      } else {
        view.row_stride = 0;
      }
      for (int d = place.call.outer_rank - 1; d >= 0; --d)
        if (view.outer_stride[d] != 0) {
          view.outer_stride[d] = elements;
          elements *= place.call.outer_extent[d];
        }
      sums_.push_back({place.output_at[static_cast<std::size_t>(s)], s, p, elements, bytes});
      bytes += aligned(elements * static_cast<std::int64_t>(size_of(fused_.stores[s].dtype)));
    }
    for (int t = place.first_tile; t < place.first_tile + place.tiles; ++t) {
      tiles_[static_cast<std::size_t>(t)].scratch = scratch;
      scratch += bytes;
    }
    return scratch;
  }

  void run_phases(Frame& frame, const double* uniforms, int begin, int end) const {
    const double cost = tile_cost_ * (0.3 + 0.25 * fused_.instr_count * (end - begin) / 4.0);
    parallel_for(static_cast<std::int64_t>(tiles_.size()), Cost{cost}, [&](std::int64_t t) {
      const Tile& tile = tiles_[static_cast<std::size_t>(t)];
      const Place& place = places_[static_cast<std::size_t>(tile.place)];
      FusedView inputs[Fused::max_inputs], outputs[Fused::max_outputs];
      for (std::size_t i = 0; i < place.inputs.size(); ++i) {
        inputs[i] = place.inputs[i];
        if (place.input_at[i] < 0) {
          inputs[i].data = const_cast<double*>(&zero);
          continue;
        }
        inputs[i].data = frame.pointers[static_cast<std::size_t>(place.input_at[i])] + reinterpret_cast<std::intptr_t>(inputs[i].data);
      }
      for (std::size_t o = 0; o < place.outputs.size(); ++o) {
        outputs[o] = place.outputs[o];
        outputs[o].data = place.output_at[o] < 0 ? frame.scratch + place.unstored
                                                 : frame.pointers[static_cast<std::size_t>(place.output_at[o])] +
                                                       reinterpret_cast<std::intptr_t>(outputs[o].data);
      }
      if (accumulates_) clear_private(frame, tile, outputs, begin == 0);
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
      if (split_phases_) {
        call.row_values = reinterpret_cast<double*>(frame.scratch + place.row_values);
        call.row_values_stride = place.rows;
      }
      call.past_caches = past_caches_;
      for (std::size_t o = 0; o < place.outputs.size(); ++o)
        for (std::size_t i = 0; i < place.inputs.size(); ++i)
          call.past_caches = call.past_caches && outputs[o].data != inputs[i].data;
      kernel_(call);
    });
  }

  template <class T>
  static void fill(void* data, std::int64_t n, Op op) {
    T value{};
    if (op != Op::sum) {
      using Limits = std::numeric_limits<T>;
      value = op == Op::max ? (Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest())
                            : (Limits::has_infinity ? Limits::infinity() : Limits::max());
    }
    std::fill_n(static_cast<T*>(data), n, value);
  }
  static void fill_identity(DType dtype, Op op, void* data, std::int64_t n) {
    dispatch(dtype, [&]<class T>() { fill<T>(data, n, op); },
             [&] { fail(errc::dtype_mismatch, "[reduce] dtype: ", name_of(dtype), " has no arithmetic"); });
  }

  void clear_private(Frame& frame, const Tile& tile, FusedView* outputs, bool clear) const {
    for (const Sum& sum : sums_) {
      if (sum.place != tile.place) continue;
      char* own = frame.scratch + tile.scratch + sum.offset;
      outputs[sum.output].data = own;
      if (clear) fill_identity(fused_.stores[sum.output].dtype, fused_.stores[sum.output].op, own, sum.elements);
    }
  }

  void combine(Frame& frame) const {
    if (sums_.empty()) return;
    // Sums of one output over the layers of a stack belong together: they are found by their pointer.
    std::vector<kernels::StridedSource> sources;
    std::vector<std::uint8_t> done(sums_.size(), 0);
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      if (done[i] || sums_[i].pointer < 0) continue;  // -1: another place stores this result
      const Sum& sum = sums_[i];
      const Store& store = fused_.stores[sum.output];
      sources.clear();
      for (std::size_t j = i; j < sums_.size(); ++j) {
        if (sums_[j].pointer != sum.pointer || sums_[j].output != sum.output) continue;
        done[j] = 1;
        const Place& place = places_[static_cast<std::size_t>(sums_[j].place)];
        for (int t = place.first_tile; t < place.first_tile + place.tiles; ++t)
          sources.push_back({frame.scratch + tiles_[static_cast<std::size_t>(t)].scratch + sums_[j].offset, {1}});
      }
      char* to = frame.pointers[static_cast<std::size_t>(sum.pointer)];
      const Shape extent{sum.elements};
      if (sources.empty()) fill_identity(store.dtype, store.op, to, sum.elements);
      else reduce_(store.dtype, store.op, to, {1}, sources, extent, false);
    }
  }

  /// Completes the row reductions that pass `phase` reads, over the places that hold the parts of a row.
  void complete_rows(Frame& frame, int phase) const {
    int reduce = 0;
    for (int i = 0; i < fused_.instr_count; ++i) {
      if (fused_.instrs[i].kind != InstrKind::reduce) continue;
      const int r = reduce++;
      if (fused_.instrs[i].phase != phase) continue;
      for (int w = 0; w < static_cast<int>(places_.size()); ++w) {
        const Coordinates at = work_.coordinates(w);
        if (!first_along_row(at)) continue;
        combine_rows(frame, fused_.instrs[i].op, r, at, w);
      }
    }
  }
  bool first_along_row(const Coordinates& at) const {
    for (std::size_t axis = 0; axis < at.size(); ++axis)
      if ((row_axes_ >> axis & 1) != 0 && at[axis] != 0) return false;
    return true;
  }
  double* row_values(Frame& frame, int place, int reduce) const {
    const Place& p = places_[static_cast<std::size_t>(place)];
    return reinterpret_cast<double*>(frame.scratch + p.row_values) + reduce * p.rows;
  }
  void combine_rows(Frame& frame, Op op, int reduce, const Coordinates& first, int first_place) const {
    std::vector<double*> parts;
    for (int w = 0; w < static_cast<int>(places_.size()); ++w) {
      const Coordinates at = work_.coordinates(w);
      bool same = true;
      for (std::size_t axis = 0; axis < at.size(); ++axis)
        same = same && ((row_axes_ >> axis & 1) != 0 || at[axis] == first[axis]);
      if (same && !places_[static_cast<std::size_t>(w)].idle) parts.push_back(row_values(frame, w, reduce));
    }
    if (parts.empty()) return;
    const std::int64_t rows = places_[static_cast<std::size_t>(first_place)].rows;
    for (std::int64_t row = 0; row < rows; ++row) {
      double total = parts[0][row];
      for (std::size_t k = 1; k < parts.size(); ++k) {
        const double part = parts[k][row];
        if (op == Op::sum) total += part;
        else if (part != part || (op == Op::max ? part > total : part < total)) total = part;
      }
      for (double* part : parts) part[row] = total;
    }
  }
};

}  // namespace tessera::runtime

#endif
