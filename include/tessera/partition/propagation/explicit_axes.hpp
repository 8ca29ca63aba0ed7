#ifndef TESSERA_PARTITION_PROPAGATION_EXPLICIT_AXES_HPP
#define TESSERA_PARTITION_PROPAGATION_EXPLICIT_AXES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/program.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/ops/rows.hpp>
#include <tessera/partition/plan/cut_search.hpp>
#include <tessera/partition/propagation/links.hpp>
#include <tessera/partition/propagation/shapes.hpp>
#include <tessera/partition/propagation/solve.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

/// Computes the sharding of each result over the explicit axes from its operands only, node by node.
class ExplicitAxes {
 public:
  Growable<ExplicitShardings> found;  ///< by graph

  constexpr ExplicitAxes(const ProgramView& program, const PlannedMesh& mesh, const Growable<GraphShapes>& shapes,
                         unsigned axes, CutSearch& search)
      : program_(program), planned_(mesh), mesh_(mesh.refined), shapes_(shapes), axes_(axes), search_(search) {
    found.resize(static_cast<std::size_t>(program.graph_count));
  }

  /// `derived`: a body that gradients added. Its shardings follow its operands, and are neither checked nor recorded.
  constexpr void check(int g, const Growable<Sharding>& arguments, bool derived = false) {
    const GraphView graph = program_.graphs[g];
    Growable<Sharding> of;
    Growable<std::uint8_t> given;
    of.reserve(static_cast<std::size_t>(graph.size));
    given.reserve(static_cast<std::size_t>(graph.size));
    for (int id = 0; id < graph.size; ++id) {
      const Node& node = graph[id];
      Sharding made = replicated(node.rank);
      if (node.is_argument())
        made = explicit_part(arguments[static_cast<std::size_t>(node.index())]);
      else if (row_of(node).constrains)
        made = constrained(node, of[static_cast<std::size_t>(graph.operand(id, 0))]);
      else if (const int like = row_of(node).sharded_as; like >= 0)
        made = of[static_cast<std::size_t>(graph.operand(id, like))];
      else if (node.is_repeat())
        enter(graph, id, of, derived);
      else if (node.is_projection())
        made = projected(graph, id, of);
      else if (node.rank > 0 || row_of(node).unit == UnitKind::contraction)
        made = result(g, graph, id, of);
      of.push_back(made);
      given.push_back(node.rank > 0 && !derived && !node.derived && is_ruled(graph, id) ? 1 : 0);
    }
    if (!derived) found[static_cast<std::size_t>(g)] = {axes_, of, given};
    outputs_.resize(outputs_.size() > static_cast<std::size_t>(g) ? outputs_.size() : static_cast<std::size_t>(g) + 1);
    for (int k = 0; k < graph.output_count; ++k)
      outputs_[static_cast<std::size_t>(g)].push_back(of[static_cast<std::size_t>(graph.outputs[k])]);
  }

 private:
  ProgramView program_;
  const PlannedMesh& planned_;
  const Mesh& mesh_;
  const Growable<GraphShapes>& shapes_;
  unsigned axes_;
  CutSearch& search_;
  Growable<Growable<Sharding>> outputs_;  // by body

  constexpr Sharding explicit_part(const Sharding& sharding) const {
    Sharding part = replicated(sharding.rank);
    for (int d = 0; d < sharding.rank; ++d) {
      // a dim that is only stored split (FSDP): it is gathered where it is used
      if (sharding.priority[d] > 0) continue;
      for (std::uint8_t axis : sharding.dims[d])
        if (axes_ >> axis & 1u) part.dims[d].push_back(axis);
    }
    return part;
  }

  /// The sharding that a constraint names. Axes that the constraint does not mention stay as its operand has them.
  constexpr Sharding constrained(const Node& node, const Sharding& operand) const {
    const Constraint own = Constraint::of(node);
    Sharding made = explicit_part(planned_.resolve(program_.specs[own.spec], node.rank));
    if (own.about < 0) return made;
    if (own.of_parameter && !own.keeps_sums)
      return operand;  // the rules do not describe values that are split only in storage
    unsigned about = made.used_axes();
    for (const SpecEntry& entry : program_.specs[own.about].entries)
      for (const Name& name : entry.axes) about |= axes_mask(planned_.given, planned_.cuts, name.view());
    for (int d = 0; d < made.rank; ++d)
      for (std::uint8_t axis : operand.dims[d])
        if (!(about >> axis & 1u) && made.dims[d].size() < AxisList::capacity()) made.dims[d].push_back(axis);
    return made;
  }

  /// The with_sharding that is the only reader of a node, and so says the node's sharding (the `out_sharding` of JAX).
  /// -1 where there is none, -2 where several constraints read the node.
  static constexpr int out_sharding(const GraphView& graph, int id) {
    int readers = 0, constraints = 0, found = -1;
    for (int user = id + 1; user < graph.size; ++user)
      for (int i = 0; i < graph[user].arity; ++i) {
        if (graph.operand(user, i) != id || has_operand(row_of(graph[user]).shape_only, i)) continue;
        ++readers;
        if (!row_of(graph[user]).constrains) continue;
        ++constraints;
        found = Constraint::of(graph[user]).about >= 0 ? -2 : user;  // a constraint of shard_map names only some axes
      }
    for (int k = 0; k < graph.output_count; ++k) readers += graph.outputs[k] == id ? 1 : 0;
    return readers == 0 || readers != constraints ? -1 : constraints > 1 ? -2 : found;
  }
  /// Whether the rules decide the sharding of a node. Values without operands (constants, iotas) are sharded as their
  /// readers need them.
  static constexpr bool is_ruled(const GraphView& graph, int id) {
    const Node& node = graph[id];
    const OpRow& row = row_of(node);
    if (node.is_argument() || node.is_projection() || row.constrains || row.sharded_as >= 0) return true;
    return node.arity > 0 && row.sharding != nullptr && out_sharding(graph, id) != -2;
  }

  [[noreturn]] void fail_result_needs_with_sharding(int g, const GraphView& graph, int id, const Growable<Sharding>& of,
                                                    const std::string& why, const Sharding& suggestion) const {
    std::string operands;
    for (int i = 0; i < graph[id].arity; ++i) {
      const int x = graph.operand(id, i);
      if (x < 0 || graph[x].rank == 0) continue;
      const auto at = static_cast<std::size_t>(x);
      operands +=
          concat_text(operands.empty() ? "" : " x ",
                      shape_text(graph[x].dtype, shapes_[static_cast<std::size_t>(g)].shapes[at]), text(of[at], mesh_));
    }
    fail(errc::policy, "[", row_of(graph[id]).name, "] ambiguous result sharding: ", operands, ": ", why,
         graph[id].source, "; state the sharding of the result, such as ts::with_sharding(..., ",
         spec_of(suggestion, mesh_).text(), ")");
  }

  constexpr Sharding result(int g, const GraphView& graph, int id, const Growable<Sharding>& of) const {
    const Node& node = graph[id];
    const OpRow& row = row_of(node);
    Sharding made = replicated(node.rank);
    if (row.sharding == nullptr) return made;
    FactorRule rule;
    rule.operands.reserve(node.arity);
    row.sharding(graph, id, rule);
    const Shape extents = row.factor_extents != nullptr
                              ? row.factor_extents({graph, id, shapes(g).data(), numbers(g).data(), nullptr})
                              : Shape{};
    const char* problem = nullptr;
    const Growable<AxisList> axes = axes_of_factors(graph, id, of, rule, extents, problem);
    split_result(made, rule, axes, extents, problem);
    const int out = out_sharding(graph, id);
    const bool strict = !node.derived && out == -1;
    if (problem != nullptr && strict && !search_.found())
      fail_result_needs_with_sharding(g, graph, id, of, problem, made);
    if (out >= 0) return explicit_part(planned_.resolve(program_.specs[graph[out].index()], node.rank));
    return made;
  }
  /// The axes that split each factor of an operation, by its operands. `problem`: the first reason why the operands do
  /// not determine the sharding of the result, if there is one.
  constexpr Growable<AxisList> axes_of_factors(const GraphView& graph, int id, const Growable<Sharding>& of,
                                               const FactorRule& rule, const Shape& extents,
                                               const char*& problem) const {
    const Node& node = graph[id];
    const OpRow& row = row_of(node);
    Growable<AxisList> axes(rule.kinds.size());
    const auto object = [&](const char* why) { problem = problem == nullptr ? why : problem; };
    for (int i = 0; i < node.arity && i < static_cast<int>(rule.operands.size()); ++i) {
      const int x = graph.operand(id, i);
      if (x < 0 || has_operand(row.shape_only, i)) continue;
      const Sharding& own = of[static_cast<std::size_t>(x)];
      for (int d = 0; d < own.rank; ++d) {
        const auto& factors = rule.operands[static_cast<std::size_t>(i)].dims[d];
        if (own.dims[d].empty() || factors.empty()) continue;
        const auto f = static_cast<std::size_t>(factors[0]);
        if (factors.size() > 1) {
          if (!split_factors(own.dims[d], factors, extents, axes) && !cut(own.dims[d], factors, extents))
            object("the mesh axes of a reshaped dim do not divide the dims of the result");
          continue;
        }
        if (rule.kinds[f] == FactorKind::replicate) {
          object("the operation needs a whole dim on each device, but the dim is split");
          continue;
        }
        // Only one operand of a product is split along the summed dim: that operand is gathered.
        const bool met = !axes[f].empty();
        if (!met)
          axes[f] = own.dims[d];
        else if (!(axes[f] == own.dims[d]))
          object("corresponding dims of the operands are split by different mesh axes");
        if (rule.kinds[f] == FactorKind::reduction && row.kind != OpKind::reduction &&
            (met || row.unit != UnitKind::contraction))
          object("a summed dim is split, so each device has only a partial sum");
      }
    }
    return axes;
  }
  /// Splits the dims of a result by the axes of their factors. `problem` as of axes_of_factors.
  constexpr void split_result(Sharding& made, const FactorRule& rule, const Growable<AxisList>& axes,
                              const Shape& extents, const char*& problem) const {
    const auto object = [&](const char* why) { problem = problem == nullptr ? why : problem; };
    unsigned used = 0;
    for (int d = 0; d < made.rank; ++d) {
      const auto& factors = rule.result.dims[d];
      bool whole = true;  // whether every more significant factor is split down to one index a device
      for (std::size_t k = 0; k < factors.size(); ++k) {
        const auto f = static_cast<std::size_t>(factors[k]);
        const AxisList& own = axes[f];
        if (!whole && !own.empty()) {
          object("a split dim is merged with a more significant dim that is not split into single indices");
          continue;
        }
        whole = whole && factors.size() > 1 && extents[f] == devices_of(own);
        for (std::uint8_t axis : own) {
          if (used >> axis & 1u) {
            object("the same mesh axis would split two dims of the result");
            continue;
          }
          used |= 1u << axis;
          made.dims[d].push_back(axis);
        }
      }
    }
  }
  /// Distributes the axes of a dim that a reshape splits or merges over the dim's factors, the most significant first:
  /// a factor takes axes until each device has one index of it. False where the axis sizes don't divide a factor,
  /// unless it is the only factor that is longer than 1: of [n] split into [1, n], n takes all axes.
  template <class Factors>
  constexpr bool split_factors(const AxisList& list, const Factors& factors, const Shape& extents,
                               Growable<AxisList>& axes) const {
    std::size_t next = 0;
    int longer = 0;
    for (const std::int8_t factor : factors) longer += extents[static_cast<std::size_t>(factor)] != 1 ? 1 : 0;
    for (const std::int8_t factor : factors) {
      const auto f = static_cast<std::size_t>(factor);
      if (longer == 1) {
        if (extents[f] == 1) continue;
        axes[f] = list;
        return true;
      }
      AxisList own;
      std::int64_t left = extents[f];
      for (; next < list.size() && left > 1; ++next) {
        if (left % mesh_.axis_size(list[next]) != 0) return false;
        left /= mesh_.axis_size(list[next]);
        own.push_back(list[next]);
      }
      axes[f] = own;
    }
    return next == list.size();
  }
  /// Whether cutting axes into sub-axes makes the axes fit; the program is then checked again on the finer mesh.
  template <class Factors>
  constexpr bool cut(const AxisList& list, const Factors& factors, const Shape& extents) const {
    return search_.cut_all(list, static_cast<int>(factors.size()), [&](int k) {
      return extents[static_cast<std::size_t>(factors[static_cast<std::size_t>(k)])];
    });
  }
  constexpr const Growable<Shape>& shapes(int g) const { return shapes_[static_cast<std::size_t>(g)].shapes; }
  constexpr const Growable<HostNumber>& numbers(int g) const { return shapes_[static_cast<std::size_t>(g)].numbers; }
  constexpr std::int64_t devices_of(const AxisList& list) const {
    std::int64_t n = 1;
    for (std::uint8_t axis : list) n *= mesh_.axis_size(axis);
    return n;
  }

  constexpr void enter(const GraphView& graph, int id, const Growable<Sharding>& of, bool derived) {
    const Repeat repeat = Repeat::of(graph[id]);
    Growable<Sharding> inside;
    for (int i = 0; i < graph[id].arity; ++i) {
      const Sharding& own = of[static_cast<std::size_t>(graph.operand(id, i))];
      inside.push_back(repeat.is_stacked(i) ? without_layers(own) : own);
    }
    if (outputs_.size() > static_cast<std::size_t>(graph[id].index()))
      outputs_[static_cast<std::size_t>(graph[id].index())].clear();
    check(graph[id].index(), inside, derived || graph[id].derived);
  }
  constexpr Sharding projected(const GraphView& graph, int id, const Growable<Sharding>& of) const {
    const Node& repeat = graph.operand_node(id, 0);
    const int k = output_of(graph[id]), carried = Repeat::of(repeat).carried;
    if (k < carried) return of[static_cast<std::size_t>(graph.operand(graph.operand(id, 0), k))];
    return with_layers(outputs_[static_cast<std::size_t>(repeat.index())][static_cast<std::size_t>(k)]);
  }
};

}  // namespace detail

/// The shardings of a program's values over explicit mesh axes, by graph. A result takes the axes of its operands, dim
/// by dim. Where that is ambiguous, a with_sharding has to be the only reader of the result and say its sharding.
/// Values that gradients add follow their operands and are not checked.
/// Where `search` finds axes to cut, the result is preliminary: call again on the cut mesh.
/// Errors: `policy`, with the operands, the reason, the user's line and the call to write.
/// Source: explicit axes ("sharding in types") of JAX.
constexpr Growable<ExplicitShardings> explicit_shardings(const ProgramView& program, const PlannedMesh& mesh,
                                                         const Growable<GraphShapes>& shapes,
                                                         const Growable<Sharding>& arguments, unsigned axes,
                                                         detail::CutSearch& search) {
  detail::ExplicitAxes rules(program, mesh, shapes, axes, search);
  rules.check(0, arguments);
  return rules.found;
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
