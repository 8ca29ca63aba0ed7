#ifndef TESSERA_GRAPH_FUSE_NODE_SPACES_HPP
#define TESSERA_GRAPH_FUSE_NODE_SPACES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/fuse/dim_classes.hpp>
#include <tessera/graph/fuse/space.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::detail {

/// By node: the iteration space of the node if it were a group by itself.
constexpr Growable<Space> node_spaces(const GraphView& graph) {
  Growable<Space> spaces(static_cast<std::size_t>(graph.size));
  const DimClasses classes(graph);
  Space* const made = spaces.data();
  for (int id = 0; id < graph.size; ++id) {
    const int rank = graph.nodes[id].rank;
    made[id].rank = rank;
    for (int d = 0; d < rank; ++d) made[id].dims[d] = classes.of(id, d);
  }
  return spaces;
}

}  // namespace tessera::detail

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
