#ifndef TESSERA_GRAPH_IR_ATTRIBUTES_MADE_BY_HPP
#define TESSERA_GRAPH_IR_ATTRIBUTES_MADE_BY_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string_view>

#include <tessera/graph/ir/attributes.hpp>
#include <tessera/graph/ir/node.hpp>

namespace tessera {

/// The public function that made a node of data movement, for nodes whose errors name that function.
enum class MadeBy : std::int8_t {
  operation,
  squeeze,
  select,
  accumulate,
  pipeline,
  broadcast_to,
  broadcast_like,
  reshape,
  vjp,
  jvp,
  hvp,
  custom_vjp,
  pad,
  convolution,
  fori_loop
};
constexpr std::string_view name_of(MadeBy by) {
  constexpr std::string_view names[] = {
      "",    "squeeze", "select", "accumulate", "pipeline", "broadcast_to", "broadcast_like", "reshape",
      "vjp", "jvp",     "hvp",    "custom_vjp", "pad",      "conv",         "fori_loop"};
  return names[static_cast<int>(by)];
}
constexpr Labels pack_dim(int dim, MadeBy by) {
  Labels labels = pack_dim(dim);
  labels[1] = static_cast<std::int8_t>(by);
  return labels;
}
constexpr Labels pack_maker(MadeBy by) { return pack_dim(0, by); }
/// The function that made a slice, a broadcast or an arange; for a rearrange see RearrangeOrigin.
constexpr MadeBy maker_of(const Node& node) { return static_cast<MadeBy>(node.labels[1]); }

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
