#ifndef TESSERA_RUNTIME_STEPS_FUSED_FUSED_PLACES_HPP
#define TESSERA_RUNTIME_STEPS_FUSED_FUSED_PLACES_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/fuse/fused.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/long_sums.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/executor/prepared_step.hpp>
#include <tessera/runtime/executor/work_grid.hpp>
#include <tessera/runtime/memory/past_caches.hpp>
#include <tessera/runtime/steps/fused/fragment_boxes.hpp>
#include <tessera/runtime/steps/fused/halo_reads.hpp>
#include <tessera/runtime/threads/team.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::runtime::inline TESSERA_ISA {

/// How a fused kernel is divided: one call per shard of its iteration space, tiles of each call, and private
/// accumulators per tile for results that are reduced over rows.
struct FusedPlaces {
  /// An operand or result of a kernel call: its shard, and the offset in the shard at which the call begins.
  struct PlacedOperand {
    static constexpr std::int32_t in_scratch = -2;

    std::int32_t pointer = -1;  ///< index in Frame::pointers of the shard; -1: this place doesn't read or store it
    std::int64_t offset = 0;    ///< bytes from that pointer, or from the start of scratch, to the first element
    FusedStrides strides{};
    FusedStrides unmerged{};  ///< strides before adjacent dims were merged

    bool is_stored() const { return pointer >= 0 || pointer == in_scratch; }
    void* data(const Frame& frame) const {
      return (pointer == in_scratch ? frame.scratch : frame.pointers[static_cast<std::size_t>(pointer)]) + offset;
    }
  };
  /// A kernel call on one shard of the iteration space.
  struct Place {
    FusedCall call;
    std::int64_t inner = 1, rows = 1;
    Growable<PlacedOperand> inputs, outputs;
    std::int64_t row_values = 0;                    // offset in scratch
    std::int64_t unstored = 0, unstored_bytes = 0;  // scratch that takes results which another place stores
    int first_tile = 0, tiles = 0;
    std::int64_t run_rows = 0;     // rows after which f32 sums are added to f64 sums; 0: all sums are short enough
    int first_sum = 0, sums = 0;   ///< range in FusedPlaces::sums
    std::uint64_t transposed = 0;  ///< bit i: a tile copies its part of input i to scratch, see find_transposed
    bool idle = false;             ///< has no tiles: it stores nothing, and no other place needs its row values
    bool joins_rows = false;       ///< its row values are combined with those of other places, maybe of other processes
  };
  struct Tile {
    int place;
    std::int64_t row_begin, row_end, inner_begin, inner_end;
    int first_part = 0;  ///< index in FusedPlaces::parts, of the first sum of its place
  };
  /// One accumulated result of one place.
  struct Sum {
    int pointer;
    int output;
    int place;
    std::int64_t elements;
    bool is_long = false;  ///< has f64 sums
  };
  /// The private accumulator of a tile for a sum: of those elements to which the tile's rows are added.
  struct Part {
    std::int64_t first = 0, elements = 0;
    std::int64_t scratch = 0;  ///< offset of its first element
  };

  WorkGrid work;
  HaloReads halos;  ///< at the start of scratch
  Growable<Place> places;
  Growable<Tile> tiles;
  Growable<Sum> sums;
  Growable<Part> parts;
  std::int64_t scratch_bytes = 0;
  int reduces = 0;             ///< number of reductions along the row
  bool accumulates = false;    ///< some result is reduced over rows
  bool split_phases = false;   ///< rows are sharded: their reductions are combined across shards between passes
  std::uint16_t row_axes = 0;  ///< mesh axes that the row is sharded over
  double tile_cost = 0;        ///< elements of the largest tile
  bool past_caches = false;
  int layers = 1;  ///< each device has a place for each layer of a Stack, one after the other

  FusedPlaces(const StepContext& c, const Fused& fused)
      : work(c.layout, c.step), halos(c), layout_(c.layout), fused_(fused), rank_(c.units[c.step.unit].rank) {
    make_places(c.units, c.step);
    make_tiles();
  }

  /// The device of a place, and the place of its layer on another device.
  Coordinates device_of(int place) const { return work.coordinates(place / layers); }
  int on_device(const Coordinates& device, int place) const { return work.index_of(device) * layers + place % layers; }
  const Part& part(const Tile& tile, int sum) const {
    const int own = sum - places[static_cast<std::size_t>(tile.place)].first_sum;
    return parts[static_cast<std::size_t>(tile.first_part + own)];
  }
  /// A range of the elements of a sum that contains all to which the rows of a call are added.
  static std::pair<std::int64_t, std::int64_t> summed_range(const FusedCall& call, const FusedStrides& view) {
    std::int64_t first = 0, last = 0, begin = call.row_begin, end = call.row_end - 1;
    for (int d = call.outer_rank - 1; d >= 0; --d) {
      const std::int64_t extent = call.outer_extent[d], stride = view.outer_stride[d];
      if (stride == 0 && d == 0) break;  // as for each run of a sum over all rows: divisions cost as much as the sum
      // If the rows span several indices of an outer dim, they cover this inner dim completely.
      const bool whole = begin / extent != end / extent;
      first += whole ? 0 : begin % extent * stride;
      last += whole ? (extent - 1) * stride : end % extent * stride;
      begin /= extent, end /= extent;
    }
    if (view.row_stride == 0) return {first, last + 1};
    return {first + call.inner_begin, last + call.inner_end};
  }

 private:
  const FrameLayout& layout_;
  const Fused& fused_;
  int rank_;

  static std::int64_t aligned(std::int64_t bytes) {
    return (bytes + block_alignment - 1) / block_alignment * block_alignment;
  }

  void make_places(const UnitsView& units, const PlanStep& step) {
    const Unit& unit = units[step.unit];
    const GraphPlan& plan = layout_.plan();
    const Shape& space = plan.shapes[static_cast<std::size_t>(unit.space)];
    Sharding sharding = replicated(rank_);
    for (int d = 0; d < rank_ && d < static_cast<int>(step.factors.size()); ++d)
      sharding.dims[d] = step.factors[static_cast<std::size_t>(d)];
    for (int i = 0; i < fused_.instr_count; ++i) reduces += fused_.instrs[i].kind == InstrKind::reduce ? 1 : 0;
    for (int s = 0; s < fused_.store_count; ++s)
      accumulates = accumulates || fused_.stores[s].kind == StoreKind::accumulate;
    if (rank_ > 0)
      for (std::uint8_t axis : sharding.dims[rank_ - 1]) row_axes = static_cast<std::uint16_t>(row_axes | 1u << axis);
    split_phases = row_axes != 0 && fused_.phases > 1;

    const int layer_dim = find_layers(units, step);
    const FragmentBoxes fragments(plan, units, step, layout_.mesh());
    places.reserve(static_cast<std::size_t>(work.count()) * static_cast<std::size_t>(layers));
    for (int w = 0; w < work.count(); ++w)
      for (int l = 0; l < layers; ++l) {
        Box whole = shard_box(space, sharding, layout_.mesh(), work.coordinates(w));
        if (layer_dim >= 0) {
          whole.begin[static_cast<std::size_t>(layer_dim)] = l;
          whole.end[static_cast<std::size_t>(layer_dim)] = l + 1;
        }
        for (const Box& box : fragments.cut(whole)) add_place(units, step, fragments, box, w, l);
      }
    std::int64_t written = 0;
    for (int s = 0; s < fused_.store_count; ++s)
      if (fused_.stores[s].kind == StoreKind::element)
        written += layout_.value(step.outputs[static_cast<std::size_t>(s)]).stored_bytes;
    past_caches = written >= past_caches_from();  // FusedStep excepts calls that write over an operand
  }

  /// The dim of the iteration space that counts the layers of stacked values, each of which has places of its own; -1
  /// where no value is stacked.
  int find_layers(const UnitsView& units, const PlanStep& step) {
    int layer_dim = -1;
    const auto find = [&](int value, const UnitOperand& operand) {
      if (value < 0 || !layout_.value(value).stacked) return;
      for (int d = 0; d < rank_; ++d)
        if (operand.dim_at[d] == 0) {
          layer_dim = d;
          layers = layout_[value].layers;
        }
    };
    for (std::size_t i = 0; i < step.inputs.size(); ++i)
      find(step.inputs[i], units.input(step.unit, static_cast<int>(i)));
    for (std::size_t o = 0; o < step.outputs.size(); ++o)
      find(step.outputs[o], units.output(step.unit, static_cast<int>(o)));
    return layer_dim;
  }

  /// Adds the call on a box of the shard of place `w` of the step, and of a layer.
  void add_place(const UnitsView& units, const PlanStep& step, const FragmentBoxes& fragments, const Box& box, int w,
                 int layer) {
    const Coordinates at = work.coordinates(w);
    const Shape local = extents(box);
    Place place;
    place.inputs.reserve(step.inputs.size());
    place.outputs.reserve(step.outputs.size());
    for (int d = 0; d < rank_; ++d) place.call.global_offset[d] = box.begin[static_cast<std::size_t>(d)];
    bool lacks_input = false;
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      const int value = step.inputs[i];
      place.inputs.push_back(placed(value, units.input(step.unit, static_cast<int>(i)), fragments, box, at, layer));
      lacks_input = lacks_input || !layout_.holds(value, at);
      if (!counts_at(at, step.added_over & ~unsigned{layout_.value(value).sharding.unreduced}))
        place.inputs.back().pointer = -1;
    }
    bool makes = false;
    for (std::size_t o = 0; o < step.outputs.size(); ++o) {
      const int value = step.outputs[o];
      place.outputs.push_back(placed(value, units.output(step.unit, static_cast<int>(o)), fragments, box, at, layer));
      const ValueLayout& own = layout_[value];
      const auto shard = static_cast<std::size_t>(place.outputs.back().pointer - own.first);
      if (work.stores(at, layout_.value(value).sharding) && layout_.holds(value, at)) {
        makes = makes || volume(extents(own.boxes[shard])) > 0;
      } else {
        place.outputs.back().pointer = -1;
        std::int64_t elements = 1;  // a row of 0 elements still stores its reduction: 1 element
        for (std::int64_t extent : local) elements *= std::max<std::int64_t>(extent, 1);
        place.unstored_bytes = std::max(place.unstored_bytes, aligned(elements * 8));
      }
    }
    // A place that stores nothing still runs if rows are sharded: other places need its share of the row reductions.
    // Which places have a share must not depend on what this process stores.
    const bool divided = spans_processes(layout_.mesh());
    place.idle = !makes && (lacks_input || !split_phases || (volume(local) == 0 && !divided));
    if (!work.is_here(w)) place.idle = true;
    place.joins_rows = divided ? !lacks_input : !place.idle;
    if (place.idle) place.unstored_bytes = 0;
    // The strides of an empty shard are arbitrary, so they must not decide which dims merge.
    set_extents(place, local, !uses_index() && volume(local) > 0);
    places.push_back(std::move(place));
  }

  PlacedOperand placed(int value, const UnitOperand& operand, const FragmentBoxes& fragments, const Box& box,
                       const Coordinates& at, int layer) const {
    Shape moved(layout_.value(value).shape.size(), 0);  // how far elements are from their indices in the operand
    const bool is_fragment = layout_.value(value).role == ValueRole::assembled;
    if (is_fragment) {
      const PlanValue& own = layout_.value(value);
      const Fragment* const from = fragments.fragment_in(box, own, operand);
      if (from == nullptr || from->value < 0) return {};  // zeros
      for (std::size_t d = 0; d < moved.size(); ++d) moved[d] = from->from[d] - from->box.begin[d];
      value = from->value;
    }
    const ValueLayout& layout = layout_[value];
    const int shard = layout.index(at, layout_.value(value).stacked ? layer : 0);
    Box own = layout.boxes[static_cast<std::size_t>(shard)];
    kernels::Strides strides = layout.strides[static_cast<std::size_t>(shard)];
    PlacedOperand made;
    made.pointer = layout.first + shard;
    if (is_fragment)
      if (const HaloReads::Copied* const copied = halos.find(value, read_box(operand, box, moved), at)) {
        made.pointer = PlacedOperand::in_scratch;
        made.offset = copied->offset;
        own = copied->halo.box;
        strides = kernels::contiguous_strides(extents(own));
      }
    for (int d = 0; d < rank_; ++d) {
      std::int64_t stride = 0;
      if (const int dim = operand.dim_at[d]; dim >= 0) {
        stride = strides[static_cast<std::size_t>(dim)];
        const auto at_dim = static_cast<std::size_t>(dim);
        made.offset +=
            (box.begin[static_cast<std::size_t>(d)] + moved[at_dim] - own.begin[at_dim]) * stride * layout.element;
      }
      if (d + 1 < rank_)
        made.strides.outer_stride[d] = stride;
      else
        made.strides.row_stride = stride;
    }
    made.unmerged = made.strides;
    return made;
  }

  /// The elements that an operand reads in a box, as indices in the value of its fragment.
  Box read_box(const UnitOperand& operand, const Box& box, const Shape& moved) const {
    Box read{moved, moved};
    for (std::size_t dim = 0; dim < moved.size(); ++dim) ++read.end[dim];
    for (int d = 0; d < rank_; ++d)
      if (const int dim = operand.dim_at[d]; dim >= 0) {
        const auto at = static_cast<std::size_t>(dim), space = static_cast<std::size_t>(d);
        read.begin[at] = moved[at] + box.begin[space];
        read.end[at] = moved[at] + box.end[space];
      }
    return read;
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

  /// Sets the extents of the call. Adjacent dims that are contiguous in every operand merge, so that rows are long.
  void set_extents(Place& place, const Shape& local, bool may_merge) const {
    FusedCall& call = place.call;
    std::int64_t outer[8]{};
    int rank = rank_ > 0 ? rank_ - 1 : 0;
    for (int d = 0; d < rank; ++d) outer[d] = local[static_cast<std::size_t>(d)];
    place.inner = rank_ > 0 ? local[static_cast<std::size_t>(rank_ - 1)] : 1;
    bool row_free = reduces == 0;
    for (int s = 0; s < fused_.store_count; ++s) row_free = row_free && fused_.stores[s].kind != StoreKind::row;
    auto each_operand = [&](auto&& f) {
      bool all = true;
      for (PlacedOperand& input : place.inputs) all = all && f(input.strides);
      for (PlacedOperand& output : place.outputs) all = all && f(output.strides);
      return all;
    };
    if (may_merge) {
      for (int d = rank - 1; d > 0; --d) {  // merges dim d into dim d - 1
        if (outer[d] != 1 && outer[d - 1] != 1 &&
            !each_operand([&](FusedStrides& v) { return v.outer_stride[d - 1] == v.outer_stride[d] * outer[d]; }))
          continue;
        each_operand([&](FusedStrides& v) {
          if (outer[d] != 1) v.outer_stride[d - 1] = v.outer_stride[d];
          for (int e = d; e + 1 < rank; ++e) v.outer_stride[e] = v.outer_stride[e + 1];
          return true;
        });
        outer[d - 1] *= outer[d];
        for (int e = d; e + 1 < rank; ++e) outer[e] = outer[e + 1];
        --rank;
      }
      while (row_free && rank > 0) {  // merges the last outer dim into the row
        const int d = rank - 1;
        if (outer[d] != 1 && place.inner != 1 &&
            !each_operand([&](FusedStrides& v) { return v.outer_stride[d] == v.row_stride * place.inner; }))
          break;
        // An operand that the kernel reads once per row must be constant along the merged row.
        bool varies = false;
        for (std::size_t i = 0; i < place.inputs.size(); ++i)
          varies = varies || (!fused_.input_in_row[i] && place.inputs[i].strides.outer_stride[d] != 0 && outer[d] != 1);
        // A result must be reduced along both dims or along neither: the kernel treats the row alike throughout.
        for (int k = 0; k < fused_.store_count; ++k)
          varies = varies || (fused_.stores[k].kind == StoreKind::accumulate && outer[d] != 1 &&
                              fused_.stores[k].along_row !=
                                  (place.outputs[static_cast<std::size_t>(k)].strides.outer_stride[d] == 0));
        if (varies) break;
        if (place.inner == 1)
          each_operand([&](FusedStrides& v) {
            v.row_stride = outer[d] == 1 ? v.row_stride : v.outer_stride[d];
            return true;
          });
        place.inner *= outer[d];
        --rank;
      }
      if (row_free && !accumulates && fused_.phases == 1) {
        turn_short_rows(place, outer, rank);
        find_transposed(place, outer, rank);
      }
    }
    call.outer_rank = rank;
    place.rows = 1;
    for (int d = 0; d < rank; ++d) {
      call.outer_extent[d] = outer[d];
      place.rows *= outer[d];
    }
  }

  /// Makes the longest outer dim the row where rows are short, such as those of a column that a roll moves across the
  /// border: a call of the kernel for each row would cost more than the elements of the row.
  void turn_short_rows(Place& place, std::int64_t* outer, int rank) const {
    constexpr std::int64_t least = 16;
    int longest = 0;
    for (int d = 1; d < rank; ++d) longest = outer[d] > outer[longest] ? d : longest;
    if (rank == 0 || place.inner >= least || outer[longest] < 4 * least) return;
    for (std::size_t i = 0; i < place.inputs.size(); ++i)
      if (!fused_.input_in_row[i]) return;  // the kernel reads it once for a row
    std::swap(outer[longest], place.inner);
    for (auto* operands : {&place.inputs, &place.outputs})
      for (PlacedOperand& own : *operands) std::swap(own.strides.outer_stride[longest], own.strides.row_stride);
  }

  /// Finds inputs that are contiguous along an outer dim instead of the row, and makes that dim the innermost outer
  /// dim. A tile then is a box of rows along this dim. It reads whole cache lines of these inputs once, as it copies
  /// its part to scratch; the kernel would read one element of a line at a time.
  void find_transposed(Place& place, std::int64_t* outer, int rank) const {
    constexpr std::int64_t least = 16;
    int turned = -1;
    std::int64_t most = 0;
    const auto is_transposed = [&](std::size_t i, int d) {
      const FusedStrides& own = place.inputs[i].strides;
      return place.inputs[i].is_stored() && fused_.input_in_row[i] && own.outer_stride[d] == 1 && own.row_stride != 1 &&
             own.row_stride != 0;
    };
    for (int d = 0; d < rank; ++d) {
      std::int64_t bytes = 0;
      for (std::size_t i = 0; i < place.inputs.size(); ++i)
        if (is_transposed(i, d)) bytes += static_cast<std::int64_t>(size_of(fused_.inputs[i]));
      if (place.inner >= least && outer[d] >= least && bytes > most) turned = d, most = bytes;
    }
    if (turned < 0) return;
    for (std::size_t i = 0; i < place.inputs.size(); ++i)
      if (is_transposed(i, turned)) place.transposed |= std::uint64_t{1} << i;
    std::swap(outer[turned], outer[rank - 1]);
    for (auto* operands : {&place.inputs, &place.outputs})
      for (PlacedOperand& own : *operands)
        std::swap(own.strides.outer_stride[turned], own.strides.outer_stride[rank - 1]);
  }

  void make_tiles() {
    constexpr std::int64_t tile_elements = 16384;
    std::int64_t bytes = halos.bytes();
    tiles.reserve(places.size());
    for (std::size_t p = 0; p < places.size(); ++p) {
      Place& place = places[p];
      place.first_tile = static_cast<int>(tiles.size());
      place.unstored = bytes;
      bytes += place.unstored_bytes;
      if (place.idle) continue;
      if (split_phases) {
        place.row_values = bytes;
        bytes += aligned(reduces * place.rows * 8);
      }
      std::int64_t row_step = std::max<std::int64_t>(1, tile_elements / std::max<std::int64_t>(place.inner, 1));
      std::int64_t inner_step = place.inner;
      if (fused_.phases == 1 && place.inner > 2 * tile_elements) inner_step = tile_elements;
      if (accumulates) {
        // The accumulators of all tiles are combined, so the number of tiles is bounded.
        constexpr std::int64_t most = 16;
        const std::int64_t across = place.inner == 0 ? 1 : (place.inner + inner_step - 1) / inner_step;
        if (across > most) inner_step = (place.inner + most - 1) / most / 64 * 64 + 64;
        const std::int64_t along = std::max<std::int64_t>(1, most / across);
        row_step = std::max(row_step, place.inner == 0 ? place.rows : (place.rows + along - 1) / along);
      }
      std::int64_t divided = place.rows;  // how many rows are divided into parts of row_step
      if (place.transposed != 0) {
        constexpr std::int64_t box_rows = 128, box_columns = 128;
        row_step = box_rows;
        inner_step = box_columns;
        divided = place.call.outer_extent[place.call.outer_rank - 1];
      }
      if (inner_step == 0) inner_step = 1;
      for (std::int64_t row = 0, end = 0; row < place.rows; row = end) {
        end = std::min(row + row_step, (row / divided + 1) * divided);
        for (std::int64_t inner = 0; inner == 0 || inner < place.inner;
             inner += inner_step)  // at least one tile: a reduction of 0 elements stores its identity
          tiles.push_back({static_cast<int>(p), row, end, inner, std::min(inner + inner_step, place.inner)});
      }
      place.tiles = static_cast<int>(tiles.size()) - place.first_tile;
      tile_cost =
          std::max(tile_cost, static_cast<double>(std::min(row_step, place.rows) * std::min(inner_step, place.inner)));
      if (accumulates) bytes = add_sums(static_cast<int>(p), bytes);
    }
    scratch_bytes = bytes;
  }

  /// Gives a sum of more than sum_run terms per element f64 sums. The kernel keeps a full reduction in f64 anyway.
  void add_long_sum(Place& place, Sum& sum) const {
    if (place.rows == 0 || (fused_.stores[sum.output].along_row && sum.elements == 1)) return;
    const FusedStrides& view = place.outputs[static_cast<std::size_t>(sum.output)].strides;
    std::int64_t rows = 1, terms = 1;  // `rows` consecutive rows add `terms` terms to each element
    for (int d = place.call.outer_rank - 1; d >= 0; --d) {
      const bool reduced = view.outer_stride[d] == 0;
      const std::int64_t extent = place.call.outer_extent[d];
      const std::int64_t taken = reduced ? std::min(extent, kernels::sum_run / terms) : extent;
      rows *= taken;
      if (reduced) terms *= taken;
      if (taken < extent) break;
    }
    if (rows >= place.rows) return;
    place.run_rows = place.run_rows == 0 ? rows : std::min(rows, place.run_rows);
    sum.is_long = true;
  }

  std::int64_t add_sums(int p, std::int64_t scratch) {
    Place& place = places[static_cast<std::size_t>(p)];
    place.first_sum = static_cast<int>(sums.size());
    for (int s = 0; s < fused_.store_count; ++s) {
      if (fused_.stores[s].kind != StoreKind::accumulate) continue;
      // Private accumulators are contiguous and have only the dims that the output keeps.
      FusedStrides& view = place.outputs[static_cast<std::size_t>(s)].strides;
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
      sums.push_back({place.outputs[static_cast<std::size_t>(s)].pointer, s, p, elements});
      if (fused_.stores[s].reduction == Reduction::sum && fused_.stores[s].dtype == DType::f32)
        add_long_sum(place, sums.back());
    }
    place.sums = static_cast<int>(sums.size()) - place.first_sum;
    for (int t = place.first_tile; t < place.first_tile + place.tiles; ++t) {
      Tile& tile = tiles[static_cast<std::size_t>(t)];
      tile.first_part = static_cast<int>(parts.size());
      FusedCall call = place.call;
      call.row_begin = tile.row_begin;
      call.row_end = tile.row_end;
      call.inner_begin = tile.inner_begin;
      call.inner_end = tile.inner_end;
      for (int k = place.first_sum; k < place.first_sum + place.sums; ++k) {
        const Sum& sum = sums[static_cast<std::size_t>(k)];
        const auto [first, last] = summed_range(call, place.outputs[static_cast<std::size_t>(sum.output)].strides);
        const Part part{first, std::clamp<std::int64_t>(last - first, 0, sum.elements), scratch};
        parts.push_back(part);
        scratch += aligned(part.elements * static_cast<std::int64_t>(size_of(fused_.stores[sum.output].dtype)));
      }
    }
    return scratch;
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
