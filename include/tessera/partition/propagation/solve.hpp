#ifndef TESSERA_PARTITION_PROPAGATION_SOLVE_HPP
#define TESSERA_PARTITION_PROPAGATION_SOLVE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string>

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/partition/plan/planned_mesh.hpp>
#include <tessera/partition/propagation/propagate.hpp>
#include <tessera/partition/propagation/unit_readers.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// The sharding of one layer of a stacked value.
constexpr Sharding without_layers(const Sharding& stacked) {
  Sharding slice = replicated(stacked.rank - 1);
  for (int d = 0; d < slice.rank; ++d) {
    slice.dims[d] = stacked.dims[d + 1];
    slice.priority[d] = stacked.priority[d + 1];
  }
  return slice;
}

/// The sharding of a stack of values with this sharding. A repeat takes and makes it with the dim of layers unsplit.
constexpr Sharding with_layers(const Sharding& slice) {
  Sharding stacked = replicated(slice.rank + 1);
  for (int d = 0; d < slice.rank; ++d) {
    stacked.dims[d + 1] = slice.dims[d];
    stacked.priority[d + 1] = slice.priority[d];
  }
  return stacked;
}

/// The sharding that the caller requests for an output of the program, if any.
struct OutputRequest {
  bool given = false;
  Sharding sharding{};
  bool stored = false;               ///< whether the result is stored as `storage` says
  Storage storage = Storage::block;  ///< block or layers
};

/// Finds the shardings of all values of a program. Propagation runs in the main graph and in each body of a repeat; a
/// repeat passes shardings between its operands and its body until nothing changes.
class ShardingSolver {
 public:
  /// `explicit_shardings`: by graph, for programs with explicit axes.
  constexpr ShardingSolver(const ProgramView& program, const UnitsView* units, const PlannedMesh& mesh,
                           const Growable<GraphShapes>& found,
                           const Growable<ExplicitShardings>& explicit_shardings = {})
      : rules(explicit_shardings), program_(program), units_(units), mesh_(mesh.refined), planned_(mesh) {
    rules.resize(static_cast<std::size_t>(program.graph_count));
    values.resize(static_cast<std::size_t>(program.graph_count));
    seeds_.resize(static_cast<std::size_t>(program.graph_count));
    for (int g = 0; g < program.graph_count; ++g) {
      links.push_back(Links(program.graphs[g], units[g], found[static_cast<std::size_t>(g)]));
      readers.push_back(UnitReaders(units[g], program.graphs[g].size));
      argument_nodes_.push_back(find_arguments(program.graphs[g]));
    }
    tie_carried();
  }

  Growable<ValueShardings> values;    ///< by graph
  Growable<Links> links;              ///< by graph
  Growable<UnitReaders> readers;      ///< by graph
  Growable<ExplicitShardings> rules;  ///< by graph

  /// `arguments`: shardings by argument of the program. `requests`: by output of the program, or null.
  constexpr void solve(const Sharding* arguments, const OutputRequest* requests) {
    const GraphView graph = program_.main();
    ValueShardings made = initial(0);
    for (int id = 0; id < graph.size; ++id)
      if (graph[id].is_argument()) {
        made.of[size(id)] = arguments[graph[id].index()];
        made.fixed[size(id)] = made.argument[size(id)] = 1;
      }
    for (int id = 0; id < graph.size; ++id)
      if (const int like = row_of(graph[id]).sharded_as; like >= 0 && Alike::of(graph[id]).exactly)
        if (const auto of = size(graph.operand(id, like)); made.fixed[of]) {
          made.of[size(id)] = made.of[of];
          made.fixed[size(id)] = 1;
        }
    keep_computed_splits(graph, made);
    if (requests)
      for (int k = 0; k < graph.output_count; ++k) {
        const int id = graph.outputs[k];
        if (!requests[k].given || made.fixed[size(id)] || made.closed[size(id)] != 0 || rules[0].rules(id)) continue;
        made.of[size(id)] = requests[k].sharding.without_unreduced();
        made.fixed[size(id)] = 1;
      }
    values[0] = made;
    settle(0);
  }

  /// The node of argument `index` of graph g; -1 when no node reads that argument.
  constexpr int argument_node(int g, int index) const {
    const auto& nodes = argument_nodes_[size(g)];
    return size(index) < nodes.size() ? nodes[size(index)] : -1;
  }

  /// The sharding in which a body takes carried value k as an argument and returns it for the next layer.
  constexpr Sharding carried(int body, int k) const {
    const int node = argument_node(body, k);
    const ValueShardings& inner = values[size(body)];
    return inner.of[size(node >= 0 ? node : program_.graphs[body].outputs[k])];
  }

 private:
  ProgramView program_;
  const UnitsView* units_;
  const Mesh& mesh_;
  const PlannedMesh& planned_;
  Growable<Growable<std::int32_t>> argument_nodes_;
  Growable<ValueShardings> seeds_;
  static constexpr int max_rounds = 8;

  static constexpr std::size_t size(int i) { return static_cast<std::size_t>(i); }

  static constexpr Growable<std::int32_t> find_arguments(const GraphView& graph) {
    Growable<std::int32_t> nodes;
    for (int id = 0; id < graph.size; ++id) {
      if (!graph[id].is_argument()) continue;
      while (nodes.size() <= size(graph[id].index())) nodes.push_back(-1);
      nodes[size(graph[id].index())] = id;
    }
    return nodes;
  }

  constexpr void tie_carried() {
    for (int g = 0; g < program_.graph_count; ++g) {
      const GraphView graph = program_.graphs[g];
      for (int id = 0; id < graph.size; ++id) {
        if (!graph[id].is_repeat()) continue;
        const int body = graph[id].index();
        for (int k = 0; k < Repeat::of(graph[id]).carried; ++k) {
          const int from = argument_node(body, k), to = program_.graphs[body].outputs[k];
          if (from >= 0 && from != to && !program_.graphs[body][to].is_constant()) links[size(body)].tie(-1, from, to);
        }
      }
    }
  }

  /// The sharding that a constraint names, on the refined mesh. Errors are those of the spec, with the user's line.
  constexpr Sharding wanted(const Node& node) const {
    const PartitionSpec& spec = program_.specs[node.index()];
    // closed_axes() has checked the axes that shard_map names.
    if (Constraint::of(node).about >= 0) return refined(spec, node.rank);
    try {
      return refined(spec, node.rank);
    } catch (const error& e) {
      fail(e.id(), e.what(), ", in with_sharding", node.source);
    }
  }

  constexpr Sharding refined(const PartitionSpec& spec, int rank) const {
    return canonical(planned_.resolve(spec, rank), mesh_);
  }

  /// The axes that a constraint of shard_map fixes, one bit each; 0 for a constraint that fixes all axes.
  constexpr std::uint16_t closed_axes(const Node& node) const {
    unsigned axes = 0;
    const Constraint own = Constraint::of(node);
    if (own.about >= 0)
      for (const SpecEntry& entry : program_.specs[own.about].entries)
        for (const Name& name : entry.axes) {
          if (own.of_parameter && !planned_.given.has_axis(name.view()))
            ops::fail_axis_of_wrapper(name, node, planned_.given);
          axes |= detail::named_axes(name, node, planned_);
        }
    return static_cast<std::uint16_t>(axes);
  }

  /// The shardings before propagation: those of constraints; all other values are replicated.
  constexpr ValueShardings initial(int g) const {
    const GraphView graph = program_.graphs[g];
    ValueShardings made(graph);
    for (int id = 0; id < graph.size; ++id)
      if (row_of(graph[id]).constrains) {
        made.closed[size(id)] = closed_axes(graph[id]);
        made.of[size(id)] = wanted(graph[id]);
        made.fixed[size(id)] = made.closed[size(id)] == 0;
        // readers compute with this sharding, as with that of an argument
        made.argument[size(id)] = made.closed[size(id)] != 0;
      }
    return made;
  }

  /// A parameter that a wrapper gathers, and its gradient, stay split along the axes that split the parameter for
  /// computations.
  constexpr void keep_computed_splits(const GraphView& graph, ValueShardings& made) const {
    for (int id = 0; id < graph.size; ++id) {
      if (!row_of(graph[id]).constrains) continue;
      const Constraint own = Constraint::of(graph[id]);
      if (!own.of_parameter) continue;
      const int parameter = own.keeps_sums ? parameter_of_gradient(graph, id) : made_of(graph, graph.operand(id, 0));
      if (parameter < 0) continue;
      const Sharding& split = made.of[size(parameter)];
      for (int d = 0; d < split.rank; ++d)
        for (std::uint8_t axis : split.dims[d])
          if (split.priority[d] == 0 && (made.closed[size(id)] >> axis & 1u) != 0)
            made.of[size(id)].dims[d] = split.dims[d];
    }
  }
  /// The argument from which a parameter was made by casts and barriers, or the constraint that gathered it; -1 where
  /// it is neither.
  static constexpr int made_of(const GraphView& graph, int id) {
    while (!graph[id].is_argument() && !row_of(graph[id]).constrains) {
      const OpRow& row = row_of(graph[id]);
      if (!row.converts && row.unit != UnitKind::constraint) return -1;
      id = graph.operand(id, 0);
    }
    return graph[id].is_argument() || Constraint::of(graph[id]).of_parameter ? id : -1;
  }
  /// The parameter to which a gradient is made alike; -1 where there is none.
  static constexpr int parameter_of_gradient(const GraphView& graph, int id) {
    for (int reader = id + 1; reader < graph.size; ++reader)
      if (const int like = row_of(graph[reader]).sharded_as; like >= 0 && graph.operand(reader, 0) == id)
        return made_of(graph, graph.operand(reader, like));
    return -1;
  }

  constexpr void settle(int g) {
    Propagation propagation(links[size(g)], mesh_, rules[size(g)], values[size(g)]);
    bool repeats = false;
    for (int u = 0; u < units_[g].count; ++u) repeats = repeats || units_[g][u].kind == UnitKind::repeat;
    bool moved = true;
    for (int round = 0; round < max_rounds && moved; ++round) {
      propagation.run();
      moved = false;
      for (int u = 0; u < units_[g].count && repeats; ++u)
        if (units_[g][u].kind == UnitKind::repeat) moved = enter(g, u) || moved;
    }
    if (keep_rules(g)) propagation.run();
    settle_pairs(g);
  }

  /// Sets the explicit axes of all values to those of the rules, after propagation. Returns whether anything changed.
  constexpr bool keep_rules(int g) {
    const ExplicitShardings& own = rules[size(g)];
    bool changed = false;
    for (int id = 0; own.axes != 0 && id < program_.graphs[g].size; ++id) {
      Sharding& found = values[size(g)].of[size(id)];
      if (!own.rules(id) || values[size(g)].fixed[size(id)]) continue;
      for (int d = 0; d < found.rank; ++d) {
        const AxisList wanted = own.ruled(id, d, found.dims[d]);
        changed = changed || !(wanted == found.dims[d]);
        found.dims[d] = wanted;
      }
    }
    return changed;
  }

  /// The two results of ts::shard_as have one sharding. Their readers may have given them different ones: the second
  /// takes that of the first.
  constexpr void settle_pairs(int g) {
    const GraphView graph = program_.graphs[g];
    Growable<Sharding>& of = values[size(g)].of;
    for (int id = 0; id < graph.size; ++id)
      if (const int like = row_of(graph[id]).sharded_as;
          like >= 0 && row_of(graph.operand_node(id, like)).sharded_as >= 0)
        of[size(id)] = of[size(graph.operand(id, like))];
  }

  constexpr bool enter(int g, int u) {
    const Repeat repeat = Repeat::of(program_.graphs[g][units_[g][u].root]);
    const int body = program_.graphs[g][units_[g][u].root].index();
    ValueShardings& outer = values[size(g)];
    ValueShardings seeds = initial(body);
    const int stacked_end = repeat.carried + repeat.stacked;
    for (int i = 0; i < units_[g][u].input_count; ++i) {
      const int inside = argument_node(body, i), outside = units_[g].input(u, i).node;
      if (inside < 0) continue;
      const bool stacked = i >= repeat.carried && i < stacked_end;
      if (is_in_layers(program_.graphs[g][outside]) && !outer.of[size(outside)].dims[0].empty())
        fail(errc::unsupported, "[stack] layers: dim 0 of the tensors of a Stack counts its layers and can't be split "
                                "among devices; use ts::none "
                                "for dim 0");
      seeds.of[size(inside)] = stacked ? without_layers(outer.of[size(outside)]) : outer.of[size(outside)];
      seeds.fixed[size(inside)] = i >= repeat.carried && outer.fixed[size(outside)];
      seeds.argument[size(inside)] = i >= repeat.carried && outer.argument[size(outside)];
    }
    const GraphView inner = program_.graphs[body];
    for (int k = repeat.carried; k < units_[g][u].output_count; ++k) {
      const int inside = inner.outputs[k], outside = units_[g].output(u, k).node;
      if (outside < 0 || seeds.fixed[size(inside)] || seeds.of[size(inside)].used_axes() != 0) continue;
      if (rules[size(body)].rules(inside)) continue;
      seeds.of[size(inside)] = without_layers(outer.of[size(outside)]);
    }
    keep_computed_splits(inner, seeds);
    ValueShardings& found = values[size(body)];
    if (!(seeds.of == seeds_[size(body)].of)) {
      seeds_[size(body)] = seeds;
      found = seeds;
      settle(body);
    }

    bool moved = false;
    for (int i = 0; i < units_[g][u].input_count; ++i) {
      const int inside = argument_node(body, i);
      if (inside < 0) continue;
      const Sharding& own = found.of[size(inside)];
      const bool stacked = i >= repeat.carried && i < stacked_end;
      moved = extend(g, units_[g].input(u, i).node, stacked ? with_layers(own) : own) || moved;
    }
    for (int k = 0; k < units_[g][u].output_count; ++k) {
      const int outside = units_[g].output(u, k).node;
      if (outside < 0) continue;
      const Sharding own = k < repeat.carried ? carried(body, k) : with_layers(found.of[size(inner.outputs[k])]);
      moved = extend(g, outside, own) || moved;
    }
    return moved;
  }

  /// Gives a value outside of a body the sharding that was found inside the body, if this only adds axes. Returns
  /// whether the sharding changed.
  constexpr bool extend(int g, int node, const Sharding& found) {
    ValueShardings& outer = values[size(g)];
    Sharding& own = outer.of[size(node)];
    if (outer.fixed[size(node)] || outer.closed[size(node)] != 0 || own.rank != found.rank) return false;
    bool more = false;
    for (int d = 0; d < own.rank; ++d) {
      if (!is_prefix(own.dims[d], found.dims[d])) return false;
      for (std::uint8_t axis : found.dims[d])
        if (!rules[size(g)].allows(node, d, axis)) return false;
      more = more || found.dims[d].size() > own.dims[d].size();
    }
    if (more) own = found;
    return more;
  }
};

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
