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

/// Compile-time properties of kernel I of a table.
template <const auto& Table, int I> struct Program {
  static constexpr const Fused& fused = Table[I];
  static constexpr auto schedule = make_schedule<schedule_size(fused)>(fused);
  using Schedule = decltype(make_schedule<schedule_size(fused)>(fused));
  static constexpr int inputs = fused.input_count, operands = fused.input_count + fused.store_count;

  static constexpr bool reduces(int pass) {
    bool reduces = false;
    for (int i = 0; i < schedule.exits[pass].size; ++i) reduces |= schedule.exits[pass].items[i].reduces;
    return reduces;
  }
  /// Whether a pass accumulates in lanes across rows.
  static constexpr bool carries(int pass) {
    bool carries = false;
    for (int i = 0; i < schedule.exits[pass].size; ++i) {
      const Exit& exit = schedule.exits[pass].items[i];
      carries |= exit.reduces && exit.to >= fused.instr_count;
    }
    return carries;
  }
  static constexpr int unroll(int pass) { return !reduces(pass) || cost(pass) > 12 ? 1 : cost(pass) > 5 ? 2 : 4; }
  static constexpr int cost(int pass) {
    int cost = 0;
    for (int i = 0; i < schedule.element[pass].size; ++i) {
      const Step& step = schedule.element[pass].items[i];
      cost += step.keep == Keep::restore ? 1 : row_of(step.op).lane_cost;
    }
    return cost;
  }
  /// Whether a row is nothing but elements: one pass, without values or results of a row.
  static constexpr bool only_elements = [] {
    if (fused.phases != 1 || reduces(0) || schedule.saves[0]) return false;
    for (int stage = 0; stage <= 1; ++stage)
      if (schedule.row[stage].size + schedule.row_exits[stage].size + schedule.reduces[stage].size > 0) return false;
    return true;
  }();
  /// Whether a row is only added to results of float or double, or combined with them otherwise.
  static constexpr bool adds_rows = [] {
    const auto& list = schedule.exits[0];
    for (int i = 0; i < list.size; ++i)
      if (list.items[i].kind != StoreKind::accumulate ||
          (list.items[i].dtype != DType::f32 && list.items[i].dtype != DType::f64))
        return false;
    return only_elements && list.size > 0;
  }();
  /// The most expensive of the passes that read operands.
  static constexpr int busiest_pass = [] {
    int most = 0;
    for (int pass = 1; pass < fused.phases; ++pass)
      if (schedule.reads[pass] != 0 && cost(pass) > cost(most)) most = pass;
    return most;
  }();
  static constexpr int most_unrolled = [] {
    int most = 1;
    for (int pass = 0; pass < fused.phases; ++pass) most = unroll(pass) > most ? unroll(pass) : most;
    return most;
  }();

  struct Layout {
    std::uint8_t sizes[max_operands]{};     ///< bytes of an element of each operand
    std::uint32_t offsets[max_operands]{};  ///< offset of each operand in the staging buffer
    std::uint64_t in_row = 0;
    std::uint32_t bytes = 1;
  };
  static constexpr Layout layout = [] {
    Layout result;
    for (int pass = 0; pass < fused.phases; ++pass) result.in_row |= schedule.reads[pass] | schedule.writes[pass];
    for (int i = 0; i < operands; ++i) {
      result.sizes[i] =
          static_cast<std::uint8_t>(size_of(i < inputs ? fused.inputs[i] : fused.stores[i - inputs].dtype));
      if ((result.in_row >> i & 1) == 0) continue;
      result.offsets[i] = (result.bytes + 63) / 64 * 64;
      result.bytes = result.offsets[i] + static_cast<std::uint32_t>(staged_window_size) * result.sizes[i];
    }
    return result;
  }();

  static constexpr int register_count = fused.instr_count + fused.store_count;
  static constexpr int file_size = register_count <= 16 ? 16 : register_count <= 48 ? 48 : Schedule::registers;
  using File = Registers<file_size>;
};

}  // namespace tessera::kernels::inline TESSERA_ISA::detail

#include <tessera/base/pop_macros.hpp>

#endif
