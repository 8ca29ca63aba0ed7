#ifndef TESSERA_GRAPH_IR_ATTRIBUTES_EINSUM_LABELS_HPP
#define TESSERA_GRAPH_IR_ATTRIBUTES_EINSUM_LABELS_HPP
#include <tessera/base/push_macros.hpp>

#include <bit>
#include <cstdint>

#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/node.hpp>

namespace tessera {

/// Labels of an einsum: one small integer per dim of the two operands and of the result; -1 beyond the rank.
struct EinsumLabels {
  /// Labels are below it. Those of the leading dims of a shard_map count down from it, all others up from 0.
  static constexpr int count = 32;

  std::int8_t a[max_rank], b[max_rank], out[max_rank];

  static constexpr EinsumLabels of(const Node& node) { return std::bit_cast<EinsumLabels>(node.labels); }
  constexpr Labels pack() const { return std::bit_cast<Labels>(*this); }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
