#ifndef TESSERA_KERNELS_FUSED_FUSED_KERNEL_HPP
#define TESSERA_KERNELS_FUSED_FUSED_KERNEL_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/graph/fuse/fused.hpp>
#include <tessera/kernels/fused/fused_instructions.hpp>
#include <tessera/kernels/fused/fused_program.hpp>
#include <tessera/kernels/fused/fused_rows.hpp>
#include <tessera/kernels/fused/fused_schedule.hpp>
#include <tessera/kernels/long_sums.hpp>
#include <tessera/kernels/scratch.hpp>

// Compiles a fused kernel: a constexpr list of instructions becomes straight-line vector code.
TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// One call of one kernel. All members are inlined into fused_kernel, so that Values are registers.
template <class P> struct FusedRun {
  using File = typename P::File;
  static constexpr const auto& schedule = P::schedule;
  static constexpr int phases = P::fused.phases, unroll = P::most_unrolled;

  const FusedCall& call;
  RowWalk rows;
  Window whole_row;           ///< where `adjacent` is not 0: the current row
  std::int64_t adjacent = 0;  ///< rows left, with the current row, that follow each other along the innermost outer dim
  alignas(64) std::byte buffer[P::layout.bytes];
  std::byte* kept = nullptr;                 ///< values kept between passes over a row
  std::int64_t kept_capacity = 0;            ///< elements
  std::byte* targets[Fused::max_outputs]{};  ///< by output: the element that the current accumulation is added to

  explicit FusedRun(const FusedCall& c) : call(c) {}

  /// Where a row is one window of contiguous elements, rows that follow each other need no windows of their own: short
  /// rows, such as the features of a pixel, spend more time there than in their elements.
  TESSERA_NO_INLINE void find_adjacent(std::int64_t row) {
    const std::int64_t size = call.inner_end - call.inner_begin;
    if (!rows.contiguous || size % (width * P::unroll(0)) != 0 || size > window_size || rows.rank == 0) return;
    adjacent = rows.left_along_dim();
    if (adjacent > call.row_end - row) adjacent = call.row_end - row;
    whole_row.begin = call.inner_begin;
    whole_row.size = whole_row.padded = size;
    for (int i = 0; i < P::operands; ++i) whole_row.at[i] = rows.row[i] + call.inner_begin * P::layout.sizes[i];
    rows.skip(adjacent);
  }
  TESSERA_FLATTENED void next_row(std::int64_t row) {
    if constexpr (P::only_elements) {
      if (adjacent > 1) {
        --adjacent;
        const std::int64_t* const step = rows.step[rows.rank - 1];
        for (int i = 0; i < P::operands; ++i) whole_row.at[i] += step[i];
        return;
      }
      if (adjacent == 0) rows.next();
      adjacent = 0;
      if (row + 1 < call.row_end) find_adjacent(row + 1);
    } else {
      rows.next();
    }
  }

  /// Whether the adjacent rows are added to the same elements.
  bool same_sums() const {
    bool same = adjacent > 1;
    for (int i = P::inputs; i < P::operands; ++i) same = same && rows.step[rows.rank - 1][i] == 0;
    return same;
  }

  struct Values {
    File shared;        ///< values per call and per row
    File sums[unroll];  ///< lanes of reductions and of accumulations along the row
    Total totals[P::file_size];
    std::int64_t pending[phases]{};  ///< by pass: terms per lane since the lanes were last added to the totals
  };

  template <int Pass, std::size_t... K>
  static TESSERA_FLATTENED void element_steps(std::index_sequence<K...>, [[maybe_unused]] File& own,
                                              [[maybe_unused]] const File& shared,
                                              [[maybe_unused]] const ElementCursor& cursor) {
    constexpr const auto& list = schedule.element[Pass];
    (run_step<list[K].kind, list[K].op, list[K].dtype, list[K].source, list[K].keep>(own, shared, list[K], cursor,
                                                                                     nullptr),
     ...);
  }

  template <int Stage, std::size_t... K>
  static TESSERA_FLATTENED void row_steps(std::index_sequence<K...>, [[maybe_unused]] File& shared,
                                          [[maybe_unused]] const RowCursor& cursor) {
    constexpr const auto& list = schedule.row[Stage];
    (run_step<list[K].kind, list[K].op, list[K].dtype, list[K].source, Keep::no>(shared, shared, list[K], cursor,
                                                                                 nullptr),
     ...);
  }

  template <std::size_t... K>
  static TESSERA_FLATTENED void uniform_steps(std::index_sequence<K...>, [[maybe_unused]] File& shared,
                                              [[maybe_unused]] const RowCursor& cursor,
                                              [[maybe_unused]] const double* uniforms) {
    constexpr const auto& list = schedule.uniform;
    (run_step<list[K].kind, list[K].op, list[K].dtype, list[K].source, Keep::no>(shared, shared, list[K], cursor,
                                                                                 uniforms),
     ...);
  }

  /// Calls `f` with each index of a list as an integral_constant.
  template <std::size_t... K, class F>
  static TESSERA_FLATTENED void each(std::index_sequence<K...>, [[maybe_unused]] F f) {
    (f(std::integral_constant<std::size_t, K>{}), ...);
  }

  template <int Pass, std::size_t... K>
  static TESSERA_FLATTENED void leave_all(std::index_sequence<K...>, File& sums, const File& own, const File& shared,
                                          std::byte* const* outputs, std::int64_t offset,
                                          [[maybe_unused]] bool past_caches) {
    constexpr const auto& list = schedule.exits[Pass];
    (leave<list[K].kind, list[K].reduction, list[K].reduces, list[K].dtype, list[K].source>(
         sums, list[K].varies ? own : shared, list[K], outputs, offset, past_caches),
     ...);
  }

  /// Whether a pass may use non-temporal stores: of several results, each store must fill a cache line. Otherwise the
  /// processor writes half of a line while stores to another result wait, which takes up to three times as long as
  /// plain stores (docs/decisions/0007).
  template <int Pass> static consteval bool may_pass_caches() {
    constexpr unsigned line = 64;
    int results = 0;
    bool fills_lines = true;
    for (int k = 0; k < schedule.exits[Pass].size; ++k) {
      const Exit& exit = schedule.exits[Pass].items[k];
      if (exit.reduces || exit.kind != StoreKind::element) continue;
      ++results;
      fills_lines = fills_lines && static_cast<unsigned>(width) * P::layout.sizes[P::inputs + exit.slot] >= line;
    }
    return results == 1 || fills_lines;
  }
  /// Whether this window uses non-temporal stores, which need contiguous and aligned results.
  template <int Pass> TESSERA_FLATTENED bool passes_caches(const Window& window) const {
    if (!may_pass_caches<Pass>() || !call.past_caches || window.size != window.padded) return false;
    bool aligned = true;
    for (int k = 0; k < schedule.exits[Pass].size; ++k) {
      const Exit& exit = schedule.exits[Pass].items[k];
      if (exit.reduces || exit.kind != StoreKind::element) continue;
      const int operand = P::inputs + exit.slot;
      const auto at = reinterpret_cast<std::uintptr_t>(window.at[operand]);
      aligned =
          aligned && rows.stride[operand] == 1 && at % (static_cast<unsigned>(width) * P::layout.sizes[operand]) == 0;
    }
    return aligned;
  }

  /// Prefetch distance of a pass in bytes. Long rows: a page ahead, in the first pass. Short rows stay in the cache for
  /// the later passes, and the most expensive pass prefetches the next row, so that memory and arithmetic overlap.
  template <int Pass> TESSERA_FLATTENED std::int64_t fetch_ahead() const {
    constexpr std::int64_t page = 4096, most = 4 * page;
    if constexpr (phases == 1) return page;
    const std::int64_t row = (call.inner_end - call.inner_begin) * static_cast<std::int64_t>(sizeof(float));
    if (row > most) return Pass == 0 ? page : 64;
    return Pass == P::busiest_pass ? (row > page ? row : page) : 64;
  }

  template <int Pass, std::size_t... U, std::size_t... Operand>
  TESSERA_FLATTENED void run_window(std::index_sequence<U...>, std::index_sequence<Operand...>, Values& values,
                                    const Window& window) {
    constexpr auto steps = std::make_index_sequence<static_cast<std::size_t>(schedule.element[Pass].size)>{};
    constexpr auto exits = std::make_index_sequence<static_cast<std::size_t>(schedule.exits[Pass].size)>{};
    // Local copies: the compiler cannot prove that stores don't change the members.
    std::byte* const operands[] = {window.at[Operand]..., nullptr};
    std::byte* const kept_rows = kept;
    const std::int64_t capacity = kept_capacity, along = window.begin - call.inner_begin;
    const std::int64_t position = call.global_offset[call.outer_rank] + window.begin;
    const bool past_caches = passes_caches<Pass>(window);
    const std::int64_t ahead = fetch_ahead<Pass>();
    for (std::int64_t offset = 0; offset < window.padded; offset += width * static_cast<int>(sizeof...(U))) {
      const auto iterate = [&](std::int64_t at, File& sums) TESSERA_FLATTENED_LAMBDA {
        File own;
        element_steps<Pass>(steps, own, values.shared,
                            {operands, at, position + at, kept_rows, along + at, capacity, ahead});
        leave_all<Pass>(exits, sums, own, values.shared, operands + P::inputs, at, past_caches);
      };
      (iterate(offset + width * static_cast<int>(U), values.sums[U]), ...);
    }
  }

  /// Adds all adjacent rows, of U registers, to sums that stay in registers. In memory, each addition would wait for
  /// the store of the addition before. Elements are the same sums in the same order.
  template <std::size_t... U, std::size_t... Operand>
  TESSERA_FLATTENED void add_adjacent(std::index_sequence<U...>, std::index_sequence<Operand...>, Values& values) {
    constexpr auto steps = std::make_index_sequence<static_cast<std::size_t>(schedule.element[0].size)>{};
    constexpr const auto& list = schedule.exits[0];
    constexpr auto all = std::make_index_sequence<static_cast<std::size_t>(list.size)>{};
    const std::int64_t count = adjacent, ahead = fetch_ahead<0>();
    const std::int64_t position = call.global_offset[call.outer_rank] + whole_row.begin;
    const std::int64_t step[] = {rows.step[rows.rank - 1][Operand]..., 0};
    std::byte* at[] = {whole_row.at[Operand]..., nullptr};
    File sums[sizeof...(U)];
    const auto each_sum = [&](auto f) TESSERA_FLATTENED_LAMBDA {
      each(all, [&](auto k) TESSERA_FLATTENED_LAMBDA {
        constexpr Exit exit = list[k];
        (f(sums[U].template get<lanes_of<exit.dtype>>(exit.to),
           reinterpret_cast<element_t<exit.dtype>*>(at[P::inputs + exit.slot]) + width * static_cast<int>(U)),
         ...);
      });
    };
    each_sum([](auto& sum, auto* element) TESSERA_FLATTENED_LAMBDA { sum = load(element); });
    for (std::int64_t row = 0; row < count; ++row) {
      const auto add = [&](std::int64_t offset, File& own_sums) TESSERA_FLATTENED_LAMBDA {
        File own;
        element_steps<0>(steps, own, values.shared, {at, offset, position + offset, nullptr, 0, 0, ahead});
        each(all, [&](auto k) TESSERA_FLATTENED_LAMBDA {
          constexpr Exit exit = list[k];
          leave<exit.kind, exit.reduction, true, exit.dtype, exit.source>(
              own_sums, list[k].varies ? own : values.shared, list[k], nullptr, offset, false);
        });
      };
      (add(width * static_cast<int>(U), sums[U]), ...);
      ((at[Operand] += step[Operand]), ...);
    }
    each_sum([](auto& sum, auto* element) TESSERA_FLATTENED_LAMBDA { store(element, sum); });
  }
  /// The same, if the rows are short. Longer rows would be read in parts, which memory is slower at.
  TESSERA_FLATTENED bool add_short_rows(Values& values) {
    constexpr auto operands = std::make_index_sequence<static_cast<std::size_t>(P::operands)>{};
    if (!same_sums()) return false;
    if (whole_row.size == 4 * width)
      add_adjacent(std::make_index_sequence<4>{}, operands, values);
    else if (whole_row.size == 2 * width)
      add_adjacent(std::make_index_sequence<2>{}, operands, values);
    else if (whole_row.size == width)
      add_adjacent(std::make_index_sequence<1>{}, operands, values);
    else
      return false;
    return true;
  }

  /// Writes the accumulated value of `exit` to its output and resets the accumulator.
  template <Reduction R, DType Type, int Count>
  TESSERA_FLATTENED void finish_accumulation(Values& values, const Exit& exit) {
    add_to_total<R, Type, Count>(values.totals[exit.to], values.sums, exit.to);
    if (targets[exit.slot] != nullptr)
      combine_element<R, Type>(targets[exit.slot], values.totals[exit.to].template get<lanes_of<Type>>());
    clear_total<R, Type>(values.totals[exit.to]);
  }

  /// Longest window of a pass: a reducing pass adds at most sum_run terms to a lane per window.
  template <int Pass> static constexpr std::int64_t longest_window() {
    const std::int64_t run = sum_run * width * P::unroll(Pass);
    return P::reduces(Pass) && run < window_size ? run : window_size;
  }

  /// Adds the lanes of all reductions of a pass to their totals.
  template <int Pass> TESSERA_FLATTENED void collect(Values& values) {
    constexpr const auto& list = schedule.exits[Pass];
    each(std::make_index_sequence<static_cast<std::size_t>(list.size)>{}, [&](auto k) TESSERA_FLATTENED_LAMBDA {
      constexpr Exit exit = list[k];
      if constexpr (exit.reduces)
        add_to_total<exit.reduction, exit.dtype, P::unroll(Pass)>(values.totals[exit.to], values.sums, exit.to);
    });
    values.pending[Pass] = 0;
  }

  /// A window of a pass that reduces: in a padded window, the lanes past the end of the row keep their sums.
  template <int Pass, std::size_t... U, std::size_t... Operand>
  TESSERA_FLATTENED void run_reducing_window(std::index_sequence<U...> lanes, std::index_sequence<Operand...> operands,
                                             Values& values, const Window& window) {
    constexpr const auto& list = schedule.exits[Pass];
    constexpr auto all = std::make_index_sequence<static_cast<std::size_t>(list.size)>{};
    constexpr int count = P::unroll(Pass);
    File saved[count];
    const bool partial = window.size != window.padded;
    if (partial)
      each(all, [&](auto k) TESSERA_FLATTENED_LAMBDA {
        constexpr Exit exit = list[k];
        using T = lanes_of<exit.dtype>;
        if constexpr (exit.reduces)
          for (int u = 0; u < count; ++u) saved[u].template get<T>(exit.to) = values.sums[u].template get<T>(exit.to);
      });
    run_window<Pass>(lanes, operands, values, window);
    if (partial)
      each(all, [&](auto k) TESSERA_FLATTENED_LAMBDA {
        constexpr Exit exit = list[k];
        using T = lanes_of<exit.dtype>;
        if constexpr (exit.reduces)
          for (int u = 0; u < count; ++u) {
            auto& sum = values.sums[u].template get<T>(exit.to);
            sum = select(first_lanes(window.size - u * width), sum, saved[u].template get<T>(exit.to));
          }
      });
  }

  template <int Pass> TESSERA_FLATTENED void run_pass(Values& values) {
    constexpr const auto& list = schedule.exits[Pass];
    constexpr auto all = std::make_index_sequence<static_cast<std::size_t>(list.size)>{};
    constexpr int count = P::unroll(Pass);
    constexpr auto lanes = std::make_index_sequence<static_cast<std::size_t>(count)>{};
    constexpr auto operands = std::make_index_sequence<static_cast<std::size_t>(P::operands)>{};
    if constexpr (P::reduces(Pass))
      each(all, [&](auto k) TESSERA_FLATTENED_LAMBDA {
        constexpr Exit exit = list[k];
        if constexpr (exit.reduces && exit.to < P::fused.instr_count) {
          for (int u = 0; u < count; ++u) clear_lanes<exit.reduction, exit.dtype>(values.sums[u], exit.to);
          clear_total<exit.reduction, exit.dtype>(values.totals[exit.to]);
        } else if constexpr (exit.reduces) {
          std::byte* const target = rows.row[P::inputs + exit.slot];
          if (targets[exit.slot] != target) {
            finish_accumulation<exit.reduction, exit.dtype, count>(values, exit);
            targets[exit.slot] = target;
          }
        }
      });
    if constexpr (!P::carries(Pass)) values.pending[Pass] = 0;
    const WindowWalk windows(rows, P::layout.sizes, P::layout.offsets, buffer, schedule.reads[Pass],
                             schedule.writes[Pass], width * count, longest_window<Pass>());
    Window own;
    Window& window = P::only_elements ? whole_row : own;
    for (std::int64_t begin = call.inner_begin; begin < call.inner_end; begin += window.size) {
      if (!P::only_elements || adjacent == 0) windows.open(window, begin, call.inner_end);
      if constexpr (P::reduces(Pass)) {
        const std::int64_t terms = window.padded / (width * count);
        if (values.pending[Pass] + terms > sum_run) collect<Pass>(values);
        values.pending[Pass] += terms;
        run_reducing_window<Pass>(lanes, operands, values, window);
      } else {
        run_window<Pass>(lanes, operands, values, window);
      }
      windows.close(window);
    }
    if constexpr (P::reduces(Pass))
      each(all, [&](auto k) TESSERA_FLATTENED_LAMBDA {
        constexpr Exit exit = list[k];
        if constexpr (exit.reduces && exit.to < P::fused.instr_count)
          add_to_total<exit.reduction, exit.dtype, count>(values.totals[exit.to], values.sums, exit.to);
      });
  }

  /// Makes the result of each reduction of the pass before a value of the row.
  template <int Stage> TESSERA_FLATTENED void take_reductions(Values& values, std::int64_t row) {
    constexpr const auto& reduces = schedule.reduces[Stage];
    each(std::make_index_sequence<static_cast<std::size_t>(reduces.size)>{}, [&](auto k) TESSERA_FLATTENED_LAMBDA {
      constexpr Exit exit = reduces[k];
      using T = lanes_of<exit.dtype>;
      double* const slot =
          call.row_values == nullptr ? nullptr : call.row_values + exit.slot * call.row_values_stride + row;
      T value;
      if (Stage <= call.phase_begin) {
        value = from_slot<T>(*slot);
      } else {
        value = static_cast<T>(values.totals[exit.to].template get<T>());
        if (slot != nullptr) *slot = to_slot(value);
      }
      values.shared.template get<T>(exit.to) = splat<T>(value);
    });
  }

  /// Stores what a stage computes once per row.
  template <int Stage> TESSERA_FLATTENED void leave_row(Values& values) {
    constexpr const auto& exits = schedule.row_exits[Stage];
    each(std::make_index_sequence<static_cast<std::size_t>(exits.size)>{}, [&](auto k) TESSERA_FLATTENED_LAMBDA {
      constexpr Exit exit = exits[k];
      using T = lanes_of<exit.dtype>;
      std::byte* const at = rows.row[P::inputs + exit.slot];
      const T value = first_lane(convert<T>(values.shared.template get<lanes_of<exit.source>>(exit.instr)));
      if constexpr (exit.kind == StoreKind::row)
        *reinterpret_cast<element_t<exit.dtype>*>(at) = static_cast<element_t<exit.dtype>>(value);
      else
        combine_element<exit.reduction, exit.dtype>(at, value);
    });
  }

  template <int Stage> TESSERA_FLATTENED void run_stage(Values& values, std::int64_t row) {
    if (Stage > call.phase_end) return;
    if constexpr (schedule.reduces[Stage].size > 0) take_reductions<Stage>(values, row);
    if constexpr (schedule.row[Stage].size > 0)
      row_steps<Stage>(std::make_index_sequence<static_cast<std::size_t>(schedule.row[Stage].size)>{}, values.shared,
                       {rows, call});
    [[maybe_unused]] const bool mine = Stage >= call.phase_begin && (Stage < call.phase_end || Stage == phases);
    if constexpr (schedule.row_exits[Stage].size > 0)
      if (mine) leave_row<Stage>(values);
    if constexpr (Stage < phases && schedule.exits[Stage < phases ? Stage : 0].size > 0)
      // A pass that an earlier call ran is repeated if it stores values for later passes: they were in scratch memory.
      if (mine || schedule.saves[Stage]) run_pass<Stage>(values);
  }

  template <int... Stage> TESSERA_FLATTENED void run_rows(std::integer_sequence<int, Stage...>) {
    Values values;
    constexpr const auto& list = schedule.accumulations;
    constexpr auto accumulations = std::make_index_sequence<static_cast<std::size_t>(list.size)>{};
    each(accumulations, [&](auto k) TESSERA_FLATTENED_LAMBDA {
      constexpr Exit exit = list[k];
      for (int u = 0; u < unroll; ++u) clear_lanes<exit.reduction, exit.dtype>(values.sums[u], exit.to);
      clear_total<exit.reduction, exit.dtype>(values.totals[exit.to]);
    });
    uniform_steps(std::make_index_sequence<static_cast<std::size_t>(schedule.uniform.size)>{}, values.shared,
                  {rows, call}, call.uniforms);
    if constexpr (P::only_elements) find_adjacent(call.row_begin);
    for (std::int64_t row = call.row_begin; row < call.row_end; ++row) {
      if constexpr (P::adds_rows)
        if (add_short_rows(values)) {
          row += adjacent - 1;
          adjacent = 1;
          next_row(row);
          continue;
        }
      (run_stage<Stage>(values, row), ...);
      next_row(row);
    }
    each(accumulations, [&](auto k) TESSERA_FLATTENED_LAMBDA {
      constexpr Exit exit = list[k];
      finish_accumulation<exit.reduction, exit.dtype, unroll>(values, exit);
    });
  }
};

}  // namespace detail

/// Runs fused kernel `Table[I]` on a range of rows and columns of one shard.
template <const auto& Table, int I> TESSERA_FLATTEN void fused_kernel(const FusedCall& call) {
  using P = detail::Program<Table, I>;
  if (call.row_begin >= call.row_end) return;
  detail::FusedRun<P> run(call);
  if constexpr (P::schedule.kept_bytes > 0) {
    // One more register per unrolled iteration, since the last window of a row is padded.
    run.kept_capacity = call.inner_end - call.inner_begin + width * P::most_unrolled;
    run.kept = thread_scratch<Scratch::kept_values, std::byte>(static_cast<std::size_t>(run.kept_capacity) *
                                                               P::schedule.kept_bytes);
  }
  run.rows.start(call, P::inputs, P::operands - P::inputs, P::layout.sizes, P::layout.in_row);
  run.run_rows(std::make_integer_sequence<int, P::fused.phases + 1>{});
  if (call.past_caches) finish_stores();
}

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
