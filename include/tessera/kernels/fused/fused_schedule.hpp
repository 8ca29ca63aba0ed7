#ifndef TESSERA_KERNELS_FUSED_FUSED_SCHEDULE_HPP
#define TESSERA_KERNELS_FUSED_FUSED_SCHEDULE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/graph/fuse/fused.hpp>
#include <tessera/ops/rows.hpp>

namespace tessera::kernels {

/// Whether an instruction stores its value for a later pass over the row, or loads what an earlier pass stored.
enum class Keep : std::uint8_t { no, save, restore };

/// One instruction of a pass. The first five fields are template arguments of run_step; the others are run-time data.
struct Step {
  InstrKind kind = InstrKind::uniform;
  Op op = Op::constant;
  DType dtype = DType::f32;   ///< type of the result
  DType source = DType::f32;  ///< type of the operands; for select, of the two values
  Keep keep = Keep::no;
  std::uint8_t to = 0, a = 0, b = 0, c = 0;
  bool a_varies = false, b_varies = false, c_varies = false;  ///< the operand differs by element; else hoisted
  std::uint8_t kept_offset = 0;                               ///< offset of the kept value in FusedSchedule::kept_bytes
};

/// What a result accumulates in vector lanes.
enum class Sums : std::uint8_t {
  nothing,
  row,   ///< a reduction along the row: the lanes are combined at the end of each row
  call,  ///< an output: the lanes are combined when its element changes, and at the end of the call
};

/// A result of a pass: a reduction or a store.
struct Exit {
  StoreKind kind = StoreKind::element;
  Reduction reduction = Reduction::sum;
  Sums sums = Sums::nothing;
  DType dtype = DType::f32, source = DType::f32;
  std::uint8_t instr = 0;  ///< index of the instruction that computes the value
  std::uint8_t slot = 0;   ///< index of the reduction or of the output
  std::uint8_t to = 0;     ///< the accumulating register; for a reduction, that of its own instruction
  bool varies = false;     ///< the value differs by element
};

template <class T, int Capacity> struct StepList {
  T items[Capacity]{};
  int size = 0;
  constexpr void push(const T& item) { items[size++] = item; }
  constexpr const T& operator[](std::size_t i) const { return items[i]; }
};

/// Most registers of a kernel, which has one for each instruction and each result.
inline constexpr int most_registers = Fused::max_instrs + Fused::max_outputs;

/// Capacities of a schedule: of each list of instructions and of results, and the passes. A constant of the program for
/// each kernel, most of which are small: with the largest capacities a schedule has 45 KB.
struct ScheduleSize {
  int instrs, exits, phases;
};

/// The size for a kernel, rounded up so that kernels share instances of make_schedule.
constexpr ScheduleSize schedule_size(const Fused& fused) {
  int reduces = 0;
  for (int i = 0; i < fused.instr_count; ++i) reduces += fused.instrs[i].kind == InstrKind::reduce;
  const auto rounded = [](int count) { return count <= 8 ? 8 : count <= 24 ? 24 : Fused::max_instrs; };
  const int exits = rounded(fused.store_count + reduces);
  return {rounded(fused.instr_count), exits, fused.phases};
}

/// The instructions of a fused kernel by stage and pass: for each row stage 0, pass 0, stage 1, pass 1, and so on. A
/// stage runs once per row, a pass once per element. softmax: pass 0 finds the maximum, pass 1 the sum, pass 2 divides.
template <ScheduleSize Size> struct FusedSchedule {
  using Steps = StepList<Step, Size.instrs>;
  using Exits = StepList<Exit, Size.exits>;

  Steps uniform;               ///< once per call
  Steps row[Size.phases + 1];  ///< once per row, by stage
  Exits row_exits[Size.phases + 1];
  Steps element[Size.phases];           ///< by pass, once per element
  Exits exits[Size.phases];             ///< stores and reductions by pass
  bool saves[Size.phases]{};            ///< by pass: whether it stores values for later passes
  std::uint8_t kept_bytes = 0;          ///< bytes stored between passes per element of a row
  std::uint64_t reads[Size.phases]{};   ///< by pass: bits of the operands (inputs, then outputs) that it reads
  std::uint64_t writes[Size.phases]{};  ///< by pass: bits of the operands that it writes
};

constexpr bool uses_b(Op op) { return row_of(op).arity > 1 && !has_operand(row_of(op).shape_only, 1); }
constexpr bool uses_c(Op op) { return row_of(op).arity > 2; }

namespace scheduling {

constexpr Step make_step(const Fused& fused, int index) {
  const Instr& instr = fused.instrs[index];
  const auto varies = [&](int operand) { return fused.instrs[operand].level == Level::element; };
  Step step;
  step.kind = instr.kind;
  step.op = instr.op;
  step.dtype = step.source = instr.dtype;
  step.to = static_cast<std::uint8_t>(index);
  step.a = instr.a;
  step.b = instr.b;
  step.c = instr.c;
  if (instr.kind == InstrKind::compute) {
    const bool chooses = uses_c(instr.op);
    step.source = fused.instrs[chooses ? instr.b : instr.a].dtype;
    step.a_varies = varies(instr.a);
    step.b_varies = uses_b(instr.op) && varies(instr.b);
    step.c_varies = chooses && varies(instr.c);
  } else if (instr.kind == InstrKind::index) {
    step.a_varies = instr.level == Level::element;
  }
  return step;
}

constexpr Exit make_reduce(const Fused& fused, int index, int slot) {
  const Instr& instr = fused.instrs[index];
  const Instr& operand = fused.instrs[instr.a];
  return {StoreKind::accumulate,
          instr.reduction,
          Sums::row,
          instr.dtype,
          operand.dtype,
          instr.a,
          static_cast<std::uint8_t>(slot),
          static_cast<std::uint8_t>(index),
          operand.level == Level::element};
}

constexpr Exit make_exit(const Fused& fused, int output) {
  const Store& store = fused.stores[output];
  const Instr& value = fused.instrs[store.instr];
  return {store.kind,
          store.reduction,
          store.kind == StoreKind::accumulate && store.along_row ? Sums::call : Sums::nothing,
          store.dtype,
          value.dtype,
          store.instr,
          static_cast<std::uint8_t>(output),
          static_cast<std::uint8_t>(fused.instr_count + output),
          value.level == Level::element};
}

/// By instruction: the step that first computed an expensive value, and its pass, which later passes may reuse. Only
/// for passes that do nothing but reduce: they can be repeated when a call begins at a later pass.
struct Kept {
  Step* computed[Fused::max_instrs]{};
  int pass[Fused::max_instrs]{};
};

/// Bytes of a value in a register: bf16 and f16 are computed as float.
constexpr std::size_t lane_bytes(DType type) { return size_of(computed_as(type)); }

/// Adds to pass `p` the per-element instructions that its exits need, in order. An expensive value (exp, say) that an
/// earlier pass computed is stored by that pass and loaded here.
template <ScheduleSize Size>
constexpr void add_needed(const Fused& fused, FusedSchedule<Size>& schedule, int p, Kept& kept) {
  const auto& exits = schedule.exits[p];
  auto& pass = schedule.element[p];
  bool needed[Fused::max_instrs]{}, only_reduces = true;
  for (int i = 0; i < exits.size; ++i) {
    needed[exits.items[i].instr] = true;
    only_reduces = only_reduces && exits.items[i].sums == Sums::row;
  }
  for (int i = fused.instr_count - 1; i >= 0; --i) {
    const Instr& instr = fused.instrs[i];
    if (!needed[i] || instr.level != Level::element || instr.kind != InstrKind::compute || kept.computed[i] != nullptr)
      continue;
    needed[instr.a] = true;
    if (uses_b(instr.op)) needed[instr.b] = true;
    if (uses_c(instr.op)) needed[instr.c] = true;
  }
  for (int i = 0; i < fused.instr_count; ++i) {
    const Instr& instr = fused.instrs[i];
    if (!needed[i] || instr.level != Level::element) continue;
    pass.push(make_step(fused, i));
    Step& step = pass.items[pass.size - 1];
    if (instr.kind == InstrKind::load) schedule.reads[p] |= std::uint64_t{1} << instr.a;
    if (Step* const computed = kept.computed[i]; computed != nullptr) {
      if (computed->keep == Keep::no) {
        computed->keep = Keep::save;
        computed->kept_offset = schedule.kept_bytes;
        schedule.kept_bytes = static_cast<std::uint8_t>(schedule.kept_bytes + lane_bytes(instr.dtype));
        schedule.saves[kept.pass[i]] = true;
      }
      step.keep = Keep::restore;
      step.kept_offset = computed->kept_offset;
    } else if (only_reduces && instr.kind == InstrKind::compute && row_of(instr.op).lane_cost >= 8 &&
               is_floating(instr.dtype)) {
      kept.computed[i] = &step;
      kept.pass[i] = p;
    }
  }
}

}  // namespace scheduling

/// Assigns the instructions of a fused kernel to stages and passes, each at the least frequent level that is correct.
template <ScheduleSize Size> constexpr FusedSchedule<Size> make_schedule(const Fused& fused) {
  static_assert(Size.phases >= 1 && Size.phases <= Fused::max_phases,
                "tessera: a kernel has one to six passes over a row");
  FusedSchedule<Size> schedule;
  int reduce_count = 0;
  for (int i = 0; i < fused.instr_count; ++i) {
    const Instr& instr = fused.instrs[i];
    if (instr.phase > fused.phases)
      fail(errc::graph_invalid, "[fused] an instruction needs a pass that the kernel does not have");
    if (instr.kind == InstrKind::reduce) {
      if (instr.phase < 1)
        fail(errc::graph_invalid, "[fused] the result of a reduction is available only after a pass");
      schedule.exits[instr.phase - 1].push(scheduling::make_reduce(fused, i, reduce_count++));
    } else if (instr.level == Level::uniform) {
      schedule.uniform.push(scheduling::make_step(fused, i));
    } else if (instr.level == Level::row) {
      schedule.row[instr.phase].push(scheduling::make_step(fused, i));
    }
  }
  for (int i = 0; i < fused.store_count; ++i) {
    const Exit exit = scheduling::make_exit(fused, i);
    const int phase = fused.instrs[exit.instr].phase;
    const bool once_a_row = exit.kind == StoreKind::row ||
                            (exit.kind == StoreKind::accumulate && exit.sums == Sums::nothing && !exit.varies);
    if (once_a_row) {
      if (exit.varies) fail(errc::graph_invalid, "[fused] a value that differs within a row is stored once per row");
      schedule.row_exits[phase].push(exit);
      continue;
    }
    if (phase >= fused.phases) fail(errc::graph_invalid, "[fused] a store needs a pass that the kernel does not have");
    schedule.exits[phase].push(exit);
    if (exit.sums == Sums::nothing) {
      const std::uint64_t bit = std::uint64_t{1} << (fused.input_count + exit.slot);
      schedule.writes[phase] |= bit;
      if (exit.kind == StoreKind::accumulate) schedule.reads[phase] |= bit;
    }
  }
  scheduling::Kept kept;
  for (int pass = 0; pass < fused.phases; ++pass) scheduling::add_needed(fused, schedule, pass, kept);
  return schedule;
}

}  // namespace tessera::kernels

#include <tessera/base/pop_macros.hpp>

#endif
