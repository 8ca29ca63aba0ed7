#ifndef TESSERA_OPS_CUMULATIVE_CUMULATIVE_OPTIONS_HPP
#define TESSERA_OPS_CUMULATIVE_CUMULATIVE_OPTIONS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/graph/ir/attributes.hpp>
#include <tessera/graph/ir/node.hpp>

namespace tessera {

/// Options of cumsum and cumprod, and attributes of their nodes.
struct CumulativeOptions {
  bool reverse = false;    ///< from the last element to the first
  bool exclusive = false;  ///< each result combines the elements before it, without the element itself

  static constexpr CumulativeOptions of(const Node& node) { return {node.labels[1] != 0, node.labels[2] != 0}; }
  constexpr Labels pack(int dim) const {
    Labels labels = pack_dim(dim);
    labels[1] = reverse ? 1 : 0;
    labels[2] = exclusive ? 1 : 0;
    return labels;
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
