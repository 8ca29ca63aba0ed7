#ifndef TESSERA_GRAPH_IR_ATTRIBUTES_REDUCED_HPP
#define TESSERA_GRAPH_IR_ATTRIBUTES_REDUCED_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/graph/ir/node.hpp>

namespace tessera {

/// Whether the operand of a reduction has positions, and of which elements: the largest or the smallest.
enum class PositionOf : std::int8_t { nothing, argmax, argmin };

/// The dims that a reduction reduces, and whether the result keeps them with extent 1.
struct Reduced {
  std::uint8_t dims = 0;  ///< bit d: dim d is reduced
  bool keep = false;
  bool constant = false;  ///< no gradient: a shift that cancels in its use, such as the maximum in a softmax
  PositionOf position = PositionOf::nothing;  ///< a position exists only where there are elements

  static constexpr Reduced of(const Node& node) {
    return {static_cast<std::uint8_t>(node.labels[0]), node.labels[1] != 0, node.labels[2] != 0,
            static_cast<PositionOf>(node.labels[3])};
  }
  constexpr Labels pack() const {
    Labels labels{};
    labels[0] = static_cast<std::int8_t>(dims);
    labels[1] = keep ? 1 : 0;
    labels[2] = constant ? 1 : 0;
    labels[3] = static_cast<std::int8_t>(position);
    return labels;
  }
  constexpr bool has(int dim) const { return (dims >> dim & 1) != 0; }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
