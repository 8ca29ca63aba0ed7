#ifndef TESSERA_PARTITION_PROPAGATION_UNIT_READERS_HPP
#define TESSERA_PARTITION_PROPAGATION_UNIT_READERS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/fuse/units.hpp>
#include <tessera/ops/rows.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// The units that read each node of a graph, in the order in which they run. A unit that reads a node in two of its
/// inputs is listed twice.
class UnitReaders {
 public:
  constexpr UnitReaders() = default;
  constexpr UnitReaders(const UnitsView& units, int nodes) : begin_(static_cast<std::size_t>(nodes + 1)) {
    std::int32_t* const begin = begin_.data();
    for (int u = 0; u < units.count; ++u)
      for (int i = 0; i < units[u].input_count; ++i) ++begin[units.input(u, i).node];
    for (int id = 0; id < nodes; ++id) begin[id + 1] += begin[id];
    // Filling from the back turns the end of each range into its beginning.
    units_ = Growable<std::int32_t>(static_cast<std::size_t>(begin[nodes]));
    std::int32_t* const readers = units_.data();
    for (int u = units.count - 1; u >= 0; --u)
      for (int i = 0; i < units[u].input_count; ++i) readers[--begin[units.input(u, i).node]] = u;
  }

  constexpr int count(int node) const { return begin_.data()[node + 1] - begin_.data()[node]; }
  /// Reader `i` of a node, below count(node).
  constexpr int unit(int node, int i) const { return units_.data()[begin_.data()[node] + i]; }

 private:
  Growable<std::int32_t> begin_, units_;
};

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
