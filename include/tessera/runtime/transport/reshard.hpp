#ifndef TESSERA_RUNTIME_TRANSPORT_RESHARD_HPP
#define TESSERA_RUNTIME_TRANSPORT_RESHARD_HPP
#include <tessera/base/push_macros.hpp>

#include <span>

#include <tessera/base/compiled.hpp>
#include <tessera/base/dtype.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/kernels/strides.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/runtime/transport/holders.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <tessera/runtime/transport/transport.hpp>
#endif

namespace tessera::runtime {

/// One shard in memory: `data` is the address of the element at `box.begin`, `strides` are in elements.
struct ShardRef {
  void* data = nullptr;
  Box box;
  kernels::Strides strides;
  Holders held_by{};
};

/// A contiguous row-major shard.
inline ShardRef shard_ref(void* data, const Box& box, const Holders& held_by = {}) {
  return {data, box, kernels::contiguous_strides(extents(box)), held_by};
}

/// Copies the sources' elements into each destination shard. With `partials` > 1, `source` lists that many consecutive
/// shards of equal box, which `reduce` combines in that order. To repeat a redistribution, keep a ReshardPlan instead.
TESSERA_ONCE void reshard(DType type, Reduction reduction, std::span<const ShardRef> destination,
                          std::span<const ShardRef> source, int partials = 1,
                          kernels::ReduceFunction reduce = &kernels::no_reduction);
#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE void reshard(DType type, Reduction reduction, std::span<const ShardRef> destination,
                          std::span<const ShardRef> source, int partials, kernels::ReduceFunction reduce) {
  ReshardPlan plan(type, reduction, reduce);
  Growable<int> to, from;
  Growable<void*> to_data;
  Growable<const void*> from_data;
  for (const ShardRef& shard : destination) {
    to.push_back(plan.add_destination(shard.box, shard.strides, shard.held_by));
    to_data.push_back(shard.data);
  }
  for (const ShardRef& shard : source) {
    from.push_back(plan.add_source(shard.box, shard.strides, shard.held_by));
    from_data.push_back(shard.data);
  }
  plan.fill(to, from, partials);
  Transport::current().move(plan, to_data, from_data);
}
#endif

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
