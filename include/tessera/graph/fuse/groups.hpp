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
  element,   ///< the whole space
  row,       ///< all but the last dim, which stays with extent 1
  squeezed,  ///< all but the last dim
  reduced,   ///< a result over some of the dims, made of the whole group: nothing in the group can read it
};

/// What grouping finds out about one node.
struct NodeGroup {
  std::int32_t group = -1;
  std::int32_t next = -1;      ///< member of the group, by rising id
  std::int32_t addition = -1;  ///< of an add: the einsum that it absorbs
  OpKind kind = OpKind::source;
  SpaceForm form = SpaceForm::element;
  std::uint8_t shape_only = 0;
  bool host = false;
  bool leaves = false;       ///< it is read outside of its group
  bool whole_input = false;  ///< a reduction: its operand has the space of the group
};

/// Nodes that run as one step.
struct GroupMembers {
  std::int32_t first = -1, last = -1, count = 0;  ///< chained by NodeGroup::next
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
