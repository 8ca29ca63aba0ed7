#ifndef TESSERA_GRAPH_FUSE_DIM_CLASSES_HPP
#define TESSERA_GRAPH_FUSE_DIM_CLASSES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/attributes/repeat.hpp>
#include <tessera/graph/ir/attributes/storage.hpp>
#include <tessera/graph/ir/row.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// Which dims of a graph have equal extents in every call: the dims that consist of one factor of an operation form a
/// class.
class DimClasses {
 public:
  constexpr explicit DimClasses(const GraphView& graph)
      : graph_(graph), earlier_(static_cast<std::size_t>(graph.size) * max_rank) {
    FactorRule rule;
    for (int id = 0; id < graph.size; ++id) unify_node(id, rule);
  }

  /// The class of a dim; -1 for a dim of static extent 1.
  constexpr std::int32_t of(int id, int dim) const { return graph_[id].is_singleton(dim) ? -1 : find(slot(id, dim)); }

 private:
  GraphView graph_;
  Growable<std::int32_t> earlier_;  // by dim: 1 + an earlier dim of its class; 0: it is the first

  static constexpr std::int32_t slot(int id, int dim) { return id * max_rank + dim; }
  constexpr std::int32_t find(std::int32_t s) const {
    const std::int32_t* const earlier = earlier_.data();
    while (earlier[s] != 0) s = earlier[s] - 1;
    return s;
  }
  constexpr void unify(std::int32_t a, std::int32_t b) {
    a = find(a);
    b = find(b);
    // The earliest dim represents its class, so that classes don't depend on the order of unification.
    if (a != b) earlier_.data()[a < b ? b : a] = (a < b ? a : b) + 1;
  }

  // The rule of most operations: trailing dims are aligned, and equal unless one has static extent 1.
  constexpr void unify_aligned(int id) {
    const Node& node = graph_[id];
    for (int i = 0; i < node.arity; ++i) {
      const int operand = graph_.operands[node.first + i];
      const Node& from = graph_.nodes[operand];
      const int own = id * max_rank + node.rank - from.rank;
      for (int d = 0; d < from.rank; ++d)
        if ((from.singletons >> d & 1) == 0) unify(operand * max_rank + d, own + d);
    }
  }

  constexpr void unify_node(int id, FactorRule& rule) {
    const Node& node = graph_[id];
    if (node.arity == 0) return;
    if (node.is_projection()) {
      const Node& repeat = graph_.operand_node(id, 0);
      const int source = graph_.operand(id, 0), output = output_of(node);
      const Repeat shape = Repeat::of(repeat);
      if (output < shape.carried) {
        for (int d = 0; d < node.rank; ++d) unify(slot(id, d), slot(graph_.operand(source, output), d));
      } else if (shape.stacked > 0) {
        unify(slot(id, 0), slot(graph_.operand(source, shape.carried), 0));
      }
      return;
    }
    if (node.is_repeat()) {
      const Repeat shape = Repeat::of(node);
      for (int i = 1; i < shape.stacked; ++i)
        unify(slot(graph_.operand(id, shape.carried), 0), slot(graph_.operand(id, shape.carried + i), 0));
      return;
    }
    const OpRow& row = row_of(node);
    if (row.kind == OpKind::elementwise || row.kind == OpKind::index || row.unit == UnitKind::constraint)
      return unify_aligned(id);
    const ShardingRule sharding = row.sharding;
    if (sharding == nullptr || node.rank == 0) {
      if (sharding == nullptr || row.unit != UnitKind::contraction) return;
    }
    rule.kinds.clear();
    rule.operands.clear();
    rule.result = {};
    sharding(graph_, id, rule);
    std::int32_t first[32];
    for (auto& f : first) f = -1;
    auto visit = [&](const DimFactors& dims, int owner) {
      for (int d = 0; d < graph_[owner].rank; ++d) {
        if (dims.dims[d].size() != 1) continue;
        const auto f = static_cast<std::size_t>(dims.dims[d][0]);
        // slice, pad, concat: the result's dim has another extent
        if (rule.kinds[f] >= FactorKind::permutation) continue;
        if (first[f] < 0)
          first[f] = slot(owner, d);
        else
          unify(first[f], slot(owner, d));
      }
    };
    visit(rule.result, id);
    for (int i = 0; i < node.arity; ++i)
      if (const int operand = graph_.operand(id, i); operand >= 0)
        visit(rule.operands[static_cast<std::size_t>(i)], operand);
  }
};

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
