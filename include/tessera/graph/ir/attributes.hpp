#ifndef TESSERA_GRAPH_IR_ATTRIBUTES_HPP
#define TESSERA_GRAPH_IR_ATTRIBUTES_HPP
#include <tessera/base/push_macros.hpp>

#include <bit>
#include <cstdint>
#include <string_view>

#include <tessera/base/fixed_string.hpp>
#include <tessera/base/monoid.hpp>
#include <tessera/base/promotion.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/node.hpp>

namespace tessera {

/// The dim along which slice, pad, concat, extent, iota, cumulative operations and sorts work, or the first of which
/// patches are windows.
constexpr int dim_of(const Node& node) { return node.labels[0]; }
constexpr Labels pack_dim(int dim) {
  Labels labels{};
  labels[0] = static_cast<std::int8_t>(dim);
  return labels;
}

/// The name of the mesh axis in the attributes of axis_size and permute nodes.
constexpr Labels pack_axis(const Name& name) {
  Labels labels{};
  for (std::size_t i = 0; i <= Name::max_length; ++i) labels[i] = static_cast<std::int8_t>(name.text[i]);
  return labels;
}
constexpr Name axis_of(const Node& node) {
  Name name;
  for (std::size_t i = 0; i <= Name::max_length; ++i) name.text[i] = static_cast<char>(node.labels[i]);
  return name;
}

/// Whether a node only checks extents, so that no value depends on it: build::same_extents, build::require_layer.
constexpr bool checks_extents(const Node& node) {
  return node.op == Op::extent && (node.arity == 2 || node.labels[3] != 0);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
