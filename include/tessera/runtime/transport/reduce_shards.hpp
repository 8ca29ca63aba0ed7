#ifndef TESSERA_RUNTIME_TRANSPORT_REDUCE_SHARDS_HPP
#define TESSERA_RUNTIME_TRANSPORT_REDUCE_SHARDS_HPP
#include <tessera/base/push_macros.hpp>

#include <span>

#include <tessera/base/compiled.hpp>
#include <tessera/base/dtype.hpp>
#include <tessera/base/monoid.hpp>
#include <tessera/runtime/transport/reshard.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <tessera/kernels/strided.hpp>
#endif

namespace tessera::runtime {

/// reshard() with the reduction instantiated for all element types that combine. A header of its own, since
/// header-only units that include it compile these reductions, whether they call it or not.
TESSERA_ONCE void reduce_shards(DType type, Reduction reduction, std::span<const ShardRef> destination,
                                std::span<const ShardRef> source, int partials);
#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE void reduce_shards(DType type, Reduction reduction, std::span<const ShardRef> destination,
                                std::span<const ShardRef> source, int partials) {
  reshard(type, reduction, destination, source, partials, &kernels::strided_reduce<>);
}
#endif

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
