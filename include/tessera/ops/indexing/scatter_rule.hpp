#ifndef TESSERA_OPS_INDEXING_SCATTER_RULE_HPP
#define TESSERA_OPS_INDEXING_SCATTER_RULE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/monoid.hpp>
#include <tessera/graph/ir/attributes.hpp>
#include <tessera/graph/ir/node.hpp>

namespace tessera {

/// What scatter and scatter_add do with the elements at one index: the last one replaces the element that was there, or
/// a reduction combines them all with that element.
struct ScatterRule {
  bool replaces = false;
  Reduction reduction = Reduction::sum;

  static constexpr ScatterRule of(const Node& scatter) {
    return {scatter.labels[1] != 0, static_cast<Reduction>(scatter.labels[2])};
  }
  constexpr Labels pack(int dim) const {
    Labels labels = pack_dim(dim);
    labels[1] = replaces ? 1 : 0;
    labels[2] = static_cast<std::int8_t>(reduction);
    return labels;
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
