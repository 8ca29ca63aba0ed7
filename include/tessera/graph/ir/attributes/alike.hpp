#ifndef TESSERA_GRAPH_IR_ATTRIBUTES_ALIKE_HPP
#define TESSERA_GRAPH_IR_ATTRIBUTES_ALIKE_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/graph/ir/node.hpp>

namespace tessera {

/// Attributes of an `alike` node: operand 0, with the sharding of operand 1.
struct Alike {
  /// If true, the result has the sharding of operand 1 if that is given, such as that of an argument. If false, the
  /// partitioner chooses one sharding for both, and may split a value that is replicated.
  bool exactly = false;
  /// Operand 0 is what an optimizer computes for the parameter that is operand 1: `inside` of the node's Source is the
  /// name of the parameter.
  bool of_update = false;
  /// Operand 0 is the tokens of experts, or their cotangent. If its readers need an all_to_all, this is expert
  /// parallelism, which the user requests by splitting experts and tokens over one axis.
  bool of_experts = false;

  static constexpr Alike of(const Node& node) {
    return {node.labels[0] != 0, node.labels[1] != 0, node.labels[2] != 0};
  }
  constexpr void write(Node& node) const {
    node.labels[0] = exactly ? 1 : 0;
    node.labels[1] = of_update ? 1 : 0;
    node.labels[2] = of_experts ? 1 : 0;
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
