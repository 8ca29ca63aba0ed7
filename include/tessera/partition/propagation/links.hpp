#ifndef TESSERA_PARTITION_PROPAGATION_LINKS_HPP
#define TESSERA_PARTITION_PROPAGATION_LINKS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/fuse/units.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/ops/rows.hpp>
#include <tessera/partition/propagation/shapes.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// One factor of a link. A factor is compound when some dim consists of it and other factors (a reshape splits or
/// merges the dim): only axes whose sizes divide its extent can split it. Beside a longer factor, factors of extent 1
/// do not count: of [1, n] merged into [n], n is as simple as the dim, and any axes split both.
struct LinkFactor {
  FactorKind kind = FactorKind::pass;
  bool compound = false;
  std::int64_t extent = 1;
};

/// A dim of an operand and the factors that it consists of, the most significant first.
struct LinkDim {
  std::int32_t operand = 0;
  std::int8_t dim = 0, count = 0;
  std::int8_t factors[4]{};
};

struct LinkOperand {
  std::int32_t node = -1;
  std::int64_t bytes = 0;
  std::int32_t first_dim = 0, dim_count = 0;  ///< its dims, as a range of Links::dims
  bool output = false;
  bool narrow = false;  ///< an input of a fused unit that is broadcast along some dim of the unit's iteration space
};

/// A group of values whose shardings depend on each other: the inputs and outputs of one unit, or the two ends of a
/// carried value of a repeat. Inputs come before outputs, each in the unit's order.
struct Link {
  std::int32_t unit = -1;  ///< -1 for a carried value: the body's argument and the body's output of one layer
  UnitKind kind = UnitKind::fused;
  bool frees_axes = false;  ///< where the unit needs a dim whole, the axes of that dim may split another dim of it
  std::int32_t first_factor = 0, factor_count = 0;
  std::int32_t first_operand = 0, operand_count = 0;
  std::int32_t first_dim = 0, dim_count = 0;
};

/// The links of one graph.
class Links {
 public:
  Growable<Link> links;
  Growable<LinkFactor> factors;
  Growable<LinkOperand> operands;
  Growable<LinkDim> dims;
  Growable<std::int32_t> of_unit;  ///< the link of each unit, -1 for a repeat
  bool splits_dims = false;        ///< whether any dim consists of several factors

  constexpr Links() = default;
  constexpr Links(const GraphView& graph, const UnitsView& units, const GraphShapes& found)
      : graph_(graph), found_(&found) {
    const auto count = static_cast<std::size_t>(units.count);
    links.reserve(count);
    factors.reserve(4 * count);
    operands.reserve(4 * count);
    dims.reserve(8 * count);
    of_unit.reserve(count);
    for (int u = 0; u < units.count; ++u) {
      if (units[u].kind == UnitKind::repeat) {
        of_unit.push_back(-1);
        const int carried = Repeat::of(graph[units[u].root]).carried;
        for (int k = 0; k < carried && k < units[u].output_count; ++k)
          if (units.output(u, k).node >= 0) tie(u, units.input(u, k).node, units.output(u, k).node);
      } else {
        of_unit.push_back(static_cast<std::int32_t>(links.size()));
        add_unit(units, u);
        if (row_of(graph[units[u].root]).sharded_as >= 0) tie_alike(units[u].root);
      }
    }
  }

  /// Links two values of one shape that have the same sharding.
  constexpr void tie(int unit, int from, int to) {
    begin(unit, UnitKind::repeat);
    const Node& node = graph_[to];
    DimFactors own;
    for (int d = 0; d < node.rank; ++d)
      if (!node.is_singleton(d) && !graph_[from].is_singleton(d))
        own.dims[d].push_back(static_cast<std::int8_t>(add_factor(FactorKind::pass)));
    add_operand(from, own, false);
    add_operand(to, own, true);
    finish();
  }

  /// Links an `alike` node, its two operands, and where operand 1 is an `alike` node as well (the pair that
  /// ts::shard_as makes), the operand of that node.
  constexpr void tie_alike(int id) {
    const int from = graph_.operand(id, 0), other = graph_.operand(id, row_of(graph_[id]).sharded_as);
    begin(-1, UnitKind::repeat);
    DimFactors own;
    for (int d = 0; d < graph_[id].rank; ++d)
      if (!graph_[id].is_singleton(d)) own.dims[d].push_back(static_cast<std::int8_t>(add_factor(FactorKind::pass)));
    add_operand(from, own, false);
    add_operand(other, own, false);
    if (row_of(graph_[other]).sharded_as >= 0) add_operand(graph_.operand(other, 0), own, false);
    add_operand(id, own, true);
    finish();
  }

  /// The link of a unit that is no repeat.
  constexpr const Link& of(int unit) const {
    return links[static_cast<std::size_t>(of_unit[static_cast<std::size_t>(unit)])];
  }
  constexpr const LinkOperand& operand(const Link& link, int i) const {
    return operands[static_cast<std::size_t>(link.first_operand + i)];
  }
  constexpr const LinkFactor& factor(const Link& link, int f) const {
    return factors[static_cast<std::size_t>(link.first_factor + f)];
  }

 private:
  GraphView graph_;
  const GraphShapes* found_ = nullptr;

  constexpr void begin(int unit, UnitKind kind) {
    Link link;
    link.unit = unit;
    link.kind = kind;
    link.first_factor = static_cast<std::int32_t>(factors.size());
    link.first_operand = static_cast<std::int32_t>(operands.size());
    link.first_dim = static_cast<std::int32_t>(dims.size());
    links.push_back(link);
  }
  constexpr int add_factor(FactorKind kind) {
    factors.push_back({kind, false, 1});
    return static_cast<int>(factors.size()) - 1 - links.back().first_factor;
  }

  constexpr void add_operand(int node, const DimFactors& rule, bool output) {
    const Link& link = links.back();
    const Shape& shape = found_->shapes[static_cast<std::size_t>(node)];
    LinkOperand operand;
    operand.node = node;
    operand.output = output;
    operand.bytes = volume(shape) * static_cast<std::int64_t>(size_of(graph_[node].dtype));
    operand.first_dim = static_cast<std::int32_t>(dims.size());
    for (int d = 0; d < static_cast<int>(shape.size()); ++d) {
      const auto& list = rule.dims[d];
      if (list.empty()) continue;
      LinkDim made;
      made.operand = static_cast<std::int32_t>(operands.size()) - link.first_operand;
      made.dim = static_cast<std::int8_t>(d);
      const auto factor_at = [&](std::int8_t f) -> LinkFactor& {
        return factors[static_cast<std::size_t>(link.first_factor + f)];
      };
      int longer = 0;
      if (list.size() > 1)
        for (std::int8_t f : list) longer += factor_at(f).extent != 1 ? 1 : 0;
      for (std::int8_t f : list) {
        LinkFactor& factor = factor_at(f);
        if (list.size() > 1 && longer > 0 && factor.extent == 1) {
          factor.compound = true;  // no axis splits it
          continue;
        }
        made.factors[made.count++] = f;
        if (list.size() > 1 && longer != 1)
          splits_dims = factor.compound = true;
        else if (shape[static_cast<std::size_t>(d)] > factor.extent)
          factor.extent = shape[static_cast<std::size_t>(d)];
      }
      dims.push_back(made);
    }
    operand.dim_count = static_cast<std::int32_t>(dims.size()) - operand.first_dim;
    operands.push_back(operand);
  }

  constexpr void finish() {
    Link& link = links.back();
    link.factor_count = static_cast<std::int32_t>(factors.size()) - link.first_factor;
    link.operand_count = static_cast<std::int32_t>(operands.size()) - link.first_operand;
    link.dim_count = static_cast<std::int32_t>(dims.size()) - link.first_dim;
  }

  constexpr void add_unit(const UnitsView& units, int u) {
    const Unit& unit = units[u];
    const UnitRule rule = unit_rule(graph_, units, u);
    begin(u, unit.kind);
    for (FactorKind kind : rule.kinds) add_factor(kind);
    if (const FactorExtentsRule extents_of = row_of(graph_[unit.root]).factor_extents) {
      const Shape extents = extents_of({graph_, unit.root, found_->shapes.data(), found_->numbers.data(), nullptr});
      for (std::size_t f = 0; f < rule.kinds.size(); ++f)
        factors[static_cast<std::size_t>(links.back().first_factor) + f].extent = extents[f];
    }
    for (int i = 0; i < unit.input_count; ++i)
      add_operand(units.input(u, i).node, rule.inputs[static_cast<std::size_t>(i)], false);
    for (int o = 0; o < unit.output_count; ++o)
      add_operand(units.output(u, o).node, rule.outputs[static_cast<std::size_t>(o)], true);
    finish();
    Link& link = links.back();
    link.frees_axes = unit.kind == UnitKind::sort || unit.kind == UnitKind::along || unit.kind == UnitKind::custom ||
                      row_of(graph_[unit.root]).reverses;
    if (unit.kind == UnitKind::fused) {
      std::int32_t widest = 0;
      for (int i = 0; i < link.operand_count; ++i)
        if (operand(link, i).dim_count > widest) widest = operand(link, i).dim_count;
      for (int i = 0; i < unit.input_count; ++i) {
        LinkOperand& input = operands[static_cast<std::size_t>(link.first_operand + i)];
        input.narrow = input.dim_count < widest;
      }
    }
  }
};

/// The axes of `axes` that can split a factor: all of them for a simple factor, those whose sizes divide the extent for
/// a compound one.
constexpr AxisList splitting(const LinkFactor& factor, const AxisList& axes, const Mesh& mesh) {
  if (!factor.compound) return axes;
  AxisList fit;
  std::int64_t left = factor.extent;
  for (std::uint8_t axis : axes) {
    const int size = mesh.axis_size(axis);
    if (left % size != 0) break;
    left /= size;
    fit.push_back(axis);
  }
  return fit;
}

/// Distributes the axes of a dim over its factors: the most significant factor takes axes while their sizes divide it,
/// the next one follows when it is fully split. Calls f(factor, axes) for each factor with axes.
template <class F>
constexpr void split_axes(const Links& links, const Link& link, const LinkDim& dim, const AxisList& axes,
                          const Mesh& mesh, F&& f) {
  if (dim.count == 1) return f(dim.factors[0], splitting(links.factor(link, dim.factors[0]), axes, mesh));
  std::size_t next = 0;
  for (int i = 0; i < dim.count; ++i) {
    AxisList own;
    std::int64_t left = links.factor(link, dim.factors[i]).extent;
    while (next < axes.size() && left > 1 && left % mesh.axis_size(axes[next]) == 0) {
      left /= mesh.axis_size(axes[next]);
      own.push_back(axes[next++]);
    }
    if (!own.empty()) f(dim.factors[i], own);
    if (left > 1) return;
  }
}

/// The axes of a dim, from the axes of its factors. A factor adds axes only where all more significant factors are
/// fully split.
template <class AxesOf>
constexpr AxisList join_axes(const Links& links, const Link& link, const LinkDim& dim, const Mesh& mesh,
                             AxesOf&& axes_of) {
  if (dim.count == 1) return axes_of(dim.factors[0]);
  AxisList joined;
  for (int i = 0; i < dim.count; ++i) {
    std::int64_t left = links.factor(link, dim.factors[i]).extent;
    for (std::uint8_t axis : axes_of(dim.factors[i])) {
      left /= mesh.axis_size(axis);
      if (joined.size() == AxisList::capacity()) return joined;
      joined.push_back(axis);
    }
    if (left > 1) break;
  }
  return joined;
}

constexpr bool is_prefix(const AxisList& shorter, const AxisList& longer) {
  if (shorter.count > longer.count) return false;
  for (std::uint32_t i = 0; i < shorter.count; ++i)
    if (shorter.items[i] != longer.items[i]) return false;
  return true;
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
