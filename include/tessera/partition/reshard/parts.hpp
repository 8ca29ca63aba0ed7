#ifndef TESSERA_PARTITION_RESHARD_PARTS_HPP
#define TESSERA_PARTITION_RESHARD_PARTS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/inline_vector.hpp>
#include <tessera/mesh/sharding.hpp>

namespace tessera {

/// Along `axes`, major first, only the first `used` parts of a partial value hold anything.
struct UsedParts {
  AxisList axes;
  std::int32_t used = 1;
  friend constexpr bool operator==(const UsedParts&, const UsedParts&) = default;
};

/// Which parts of a partial value hold anything: all, less those of devices that have nothing to sum, as when there are
/// more devices than rows. Such parts are neither stored nor reduced. Two entries share no axis.
struct PartList {
  InlineVector<UsedParts, 2> entries;

  constexpr bool holds(const Mesh& mesh, const Coordinates& at) const {
    for (const UsedParts& entry : entries) {
      int index = 0;
      for (std::uint8_t axis : entry.axes) index = index * mesh.axis_size(axis) + at[axis];
      if (index >= entry.used) return false;
    }
    return true;
  }
  /// How many of `all` parts hold something.
  constexpr std::int64_t count(const Mesh& mesh, std::int64_t all) const {
    for (const UsedParts& entry : entries) {
      for (std::uint8_t axis : entry.axes) all /= mesh.axis_size(axis);
      all *= entry.used;
    }
    return all;
  }
  /// Parts of what is summed twice, over one list of axes and over another. False: there are more than fit.
  constexpr bool join(const PartList& other) {
    if (entries.size() + other.entries.size() > entries.capacity()) return false;
    for (const UsedParts& entry : other.entries) entries.push_back(entry);
    return true;
  }
  friend constexpr bool operator==(const PartList&, const PartList&) = default;
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
