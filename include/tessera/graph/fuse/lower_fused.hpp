#ifndef TESSERA_GRAPH_FUSE_LOWER_FUSED_HPP
#define TESSERA_GRAPH_FUSE_LOWER_FUSED_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/planning.hpp>
#include <tessera/graph/fuse/fused.hpp>
#include <tessera/graph/fuse/group.hpp>
#include <tessera/graph/ir/attributes.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

/// Writes the kernel of one fused unit. Inputs, outputs and uniforms are numbered as in the unit's lists.
class FusedWriter {
  static_assert(Grouper::max_loads <= Fused::max_inputs && Grouper::max_group_outputs <= Fused::max_outputs &&
                Grouper::max_row_passes <= Fused::max_phases && Grouper::max_instructions <= Fused::max_instrs);

 public:
  constexpr FusedWriter(const GraphView& graph, const UnitsView& units, int u)
      : graph_(graph), units_(units), u_(u), unit_(units[u]) {}

  constexpr const Fused& write() {
    fused_.input_count = static_cast<std::uint8_t>(unit_.input_count);
    fused_.uniform_count = static_cast<std::uint8_t>(unit_.uniform_count);
    for (int i = 0; i < unit_.input_count; ++i) {
      fused_.inputs[i] = graph_[units_.input(u_, i).node].dtype;
      fused_.input_in_row[i] = unit_.rank > 0 && units_.input(u_, i).dim_at[unit_.rank - 1] >= 0;
      load_of_[i] = -1;
    }
    for (int i = 0; i < unit_.uniform_count; ++i) uniform_of_[i] = -1;
    for (int m = 0; m < unit_.member_count; ++m) write_member(m);
    for (int o = 0; o < unit_.output_count; ++o) write_store(o);
    fused_.instr_count = static_cast<std::uint8_t>(count_);
    return fused_;
  }

 private:
  GraphView graph_;
  UnitsView units_;
  int u_;
  Unit unit_;
  Fused fused_{};
  int count_ = 0;
  int instr_of_[Grouper::max_members]{};
  int load_of_[Fused::max_inputs]{};
  int uniform_of_[Grouper::max_uniforms]{};

  constexpr int member(int m) const { return units_.members[unit_.first_member + m]; }
  /// Binary search: members are in ascending order.
  constexpr int member_index(int id) const {
    const std::int32_t* const members = units_.members + unit_.first_member;
    int low = 0;
    for (int n = unit_.member_count; n > 1; n -= n / 2) low += members[low + n / 2] <= id ? n / 2 : 0;
    return members[low] == id ? low : -1;
  }
  constexpr int add(const Instr& instr) {
    if (count_ == Fused::max_instrs)
      fail(errc::capacity, "[group] instructions: a fused kernel has more than ", Fused::max_instrs, " instructions");
    fused_.instrs[count_] = instr;
    return count_++;
  }
  /// Along which dims of the iteration space a member extends.
  constexpr SpaceForm form(int id) const {
    const Node& node = graph_[id];
    const Node& space = graph_[unit_.space];
    if (node.rank == space.rank && node.singletons == space.singletons) return SpaceForm::element;
    return node.rank == space.rank ? SpaceForm::row : SpaceForm::squeezed;
  }
  constexpr SpaceForm operand_form(int id, int operand) const {
    if (row_of(graph_[id]).kind == OpKind::reduction)
      return graph_[operand].rank == unit_.rank ? SpaceForm::element : SpaceForm::squeezed;
    return form(id);
  }

  constexpr int operand_instr(int id, int operand) {
    if (const int m = member_index(operand); m >= 0) return instr_of_[m];
    for (int k = 0; k < unit_.uniform_count; ++k)
      if (units_.members[unit_.first_uniform + k] == operand) {
        if (uniform_of_[k] < 0)
          uniform_of_[k] = add({.kind = InstrKind::uniform,
                                .dtype = graph_[operand].dtype,
                                .level = Level::uniform,
                                .a = static_cast<std::uint8_t>(k)});
        return uniform_of_[k];
      }
    const UnitOperand wanted = aligned_operand(graph_, operand, unit_.rank, operand_form(id, operand));
    for (int i = 0; i < unit_.input_count; ++i) {
      if (!same_operand(units_.input(u_, i), wanted)) continue;
      if (load_of_[i] < 0)
        load_of_[i] = add({.kind = InstrKind::load,
                           .dtype = graph_[operand].dtype,
                           .level = fused_.input_in_row[i] ? Level::element : Level::row,
                           .a = static_cast<std::uint8_t>(i)});
      return load_of_[i];
    }
    fail(errc::graph_invalid, "[group] operand: a fused node reads a value that is not an input of its unit");
  }

  constexpr bool accumulated(int id) const {
    for (int o = 0; o < unit_.output_count; ++o)
      if (units_.output(u_, o).node == id && units_.output(u_, o).accumulates) return true;
    return false;
  }

  constexpr void write_member(int m) {
    const int id = member(m);
    const Node& node = graph_[id];
    const OpKind kind = row_of(node).kind;
    Instr instr{.kind = InstrKind::compute,
                .dtype = node.dtype,
                .level = form(id) == SpaceForm::element ? Level::element : Level::row};
    if (kind == OpKind::index) {
      int dim = dim_of(node) + (form(id) == SpaceForm::squeezed ? unit_.rank - 1 : unit_.rank) - node.rank;
      instr.kind = InstrKind::index;
      instr.a = static_cast<std::uint8_t>(dim);
      if (dim != unit_.rank - 1) instr.level = Level::row;
      instr_of_[m] = add(instr);
      return;
    }
    std::uint8_t operands[3]{};
    for (int i = 0, k = 0; i < node.arity; ++i) {
      if (has_operand(row_of(node).shape_only, i)) continue;
      const int at = operand_instr(id, graph_.operand(id, i));
      operands[k++] = static_cast<std::uint8_t>(at);
      if (fused_.instrs[at].phase > instr.phase) instr.phase = fused_.instrs[at].phase;
    }
    instr.a = operands[0];
    instr.b = operands[1];
    instr.c = operands[2];
    if (kind == OpKind::reduction) {
      if (accumulated(id)) {  // becomes a store of its operand
        instr_of_[m] = operands[0];
        return;
      }
      instr.kind = InstrKind::reduce;
      instr.reduction = row_of(node).reduction;
      instr.level = Level::row;
      ++instr.phase;
      if (instr.phase >= fused_.phases) fused_.phases = static_cast<std::uint8_t>(instr.phase + 1);
    } else {
      instr.op = node.op;
    }
    instr_of_[m] = add(instr);
  }

  constexpr void write_store(int o) {
    const UnitOperand& output = units_.output(u_, o);
    const int at = instr_of_[member_index(output.node)];
    Store store{.instr = static_cast<std::uint8_t>(at), .dtype = graph_[output.node].dtype};
    if (output.accumulates) {
      const int operand = graph_.operand(output.node, 0);
      store.kind = StoreKind::accumulate;
      store.reduction = row_of(graph_[output.node]).reduction;
      // The reduction is along the row if the operand extends there and the result does not.
      store.along_row = operand_form(output.node, operand) == SpaceForm::element && unit_.rank > 0 &&
                        !graph_[operand].is_singleton(unit_.rank - 1) && output.dim_at[unit_.rank - 1] < 0;
    } else {
      store.kind = form_of_output(output.node) == SpaceForm::element ? StoreKind::element : StoreKind::row;
    }
    fused_.stores[fused_.store_count++] = store;
  }
  constexpr SpaceForm form_of_output(int id) const {
    return row_of(graph_[id]).kind == OpKind::reduction ? SpaceForm::row : form(id);
  }
};

}  // namespace detail

constexpr Fused lower_fused(const GraphView& graph, const UnitsView& units, int u) {
  return detail::FusedWriter(graph, units, u).write();
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
