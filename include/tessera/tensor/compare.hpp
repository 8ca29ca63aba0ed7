#ifndef TESSERA_TENSOR_COMPARE_HPP
#define TESSERA_TENSOR_COMPARE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/integers/hash.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/runtime/memory/storage.hpp>
#include <tessera/runtime/transport/communicator.hpp>
#include <tessera/tensor/reshard.hpp>

namespace tessera {

/// Whether two tensors have the same element type, shape, mesh and sharding.
template <class T, int Rank, class U, int OtherRank>
bool same_sharded_type(const ShardedTensor<T, Rank>& x, const ShardedTensor<U, OtherRank>& y) {
  const TensorStorage &a = storage_of(x), &b = storage_of(y);
  return a.dtype() == b.dtype() && a.shape() == b.shape() && a.mesh() == b.mesh() && a.placement() == b.placement();
}

/// A hash of element type, shape, mesh and sharding, but not of the elements. Use it as a key of a cache.
template <class T, int Rank> std::uint64_t sharded_type_hash(const ShardedTensor<T, Rank>& x) {
  const TensorStorage& storage = storage_of(x);
  std::uint64_t hash = hash_mix(storage.mesh().hash(), static_cast<std::uint64_t>(storage.dtype()));
  for (const std::int64_t extent : storage.shape()) hash = hash_mix(hash, static_cast<std::uint64_t>(extent));
  return hash_mix(hash, storage.placement().hash());
}

/// Whether two tensors have the same shape and equal elements, as torch.equal: NaN differs from NaN, and 0 equals -0.
/// Their shardings may differ. (`ts::equal` compares element by element and returns a tensor.)
/// Communication: none if the shardings are equal; otherwise y is resharded to the sharding of x. With several
/// processes, all must call this function, and all get the same result.
template <class T, int Rank> bool all_equal(const ShardedTensor<T, Rank>& x, const ShardedTensor<T, Rank>& y) {
  const TensorStorage& a = storage_of(x);
  if (!(a.shape() == storage_of(y).shape())) return false;
  const ShardedTensor<T, Rank> alike =
      same_sharded_type(x, y) ? y : reshard(y, a.mesh(), spec_of(a.sharding(), a.mesh()));
  const TensorStorage& b = storage_of(alike);
  if (&a == &b && !is_floating_v<T> && !is_float8_v<T>) return true;
  bool same = true;
  for (int shard = 0; shard < a.shard_count() && same; ++shard) {
    if (!a.holds(shard)) continue;
    const auto *p = static_cast<const T*>(a.data(shard)), *q = static_cast<const T*>(b.data(shard));
    const std::int64_t count = volume(extents(a.box(shard)));
    for (std::int64_t i = 0; i < count && same; ++i) same = p[i] == q[i];
  }
  return spans_processes(a.mesh()) ? runtime::all_processes(same) : same;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
