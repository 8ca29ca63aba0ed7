#ifndef TESSERA_TENSOR_ANNOTATION_HPP
#define TESSERA_TENSOR_ANNOTATION_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/tensor/local_shards.hpp>
#include <tessera/tensor/local_tensor.hpp>
#include <tessera/tensor/reshard.hpp>

namespace tessera {

/// Shards a replicated tensor in place and returns it, as mark_sharding of PyTorch/XLA does. A tensor that already has
/// this sharding is returned unchanged. To change the sharding of a split tensor, call ts::clear_sharding first, or use
/// ts::reshard. Errors: `annotation` for a tensor that is split in another way; those of `resolve`.
/// Communication: none on the same mesh, because each device keeps a slice of its replica.
///
///     ts::mark_sharding(x, mesh, {"data", ts::none});   // [B, D] -> [B/data, D]
template <class T, int Rank>
ShardedTensor<T, Rank>& mark_sharding(ShardedTensor<T, Rank>& x, const Mesh& mesh, const PartitionSpec& spec,
                                      Here at = Here::current()) {
  const TensorStorage& storage = storage_of(x);
  const Sharding wanted = detail::resolve_at("mark_sharding", spec, mesh, Rank, at);
  if (storage.mesh() == mesh && storage.sharding() == wanted) return x;
  const bool alike = storage.mesh() == mesh && storage.placement() == canonical(wanted, mesh);
  if (!alike && !storage.placement().is_replicated())
    fail(errc::annotation, "[mark_sharding] existing annotation must be cleared first: ", sharded_type_text(storage),
         " on ", storage.mesh().text(), " to ", spec.text(), " on ", mesh.text(), Source::from(at));
  x = reshard(x, mesh, spec, at);
  return x;
}
template <class T, int Rank>
ShardedTensor<T, Rank>& mark_sharding(ShardedTensor<T, Rank>& x, const PartitionSpec& spec, Here at = Here::current()) {
  const Mesh mesh = storage_of(x).mesh();
  return mark_sharding(x, mesh, spec, at);
}

/// Replicates a tensor on its mesh, in place, and returns it. Communication: all_gathers; none if it is already
/// replicated.
template <class T, int Rank>
ShardedTensor<T, Rank>& clear_sharding(ShardedTensor<T, Rank>& x, Here at = Here::current()) {
  x = reshard(x, PartitionSpec{}, at);
  return x;
}

/// The shards of a tensor as a LocalTensor, a separate array on each device, for code that computes per device.
/// Communication: none; nothing is copied. Errors: `annotation` for a replicated tensor. Source: PyTorch/XLA
/// enable_manual_sharding.
template <class T, int Rank>
LocalTensor<T, Rank> enable_manual_sharding(const ShardedTensor<T, Rank>& x, Here at = Here::current()) {
  const TensorStorage& storage = storage_of(x);
  if (storage.sharding().is_replicated())
    fail(errc::annotation, "[enable_manual_sharding] sharded tensor: ", sharded_type_text(storage), " is replicated",
         Source::from(at));
  return local_tensor(x);
}

/// Makes a tensor of shape `full_shape`, sharded by `spec`, from the arrays of all devices: the inverse of
/// enable_manual_sharding. Arrays of devices that hold the same shard must be bitwise equal. Errors: `host_data` for an
/// array that does not have the shape of its shard, and for replicas that differ. Communication: none.
template <class T, int Rank>
ShardedTensor<T, Rank> disable_manual_sharding(const LocalTensor<T, Rank>& x, const PartitionSpec& spec,
                                               const Shape& full_shape, Here at = Here::current()) {
  detail::check_shape("disable_manual_sharding", dtype_v<T>, full_shape, Rank, at);
  const Sharding sharding = detail::resolve_at("disable_manual_sharding", spec, x.mesh(), Rank, at);
  std::vector<LocalShard<T, Rank>> shards;
  for (int device = 0; device < x.size(); ++device) {
    const Box box = shard_box(full_shape, sharding, x.mesh(), x.mesh().coordinates_of(device));
    if (!(extents(box) == x.shape(device)))
      fail(errc::host_data, "[disable_manual_sharding] shape on device ", device, ": the local array is ",
           shape_text(dtype_v<T>, x.shape(device)), ", but the shard ", text(box), " of ",
           shape_text(dtype_v<T>, full_shape), text(sharding, x.mesh()), " is ", shape_text(dtype_v<T>, extents(box)),
           Source::from(at));
    shards.push_back({device, 0, box, x.values(device)});
  }
  return from_local_shards(x.mesh(), spec, full_shape, shards, at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
