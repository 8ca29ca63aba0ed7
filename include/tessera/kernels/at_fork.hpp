#ifndef TESSERA_KERNELS_AT_FORK_HPP
#define TESSERA_KERNELS_AT_FORK_HPP
#include <tessera/base/push_macros.hpp>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace tessera::detail {

/// Calls functions before each fork, and after it in the parent and in the child; null is no function. Where the system
/// has no fork, it does nothing.
inline void at_fork([[maybe_unused]] void (*before)(), [[maybe_unused]] void (*in_parent)(),
                    [[maybe_unused]] void (*in_child)()) {
#if defined(__unix__) || defined(__APPLE__)
  ::pthread_atfork(before, in_parent, in_child);
#endif
}

/// Acquires the mutex that `Lock` returns before each fork and releases it after, so that no other thread holds it at
/// the fork and the child finds it unlocked. Call once per mutex.
template <auto Lock> void hold_at_fork() {
  at_fork([] { Lock().lock(); }, [] { Lock().unlock(); }, [] { Lock().unlock(); });
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
