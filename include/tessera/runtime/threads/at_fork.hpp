#ifndef TESSERA_RUNTIME_THREADS_AT_FORK_HPP
#define TESSERA_RUNTIME_THREADS_AT_FORK_HPP
#include <tessera/base/push_macros.hpp>

#include <pthread.h>

namespace tessera::runtime {

/// A lock that no other thread has at the moment when the process forks, so that the child finds it free. `Lock` gives
/// it; call this once for each.
template <auto Lock> void hold_at_fork() {
  ::pthread_atfork([] { Lock().lock(); }, [] { Lock().unlock(); }, [] { Lock().unlock(); });
}

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
