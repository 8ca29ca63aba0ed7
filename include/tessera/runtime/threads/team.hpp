#ifndef TESSERA_RUNTIME_THREADS_TEAM_HPP
#define TESSERA_RUNTIME_THREADS_TEAM_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tessera/base/compiled.hpp>
#include <tessera/base/error.hpp>
#include <tessera/runtime/threads/function_ref.hpp>
// With tessera::compiled, only its own sources include TBB.
#if TESSERA_HAS_DEFINITIONS
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include <tessera/runtime/threads/arenas.hpp>
#endif

namespace tessera {

/// Estimated time of one loop item on one thread. An error of a factor of two is harmless.
struct Cost {
  double nanoseconds = 0;

  /// Cost of reading or writing `count` bytes in total, at 20 bytes per ns.
  static constexpr Cost bytes(double count) { return {count / 20}; }
  /// Cost of `count` floating-point operations, at 50 per ns.
  static constexpr Cost flops(double count) { return {count / 50}; }
  friend constexpr Cost operator+(Cost a, Cost b) { return {a.nanoseconds + b.nanoseconds}; }
};

namespace runtime {

/// Loops shorter than this run on the calling thread: starting a task takes up to 2 us, waking a thread more.
inline constexpr double inline_nanoseconds = 10'000;
/// Target duration of a task: long compared with the 0.2 us to schedule it, short compared with a loop.
inline constexpr double task_nanoseconds = 5'000;

/// Calls `body(begin, end)` over [0, items), in ranges of at least `grain`. Not a template, so that TBB's loop is
/// instantiated once.
TESSERA_ONCE void run_ranges(std::int64_t items, std::int64_t grain,
                             FunctionRef<void(std::int64_t, std::int64_t)> body);
#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE void run_ranges(std::int64_t items, std::int64_t grain,
                             FunctionRef<void(std::int64_t, std::int64_t)> body) {
  Arenas& arenas = Arenas::instance();
  if (arenas.size() == 1 || items <= grain) return body(0, items);
  // Isolated: a thread that waits here runs no task of another loop, which would overwrite its scratch or need its
  // locks.
  arenas.arena().execute([&] {
    tbb::this_task_arena::isolate([&] {
      tbb::parallel_for(tbb::blocked_range<std::int64_t>(0, items, static_cast<std::size_t>(grain)),
                        [&](const tbb::blocked_range<std::int64_t>& range) { body(range.begin(), range.end()); });
    });
  });
}
#endif

inline std::int64_t grain_of(std::int64_t items, Cost each) {
  if (each.nanoseconds * static_cast<double>(items) <= inline_nanoseconds) return items;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(task_nanoseconds / each.nanoseconds));
}

}  // namespace runtime

/// Threads that loops may use, including the calling thread. Default: the processors that the process may run on.
TESSERA_ONCE int parallelism();

/// Limit of set_parallelism(): TBB allocates memory per thread of the limit, whether the thread runs or not.
inline constexpr int max_parallelism = 4096;

/// Sets the number of threads of later loops. Errors: errc::option when below 1 or above max_parallelism.
TESSERA_ONCE void set_parallelism(int threads);

/// Pins each worker thread to a processor of its own. Faster if no other process uses these processors, slower
/// otherwise. The calling thread is not pinned. Linux only; no effect elsewhere.
TESSERA_ONCE void pin_workers();

#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE int parallelism() { return runtime::Arenas::instance().size(); }
TESSERA_ONCE void set_parallelism(int threads) {
  if (threads < 1) fail(errc::option, "[parallelism] threads: ", threads, " is below 1");
  if (threads > max_parallelism) fail(errc::option, "[parallelism] threads: ", threads, " is above ", max_parallelism);
  runtime::Arenas::instance().resize(threads);
}
TESSERA_ONCE void pin_workers() { runtime::Arenas::instance().pin(); }
#endif

/// Divides [0, items) into ranges, calls `f(begin, end)` on them in parallel, and returns when all are done. Ranges may
/// run on any thread in any order, so a range must not wait for another. The first exception is rethrown, and ranges
/// that have not begun are skipped. Loops may be nested.
template <class F>
  requires std::is_invocable_v<F&, std::int64_t, std::int64_t>
void parallel_ranges(std::int64_t items, Cost each, F&& f) {
  if (items > 0) runtime::run_ranges(items, runtime::grain_of(items, each), f);
}

/// Calls `f(i)` for i in [0, items) in parallel, as parallel_ranges. `each`: the cost of one item.
template <class F>
  requires std::is_invocable_v<F&, std::int64_t>
void parallel_for(std::int64_t items, Cost each, F&& f) {
  parallel_ranges(items, each, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) f(i);
  });
}

/// Calls `f(i)` for i in [0, items) in parallel, each item in a task of its own.
template <class F>
  requires std::is_invocable_v<F&, std::int64_t>
void parallel_for(std::int64_t items, F&& f) {
  parallel_for(items, Cost{runtime::inline_nanoseconds}, f);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
