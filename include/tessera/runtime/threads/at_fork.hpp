#ifndef TESSERA_RUNTIME_THREADS_AT_FORK_HPP
#define TESSERA_RUNTIME_THREADS_AT_FORK_HPP
#include <tessera/base/push_macros.hpp>

#include <pthread.h>

namespace tessera::runtime {

/// Acquires the mutex that `Lock` returns before each fork and releases it after, so that no other thread holds it at
/// the fork and the child finds it unlocked. Call once per mutex.
template <auto Lock> void hold_at_fork() {
  ::pthread_atfork([] { Lock().lock(); }, [] { Lock().unlock(); }, [] { Lock().unlock(); });
}

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
