#ifndef TESSERA_KERNELS_FUSED_WALKED_KERNEL_HPP
#define TESSERA_KERNELS_FUSED_WALKED_KERNEL_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/monoid.hpp>
#include <tessera/kernels/fused/fused_instructions.hpp>
#include <tessera/kernels/fused/fused_program.hpp>
#include <tessera/kernels/fused/fused_results.hpp>
#include <tessera/kernels/fused/fused_run.hpp>
#include <tessera/kernels/fused/fused_schedule.hpp>
#include <tessera/kernels/scratch.hpp>

TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA::detail {

/// A value of any lane type.
struct alignas(Lanes<double>) WalkedRegister {
  std::byte bytes[sizeof(Lanes<double>)];
};
/// The values of a kernel by instruction, of which the kernel itself has the memory: kernels of all sizes share code.
struct WalkedFile {
  WalkedRegister* at = nullptr;

  template <class T> Lanes<T>& get(int i) const { return *reinterpret_cast<Lanes<T>*>(at[i].bytes); }
};
template <int Size> struct WalkedRegisters {
  WalkedRegister at[Size];

  WalkedFile file() { return {at}; }
  /// Code that only reads a value takes a WalkedFile, too.
  WalkedFile file() const { return {const_cast<WalkedRegister*>(at)}; }
};

/// An instruction with its code: what computes its value or else reads it, and what stores it for a later pass.
template <class Cursor> struct WalkedStep {
  void (*compute)(WalkedFile& own, const WalkedFile& shared, const Step& step) = nullptr;
  void (*read)(WalkedFile& own, const Step& step, const Cursor& cursor, const double* uniforms) = nullptr;
  void (*restore)(WalkedFile& own, const Step& step, const Cursor& cursor) = nullptr;
  void (*save)(WalkedFile& own, const Step& step, const Cursor& cursor) = nullptr;
  Step step;

  void run(WalkedFile& own, const WalkedFile& shared, const Cursor& cursor, const double* uniforms) const {
    if (compute != nullptr)
      compute(own, shared, step);
    else if (read != nullptr)
      read(own, step, cursor, uniforms);
    else
      restore(own, step, cursor);
    if (save != nullptr) save(own, step, cursor);
  }
};

/// The functions of an Accumulation.
struct WalkedAccumulation {
  void (*clear_all)(WalkedFile* sums, int count, Total& total, int to) = nullptr;
  void (*collect_all)(WalkedFile* sums, int count, Total& total, int to) = nullptr;
  void (*combine)(std::byte* at, Total& total) = nullptr;
  void (*copy_all)(WalkedFile* target, const WalkedFile* source, int count, int to) = nullptr;
  void (*restore_all)(WalkedFile* sums, const WalkedFile* saved, int count, std::int64_t size, int to) = nullptr;
  void (*take_total)(WalkedFile& shared, Total& total, int to, double* slot, bool given) = nullptr;

  /// The files of `count` arrays of registers, at most 4.
  template <class Registers> struct Files {
    WalkedFile file[4];
    Files(Registers* sums, int count) {
      for (int u = 0; u < count; ++u) file[u] = sums[u].file();
    }
  };
  template <class R> void clear(R* sums, int count, Total& total, int to) const {
    clear_all(Files<R>(sums, count).file, count, total, to);
  }
  template <class R> void collect(R* sums, int count, Total& total, int to) const {
    collect_all(Files<R>(sums, count).file, count, total, to);
  }
  template <class R> void copy_lanes(R* target, const R* source, int count, int to) const {
    copy_all(Files<R>(target, count).file, Files<const R>(source, count).file, count, to);
  }
  template <class R> void restore_lanes(R* sums, const R* saved, int count, std::int64_t size, int to) const {
    restore_all(Files<R>(sums, count).file, Files<const R>(saved, count).file, count, size, to);
  }
  template <class R> void take(R& shared, Total& total, int to, double* slot, bool given) const {
    WalkedFile file = shared.file();
    take_total(file, total, to, slot, given);
  }
};
template <Reduction R, DType Type>
inline constexpr WalkedAccumulation walked_accumulation = [] {
  using A = Accumulation<WalkedFile, R, Type>;
  return WalkedAccumulation{&A::clear, &A::collect, &A::combine, &A::copy_lanes, &A::restore_lanes, &A::take};
}();

/// A result with its code.
struct WalkedExit {
  void (*leave)(WalkedFile& sums, const WalkedFile& values, const Exit& exit, std::byte* const* outputs,
                std::int64_t offset, bool past_caches) = nullptr;
  const WalkedAccumulation* sum = nullptr;  ///< of what accumulates in lanes
  Exit exit;
};
struct WalkedRowExit {
  void (*leave)(const WalkedFile& shared, const Exit& exit, std::byte* at) = nullptr;
  Exit exit;
};

/// The parts of an array that are the lists of the stages and passes of a kernel.
struct WalkedRanges {
  struct Range {
    std::uint16_t begin = 0, end = 0;
  };
  Range uniform, row[Fused::max_phases + 1], row_exit[Fused::max_phases + 1];  ///< by stage
  Range element[Fused::max_phases], exit[Fused::max_phases];                   ///< by pass
};

/// Calls a function with each item of a schedule, in the order of the lists of a kernel, and returns the ranges.
template <class Schedule, class Row, class Element, class Leave, class LeaveRow>
constexpr WalkedRanges walked_ranges(const Schedule& schedule, int phases, Row row, Element element, Leave leave,
                                     LeaveRow leave_row) {
  WalkedRanges ranges;
  const auto append = [](std::uint16_t& count, const auto& list, auto& add) {
    WalkedRanges::Range made{count, static_cast<std::uint16_t>(count + list.size)};
    for (int k = 0; k < list.size; ++k) add(list.items[k]);
    count = made.end;
    return made;
  };
  std::uint16_t rows = 0, row_exits = 0, elements = 0, exits = 0;
  ranges.uniform = append(rows, schedule.uniform, row);
  for (int stage = 0; stage <= phases; ++stage) {
    ranges.row[stage] = append(rows, schedule.row[stage], row);
    ranges.row_exit[stage] = append(row_exits, schedule.row_exits[stage], leave_row);
  }
  for (int pass = 0; pass < phases; ++pass) {
    ranges.element[pass] = append(elements, schedule.element[pass], element);
    ranges.exit[pass] = append(exits, schedule.exits[pass], leave);
  }
  return ranges;
}

/// The lists of a kernel, one after the other.
struct WalkedLists {
  const KernelShape& shape;
  const WalkedRanges& ranges;
  const WalkedStep<RowCursor>* rows;  ///< once per call, then once per row
  const WalkedStep<ElementCursor>* elements;
  const WalkedExit* exits;
  const WalkedRowExit* row_exits;
};

/// A kernel whose lists of instructions and results are walked at run time. All kernels share the code of their
/// instructions, so that a kernel compiles in a fraction of the time of an UnrolledKernel. It computes the same.
template <int FileSize> struct WalkedKernel {
  using File = WalkedRegisters<FileSize>;
  static constexpr int max_unroll = 4, max_phases = Fused::max_phases, file_size = FileSize;

  const WalkedLists& lists;

  const KernelShape& shape() const { return lists.shape; }
  int phases() const { return shape().phases; }
  int stages() const { return shape().phases + 1; }
  bool only_elements() const { return shape().only_elements; }
  /// Sums in registers only save time.
  static constexpr std::false_type adds_rows() { return {}; }
  int unroll(int pass) const { return shape().pass[pass].unroll; }
  bool reduces(int pass) const { return shape().pass[pass].reduces; }

  void run_uniform(File& shared, const RowCursor& cursor, const double* uniforms) const {
    run_steps(lists.rows, lists.ranges.uniform, shared, shared, cursor, uniforms);
  }
  void run_row(int stage, File& shared, const RowCursor& cursor) const {
    run_steps(lists.rows, lists.ranges.row[stage], shared, shared, cursor, nullptr);
  }
  void run_elements(int pass, File& own, const File& shared, const ElementCursor& cursor) const {
    run_steps(lists.elements, lists.ranges.element[pass], own, shared, cursor, nullptr);
  }
  void leave(int pass, File& sums, const File& own, const File& shared, std::byte* const* outputs, std::int64_t offset,
             bool past_caches) const {
    WalkedFile to = sums.file();
    each(lists.exits, lists.ranges.exit[pass], [&](const WalkedExit& made) {
      made.leave(to, made.exit.varies ? own.file() : shared.file(), made.exit, outputs, offset, past_caches);
    });
  }
  template <class F> void leave_row(int stage, const File& shared, F place) const {
    each(lists.row_exits, lists.ranges.row_exit[stage],
         [&](const WalkedRowExit& made) { made.leave(shared.file(), made.exit, place(made.exit)); });
  }
  template <class F> void each_store(int pass, F f) const {
    each(lists.exits, lists.ranges.exit[pass], [&](const WalkedExit& made) {
      if (is_store(made.exit)) f(made.exit);
    });
  }
  template <class F> void each_sum(int pass, F f) const {
    each_row_sum(pass, f);
    each_call_sum(pass, f);
  }
  template <class F> void each_row_sum(int pass, F f) const { each_of(pass, Sums::row, f); }
  template <class F> void each_call_sum(int pass, F f) const { each_of(pass, Sums::call, f); }
  template <class F> void each_row_sum_before(int stage, F f) const {
    if (stage > 0) each_row_sum(stage - 1, f);
  }
  template <class F> void with_pass(int stage, F f) const {
    if (stage < shape().phases && shape().pass[stage].any) f(stage);
  }
  struct Copy {
    std::byte* const* at;
  };
  static Copy local_copy(std::byte* const* operands) { return {operands}; }

 private:
  template <class Item, class F> static void each(const Item* items, WalkedRanges::Range range, F f) {
    for (int k = range.begin; k < range.end; ++k) f(items[k]);
  }
  template <class Cursor>
  static void run_steps(const WalkedStep<Cursor>* steps, WalkedRanges::Range range, File& own, const File& shared,
                        const Cursor& cursor, const double* uniforms) {
    WalkedFile to = own.file();
    const WalkedFile from = shared.file();
    for (int k = range.begin; k < range.end; ++k) steps[k].run(to, from, cursor, uniforms);
  }
  template <class F> void each_of(int pass, Sums sums, F& f) const {
    each(lists.exits, lists.ranges.exit[pass], [&](const WalkedExit& made) {
      if (made.exit.sums == sums) f(*made.sum, made.exit);
    });
  }
};

/// Runs a kernel with up to `Size` registers. `lists`: its WalkedLists.
template <int Size> void run_walked(const FusedCall& call, const void* lists) {
  const WalkedLists& own = *static_cast<const WalkedLists*>(lists);
  run_kernel(WalkedKernel<Size>{own}, call, thread_scratch<Scratch::staging, std::byte>(own.shape.buffer_bytes));
}

}  // namespace tessera::kernels::inline TESSERA_ISA::detail
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
