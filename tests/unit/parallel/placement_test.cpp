#include <cstdint>
#include <random>
#include <vector>

#include "../base/expect_error.hpp"
#include "../mesh/random_layout.hpp"
#include <gtest/gtest.h>

#include <tessera/parallel/placement.hpp>

namespace ts = tessera;
using tessera_test::expect_error;

namespace {

constexpr ts::Mesh mesh({{"dp", 2}, {"tp", 2}});

std::vector<std::int64_t> ranges(const ts::Placements& placements, std::int64_t n, const ts::Mesh& on = mesh) {
  std::vector<std::int64_t> out;
  for (int device = 0; device < on.size(); ++device) {
    const ts::Box box = ts::placed_box({n}, placements, on, on.coordinates_of(device));
    out.push_back(box.begin[0]);
    out.push_back(box.end[0]);
  }
  return out;
}
using Ranges = std::vector<std::int64_t>;

TEST(placement, chunks_are_those_of_torch_chunk) {
  // torch.chunk(arange(n), 4) has pieces of ceil(n/4), and fewer pieces when there are not enough.
  const ts::Mesh four({{"x", 4}});
  EXPECT_EQ(ranges({ts::Shard(0)}, 10, four), (Ranges{0, 3, 3, 6, 6, 9, 9, 10}));
  EXPECT_EQ(ranges({ts::Shard(0)}, 5, four), (Ranges{0, 2, 2, 4, 4, 5, 5, 5}));
  EXPECT_EQ(ranges({ts::Shard(0)}, 2, four), (Ranges{0, 1, 1, 2, 2, 2, 2, 2}));
  EXPECT_EQ(ranges({ts::Shard(0)}, 0, four), (Ranges{0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(ranges({ts::Replicate()}, 5, four), (Ranges{0, 5, 0, 5, 0, 5, 0, 5}));
  EXPECT_EQ(ranges({ts::Partial()}, 5, four), (Ranges{0, 5, 0, 5, 0, 5, 0, 5}));
}

TEST(placement, nested_splits_cut_what_is_left) {
  // 5 rows: 3 and 2, then 2 and 1, and 1 and 1. As one split by four: 2, 2, 1 and none.
  EXPECT_EQ(ranges({ts::Shard(0), ts::Shard(0)}, 5), (Ranges{0, 2, 2, 3, 3, 4, 4, 5}));
  const ts::Sharding merged = ts::resolve({{"dp", "tp"}}, mesh, 1);
  EXPECT_EQ(ts::shard_box({5}, merged, mesh, {1, 1}), (ts::Box{{5}, {5}}));
  const ts::Mesh wide({{"a", 2}, {"b", 3}});
  EXPECT_EQ(ranges({ts::Shard(0), ts::Shard(0)}, 7, wide), (Ranges{0, 2, 2, 4, 7, 7, 4, 5, 5, 6, 6, 7}));
}

TEST(placement, a_strided_split_comes_after_those_to_its_right) {
  // FSDP over a weight that is tensor parallel: tp cuts first, dp cuts its halves.
  EXPECT_EQ(ranges({ts::StridedShard(0, 2), ts::Shard(0)}, 8), (Ranges{0, 2, 4, 6, 2, 4, 6, 8}));
  EXPECT_EQ(ranges({ts::Shard(0), ts::Shard(0)}, 8), (Ranges{0, 2, 2, 4, 4, 6, 6, 8}));
  EXPECT_EQ(ranges({ts::StridedShard(0, 1), ts::Replicate()}, 4), (Ranges{0, 2, 0, 2, 2, 4, 2, 4}));
}

// compute_local_shape_and_global_offset of PyTorch: a chunk of nothing begins where the whole dim ends.
TEST(placement, empty_chunks_are_at_the_end_of_the_dim) {
  const ts::Mesh on({{"a", 4}, {"b", 2}});
  // Halves of 9, of which three chunks of 3 leave nothing for the fourth.
  EXPECT_EQ(ranges({ts::StridedShard(0, 2), ts::Shard(0)}, 18, on),
            (Ranges{0, 3, 9, 12, 3, 6, 12, 15, 6, 9, 15, 18, 18, 18, 18, 18}));
  // Chunks of 2, 2, 1 and none, each cut in two.
  EXPECT_EQ(ranges({ts::Shard(0), ts::Shard(0)}, 5, on), (Ranges{0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5, 5, 5, 5, 5}));
  EXPECT_EQ(ranges({ts::Shard(0), ts::Shard(0)}, 4, on), (Ranges{0, 1, 4, 4, 1, 2, 4, 4, 2, 3, 4, 4, 3, 4, 4, 4}));
}

TEST(placement, even_chunks_are_those_of_a_sharding) {
  std::mt19937 random(8);
  int compared = 0;
  for (int round = 0; round < 500; ++round) {
    const ts::Mesh on = tessera_test::random_mesh(random);
    const ts::Sharding sharding = tessera_test::random_sharding(random, on, 2, true);
    ts::Placements placements;
    try {
      placements = ts::placements_of(sharding, on);
    } catch (const ts::error& e) {
      EXPECT_EQ(e.id(), ts::errc::unsupported);
      continue;
    }
    ++compared;
    ASSERT_EQ(ts::sharding_of(placements, on, 2), sharding) << ts::text(placements);
    ASSERT_EQ(ts::normalized(placements, on, 2, "test"), placements);
    const ts::Shape shape{144, 432};  // divided by every product of axes
    for (int device = 0; device < on.size(); ++device) {
      const ts::Coordinates at = on.coordinates_of(device);
      ASSERT_EQ(ts::placed_box(shape, placements, on, at), ts::shard_box(shape, sharding, on, at));
    }
  }
  EXPECT_GT(compared, 300);
}

TEST(placement, prints_as_dtensor_does) {
  EXPECT_EQ(ts::text({ts::Shard(0), ts::Replicate(), ts::Partial(), ts::Partial(ts::ReduceOp::avg)}),
            "(S(0), R, P(sum), P(avg))");
  EXPECT_EQ(ts::text({ts::StridedShard(1, 2)}), "(_S(1, 2))");
}

TEST(placement, mistakes_are_named) {
  const auto check = [](const ts::Placements& p) { return ts::normalized(p, mesh, 2, "redistribute"); };
  EXPECT_EQ(check({ts::Shard(-1), ts::Replicate()})[0], ts::Shard(1));
  expect_error(
      ts::errc::structure, [&] { check({ts::Shard(0)}); },
      "[redistribute] one placement for each mesh axis: (S(0)) for mesh(dp=2,tp=2)");
  expect_error(
      ts::errc::dim_range,
      [&] {
        check({ts::Shard(2), ts::Replicate()});
      },
      "[redistribute] dim of a placement: 2 is out of range in (S(2), R) for a tensor of rank 2");
  for (const int dim : {-3, 256, -256, 1 << 16})
    expect_error(
        ts::errc::dim_range,
        [&] {
          check({ts::Shard(dim), ts::Replicate()});
        },
        ts::concat_text("dim of a placement: ", dim, " is out of range"));
  expect_error(
      ts::errc::unsupported,
      [&] {
        check({ts::StridedShard(0, 3), ts::Shard(0)});
      },
      "split_factor of a StridedShard: 3 in (_S(0, 3), S(0)), but the mesh axes to its right split the dim into 2 "
      "chunks");
  using enum ts::ReduceOp;
  expect_error(
      ts::errc::unsupported,
      [&] {
        check({ts::Partial(sum), ts::Partial(max)});
      },
      "(P(sum), P(max))");
  expect_error(
      ts::errc::unsupported,
      [&] {
        check({ts::Partial(min), ts::Partial(max)});
      },
      "sum and avg may be combined, all others must be equal: (P(min), P(max))");
  EXPECT_NO_THROW(check({ts::Partial(sum), ts::Partial(avg)}));
  EXPECT_NO_THROW(check({ts::Partial(product), ts::Partial(product)}));
  const ts::Mesh cube({{"a", 2}, {"b", 2}, {"c", 2}});
  expect_error(
      ts::errc::unsupported,
      [&] {
        ts::placements_of(ts::resolve({{"c", "a", "b"}}, cube, 1), cube);
      },
      "[placement] placements of a sharding: no placements express the order of the axes of {(c,a,b)}");
}

}  // namespace
