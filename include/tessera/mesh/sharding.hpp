#ifndef TESSERA_MESH_SHARDING_HPP
#define TESSERA_MESH_SHARDING_HPP
#include <tessera/base/push_macros.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/base/integers/hash.hpp>
#include <tessera/base/monoid.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/mesh/sub_axes.hpp>

namespace tessera {

/// The mesh axes that split one dim, as indices into the mesh, the most significant first. In a sharding with cuts they
/// are indices into its sub-axes.
using AxisList = InlineVector<std::uint8_t, max_axes_per_dim>;

/// How a tensor of known rank is sharded over a mesh: a spec with its axis names resolved to indices, and the axes over
/// which the value is partial (unreduced). Over all other axes it is replicated. A sharding by sub-axes has `cuts`; its
/// indices then refer to the mesh with these cuts, see refined_mesh.
struct Sharding {
  std::uint8_t rank = 0;
  AxisList dims[max_rank]{};
  std::uint16_t unreduced = 0;           ///< one bit a mesh axis
  Reduction reduction = Reduction::sum;  ///< how the parts of an unreduced value combine
  std::uint8_t priority[max_rank]{};  ///< 0: split in computations too; above 0: split only in storage, gathered on use
  AxisCuts cuts{};                    ///< of the mesh's axes into the sub-axes that it uses; usually none

  /// The mesh axes over which shards differ, one bit each.
  constexpr std::uint16_t used_axes() const {
    std::uint16_t mask = unreduced;
    for (int dim = 0; dim < rank; ++dim)
      for (std::uint8_t axis : dims[dim]) mask = static_cast<std::uint16_t>(mask | 1u << axis);
    return mask;
  }
  constexpr bool uses(int axis) const { return used_axes() >> axis & 1; }
  constexpr bool is_replicated() const { return used_axes() == 0; }
  constexpr Sharding without_unreduced() const {
    Sharding reduced = *this;
    reduced.unreduced = 0;
    reduced.reduction = Reduction::sum;
    return reduced;
  }
  constexpr Sharding without_priority() const {
    Sharding plain = *this;
    for (std::uint8_t& p : plain.priority) p = 0;
    return plain;
  }

  constexpr std::uint64_t hash() const {
    std::uint64_t hash = hash_mix(rank, std::uint64_t{unreduced} << 8 | static_cast<std::uint64_t>(reduction));
    for (int dim = 0; dim < rank; ++dim) {
      std::uint64_t word = priority[dim];
      for (std::uint8_t axis : dims[dim]) word = word << 8 | (axis + 1u);
      hash = hash_mix(hash, word);
    }
    return cuts.empty() ? hash : hash_mix(hash, cuts.word);
  }
  friend constexpr bool operator==(const Sharding& a, const Sharding& b) {
    if (a.rank != b.rank || a.unreduced != b.unreduced || a.reduction != b.reduction || a.cuts != b.cuts) return false;
    for (int dim = 0; dim < a.rank; ++dim)
      if (a.priority[dim] != b.priority[dim] || !(a.dims[dim] == b.dims[dim])) return false;
    return true;
  }
};

constexpr Sharding replicated(int rank) {
  Sharding sharding;
  sharding.rank = static_cast<std::uint8_t>(rank);
  return sharding;
}

namespace detail {

/// A sharding by sub-axes, in a form that does not depend on the cuts of a mesh.
class SubAxisSharding {
 public:
  SubAxisList dims[max_rank], unreduced;

  constexpr SubAxisSharding() = default;
  constexpr SubAxisSharding(const Sharding& sharding, const Mesh& mesh) {
    const SubAxisTable table = sub_axes(mesh, sharding.cuts);
    for (int dim = 0; dim < sharding.rank; ++dim)
      for (std::uint8_t axis : sharding.dims[dim]) add_sub_axis(dims[dim], table[axis]);
    for (std::size_t axis = 0; axis < table.size(); ++axis)
      if (sharding.unreduced >> axis & 1) add_sub_axis(unreduced, table[axis]);
  }
  /// The cuts that this sharding needs. Errors: `capacity`.
  constexpr AxisCuts cuts(const Mesh& mesh) const {
    AxisCuts found;
    for (const SubAxisList& list : dims) add_cuts(list, mesh, found);
    add_cuts(unreduced, mesh, found);
    return found;
  }
  /// Writes the axes as indices into a mesh with the cuts `cut`. False where a dim has more axes than an AxisList
  /// holds, or where a cut is missing.
  constexpr bool write(Sharding& sharding, const Mesh& mesh, const AxisCuts& cut) const {
    const SubAxisTable table = sub_axes(mesh, cut);
    bool room = true;
    for (int dim = 0; dim < sharding.rank; ++dim) {
      sharding.dims[dim].clear();
      for (const SubAxis& sub_axis : dims[dim]) {
        std::int64_t size = 1;
        for_each_index(sub_axis, table, [&](std::uint8_t axis) {
          size *= table[axis].size;
          if (sharding.dims[dim].size() < AxisList::capacity())
            sharding.dims[dim].push_back(axis);
          else
            room = false;
        });
        room = room && size == sub_axis.size;
      }
    }
    sharding.unreduced = 0;
    for (const SubAxis& sub_axis : unreduced)
      for_each_index(sub_axis, table, [&](std::uint8_t axis) {
        sharding.unreduced = static_cast<std::uint16_t>(sharding.unreduced | 1u << axis);
      });
    sharding.cuts = cut;
    return room;
  }
};

/// The same sharding with only the cuts that it needs.
constexpr Sharding with_fewest_cuts(const Sharding& sharding, const Mesh& mesh) {
  const SubAxisSharding by_sub_axis(sharding, mesh);
  const AxisCuts cuts = by_sub_axis.cuts(mesh);
  Sharding made = sharding;
  if (!(cuts == sharding.cuts)) by_sub_axis.write(made, mesh, cuts);
  return made;
}
}  // namespace detail

/// The same sharding on the mesh with these cuts, which include its own: a sharding of refined_mesh(mesh, cuts).
/// Errors: `capacity` for a dim that more axes split than an AxisList holds.
constexpr Sharding refined_sharding(const Sharding& sharding, const Mesh& mesh, const AxisCuts& cuts) {
  Sharding made = sharding;
  if (!(cuts == sharding.cuts) && !detail::SubAxisSharding(sharding, mesh).write(made, mesh, cuts))
    detail::check_entry_axes(max_axes_per_dim + 1);
  made.cuts = {};
  return made;
}

/// The canonical form of a sharding: without axes of size 1, which split nothing, and with only the cuts that it needs.
/// Two shardings of a mesh are equivalent if their canonical forms are equal. Plans use canonical shardings; tensors
/// keep the sharding that the user wrote.
constexpr Sharding canonical(const Sharding& sharding, const Mesh& mesh) {
  if (!sharding.cuts.empty()) {
    const Sharding fewest = detail::with_fewest_cuts(sharding, mesh);
    if (fewest.cuts.empty()) return canonical(fewest, mesh);
    Sharding made = canonical(refined_sharding(fewest, mesh, fewest.cuts), refined_mesh(mesh, fewest.cuts));
    made.cuts = fewest.cuts;
    return made;
  }
  unsigned ones = 0;
  for (int axis = 0; axis < mesh.rank(); ++axis) ones |= mesh.axis_size(axis) == 1 ? 1u << axis : 0u;
  if ((sharding.used_axes() & ones) == 0) return sharding;
  Sharding made = sharding;
  made.unreduced = static_cast<std::uint16_t>(made.unreduced & ~ones);
  if (made.unreduced == 0) made.reduction = Reduction::sum;
  for (int dim = 0; dim < made.rank; ++dim) {
    made.dims[dim].clear();
    for (std::uint8_t axis : sharding.dims[dim])
      if ((ones >> axis & 1) == 0) made.dims[dim].push_back(axis);
    if (made.dims[dim].empty()) made.priority[dim] = 0;
  }
  return made;
}

namespace detail {
[[noreturn]] inline void fail_spec(errc id, std::string_view rule, const PartitionSpec& spec, const Mesh& mesh,
                                   int rank) {
  fail(id, "[spec] ", rule, ": ", spec.text(), " for a tensor of rank ", rank, " on ", mesh.text());
}
// The names of these functions appear in compilers' messages about constants.
[[noreturn]] inline void fail_axis_of_spec_is_not_in_the_mesh(const Name& axis, const PartitionSpec& spec,
                                                              const Mesh& mesh, int rank) {
  fail_spec(errc::spec_axis, concat_text("unknown axis '", axis.view(), "'"), spec, mesh, rank);
}
[[noreturn]] inline void fail_axis_of_spec_is_used_twice(const Name& axis, const PartitionSpec& spec, const Mesh& mesh,
                                                         int rank) {
  fail_spec(errc::spec_axis, concat_text("axis '", axis.view(), "' is used twice"), spec, mesh, rank);
}
constexpr void check_same_rank(const Shape& shape, const Sharding& sharding) {
  if (shape.size() != sharding.rank)
    fail(errc::rank_mismatch, "[sharding] rank: the shape has rank ", shape.size(), ", the sharding has rank ",
         sharding.rank);
}
}  // namespace detail

namespace detail {
/// resolve() for a spec that names sub-axes, or axes that were cut in the mesh.
constexpr Sharding resolve_sub_axes(const PartitionSpec& spec, const Mesh& mesh, int rank) {
  SubAxisSharding by_sub_axis;
  Sharding sharding = replicated(rank);
  for (std::size_t dim = 0; dim < spec.entries.size(); ++dim) {
    const SpecEntry& entry = spec.entries[dim];
    for (const Name& name : entry.axes) {
      const AxisSet axes = axes_named(mesh, name.view());
      for (std::uint8_t axis : axes) add_sub_axis(by_sub_axis.dims[dim], {axis, 1, mesh.axis_size(axis)});
      if (!axes.empty()) continue;
      const SubAxis sub_axis = sub_axis_named(mesh, name.view());
      if (sub_axis.size == 0) fail_axis_of_spec_is_not_in_the_mesh(name, spec, mesh, rank);
      if (sub_axis.size > 1) add_sub_axis(by_sub_axis.dims[dim], sub_axis);
    }
    if (!entry.axes.empty()) sharding.priority[dim] = entry.priority;
  }
  if (!by_sub_axis.write(sharding, mesh, by_sub_axis.cuts(mesh))) check_entry_axes(max_axes_per_dim + 1);
  unsigned used = 0;
  for (int dim = 0; dim < rank; ++dim)
    for (std::uint8_t axis : sharding.dims[dim]) {
      if (used >> axis & 1) {
        const SubAxis twice = sub_axes(mesh, sharding.cuts)[axis];
        fail_axis_of_spec_is_used_twice(mesh.axis_name(twice.axis), spec, mesh, rank);
      }
      used |= 1u << axis;
    }
  return sharding;
}
}  // namespace detail

/// Looks up the axis names of a spec in a mesh, for a tensor of the given rank. Errors: `spec_axis` for an axis that is
/// unknown or used twice, `spec_rank` for a spec with more entries than the rank, `not_divisible` for sub-axes that
/// don't divide their axis or each other.
constexpr Sharding resolve(const PartitionSpec& spec, const Mesh& mesh, int rank) {
  if (rank < 0 || rank > max_rank)
    detail::fail_spec(errc::capacity, concat_text("the rank of a tensor is from 0 to ", max_rank), spec, mesh, rank);
  if (static_cast<int>(spec.entries.size()) > rank)
    detail::fail_spec(errc::spec_rank, "more entries than the tensor has dims", spec, mesh, rank);
  Sharding sharding = replicated(rank);
  unsigned used = 0;
  for (std::size_t dim = 0; dim < spec.entries.size(); ++dim) {
    const SpecEntry& entry = spec.entries[dim];
    for (const Name& name : entry.axes) {
      if (!mesh.has_axis(name.view())) return detail::resolve_sub_axes(spec, mesh, rank);
      const int axis = mesh.axis_index(name.view());
      if (used >> axis & 1) detail::fail_axis_of_spec_is_used_twice(name, spec, mesh, rank);
      used |= 1u << axis;
      sharding.dims[dim].push_back(static_cast<std::uint8_t>(axis));
    }
    if (!entry.axes.empty()) sharding.priority[dim] = entry.priority;
  }
  return sharding;
}

/// The spec that resolves to a sharding; unreduced axes are lost, since specs can't express them. Consecutive sub-axes
/// of one axis are joined.
constexpr PartitionSpec spec_of(const Sharding& sharding, const Mesh& mesh) {
  if (!sharding.cuts.empty())
    return spec_of(refined_sharding(sharding, mesh, sharding.cuts), refined_mesh(mesh, sharding.cuts));
  PartitionSpec spec;
  for (int dim = 0; dim < sharding.rank; ++dim) {
    SpecEntry entry;
    detail::JoinedAxes names(mesh);
    const auto add = [&](const NamedSubAxis& sub_axis) { entry.axes.push_back(detail::name_of(sub_axis)); };
    for (std::uint8_t axis : sharding.dims[dim]) names.add(axis, add);
    names.flush(add);
    entry.priority = sharding.priority[dim];
    spec.entries.push_back(entry);
  }
  return spec;
}

/// "{data,-}", followed by "+sum(model)" for a value that is partial over the axis "model".
TESSERA_PLANNING inline std::string text(const Sharding& sharding, const Mesh& mesh) {
  std::string out = spec_of(sharding, mesh).text();
  if (sharding.unreduced == 0) return out;
  out += concat_text("+", name_of(sharding.reduction), "(");
  const char* separator = "";
  for (const Name& axis : axis_names(refined_mesh(mesh, sharding.cuts), sharding.unreduced)) {
    out += concat_text(separator, axis.view());
    separator = ",";
  }
  return out + ")";
}

/// The number of shards into which a dim is split.
constexpr int shard_count(const Sharding& sharding, const Mesh& mesh, int dim) {
  if (dim < 0 || dim >= sharding.rank)
    fail(errc::dim_range, "[shard_count] dim range: dim ", dim, " of a sharding of rank ", sharding.rank);
  if (!sharding.cuts.empty())
    return shard_count(refined_sharding(sharding, mesh, sharding.cuts), refined_mesh(mesh, sharding.cuts), dim);
  int count = 1;
  for (std::uint8_t axis : sharding.dims[dim]) count *= mesh.axis_size(axis);
  return count;
}

namespace detail {
/// The product of the sizes of the less significant sub-axes of the same axis: the stride of its coordinate.
constexpr int devices_after(const SubAxis& sub_axis, const Mesh& mesh) {
  return mesh.axis_size(sub_axis.axis) / sub_axis.before / sub_axis.size;
}
/// Coordinates in a mesh as coordinates in the mesh with these cuts.
constexpr Coordinates refined_coordinates(const Coordinates& coordinates, const Mesh& mesh, const AxisCuts& cuts) {
  Coordinates place;
  for (const SubAxis& sub_axis : sub_axes(mesh, cuts))
    place.push_back(coordinates[sub_axis.axis] / devices_after(sub_axis, mesh) % sub_axis.size);
  return place;
}
}  // namespace detail

/// The indices of the shard that the device at `coordinates` holds. A dim of n indices is cut into k shards of
/// ceil(n/k); trailing shards are shorter, or empty at [n, n). The axes of a dim count as one axis, the first being the
/// most significant.
constexpr Box shard_box(const Shape& shape, const Sharding& sharding, const Mesh& mesh,
                        const Coordinates& coordinates) {
  detail::check_same_rank(shape, sharding);
  if (static_cast<int>(coordinates.size()) != mesh.rank())
    fail(errc::mesh_devices, "[mesh] number of coordinates: ", coordinates.size(), " given for ", mesh.rank(), " axes");
  if (!sharding.cuts.empty())
    return shard_box(shape, refined_sharding(sharding, mesh, sharding.cuts), refined_mesh(mesh, sharding.cuts),
                     detail::refined_coordinates(coordinates, mesh, sharding.cuts));
  Box box{Shape(shape.size(), 0), shape};
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (sharding.dims[dim].empty()) continue;
    std::int64_t count = 1;
    std::int64_t index = 0;
    for (std::uint8_t axis : sharding.dims[dim]) {
      count *= mesh.axis_size(axis);
      index = index * mesh.axis_size(axis) + coordinates[axis];
    }
    const std::int64_t chunk = shape[dim] / count + (shape[dim] % count != 0);
    const std::int64_t begin = index * chunk;
    box.begin[dim] = begin < shape[dim] ? begin : shape[dim];
    box.end[dim] = box.begin[dim] + (chunk < shape[dim] - box.begin[dim] ? chunk : shape[dim] - box.begin[dim]);
  }
  return box;
}

/// The indices of the shard that a device holds.
constexpr Box device_box(const Shape& shape, const Sharding& sharding, const Mesh& mesh, int device) {
  return shard_box(shape, sharding, mesh, mesh.coordinates_of(device));
}

/// Numbers the distinct shards of a tensor by the coordinates along the axes that the sharding uses, in mesh order. A
/// tensor stores one buffer per distinct shard, however many devices hold a replica of it.
class ShardGrid {
 public:
  constexpr ShardGrid() = default;
  constexpr ShardGrid(const Mesh& mesh, const Sharding& sharding)
      : ShardGrid(mesh, unsigned{sharding.used_axes()}, sharding.cuts) {}
  /// The grid over the given axes, one bit each, of the mesh with these cuts.
  constexpr ShardGrid(const Mesh& mesh, unsigned used, const AxisCuts& cuts = {})
      : rank_(mesh.rank()), used_(static_cast<std::uint16_t>(used)) {
    if (!cuts.empty()) sub_axes_ = sub_axes(mesh, cuts);
    const int axes = sub_axes_.empty() ? rank_ : static_cast<int>(sub_axes_.size());
    if (used_ >> axes != 0)
      fail(errc::spec_axis, "[sharding] number of axes: the sharding uses the first ", std::bit_width(used_),
           " axes of a larger mesh, this mesh has ", axes);
    for (int axis = axes - 1; axis >= 0; --axis) {
      sizes_[axis] = sub_axes_.empty() ? mesh.axis_size(axis) : sub_axes_[static_cast<std::size_t>(axis)].size;
      int& count = used_ >> axis & 1 ? count_ : replicas_;
      strides_[axis] = count;
      count *= sizes_[axis];
    }
    for (SubAxis& sub_axis : sub_axes_) sub_axis.before = detail::devices_after(sub_axis, mesh);
  }

  /// The number of distinct shards.
  constexpr int count() const { return count_; }
  /// The number of devices that hold each shard.
  constexpr int replicas() const { return replicas_; }
  constexpr int index_of(const Coordinates& coordinates) const { return digits(coordinates, used_); }
  /// Which replica of its shard the device at `coordinates` holds, counted in mesh order.
  constexpr int replica_of(const Coordinates& coordinates) const { return digits(coordinates, ~unsigned{used_}); }
  /// The mesh coordinates of a shard, by default of its first replica.
  constexpr Coordinates coordinates(int index, int replica = 0) const {
    Coordinates place(static_cast<std::size_t>(rank_), 0);
    const auto digit = [&](int axis) { return (used_ >> axis & 1 ? index : replica) / strides_[axis] % sizes_[axis]; };
    for (int axis = 0; axis < rank_ && sub_axes_.empty(); ++axis) place[axis] = digit(axis);
    for (std::size_t i = 0; i < sub_axes_.size(); ++i)
      place[sub_axes_[i].axis] += digit(static_cast<int>(i)) * sub_axes_[i].before;
    return place;
  }

  friend constexpr bool operator==(const ShardGrid&, const ShardGrid&) = default;

 private:
  constexpr int digits(const Coordinates& coordinates, unsigned axes) const {
    int index = 0;
    for (int axis = 0; axis < rank_ && sub_axes_.empty(); ++axis)
      if (axes >> axis & 1) index += coordinates[axis] * strides_[axis];
    for (std::size_t i = 0; i < sub_axes_.size(); ++i)
      if (axes >> i & 1) index += coordinates[sub_axes_[i].axis] / sub_axes_[i].before % sizes_[i] * strides_[i];
    return index;
  }

  int rank_ = 0;
  std::uint16_t used_ = 0;
  int count_ = 1;
  int replicas_ = 1;
  int sizes_[max_axes]{};
  int strides_[max_axes]{};
  SubAxisTable sub_axes_;  ///< where axes are cut; `before` is the stride of a sub-axis in the coordinate of its axis
};

/// Which replica a device holds: the number of devices of lower id that hold the same shard.
constexpr int replica_id(const Mesh& mesh, const Sharding& sharding, int device) {
  const ShardGrid grid(mesh, sharding);
  const Coordinates place = mesh.coordinates_of(device);
  if (mesh.order().empty()) return grid.replica_of(place);
  const int shard = grid.index_of(place);
  int lower = 0;
  for (int replica = 0; replica < grid.replicas(); ++replica)
    lower += mesh.device_at(grid.coordinates(shard, replica)) < device;
  return lower;
}

/// Where one element of a tensor is: a shard, numbered as in ShardGrid, and the index in that shard.
struct ElementLocation {
  int shard = 0;
  Shape index;
  friend constexpr bool operator==(const ElementLocation&, const ElementLocation&) = default;
};

/// Finds the shard that holds the element at a global index, and the index of the element in the shard. For a partial
/// value, it is the first shard that holds a part of the element. Errors: `rank_mismatch`, and `dim_range` for an index
/// outside of the tensor.
constexpr ElementLocation locate(const Shape& index, const Shape& shape, const Sharding& sharding, const Mesh& mesh) {
  detail::check_same_rank(shape, sharding);
  if (index.size() != shape.size())
    fail(errc::rank_mismatch, "[locate] rank: an index of ", index.size(), " entries for a tensor of rank ",
         shape.size());
  if (!sharding.cuts.empty())
    return locate(index, shape, refined_sharding(sharding, mesh, sharding.cuts), refined_mesh(mesh, sharding.cuts));
  ElementLocation place{0, index};
  Coordinates coordinates(static_cast<std::size_t>(mesh.rank()), 0);
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (index[dim] < 0 || index[dim] >= shape[dim])
      fail(errc::dim_range, "[locate] index range: index ", index[dim], " in dim ", dim, " of extent ", shape[dim]);
    const int count = shard_count(sharding, mesh, static_cast<int>(dim));
    const std::int64_t chunk = shape[dim] / count + (shape[dim] % count != 0);
    std::int64_t shard = index[dim] / chunk;
    place.index[dim] = index[dim] % chunk;
    const AxisList& axes = sharding.dims[dim];
    for (std::size_t a = axes.size(); a-- > 0; shard /= mesh.axis_size(axes[a]))
      coordinates[axes[a]] = static_cast<int>(shard % mesh.axis_size(axes[a]));
  }
  place.shard = ShardGrid(mesh, sharding).index_of(coordinates);
  return place;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
