// The examples of docs/shard_map.md, section Collectives as functions, in its order. The last test compares the two
// texts.

#include <algorithm>
#include <cassert>
#include <string>
#include <vector>

#include "../../support/page.hpp"
#include <gtest/gtest.h>

#include <tessera/parallel/buckets.hpp>
#include <tessera/parallel/collectives.hpp>
#include <tessera/parallel/mesh_reduce.hpp>
#include <tessera/parallel/process_group.hpp>

namespace ts = tessera;
namespace tc = tessera::collective;

constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});

TEST(collectives_page, runs) {
  ts::LocalTensor<float, 1> x(mesh, [](int device) {
    return ts::LocalTensor<float, 1>::array({2}, std::vector<float>{device + 1.f, 1.f});
  });
  auto sum = tc::all_reduce(x);                              // {10, 4} on all four devices
  auto mean = tc::all_reduce(x, ts::ReduceOp::avg, "data");  // {2, 1}, {3, 1}, {2, 1}, {3, 1}
  for (int device = 0; device < 4; ++device) {
    EXPECT_TRUE(std::ranges::equal(sum.values(device), std::vector<float>{10, 4}));
    EXPECT_TRUE(std::ranges::equal(mean.values(device), std::vector<float>{device % 2 == 0 ? 2.f : 3.f, 1}));
  }

  std::vector<ts::LocalTensor<float, 1>> gradients{x, x, x};
  ts::CommunicationScope scope;
  tc::all_reduce_bucketed(gradients, ts::ReduceOp::avg, "data");  // in place
  assert(scope.count(ts::all_reduce, "data") == 1);
  EXPECT_EQ(scope.count(ts::all_reduce), 1);
  EXPECT_TRUE(std::ranges::equal(gradients[2].values(1), mean.values(1)));
  const ts::DeviceGroups pairs = ts::DeviceGroups(std::vector<std::vector<int>>{{0, 3}, {1, 2}});
  EXPECT_TRUE(std::ranges::equal(tc::all_reduce(x, ts::ReduceOp::sum, pairs).values(2), std::vector<float>{5, 2}));

  ts::SingleProcess process;
  auto brought = process.rendezvous("checkpoint", "step 7");  // {"step 7"}
  double worst = ts::mesh_reduce(
      process, "loss", 0.5, [](const std::vector<double>& all) { return *std::max_element(all.begin(), all.end()); });
  EXPECT_EQ(brought, std::vector<std::string>{"step 7"});
  EXPECT_EQ(worst, 0.5);
}

TEST(collectives_page, holds_the_lines_of_this_file) {
  tessera_test::expect_lines({.name = "shard_map.md", .section = "Collectives as functions", .lines = 16}, __FILE__);
}
