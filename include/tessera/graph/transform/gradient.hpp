#ifndef TESSERA_GRAPH_TRANSFORM_GRADIENT_HPP
#define TESSERA_GRAPH_TRANSFORM_GRADIENT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/ir/row.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/transform/replay.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// What a gradient rule works with: one node of a graph, in a reverse sweep over that graph.
class Gradient {
 public:
  /// The state of one reverse sweep: the cotangent of each node (-1: none so far), and whether the node needs one.
  struct Sweep {
    Module* module;
    int graph;
    Growable<std::int32_t> cotangents;
    Growable<std::uint8_t> wanted;
    Replay replay{};  ///< of checkpoints
  };

  constexpr Gradient(Sweep& sweep, int id)
      : sweep_(sweep), id_(id), region_(sweep.module->graph(sweep.graph)[id].region) {}

  /// The values of operand i and of the result; in a checkpoint, computed again.
  constexpr Value x(int i) const { return again(sweep_.module->graph(sweep_.graph).operand(id_, i)); }
  constexpr Value y() const { return again(id_); }
  /// The value of a node before this one; in a checkpoint, computed again.
  constexpr Value again(int id) const { return region_ == 0 ? value(id) : sweep_.replay(value(id), region_); }
  /// Operand i itself, also in a checkpoint.
  constexpr Value operand(int i) const { return value(sweep_.module->graph(sweep_.graph).operand(id_, i)); }
  /// The cotangent of the result. It may have fewer dims than the result, or singleton dims, and is then to be
  /// broadcast.
  constexpr Value g() const { return value(sweep_.cotangents[static_cast<std::size_t>(id_)]); }
  /// The cotangent, broadcast to the shape of the result.
  constexpr Value full_g() const { return build::broadcast(g(), value(id_)); }
  /// The cotangent, in full shape, of the node `op` number `k` (its `index`) that has this node as its operand 1; a
  /// null value where there is none.
  constexpr Value cotangent_of_reader(Op op, int k) const {
    const Graph& graph = sweep_.module->graph(sweep_.graph);
    for (int p = id_ + 1; p < static_cast<int>(sweep_.cotangents.size()); ++p)
      if (const std::int32_t own = sweep_.cotangents[static_cast<std::size_t>(p)];
          own >= 0 && graph[p].op == op && graph[p].index() == k && graph.operand(p, 1) == id_)
        return build::broadcast(value(own), value(p));
    return {};
  }
  constexpr int id() const { return id_; }
  constexpr const Node& node() const { return sweep_.module->graph(sweep_.graph)[id_]; }
  constexpr Module& module() const { return *sweep_.module; }
  constexpr int arity() const { return node().arity; }

  constexpr bool needs(int operand) const {
    const int at = sweep_.module->graph(sweep_.graph).operand(id_, operand);
    return at >= 0 && sweep_.wanted[static_cast<std::size_t>(at)];
  }
  /// Adds `cotangent` to that of operand i, summed over the dims along which the operand was broadcast.
  constexpr void add(int operand, Value cotangent) {
    if (!needs(operand)) return;
    const Value target = value(sweep_.module->graph(sweep_.graph).operand(id_, operand));
    if (row_of(node()).kind == OpKind::elementwise) cotangent = count_repeats(cotangent, target);
    cotangent = build::sum_to(cotangent, target);
    std::int32_t& slot = sweep_.cotangents[static_cast<std::size_t>(target.id)];
    slot = slot < 0 ? cotangent.id : build::add_cotangents(value(slot), cotangent).id;
  }

  /// For a node with several outputs: the cotangent of output k in its full shape; a null value when the loss does not
  /// depend on it.
  constexpr Value output_cotangent(int k) const {
    const Graph& graph = sweep_.module->graph(sweep_.graph);
    for (int p = id_ + 1; p < static_cast<int>(sweep_.cotangents.size()); ++p) {
      const Node& node = graph[p];
      const std::int32_t cotangent = sweep_.cotangents[static_cast<std::size_t>(p)];
      if (node.is_projection() && output_of(node) == k && graph.operand(p, 0) == id_ && cotangent >= 0)
        return build::broadcast(value(cotangent), value(p));
    }
    return {};
  }

 private:
  Sweep& sweep_;
  int id_;
  std::uint8_t region_;

  /// For a cotangent that is constant along a summed dim: multiplies it by the extent instead of broadcasting and
  /// summing.
  constexpr Value count_repeats(Value cotangent, Value target) const {
    const Node &result = node(), &own = cotangent.node();
    unsigned lost = build::extending_dims(result, result.rank) & ~build::extending_dims(target.node(), result.rank) &
                    ~build::extending_dims(own, result.rank);
    for (int d = 0; lost != 0; ++d, lost >>= 1)
      if ((lost & 1) != 0) cotangent = cotangent * build::cast(build::extent(value(id_), d), cotangent.dtype());
    return cotangent;
  }

  constexpr Value value(int id) const {
    return {sweep_.module, sweep_.graph, id, sweep_.module->graph(sweep_.graph)[id_].source};
  }
};

/// Whether the loss depends on an output of a node with several outputs.
constexpr bool has_output_cotangent(const Gradient::Sweep& sweep, int id) {
  const Graph& graph = sweep.module->graph(sweep.graph);
  for (std::size_t p = static_cast<std::size_t>(id) + 1; p < sweep.cotangents.size(); ++p)
    if (sweep.cotangents[p] >= 0 && graph[static_cast<int>(p)].is_projection() &&
        graph.operand(static_cast<int>(p), 0) == id)
      return true;
  return false;
}

/// Runs the gradient rules from the last node of the sweep to the first. Nodes that the rules add are not visited.
constexpr void run_sweep(Gradient::Sweep& sweep) {
  const std::size_t first = sweep.module->graph(sweep.graph).nodes.size();
  for (int id = static_cast<int>(sweep.cotangents.size()) - 1; id >= 0; --id) {
    const Node& node = sweep.module->graph(sweep.graph)[id];
    if (!sweep.wanted[static_cast<std::size_t>(id)]) continue;
    const std::int32_t cotangent = sweep.cotangents[static_cast<std::size_t>(id)];
    if (cotangent < 0 && !(node.is_repeat() && has_output_cotangent(sweep, id))) continue;
    const GradientRule rule = gradient_of(node.op);
    if (node.region != 0 && cotangent >= 0) sweep.replay.enter(*sweep.module, sweep.graph, id, cotangent);
    if (rule != nullptr) {
      Gradient gradient(sweep, id);
      rule(gradient);
    }
  }
  Growable<Node>& nodes = sweep.module->graph(sweep.graph).nodes;
  for (std::size_t id = first; id < nodes.size(); ++id) nodes.data()[id].derived = true;
}

/// A sweep over all present nodes, in which those that depend on `sources` need cotangents.
constexpr Gradient::Sweep make_sweep(Module& module, int graph, const Growable<std::int32_t>& sources) {
  const Graph& g = module.graph(graph);
  Gradient::Sweep sweep{&module, graph, Growable<std::int32_t>(g.nodes.size(), -1),
                        Growable<std::uint8_t>(g.nodes.size(), 0)};
  for (std::int32_t id : sources) sweep.wanted[static_cast<std::size_t>(id)] = true;
  for (int id = 0; id < g.size(); ++id) {
    const Node& node = g[id];
    if (!is_floating(node.dtype) && !node.is_repeat()) continue;
    if (gradient_of(node.op) == nullptr && !node.is_projection()) continue;
    const OpRow& row = row_of(node);
    for (int i = 0; i < node.arity; ++i) {
      const int operand = g.operand(id, i);
      if (operand >= 0 && !has_operand(row.shape_only, i) && sweep.wanted[static_cast<std::size_t>(operand)])
        sweep.wanted[static_cast<std::size_t>(id)] = true;
    }
  }
  return sweep;
}

/// Reverse-mode differentiation, graph to graph: appends the products of `cotangents` with the Jacobians of `results`,
/// and returns for each source the node of its gradient, in the shape of the source. The gradient is 0 for a source on
/// which the results do not depend. All are values of the graph of `context`.
constexpr Growable<std::int32_t> differentiate(Value context, const Growable<std::int32_t>& results,
                                               const Growable<std::int32_t>& cotangents,
                                               const Growable<std::int32_t>& sources) {
  Gradient::Sweep sweep = make_sweep(*context.module, context.graph, sources);
  for (std::size_t k = 0; k < results.size(); ++k) {
    std::int32_t& slot = sweep.cotangents[static_cast<std::size_t>(results[k])];
    slot = slot < 0 ? cotangents[k] : build::add_cotangents(context.with(slot), context.with(cotangents[k])).id;
  }
  // Of a refused program the bodies of loops are not recorded.
  if (context.module->refusal.text == nullptr) run_sweep(sweep);
  Growable<std::int32_t> gradients;
  for (std::int32_t id : sources) {
    const std::int32_t found = sweep.cotangents[static_cast<std::size_t>(id)];
    const Value source = context.with(id);
    gradients.push_back(build::broadcast(found >= 0 ? context.with(found) : source.number(0), source).id);
  }
  return gradients;
}
/// The gradient of a scalar.
constexpr Growable<std::int32_t> differentiate(Value loss, const Growable<std::int32_t>& sources) {
  Growable<std::int32_t> losses, ones;
  losses.push_back(loss.id);
  ones.push_back(loss.number(1).id);
  return differentiate(loss, losses, ones, sources);
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
