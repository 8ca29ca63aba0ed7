#include <string>
#include <vector>

#include "exhaustive.hpp"
#include <gtest/gtest.h>

#include <tessera/partition/reshard/least_cost_path.hpp>

namespace {

namespace ts = tessera;
using ts::Collective;
using ts::CollectiveInfo;
using ts::Sharding;

/// Finds the shardings that one collective can lead to, from the elements that each device has and can receive.
class Walk {
 public:
  Walk(const ts::Mesh& mesh, const ts::Shape& shape)
      : mesh_(mesh), shape_(shape), all_(ts::tests::all_shardings(mesh, static_cast<int>(shape.size()), true)) {}

  /// Whether the collectives, run one after another, bring a value from one sharding to another.
  bool leads(const ts::Growable<CollectiveInfo>& path, const Sharding& from, const Sharding& to) const {
    std::vector<Sharding> reached{from};
    for (const CollectiveInfo& step : path) {
      std::vector<Sharding> next;
      for (const Sharding& t : all_)
        for (const Sharding& s : reached)
          if (allowed(step, s, t)) {
            next.push_back(t);
            break;
          }
      reached = next;
    }
    for (const Sharding& s : reached)
      if (ts::lies_alike(s, to)) return true;
    return false;
  }

 private:
  ts::Mesh mesh_;
  ts::Shape shape_;
  std::vector<Sharding> all_;

  std::int64_t bytes(const Sharding& s) const { return ts::local_bytes(shape_, s, mesh_, ts::DType::f32); }
  ts::Box box(const Sharding& s, int device) const {
    return ts::shard_box(shape_, s, mesh_, mesh_.coordinates_of(device));
  }
  std::vector<int> group(int device, unsigned axes) const {
    std::vector<int> list;
    const ts::Coordinates own = mesh_.coordinates_of(device);
    for (int other = 0; other < mesh_.size(); ++other) {
      const ts::Coordinates at = mesh_.coordinates_of(other);
      bool same = true;
      for (int axis = 0; axis < mesh_.rank(); ++axis) same = same && ((axes >> axis & 1u) || at[axis] == own[axis]);
      if (same) list.push_back(other);
    }
    return list;
  }
  /// Whether boxes, each counted once, make up a box.
  static bool cover(std::vector<ts::Box> boxes, const ts::Box& whole) {
    std::int64_t left = ts::volume(ts::extents(whole));
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      bool seen = false;
      for (std::size_t j = 0; j < i; ++j) seen = seen || boxes[i] == boxes[j];
      if (!seen) left -= ts::volume(ts::extents(ts::intersect(boxes[i], whole)));
    }
    return left == 0;
  }

  bool allowed(const CollectiveInfo& c, const Sharding& s, const Sharding& t) const {
    const bool reduces = c.kind == Collective::all_reduce || c.kind == Collective::reduce_scatter;
    if (reduces ? (c.axes & ~s.unreduced) != 0 || t.unreduced != (s.unreduced & ~c.axes)
                : t.unreduced != s.unreduced || (c.axes & s.unreduced) != 0)
      return false;
    const std::int64_t n = ts::devices_on(mesh_, c.axes);
    const std::int64_t payload = c.kind == Collective::all_gather   ? bytes(t)
                                 : c.kind == Collective::all_to_all ? bytes(s) * n
                                 : c.kind == Collective::slice      ? bytes(t)
                                                                    : bytes(s);
    if (c.payload_bytes != payload || c.wire_bytes != ts::ring_bytes(c.kind, payload, n)) return false;
    for (int device = 0; device < mesh_.size(); ++device) {
      const ts::Box before = box(s, device), after = box(t, device);
      std::vector<ts::Box> theirs, results;
      bool whole = false;
      for (int other : group(device, c.axes)) {
        theirs.push_back(box(s, other));
        results.push_back(box(t, other));
        whole = whole || theirs.back() == after;
        if (reduces && !(theirs.back() == before)) return false;
      }
      switch (c.kind) {
        case Collective::all_reduce:
          if (!(after == before)) return false;
          break;
        case Collective::reduce_scatter:
          if (!cover(results, before) || ts::volume(ts::extents(after)) * n != ts::volume(ts::extents(before)))
            return false;
          break;
        case Collective::all_gather:
          if (!(ts::intersect(before, after) == before) || !cover(theirs, after)) return false;
          break;
        case Collective::all_to_all:
          if (!cover(theirs, after) || ts::volume(ts::extents(after)) != ts::volume(ts::extents(before))) return false;
          break;
        case Collective::permute:
          if (!whole) return false;
          break;
        case Collective::broadcast:
          return false;
        case Collective::slice:
          if (!(ts::intersect(before, after) == after)) return false;
          break;
      }
    }
    return true;
  }
};

std::string text_of(const ts::Growable<CollectiveInfo>& path, const ts::Mesh& mesh) {
  std::string text;
  for (const CollectiveInfo& c : path)
    text += ts::concat_text(ts::name_of(c.kind), " ", c.axes, " ", c.payload_bytes, "; ");
  return text + mesh.text();
}

const ts::Mesh small_meshes[]{ts::Mesh({{"x", 4}}), ts::Mesh({{"x", 2}, {"y", 2}}), ts::Mesh({{"x", 2}, {"y", 4}}),
                              ts::Mesh({{"x", 4}, {"y", 2}})};

TEST(LeastCostPath, MovesWhatTheExhaustiveSearchFindsAndNoMore) {
  for (const ts::Mesh& mesh : small_meshes)
    for (const ts::Shape& shape : {ts::Shape{64, 64}, ts::Shape{48, 16, 8}}) {
      const ts::tests::Exhaustive exhaustive(mesh, shape);
      for (const Sharding& from : exhaustive.states()) {
        const std::vector<std::int64_t> best = exhaustive.costs_from(from);
        for (std::size_t i = 0; i < best.size(); ++i) {
          const Sharding& to = exhaustive.states()[i];
          if (to.unreduced & ~unsigned{from.unreduced}) continue;
          // The search may reduce axes that the target keeps partial only if it need not make the value partial again.
          const auto path = ts::least_cost_path(shape, ts::DType::f32, mesh, from, to);
          ASSERT_EQ(ts::wire_bytes(path), best[i])
              << ts::text(from, mesh) << " to " << ts::text(to, mesh) << " by " << text_of(path, mesh);
        }
      }
    }
}

TEST(LeastCostPath, OfThreeAxesToo) {
  const ts::Mesh mesh({{"x", 2}, {"y", 2}, {"z", 2}});
  const ts::Shape shape{64, 64};
  const ts::tests::Exhaustive exhaustive(mesh, shape);
  for (std::size_t k = 0; k < exhaustive.states().size(); k += 7) {
    const Sharding& from = exhaustive.states()[k];
    const std::vector<std::int64_t> best = exhaustive.costs_from(from);
    for (std::size_t i = k % 3; i < best.size(); i += 3) {
      const Sharding& to = exhaustive.states()[i];
      if (to.unreduced & ~unsigned{from.unreduced}) continue;
      const auto path = ts::least_cost_path(shape, ts::DType::f32, mesh, from, to);
      ASSERT_EQ(ts::wire_bytes(path), best[i]) << ts::text(from, mesh) << " to " << ts::text(to, mesh);
    }
  }
}

// For the search and for the greedy path: devices can run the collectives, and these give the target sharding.
TEST(LeastCostPath, EveryPathCanBeCarriedOut) {
  for (const ts::Mesh& mesh : small_meshes) {
    const ts::Shape shape{64, 64};
    const Walk walk(mesh, shape);
    for (const Sharding& from : ts::tests::all_shardings(mesh, 2, true))
      for (const Sharding& to : ts::tests::all_shardings(mesh, 2, true)) {
        if (to.unreduced & ~unsigned{from.unreduced}) continue;
        for (const auto& path : {ts::least_cost_path(shape, ts::DType::f32, mesh, from, to),
                                 ts::reshard_path(shape, ts::DType::f32, mesh, from, to)})
          ASSERT_TRUE(walk.leads(path, from, to))
              << ts::text(from, mesh) << " to " << ts::text(to, mesh) << " by " << text_of(path, mesh);
      }
  }
}

TEST(LeastCostPath, TheUsualOnesAreOneCollective) {
  const ts::Mesh mesh({{"d", 2}, {"m", 4}});
  const auto names = [&](const Sharding& from, const ts::PartitionSpec& to) {
    std::string out;
    for (const CollectiveInfo& c : ts::least_cost_path({64, 32}, ts::DType::f32, mesh, from, ts::resolve(to, mesh, 2)))
      out += ts::concat_text(out.empty() ? "" : " ", ts::name_of(c.kind));
    return out;
  };
  const auto spec = [&](const ts::PartitionSpec& s) { return ts::resolve(s, mesh, 2); };
  Sharding partial = spec({"d"});
  partial.unreduced = 2;
  EXPECT_EQ(names(spec({"d"}), {"d"}), "");
  EXPECT_EQ(names(spec({}), {"d", "m"}), "slice slice");
  EXPECT_EQ(names(spec({"d", "m"}), {"d"}), "all_gather");
  EXPECT_EQ(names(spec({"d", "m"}), {{"d", "m"}}), "all_to_all");
  EXPECT_EQ(names(partial, {"d"}), "all_reduce");
  EXPECT_EQ(names(partial, {"d", "m"}), "reduce_scatter");
  EXPECT_EQ(names(spec({{"d", "m"}}), {{"m", "d"}}), "permute");
}

}  // namespace
