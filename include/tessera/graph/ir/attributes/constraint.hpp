#ifndef TESSERA_GRAPH_IR_ATTRIBUTES_CONSTRAINT_HPP
#define TESSERA_GRAPH_IR_ATTRIBUTES_CONSTRAINT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/graph/ir/node.hpp>

namespace tessera {

/// How the cotangent of a constraint is sharded: as the value, in any way, as a spec of its own says, or, if a loop
/// sums it up, as the operand: the sum is reduced once, after the loop.
enum class CotangentSharding : std::int8_t { alike, free, own_spec, stored };

/// Attributes of a constraint: the index of its spec, how its cotangent is sharded, and the mesh axes that it fixes,
/// which a second spec lists. Over all other axes the partitioner chooses the sharding.
struct Constraint {
  std::int32_t spec = 0;
  CotangentSharding cotangent = CotangentSharding::alike;
  std::int8_t cotangent_spec = 0;  ///< for CotangentSharding::own_spec
  std::int8_t about = -1;          ///< index of the spec that lists the fixed axes; -1: all axes of the mesh
  bool keeps_sums = false;         ///< a value that is partial over the fixed axes stays so; readers reduce it
  /// Made by a wrapper such as ts::Fsdp for a parameter or its gradient. Where the fixed axes split the parameter only
  /// in storage, the value is gathered over them; where they split it for computations, as expert parallelism does, it
  /// stays split.
  bool of_parameter = false;

  static constexpr Constraint of(const Node& node) {
    return {node.index(),        static_cast<CotangentSharding>(node.labels[0]),
            node.labels[1],      static_cast<std::int8_t>(node.labels[2] - 1),
            node.labels[3] != 0, node.labels[4] != 0};
  }
  constexpr void write(Node& node) const {
    node.value = spec;
    node.labels[0] = static_cast<std::int8_t>(cotangent);
    node.labels[1] = cotangent_spec;
    node.labels[2] = static_cast<std::int8_t>(about + 1);
    node.labels[3] = keeps_sums ? 1 : 0;
    node.labels[4] = of_parameter ? 1 : 0;
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
