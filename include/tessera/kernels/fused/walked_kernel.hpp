#ifndef TESSERA_KERNELS_FUSED_WALKED_KERNEL_HPP
#define TESSERA_KERNELS_FUSED_WALKED_KERNEL_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/kernels/fused/fused_instructions.hpp>
#include <tessera/kernels/fused/fused_program.hpp>
#include <tessera/kernels/fused/fused_results.hpp>
#include <tessera/kernels/fused/fused_run.hpp>
#include <tessera/kernels/fused/fused_schedule.hpp>

TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA::detail {

/// An instruction with its code.
template <class File, class Cursor> struct WalkedStep {
  void (*run)(File& own, const File& shared, const Step& step, const Cursor& cursor, const double* uniforms) = nullptr;
  Step step;
};

/// The functions of an Accumulation.
template <class File> struct WalkedAccumulation {
  void (*clear)(File* sums, int count, Total& total, int to);
  void (*collect)(File* sums, int count, Total& total, int to);
  void (*combine)(std::byte* at, Total& total);
  void (*copy_lanes)(File* target, const File* source, int count, int to);
  void (*restore_lanes)(File* sums, const File* saved, int count, std::int64_t size, int to);
  void (*take)(File& shared, Total& total, int to, double* slot, bool given);
};
template <class File, Reduction R, DType Type>
inline constexpr WalkedAccumulation<File> walked_accumulation = [] {
  using A = Accumulation<File, R, Type>;
  return WalkedAccumulation<File>{&A::clear, &A::collect, &A::combine, &A::copy_lanes, &A::restore_lanes, &A::take};
}();

/// A result with its code.
template <class File> struct WalkedExit {
  void (*leave)(File& sums, const File& values, const Exit& exit, std::byte* const* outputs, std::int64_t offset,
                bool past_caches) = nullptr;
  const WalkedAccumulation<File>* sum = nullptr;  ///< of what accumulates in lanes
  Exit exit;
};
template <class File> struct WalkedRowExit {
  void (*leave)(const File& shared, const Exit& exit, std::byte* at) = nullptr;
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

/// The lists of a kernel, one after the other.
template <class File> struct WalkedLists {
  const KernelShape& shape;
  const WalkedRanges& ranges;
  const WalkedStep<File, RowCursor>* rows;  ///< once per call, then once per row
  const WalkedStep<File, ElementCursor>* elements;
  const WalkedExit<File>* exits;
  const WalkedRowExit<File>* row_exits;
};

/// A kernel whose lists of instructions and results are walked at run time. All kernels of a program share the code of
/// their instructions, so that a kernel compiles in a fraction of the time of an UnrolledKernel. It computes the same.
template <int FileSize> struct WalkedKernel {
  using File = Registers<FileSize>;
  static constexpr int max_unroll = 4, max_phases = Fused::max_phases, file_size = FileSize;

  WalkedLists<File> lists;

  const KernelShape& shape() const { return lists.shape; }
  int phases() const { return shape().phases; }
  int stages() const { return shape().phases + 1; }
  bool only_elements() const { return shape().only_elements; }
  /// Sums in registers only save time.
  static constexpr std::false_type adds_rows() { return {}; }
  int unroll(int pass) const { return shape().pass[pass].unroll; }
  bool reduces(int pass) const { return shape().pass[pass].reduces; }

  void run_uniform(File& shared, const RowCursor& cursor, const double* uniforms) const {
    each(lists.rows, lists.ranges.uniform,
         [&](const auto& one) { one.run(shared, shared, one.step, cursor, uniforms); });
  }
  void run_row(int stage, File& shared, const RowCursor& cursor) const {
    each(lists.rows, lists.ranges.row[stage],
         [&](const auto& one) { one.run(shared, shared, one.step, cursor, nullptr); });
  }
  void run_elements(int pass, File& own, const File& shared, const ElementCursor& cursor) const {
    each(lists.elements, lists.ranges.element[pass],
         [&](const auto& one) { one.run(own, shared, one.step, cursor, nullptr); });
  }
  void leave(int pass, File& sums, const File& own, const File& shared, std::byte* const* outputs, std::int64_t offset,
             bool past_caches) const {
    each(lists.exits, lists.ranges.exit[pass], [&](const auto& one) {
      one.leave(sums, one.exit.varies ? own : shared, one.exit, outputs, offset, past_caches);
    });
  }
  template <class F> void leave_row(int stage, const File& shared, F place) const {
    each(lists.row_exits, lists.ranges.row_exit[stage],
         [&](const auto& one) { one.leave(shared, one.exit, place(one.exit)); });
  }
  template <class F> void each_store(int pass, F f) const {
    each(lists.exits, lists.ranges.exit[pass], [&](const auto& one) {
      if (is_store(one.exit)) f(one.exit);
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
  template <class F> void each_of(int pass, Sums sums, F& f) const {
    each(lists.exits, lists.ranges.exit[pass], [&](const auto& one) {
      if (one.exit.sums == sums) f(*one.sum, one.exit);
    });
  }
};

/// The lists of the kernel P, a Program.
template <class P> struct WalkedProgram {
  using File = typename P::File;

  template <class List> static constexpr int total(const List* lists, int count) {
    int sum = 0;
    for (int i = 0; i < count; ++i) sum += lists[i].size;
    return sum;
  }
  /// The lists of the schedule, without code.
  struct Flat {
    Step rows[P::schedule.uniform.size + total(P::schedule.row, P::fused.phases + 1) + 1]{};
    Step elements[total(P::schedule.element, P::fused.phases) + 1]{};
    Exit exits[total(P::schedule.exits, P::fused.phases) + 1]{},
        row_exits[total(P::schedule.row_exits, P::fused.phases + 1) + 1]{};
    WalkedRanges ranges;
  };
  template <class T, class List> static constexpr WalkedRanges::Range append(T* all, int& count, const List& list) {
    const int begin = count;
    for (int k = 0; k < list.size; ++k) all[count++] = list.items[k];
    return {static_cast<std::uint16_t>(begin), static_cast<std::uint16_t>(count)};
  }
  static constexpr Flat flat = [] {
    Flat made;
    const auto& schedule = P::schedule;
    int row = 0, row_exit = 0, element = 0, exit = 0;
    made.ranges.uniform = append(made.rows, row, schedule.uniform);
    for (int stage = 0; stage <= P::fused.phases; ++stage) {
      made.ranges.row[stage] = append(made.rows, row, schedule.row[stage]);
      made.ranges.row_exit[stage] = append(made.row_exits, row_exit, schedule.row_exits[stage]);
    }
    for (int pass = 0; pass < P::fused.phases; ++pass) {
      made.ranges.element[pass] = append(made.elements, element, schedule.element[pass]);
      made.ranges.exit[pass] = append(made.exits, exit, schedule.exits[pass]);
    }
    return made;
  }();

  // An item after the last keeps an array from being empty; it has no code.
  template <Sums S, Reduction R, DType Type> static constexpr const WalkedAccumulation<File>* sum_of() {
    if constexpr (S == Sums::nothing)
      return nullptr;
    else
      return &walked_accumulation<File, R, Type>;
  }
  template <class Array> using ButLast = std::make_index_sequence<std::extent_v<Array> - 1>;
  struct Coded {
    WalkedStep<File, RowCursor> rows[std::extent_v<decltype(Flat::rows)>];
    WalkedStep<File, ElementCursor> elements[std::extent_v<decltype(Flat::elements)>];
    WalkedExit<File> exits[std::extent_v<decltype(Flat::exits)>];
    WalkedRowExit<File> row_exits[std::extent_v<decltype(Flat::row_exits)>];
  };
  template <std::size_t... R, std::size_t... E, std::size_t... X, std::size_t... O>
  static constexpr Coded with_code(std::index_sequence<R...>, std::index_sequence<E...>, std::index_sequence<X...>,
                                   std::index_sequence<O...>) {
    return {{{&run_step<flat.rows[R].kind, flat.rows[R].op, flat.rows[R].dtype, flat.rows[R].source, Keep::no, File,
                        RowCursor>,
              flat.rows[R]}...},
            {{&run_step<flat.elements[E].kind, flat.elements[E].op, flat.elements[E].dtype, flat.elements[E].source,
                        flat.elements[E].keep, File, ElementCursor>,
              flat.elements[E]}...},
            {{&leave<flat.exits[X].kind, flat.exits[X].reduction, flat.exits[X].sums != Sums::nothing,
                     flat.exits[X].dtype, flat.exits[X].source, File>,
              sum_of<flat.exits[X].sums, flat.exits[X].reduction, flat.exits[X].dtype>(), flat.exits[X]}...},
            {{&leave_row<flat.row_exits[O].kind, flat.row_exits[O].reduction, flat.row_exits[O].dtype,
                         flat.row_exits[O].source, File>,
              flat.row_exits[O]}...}};
  }
  static constexpr Coded coded = with_code(ButLast<decltype(Flat::rows)>{}, ButLast<decltype(Flat::elements)>{},
                                           ButLast<decltype(Flat::exits)>{}, ButLast<decltype(Flat::row_exits)>{});

  static WalkedKernel<P::file_size> kernel() {
    return {{P::shape, flat.ranges, coded.rows, coded.elements, coded.exits, coded.row_exits}};
  }
};

}  // namespace tessera::kernels::inline TESSERA_ISA::detail
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
