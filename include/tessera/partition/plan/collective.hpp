#ifndef TESSERA_PARTITION_PLAN_COLLECTIVE_HPP
#define TESSERA_PARTITION_PLAN_COLLECTIVE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {

/// Kinds of communication. `slice` sends nothing: each device keeps a part of its block. Plans never contain
/// `broadcast`; it exists for the collectives of parallel/.
enum class Collective : std::uint8_t { all_reduce, reduce_scatter, all_gather, all_to_all, permute, slice, broadcast };

inline constexpr Collective all_reduce = Collective::all_reduce;
inline constexpr Collective reduce_scatter = Collective::reduce_scatter;
inline constexpr Collective all_gather = Collective::all_gather;
inline constexpr Collective all_to_all = Collective::all_to_all;

constexpr std::string_view name_of(Collective kind) {
  constexpr std::string_view names[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                        "permute",    "slice",          "broadcast"};
  return names[static_cast<std::size_t>(kind)];
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
