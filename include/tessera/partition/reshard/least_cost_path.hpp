#ifndef TESSERA_PARTITION_RESHARD_LEAST_COST_PATH_HPP
#define TESSERA_PARTITION_RESHARD_LEAST_COST_PATH_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/partition/reshard/reshard_path.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

/// Dijkstra's search over all shardings of a tensor. The cost is bytes on the wire first, then the number of
/// collectives.
class LeastCostPath {
 public:
  Growable<CollectiveInfo> steps;

  LeastCostPath(const Shape& shape, DType dtype, const Mesh& mesh, const Sharding& from, const Sharding& to)
      : shape_(shape), dtype_(dtype), mesh_(mesh), to_(to.without_priority()) {
    reach(from.without_priority(), {}, -1, {}, {});
    for (;;) {
      const int at = cheapest();
      if (at < 0)
        fail(errc::graph_invalid,
             "[reshard] path: a value that is not partial can't become partial, and ranks must be equal");
      if (lies_alike(nodes_[size(at)].sharding, to_)) {
        collect(at);
        return;
      }
      nodes_[size(at)].settled = true;
      const Sharding here = nodes_[size(at)].sharding;  // a copy: nodes_ grows below
      slices(here, at);
      gathers_and_exchanges(here, at);
      reductions(here, at);
      permutations(here, at);
    }
  }

 private:
  struct Cost {
    std::int64_t bytes = 0;
    int collectives = 0;
    friend bool operator<(const Cost& a, const Cost& b) {
      return a.bytes < b.bytes || (a.bytes == b.bytes && a.collectives < b.collectives);
    }
  };
  struct PathNode {
    Sharding sharding;
    Cost cost;
    int before = -1;
    CollectiveInfo step, shift;  ///< `shift`: see uneven_shift
    bool settled = false;
  };
  const Shape& shape_;
  DType dtype_;
  const Mesh& mesh_;
  Sharding to_;
  Growable<PathNode> nodes_;

  static std::size_t size(int i) { return static_cast<std::size_t>(i); }
  std::int64_t bytes(const Sharding& s) const { return local_bytes(shape_, s, mesh_, dtype_); }

  int cheapest() const {
    int best = -1;
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (!nodes_[i].settled && (best < 0 || nodes_[i].cost < nodes_[size(best)].cost)) best = static_cast<int>(i);
    return best;
  }
  void reach(const Sharding& sharding, const Cost& cost, int before, const CollectiveInfo& step,
             const CollectiveInfo& shift) {
    for (PathNode& node : nodes_) {
      if (!lies_alike(node.sharding, sharding)) continue;
      if (!node.settled && cost < node.cost) {
        node.cost = cost;
        node.before = before;
        node.step = step;
        node.shift = shift;
      }
      return;
    }
    nodes_.push_back({sharding, cost, before, step, shift, false});
  }
  void move(int at, const Sharding& sharding, Collective kind, unsigned axes, std::int64_t payload) {
    CollectiveInfo made;
    made.kind = kind;
    made.axes = static_cast<std::uint16_t>(axes);
    made.dtype = dtype_;
    made.payload_bytes = payload;
    made.wire_bytes = ring_bytes(kind, payload, devices_on(mesh_, axes));
    Cost cost = nodes_[size(at)].cost;
    CollectiveInfo shift;
    if (kind != Collective::permute && kind != Collective::all_reduce)
      shift = uneven_shift(shape_, dtype_, mesh_, nodes_[size(at)].sharding, sharding);
    cost.bytes += made.wire_bytes + shift.wire_bytes;
    // A slice sends nothing. It costs a little so that, of two paths with equal bytes, that without it wins.
    cost.collectives += (kind == Collective::slice ? 1 : 1000) + (shift.wire_bytes != 0 ? 1000 : 0);
    reach(sharding, cost, at, made, shift);
  }
  void collect(int at) {
    Growable<CollectiveInfo> reversed;
    for (; nodes_[size(at)].before >= 0; at = nodes_[size(at)].before) {
      if (nodes_[size(at)].shift.wire_bytes != 0) reversed.push_back(nodes_[size(at)].shift);
      reversed.push_back(nodes_[size(at)].step);
    }
    for (std::size_t i = reversed.size(); i > 0; --i) steps.push_back(reversed[i - 1]);
  }

  void slices(const Sharding& s, int at) {
    for (int axis = 0; axis < mesh_.rank(); ++axis)
      for (int d = 0; d < s.rank && !s.uses(axis); ++d) {
        if (s.dims[d].size() == AxisList::capacity()) continue;
        Sharding made = s;
        made.dims[d].push_back(static_cast<std::uint8_t>(axis));
        move(at, made, Collective::slice, 1u << axis, bytes(made));
      }
  }
  /// The last axes of a dim are gathered (all_gather), or moved to the end of another dim (all_to_all).
  void gathers_and_exchanges(const Sharding& s, int at) {
    for (int d = 0; d < s.rank; ++d) {
      Sharding made = s;
      unsigned axes = 0;
      while (!made.dims[d].empty()) {
        axes |= 1u << made.dims[d].back();
        made.dims[d].pop_back();
        move(at, made, Collective::all_gather, axes, bytes(made));
        const std::size_t kept = made.dims[d].size(), moved = s.dims[d].size() - kept;
        for (int to = 0; to < s.rank; ++to) {
          if (to == d || made.dims[to].size() + moved > AxisList::capacity()) continue;
          Sharding exchanged = made;
          for (std::size_t i = kept; i < s.dims[d].size(); ++i) exchanged.dims[to].push_back(s.dims[d][i]);
          move(at, exchanged, Collective::all_to_all, axes,
               checked_product(bytes(s), devices_on(mesh_, axes), "bytes"));
        }
      }
    }
  }
  void reductions(const Sharding& s, int at) {
    const unsigned pending = s.unreduced & ~unsigned{to_.unreduced};
    for (unsigned axes = pending; axes != 0; axes = (axes - 1) & pending) {
      Sharding made = s;
      made.unreduced = static_cast<std::uint16_t>(s.unreduced & ~axes);
      move(at, made, Collective::all_reduce, axes, bytes(s));
      for (int d = 0; d < s.rank; ++d) scatter(s, made, d, axes, axes, at);
    }
  }
  /// reduce_scatter onto the end of a dim, in every order of the axes.
  void scatter(const Sharding& s, const Sharding& made, int d, unsigned left, unsigned axes, int at) {
    if (left == 0) return move(at, made, Collective::reduce_scatter, axes, bytes(s));
    if (made.dims[d].size() == AxisList::capacity()) return;
    for (int axis = 0; axis < mesh_.rank(); ++axis) {
      if (!(left >> axis & 1u)) continue;
      Sharding next = made;
      next.dims[d].push_back(static_cast<std::uint8_t>(axis));
      scatter(s, next, d, left & ~(1u << axis), axes, at);
    }
  }
  /// Every sharding that has the same number of shards along each dim: devices swap their shards.
  void permutations(const Sharding& s, int at) {
    Sharding empty = s;
    for (int d = 0; d < s.rank; ++d) empty.dims[d] = {};
    permute(s, empty, 0, 1, at);
  }
  void permute(const Sharding& s, const Sharding& made, int d, int count, int at) {
    if (d == s.rank) {
      if (lies_alike(made, s)) return;
      unsigned axes = 0;
      for (int dim = 0; dim < s.rank; ++dim)
        for (std::size_t i = 0; i < s.dims[dim].size() || i < made.dims[dim].size(); ++i) {
          const int before = i < s.dims[dim].size() ? s.dims[dim][i] : -1;
          const int after = i < made.dims[dim].size() ? made.dims[dim][i] : -1;
          if (before == after) continue;
          if (before >= 0) axes |= 1u << before;
          if (after >= 0) axes |= 1u << after;
        }
      return move(at, made, Collective::permute, axes, bytes(s));
    }
    const int wanted = shard_count(s, mesh_, d);
    if (count == wanted) permute(s, made, d + 1, 1, at);
    if (made.dims[d].size() == AxisList::capacity()) return;
    for (int axis = 0; axis < mesh_.rank(); ++axis) {
      const int n = mesh_.axis_size(axis);
      if (made.uses(axis) || n == 1 || wanted % (count * n) != 0) continue;
      Sharding next = made;
      next.dims[d].push_back(static_cast<std::uint8_t>(axis));
      permute(s, next, d, count * n, at);
    }
  }
};

}  // namespace detail

/// The sequence of collectives from one sharding to another that sends the fewest bytes, and of those the shortest. The
/// search is exponential in the number of axes and dims, so plans use reshard_path. On meshes of more than three
/// axes, or for tensors of more than four dims, this calls reshard_path as well.
inline Growable<CollectiveInfo> least_cost_path(const Shape& shape, DType dtype, const Mesh& mesh, const Sharding& from,
                                                const Sharding& to) {
  if (mesh.rank() > 3 || shape.size() > 4) return reshard_path(shape, dtype, mesh, from, to);
  return detail::LeastCostPath(shape, dtype, mesh, canonical(from, mesh), canonical(to, mesh)).steps;
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
