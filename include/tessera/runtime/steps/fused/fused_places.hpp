#ifndef TESSERA_RUNTIME_STEPS_FUSED_FUSED_PLACES_HPP
#define TESSERA_RUNTIME_STEPS_FUSED_FUSED_PLACES_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/fuse/fused.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/executor/prepared_step.hpp>
#include <tessera/runtime/executor/work_grid.hpp>
#include <tessera/runtime/memory/past_caches.hpp>
#include <tessera/runtime/steps/fused/fragment_boxes.hpp>
#include <tessera/runtime/steps/fused/fused_place.hpp>
#include <tessera/runtime/steps/fused/fused_tiles.hpp>
#include <tessera/runtime/steps/fused/halo_reads.hpp>
#include <tessera/runtime/steps/fused/place_extents.hpp>
#include <tessera/runtime/threads/team.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::runtime::inline TESSERA_ISA {

/// How a fused kernel is divided: one call per shard of its iteration space, and the tiles of each call.
struct FusedPlaces : FusedTiles {
  using PlacedOperand = FusedOperand;
  using Place = FusedPlace;

  WorkGrid work;
  HaloReads halos;             ///< at the start of scratch
  std::uint16_t row_axes = 0;  ///< mesh axes that the row is sharded over
  bool past_caches = false;
  int layers = 1;  ///< each device has a place for each layer of a Stack, one after the other

  FusedPlaces(const StepContext& c, const Fused& fused)
      : FusedTiles(fused), work(c.layout, c.step), halos(c), layout_(c.layout), rank_(c.units[c.step.unit].rank) {
    make_places(c.units, c.step);
    make_tiles(halos.bytes());
  }

  /// The device of a place, and the place of its layer on another device.
  Coordinates device_of(int place) const { return work.coordinates(place / layers); }
  int on_device(const Coordinates& device, int place) const { return work.index_of(device) * layers + place % layers; }

 private:
  const FrameLayout& layout_;
  int rank_;

  void make_places(const UnitsView& units, const PlanStep& step) {
    const Unit& unit = units[step.unit];
    const GraphPlan& plan = layout_.plan();
    const Shape& space = plan.shapes[static_cast<std::size_t>(unit.space)];
    Sharding sharding = replicated(rank_);
    for (int d = 0; d < rank_ && d < static_cast<int>(step.factors.size()); ++d)
      sharding.dims[d] = step.factors[static_cast<std::size_t>(d)];
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
    PlaceExtents(fused_, rank_).set(place, local);
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
};

}  // namespace tessera::runtime::inline TESSERA_ISA

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
