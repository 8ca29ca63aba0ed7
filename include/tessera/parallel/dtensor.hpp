#ifndef TESSERA_PARALLEL_DTENSOR_HPP
#define TESSERA_PARALLEL_DTENSOR_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/base/growable.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/parallel/move_pieces.hpp>
#include <tessera/parallel/placement.hpp>
#include <tessera/parallel/reduce_local_arrays.hpp>
#include <tessera/partition/reshard/least_cost_path.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/local_tensor.hpp>
#include <tessera/tensor/reshard.hpp>

namespace tessera {

/// PyTorch's DTensor: a global shape, a local array on each device, and a placement (Shard, Replicate, Partial) for
/// each mesh axis. It may be partial, and splits a dim of n along an axis of k into chunks of ceil(n/k), as PyTorch
/// does. Compiled programs take a ShardedTensor instead, see to_sharded. Copies share memory.
///
///     auto d = ts::distribute_tensor(x, {ts::Shard(0), ts::Replicate()});
///     auto whole = ts::redistribute(d, {ts::Replicate(), ts::Replicate()});
template <Element T, int Rank> class DTensor {
 public:
  using element = T;
  static constexpr int rank = Rank;

  DTensor() = default;
  DTensor(const Shape& shape, const Placements& placements, LocalTensor<T, Rank> local)
      : shape_(shape), placements_(placements), local_(std::move(local)) {}

  const Mesh& mesh() const { return local_.mesh(); }
  const Shape& shape() const { return shape_; }
  const Placements& placements() const { return placements_; }
  const LocalTensor<T, Rank>& local() const { return local_; }
  /// "f32[8,4] (S(0), R)".
  std::string text() const { return concat_text(shape_text(dtype_v<T>, shape_), " ", tessera::text(placements_)); }

 private:
  Shape shape_;
  Placements placements_;
  LocalTensor<T, Rank> local_;
};

namespace detail {

inline unsigned partial_axes(const Placements& placements) {
  unsigned axes = 0;
  for (std::size_t axis = 0; axis < placements.size(); ++axis)
    if (placements[axis].is_partial()) axes |= 1u << axis;
  return axes;
}
/// The sharding whose reshard costs as much as one from these placements; partial products cost as much as sums.
inline Sharding cost_sharding(Placements placements, const Mesh& mesh, int rank) {
  for (Placement& p : placements)
    if (p.is_partial()) p.op = ReduceOp::sum;
  return sharding_of(placements, mesh, rank);
}

/// `to`, replicated along the axes that become Partial: no collective makes a partial value from a replicated one.
inline Placements without_fresh_partials(const Placements& from, Placements to) {
  for (std::size_t axis = 0; axis < to.size(); ++axis)
    if (to[axis].is_partial() && !(from[axis] == to[axis])) to[axis] = Replicate();
  return to;
}

}  // namespace detail

/// The cheapest sequence of collectives that redistributes a tensor. A Replicate axis becomes Partial without
/// communication, since its first device keeps the value; Partial(sum) becomes Partial(max) by way of the reduced
/// value.
inline Growable<CollectiveInfo> redistribute_path(const Shape& shape, DType dtype, const Mesh& mesh,
                                                  const Placements& from, const Placements& to) {
  const int rank = static_cast<int>(shape.size());
  const Placements target = detail::without_fresh_partials(from, to);
  return least_cost_path(shape, dtype, mesh, detail::cost_sharding(from, mesh, rank),
                         detail::cost_sharding(target, mesh, rank));
}

/// The same tensor with the given placements.
/// Errors: `structure` unless there is one placement per axis, `dim_range`, `unsupported` (see normalized).
/// Communication: redistribute_path. On a mesh of one axis: S to R one all-gather, R to S none, P to R one all-reduce,
/// P to S one reduce-scatter, S to another S one all-to-all, R to P none.
template <class T, int Rank>
DTensor<T, Rank> redistribute(const DTensor<T, Rank>& x, const Placements& placements, Here at = Here::current()) {
  const Mesh& mesh = x.mesh();
  const Placements to = normalized(placements, mesh, Rank, "redistribute");
  const Placements& from = x.placements();
  if (to == from) return x;
  const unsigned before = detail::partial_axes(from), after = detail::partial_axes(to);
  unsigned kept = 0;
  for (std::size_t axis = 0; axis < from.size(); ++axis)
    if (from[axis].is_partial() && from[axis] == to[axis]) kept |= 1u << axis;
  const unsigned reduced = before & ~kept, fresh = after & ~kept;
  ReduceOp op = ReduceOp::sum;
  std::int64_t parts = 1;
  for (std::size_t axis = 0; axis < from.size(); ++axis) {
    if (!(reduced >> axis & 1u)) continue;
    if (op == ReduceOp::sum) op = from[axis].op;  // averages and sums are one kind of partial value: normalized()
    if (from[axis].op == ReduceOp::avg) op = ReduceOp::avg, parts *= mesh.axis_size(static_cast<int>(axis));
  }
  if (CommunicationScope* const scope = CommunicationScope::innermost()) {
    Growable<CollectiveInfo> path = redistribute_path(x.shape(), detail::moved_dtype<T>(op), mesh, from, to);
    for (CollectiveInfo& collective : path) {
      collective.source = Source::from(at);
      collective.why = "redistribute";
    }
    scope->permit(
        [&](auto&& f) {
          for (const CollectiveInfo& collective : path) f(collective, 1);
        },
        [](const CollectiveInfo&) {});
    for (const CollectiveInfo& collective : path) scope->add(mesh, collective);
  }

  // The axes that become Partial where only the first device keeps the value and others hold the identity, such as 0.
  unsigned neutral = 0;
  for (std::size_t axis = 0; axis < to.size(); ++axis)
    if ((fresh >> axis & 1u) && !is_idempotent(to[axis].op)) neutral |= 1u << axis;
  // Devices with equal results share one array.
  const unsigned out_axes = detail::split_axes(to) | kept | neutral;
  const auto move = [&](const auto& local) {
    using S = typename std::remove_cvref_t<decltype(local)>::element;
    const ShardGrid distinct(mesh, out_axes);
    std::vector<LocalArray<T, Rank>> made(static_cast<std::size_t>(distinct.count()));
    std::vector<LocalArray<S, Rank>> moved(made.size());
    std::vector<void*> out(made.size(), nullptr);
    for (int shard = 0; shard < distinct.count(); ++shard) {
      const Coordinates place = distinct.coordinates(shard);
      const Shape shape = extents(placed_box(x.shape(), to, mesh, place));
      std::size_t first = 0;  // the first axis along which this device holds only the identity
      while (first < place.size() && !((neutral >> first & 1u) && place[first] != 0)) ++first;
      const auto own = static_cast<std::size_t>(shard);
      if (first < place.size()) {
        auto [array, data] = LocalTensor<T, Rank>::allocate(shape);
        std::fill_n(data, volume(shape), static_cast<T>(facts_of(reduction_of(to[first].op)).identity));
        made[own] = array;
      } else {
        auto [array, data] = LocalTensor<S, Rank>::allocate(shape);
        moved[own] = array;
        out[own] = data;
      }
    }
    std::vector<const void*> in;
    for (int device = 0; device < mesh.size(); ++device) in.push_back(local[device].data);
    detail::move_pieces(dtype_v<S>, reduction_of(op), x.shape(), mesh, from, to, reduced, kept, out_axes, in, out);
    for (std::size_t shard = 0; shard < made.size(); ++shard)
      if (!made[shard].owner) made[shard] = detail::narrowed<T>(moved[shard], parts, 1);
    return DTensor<T, Rank>(x.shape(), to, LocalTensor<T, Rank>(mesh, [&](int device) {
                              return made[static_cast<std::size_t>(distinct.index_of(mesh.coordinates_of(device)))];
                            }));
  };
  if constexpr (!std::is_same_v<detail::ReductionSum<T>, T>)
    if (parts > 1) return move(detail::widened<detail::ReductionSum<T>>(x.local()));
  return move(x.local());
}

/// The cotangent of x, whose placements are `from`, given the cotangent of redistribute(x, to). The cotangent of a
/// Partial is Replicate, so the transpose of P to R sends nothing, that of S to R slices, and that of R to S gathers.
/// Communication: S to R none, R to S one all-gather, P to R none, P to S one all-gather, R to P none.
template <class T, int Rank>
DTensor<T, Rank> redistribute_gradient(const DTensor<T, Rank>& cotangent, Placements from, Here at = Here::current()) {
  for (Placement& p : from)
    if (p.is_partial()) p = Replicate();
  return redistribute(cotangent, from, at);
}

/// A DTensor with the elements of a sharded tensor, as distribute_tensor of PyTorch. Errors: those of redistribute.
/// Communication: a full_tensor of x; redistributing it sends nothing.
template <class T, int Rank>
DTensor<T, Rank> distribute_tensor(const ShardedTensor<T, Rank>& x, const Placements& placements,
                                   Here at = Here::current()) {
  const Mesh& mesh = storage_of(x).mesh();
  const Placements to = normalized(placements, mesh, Rank, "distribute_tensor");
  if (detail::partial_axes(to) != 0)
    fail(errc::unsupported, "[distribute_tensor] placements: ", text(to),
         " has a Partial; use Shard or Replicate, then ts::redistribute", Source::from(at));
  Placements whole(static_cast<std::size_t>(mesh.rank()), Replicate());
  const ShardedTensor<T, Rank> full = full_tensor(x, at);
  return redistribute(DTensor<T, Rank>(storage_of(x).shape(), whole, local_tensor(full)), to, at);
}

/// A ShardedTensor with the elements of a DTensor, sharded by a spec. Communication: a redistribute to Replicate.
template <class T, int Rank>
ShardedTensor<T, Rank> to_sharded(const DTensor<T, Rank>& x, const PartitionSpec& spec = {},
                                  Here at = Here::current()) {
  const Placements whole(static_cast<std::size_t>(x.mesh().rank()), Replicate());
  const DTensor<T, Rank> full = redistribute(x, whole, at);
  const StoragePtr storage = detail::allocate("to_sharded", dtype_v<T>, x.shape(), Rank, x.mesh(), spec, at);
  detail::copy_from_host(*storage, full.local()[0].data, kernels::contiguous_strides(x.shape()));
  return tensor_of<T, Rank>(storage);
}

/// All elements of a DTensor, row-major, on the host. Communication: a redistribute to Replicate.
template <class T, int Rank> std::vector<T> full_values(const DTensor<T, Rank>& x, Here at = Here::current()) {
  const Placements whole(static_cast<std::size_t>(x.mesh().rank()), Replicate());
  const DTensor<T, Rank> full = redistribute(x, whole, at);
  const auto values = full.local().values(0);
  return std::vector<T>(values.begin(), values.end());
}

/// The local array of each device, without a copy; along a Partial axis these are unreduced parts. No communication.
template <class T, int Rank> const LocalTensor<T, Rank>& to_local(const DTensor<T, Rank>& x) { return x.local(); }

/// A DTensor made of local arrays. Without `shape`, the extent of a split dim is the sum of the extents along its axes.
/// Checks shapes, but not that replicas are equal, like run_check=False in PyTorch. Errors: `host_data` for an array
/// that does not have the shape of the chunk. Communication: none.
template <class T, int Rank>
DTensor<T, Rank> from_local(const LocalTensor<T, Rank>& local, const Placements& placements, Shape shape = {},
                            Here at = Here::current()) {
  const Mesh& mesh = local.mesh();
  const Placements own = normalized(placements, mesh, Rank, "from_local");
  if (Rank > 0 && shape.empty()) {
    shape = local.shape(mesh.device_at(Coordinates(static_cast<std::size_t>(mesh.rank()), 0)));
    for (int dim = 0; dim < Rank; ++dim) {
      // Add up the devices whose coordinates are 0 along all axes that don't split this dim.
      unsigned axes = 0;
      for (std::uint8_t axis : detail::chunk_order(own, dim)) axes |= 1u << axis;
      std::int64_t extent = 0;
      for (int device = 0; device < mesh.size(); ++device) {
        const Coordinates place = mesh.coordinates_of(device);
        bool in_line = true;
        for (int axis = 0; axis < mesh.rank(); ++axis) in_line = in_line && ((axes >> axis & 1u) || place[axis] == 0);
        if (in_line) extent += local.shape(device)[static_cast<std::size_t>(dim)];
      }
      shape[static_cast<std::size_t>(dim)] = extent;
    }
  }
  detail::check_shape("from_local", dtype_v<T>, shape, Rank, at);
  for (int device = 0; device < mesh.size(); ++device) {
    const Shape wanted = extents(placed_box(shape, own, mesh, mesh.coordinates_of(device)));
    if (!(wanted == local.shape(device)))
      fail(errc::host_data, "[from_local] shape on device ", device, ": the array is ",
           shape_text(dtype_v<T>, local.shape(device)), ", but the device's chunk of ", shape_text(dtype_v<T>, shape),
           " ", text(own), " is ", shape_text(dtype_v<T>, wanted), Source::from(at));
  }
  return DTensor<T, Rank>(shape, own, local);
}

/// The cotangent of x, given the cotangent of to_local(x) and its placements (PyTorch's grad_placements): if x is
/// replicated, code on local arrays may produce a cotangent that is Partial. Errors and communication: those of
/// from_local and of redistributing the cotangent to the placements of x.
template <class T, int Rank>
DTensor<T, Rank> to_local_gradient(const LocalTensor<T, Rank>& cotangent, const Placements& cotangent_placements,
                                   const DTensor<T, Rank>& x, Here at = Here::current()) {
  return redistribute_gradient(from_local(cotangent, cotangent_placements, x.shape(), at), x.placements(), at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
