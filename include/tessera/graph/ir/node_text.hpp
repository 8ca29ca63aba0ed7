#ifndef TESSERA_GRAPH_IR_NODE_TEXT_HPP
#define TESSERA_GRAPH_IR_NODE_TEXT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdio>
#include <string>

#include <tessera/base/defined_in_ops.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/ir/attributes.hpp>
#include <tessera/graph/ir/host_number.hpp>
#include <tessera/graph/ir/program.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// The attributes of a node as text, such as "ab,bc->ac" of an einsum. Empty when it has none.
using AttributeText = std::string (*)(const ProgramView&, const GraphView&, int id);

TESSERA_DEFINED_IN_OPS_BEGIN
/// How an operation prints its attributes; null when it has none. Defined in ops/rows.hpp.
constexpr AttributeText attribute_text_of(Op op);
TESSERA_DEFINED_IN_OPS_END

namespace detail {

inline std::string number_text(const Node& constant) {
  const HostNumber number = number_of(constant);
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", number.real());
  const bool exact = !is_floating(constant.dtype) && HostNumber(constant.value) == number;
  return exact || is_floating(constant.dtype) ? text : std::to_string(number.integer());
}
inline char label_name(int label) { return static_cast<char>('a' + label); }

inline std::string dim_text(const ProgramView&, const GraphView& graph, int id) {
  return std::to_string(dim_of(graph[id]));
}

}  // namespace detail

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
