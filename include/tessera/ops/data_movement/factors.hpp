#ifndef TESSERA_OPS_DATA_MOVEMENT_FACTORS_HPP
#define TESSERA_OPS_DATA_MOVEMENT_FACTORS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>

#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/node.hpp>

namespace tessera {

/// A rearrange splits the operand's dims into factors, permutes the factors, and merges them into the result's dims. A
/// dim without factors has static extent 1. Operand 1 + f is the extent of factor f; it is absent where the extent
/// follows from the others.
struct Factors {
  std::int8_t count = 0;
  /// operand dim of factor f; factors of a dim are consecutive, the most significant first
  std::int8_t in_dim[max_rank]{};
  std::int8_t order[max_rank]{};    ///< factor at position p of the result
  std::int8_t out_dim[max_rank]{};  ///< result dim of position p, ascending

  static constexpr Factors of(const Node& node) {
    Factors f{};
    while (f.count < max_rank && node.labels[static_cast<std::size_t>(f.count)] >= 0) ++f.count;
    for (int p = 0; p < f.count; ++p) {
      f.in_dim[p] = node.labels[static_cast<std::size_t>(p)];
      f.order[p] = node.labels[static_cast<std::size_t>(p + 8)];
      f.out_dim[p] = node.labels[static_cast<std::size_t>(p + 16)];
    }
    return f;
  }
  constexpr Labels pack() const {
    Labels labels{};
    for (auto& label : labels) label = -1;
    for (int p = 0; p < count; ++p) {
      labels[static_cast<std::size_t>(p)] = in_dim[p];
      labels[static_cast<std::size_t>(p + 8)] = order[p];
      labels[static_cast<std::size_t>(p + 16)] = out_dim[p];
    }
    return labels;
  }
  constexpr bool keeps_order() const {
    for (int p = 0; p < count; ++p)
      if (order[p] != p) return false;
    return true;
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
