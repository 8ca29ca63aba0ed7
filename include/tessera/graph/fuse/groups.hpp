#ifndef TESSERA_GRAPH_FUSE_GROUPS_HPP
#define TESSERA_GRAPH_FUSE_GROUPS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/ir/row.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// Along which dims of the group's iteration space a node of a fused group extends.
enum class SpaceForm : std::uint8_t {
  element,   ///< all dims
  row,       ///< all but the last dim, which has extent 1
  squeezed,  ///< all but the last dim, which the node does not have
  reduced,   ///< reduced over dims other than just the last: complete only after the whole group, so no member can
             ///< read it
};

/// What grouping finds out about one node.
struct NodeGroup {
  std::int32_t group = -1;
  std::int32_t next = -1;      ///< the next member of the group, in ascending order
  std::int32_t addition = -1;  ///< of an addition: the einsum that it absorbs
  OpKind kind = OpKind::source;
  SpaceForm form = SpaceForm::element;
  std::uint8_t shape_only = 0;
  bool host = false;
  bool leaves = false;       ///< a node outside of the group reads it, or it is a result
  bool whole_input = false;  ///< of a reduction: its operand has the iteration space of the group
};

/// Nodes that run as one step.
struct GroupMembers {
  std::int32_t first = -1, last = -1, count = 0;  ///< a list linked by NodeGroup::next
  std::int32_t rank = 0;                          ///< of the iteration space
  bool fused = false;
};

/// The groups of one graph, in an order in which they can run.
struct GroupsView {
  const NodeGroup* nodes = nullptr;
  const GroupMembers* groups = nullptr;
  int count = 0;
};
struct Groups {
  Growable<NodeGroup> nodes;
  Growable<GroupMembers> groups;
  constexpr GroupsView view() const { return {nodes.data(), groups.data(), static_cast<int>(groups.size())}; }
};

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
