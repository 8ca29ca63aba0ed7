#ifndef TESSERA_OPS_DATA_MOVEMENT_PADS_TO_CONCAT_HPP
#define TESSERA_OPS_DATA_MOVEMENT_PADS_TO_CONCAT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/graph/ir/attributes.hpp>
#include <tessera/graph/ir/graph.hpp>
#include <tessera/ops/data_movement/factors.hpp>

namespace tessera::ops {

/// The extent of a dim if it follows from constants in the graph, otherwise -1.
constexpr std::int64_t static_extent(const Graph& graph, int id, int dim) {
  for (;;) {
    const Node& node = graph[id];
    if (node.is_singleton(dim)) return 1;
    if (node.op == Op::rearrange && node.arity > 1) {
      const Factors f = Factors::of(node);
      int at = -1, count = 0;
      for (int p = 0; p < f.count; ++p)
        if (f.out_dim[p] == dim) at = f.order[p], ++count;
      if (count != 1) return -1;
      const int size = graph.operand(id, 1 + at);
      return size >= 0 && graph[size].is_constant() ? number_of(graph[size]).integer() : -1;
    }
    return -1;
  }
}

/// Turns a sum of pads that together cover a dim exactly once into a concat. The gradient of a value that is sliced up
/// is such a sum.
class PadsToConcat {
 public:
  constexpr explicit PadsToConcat(Graph& graph) : graph_(graph) {}

  /// The concat that equals the sum of two operands; -1 where there is none.
  constexpr int sum(const Node& node, const std::int32_t* operands) {
    collect(operands[0]);
    if (valid_) collect(operands[1]);
    if (!valid_ || pads_.size() < 2) return -1;
    const std::int64_t extent = static_extent(graph_, like_, dim_);
    if (extent < 0) return -1;
    Growable<std::int32_t> ordered;
    std::int64_t covered = 0;
    while (covered < extent) {
      std::size_t at = 0;
      while (at < pads_.size() && pads_[at].start != covered) ++at;
      if (at == pads_.size()) return -1;
      ordered.push_back(pads_[at].id);
      covered += pads_[at].size;
    }
    if (covered != extent || ordered.size() != pads_.size()) return -1;
    return graph_.add({.op = Op::concat,
                       .dtype = node.dtype,
                       .rank = node.rank,
                       .singletons = node.singletons,
                       .labels = pack_dim(dim_),
                       .source = node.source},
                      ordered.data(), static_cast<int>(ordered.size()));
  }

 private:
  struct Pad {
    std::int64_t start, size;
    std::int32_t id;
  };
  Graph& graph_;
  int dim_ = -1, like_ = -1;
  bool valid_ = true;
  Growable<Pad> pads_;

  constexpr void collect(int id) {
    const Node& node = graph_[id];
    if (node.op == Op::add) {
      collect(graph_.operand(id, 0));
      if (valid_) collect(graph_.operand(id, 1));
      return;
    }
    valid_ = node.op == Op::pad && graph_.operand_node(id, 1).is_constant() &&
             (like_ < 0 || (like_ == graph_.operand(id, 2) && dim_ == dim_of(node)));
    if (!valid_) return;
    like_ = graph_.operand(id, 2);
    dim_ = dim_of(node);
    const std::int64_t size = static_extent(graph_, graph_.operand(id, 0), dim_);
    valid_ = size > 0;
    pads_.push_back({number_of(graph_.operand_node(id, 1)).integer(), size, graph_.operand(id, 0)});
  }
};

}  // namespace tessera::ops

#include <tessera/base/pop_macros.hpp>

#endif
