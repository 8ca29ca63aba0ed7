#ifndef TESSERA_KERNELS_MADE_ONCE_HPP
#define TESSERA_KERNELS_MADE_ONCE_HPP
#include <tessera/base/push_macros.hpp>

#include <atomic>
#include <mutex>

#include <tessera/kernels/at_fork.hpp>

namespace tessera::detail {

/// While a Making exists, no other thread makes the object of a MadeOnce, and no thread forks. They nest.
class Making {
 public:
  Making() {
    if (depth++ == 0) mutex.lock();
  }
  ~Making() {
    if (--depth == 0) mutex.unlock();
  }
  Making(const Making&) = delete;
  Making& operator=(const Making&) = delete;

 private:
  static inline constinit std::mutex mutex;
  static inline constinit thread_local int depth = 0;
  // Registered before main, and thus before all other locks that forks acquire: these are acquired first. So while an
  // object is made, its thread must not wait for another such lock.
  static inline const bool forks_wait = (hold_at_fork<[]() -> std::mutex& { return mutex; }>(), true);
};

/// An object that a process makes at its first use and never destroys, since destructors of static objects may still
/// use it. A static variable in a function would do, but for forks: if a thread is initializing it at a fork, the
/// child waits for that thread, which it does not have. A fork waits until the object of a MadeOnce is made.
///
///     static constinit MadeOnce<Cache> cache;
///     return cache.get([] { return new Cache; });
template <class T> class MadeOnce {
 public:
  template <class Make> T& get(const Make& make) {
    if (T* const made = made_.load(std::memory_order_acquire)) [[likely]]
      return *made;
    const Making making;
    T* made = made_.load(std::memory_order_relaxed);
    if (made == nullptr) made_.store(made = make(), std::memory_order_release);
    return *made;
  }

 private:
  std::atomic<T*> made_{nullptr};
};

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
