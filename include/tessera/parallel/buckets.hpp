#ifndef TESSERA_PARALLEL_BUCKETS_HPP
#define TESSERA_PARALLEL_BUCKETS_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/parallel/collectives.hpp>

namespace tessera::collective {

/// Bytes per bucket, as bucket_cap_mb of PyTorch's DistributedDataParallel. A larger array is a bucket of its own.
inline constexpr std::int64_t default_bucket_bytes = std::int64_t{160} << 20;

/// Each device's array as an array of rank 1, without a copy, so that arrays of several ranks can share a bucket.
template <class T, int Rank> LocalTensor<T, 1> flattened(const LocalTensor<T, Rank>& x) {
  return LocalTensor<T, 1>(x.mesh(), [&](int device) {
    return LocalArray<T, 1>{{volume(x.shape(device))}, x[device].data, x[device].owner};
  });
}

namespace detail {

/// Splits a list into consecutive buckets: the index of the first array of each bucket, and the length of the list.
template <class T, int Rank>
std::vector<std::size_t> bucket_bounds(const std::vector<LocalTensor<T, Rank>>& list, std::int64_t most) {
  std::vector<std::size_t> bounds{0};
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!(list[i].mesh() == list[0].mesh()))
      fail(errc::mesh_mismatch, "[bucket] one mesh: array ", i, " is on ", list[i].mesh().text(),
           ", but array 0 is on ", list[0].mesh().text());
    const std::int64_t own = largest_bytes(list[i]);
    if (i > bounds.back() && bytes + own > most) {
      bounds.push_back(i);
      bytes = 0;
    }
    bytes += own;
  }
  bounds.push_back(list.size());
  return bounds;
}

/// Concatenates the arrays of a bucket, flattened, on each device.
template <class T, int Rank>
LocalTensor<T, 1> packed(const std::vector<LocalTensor<T, Rank>>& list, std::size_t begin, std::size_t end) {
  return LocalTensor<T, 1>(list[begin].mesh(), [&](int device) {
    std::int64_t count = 0;
    for (std::size_t i = begin; i < end; ++i) count += volume(list[i].shape(device));
    auto [array, out] = LocalTensor<T, 1>::allocate({count});
    for (std::size_t i = begin; i < end; ++i) {
      const auto values = list[i].values(device);
      out = std::copy(values.begin(), values.end(), out);
    }
    return array;
  });
}

}  // namespace detail

/// all_reduce of each item of a list, in place, with one collective per bucket of `bucket_bytes`. The results of a
/// bucket share one allocation.
template <class T, int Rank>
void all_reduce_bucketed(std::vector<LocalTensor<T, Rank>>& list, ReduceOp op = ReduceOp::sum,
                         const DeviceGroups& groups = {}, double scale = 1,
                         std::int64_t bucket_bytes = default_bucket_bytes, Here at = Here::current()) {
  if (list.empty()) return;
  const std::vector<std::size_t> bounds = detail::bucket_bounds(list, bucket_bytes);
  // Before the first bucket changes; all_reduce checks the packed arrays only: [2, 3] and [3, 2] would have equal
  // lengths.
  const detail::Lists lists = groups.on(list[0].mesh(), "all_reduce");
  for (const auto& array : list)
    for (const auto& group : lists) detail::require_one_shape(array, group, "all_reduce");
  for (std::size_t b = 0; b + 1 < bounds.size(); ++b) {
    const LocalTensor<T, 1> total = all_reduce(detail::packed(list, bounds[b], bounds[b + 1]), op, groups, scale, at);
    std::vector<std::int64_t> offset(static_cast<std::size_t>(total.size()), 0);
    for (std::size_t i = bounds[b]; i < bounds[b + 1]; ++i)
      list[i] = LocalTensor<T, Rank>(total.mesh(), [&](int device) {
        const Shape shape = list[i].shape(device);
        std::int64_t& from = offset[static_cast<std::size_t>(device)];
        const LocalArray<T, Rank> array{shape, total[device].data + from, total[device].owner};
        from += volume(shape);
        return array;
      });
  }
}

/// all_gather along dim 0 of each item of a list, with one collective per bucket of `bucket_bytes`.
template <class T, int Rank>
std::vector<LocalTensor<T, Rank>> all_gather_bucketed(const std::vector<LocalTensor<T, Rank>>& list,
                                                      const DeviceGroups& groups = {},
                                                      std::int64_t bucket_bytes = default_bucket_bytes,
                                                      Here at = Here::current()) {
  static_assert(Rank > 0, "tessera: all_gather_bucketed concatenates along dim 0, which an array of rank 0 lacks");
  std::vector<LocalTensor<T, Rank>> gathered;
  if (list.empty()) return gathered;
  const std::vector<std::size_t> bounds = detail::bucket_bounds(list, bucket_bytes);
  const detail::Lists lists = groups.on(list[0].mesh(), "all_gather");
  for (std::size_t b = 0; b + 1 < bounds.size(); ++b) {
    const LocalTensor<T, 1> all = all_gather(detail::packed(list, bounds[b], bounds[b + 1]), 0, groups, at);
    for (std::size_t i = bounds[b]; i < bounds[b + 1]; ++i) {
      std::vector<LocalArray<T, Rank>> made(static_cast<std::size_t>(all.size()));
      for (const auto& group : lists) {
        // The gathered array is ordered by member, and within a member by item of the list.
        Shape shape = list[i].shape(group[0]);
        shape[0] = 0;
        for (const int device : group) {
          Shape own = list[i].shape(device);
          shape[0] += own[0];
          own[0] = list[i].shape(group[0])[0];
          if (!(own == list[i].shape(group[0])))
            fail(errc::shape_mismatch,
                 "[all_gather] equal extents except along dim 0: ", shape_text(dtype_v<T>, list[i].shape(group[0])),
                 " and ", shape_text(dtype_v<T>, list[i].shape(device)));
        }
        auto [array, out] = LocalTensor<T, Rank>::allocate(shape);
        const T* from = all[group[0]].data;
        for (const int device : group)
          for (std::size_t k = bounds[b]; k < bounds[b + 1]; ++k) {
            const std::int64_t count = volume(list[k].shape(device));
            if (k == i) out = std::copy(from, from + count, out);
            from += count;
          }
        for (const int device : group) made[static_cast<std::size_t>(device)] = array;
      }
      gathered.push_back(detail::assemble(all.mesh(), made));
    }
  }
  return gathered;
}

}  // namespace tessera::collective

#include <tessera/base/pop_macros.hpp>

#endif
