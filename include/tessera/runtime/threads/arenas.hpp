#ifndef TESSERA_RUNTIME_THREADS_ARENAS_HPP
#define TESSERA_RUNTIME_THREADS_ARENAS_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>

#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/task_arena.h>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/kernels/at_fork.hpp>
#include <tessera/kernels/made_once.hpp>
#include <tessera/runtime/threads/pinning.hpp>

namespace tessera::runtime {

/// The threads that run loops: one TBB arena for each value of parallelism that was ever set.
class Arenas {
 public:
  static Arenas& instance() {
    static constinit tessera::detail::MadeOnce<Arenas> arenas;
    return arenas.get([] { return new Arenas; });
  }

  int size() const noexcept { return size_.load(std::memory_order_acquire); }
  tbb::task_arena& arena() noexcept { return *arena_.load(std::memory_order_acquire); }

  TESSERA_PLANNING void resize(int threads) {
    const std::lock_guard lock(mutex_);
    if (threads > allowed_) {
      // TBB applies the smaller of two controls, so the old control must be destroyed first.
      control_.reset();
      control_ = std::make_unique<tbb::global_control>(tbb::global_control::max_allowed_parallelism,
                                                       static_cast<std::size_t>(threads));
      allowed_ = threads;
    }
    // Arenas are never removed: a loop of another thread may still run in an old arena.
    auto at = std::find_if(arenas_.begin(), arenas_.end(),
                           [&](const auto& arena) { return arena->max_concurrency() == threads; });
    if (at == arenas_.end()) {
      arenas_.push_back(std::make_unique<tbb::task_arena>(threads));
      at = &arenas_.back();
    }
    arena_.store(at->get(), std::memory_order_release);
    size_.store(threads, std::memory_order_release);
    if (pinning_) pinning_ = std::make_unique<Pinning>(arena());
  }

  void pin() {
    const std::lock_guard lock(mutex_);
    if (!pinning_) pinning_ = std::make_unique<Pinning>(arena());
  }

 private:
  Arenas() : allowed_(tbb::info::default_concurrency()) {
    resize(allowed_);
    // TBB reads its limit of threads without a lock when the first arena starts: do so before another thread sets it.
    arena().initialize();
    tessera::detail::hold_at_fork<[]() -> std::mutex& { return instance().mutex_; }>();
    // A forked child has no worker threads, and TBB's locks may stay locked there: its loops run without TBB.
    tessera::detail::at_fork(nullptr, nullptr, [] { instance().size_.store(1, std::memory_order_release); });
  }

  std::mutex mutex_;
  Growable<std::unique_ptr<tbb::task_arena>> arenas_;
  std::unique_ptr<tbb::global_control> control_;
  std::unique_ptr<Pinning> pinning_;
  int allowed_;
  std::atomic<tbb::task_arena*> arena_{nullptr};
  std::atomic<int> size_{0};
};

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
