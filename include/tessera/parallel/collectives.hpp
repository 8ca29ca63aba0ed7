#ifndef TESSERA_PARALLEL_COLLECTIVES_HPP
#define TESSERA_PARALLEL_COLLECTIVES_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/parallel/device_groups.hpp>
#include <tessera/parallel/reduce_local_arrays.hpp>
#include <tessera/partition/reshard/reshard_path.hpp>
#include <tessera/runtime/transport/collectives.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/tensor/local_tensor.hpp>

/// Collectives on local arrays, as in torch.distributed. They return new arrays; devices with equal results share
/// memory. A CommunicationScope counts them; a collective that the scope forbids throws `policy` and moves nothing.
/// Errors of all collectives: those of DeviceGroups; `shape_mismatch` for arrays of a group whose shapes don't match;
/// `dim_range`. In "Communication", V is the payload in bytes and n the number of devices of a group.
namespace tessera::collective {

namespace detail {

using Lists = std::vector<std::vector<int>>;

/// Adds one collective to the innermost CommunicationScope. `payload` is CollectiveInfo::payload_bytes, of the largest
/// group.
inline void count(const Mesh& mesh, Collective kind, DType dtype, const DeviceGroups& groups, std::size_t members,
                  std::int64_t payload, Here at) {
  CommunicationScope* const scope = CommunicationScope::innermost();
  if (scope == nullptr) return;
  CollectiveInfo made;
  made.kind = kind;
  made.axes = static_cast<std::uint16_t>(groups.axes(mesh));
  made.dtype = dtype;
  made.payload_bytes = payload;
  made.wire_bytes = ring_bytes(kind, payload, static_cast<std::int64_t>(members));
  made.source = Source::from(at);
  made.why = "called";
  scope->permit([&](auto&& f) { f(made, 1); }, [](const CollectiveInfo&) {});
  scope->add(mesh, made);
}

template <class T, int Rank> std::int64_t bytes_of(const LocalTensor<T, Rank>& x, int device) {
  return volume(x.shape(device)) * static_cast<std::int64_t>(sizeof(T));
}
template <class T, int Rank> std::int64_t largest_bytes(const LocalTensor<T, Rank>& x) {
  std::int64_t most = 0;
  for (int device = 0; device < x.size(); ++device) most = std::max(most, volume(x.shape(device)));
  return most * static_cast<std::int64_t>(sizeof(T));
}

template <class T, int Rank>
void require_one_shape(const LocalTensor<T, Rank>& x, const std::vector<int>& group, std::string_view op) {
  for (const int device : group)
    if (!(x.shape(device) == x.shape(group[0])))
      fail(errc::shape_mismatch, "[", op, "] equal shapes in a group: ", shape_text(dtype_v<T>, x.shape(group[0])),
           " on device ", group[0], ", ", shape_text(dtype_v<T>, x.shape(device)), " on device ", device);
}
inline std::size_t checked_dim(int dim, int rank, std::string_view op) {
  if (dim < -rank || dim >= rank)
    fail(errc::dim_range, "[", op, "] dim: ", dim, " is out of range for arrays of rank ", rank);
  return static_cast<std::size_t>(dim < 0 ? dim + rank : dim);
}

template <class T> runtime::MemberArray part_of(const T* data, const Shape& shape) {
  return {const_cast<std::remove_const_t<T>*>(data), shape};
}

/// A LocalTensor of the arrays of all devices.
template <class T, int Rank> LocalTensor<T, Rank> assemble(const Mesh& mesh, std::vector<LocalArray<T, Rank>>& arrays) {
  return LocalTensor<T, Rank>(mesh, [&](int device) { return std::move(arrays[static_cast<std::size_t>(device)]); });
}

/// Calls f(arrays, divisor): the arrays in the element type in which they are reduced, such as bf16 in f32 for an
/// average, and the divisor of an average.
template <class T, int Rank, class F>
auto with_sums(const LocalTensor<T, Rank>& x, std::size_t members, ReduceOp op, double scale, const F& f) {
  using Sum = tessera::detail::ReductionSum<T>;
  const std::int64_t parts = op == ReduceOp::avg ? static_cast<std::int64_t>(members) : 1;
  if constexpr (!std::is_same_v<Sum, T>)
    if (tessera::detail::moved_dtype<T>(op, scale) != dtype_v<T>) return f(tessera::detail::widened<Sum>(x), parts);
  return f(x, parts);
}

/// Bytes of the largest array of x in the element type in which a reduction moves it.
template <class T, int Rank> std::int64_t moved_bytes(const LocalTensor<T, Rank>& x, ReduceOp op, double scale) {
  const auto size = static_cast<std::int64_t>(size_of(tessera::detail::moved_dtype<T>(op, scale)));
  return largest_bytes(x) / static_cast<std::int64_t>(sizeof(T)) * size;
}

/// Counts bytes sent between devices where no copy is made, because devices of one process share the array.
inline void count_shared(std::int64_t bytes) {
  if (CommunicationScope* const scope = CommunicationScope::innermost()) scope->add_moved(bytes);
}

template <class T> void require_reducible(ReduceOp op, std::string_view name) {
  if (!combines(reduction_of(op), dtype_v<T>))
    fail(errc::dtype_mismatch, "[", name, "] dtype: the reduction ", tessera::name_of(op), " is not defined for ",
         tessera::name_of(dtype_v<T>));
}

}  // namespace detail

/// Each device of a group gets the reduction of the arrays of its group, in the order of its members, times `scale`.
/// Sums and products of integers wrap; averages do not. Errors: `dtype_mismatch` for a reduction that the element type
/// does not have. Communication: 2(n-1)/n V on a ring of n devices.
template <class T, int Rank>
LocalTensor<T, Rank> all_reduce(const LocalTensor<T, Rank>& x, ReduceOp op = ReduceOp::sum,
                                const DeviceGroups& groups = {}, double scale = 1, Here at = Here::current()) {
  detail::require_reducible<T>(op, "all_reduce");
  const detail::Lists lists = groups.on(x.mesh(), "all_reduce");
  for (const auto& group : lists) detail::require_one_shape(x, group, "all_reduce");
  detail::count(x.mesh(), Collective::all_reduce, tessera::detail::moved_dtype<T>(op, scale), groups, lists[0].size(),
                detail::moved_bytes(x, op, scale), at);
  return detail::with_sums(x, lists[0].size(), op, scale, [&](const auto& from, std::int64_t divisor) {
    using S = typename std::remove_cvref_t<decltype(from)>::element;
    std::vector<LocalArray<S, Rank>> totals;
    std::vector<std::vector<runtime::MemberArray>> ins(lists.size()), outs(lists.size());
    for (std::size_t g = 0; g < lists.size(); ++g) {
      for (const int device : lists[g]) ins[g].push_back(detail::part_of(from[device].data, from.shape(device)));
      auto [array, out] = LocalTensor<S, Rank>::allocate(from.shape(lists[g][0]));
      outs[g].push_back(detail::part_of(out, array.shape));
      totals.push_back(array);
    }
    std::vector<runtime::Group> parts;
    for (std::size_t g = 0; g < lists.size(); ++g) parts.push_back({ins[g], outs[g]});
    runtime::all_reduce(dtype_v<S>, reduction_of(op), parts);
    std::vector<LocalArray<T, Rank>> made(static_cast<std::size_t>(x.size()));
    for (std::size_t g = 0; g < lists.size(); ++g) {
      const auto total = tessera::detail::narrowed<T>(totals[g], divisor, scale);
      for (const int device : lists[g]) made[static_cast<std::size_t>(device)] = total;
    }
    return detail::assemble(x.mesh(), made);
  });
}

/// Each device of a group gets the group's arrays concatenated along a dim, in the order of its members. Extents along
/// that dim may differ. Communication: (n-1)/n V, where V is the concatenated array.
template <class T, int Rank>
LocalTensor<T, Rank> all_gather(const LocalTensor<T, Rank>& x, int dim, const DeviceGroups& groups = {},
                                Here at = Here::current()) {
  const std::size_t d = detail::checked_dim(dim, Rank, "all_gather");
  const detail::Lists lists = groups.on(x.mesh(), "all_gather");
  std::vector<LocalArray<T, Rank>> made(static_cast<std::size_t>(x.size()));
  std::vector<std::vector<runtime::MemberArray>> ins, outs;
  std::int64_t payload = 0;
  for (const auto& group : lists) {
    Shape whole = x.shape(group[0]);
    whole[d] = 0;
    std::vector<runtime::MemberArray> in;
    for (const int device : group) {
      Shape own = x.shape(device);
      whole[d] += own[d];
      own[d] = x.shape(group[0])[d];
      if (!(own == x.shape(group[0])))
        fail(errc::shape_mismatch, "[all_gather] equal extents except along dim ", dim, ": ",
             shape_text(dtype_v<T>, x.shape(group[0])), " and ", shape_text(dtype_v<T>, x.shape(device)));
      in.push_back(detail::part_of(x[device].data, x.shape(device)));
    }
    auto [array, out] = LocalTensor<T, Rank>::allocate(whole);
    payload = std::max(payload, volume(whole) * static_cast<std::int64_t>(sizeof(T)));
    ins.push_back(std::move(in));
    outs.push_back({detail::part_of(out, whole)});
    for (const int device : group) made[static_cast<std::size_t>(device)] = array;
  }
  detail::count(x.mesh(), Collective::all_gather, dtype_v<T>, groups, lists[0].size(), payload, at);
  std::vector<runtime::Group> parts;
  for (std::size_t g = 0; g < lists.size(); ++g) parts.push_back({ins[g], outs[g]});
  runtime::all_gather(dtype_v<T>, static_cast<int>(d), parts);
  return detail::assemble(x.mesh(), made);
}

/// Reduces the arrays of a group, times `scale`, and gives each of its n devices one chunk along a dim: of extent
/// ceil(extent / n), the last chunks less or 0, as torch.chunk. Communication: (n-1)/n V.
template <class T, int Rank>
LocalTensor<T, Rank> reduce_scatter(const LocalTensor<T, Rank>& x, int dim, ReduceOp op = ReduceOp::sum,
                                    const DeviceGroups& groups = {}, double scale = 1, Here at = Here::current()) {
  detail::require_reducible<T>(op, "reduce_scatter");
  const std::size_t d = detail::checked_dim(dim, Rank, "reduce_scatter");
  const detail::Lists lists = groups.on(x.mesh(), "reduce_scatter");
  for (const auto& group : lists) detail::require_one_shape(x, group, "reduce_scatter");
  detail::count(x.mesh(), Collective::reduce_scatter, tessera::detail::moved_dtype<T>(op, scale), groups,
                lists[0].size(), detail::moved_bytes(x, op, scale), at);
  return detail::with_sums(x, lists[0].size(), op, scale, [&](const auto& from, std::int64_t divisor) {
    using S = typename std::remove_cvref_t<decltype(from)>::element;
    std::vector<LocalArray<S, Rank>> sums(static_cast<std::size_t>(x.size()));
    std::vector<std::vector<runtime::MemberArray>> ins(lists.size()), outs(lists.size());
    for (std::size_t g = 0; g < lists.size(); ++g) {
      Shape shape = from.shape(lists[g][0]);
      const std::int64_t n = shape[d], k = static_cast<std::int64_t>(lists[g].size()), chunk = (n + k - 1) / k;
      for (std::int64_t i = 0; i < k; ++i) {
        const int device = lists[g][static_cast<std::size_t>(i)];
        ins[g].push_back(detail::part_of(from[device].data, from.shape(device)));
        shape[d] = std::clamp<std::int64_t>(n - i * chunk, 0, chunk);
        auto [array, out] = LocalTensor<S, Rank>::allocate(shape);
        outs[g].push_back(detail::part_of(out, shape));
        sums[static_cast<std::size_t>(device)] = array;
      }
    }
    std::vector<runtime::Group> parts;
    for (std::size_t g = 0; g < lists.size(); ++g) parts.push_back({ins[g], outs[g]});
    runtime::reduce_scatter(dtype_v<S>, reduction_of(op), static_cast<int>(d), parts);
    return LocalTensor<T, Rank>(x.mesh(), [&](int device) {
      return tessera::detail::narrowed<T>(sums[static_cast<std::size_t>(device)], divisor, scale);
    });
  });
}

/// Splits each array along `split_dim` into one chunk per device of its group, and concatenates the chunks that a
/// device receives along `concat_dim`, in the order of the members, as jax.lax.all_to_all. Errors: `not_divisible`
/// unless n divides the extent of `split_dim`. Communication: (n-1)/n^2 V, where V is all arrays of the group.
template <class T, int Rank>
LocalTensor<T, Rank> all_to_all(const LocalTensor<T, Rank>& x, int split_dim, int concat_dim,
                                const DeviceGroups& groups = {}, Here at = Here::current()) {
  const std::size_t split = detail::checked_dim(split_dim, Rank, "all_to_all");
  const std::size_t concat = detail::checked_dim(concat_dim, Rank, "all_to_all");
  const detail::Lists lists = groups.on(x.mesh(), "all_to_all");
  const auto members = static_cast<std::int64_t>(lists[0].size());
  for (const auto& group : lists) {
    detail::require_one_shape(x, group, "all_to_all");
    if (x.shape(group[0])[split] % members != 0)
      fail(errc::not_divisible, "[all_to_all] equal chunks: dim ", split_dim, " of ",
           shape_text(dtype_v<T>, x.shape(group[0])), " does not divide by the ", members, " devices of a group");
  }
  detail::count(x.mesh(), Collective::all_to_all, dtype_v<T>, groups, lists[0].size(),
                detail::largest_bytes(x) * members, at);
  std::vector<LocalArray<T, Rank>> made(static_cast<std::size_t>(x.size()));
  std::vector<std::vector<runtime::MemberArray>> ins(lists.size()), outs(lists.size());
  for (std::size_t g = 0; g < lists.size(); ++g)
    for (const int device : lists[g]) {
      Shape shape = x.shape(device);
      shape[split] /= members;
      shape[concat] *= members;
      auto [array, out] = LocalTensor<T, Rank>::allocate(shape);
      ins[g].push_back(detail::part_of(x[device].data, x.shape(device)));
      outs[g].push_back(detail::part_of(out, shape));
      made[static_cast<std::size_t>(device)] = array;
    }
  std::vector<runtime::Group> parts;
  for (std::size_t g = 0; g < lists.size(); ++g) parts.push_back({ins[g], outs[g]});
  runtime::all_to_all(dtype_v<T>, static_cast<int>(split), static_cast<int>(concat), parts);
  return detail::assemble(x.mesh(), made);
}

/// Sends arrays between devices, given pairs of source and destination ids, as jax.lax.ppermute. A device that is not a
/// destination gets zeros in the shape of its array. Errors: `mesh_devices` for an id outside the mesh, or one that is
/// the destination of two pairs. Communication: V, the array of a source.
template <class T, int Rank>
LocalTensor<T, Rank> collective_permute(const LocalTensor<T, Rank>& x, const std::vector<std::pair<int, int>>& pairs,
                                        Here at = Here::current()) {
  std::vector<int> sender(static_cast<std::size_t>(x.size()), -1);
  for (const auto& [source, destination] : pairs) {
    if (source < 0 || source >= x.size() || destination < 0 || destination >= x.size())
      fail(errc::mesh_devices, "[collective_permute] devices: the pair ", source, " to ", destination,
           " names a device outside ", x.mesh().text());
    if (const int first = sender[static_cast<std::size_t>(destination)]; first >= 0)
      fail(errc::mesh_devices, "[collective_permute] one sender for each device: device ", destination,
           " would receive from ", first, " and ", source);
    sender[static_cast<std::size_t>(destination)] = source;
  }
  detail::count(x.mesh(), Collective::permute, dtype_v<T>, {}, 2, detail::largest_bytes(x), at);
  std::int64_t sent = 0;
  for (const auto& [source, destination] : pairs) sent += source == destination ? 0 : detail::bytes_of(x, source);
  detail::count_shared(sent);
  return LocalTensor<T, Rank>(x.mesh(), [&](int device) {
    if (const int from = sender[static_cast<std::size_t>(device)]; from >= 0) return x[from];
    auto [array, out] = LocalTensor<T, Rank>::allocate(x.shape(device));
    for (std::int64_t i = 0; i < volume(array.shape); ++i) out[i] = T(0);
    return array;
  });
}

/// Each device of a group gets the array of the group's member `root`, counted from 0. Communication: V.
/// Errors: `mesh_devices` for a `root` outside the group.
template <class T, int Rank>
LocalTensor<T, Rank> broadcast(const LocalTensor<T, Rank>& x, int root = 0, const DeviceGroups& groups = {},
                               Here at = Here::current()) {
  const detail::Lists lists = groups.on(x.mesh(), "broadcast");
  if (root < 0 || static_cast<std::size_t>(root) >= lists[0].size())
    fail(errc::mesh_devices, "[broadcast] member: ", root, " is out of range for groups of ", lists[0].size(),
         " devices");
  detail::count(x.mesh(), Collective::broadcast, dtype_v<T>, groups, lists[0].size(), detail::largest_bytes(x), at);
  std::vector<LocalArray<T, Rank>> made(static_cast<std::size_t>(x.size()));
  for (const auto& group : lists) {
    const int from = group[static_cast<std::size_t>(root)];
    detail::count_shared(detail::bytes_of(x, from) * (static_cast<std::int64_t>(group.size()) - 1));
    for (const int device : group) made[static_cast<std::size_t>(device)] = x[from];
  }
  return detail::assemble(x.mesh(), made);
}

/// Device `destination` gets the array of device `source`; all other devices keep their arrays. Communication: V.
template <class T, int Rank>
LocalTensor<T, Rank> send_recv(const LocalTensor<T, Rank>& x, int source, int destination, Here at = Here::current()) {
  if (source < 0 || source >= x.size() || destination < 0 || destination >= x.size())
    fail(errc::mesh_devices, "[send_recv] devices: ", source, " to ", destination, " names a device outside ",
         x.mesh().text());
  detail::count(x.mesh(), Collective::permute, dtype_v<T>, {}, 2, detail::bytes_of(x, source), at);
  detail::count_shared(source == destination ? 0 : detail::bytes_of(x, source));
  return LocalTensor<T, Rank>(x.mesh(), [&](int device) { return x[device == destination ? source : device]; });
}

}  // namespace tessera::collective

#include <tessera/base/pop_macros.hpp>

#endif
