#ifndef TESSERA_RUNTIME_TRANSPORT_HOLDERS_HPP
#define TESSERA_RUNTIME_TRANSPORT_HOLDERS_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/sharding.hpp>

namespace tessera::runtime {

/// The devices that hold a shard, each a replica of it: along some axes of a mesh those at one coordinate, along the
/// others all. Without an axis it is one device, the same for all such sets.
class Holders {
 public:
  constexpr Holders() = default;
  /// The devices whose coordinates along `axes`, a bit each, are those of `at`.
  constexpr Holders(const Mesh& mesh, unsigned axes, const Coordinates& at) {
    for (int axis = 0; axis < mesh.rank(); ++axis)
      at_[static_cast<std::size_t>(axis)] =
          (axes >> axis & 1u) != 0 ? at[static_cast<std::size_t>(axis)] : -mesh.axis_size(axis);
  }
  /// Member `member` of group `group`, where devices are told apart by these two.
  static constexpr Holders member(int group, int member) {
    Holders one;
    one.at_[0] = group;
    one.at_[1] = member;
    return one;
  }
  /// All `members` of a group.
  static constexpr Holders group(int group, int members) { return member(group, -members); }

  constexpr std::int64_t count() const { return common(*this, *this); }
  /// How many devices are in both sets, of one mesh.
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
  /// Of the replicas of a shard that `from` holds, how many have a device of `to` next to them: one that differs at
  /// most along axes at which `from` has one coordinate.
  static constexpr std::int64_t replicas_near(const Holders& from, const Holders& to) {
    std::int64_t n = 1;
    for (std::size_t axis = 0; axis < max_axes; ++axis)
      if (from.at_[axis] < 0 && to.at_[axis] < 0) n *= -to.at_[axis];
    return n;
  }
  friend constexpr bool operator==(const Holders&, const Holders&) = default;

 private:
  std::array<std::int32_t, max_axes> at_{};  // a coordinate; or all: minus the number of devices along the axis
};

/// How often the elements of a box must be sent from one device to another so that all of `to` hold the reduction of
/// `parts` parts, of which part_at(i) are the holders. Where the parts are replicated, each set of replicas that has
/// readers is reduced on its own: a device's part goes to the next one, parts - 1 times, and ends on a device of `to`
/// if one of them has a part. Each other device of `to` is then sent the result. Of one part this is what the devices
/// that do not hold it receive; on rings of n devices, 2(n - 1) for an all-reduce and n - 1 for the others.
template <class PartAt> constexpr std::int64_t sends(const Holders& to, int parts, const PartAt& part_at) {
  if (parts == 0) return 0;
  const Holders first = part_at(0);
  std::int64_t there = Holders::common(to, first);
  if (parts > 1 && first == part_at(1)) parts = 1;  // all on the same devices
  const std::int64_t sets = Holders::replicas_near(first, to);
  for (int i = 1; i < parts && there < sets; ++i) there = std::max(there, Holders::common(to, part_at(i)));
  return (parts - 1) * sets + to.count() - there;
}

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
