#include <cstdint>
#include <random>
#include <vector>

#include "../base/expect_error.hpp"
#include "random_tensor.hpp"
#include <gtest/gtest.h>

#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/reshard.hpp>

namespace ts = tessera;
using tessera_test::expect_error;

TEST(reshard, the_value_stays_on_every_layout_and_mesh) {
  std::mt19937 random(6);
  for (int round = 0; round < 300; ++round) {
    const auto from = tessera_test::random_spec_layout(random, 2);
    const ts::Mesh other = tessera_test::random_mesh(random);
    std::vector<int> values;
    for (std::int64_t i = 0; i < ts::volume(from.shape); ++i) values.push_back(static_cast<int>(random() % 1000));

    const auto x = ts::shard<2>(values, from.shape, from.mesh, from.spec);
    for (const ts::Mesh& mesh : {from.mesh, other}) {
      const ts::PartitionSpec spec = ts::spec_of(tessera_test::random_sharding(random, mesh, 2, false), mesh);
      const auto y = ts::reshard(x, mesh, spec);
      ASSERT_EQ(ts::mesh(y), mesh);
      ASSERT_EQ(ts::sharding(y), ts::resolve(spec, mesh, 2));
      ASSERT_EQ(ts::to_host(y), values) << ts::sharded_type_text(x) << " to " << ts::sharded_type_text(y);
    }
  }
}

TEST(reshard, the_same_layout_shares_its_memory) {
  const ts::Mesh mesh({{"x", 2}});
  const auto x = ts::zeros<float>({8}, mesh, {"x"});
  EXPECT_EQ(&ts::storage_of(ts::reshard(x, {"x"})), &ts::storage_of(x));
  EXPECT_NE(&ts::storage_of(ts::reshard(x, {})), &ts::storage_of(x));
}

TEST(reshard, mistakes_are_named_with_the_line) {
  const ts::Mesh mesh({{"x", 2}});
  const auto x = ts::zeros<float>({8}, mesh, {"x"});
  expect_error(
      ts::errc::spec_axis, [&] { ts::reshard(x, {"y"}); }, "'y'", "reshard", "reshard_test.cpp:");
  expect_error(ts::errc::empty_tensor, [&] { ts::reshard(ts::ShardedTensor<float, 1>(), {"x"}); });
}
