#ifndef TESSERA_RUNTIME_TRANSPORT_HOLDERS_HPP
#define TESSERA_RUNTIME_TRANSPORT_HOLDERS_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/base/planning.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/mesh/sharding.hpp>

namespace tessera::runtime {

/// Some of the processes that run a program. A default set is every process.
class ProcessSet {
 public:
  /// Limit of processes: sets are tables of the shards of every step.
  static constexpr int most = 256;

  constexpr bool everywhere() const { return !given_; }
  constexpr bool contains(int process) const {
    return !given_ || (bits_[static_cast<std::size_t>(process) / 64] >> (process % 64) & 1) != 0;
  }
  constexpr void insert(int process) {
    given_ = true;
    bits_[static_cast<std::size_t>(process) / 64] |= std::uint64_t{1} << (process % 64);
  }
  friend constexpr bool operator==(const ProcessSet&, const ProcessSet&) = default;

 private:
  std::array<std::uint64_t, most / 64> bits_{};
  bool given_ = false;
};

/// The devices that hold replicas of a shard: per mesh axis, either one coordinate or all. On mesh {data: 2, model: 4},
/// a shard split along data is held by data = 1 and all 4 coordinates of model. Default: one device, common to all
/// sets.
class Holders {
 public:
  constexpr Holders() = default;
  /// The devices whose coordinates along `axes` (a bit mask) equal those of `at`.
  constexpr Holders(const Mesh& mesh, unsigned axes, const Coordinates& at) {
    for (int axis = 0; axis < mesh.rank(); ++axis)
      at_[static_cast<std::size_t>(axis)] =
          (axes >> axis & 1u) != 0 ? at[static_cast<std::size_t>(axis)] : -mesh.axis_size(axis);
    if (tessera::detail::plans_for_processes(mesh)) find_processes(mesh, axes, at);
  }
  /// Device `member` of group `group`, for collectives on groups of devices rather than on a mesh.
  static constexpr Holders member(int group, int member) {
    Holders one;
    one.at_[0] = group;
    one.at_[1] = member;
    return one;
  }
  /// All `members` devices of a group.
  static constexpr Holders group(int group, int members) { return member(group, -members); }

  /// The processes of these devices.
  constexpr const ProcessSet& processes() const { return processes_; }
  /// The same devices, for memory that every process has a copy of.
  constexpr Holders in_every_process() const {
    Holders copy = *this;
    copy.processes_ = {};
    return copy;
  }
  constexpr std::int64_t count() const { return common(*this, *this); }
  /// The number of devices that are in both sets; `a` and `b` are of the same mesh.
  static constexpr std::int64_t common(const Holders& a, const Holders& b) {
    std::int64_t n = 1;
    for (std::size_t axis = 0; axis < max_axes; ++axis) {
      const int x = a.at_[axis], y = b.at_[axis];
      if (x < 0 && y < 0)
        n *= -x;
      else if (x >= 0 && y >= 0 && x != y)
        return 0;
    }
    return n;
  }
  /// The number of replicas in `from` from which some device of `to` is reached only along axes that `from` is sharded
  /// over (where it has one coordinate): the product of the sizes of the axes along which both sets have all.
  static constexpr std::int64_t replicas_near(const Holders& from, const Holders& to) {
    std::int64_t n = 1;
    for (std::size_t axis = 0; axis < max_axes; ++axis)
      if (from.at_[axis] < 0 && to.at_[axis] < 0) n *= -to.at_[axis];
    return n;
  }
  friend constexpr bool operator==(const Holders&, const Holders&) = default;

 private:
  std::array<std::int32_t, max_axes> at_{};  // a coordinate >= 0, or -(axis size) for all coordinates
  ProcessSet processes_;

  TESSERA_PLANNING void find_processes(const Mesh& mesh, unsigned axes, const Coordinates& at) {
    const ShardGrid grid(mesh, axes);
    for_each_process_of(mesh, grid, grid.index_of(at), [&](int process) { processes_.insert(process); });
  }
};

/// How many times a box is sent between two devices so that all of `to` hold the reduction of `parts` parts, where
/// part_at(i) holds part i. Each set of replicas of the parts that has readers reduces along a chain, parts - 1 sends,
/// which ends on a device of `to` if one holds a part; each other device of `to` then receives the result.
/// Examples on n devices: all_reduce 2(n - 1); reduce_scatter and all_gather n - 1; one part: the non-holders of `to`.
template <class PartAt>
TESSERA_PLANNING constexpr std::int64_t sends(const Holders& to, int parts, const PartAt& part_at) {
  if (parts == 0) return 0;
  const Holders first = part_at(0);
  std::int64_t there = Holders::common(to, first);
  if (parts > 1 && first == part_at(1)) parts = 1;  // every holder has all parts: reducing them sends nothing
  const std::int64_t sets = Holders::replicas_near(first, to);
  for (int i = 1; i < parts && there < sets; ++i) there = std::max(there, Holders::common(to, part_at(i)));
  return (parts - 1) * sets + to.count() - there;
}

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
