#ifndef TESSERA_GRAPH_IR_ATTRIBUTES_STORAGE_HPP
#define TESSERA_GRAPH_IR_ATTRIBUTES_STORAGE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/graph/ir/node.hpp>

namespace tessera {

/// How an argument or an output of a repeat is stored.
enum class Storage : std::int8_t {
  block,   ///< each shard in one block of memory
  layers,  ///< a tensor of a Stack: dim 0 counts its layers, each of which is a tensor with memory of its own
  layer,   ///< in a body: the current one of these layers
};
constexpr Storage storage_of(const Node& node) {
  return node.is_argument() || node.is_projection() || node.is_variable() ? static_cast<Storage>(node.labels[0])
                                                                          : Storage::block;
}
constexpr Node stored_as(Storage storage, Node node) {
  node.labels[0] = static_cast<std::int8_t>(storage);
  return node;
}
constexpr bool is_in_layers(const Node& node) { return storage_of(node) == Storage::layers; }

/// Which output of its repeat a projection is.
constexpr int output_of(const Node& project) { return project.index(); }
/// The projection of an output of the given type.
constexpr Node projection_node(int output, const Node& type, Storage storage = Storage::block) {
  return stored_as(storage, {.op = Op::project,
                             .dtype = type.dtype,
                             .rank = type.rank,
                             .singletons = type.singletons,
                             .value = static_cast<double>(output)});
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
