#ifndef TESSERA_RUNTIME_THREADS_TEAM_HPP
#define TESSERA_RUNTIME_THREADS_TEAM_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tessera/base/compiled.hpp>
#include <tessera/base/error.hpp>
#include <tessera/runtime/threads/function_ref.hpp>
// TBB is seen where loops are compiled alone.
#if TESSERA_HAS_DEFINITIONS
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include <tessera/runtime/threads/arenas.hpp>
#endif

namespace tessera {

/// Estimated cost of one loop item in nanoseconds of one thread. An error of a factor of two is harmless.
struct Cost {
  double nanoseconds = 0;

  /// Of moving bytes through memory, reads and writes together.
  static constexpr Cost bytes(double count) { return {count / 20}; }
  /// Of arithmetic at the speed of a decent kernel.
  static constexpr Cost flops(double count) { return {count / 50}; }
  friend constexpr Cost operator+(Cost a, Cost b) { return {a.nanoseconds + b.nanoseconds}; }
};

namespace runtime {

/// Below this a second thread costs more than it saves: a task takes up to 2 us, waking a thread more.
inline constexpr double inline_nanoseconds = 10'000;
/// Aimed at for one task: long against the 0.2 us that scheduling it takes, short against a loop.
inline constexpr double task_nanoseconds = 5'000;

/// The one place where TBB is instantiated: `body(begin, end)` over [0, items), in ranges of at least `grain`.
TESSERA_ONCE void run_ranges(std::int64_t items, std::int64_t grain,
                             FunctionRef<void(std::int64_t, std::int64_t)> body);
#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE void run_ranges(std::int64_t items, std::int64_t grain,
                             FunctionRef<void(std::int64_t, std::int64_t)> body) {
  Arenas& arenas = Arenas::instance();
  if (arenas.size() == 1 || items <= grain) return body(0, items);
  // Isolated: a thread that waits here takes no task of another loop, so what it holds (scratch, locks) stays its own.
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

/// Threads that loops may use, the calling one included. At the start: the processors this process may run on.
TESSERA_ONCE int parallelism();

/// Most threads of loops: TBB takes memory for as many as are named, whether they run or not.
inline constexpr int max_parallelism = 4096;

/// Sets the threads of loops that begin from now on. Errors: errc::option when below 1 or above max_parallelism.
TESSERA_ONCE void set_parallelism(int threads);

/// Keeps each worker thread of loops on a processor of its own from now on. It pays where a process has its processors
/// to itself, and costs where others use them too. The calling thread stays free. Linux only; no effect elsewhere.
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

/// Calls `f(begin, end)` on ranges that make up [0, items), in parallel, and returns when all are done. Nothing is
/// promised about which thread runs what, so one range must never wait for another. The first exception reaches the
/// caller; ranges that had not begun are dropped. Loops may be nested.
template <class F>
  requires std::is_invocable_v<F&, std::int64_t, std::int64_t>
void parallel_ranges(std::int64_t items, Cost each, F&& f) {
  if (items > 0) runtime::run_ranges(items, runtime::grain_of(items, each), f);
}

/// Calls `f(i)` for i in [0, items), in parallel. As parallel_ranges, for items that cost `each`.
template <class F>
  requires std::is_invocable_v<F&, std::int64_t>
void parallel_for(std::int64_t items, Cost each, F&& f) {
  parallel_ranges(items, each, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) f(i);
  });
}

/// Calls `f(i)` for i in [0, items), in parallel. Assumes that each item is expensive enough for a task of its own.
template <class F>
  requires std::is_invocable_v<F&, std::int64_t>
void parallel_for(std::int64_t items, F&& f) {
  parallel_for(items, Cost{runtime::inline_nanoseconds}, f);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
