#ifndef TESSERA_PARTITION_RESHARD_RESHARD_PATH_HPP
#define TESSERA_PARTITION_RESHARD_RESHARD_PATH_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string_view>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/partition/reshard/chunks.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// The extents of the largest shard, which is that of the first device.
constexpr Shape local_extents(const Shape& shape, const Sharding& sharding, const Mesh& mesh) {
  Shape local = shape;
  for (int d = 0; d < sharding.rank; ++d) {
    if (sharding.dims[d].empty()) continue;
    const std::int64_t count = shard_count(sharding, mesh, d);
    std::int64_t& extent = local[static_cast<std::size_t>(d)];
    extent = extent / count + (extent % count != 0);
  }
  return local;
}

constexpr std::int64_t local_bytes(const Shape& shape, const Sharding& sharding, const Mesh& mesh, DType dtype) {
  return volume(local_extents(shape, sharding, mesh)) * static_cast<std::int64_t>(size_of(dtype));
}

constexpr std::int64_t devices_on(const Mesh& mesh, unsigned axes) {
  std::int64_t n = 1;
  for (int axis = 0; axis < mesh.rank(); ++axis)
    if (axes >> axis & 1u) n *= mesh.axis_size(axis);
  return n;
}

/// Bytes that a device sends by ring algorithms over n devices; `payload` as in CollectiveInfo::payload_bytes.
constexpr std::int64_t ring_bytes(Collective kind, std::int64_t payload, std::int64_t n) {
  if (n <= 1) return 0;
  // Rounded up, and without overflow for any payload that fits a device.
  const auto share = [&](std::int64_t parts) { return payload / n * parts + (payload % n * parts + n - 1) / n; };
  switch (kind) {
    case Collective::all_reduce:
      return share(2 * (n - 1));
    case Collective::reduce_scatter:
    case Collective::all_gather:
      return share(n - 1);
    case Collective::all_to_all:
      return (share(n - 1) + n - 1) / n;
    case Collective::permute:
    case Collective::broadcast:
      return payload;
    case Collective::slice:
      return 0;
  }
  return 0;
}

/// The bytes that a device receives beyond those of a collective from `before` to `after`, because axes split a dim
/// unevenly; see chunks.hpp. A permute, whose `wire_bytes` are 0 where shards are even.
constexpr CollectiveInfo uneven_shift(const Shape& shape, DType dtype, const Mesh& mesh, const Sharding& before,
                                      const Sharding& after) {
  CollectiveInfo made;
  for (int d = 0; d < after.rank && d < before.rank; ++d) {
    const AxisList& was = before.dims[d];
    const AxisList& is = after.dims[d];
    if (was.size() == is.size() || was.empty() || is.empty()) continue;
    const bool grows = was.size() < is.size();
    const std::int64_t extent = shape[static_cast<std::size_t>(d)],
                       outer = shard_count(grows ? before : after, mesh, d);
    const std::int64_t all = shard_count(grows ? after : before, mesh, d);
    if (extent % all == 0) continue;
    const std::int64_t rows = grows ? rows_lacking_after_slice(extent, outer, all / outer)
                                    : rows_lacking_after_gather(extent, outer, all / outer);
    if (rows == 0) continue;
    Shape lacking = local_extents(shape, after, mesh);
    lacking[static_cast<std::size_t>(d)] = rows;
    made.payload_bytes += volume(lacking) * static_cast<std::int64_t>(size_of(dtype));
    for (const std::uint8_t axis : grows ? is : was) made.axes = static_cast<std::uint16_t>(made.axes | 1u << axis);
  }
  made.kind = Collective::permute;
  made.dtype = dtype;
  made.wire_bytes = made.payload_bytes;
  return made;
}

namespace detail {

/// Goes from one sharding to another, one collective at a time, each chosen greedily.
class ReshardPath {
 public:
  Growable<CollectiveInfo> steps;

  constexpr ReshardPath(const Shape& shape, DType dtype, const Mesh& mesh, const Sharding& from, const Sharding& to)
      : shape_(shape), dtype_(dtype), mesh_(mesh), before_(from), now_(from), to_(to) {
    // Collectives that send nothing or shrink the value come first, those that enlarge it last.
    for (;;) {
      if (swap_devices()) break;
      if (slice() || scatter() || exchange()) continue;
      if (replace() || scatter_behind() || exchange_behind() || permute_axes() || reduce()) continue;
      if (!gather()) break;
    }
    if (!same())
      fail(errc::graph_invalid,
           "[reshard] path: a value that is not partial can't become partial, and ranks must be equal");
  }

 private:
  const Shape& shape_;
  DType dtype_;
  const Mesh& mesh_;
  Sharding before_, now_;  // before and after the collective that is being added
  const Sharding& to_;

  constexpr unsigned pending() const { return now_.unreduced & ~unsigned{to_.unreduced}; }
  constexpr bool same() const {
    if (now_.rank != to_.rank || now_.unreduced != to_.unreduced) return false;
    for (int d = 0; d < now_.rank; ++d)
      if (!(now_.dims[d] == to_.dims[d])) return false;
    return true;
  }
  constexpr std::int64_t bytes() const { return local_bytes(shape_, now_, mesh_, dtype_); }
  constexpr bool done(int d) const { return now_.dims[d] == to_.dims[d]; }
  /// The axis that dim d needs next; -1 when it is complete, or has axes that do not belong there.
  constexpr int wanted(int d) const {
    if (now_.dims[d].size() >= to_.dims[d].size() || !common(d)) return -1;
    return to_.dims[d][now_.dims[d].size()];
  }
  /// Whether all axes of dim d are where the target has them.
  constexpr bool common(int d) const { return kept(d) == now_.dims[d].size(); }
  constexpr std::size_t kept(int d) const {
    std::size_t n = 0;
    while (n < now_.dims[d].size() && n < to_.dims[d].size() && now_.dims[d][n] == to_.dims[d][n]) ++n;
    return n;
  }
  constexpr int dim_wanting(int axis) const {
    for (int d = 0; d < now_.rank; ++d)
      if (wanted(d) == axis) return d;
    return -1;
  }
  constexpr void add(Collective kind, unsigned axes, std::int64_t payload) {
    CollectiveInfo made;
    made.kind = kind;
    made.axes = static_cast<std::uint16_t>(axes);
    made.dtype = dtype_;
    made.payload_bytes = payload;
    made.wire_bytes = ring_bytes(kind, payload, devices_on(mesh_, axes));
    steps.push_back(made);
    if (kind != Collective::permute && kind != Collective::all_reduce) {
      const CollectiveInfo shift = uneven_shift(shape_, dtype_, mesh_, before_, now_);
      if (shift.wire_bytes != 0) steps.push_back(shift);
    }
    before_ = now_;
  }

  /// permute: where each dim has as many shards as in the target, devices swap their shards.
  constexpr bool swap_devices() {
    if (same() || pending() || now_.rank != to_.rank) return false;
    for (int d = 0; d < now_.rank; ++d)
      if (shard_count(now_, mesh_, d) != shard_count(to_, mesh_, d)) return false;
    unsigned axes = 0;
    for (int d = 0; d < now_.rank; ++d)
      for (std::size_t i = kept(d); i < now_.dims[d].size() || i < to_.dims[d].size(); ++i) {
        if (i < now_.dims[d].size()) axes |= 1u << now_.dims[d][i];
        if (i < to_.dims[d].size()) axes |= 1u << to_.dims[d][i];
      }
    const std::int64_t payload = bytes();
    for (int d = 0; d < now_.rank; ++d) now_.dims[d] = to_.dims[d];
    add(Collective::permute, axes, payload);
    return true;
  }

  constexpr bool slice() {
    unsigned axes = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (int d = 0; d < now_.rank; ++d) {
        const int axis = wanted(d);
        if (axis < 0 || now_.uses(axis)) continue;
        now_.dims[d].push_back(static_cast<std::uint8_t>(axis));
        axes |= 1u << axis;
        moved = true;
      }
    }
    if (axes) add(Collective::slice, axes, bytes());
    return axes != 0;
  }
  /// reduce_scatter onto one dim, over as many of its next axes as are unreduced.
  constexpr bool scatter() {
    for (int d = 0; d < now_.rank; ++d) {
      const std::int64_t payload = bytes();
      unsigned axes = 0;
      for (int axis = wanted(d); axis >= 0 && (pending() >> axis & 1u); axis = wanted(d)) {
        axes |= 1u << axis;
        now_.unreduced = static_cast<std::uint16_t>(now_.unreduced & ~(1u << axis));
        now_.dims[d].push_back(static_cast<std::uint8_t>(axis));
      }
      if (!axes) continue;
      add(Collective::reduce_scatter, axes, payload);
      return true;
    }
    return false;
  }
  /// all_to_all: moves the last axes of one dim to the end of another that needs exactly these next.
  constexpr bool exchange() {
    for (int from = 0; from < now_.rank; ++from) {
      AxisList& list = now_.dims[from];
      for (std::size_t first = kept(from); first < list.size(); ++first) {
        const int to = dim_wanting(list[first]);
        if (to < 0 || to == from) continue;
        bool in_order = true;
        for (std::size_t i = first; i < list.size(); ++i) {
          const std::size_t position = now_.dims[to].size() + i - first;
          in_order = in_order && position < to_.dims[to].size() && to_.dims[to][position] == list[i];
        }
        if (!in_order) continue;
        // Replicated axes that the target needs after them split the dim first: the all_to_all then sends less.
        unsigned axes = 0;
        for (std::size_t next = now_.dims[to].size() + list.size() - first; next < to_.dims[to].size(); ++next) {
          const std::uint8_t axis = to_.dims[to][next];
          if (now_.uses(axis) || list.size() == AxisList::capacity()) break;
          list.push_back(axis);
          axes |= 1u << axis;
        }
        if (axes) add(Collective::slice, axes, bytes());
        axes = 0;
        std::int64_t payload = bytes();
        const std::size_t end = list.size();
        for (std::size_t i = first; i < end; ++i) {
          axes |= 1u << list[i];
          now_.dims[to].push_back(list[i]);
        }
        while (list.size() > first) list.pop_back();
        payload = checked_product(payload, devices_on(mesh_, axes), "bytes");
        add(Collective::all_to_all, axes, payload);
        return true;
      }
    }
    return false;
  }
  /// permute: replaces axes of a dim by replicated axes of the same sizes; each device gets the shard of another
  /// device.
  constexpr bool replace() {
    unsigned axes = 0;
    const std::int64_t payload = bytes();
    for (int d = 0; d < now_.rank; ++d) {
      if (done(d) || now_.dims[d].size() > to_.dims[d].size()) continue;
      unsigned gone = 0, fresh = 0;
      bool fits = true;
      for (std::size_t i = kept(d); i < now_.dims[d].size(); ++i) {
        const std::uint8_t from = now_.dims[d][i], to = to_.dims[d][i];
        fits = fits && mesh_.axis_size(from) == mesh_.axis_size(to);
        gone |= 1u << from;
        fresh |= 1u << to;
      }
      if (!fits || (fresh & ~gone & now_.used_axes()) || wanted(gone & ~fresh)) continue;
      for (std::size_t i = kept(d); i < now_.dims[d].size(); ++i) now_.dims[d][i] = to_.dims[d][i];
      axes |= gone | fresh;
    }
    if (axes) add(Collective::permute, axes, payload);
    return axes != 0;
  }
  constexpr bool wanted(unsigned axes) const {
    for (int axis = 0; axis < mesh_.rank(); ++axis)
      if ((axes >> axis & 1u) && home_of(axis) >= 0) return true;
    return false;
  }
  /// reduce_scatter onto the end of a dim that is rearranged later: it sends half of what an all_reduce sends.
  constexpr bool scatter_behind() {
    for (int d = 0; d < now_.rank; ++d) {
      if (common(d) || now_.dims[d].size() == AxisList::capacity()) continue;
      for (std::uint8_t axis : to_.dims[d]) {
        if (!(pending() >> axis & 1u)) continue;
        const std::int64_t payload = bytes();
        now_.unreduced = static_cast<std::uint16_t>(now_.unreduced & ~(1u << axis));
        now_.dims[d].push_back(axis);
        add(Collective::reduce_scatter, 1u << axis, payload);
        return true;
      }
    }
    return false;
  }
  /// all_to_all: moves the last axes of one dim to the end of another that needs them, but not next.
  constexpr bool exchange_behind() {
    for (int from = 0; from < now_.rank; ++from) {
      AxisList& list = now_.dims[from];
      for (std::size_t first = kept(from); first < list.size(); ++first) {
        const int to = home_of(list[first]);
        if (to < 0 || to == from || now_.dims[to].size() + list.size() - first > AxisList::capacity()) continue;
        bool together = true;
        for (std::size_t i = first; i < list.size(); ++i) together = together && home_of(list[i]) == to;
        if (!together) continue;
        unsigned axes = 0;
        std::int64_t payload = bytes();
        for (std::size_t i = first; i < list.size(); ++i) {
          axes |= 1u << list[i];
          now_.dims[to].push_back(list[i]);
        }
        while (list.size() > first) list.pop_back();
        add(Collective::all_to_all, axes, checked_product(payload, devices_on(mesh_, axes), "bytes"));
        return true;
      }
    }
    return false;
  }
  /// The dim that an axis splits in the target, -1: none.
  constexpr int home_of(int axis) const {
    for (int d = 0; d < to_.rank; ++d)
      if (to_.dims[d].contains(static_cast<std::uint8_t>(axis))) return d;
    return -1;
  }
  /// permute: orders the axes of a dim so that they can move on: axes that stay, then axes for another dim, then axes
  /// to gather. Replicated axes that the dim needs are sliced onto it first, which sends nothing.
  constexpr bool permute_axes() {
    for (int d = 0; d < now_.rank; ++d) {
      if (common(d)) continue;
      AxisList& list = now_.dims[d];
      AxisList order;
      unsigned fresh = 0;
      for (std::size_t i = 0; i < to_.dims[d].size(); ++i) {
        const std::uint8_t axis = to_.dims[d][i];
        const bool replica = !now_.uses(axis);
        if (!list.contains(axis) && !(replica && list.size() + 1 <= AxisList::capacity())) break;
        if (replica) {
          if (list.size() == AxisList::capacity()) break;
          list.push_back(axis);
          fresh |= 1u << axis;
        }
        order.push_back(axis);
      }
      if (fresh) add(Collective::slice, fresh, bytes());
      for (std::uint8_t axis : list)
        if (!order.contains(axis) && !moves_on(axis, d)) order.push_back(axis);
      for (std::uint8_t axis : list)
        if (!order.contains(axis)) order.push_back(axis);
      if (order == list) {
        if (fresh) return true;
        continue;
      }
      unsigned axes = 0;
      for (std::size_t i = 0; i < list.size(); ++i)
        if (list[i] != order[i]) axes |= 1u << list[i];
      list = order;
      add(Collective::permute, axes, bytes());
      return true;
    }
    return false;
  }
  constexpr bool moves_on(int axis, int except) const {
    const int d = home_of(axis);
    return d >= 0 && d != except;
  }
  constexpr bool reduce() {
    const unsigned axes = pending();
    if (!axes) return false;
    // All remaining unreduced axes at once: no scatter can take them any more.
    now_.unreduced = static_cast<std::uint16_t>(now_.unreduced & ~axes);
    add(Collective::all_reduce, axes, bytes());
    return true;
  }
  /// all_gather of the axes of one dim that are not where the target has them.
  constexpr bool gather() {
    for (int d = 0; d < now_.rank; ++d) {
      AxisList& list = now_.dims[d];
      if (common(d)) continue;
      unsigned axes = 0;
      const std::size_t keep = kept(d);
      while (list.size() > keep) {
        axes |= 1u << list.back();
        list.pop_back();
      }
      add(Collective::all_gather, axes, bytes());
      return true;
    }
    return false;
  }
};

}  // namespace detail

/// The collectives that bring a value from one sharding to another; none when they are equal. Priorities are ignored.
/// Example: 12 rows from {x} to {x,y} on 4 x 4 devices are a slice and a permute of the rows that devices lack then.
/// Axes unreduced only in `from` are reduced, if possible by a reduce_scatter onto a dim that `to` splits by them.
/// Source: the order of collectives follows GSPMD's resharding: slice, permute, all_to_all, all_gather.
constexpr Growable<CollectiveInfo> reshard_path(const Shape& shape, DType dtype, const Mesh& mesh, const Sharding& from,
                                                const Sharding& to) {
  const Sharding target = canonical(to, mesh);
  return detail::ReshardPath(shape, dtype, mesh, canonical(from, mesh), target).steps;
}

constexpr std::int64_t wire_bytes(const Growable<CollectiveInfo>& path) {
  std::int64_t total = 0;
  for (const CollectiveInfo& step : path) total += step.wire_bytes;
  return total;
}

/// Whether two canonical shardings put the same elements on the same devices.
constexpr bool lies_alike(const Sharding& x, const Sharding& y) {
  if (x.rank != y.rank || x.unreduced != y.unreduced || (x.unreduced != 0 && x.reduction != y.reduction)) return false;
  for (int d = 0; d < x.rank; ++d)
    if (!(x.dims[d] == y.dims[d])) return false;
  return true;
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
