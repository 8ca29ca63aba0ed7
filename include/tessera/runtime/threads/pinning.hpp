#ifndef TESSERA_RUNTIME_THREADS_PINNING_HPP
#define TESSERA_RUNTIME_THREADS_PINNING_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>

#if defined(__linux__)
#include <sched.h>
#endif
#include <tbb/task_arena.h>
#include <tbb/task_scheduler_observer.h>

namespace tessera::runtime {

/// Pins each worker of an arena to one processor, so that its caches and its first-touched memory stay local. Threads
/// of the user, which call loops, are not pinned. Linux only; no effect elsewhere.
class Pinning : public tbb::task_scheduler_observer {
 public:
  explicit Pinning(tbb::task_arena& arena) : tbb::task_scheduler_observer(arena) {
#if defined(__linux__)
    if (::sched_getaffinity(0, sizeof allowed_, &allowed_) != 0) CPU_ZERO(&allowed_);
    observe(true);
#endif
  }
  ~Pinning() override { observe(false); }

#if defined(__linux__)
  void on_scheduler_entry(bool is_worker) override {
    if (is_worker) move_to(place_of(static_cast<std::size_t>(tbb::this_task_arena::current_thread_index())));
  }
  void on_scheduler_exit(bool is_worker) override {
    if (is_worker) move_to(allowed_);
  }

 private:
  cpu_set_t allowed_;  ///< affinity of the constructing thread

  /// The i-th allowed processor, modulo their number.
  cpu_set_t place_of(std::size_t i) const {
    const auto count = static_cast<std::size_t>(CPU_COUNT(&allowed_));
    cpu_set_t place;
    CPU_ZERO(&place);
    if (count == 0) return allowed_;
    i %= count;
    for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &allowed_) && i-- == 0) {
        CPU_SET(cpu, &place);
        break;
      }
    return place;
  }
  /// Ignores failure: pinning affects only speed.
  static void move_to(const cpu_set_t& place) {
    if (CPU_COUNT(&place) > 0) (void)::sched_setaffinity(0, sizeof place, &place);
  }
#endif
};

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
