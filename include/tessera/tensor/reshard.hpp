#ifndef TESSERA_TENSOR_RESHARD_HPP
#define TESSERA_TENSOR_RESHARD_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <vector>

#include <tessera/base/compiled.hpp>
#include <tessera/base/here.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/partition/plan/planned_mesh.hpp>
#include <tessera/partition/reshard/least_cost_path.hpp>
#include <tessera/runtime/memory/storage.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/tensor/storage/allocate.hpp>
#include <tessera/tensor/storage/shard_refs.hpp>
#include <tessera/tensor/storage/storage_of.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <tessera/runtime/executor/profile_hook.hpp>
#endif

namespace tessera {

namespace detail {

/// Copies a tensor into shards of another sharding, on any mesh. Copies to another mesh are not counted.
TESSERA_ONCE void copy_shards(const TensorStorage& from, TensorStorage& to, Here at);
/// Whether one refined mesh has the sub-axes of both shardings: not for an axis of 6 cut as 2 x 3 and as 3 x 2.
TESSERA_ONCE bool have_common_cuts(const Mesh& mesh, const Sharding& from, const Sharding& to);
/// Adds the collectives of a reshard to the innermost CommunicationScope, if there is one.
TESSERA_ONCE void count_reshard(const TensorStorage& from, const Sharding& to, Here at);

#if TESSERA_HAS_DEFINITIONS
/// Calls f(mesh, collectives) with those of a reshard on one mesh.
template <class F> void with_reshard_path(const TensorStorage& from, const Sharding& to, F&& f) {
  AxisCuts cuts = from.sharding().cuts;
  cuts.add(to.cuts);
  const PlannedMesh mesh(from.mesh(), cuts);
  f(mesh.refined,
    least_cost_path(from.shape(), from.dtype(), mesh.refined, refined_sharding(from.sharding(), mesh.given, mesh.cuts),
                    refined_sharding(to, mesh.given, mesh.cuts)));
}

TESSERA_ONCE void copy_shards(const TensorStorage& from, TensorStorage& to, Here at) {
  runtime::ProfiledRange range(runtime::ProfiledWork::reshard, Source::from(at), from);
  if (!(from.mesh() == to.mesh())) {
    const Uncounted uncounted;
    return runtime::reshard(from.dtype(), Reduction::sum, shard_refs(to), shard_refs(from));
  }
  if (range.is_timed())
    with_reshard_path(from, to.sharding(), [&](const Mesh&, const Growable<CollectiveInfo>& path) {
      for (const CollectiveInfo& collective : path) range.sent_bytes += collective.wire_bytes;
    });
  AxisCuts cuts = from.sharding().cuts;
  cuts.add(to.sharding().cuts);
  runtime::reshard(from.dtype(), Reduction::sum, shard_refs(to, cuts), shard_refs(from, cuts));
}

TESSERA_ONCE bool have_common_cuts(const Mesh& mesh, const Sharding& from, const Sharding& to) {
  AxisCuts cuts = from.cuts;
  return cuts.add(to.cuts) && can_cut(mesh, cuts);
}

TESSERA_ONCE void count_reshard(const TensorStorage& from, const Sharding& to, Here at) {
  CommunicationScope* const scope = CommunicationScope::innermost();
  if (scope == nullptr) return;
  with_reshard_path(from, to, [&](const Mesh& mesh, Growable<CollectiveInfo> path) {
    for (CollectiveInfo& collective : path) {
      collective.source = Source::from(at);
      collective.why = "reshard";
    }
    scope->permit(
        [&](auto&& f) {
          for (const CollectiveInfo& collective : path) f(collective, 1);
        },
        [](const CollectiveInfo&) {});
    for (const CollectiveInfo& collective : path) scope->add(mesh, collective);
  });
}
#endif

}  // namespace detail

/// x with another sharding, on the same mesh or another, as jax.device_put. If the sharding is equal, the result shares
/// the memory of x. Communication: the cheapest sequence of collectives between the two shardings; copies to another
/// mesh are not counted by a CommunicationScope.
///
///     auto y = ts::reshard(x, {ts::none, "model"});   // [B/data, D] -> [B, D/model]
template <class T, int Rank>
ShardedTensor<T, Rank> reshard(const ShardedTensor<T, Rank>& x, const Mesh& mesh, const PartitionSpec& spec,
                               Here at = Here::current()) {
  const TensorStorage& from = detail::storage_of("reshard", x, at);
  const Sharding sharding = detail::resolve_at("reshard", spec, mesh, Rank, at);
  if (from.mesh() == mesh && from.sharding() == sharding) return x;
  if (TensorStorage::Write write = from.deferred())
    return tensor_of<T, Rank>(
        StoragePtr(new TensorStorage(TensorLayout::of(mesh, from.dtype(), from.shape(), sharding), std::move(write))));
  if (from.mesh() == mesh) {
    // Without common sub-axes, gather x first; the second reshard only slices.
    if (!detail::have_common_cuts(mesh, from.sharding(), sharding))
      return reshard(reshard(x, mesh, PartitionSpec{}, at), mesh, spec, at);
    detail::count_reshard(from, sharding, at);
  }
  const StoragePtr to(new TensorStorage(mesh, from.dtype(), from.shape(), sharding));
  detail::copy_shards(from, *to, at);
  return tensor_of<T, Rank>(to);
}
template <class T, int Rank>
ShardedTensor<T, Rank> reshard(const ShardedTensor<T, Rank>& x, const PartitionSpec& spec, Here at = Here::current()) {
  return reshard(x, detail::storage_of("reshard", x, at).mesh(), spec, at);
}
/// Reshards to a Sharding object, such as that of another tensor on the same mesh: reshard(x, sharding(y)).
/// Errors: `unsupported` for a partial sharding; `rank_mismatch`.
template <class T, int Rank, std::same_as<Sharding> S>  // a braced list is a PartitionSpec
ShardedTensor<T, Rank> reshard(const ShardedTensor<T, Rank>& x, const S& sharding, Here at = Here::current()) {
  const Mesh& mesh = detail::storage_of("reshard", x, at).mesh();
  if (sharding.unreduced != 0)
    fail(errc::unsupported, "[reshard] partial sharding: can't reshard to the partial sharding ", text(sharding, mesh),
         Source::from(at));
  if (sharding.rank != Rank)
    fail(errc::rank_mismatch, "[reshard] rank: the tensor is ", sharded_type_text(x), ", the sharding is ",
         text(sharding, mesh), Source::from(at));
  return reshard(x, mesh, spec_of(sharding, mesh), at);
}

/// The tensor, replicated on its mesh, as DTensor.full_tensor. Communication: all_gathers; none if it is already
/// replicated.
template <class T, int Rank>
ShardedTensor<T, Rank> full_tensor(const ShardedTensor<T, Rank>& x, Here at = Here::current()) {
  return reshard(x, detail::storage_of("full_tensor", x, at).mesh(), PartitionSpec{}, at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
