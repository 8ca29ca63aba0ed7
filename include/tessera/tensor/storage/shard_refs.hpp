#ifndef TESSERA_TENSOR_STORAGE_SHARD_REFS_HPP
#define TESSERA_TENSOR_STORAGE_SHARD_REFS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/growable.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/mesh/sub_axes.hpp>
#include <tessera/runtime/memory/storage.hpp>
#include <tessera/runtime/transport/reshard.hpp>

namespace tessera::detail {

inline Growable<runtime::ShardRef> shard_refs(const TensorStorage& x, const AxisCuts& cuts);

/// The shards of a tensor in memory, for copies to and from the host, where it matters which process holds which, but
/// not which device.
inline Growable<runtime::ShardRef> shard_refs(const TensorStorage& x) {
  Growable<runtime::ShardRef> shards;
  if (spans_processes(x.mesh())) return shard_refs(x, x.sharding().cuts);
  for (int shard = 0; shard < x.shard_count(); ++shard)
    shards.push_back(runtime::shard_ref(const_cast<void*>(x.data(shard)), x.box(shard)));
  return shards;
}
/// The shards of a tensor with the devices that hold each, as coordinates on the mesh refined by `cuts`. These include
/// the cuts of the tensor's sharding.
inline Growable<runtime::ShardRef> shard_refs(const TensorStorage& x, const AxisCuts& cuts) {
  Growable<runtime::ShardRef> shards;
  const Mesh refined = refined_mesh(x.mesh(), cuts);
  const Sharding sharding = refined_sharding(x.sharding(), x.mesh(), cuts);
  const ShardGrid grid(refined, sharding);
  for (int shard = 0; shard < x.shard_count(); ++shard)
    shards.push_back(runtime::shard_ref(const_cast<void*>(x.data(shard)), x.box(shard),
                                        runtime::Holders(refined, sharding.used_axes(), grid.coordinates(shard))));
  return shards;
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
