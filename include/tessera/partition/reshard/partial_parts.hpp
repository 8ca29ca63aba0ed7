#ifndef TESSERA_PARTITION_RESHARD_PARTIAL_PARTS_HPP
#define TESSERA_PARTITION_RESHARD_PARTIAL_PARTS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/inline_vector.hpp>
#include <tessera/mesh/sharding.hpp>

namespace tessera {

/// Along `axes`, the most significant first, only the first `used` parts of a partial value exist.
struct UsedParts {
  AxisList axes;
  std::int32_t used = 1;
  friend constexpr bool operator==(const UsedParts&, const UsedParts&) = default;
};

/// Which parts of a partial value exist. A device has no part when it has nothing to sum, as the fourth of 4 devices
/// that hold 5 rows in chunks of 2. Such parts are neither stored nor reduced. No axis is in two entries.
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
  /// How many of `all` parts exist.
  constexpr std::int64_t count(const Mesh& mesh, std::int64_t all) const {
    for (const UsedParts& entry : entries) {
      for (std::uint8_t axis : entry.axes) all /= mesh.axis_size(axis);
      all *= entry.used;
    }
    return all;
  }
  /// Combines two lists over different axes, for a value that is summed over both. False: more entries than fit.
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
