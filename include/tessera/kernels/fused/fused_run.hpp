#ifndef TESSERA_KERNELS_FUSED_FUSED_RUN_HPP
#define TESSERA_KERNELS_FUSED_FUSED_RUN_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/base/dtype.hpp>
#include <tessera/graph/fuse/fused.hpp>
#include <tessera/kernels/fused/fused_instructions.hpp>
#include <tessera/kernels/fused/fused_program.hpp>
#include <tessera/kernels/fused/fused_results.hpp>
#include <tessera/kernels/fused/fused_rows.hpp>
#include <tessera/kernels/fused/fused_schedule.hpp>
#include <tessera/kernels/long_sums.hpp>
#include <tessera/kernels/scratch.hpp>

// How a fused kernel goes over the rows and elements of a call. Its instructions and results are those of an
// UnrolledKernel, whose numbers (of a pass, a stage, a register) are constants, or of a WalkedKernel, where they are
// ints.
TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

template <int N> using Int = std::integral_constant<int, N>;

/// Calls `f` with 0, 1, ..., N - 1, each a constant.
template <int N, class F> TESSERA_FLATTENED void times(Int<N>, [[maybe_unused]] F f) {
  [&]<int... K>(std::integer_sequence<int, K...>)
      TESSERA_FLATTENED_LAMBDA { (f(Int<K>{}), ...); }(std::make_integer_sequence<int, N>{});
}
template <class F> TESSERA_FLATTENED void times(int n, F f) {
  for (int k = 0; k < n; ++k) f(k);
}

/// Whether a flag of a kernel can be set: not if it is a constant false.
template <class Flag> inline constexpr bool can_be = !std::is_same_v<Flag, std::false_type>;

/// One call of one kernel. All members of an unrolled kernel are inlined into fused_kernel, so that Values are
/// registers.
template <class Kernel> struct FusedRun {
  using File = typename Kernel::File;
  using OnlyElements = decltype(std::declval<Kernel>().only_elements());
  using AddsRows = decltype(std::declval<Kernel>().adds_rows());

  [[no_unique_address]] Kernel kernel;
  const FusedCall& call;
  std::byte* const buffer;  ///< for copies of operands that are not contiguous
  RowWalk rows;
  Window whole_row;           ///< where `adjacent` is not 0: the current row
  std::int64_t adjacent = 0;  ///< rows left, with the current row, that follow each other along the innermost outer dim
  bool whole_rows = false;    ///< each pass over a row is one window, whose elements are contiguous
  std::byte* kept = nullptr;  ///< values kept between passes over a row
  std::int64_t kept_capacity = 0;            ///< elements
  std::byte* targets[Fused::max_outputs]{};  ///< by output: the element that the current accumulation is added to

  FusedRun(Kernel k, const FusedCall& c, std::byte* staging) : kernel(k), call(c), buffer(staging) {}

  /// Most elements of a window of a pass over contiguous operands. A reducing pass adds at most sum_run terms to a lane
  /// per window.
  std::int64_t longest_window(int pass) const {
    const std::int64_t run = sum_run * width * kernel.shape().pass[pass].unroll;
    return kernel.shape().pass[pass].reduces && run < window_size ? run : window_size;
  }
  TESSERA_NO_INLINE void find_whole_rows() {
    const std::int64_t size = call.inner_end - call.inner_begin;
    whole_rows = rows.contiguous;
    for (int pass = 0; pass < kernel.shape().phases; ++pass)
      whole_rows = whole_rows && size % (width * kernel.shape().pass[pass].unroll) == 0 && size <= longest_window(pass);
  }
  /// Opens the window of the current row, where rows are whole.
  TESSERA_FLATTENED void open_row(Window& window) const {
    const KernelShape& shape = kernel.shape();
    window.begin = call.inner_begin;
    window.size = window.padded = call.inner_end - call.inner_begin;
    for (int i = 0; i < shape.operands; ++i) window.at[i] = rows.row[i] + call.inner_begin * shape.sizes[i];
  }

  /// Of a kernel without values of a row, whole rows that follow each other share a window: short rows, such as the
  /// features of a pixel, spend more time on windows of their own than in their elements.
  TESSERA_NO_INLINE void find_adjacent(std::int64_t row) {
    if (!whole_rows || rows.rank == 0) return;
    adjacent = rows.left_along_dim();
    if (adjacent > call.row_end - row) adjacent = call.row_end - row;
    open_row(whole_row);
    rows.skip(adjacent);
  }
  TESSERA_FLATTENED void next_row(std::int64_t row) {
    if constexpr (can_be<OnlyElements>)
      if (kernel.only_elements()) {
        if (adjacent > 1) {
          --adjacent;
          const std::int64_t* const step = rows.step[rows.rank - 1];
          for (int i = 0; i < kernel.shape().operands; ++i) whole_row.at[i] += step[i];
          return;
        }
        if (adjacent == 0) rows.next();
        adjacent = 0;
        if (row + 1 < call.row_end) find_adjacent(row + 1);
        return;
      }
    rows.next();
  }

  /// Whether the adjacent rows are added to the same elements.
  bool same_sums() const {
    bool same = adjacent > 1;
    for (int i = kernel.shape().inputs; i < kernel.shape().operands; ++i)
      same = same && rows.step[rows.rank - 1][i] == 0;
    return same;
  }

  struct Values {
    File shared;                    ///< values per call and per row
    File sums[Kernel::max_unroll];  ///< lanes of reductions and of accumulations along the row
    Total totals[Kernel::file_size];
    /// by pass: terms per lane since the lanes were last added to the totals
    std::int64_t pending[Kernel::max_phases]{};
  };

  /// Whether this window uses non-temporal stores, which need contiguous and aligned results.
  template <class Pass> TESSERA_FLATTENED bool passes_caches(Pass pass, const Window& window) const {
    const KernelShape& shape = kernel.shape();
    if (!shape.pass[pass].may_pass_caches || !call.past_caches || window.size != window.padded) return false;
    bool aligned = true;
    kernel.each_store(pass, [&](const Exit& exit) TESSERA_FLATTENED_LAMBDA {
      const int operand = shape.inputs + exit.slot;
      const auto at = reinterpret_cast<std::uintptr_t>(window.at[operand]);
      aligned = aligned && rows.stride[operand] == 1 && at % (static_cast<unsigned>(width) * shape.sizes[operand]) == 0;
    });
    return aligned;
  }

  /// Prefetch distance of a pass in bytes. Long rows: a page ahead, in the first pass. Short rows stay in the cache for
  /// the later passes, and the most expensive of these prefetches the next row, so that memory and arithmetic overlap:
  /// one that writes nothing, if there is one, since a pass that writes waits for memory anyway.
  template <class Pass> TESSERA_FLATTENED std::int64_t fetch_ahead(Pass pass) const {
    constexpr std::int64_t page = 4096, most = 4 * page;
    if (kernel.shape().phases == 1) return page;
    const std::int64_t row = (call.inner_end - call.inner_begin) * static_cast<std::int64_t>(sizeof(float));
    if (row > most) return pass == 0 ? page : 64;
    return pass == kernel.shape().fetching_pass ? (row > page ? row : page) : 64;
  }

  template <class Pass> TESSERA_FLATTENED void run_window(Pass pass, Values& values, const Window& window) {
    // Local copies: the compiler cannot prove that stores don't change the members.
    const auto operands = kernel.local_copy(window.at);
    std::byte* const kept_rows = kept;
    const std::int64_t capacity = kept_capacity, along = window.begin - call.inner_begin;
    const std::int64_t position = call.global_offset[call.outer_rank] + window.begin;
    const bool past_caches = passes_caches(pass, window);
    const std::int64_t ahead = fetch_ahead(pass);
    const auto unroll = kernel.unroll(pass);
    for (std::int64_t offset = 0; offset < window.padded; offset += width * unroll)
      times(unroll, [&](auto u) TESSERA_FLATTENED_LAMBDA {
        const std::int64_t at = offset + width * u;
        File own;
        kernel.run_elements(pass, own, values.shared,
                            ElementCursor{operands.at, at, position + at, kept_rows, along + at, capacity, ahead});
        kernel.leave(pass, values.sums[u], own, values.shared, operands.at + kernel.shape().inputs, at, past_caches);
      });
  }

  /// Adds all adjacent rows, of U registers, to sums that stay in registers. In memory, each addition would wait for
  /// the store of the addition before. Elements are the same sums in the same order.
  template <int U> TESSERA_FLATTENED void add_adjacent(Int<U> registers, Values& values) {
    constexpr Int<0> pass;
    const std::int64_t count = adjacent, ahead = fetch_ahead(pass);
    const std::int64_t position = call.global_offset[call.outer_rank] + whole_row.begin;
    const auto step = kernel.local_copy(rows.step[rows.rank - 1]);
    auto operands = kernel.local_copy(whole_row.at);
    File sums[U];
    times(registers, [&](auto u) TESSERA_FLATTENED_LAMBDA {
      kernel.load_sums(sums[u], operands.at + kernel.shape().inputs, width * u);
    });
    for (std::int64_t row = 0; row < count; ++row) {
      times(registers, [&](auto u) TESSERA_FLATTENED_LAMBDA {
        const std::int64_t at = width * u;
        File own;
        kernel.run_elements(pass, own, values.shared,
                            ElementCursor{operands.at, at, position + at, nullptr, 0, 0, ahead});
        kernel.add_to_sums(sums[u], own, values.shared);
      });
      times(Int<Kernel::operands>{}, [&](auto i) TESSERA_FLATTENED_LAMBDA { operands.at[i] += step.at[i]; });
    }
    times(registers, [&](auto u) TESSERA_FLATTENED_LAMBDA {
      kernel.store_sums(sums[u], operands.at + kernel.shape().inputs, width * u);
    });
  }
  /// The same, if the rows are short. Longer rows would be read in parts, which memory is slower at.
  TESSERA_FLATTENED bool add_short_rows(Values& values) {
    if (!same_sums()) return false;
    if (whole_row.size == 4 * width)
      add_adjacent(Int<4>{}, values);
    else if (whole_row.size == 2 * width)
      add_adjacent(Int<2>{}, values);
    else if (whole_row.size == width)
      add_adjacent(Int<1>{}, values);
    else
      return false;
    return true;
  }

  /// Writes an accumulated value to its output and resets the accumulator.
  template <class Sum>
  TESSERA_FLATTENED void finish_accumulation(const Sum& sum, const Exit& exit, int count, Values& values) {
    Total& total = values.totals[exit.to];
    sum.collect(values.sums, count, total, exit.to);
    if (targets[exit.slot] != nullptr) sum.combine(targets[exit.slot], total);
    sum.clear(values.sums, count, total, exit.to);
  }

  /// Adds the lanes of all sums of a pass to their totals.
  template <class Pass> TESSERA_FLATTENED void collect(Pass pass, Values& values) {
    kernel.each_sum(pass, [&](const auto& sum, const Exit& exit) TESSERA_FLATTENED_LAMBDA {
      sum.collect(values.sums, kernel.unroll(pass), values.totals[exit.to], exit.to);
    });
    values.pending[pass] = 0;
  }

  /// A window of a pass that reduces: in a padded window, the lanes past the end of the row keep their sums.
  template <class Pass> TESSERA_FLATTENED void run_reducing_window(Pass pass, Values& values, const Window& window) {
    const auto count = kernel.unroll(pass);
    File saved[Kernel::max_unroll];
    const bool partial = window.size != window.padded;
    if (partial)
      kernel.each_sum(pass, [&](const auto& sum, const Exit& exit)
                                TESSERA_FLATTENED_LAMBDA { sum.copy_lanes(saved, values.sums, count, exit.to); });
    run_window(pass, values, window);
    if (partial)
      kernel.each_sum(pass, [&](const auto& sum, const Exit& exit) TESSERA_FLATTENED_LAMBDA {
        sum.restore_lanes(values.sums, saved, count, window.size, exit.to);
      });
  }

  template <class Pass> TESSERA_FLATTENED void begin_sums(Pass pass, Values& values) {
    kernel.each_row_sum(pass, [&](const auto& sum, const Exit& exit) TESSERA_FLATTENED_LAMBDA {
      sum.clear(values.sums, kernel.unroll(pass), values.totals[exit.to], exit.to);
    });
    kernel.each_call_sum(pass, [&](const auto& sum, const Exit& exit) TESSERA_FLATTENED_LAMBDA {
      std::byte* const target = rows.row[kernel.shape().inputs + exit.slot];
      if (targets[exit.slot] == target) return;
      finish_accumulation(sum, exit, kernel.unroll(pass), values);
      targets[exit.slot] = target;
    });
    if (!kernel.shape().pass[pass].carries) values.pending[pass] = 0;
  }

  template <class Pass> TESSERA_FLATTENED void run_pass(Pass pass, Values& values) {
    const KernelShape& shape = kernel.shape();
    const auto count = kernel.unroll(pass);
    const auto reduces = kernel.reduces(pass);
    if constexpr (can_be<decltype(reduces)>) begin_sums(pass, values);
    RowEnds ends{call.inner_end};
    if (shape.only_stores && rows.contiguous) {
      // A store past the caches to a line that a plain store has changed would wait for that.
      if (call.past_caches && shape.pass[pass].may_pass_caches)
        ends.aligned = shape.inputs;
      else if (!rows.in_place)
        ends.repeats_from = call.inner_begin;
    }
    const WindowWalk windows(rows, shape.sizes, shape.offsets, buffer, shape.pass[pass].reads, shape.pass[pass].writes,
                             width * count, longest_window(pass), ends);
    Window own;
    Window& window = shape.only_elements ? whole_row : own;
    for (std::int64_t begin = call.inner_begin; begin < call.inner_end; begin += window.size) {
      if (adjacent == 0) {
        if (whole_rows)
          open_row(window);
        else
          windows.open(window, begin, call.inner_end);
      }
      if constexpr (can_be<decltype(reduces)>) {
        if (reduces) {
          const std::int64_t terms = window.padded / (width * count);
          if (values.pending[pass] + terms > sum_run) collect(pass, values);
          values.pending[pass] += terms;
          run_reducing_window(pass, values, window);
        } else {
          run_window(pass, values, window);
        }
      } else {
        run_window(pass, values, window);
      }
      windows.close(window);
    }
    if constexpr (can_be<decltype(reduces)>)
      kernel.each_row_sum(pass, [&](const auto& sum, const Exit& exit) TESSERA_FLATTENED_LAMBDA {
        sum.collect(values.sums, count, values.totals[exit.to], exit.to);
      });
  }

  /// Makes the result of each reduction of the pass before `stage` a value of the row.
  template <class Stage> TESSERA_FLATTENED void take_reductions(Stage stage, Values& values, std::int64_t row) {
    kernel.each_row_sum_before(stage, [&](const auto& sum, const Exit& exit) TESSERA_FLATTENED_LAMBDA {
      double* const slot =
          call.row_values == nullptr ? nullptr : call.row_values + exit.slot * call.row_values_stride + row;
      sum.take(values.shared, values.totals[exit.to], exit.to, slot, stage <= call.phase_begin);
    });
  }

  template <class Stage> TESSERA_FLATTENED void run_stage(Stage stage, Values& values, std::int64_t row) {
    if (stage > call.phase_end) return;
    take_reductions(stage, values, row);
    kernel.run_row(stage, values.shared, RowCursor{rows, call});
    const bool mine = stage >= call.phase_begin && (stage < call.phase_end || stage == kernel.shape().phases);
    if (mine)
      kernel.leave_row(stage, values.shared, [&](const Exit& exit) TESSERA_FLATTENED_LAMBDA {
        return rows.row[kernel.shape().inputs + exit.slot];
      });
    // A pass that an earlier call ran is repeated if it stores values for later passes: they were in scratch memory.
    kernel.with_pass(stage, [&](auto pass) TESSERA_FLATTENED_LAMBDA {
      if (mine || kernel.shape().pass[pass].saves) run_pass(pass, values);
    });
  }

  /// Calls `f` with each accumulation of the call.
  template <class F> TESSERA_FLATTENED void each_accumulation(F f) {
    times(kernel.phases(), [&](auto pass) TESSERA_FLATTENED_LAMBDA { kernel.each_call_sum(pass, f); });
  }

  TESSERA_FLATTENED void run_rows() {
    Values values;
    each_accumulation([&](const auto& sum, const Exit& exit) TESSERA_FLATTENED_LAMBDA {
      sum.clear(values.sums, kernel.shape().most_unrolled, values.totals[exit.to], exit.to);
    });
    kernel.run_uniform(values.shared, RowCursor{rows, call}, call.uniforms);
    find_whole_rows();
    if constexpr (can_be<OnlyElements>)
      if (kernel.only_elements()) find_adjacent(call.row_begin);
    for (std::int64_t row = call.row_begin; row < call.row_end; ++row) {
      if constexpr (can_be<AddsRows>)
        if (add_short_rows(values)) {
          row += adjacent - 1;
          adjacent = 1;
          next_row(row);
          continue;
        }
      times(kernel.stages(), [&](auto stage) TESSERA_FLATTENED_LAMBDA { run_stage(stage, values, row); });
      next_row(row);
    }
    each_accumulation([&](const auto& sum, const Exit& exit) TESSERA_FLATTENED_LAMBDA {
      finish_accumulation(sum, exit, kernel.shape().most_unrolled, values);
    });
  }
};

/// Runs a kernel on a range of rows and columns of a shard, with a buffer of as many bytes as its shape says.
template <class Kernel> TESSERA_FLATTENED void run_kernel(Kernel kernel, const FusedCall& call, std::byte* buffer) {
  if (call.row_begin >= call.row_end) return;
  const KernelShape& shape = kernel.shape();
  FusedRun<Kernel> run(kernel, call, buffer);
  if (shape.kept_bytes > 0) {
    // One more register per unrolled iteration, since the last window of a row is padded.
    run.kept_capacity = call.inner_end - call.inner_begin + width * shape.most_unrolled;
    run.kept =
        thread_scratch<Scratch::kept_values, std::byte>(static_cast<std::size_t>(run.kept_capacity) * shape.kept_bytes);
  }
  run.rows.start(call, shape.inputs, shape.operands - shape.inputs, shape.sizes, shape.in_row);
  run.run_rows();
  if (call.past_caches) finish_stores();
}

}  // namespace detail

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
