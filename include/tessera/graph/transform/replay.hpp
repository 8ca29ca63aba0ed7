#ifndef TESSERA_GRAPH_TRANSFORM_REPLAY_HPP
#define TESSERA_GRAPH_TRANSFORM_REPLAY_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/ir/attributes/constraint.hpp>
#include <tessera/graph/ir/attributes/einsum_labels.hpp>
#include <tessera/graph/ir/attributes/storage.hpp>
#include <tessera/graph/ir/row.hpp>
#include <tessera/graph/ir/value.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

/// Adds a copy of a node to graph `to`, on other operands. The copy of a repeat has a body of its own, since a gradient
/// changes it.
constexpr int copy_node(Module& module, int graph, int id, const Growable<std::int32_t>& operands, int to) {
  Node made = module.graph(graph)[id];
  made.region = 0;
  if (made.is_repeat()) {
    const int body = module.add_graph();
    module.graph(body) = module.graph(made.index());
    made.value = static_cast<double>(body);
  }
  return module.graph(to).add(made, operands.data(), static_cast<int>(operands.size()));
}
constexpr int copy_node(Module& module, int graph, int id, const Growable<std::int32_t>& operands) {
  return copy_node(module, graph, id, operands, graph);
}

/// The names of a checkpoint's values: see ts::checkpoint_name.
constexpr Name name_of_value(const Node& node) {
  Name name;
  for (std::size_t i = 0; i <= Name::max_length; ++i) name.text[i] = static_cast<char>(node.labels[i]);
  return name;
}

/// Whether a product has a label that both operands and the result have, such as a dim of independent products.
constexpr bool has_batch_dims(const Node& einsum) {
  const EinsumLabels labels = EinsumLabels::of(einsum);
  const auto has = [](const std::int8_t* list, int label) {
    for (int d = 0; d < max_rank; ++d)
      if (list[d] == label) return true;
    return false;
  };
  for (int d = 0; d < max_rank; ++d)
    if (labels.out[d] >= 0 && has(labels.a, labels.out[d]) && has(labels.b, labels.out[d])) return true;
  return false;
}

/// Whether a wrapper gathers a parameter by this node.
constexpr bool is_gather(const Node& node) {
  if (!row_of(node).constrains) return false;
  const Constraint own = Constraint::of(node);
  return own.of_parameter && !own.keeps_sums;
}

/// Whether a policy of one kind stores value `id`. `readers`: for each value the node that gives it a name, or -1.
constexpr bool is_saved(CheckpointPolicy::Kind kind, const CheckpointPolicy& policy, const Graph& graph, int id,
                        const Growable<std::int32_t>& readers) {
  const Node& node = graph[id];
  const bool is_product = row_of(node).unit == UnitKind::contraction, is_name = node.is_name();
  switch (kind) {
    using enum CheckpointPolicy::Kind;
    case everything:
      return true;
    case dots:
      return is_product;
    case dots_without_batch_dims:
      return is_product && !has_batch_dims(node);
    case names:
      return is_name && policy.has(name_of_value(node));
    case names_but:
      return is_name && !policy.has(name_of_value(node));
    case everything_but: {
      // A named value is the operand of its name, so that neither of the two is stored.
      const int named = is_name ? id : readers[static_cast<std::size_t>(id)];
      return named < 0 || !policy.has(name_of_value(graph[named]));
    }
    case all_but_constraints:
      return !row_of(node).constrains;
    case all_but_gathers:
      return !is_gather(node);
    default:
      return false;
  }
}

/// Replaces each node of `from` by the node of `to` with the same index: appends copies of the nodes that depend on
/// `from`, and returns those of `roots`. The copies read `again(id)` in place of all other nodes.
template <class Again>
constexpr Growable<std::int32_t> substitute(Module& module, int graph, const Growable<std::int32_t>& from,
                                            const Growable<std::int32_t>& to, const Growable<std::int32_t>& roots,
                                            const Again& again) {
  int last = 0;
  for (const Growable<std::int32_t>* ids : {&from, &roots})
    for (std::int32_t id : *ids) last = id > last ? id : last;
  Growable<std::int32_t> moved(static_cast<std::size_t>(last + 1), -1), operands;
  int first = last + 1;
  for (std::size_t k = 0; k < from.size(); ++k) {
    moved[static_cast<std::size_t>(from[k])] = to[k];
    first = from[k] < first ? from[k] : first;
  }
  for (int id = first + 1; id <= last; ++id) {
    if (moved[static_cast<std::size_t>(id)] >= 0) continue;
    const int arity = module.graph(graph)[id].arity;
    bool depends = false;
    operands.clear();
    for (int i = 0; i < arity; ++i) {
      const int operand = module.graph(graph).operand(id, i);
      operands.push_back(operand < 0 ? -1 : moved[static_cast<std::size_t>(operand)]);
      depends = depends || operands.back() >= 0;
    }
    if (!depends) continue;
    for (int i = 0; i < arity; ++i)
      if (const int operand = module.graph(graph).operand(id, i); operand >= 0 && operands.data()[i] < 0)
        operands.data()[i] = again(operand);
    moved[static_cast<std::size_t>(id)] = copy_node(module, graph, id, operands);
  }
  Growable<std::int32_t> made;
  for (std::int32_t id : roots) {
    const std::int32_t other = moved[static_cast<std::size_t>(id)];
    made.push_back(other >= 0 ? other : again(id));
  }
  return made;
}

}  // namespace detail

/// What a sweep computes again: the nodes of checkpoints that their policies do not store. They are copied when the
/// sweep meets the first node of a checkpoint. The copies read barriers, so that they stay different from the originals
/// and are computed only when the first cotangent of the checkpoint is there.
class Replay {
 public:
  /// Copies the nodes of the checkpoint to which node `id` belongs. `id` is the last of its nodes with a cotangent.
  constexpr void enter(Module& module, int graph, int id, std::int32_t cotangent) {
    const std::uint8_t region = module.graph(graph)[id].region;
    while (regions_.size() <= region) regions_.push_back({});
    Region& own = regions_[region];
    if (!own.to.empty()) return;
    const CheckpointPolicy policy = module.regions[static_cast<std::size_t>(region - 1)];
    if (policy.is(CheckpointPolicy::Kind::everything)) return;
    own.to.assign(static_cast<std::size_t>(id + 1), -1);
    own.after = cotangent;
    own.is_of_wrapper = policy.kind == CheckpointPolicy::Kind::all_but_gathers;
    Growable<std::int32_t> operands, readers(static_cast<std::size_t>(id + 1), -1);
    if (policy.is(CheckpointPolicy::Kind::everything_but))
      for (int at = 0; at <= id; ++at)
        if (const Graph& all = module.graph(graph); all[at].is_name())
          for (int named = all.operand(at, 0);; named = all.operand(named, 0)) {
            readers[static_cast<std::size_t>(named)] = at;
            if (!row_of(all[named]).converts) break;  // a product that is rounded has its casts' name
          }
    const auto is_saved = [&](int at) {
      return detail::is_saved(policy.kind, policy, module.graph(graph), at, readers) ||
             detail::is_saved(policy.other, policy, module.graph(graph), at, readers);
    };
    for (int at = 0; at <= id; ++at) {
      const Node node = module.graph(graph)[at];
      if (node.region != region || node.is_argument() || is_saved(at)) continue;
      operands.clear();
      for (int i = 0; i < node.arity; ++i) {
        const int operand = module.graph(graph).operand(at, i);
        operands.push_back(operand < 0 ? -1 : behind(own, {&module, graph, operand, node.source}));
      }
      own.to[static_cast<std::size_t>(at)] = detail::copy_node(module, graph, at, operands);
    }
  }

  /// The copy of a value, as a node of the checkpoint `region` reads it.
  constexpr Value operator()(const Value& value, std::uint8_t region) {
    if (regions_.size() <= region || regions_[region].to.empty()) return value;
    Region& own = regions_[region];
    const auto at = static_cast<std::size_t>(value.id);
    // A wrapper stores all values but the parameters that it gathers: a gradient reads the stored values as it would
    // without the wrapper.
    if (own.is_of_wrapper && value.id >= 0 && (at >= own.to.size() || own.to[at] < 0) &&
        !is_gathered_again(*value.module, value.node()))
      return value;
    return value.with(behind(own, value));
  }

 private:
  struct Region {
    Growable<std::int32_t> to;  ///< by node: its copy, or its barrier; -1: none yet
    std::int32_t after = -1;    ///< the cotangent for which the barriers wait
    bool is_of_wrapper = false;
  };
  Growable<Region> regions_;

  /// A parameter that a wrapper around the checkpoint gathers, and gathers again for the gradient.
  static constexpr bool is_gathered_again(const Module& module, const Node& node) {
    return node.region != 0 && detail::is_gather(node) &&
           module.regions[static_cast<std::size_t>(node.region - 1)].kind == CheckpointPolicy::Kind::all_but_gathers;
  }

  constexpr std::int32_t behind(Region& own, const Value& value) {
    const auto at = static_cast<std::size_t>(value.id);
    if (value.id < 0 || at >= own.to.size()) return value.id;
    if (own.to[at] >= 0) return own.to[at];
    const Node node = value.node();
    if (is_gathered_again(*value.module, node)) {
      Growable<std::int32_t> operands;
      for (int i = 0; i < node.arity; ++i)
        operands.push_back(behind(
            own, {value.module, value.graph, value.module->graph(value.graph).operand(value.id, i), node.source}));
      return own.to[at] = detail::copy_node(*value.module, value.graph, value.id, operands);
    }
    // A repeat has several results, so its projections have barriers; a Stack's parameters need none.
    if (node.is_repeat() || is_in_layers(node) || is_host_number(value)) return own.to[at] = value.id;
    return own.to[at] =
               value
                   .make({.op = Op::barrier, .dtype = node.dtype, .rank = node.rank, .singletons = node.singletons},
                         {value.id, own.after})
                   .id;
  }
};

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
