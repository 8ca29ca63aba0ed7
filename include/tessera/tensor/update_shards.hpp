#ifndef TESSERA_TENSOR_UPDATE_SHARDS_HPP
#define TESSERA_TENSOR_UPDATE_SHARDS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstring>
#include <span>

#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/runtime/memory/storage.hpp>
#include <tessera/tensor/local_shards.hpp>
#include <tessera/tensor/storage/storage_of.hpp>

namespace tessera {

/// Writes to a tensor in place: calls f(box, values) for each distinct shard of this process, where `values` is a span
/// of its row-major elements. Copies of the tensor keep their values: shared memory is copied before it is written.
///
///     ts::update_shards(x, [](const ts::Box& box, std::span<float> values) { ... });
template <class T, int Rank, class F> void update_shards(ShardedTensor<T, Rank>& x, F&& f) {
  const TensorStorage& from = storage_of(x);
  if (!from.unique()) {
    const StoragePtr copy(new TensorStorage(from.mesh(), from.dtype(), from.shape(), from.sharding()));
    for (int shard = 0; shard < from.shard_count(); ++shard)
      if (const std::int64_t count = volume(extents(from.box(shard))); count > 0 && from.holds(shard))
        std::memcpy(copy->data(shard), from.data(shard), static_cast<std::size_t>(count) * sizeof(T));
    x = tensor_of<T, Rank>(copy);
  }
  auto& storage = static_cast<TensorStorage&>(*x.storage());
  for (int shard = 0; shard < storage.shard_count(); ++shard) {
    if (!storage.holds(shard)) continue;
    const Box& box = storage.box(shard);
    f(box, std::span<T>(static_cast<T*>(storage.data(shard)), static_cast<std::size_t>(volume(extents(box)))));
  }
}

/// Replaces the elements of a tensor by one shard per device, in any order, as local_shards returns them. The sharding
/// does not change; copies of the tensor keep their values. Errors: `host_data` for a device without a shard or with
/// two, for a wrong size or box, for unequal replicas.
template <class T, int Rank, class Shards>
void load_local_shards(ShardedTensor<T, Rank>& x, const Shards& shards, Here at = Here::current()) {
  const TensorStorage& storage = detail::storage_of("load_local_shards", x, at);
  x = from_local_shards(storage.mesh(), spec_of(storage.sharding(), storage.mesh()), storage.shape(), shards, at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
