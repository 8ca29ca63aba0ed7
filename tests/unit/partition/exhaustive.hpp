#ifndef TESSERA_TESTS_PARTITION_EXHAUSTIVE_HPP
#define TESSERA_TESTS_PARTITION_EXHAUSTIVE_HPP

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include <tessera/partition/reshard/reshard_path.hpp>

namespace tessera::tests {

/// Every sharding of a tensor of this rank over a mesh; `partial`: with unreduced axes too.
inline std::vector<Sharding> all_shardings(const Mesh& mesh, int rank, bool partial) {
  std::vector<Sharding> found{replicated(rank)};
  std::vector<Sharding> last = found;
  // Axes are appended one after another, in every order, so that every list of every dim comes up.
  std::map<std::string, bool> seen{{text(last[0], mesh), true}};
  while (!last.empty()) {
    std::vector<Sharding> next;
    for (const Sharding& s : last)
      for (int axis = 0; axis < mesh.rank(); ++axis) {
        if (s.uses(axis)) continue;
        for (int d = 0; d <= rank; ++d) {
          Sharding made = s;
          if (d < rank)
            made.dims[d].push_back(static_cast<std::uint8_t>(axis));
          else if (partial)
            made.unreduced = static_cast<std::uint16_t>(made.unreduced | 1u << axis);
          else
            continue;
          if (seen.emplace(text(made, mesh), true).second) next.push_back(made);
        }
      }
    found.insert(found.end(), next.begin(), next.end());
    last = next;
  }
  return found;
}

inline bool same_shards(const Sharding& a, const Sharding& b, const Mesh& mesh) {
  for (int d = 0; d < a.rank; ++d)
    if (shard_count(a, mesh, d) != shard_count(b, mesh, d)) return false;
  return true;
}

/// The cheapest collectives between two shardings, by Dijkstra's search over all shardings: bytes that a device sends.
class Exhaustive {
 public:
  Exhaustive(const Mesh& mesh, const Shape& shape)
      : mesh_(mesh), shape_(shape), states_(all_shardings(mesh, static_cast<int>(shape.size()), true)) {
    for (std::size_t i = 0; i < states_.size(); ++i) index_[text(states_[i], mesh)] = i;
  }

  const std::vector<Sharding>& states() const { return states_; }

  std::vector<std::int64_t> costs_from(const Sharding& from) const {
    std::vector<std::int64_t> cost(states_.size(), -1);
    using Item = std::pair<std::int64_t, std::size_t>;
    std::priority_queue<Item, std::vector<Item>, std::greater<>> open;
    open.push({0, index_.at(text(from, mesh_))});
    while (!open.empty()) {
      const auto [paid, at] = open.top();
      open.pop();
      if (cost[at] >= 0) continue;
      cost[at] = paid;
      for_each_move(states_[at], [&](const Sharding& to, std::int64_t price) {
        open.push({paid + price + shift(states_[at], to), index_.at(text(to, mesh_))});
      });
    }
    return cost;
  }

 private:
  Mesh mesh_;
  Shape shape_;
  std::vector<Sharding> states_;
  std::map<std::string, std::size_t> index_;

  std::int64_t bytes(const Sharding& s) const { return local_bytes(shape_, s, mesh_, DType::f32); }
  std::int64_t ring(Collective kind, std::int64_t payload, unsigned axes) const {
    return ring_bytes(kind, payload, devices_on(mesh_, axes));
  }

  /// Bytes that a collective from one sharding to another lacks where several axes split a dim unevenly: the rows that
  /// some device has neither before it, nor from the devices that differ from it only along the axes of the collective.
  std::int64_t shift(const Sharding& from, const Sharding& to) const {
    std::int64_t bytes = 0;
    for (int d = 0; d < from.rank; ++d) {
      const bool grows = from.dims[d].size() < to.dims[d].size();
      if (from.dims[d].size() == to.dims[d].size()) continue;
      const std::int64_t extent = shape_[static_cast<std::size_t>(d)];
      const int few = shard_count(grows ? from : to, mesh_, d), many = shard_count(grows ? to : from, mesh_, d);
      const auto owner = [&](std::int64_t row, int count) { return row / ((extent + count - 1) / count); };
      std::vector<std::int64_t> lacking(static_cast<std::size_t>(many), 0);  // by shard of the finer split
      for (std::int64_t row = 0; row < extent; ++row) {
        const std::int64_t fine = owner(row, many), coarse = owner(row, few);
        if (fine / (many / few) == coarse) continue;
        if (grows)
          ++lacking[static_cast<std::size_t>(fine)];
        else
          ++lacking[static_cast<std::size_t>(coarse)];
      }
      Shape slab = local_extents(shape_, to, mesh_);
      slab[static_cast<std::size_t>(d)] = *std::max_element(lacking.begin(), lacking.end());
      bytes += volume(slab) * 4;
    }
    return bytes;
  }

  template <class F> void for_each_move(const Sharding& s, F&& move) const {
    for (int axis = 0; axis < mesh_.rank(); ++axis) {
      if (s.uses(axis)) continue;
      for (int d = 0; d < s.rank; ++d) {
        Sharding made = s;
        made.dims[d].push_back(static_cast<std::uint8_t>(axis));
        move(made, 0);
      }
    }
    for (int d = 0; d < s.rank; ++d) {
      Sharding made = s;
      unsigned axes = 0;
      while (!made.dims[d].empty()) {
        axes |= 1u << made.dims[d].back();
        made.dims[d].pop_back();
        move(made, ring(Collective::all_gather, bytes(made), axes));
        for (int to = 0; to < s.rank; ++to) {
          if (to == d) continue;
          Sharding moved = made;
          for (std::size_t i = made.dims[d].size(); i < s.dims[d].size(); ++i) moved.dims[to].push_back(s.dims[d][i]);
          move(moved, ring(Collective::all_to_all, bytes(s) * devices_on(mesh_, axes), axes));
        }
      }
    }
    for (unsigned axes = 1; axes < 1u << mesh_.rank(); ++axes) {
      if ((axes & s.unreduced) != axes) continue;
      Sharding made = s;
      made.unreduced = static_cast<std::uint16_t>(s.unreduced & ~axes);
      move(made, ring(Collective::all_reduce, bytes(s), axes));
      // Scattered onto one dim, in either order of two axes.
      std::vector<int> list;
      for (int axis = 0; axis < mesh_.rank(); ++axis)
        if (axes >> axis & 1u) list.push_back(axis);
      for (int d = 0; d < s.rank; ++d) {
        std::sort(list.begin(), list.end());
        do {
          Sharding scattered = made;
          for (int axis : list) scattered.dims[d].push_back(static_cast<std::uint8_t>(axis));
          move(scattered, ring(Collective::reduce_scatter, bytes(s), axes));
        } while (std::next_permutation(list.begin(), list.end()));
      }
    }
    for (const Sharding& other : states_)
      if (other.unreduced == s.unreduced && same_shards(s, other, mesh_) && !(other == s)) move(other, bytes(s));
  }
};

}  // namespace tessera::tests

#endif
