#ifndef TESSERA_RUNTIME_THREADS_TEAM_HPP
#define TESSERA_RUNTIME_THREADS_TEAM_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <tessera/base/error.hpp>
#include <tessera/runtime/threads/at_fork.hpp>
#include <tessera/runtime/threads/pinning.hpp>

namespace tessera {

/// About what one item of a loop costs, in nanoseconds of one thread. A factor of two off does no harm.
struct Cost {
  double nanoseconds = 0;

  /// Of moving bytes through memory, reads and writes together.
  static constexpr Cost bytes(double count) { return {count / 20}; }
  /// Of arithmetic at the speed of a decent kernel.
  static constexpr Cost flops(double count) { return {count / 50}; }
  friend constexpr Cost operator+(Cost a, Cost b) { return {a.nanoseconds + b.nanoseconds}; }
};

namespace runtime {

/// A function by reference, for the length of a call. Without <functional>, and never owning.
template <class Signature> class FunctionRef;

template <class R, class... Args> class FunctionRef<R(Args...)> {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<R, F&, Args...>)
  FunctionRef(F&& f)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}
  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

/// The threads that run loops: one TBB arena for each value of parallelism that was ever set.
class Team {
 public:
  static Team& instance() {
    static Team& team = *new Team;  // never destroyed: static destructors may still run loops
    return team;
  }

  int size() const noexcept { return size_.load(std::memory_order_acquire); }
  tbb::task_arena& arena() noexcept { return *arena_.load(std::memory_order_acquire); }

  void resize(int threads) {
    const std::lock_guard lock(mutex_);
    if (threads > allowed_) {
      // Of two controls the smaller one holds, so the old one goes first.
      control_.reset();
      control_ = std::make_unique<tbb::global_control>(tbb::global_control::max_allowed_parallelism,
                                                       static_cast<std::size_t>(threads));
      allowed_ = threads;
    }
    // Arenas are kept: a loop on another thread may be running in one.
    auto at = std::find_if(arenas_.begin(), arenas_.end(),
                           [&](const auto& arena) { return arena->max_concurrency() == threads; });
    if (at == arenas_.end()) at = arenas_.insert(at, std::make_unique<tbb::task_arena>(threads));
    arena_.store(at->get(), std::memory_order_release);
    size_.store(threads, std::memory_order_release);
    if (pinning_) pinning_ = std::make_unique<Pinning>(arena());
  }

  void pin() {
    const std::lock_guard lock(mutex_);
    if (!pinning_) pinning_ = std::make_unique<Pinning>(arena());
  }

 private:
  Team() : allowed_(tbb::info::default_concurrency()) {
    resize(allowed_);
    hold_at_fork<[]() -> std::mutex& { return instance().mutex_; }>();
    // The child has none of the workers, and TBB's own locks may be held in it for good: loops run without TBB there.
    ::pthread_atfork(nullptr, nullptr, [] { instance().size_.store(1, std::memory_order_release); });
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<tbb::task_arena>> arenas_;
  std::unique_ptr<tbb::global_control> control_;
  std::unique_ptr<Pinning> pinning_;
  int allowed_;
  std::atomic<tbb::task_arena*> arena_{nullptr};
  std::atomic<int> size_{0};
};

/// Below this a second thread costs more than it saves: a task takes up to 2 us, waking a thread more.
inline constexpr double inline_nanoseconds = 10'000;
/// Aimed at for one task: long against the 0.2 us that scheduling it takes, short against a loop.
inline constexpr double task_nanoseconds = 5'000;

/// The one place where TBB is instantiated: `body(begin, end)` over [0, items), in ranges of at least `grain`.
inline void run_ranges(std::int64_t items, std::int64_t grain, FunctionRef<void(std::int64_t, std::int64_t)> body) {
  Team& team = Team::instance();
  if (team.size() == 1 || items <= grain) return body(0, items);
  // Isolated: a thread that waits here takes no task of another loop, so what it holds (scratch, locks) stays its own.
  team.arena().execute([&] {
    tbb::this_task_arena::isolate([&] {
      tbb::parallel_for(tbb::blocked_range<std::int64_t>(0, items, static_cast<std::size_t>(grain)),
                        [&](const tbb::blocked_range<std::int64_t>& range) { body(range.begin(), range.end()); });
    });
  });
}

inline std::int64_t grain_of(std::int64_t items, Cost each) {
  if (each.nanoseconds * static_cast<double>(items) <= inline_nanoseconds) return items;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(task_nanoseconds / each.nanoseconds));
}

}  // namespace runtime

/// Threads that loops may use, the calling one included. At the start: the processors this process may run on.
inline int parallelism() { return runtime::Team::instance().size(); }

/// Most threads of loops: TBB takes memory for as many as are named, whether they run or not.
inline constexpr int max_parallelism = 4096;

/// Sets the threads of loops that begin from now on. Errors: errc::option when below 1 or above max_parallelism.
inline void set_parallelism(int threads) {
  if (threads < 1) fail(errc::option, "[parallelism] threads: ", threads, " is below 1");
  if (threads > max_parallelism) fail(errc::option, "[parallelism] threads: ", threads, " is above ", max_parallelism);
  runtime::Team::instance().resize(threads);
}

/// Keeps each worker thread of loops on a processor of its own from now on. It pays where a process has its processors
/// to itself, and costs where others use them too. The calling thread stays free. Linux only; no effect elsewhere.
inline void pin_workers() { runtime::Team::instance().pin(); }

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

/// Calls `f(i)` for i in [0, items), in parallel. Every item is taken to be worth a task of its own.
template <class F>
  requires std::is_invocable_v<F&, std::int64_t>
void parallel_for(std::int64_t items, F&& f) {
  parallel_for(items, Cost{runtime::inline_nanoseconds}, f);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
