#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "exhaustive.hpp"
#include <gtest/gtest.h>

#include <tessera/partition/reshard/reshard_path.hpp>

namespace {

namespace ts = tessera;
using ts::AxisList;
using ts::Collective;
using ts::Sharding;
using ts::tests::Exhaustive;

struct Comparison {
  int pairs = 0, optimal = 0;
  double worst = 1;
  std::string worst_text;
};

Comparison compare(const ts::Mesh& mesh, const ts::Shape& shape) {
  const Exhaustive exhaustive(mesh, shape);
  Comparison result;
  for (const Sharding& from : exhaustive.states()) {
    const std::vector<std::int64_t> best = exhaustive.costs_from(from);
    for (std::size_t i = 0; i < best.size(); ++i) {
      const Sharding& to = exhaustive.states()[i];
      if (to.unreduced != 0) continue;
      const std::int64_t cost = ts::wire_bytes(ts::reshard_path(shape, ts::DType::f32, mesh, from, to));
      ++result.pairs;
      EXPECT_GE(cost, best[i]) << ts::text(from, mesh) << " to " << ts::text(to, mesh);
      if (cost == best[i]) {
        ++result.optimal;
      } else if (best[i] == 0 || static_cast<double>(cost) / static_cast<double>(best[i]) > result.worst) {
        result.worst = best[i] == 0 ? 1e9 : static_cast<double>(cost) / static_cast<double>(best[i]);
        result.worst_text = ts::text(from, mesh) + " to " + ts::text(to, mesh) + ": " + std::to_string(cost) +
                            " against " + std::to_string(best[i]);
      }
    }
  }
  return result;
}

TEST(ReshardPath, OneAxisIsOptimal) {
  for (int n : {2, 3, 4, 8}) {
    const ts::Mesh mesh({{"x", n}});
    const Comparison found = compare(mesh, {48, 24});
    EXPECT_EQ(found.optimal, found.pairs) << found.worst_text;
  }
}

// Several axes: the path is found without a search, so that it costs nothing to plan. It stays close to the optimum.
TEST(ReshardPath, SeveralAxesAreCloseToOptimal) {
  for (const ts::Mesh& mesh :
       {ts::Mesh({{"x", 2}, {"y", 2}}), ts::Mesh({{"x", 2}, {"y", 4}}), ts::Mesh({{"x", 4}, {"y", 2}})}) {
    const Comparison found = compare(mesh, {64, 64});
    EXPECT_GE(found.optimal * 5, found.pairs * 4) << mesh.text();
    EXPECT_LT(found.worst, 2.3) << found.worst_text;
  }
  const Comparison cube = compare(ts::Mesh({{"x", 2}, {"y", 2}, {"z", 2}}), {64, 64});
  EXPECT_GE(cube.optimal * 2, cube.pairs);
  EXPECT_LT(cube.worst, 4) << cube.worst_text;
}

std::string names(const ts::Mesh& mesh, const ts::Shape& shape, const Sharding& from, const Sharding& to) {
  std::string out;
  for (const ts::CollectiveInfo& c : ts::reshard_path(shape, ts::DType::f32, mesh, from, to))
    out += std::string(out.empty() ? "" : " ") + std::string(ts::name_of(c.kind)) + ":" +
           std::to_string(c.payload_bytes) + ":" + std::to_string(c.wire_bytes);
  return out;
}

TEST(ReshardPath, TheUsualOnesAreOneCollective) {
  const ts::Mesh mesh({{"d", 2}, {"m", 4}});
  const ts::Shape shape{64, 32};  // 8,192 bytes
  const auto spec = [&](ts::PartitionSpec s) { return ts::resolve(s, mesh, 2); };
  const auto partial = [&](ts::PartitionSpec s, unsigned axes) {
    Sharding made = ts::resolve(s, mesh, 2);
    made.unreduced = static_cast<std::uint16_t>(axes);
    return made;
  };
  EXPECT_EQ(names(mesh, shape, spec({}), spec({})), "");
  EXPECT_EQ(names(mesh, shape, spec({}), spec({"d", "m"})), "slice:1024:0");
  EXPECT_EQ(names(mesh, shape, spec({"d", "m"}), spec({"d"})), "all_gather:4096:3072");
  EXPECT_EQ(names(mesh, shape, spec({{"d", "m"}}), spec({})), "all_gather:8192:7168");
  EXPECT_EQ(names(mesh, shape, spec({"d", "m"}), spec({{"d", "m"}})), "all_to_all:4096:768");
  EXPECT_EQ(names(mesh, shape, partial({"d"}, 2), spec({"d"})), "all_reduce:4096:6144");
  EXPECT_EQ(names(mesh, shape, partial({"d"}, 2), spec({"d", "m"})), "reduce_scatter:4096:3072");
  EXPECT_EQ(names(mesh, shape, partial({}, 3), spec({})), "all_reduce:8192:14336");
  EXPECT_EQ(names(mesh, shape, partial({}, 3), spec({"m"})), "reduce_scatter:8192:6144 all_reduce:2048:2048");
  EXPECT_EQ(names(mesh, shape, partial({}, 3), partial({}, 1)), "all_reduce:8192:12288");
  EXPECT_EQ(names(mesh, shape, spec({{"d", "m"}}), spec({{"m", "d"}})), "permute:1024:1024");
}

TEST(ReshardPath, UnevenShardsCountTheLargest) {
  const ts::Mesh mesh({{"x", 4}});
  const Sharding split = ts::resolve({"x"}, mesh, 1), whole = ts::replicated(1);
  EXPECT_EQ(names(mesh, {10}, split, whole), "all_gather:40:30");
  EXPECT_EQ(ts::local_bytes({10}, split, mesh, ts::DType::f32), 12);
  EXPECT_EQ(ts::local_extents({3}, split, mesh), ts::Shape{1});
}

// Of 12 rows on 4 x 4 devices, chunks of {x,y} are not within those of {x}.
TEST(ReshardPath, UnevenShardsOfSeveralAxesShift) {
  const ts::Mesh mesh({{"x", 4}, {"y", 4}});
  const Sharding rows = ts::resolve({"x"}, mesh, 1), both = ts::resolve({{"x", "y"}}, mesh, 1);
  EXPECT_EQ(names(mesh, {12}, rows, both), "slice:4:0 permute:4:4");
  EXPECT_EQ(names(mesh, {12}, both, rows), "all_gather:12:9 permute:12:12");
  EXPECT_EQ(names(mesh, {12}, both, ts::replicated(1)), "all_gather:48:45");
  EXPECT_EQ(names(mesh, {16}, rows, both), "slice:4:0");
  EXPECT_EQ(names(mesh, {15}, rows, both), "slice:4:0");
}

TEST(ReshardPath, RowsLackingAreThoseOfTheDeviceThatLacksMost) {
  for (std::int64_t extent = 0; extent < 70; ++extent)
    for (std::int64_t outer = 1; outer < 8; ++outer)
      for (std::int64_t inner = 1; inner < 8; ++inner) {
        std::int64_t sliced = 0, gathered = 0;
        for (std::int64_t i = 0; i < outer; ++i)
          for (std::int64_t j = 0; j < inner; ++j) {
            const ts::IndexRange wide = ts::chunk_of(extent, outer, i);
            const ts::IndexRange narrow = ts::chunk_of(extent, outer * inner, i * inner + j);
            sliced = std::max(sliced, narrow.size() - narrow.within(wide).size());
            std::int64_t lacking = wide.size();
            for (std::int64_t k = 0; k < inner; ++k)
              lacking -= ts::chunk_of(extent, outer * inner, i * inner + k).within(wide).size();
            gathered = std::max(gathered, lacking);
          }
        ASSERT_EQ(ts::rows_lacking_after_slice(extent, outer, inner), sliced) << extent << " " << outer << " " << inner;
        ASSERT_EQ(ts::rows_lacking_after_gather(extent, outer, inner), gathered)
            << extent << " " << outer << " " << inner;
      }
}

TEST(ReshardPath, NothingReducedBecomesPartial) {
  const ts::Mesh mesh({{"x", 4}});
  Sharding partial = ts::replicated(1);
  partial.unreduced = 1;
  try {
    ts::reshard_path({8}, ts::DType::f32, mesh, ts::replicated(1), partial);
    FAIL() << "a partial value was made of a whole one";
  } catch (const ts::error& e) {
    EXPECT_EQ(e.id(), ts::errc::graph_invalid);
  }
}

TEST(ReshardPath, RingBytesAreThoseOfTheLiterature) {
  EXPECT_EQ(ts::ring_bytes(Collective::all_reduce, 2097152, 4), 3145728);
  EXPECT_EQ(ts::ring_bytes(Collective::all_gather, 1024, 4), 768);
  EXPECT_EQ(ts::ring_bytes(Collective::reduce_scatter, 1024, 4), 768);
  EXPECT_EQ(ts::ring_bytes(Collective::all_to_all, 1024, 4), 192);
  EXPECT_EQ(ts::ring_bytes(Collective::permute, 1024, 4), 1024);
  EXPECT_EQ(ts::ring_bytes(Collective::all_reduce, 1024, 1), 0);
}

}  // namespace
