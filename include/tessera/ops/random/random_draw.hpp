#ifndef TESSERA_OPS_RANDOM_RANDOM_DRAW_HPP
#define TESSERA_OPS_RANDOM_RANDOM_DRAW_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/graph/ir/node.hpp>

namespace tessera {

/// Which distribution a random node draws from.
enum class Distribution : std::int8_t { uniform, normal };

/// Attributes of a random node: uniform in [0, 1) or standard normal. The counter of an element is its global row-major
/// index, so values don't depend on the sharding. Operand 0 gives the shape; operand 1 is the key. The generator's key
/// is fold_in(key, stream). An f64, always a host scalar, is an integer of which each layer of a repeat has its own
/// key: there it is fold_in(fold_in(key, stream), layer + 1); inside several, each folds in its layer, the outermost
/// first. An i64 can also be a tensor, and is the same key in all layers.
struct RandomDraw {
  Distribution distribution = Distribution::uniform;
  std::uint32_t stream = 0;

  static constexpr RandomDraw of(const Node& node) {
    return {static_cast<Distribution>(node.labels[0]), static_cast<std::uint32_t>(node.value)};
  }
  constexpr Labels pack() const {
    Labels labels{};
    labels[0] = static_cast<std::int8_t>(distribution);
    return labels;
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
