#ifndef TESSERA_KERNELS_FUSED_FUSED_PROGRAM_HPP
#define TESSERA_KERNELS_FUSED_FUSED_PROGRAM_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/dtype.hpp>
#include <tessera/graph/fuse/fused.hpp>
#include <tessera/kernels/fused/fused_instructions.hpp>
#include <tessera/kernels/fused/fused_rows.hpp>
#include <tessera/kernels/fused/fused_schedule.hpp>

namespace tessera::kernels::inline TESSERA_ISA::detail {

/// What the passes and operands of a kernel are like.
struct KernelShape {
  struct Pass {
    int unroll = 1;                       ///< registers of an iteration
    int cost = 0;                         ///< of an element
    bool any = false;                     ///< has results, so that it runs
    bool reduces = false;                 ///< accumulates in lanes
    bool carries = false;                 ///< accumulates in lanes across rows
    bool saves = false;                   ///< stores values for later passes
    bool may_pass_caches = false;         ///< may use non-temporal stores
    std::uint64_t reads = 0, writes = 0;  ///< bits of the operands (inputs, then outputs)
  };
  Pass pass[Fused::max_phases];
  int phases = 1, inputs = 0, operands = 0;
  int most_unrolled = 1;
  int fetching_pass = 0;       ///< the pass that fetches the next row, see FusedRun::fetch_ahead()
  bool only_elements = false;  ///< a row is nothing but elements: one pass, without values or results of a row
  bool only_stores = false;    ///< only elements, and each result is stored, so that elements may be computed again
  bool adds_rows = false;      ///< a row is only added to results of float or double, or combined with them otherwise
  std::uint8_t sizes[max_operands]{};     ///< bytes of an element of each operand
  std::uint32_t offsets[max_operands]{};  ///< offset of each operand in the staging buffer
  std::uint64_t in_row = 0;               ///< bits of the operands that are read or written along the row
  std::uint32_t buffer_bytes = 1;
  std::uint8_t kept_bytes = 0;  ///< bytes stored between passes per element of a row
};

/// Whether a result is stored element by element.
constexpr bool is_store(const Exit& exit) { return exit.sums == Sums::nothing && exit.kind == StoreKind::element; }

/// Whether a pass may use non-temporal stores: of several results, each store must fill a cache line. Otherwise the
/// processor writes half of a line while stores to another result wait, which takes up to three times as long as
/// plain stores (docs/decisions/0007).
template <class Exits> constexpr bool may_pass_caches(const Exits& exits) {
  constexpr unsigned line = 64;
  int results = 0;
  bool fills_lines = true;
  for (int k = 0; k < exits.size; ++k) {
    const Exit& exit = exits.items[k];
    if (!is_store(exit)) continue;
    ++results;
    fills_lines = fills_lines && static_cast<unsigned>(width) * size_of(exit.dtype) >= line;
  }
  return results == 1 || fills_lines;
}

template <ScheduleSize Size> constexpr KernelShape make_shape(const Fused& fused, const FusedSchedule<Size>& schedule) {
  KernelShape shape;
  shape.phases = fused.phases;
  shape.inputs = fused.input_count;
  shape.operands = fused.input_count + fused.store_count;
  shape.kept_bytes = schedule.kept_bytes;
  for (int p = 0; p < fused.phases; ++p) {
    KernelShape::Pass& pass = shape.pass[p];
    const auto& exits = schedule.exits[p];
    const auto& elements = schedule.element[p];
    for (int i = 0; i < exits.size; ++i) {
      pass.reduces |= exits.items[i].sums != Sums::nothing;
      pass.carries |= exits.items[i].sums == Sums::call;
    }
    for (int i = 0; i < elements.size; ++i) {
      const Step& step = elements.items[i];
      pass.cost += step.keep == Keep::restore ? 1 : row_of(step.op).lane_cost;
    }
    pass.unroll = !pass.reduces || pass.cost > 12 ? 1 : pass.cost > 5 ? 2 : 4;
    pass.any = exits.size > 0;
    pass.saves = schedule.saves[p];
    pass.may_pass_caches = may_pass_caches(exits);
    pass.reads = schedule.reads[p];
    pass.writes = schedule.writes[p];
    shape.in_row |= pass.reads | pass.writes;
    if (pass.unroll > shape.most_unrolled) shape.most_unrolled = pass.unroll;
    const KernelShape::Pass& fetching = shape.pass[shape.fetching_pass];
    const bool waits_less = pass.writes == 0 || shape.fetching_pass == 0 || fetching.writes != 0;
    if (p > 0 && pass.reads != 0 && pass.cost > fetching.cost && waits_less) shape.fetching_pass = p;
  }
  shape.only_elements = fused.phases == 1 && !shape.pass[0].reduces && !schedule.saves[0];
  for (int stage = 0; stage <= 1 && shape.only_elements; ++stage)
    shape.only_elements = schedule.row[stage].size + schedule.row_exits[stage].size == 0;
  shape.only_stores = shape.only_elements;
  for (int i = 0; i < schedule.exits[0].size; ++i)
    shape.only_stores = shape.only_stores && is_store(schedule.exits[0].items[i]);
  shape.adds_rows = shape.only_elements && schedule.exits[0].size > 0;
  for (int i = 0; i < schedule.exits[0].size; ++i) {
    const Exit& exit = schedule.exits[0].items[i];
    const bool floats = exit.dtype == DType::f32 || exit.dtype == DType::f64;
    shape.adds_rows = shape.adds_rows && exit.kind == StoreKind::accumulate && floats;
  }
  for (int i = 0; i < shape.operands; ++i) {
    const DType type = i < shape.inputs ? fused.inputs[i] : fused.stores[i - shape.inputs].dtype;
    shape.sizes[i] = static_cast<std::uint8_t>(size_of(type));
    if ((shape.in_row >> i & 1) == 0) continue;
    shape.offsets[i] = (shape.buffer_bytes + 63) / 64 * 64;
    shape.buffer_bytes = shape.offsets[i] + static_cast<std::uint32_t>(staged_window_size) * shape.sizes[i];
  }
  return shape;
}

/// The size of a kernel's register file, of a few, so that kernels share code.
constexpr int file_size(int registers) { return registers <= 16 ? 16 : registers <= 48 ? 48 : most_registers; }

/// Kernel I of a table, as constants.
template <const auto& Table, int I> struct Program {
  static constexpr const Fused& fused = Table[I];
  static constexpr auto schedule = make_schedule<schedule_size(fused)>(fused);
  static constexpr KernelShape shape = make_shape(fused, schedule);
  static constexpr int file_size = detail::file_size(fused.instr_count + fused.store_count);
  using File = Registers<file_size>;
};

}  // namespace tessera::kernels::inline TESSERA_ISA::detail

#include <tessera/base/pop_macros.hpp>

#endif
