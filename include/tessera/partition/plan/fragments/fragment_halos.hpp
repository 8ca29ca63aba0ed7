#ifndef TESSERA_PARTITION_PLAN_FRAGMENTS_FRAGMENT_HALOS_HPP
#define TESSERA_PARTITION_PLAN_FRAGMENTS_FRAGMENT_HALOS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/integers/checked.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/source.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/partition/reshard/chunks.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// A box of elements that a device reads in the shard of another device.
struct HaloBox {
  std::int32_t value = -1;  ///< the value that is read
  Coordinates holder;       ///< the device that sends the elements
  Box box;                  ///< global indices in the value
};

/// Adds up what devices send so that others can read boxes in their shards.
class HaloTotals {
 public:
  /// `grid`: the devices that send different elements. `source`: the line of the step that reads.
  constexpr HaloTotals(const ShardGrid& grid, Source source) : grid_(grid), source_(source) {}

  /// Adds a box that the device at `reader` receives.
  constexpr void add(const HaloBox& halo, DType dtype, const Coordinates& reader) {
    const std::uint16_t axes = axes_between(reader, halo.holder);
    for (Permute& permute : permutes_)
      if (permute.value == halo.value && permute.info.axes == axes) return add(permute, halo);
    Permute made{halo.value, {}, {}};
    made.info.kind = Collective::permute;
    made.info.axes = axes;
    made.info.dtype = dtype;
    made.info.source = source_;
    made.info.why = "halo";
    made.by_device.resize(static_cast<std::size_t>(grid_.count()));
    add(made, halo);
    // In the order of their axes, not in that in which operands read them.
    permutes_.push_back(std::move(made));
    for (std::size_t k = permutes_.size() - 1; k > 0 && permutes_[k].info.axes < permutes_[k - 1].info.axes; --k)
      std::swap(permutes_[k], permutes_[k - 1]);
  }

  /// The permutes that send these boxes: for each value, one for each set of axes along which its elements move.
  constexpr Growable<CollectiveInfo> collectives() const {
    Growable<CollectiveInfo> made;
    for (const Permute& permute : permutes_) {
      made.push_back(permute.info);
      for (const std::int64_t bytes : permute.by_device)
        if (bytes > made.back().wire_bytes) made.back().payload_bytes = made.back().wire_bytes = bytes;
    }
    return made;
  }

 private:
  struct Permute {
    std::int32_t value;
    CollectiveInfo info;
    Growable<std::int64_t> by_device;  // bytes that it sends
  };
  ShardGrid grid_;
  Source source_;
  Growable<Permute> permutes_;

  constexpr void add(Permute& permute, const HaloBox& halo) const {
    add_times(permute.by_device[static_cast<std::size_t>(grid_.index_of(halo.holder))], volume(extents(halo.box)),
              static_cast<std::int64_t>(size_of(permute.info.dtype)), "bytes of a halo", source_);
  }

  static constexpr std::uint16_t axes_between(const Coordinates& a, const Coordinates& b) {
    unsigned axes = 0;
    for (std::size_t axis = 0; axis < a.size(); ++axis) axes |= a[axis] != b[axis] ? 1u << axis : 0u;
    return static_cast<std::uint16_t>(axes);
  }
};

/// What devices have to receive before a step can read its assembled operands: the elements of fragments that are in
/// shards of other devices. Example: of x [8] on two devices, the roll by 1 reads x[7] on device 0 and x[3] on device 1
/// from the other device, and all other elements where they are.
class FragmentHalos {
 public:
  constexpr FragmentHalos(const GraphPlan& plan, const PlanStep& step, const Mesh& mesh)
      : plan_(plan), step_(step), mesh_(mesh) {
    for (const std::int32_t v : step.inputs) {
      if (!is_assembled(v)) continue;
      axes_ |= plan.values[size(v)].sharding.used_axes();
      plan.each_source(v, [&](int source) { axes_ |= plan.values[size(source)].sharding.used_axes(); });
    }
    grid_ = ShardGrid(mesh, axes_);
  }

  /// The devices that read different boxes: one for each combination of coordinates along the axes that split an
  /// assembled operand or a value with its elements. Without such axes, no device reads a shard of another.
  constexpr const ShardGrid& grid() const { return grid_; }
  constexpr unsigned axes() const { return axes_; }

  /// What the device at `at` reads in other shards. No element is in two boxes where one box without further elements
  /// contains both.
  constexpr Growable<HaloBox> read_by(const Coordinates& at) const {
    Growable<HaloBox> halos;
    for (const std::int32_t v : step_.inputs) {
      if (!is_assembled(v) || axes_ == 0) continue;
      const PlanValue& value = plan_.values[size(v)];
      const Box own = shard_box(value.shape, value.sharding, mesh_, at);
      for (int f = 0; f < value.fragment_count; ++f) {
        const Fragment& fragment = plan_.fragments[size(value.first_fragment + f)];
        if (fragment.value < 0) continue;
        Box read = intersect(own, fragment.box);
        if (read.empty()) continue;
        for (std::size_t d = 0; d < read.begin.size(); ++d) {
          read.begin[d] += fragment.from[d] - fragment.box.begin[d];
          read.end[d] += fragment.from[d] - fragment.box.begin[d];
        }
        add_shards(fragment.value, read, at, halos);
      }
    }
    return halos;
  }

  /// The permutes that send these elements.
  constexpr Growable<CollectiveInfo> collectives() const {
    HaloTotals sent(grid_, step_.source);
    for (int place = 0; place < grid_.count() && axes_ != 0; ++place) {
      const Coordinates at = grid_.coordinates(place);
      for (const HaloBox& halo : read_by(at)) sent.add(halo, plan_.values[size(halo.value)].dtype, at);
    }
    return sent.collectives();
  }

 private:
  const GraphPlan& plan_;
  const PlanStep& step_;
  const Mesh& mesh_;
  ShardGrid grid_;
  unsigned axes_ = 0;

  static constexpr std::size_t size(std::int64_t i) { return static_cast<std::size_t>(i); }
  constexpr bool is_assembled(int v) const { return v >= 0 && plan_.values[size(v)].role == ValueRole::assembled; }

  /// Adds the parts of a box of a value that are in other shards than that of the device at `at`.
  constexpr void add_shards(int v, const Box& read, const Coordinates& at, Growable<HaloBox>& halos) const {
    const PlanValue& value = plan_.values[size(v)];
    Growable<HaloBox> parts;
    parts.push_back({v, at, read});
    for (std::size_t d = 0; d < read.begin.size(); ++d) {
      const AxisList& axes = value.sharding.dims[d];
      if (axes.empty()) continue;
      const std::int64_t count = shard_count(value.sharding, mesh_, static_cast<int>(d));
      const std::int64_t chunk = rows_of_chunk(value.shape[d], count);
      Growable<HaloBox> divided;
      for (const HaloBox& part : parts)
        for (std::int64_t row = read.begin[d], end = 0; row < read.end[d]; row = end) {
          std::int64_t shard = row / chunk;
          end = (shard + 1) * chunk < read.end[d] ? (shard + 1) * chunk : read.end[d];
          divided.push_back(part);
          divided.back().box.begin[d] = row;
          divided.back().box.end[d] = end;
          for (std::size_t a = axes.size(); a-- > 0; shard /= mesh_.axis_size(axes[a]))
            divided.back().holder[axes[a]] = static_cast<int>(shard % mesh_.axis_size(axes[a]));
        }
      parts = std::move(divided);
    }
    for (const HaloBox& part : parts)
      if (!(part.holder == at)) add(part, halos);
  }
  /// Adds a box, joined with those from the same shard where the joined box has no more elements than they.
  static constexpr void add(HaloBox halo, Growable<HaloBox>& halos) {
    for (std::size_t i = 0; i < halos.size();) {
      const HaloBox& own = halos[i];
      Box both = halo.box;
      for (std::size_t d = 0; d < both.begin.size(); ++d) {
        if (own.box.begin[d] < both.begin[d]) both.begin[d] = own.box.begin[d];
        if (own.box.end[d] > both.end[d]) both.end[d] = own.box.end[d];
      }
      const bool joins = own.value == halo.value && own.holder == halo.holder &&
                         volume(extents(both)) <= volume(extents(own.box)) + volume(extents(halo.box));
      if (!joins) {
        ++i;
        continue;
      }
      halo.box = both;
      halos[i] = halos.back();
      halos.pop_back();
      i = 0;
    }
    halos.push_back(halo);
  }
};

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
