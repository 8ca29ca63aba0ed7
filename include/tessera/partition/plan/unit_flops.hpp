#ifndef TESSERA_PARTITION_PLAN_UNIT_FLOPS_HPP
#define TESSERA_PARTITION_PLAN_UNIT_FLOPS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/ops/contraction/ragged_rows.hpp>
#include <tessera/partition/propagation/links.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// Floating point operations of a unit on whole values: for each element of a result the number in the operation's row;
/// 2 for each multiply-add of a contraction.
constexpr std::int64_t unit_flops(const GraphView& graph, const UnitsView& units, int u, const Links& links,
                                  const GraphShapes& found) {
  const Unit& unit = units[u];
  const auto elements = [&](int node) { return volume(found.shapes[static_cast<std::size_t>(node)]); };
  if (unit.kind == UnitKind::fused) {
    std::int64_t total = 0;
    for (int m = 0; m < unit.member_count; ++m) {
      const int id = units.members[unit.first_member + m];
      const OpRow& row = row_of(graph[id]);
      total = saturating_sum(total, row.flops * elements(row.kind == OpKind::reduction ? graph.operand(id, 0) : id));
    }
    return total;
  }
  if (unit.kind == UnitKind::contraction) {
    const Link& link = links.of(u);
    std::int64_t total = 2;
    for (int f = 0; f < link.factor_count; ++f)
      if (links.factor(link, f).extent == 0) total = 0;
    for (int f = 0; f < link.factor_count; ++f) total = saturating_product(total, links.factor(link, f).extent);
    return unit.addend >= 0 ? saturating_sum(total, elements(unit.root)) : total;
  }
  if (unit.kind == UnitKind::attention) {
    const Link& link = links.of(u);
    const auto extent = [&](std::int8_t factor) { return links.factor(link, factor).extent; };
    using namespace ops::attention_factor;
    const std::int64_t scores =
        extent(keys) == 0 ? 0 : saturating_product(extent(batch) * extent(heads) * extent(queries), extent(keys));
    const AttentionForm form = AttentionForm::of_node(graph[unit.root]);
    const std::int64_t each =
        form.is_gradient() ? 6 * extent(width) + 4 * extent(value_width) : 2 * extent(width) + 2 * extent(value_width);
    return saturating_product(scores, each) / (form.causal ? 2 : 1);
  }
  if (unit.kind == UnitKind::ragged)
    return ops::ragged_flops({graph, unit.root, found.shapes.data(), found.numbers.data(), nullptr},
                             found.shapes[static_cast<std::size_t>(unit.root)]);
  // A scatter's work is proportional to the rows that it reads, not to the table that it writes.
  const OpRow& row = row_of(graph[unit.root]);
  const bool by_input = unit.kind == UnitKind::indexed && row.shape_only != 0;
  return row.flops * elements(by_input ? units.input(u, 0).node : unit.root);
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
