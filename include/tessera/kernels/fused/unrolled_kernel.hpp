#ifndef TESSERA_KERNELS_FUSED_UNROLLED_KERNEL_HPP
#define TESSERA_KERNELS_FUSED_UNROLLED_KERNEL_HPP
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

/// A kernel as straight-line code: the compiler unrolls its lists of instructions and results, whose values become
/// registers. `P`: a Program.
template <class P> struct UnrolledKernel {
  using File = typename P::File;
  static constexpr const auto& schedule = P::schedule;
  static constexpr int max_unroll = P::shape.most_unrolled, max_phases = P::fused.phases, file_size = P::file_size;
  static constexpr int operands = P::shape.operands;

  static constexpr const KernelShape& shape() { return P::shape; }
  static constexpr Int<P::fused.phases> phases() { return {}; }
  static constexpr Int<P::fused.phases + 1> stages() { return {}; }
  static constexpr std::bool_constant<P::shape.only_elements> only_elements() { return {}; }
  static constexpr std::bool_constant<P::shape.adds_rows> adds_rows() { return {}; }
  template <int Pass> static constexpr Int<P::shape.pass[Pass].unroll> unroll(Int<Pass>) { return {}; }
  template <int Pass> static constexpr std::bool_constant<P::shape.pass[Pass].reduces> reduces(Int<Pass>) { return {}; }

  static TESSERA_FLATTENED void run_uniform(File& shared, const RowCursor& cursor, const double* uniforms) {
    run_uniform(up_to<schedule.uniform.size>(), shared, cursor, uniforms);
  }
  template <int Stage> static TESSERA_FLATTENED void run_row(Int<Stage> stage, File& shared, const RowCursor& cursor) {
    if constexpr (schedule.row[Stage].size > 0) run_row(stage, up_to<schedule.row[Stage].size>(), shared, cursor);
  }
  template <int Pass>
  static TESSERA_FLATTENED void run_elements(Int<Pass> pass, File& own, const File& shared,
                                             const ElementCursor& cursor) {
    run_elements(pass, up_to<schedule.element[Pass].size>(), own, shared, cursor);
  }
  template <int Pass>
  static TESSERA_FLATTENED void leave(Int<Pass> pass, File& sums, const File& own, const File& shared,
                                      std::byte* const* outputs, std::int64_t offset, bool past_caches) {
    leave(pass, up_to<schedule.exits[Pass].size>(), sums, own, shared, outputs, offset, past_caches);
  }
  /// Stores what a stage computes once a row. `place(exit)`: the element of a result.
  template <int Stage, class F>
  static TESSERA_FLATTENED void leave_row(Int<Stage>, [[maybe_unused]] const File& shared, [[maybe_unused]] F place) {
    constexpr const auto& list = schedule.row_exits[Stage];
    each(up_to<list.size>(), [&](auto k) TESSERA_FLATTENED_LAMBDA {
      constexpr Exit exit = list[k];
      detail::leave_row<exit.kind, exit.reduction, exit.dtype, exit.source>(shared, exit, place(exit));
    });
  }

  template <int Pass, class F> static TESSERA_FLATTENED void each_store(Int<Pass>, F f) {
    for (int k = 0; k < schedule.exits[Pass].size; ++k)
      if (is_store(schedule.exits[Pass].items[k])) f(schedule.exits[Pass].items[k]);
  }
  template <int Pass, class F> static TESSERA_FLATTENED void each_sum(Int<Pass> pass, F f) {
    each_row_sum(pass, f);
    each_call_sum(pass, f);
  }
  template <int Pass, class F> static TESSERA_FLATTENED void each_row_sum(Int<Pass>, [[maybe_unused]] F f) {
    if constexpr (P::shape.pass[Pass].reduces) each_of<Pass, Sums::row>(f);
  }
  template <int Pass, class F> static TESSERA_FLATTENED void each_call_sum(Int<Pass>, [[maybe_unused]] F f) {
    if constexpr (P::shape.pass[Pass].carries) each_of<Pass, Sums::call>(f);
  }
  template <int Stage, class F> static TESSERA_FLATTENED void each_row_sum_before(Int<Stage>, [[maybe_unused]] F f) {
    if constexpr (Stage > 0) each_row_sum(Int<Stage - 1>{}, f);
  }
  /// Calls `f` with `stage` if a pass with results follows it.
  template <int Stage, class F> static TESSERA_FLATTENED void with_pass(Int<Stage> stage, [[maybe_unused]] F f) {
    if constexpr (Stage < P::fused.phases)
      if constexpr (P::shape.pass[Stage].any) f(stage);
  }

  // The results of a kernel that adds rows, which all accumulate: sums in registers from and to elements.
  static TESSERA_FLATTENED void load_sums(File& sums, std::byte* const* outputs, std::int64_t offset) {
    each_exit([&](auto k) TESSERA_FLATTENED_LAMBDA {
      constexpr Exit exit = schedule.exits[0][k];
      using E = element_t<exit.dtype>;
      sums.template get<lane_t<E>>(exit.to) = load(reinterpret_cast<const E*>(outputs[exit.slot]) + offset);
    });
  }
  static TESSERA_FLATTENED void store_sums(const File& sums, std::byte* const* outputs, std::int64_t offset) {
    each_exit([&](auto k) TESSERA_FLATTENED_LAMBDA {
      constexpr Exit exit = schedule.exits[0][k];
      using E = element_t<exit.dtype>;
      store(reinterpret_cast<E*>(outputs[exit.slot]) + offset, sums.template get<lane_t<E>>(exit.to));
    });
  }
  static TESSERA_FLATTENED void add_to_sums(File& sums, const File& own, const File& shared) {
    each_exit([&](auto k) TESSERA_FLATTENED_LAMBDA {
      constexpr Exit exit = schedule.exits[0][k];
      detail::leave<exit.kind, exit.reduction, true, exit.dtype, exit.source>(sums, exit.varies ? own : shared, exit,
                                                                              nullptr, 0, false);
    });
  }

  /// A copy of a value for each operand.
  template <class T> struct Copy {
    T at[operands + 1];
  };
  template <class T> static TESSERA_FLATTENED Copy<T> local_copy(const T* values) {
    return [&]<std::size_t... K>(std::index_sequence<K...>) TESSERA_FLATTENED_LAMBDA {
      return Copy<T>{{values[K]..., T()}};
    }(std::make_index_sequence<static_cast<std::size_t>(operands)>{});
  }

 private:
  template <int N> static constexpr auto up_to() { return std::make_index_sequence<static_cast<std::size_t>(N)>{}; }

  template <std::size_t... K>
  static TESSERA_FLATTENED void run_uniform(std::index_sequence<K...>, [[maybe_unused]] File& shared,
                                            [[maybe_unused]] const RowCursor& cursor,
                                            [[maybe_unused]] const double* uniforms) {
    constexpr const auto& list = schedule.uniform;
    (run_step<list[K].kind, list[K].op, list[K].dtype, list[K].source, Keep::no>(shared, shared, list[K], cursor,
                                                                                 uniforms),
     ...);
  }
  template <int Stage, std::size_t... K>
  static TESSERA_FLATTENED void run_row(Int<Stage>, std::index_sequence<K...>, File& shared, const RowCursor& cursor) {
    constexpr const auto& list = schedule.row[Stage];
    (run_step<list[K].kind, list[K].op, list[K].dtype, list[K].source, Keep::no>(shared, shared, list[K], cursor,
                                                                                 nullptr),
     ...);
  }
  template <int Pass, std::size_t... K>
  static TESSERA_FLATTENED void run_elements(Int<Pass>, std::index_sequence<K...>, [[maybe_unused]] File& own,
                                             [[maybe_unused]] const File& shared,
                                             [[maybe_unused]] const ElementCursor& cursor) {
    constexpr const auto& list = schedule.element[Pass];
    (run_step<list[K].kind, list[K].op, list[K].dtype, list[K].source, list[K].keep>(own, shared, list[K], cursor,
                                                                                     nullptr),
     ...);
  }
  template <int Pass, std::size_t... K>
  static TESSERA_FLATTENED void leave(Int<Pass>, std::index_sequence<K...>, File& sums, const File& own,
                                      const File& shared, std::byte* const* outputs, std::int64_t offset,
                                      bool past_caches) {
    constexpr const auto& list = schedule.exits[Pass];
    (detail::leave<list[K].kind, list[K].reduction, list[K].sums != Sums::nothing, list[K].dtype, list[K].source>(
         sums, list[K].varies ? own : shared, list[K], outputs, offset, past_caches),
     ...);
  }

  /// Calls `f` with each index of a list, a constant.
  template <std::size_t... K, class F>
  static TESSERA_FLATTENED void each(std::index_sequence<K...>, [[maybe_unused]] F f) {
    (f(std::integral_constant<std::size_t, K>{}), ...);
  }
  template <class F> static TESSERA_FLATTENED void each_exit(F f) { each(up_to<schedule.exits[0].size>(), f); }
  template <int Pass, Sums Which, class F> static TESSERA_FLATTENED void each_of(F& f) {
    constexpr const auto& list = schedule.exits[Pass];
    each(up_to<list.size>(), [&](auto k) TESSERA_FLATTENED_LAMBDA {
      constexpr Exit exit = list[k];
      if constexpr (exit.sums == Which) f(Accumulation<File, exit.reduction, exit.dtype>{}, exit);
    });
  }
};

}  // namespace tessera::kernels::inline TESSERA_ISA::detail
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
