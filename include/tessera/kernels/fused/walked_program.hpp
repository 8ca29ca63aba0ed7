#ifndef TESSERA_KERNELS_FUSED_WALKED_PROGRAM_HPP
#define TESSERA_KERNELS_FUSED_WALKED_PROGRAM_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/kernels/fused/walked_kernel.hpp>

TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA::detail {

/// An instruction with its code, where only that of the program's own instructions is compiled.
template <InstrKind Kind, Op O, DType To, DType From, Keep Kept, class Cursor>
constexpr WalkedStep<Cursor> walked_step(const Step& step) {
  WalkedStep<Cursor> made;
  made.step = step;
  if constexpr (Kept == Keep::restore)
    made.restore = &restore<To, WalkedFile>;
  else if constexpr (Kind == InstrKind::compute)
    made.compute = &compute<O, To, From, WalkedFile>;
  else
    made.read = &read<Kind, To, WalkedFile, Cursor>;
  if constexpr (Kept == Keep::save) made.save = &save<To, WalkedFile>;
  return made;
}
template <StoreKind Kind, Reduction R, Sums S, DType To, DType From>
constexpr WalkedExit walked_exit(const Exit& exit) {
  WalkedExit made{&leave<Kind, R, S != Sums::nothing, To, From, WalkedFile>, nullptr, exit};
  if constexpr (S != Sums::nothing) made.sum = &walked_accumulation<R, To>;
  return made;
}

/// The lists of the kernel P, a Program, as constants.
template <class P> struct WalkedProgram {
  template <class List> static constexpr int total(const List* of, int count) {
    int sum = 0;
    for (int i = 0; i < count; ++i) sum += of[i].size;
    return sum;
  }
  /// The lists of the schedule, without code. An item after the last keeps an array from being empty.
  struct Flat {
    Step rows[P::schedule.uniform.size + total(P::schedule.row, P::fused.phases + 1) + 1]{};
    Step elements[total(P::schedule.element, P::fused.phases) + 1]{};
    Exit exits[total(P::schedule.exits, P::fused.phases) + 1]{},
        row_exits[total(P::schedule.row_exits, P::fused.phases + 1) + 1]{};
    WalkedRanges ranges;
  };
  static constexpr Flat flat = [] {
    Flat made;
    made.ranges = walked_ranges(
        P::schedule, P::fused.phases, [&, n = 0](const Step& step) mutable { made.rows[n++] = step; },
        [&, n = 0](const Step& step) mutable { made.elements[n++] = step; },
        [&, n = 0](const Exit& exit) mutable { made.exits[n++] = exit; },
        [&, n = 0](const Exit& exit) mutable { made.row_exits[n++] = exit; });
    return made;
  }();

  template <class Array> using ButLast = std::make_index_sequence<std::extent_v<Array> - 1>;
  struct Coded {
    WalkedStep<RowCursor> rows[std::extent_v<decltype(Flat::rows)>];
    WalkedStep<ElementCursor> elements[std::extent_v<decltype(Flat::elements)>];
    WalkedExit exits[std::extent_v<decltype(Flat::exits)>];
    WalkedRowExit row_exits[std::extent_v<decltype(Flat::row_exits)>];
  };
  template <std::size_t... R, std::size_t... E, std::size_t... X, std::size_t... O>
  static constexpr Coded with_code(std::index_sequence<R...>, std::index_sequence<E...>, std::index_sequence<X...>,
                                   std::index_sequence<O...>) {
    return {
        {walked_step<flat.rows[R].kind, flat.rows[R].op, flat.rows[R].dtype, flat.rows[R].source, Keep::no, RowCursor>(
            flat.rows[R])...},
        {walked_step<flat.elements[E].kind, flat.elements[E].op, flat.elements[E].dtype, flat.elements[E].source,
                     flat.elements[E].keep, ElementCursor>(flat.elements[E])...},
        {walked_exit<flat.exits[X].kind, flat.exits[X].reduction, flat.exits[X].sums, flat.exits[X].dtype,
                     flat.exits[X].source>(flat.exits[X])...},
        {{&leave_row<flat.row_exits[O].kind, flat.row_exits[O].reduction, flat.row_exits[O].dtype,
                     flat.row_exits[O].source, WalkedFile>,
          flat.row_exits[O]}...}};
  }
  static constexpr Coded coded = with_code(ButLast<decltype(Flat::rows)>{}, ButLast<decltype(Flat::elements)>{},
                                           ButLast<decltype(Flat::exits)>{}, ButLast<decltype(Flat::row_exits)>{});
  static constexpr WalkedLists lists{P::shape, flat.ranges, coded.rows, coded.elements, coded.exits, coded.row_exits};
};

}  // namespace tessera::kernels::inline TESSERA_ISA::detail
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
