#ifndef TESSERA_PARTITION_PROPAGATION_LINEAR_HPP
#define TESSERA_PARTITION_PROPAGATION_LINEAR_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/fuse/units.hpp>
#include <tessera/ops/rows.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// How a value depends on the partial inputs of the unit that computes it.
enum class Dependence : std::uint8_t {
  invariant,  ///< not at all
  zero,       ///< it is zero for all inputs, which is both invariant and linear
  /// linear in all partial inputs together: the value computed from each device's parts sums to the whole value
  linear,
  nonlinear  ///< in any other way: the inputs must be reduced first
};

namespace detail {

constexpr Dependence combined(const Node& node, const OpRow& row, const Dependence* in) {
  bool any = false, all = true;
  int linear_count = 0;
  for (int i = 0; i < node.arity && i < 3; ++i) {
    if (has_operand(row.shape_only, i)) continue;
    if (in[i] == Dependence::nonlinear) return Dependence::nonlinear;
    const bool is_linear = in[i] == Dependence::linear;
    any = any || is_linear;
    linear_count += is_linear;
    if (i > 0 || row.linear != Linearity::choice) all = all && (is_linear || in[i] == Dependence::zero);
  }
  const bool passes_zero = row.linear == Linearity::first || row.linear == Linearity::each;
  if (!any) return passes_zero && in[0] == Dependence::zero ? Dependence::zero : Dependence::invariant;
  switch (row.linear) {
    case Linearity::no:
      return row.converts && casts_parts(node) ? Dependence::linear : Dependence::nonlinear;
    case Linearity::jointly:
      return all ? Dependence::linear : Dependence::nonlinear;
    case Linearity::first:
      return in[0] == Dependence::linear && linear_count == 1 ? Dependence::linear : Dependence::nonlinear;
    case Linearity::each:
      return linear_count == 1 ? Dependence::linear : Dependence::nonlinear;
    case Linearity::choice:
      return in[0] != Dependence::linear && all ? Dependence::linear : Dependence::nonlinear;
  }
  return Dependence::nonlinear;
}

}  // namespace detail

/// Computes for each result of a fused unit whether it depends on the values marked in `partial` (by node); `linear`
/// receives 1 where it does. Returns false when a result depends on them and is not linear. `scratch` is by node, all
/// `invariant` before and after.
constexpr bool is_linear_in(const GraphView& graph, const UnitsView& units, int u,
                            const Growable<std::uint8_t>& partial, Growable<Dependence>& scratch,
                            Growable<std::uint8_t>& linear) {
  const Unit& unit = units[u];
  for (int m = 0; m < unit.member_count; ++m) {
    const int id = units.members[unit.first_member + m];
    const Node& node = graph[id];
    const OpRow& row = row_of(node);
    Dependence in[3]{};
    for (int i = 0; i < node.arity && i < 3; ++i) {
      const int operand = graph.operand(id, i);
      if (operand < 0 || has_operand(row.shape_only, i)) continue;
      if (partial[static_cast<std::size_t>(operand)])
        in[i] = Dependence::linear;
      else if (graph[operand].is_constant() && graph[operand].value == 0)
        in[i] = Dependence::zero;
      else
        in[i] = scratch[static_cast<std::size_t>(operand)];
    }
    scratch[static_cast<std::size_t>(id)] = detail::combined(node, row, in);
  }
  bool valid = true;
  linear.assign(static_cast<std::size_t>(unit.output_count));
  for (int o = 0; o < unit.output_count; ++o) {
    const Dependence found = scratch[static_cast<std::size_t>(units.output(u, o).node)];
    if (found == Dependence::nonlinear) valid = false;
    linear[static_cast<std::size_t>(o)] = found == Dependence::linear;
  }
  for (int m = 0; m < unit.member_count; ++m)
    scratch[static_cast<std::size_t>(units.members[unit.first_member + m])] = Dependence::invariant;
  return valid;
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
