#ifndef TESSERA_GRAPH_FUSE_LOWER_FUSED_HPP
#define TESSERA_GRAPH_FUSE_LOWER_FUSED_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <vector>

#include <tessera/graph/fuse/fused.hpp>
#include <tessera/graph/fuse/group.hpp>

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
    if (count_ == Fused::max_instrs) fail(errc::capacity, "[group] instructions: a fused kernel grew too large");
    fused_.instrs[count_] = instr;
    return count_++;
  }
  /// Along which dims of the iteration space a member extends.
  constexpr SpaceForm form(int id) const {
    const Node& node = graph_[id];
    const Node& space = graph_[unit_.space];
    if (node.rank == space.rank && node.unit == space.unit) return SpaceForm::element;
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
    fail(errc::graph_invalid, "[group] operand: a fused node reads a value that its unit does not list");
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
                        !graph_[operand].is_unit(unit_.rank - 1) && output.dim_at[unit_.rank - 1] < 0;
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

struct UnitsSize {
  int units = 0, operands = 0, members = 0, graphs = 0;

  /// An upper bound for the units of these graphs: the capacity of the first evaluation.
  static constexpr UnitsSize bound(const GraphView* views, int count) {
    UnitsSize size{0, 0, 0, count};
    for (int g = 0; g < count; ++g) {
      int operands = 0;
      for (int id = 0; id < views[g].size; ++id) operands += views[g][id].arity;
      size.units += views[g].size;
      size.operands += 2 * operands + views[g].size;
      size.members += views[g].size + operands;
    }
    return size;
  }
};

/// Writes the kernels of fused units; equal kernels are kept once.
class KernelTable {
 public:
  constexpr void add(const GraphView& graph, const UnitsView& units, int g, int u, Unit& unit) {
    detail::FusedWriter writer(graph, units, u);
    const Fused& fused = writer.write();
    std::uint64_t hash = fused.instr_count;
    for (int i = 0; i < fused.instr_count; ++i) hash = hash * 0x9e3779b97f4a7c15ull + hash_of(fused.instrs[i]);
    int kernel = 0;
    const int count = size();
    while (kernel < count && !(hashes_.data()[kernel] == hash && kernels_.data()[kernel] == fused)) ++kernel;
    if (kernel == count) {
      kernels_.push_back(fused);
      hashes_.push_back(hash);
      graphs_.push_back(g);
      units_.push_back(u);
    }
    unit.kernel = kernel;
    unit.phases = fused.phases;
    for (int i = 0; i < fused.instr_count; ++i)
      if (fused.instrs[i].kind == InstrKind::reduce) ++unit.phase_reduces;
  }
  constexpr int size() const { return static_cast<int>(kernels_.size()); }
  constexpr Growable<Fused>& kernels() { return kernels_; }
  /// The graph and the unit for which kernel k was first written.
  constexpr int graph_of(int k) const { return graphs_.data()[k]; }
  constexpr int unit_of(int k) const { return units_.data()[k]; }

 private:
  Growable<Fused> kernels_;
  Growable<std::uint64_t> hashes_;
  Growable<int> graphs_, units_;

  static constexpr std::uint64_t hash_of(const Instr& i) {
    return static_cast<std::uint64_t>(i.op) << 24 ^ static_cast<std::uint64_t>(i.kind) << 32 ^
           static_cast<std::uint64_t>(i.reduction) << 40 ^ static_cast<std::uint64_t>(i.a) << 16 ^
           static_cast<std::uint64_t>(i.b) << 8 ^ i.c;
  }
};

/// The units and kernels of a whole program, computed at run time.
struct ProgramUnits {
  std::vector<Units> graphs;
  Growable<Fused> kernels;

  constexpr explicit ProgramUnits(const GraphView* views, int count) {
    KernelTable table;
    for (int g = 0; g < count; ++g) {
      graphs.push_back(group_units(views[g]));
      Units& units = graphs.back();
      for (std::size_t u = 0; u < units.units.size(); ++u)
        if (units.units[u].kind == UnitKind::fused)
          table.add(views[g], units.view(), g, static_cast<int>(u), units.units[u]);
    }
    kernels = std::move(table.kernels());
  }
};

/// The units of a program as constants.
template <UnitsSize Size> struct FrozenUnits {
  Unit units[static_cast<std::size_t>(Size.units) + 1]{};
  UnitOperand operands[static_cast<std::size_t>(Size.operands) + 1]{};
  std::int32_t members[static_cast<std::size_t>(Size.members) + 1]{};
  int unit_begin[static_cast<std::size_t>(Size.graphs) + 1]{};
  int operand_begin[static_cast<std::size_t>(Size.graphs) + 1]{};
  int member_begin[static_cast<std::size_t>(Size.graphs) + 1]{};
  /// By kernel: the graph and the unit for which it was first written.
  int kernel_graph[static_cast<std::size_t>(Size.units) + 1]{};
  int kernel_unit[static_cast<std::size_t>(Size.units) + 1]{};
  int kernel_count = 0;

  constexpr FrozenUnits() = default;
  constexpr void add(int g, const Units& from) {
    int unit = unit_begin[g], operand = operand_begin[g], member = member_begin[g];
    for (const Unit& u : from.units) units[unit++] = u;
    for (const UnitOperand& o : from.operands) operands[operand++] = o;
    for (std::int32_t m : from.members) members[member++] = m;
    unit_begin[g + 1] = unit;
    operand_begin[g + 1] = operand;
    member_begin[g + 1] = member;
  }
  constexpr UnitsSize used() const {
    return {unit_begin[Size.graphs], operand_begin[Size.graphs], member_begin[Size.graphs], Size.graphs};
  }
  /// Copies units into arrays of smaller capacity, and writes their kernels.
  template <UnitsSize Larger> constexpr explicit FrozenUnits(const FrozenUnits<Larger>& from, const GraphView* graphs) {
    for (int i = 0; i < Size.units; ++i) units[i] = from.units[i];
    for (int i = 0; i < Size.operands; ++i) operands[i] = from.operands[i];
    for (int i = 0; i < Size.members; ++i) members[i] = from.members[i];
    for (int g = 0; g <= Size.graphs; ++g) {
      unit_begin[g] = from.unit_begin[g];
      operand_begin[g] = from.operand_begin[g];
      member_begin[g] = from.member_begin[g];
    }
    KernelTable table;
    for (int g = 0; g < Size.graphs; ++g) {
      const UnitsView view = from.graph(g);
      for (int u = 0; u < view.count; ++u)
        if (view.units[u].kind == UnitKind::fused) table.add(graphs[g], view, g, u, units[unit_begin[g] + u]);
    }
    kernel_count = table.size();
    for (int k = 0; k < kernel_count; ++k) {
      kernel_graph[k] = table.graph_of(k);
      kernel_unit[k] = table.unit_of(k);
    }
  }
  constexpr UnitsView graph(int g) const {
    return {units + unit_begin[g], unit_begin[g + 1] - unit_begin[g], operands + operand_begin[g],
            members + member_begin[g]};
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
