#ifndef TESSERA_RUNTIME_MEMORY_PAST_CACHES_HPP
#define TESSERA_RUNTIME_MEMORY_PAST_CACHES_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>

#include <tessera/kernels/cpu.hpp>
#include <tessera/runtime/threads/team.hpp>

namespace tessera::runtime {

/// Results of at least this many bytes are written with non-temporal stores: a plain store first reads the cache line
/// from memory, which costs more than reading the result from memory later: docs/decisions/0007.
inline std::int64_t past_caches_from() {
  constexpr std::int64_t most = std::int64_t{32} << 20;
  return std::min(most, 3 * kernels::detail::second_level_cache() * parallelism());
}

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
