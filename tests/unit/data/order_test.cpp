#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/data/permutation.hpp>
#include <tessera/data/sampler.hpp>

namespace {

namespace ts = tessera;
namespace data = tessera::data;
using tessera_test::expect_error;

std::vector<std::int64_t> listed(const data::Permutation& order) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < order.size(); ++i) all.push_back(order[i]);
  return all;
}

TEST(Permutation, HasEachElementOnce) {
  for (std::int64_t size : {0, 1, 2, 3, 5, 64, 65, 1000, 4097}) {
    const auto order = listed(data::Permutation(ts::Key(7), size));
    const std::set<std::int64_t> distinct(order.begin(), order.end());
    ASSERT_EQ(static_cast<std::int64_t>(distinct.size()), size);
    if (size > 0) {
      EXPECT_EQ(*distinct.begin(), 0);
      EXPECT_EQ(*distinct.rbegin(), size - 1);
    }
  }
}

TEST(Permutation, DependsOnTheKeyAlone) {
  EXPECT_EQ(listed(data::Permutation(ts::Key(1), 50)), listed(data::Permutation(ts::Key(1), 50)));
  EXPECT_NE(listed(data::Permutation(ts::Key(1), 50)), listed(data::Permutation(ts::Key(2), 50)));
}

// The statistic of Pearson's test has the mean `cells - 1` and the variance 2 (cells - 1): six standard deviations.
void expect_uniform(const std::vector<double>& counts, double expected) {
  double statistic = 0;
  for (const double count : counts) statistic += (count - expected) * (count - expected) / expected;
  const double freedom = static_cast<double>(counts.size()) - 1;
  EXPECT_LT(std::fabs(statistic - freedom), 6 * std::sqrt(2 * freedom)) << statistic;
}

TEST(Permutation, AllOrdersOfFewElementsAreEquallyLikely) {
  for (std::int64_t size : {2, 3, 4, 5}) {
    std::map<std::vector<std::int64_t>, double> found;
    std::vector<std::int64_t> order(static_cast<std::size_t>(size));
    std::iota(order.begin(), order.end(), 0);
    do found[order] = 0;
    while (std::next_permutation(order.begin(), order.end()));
    constexpr int draws = 24'000;
    for (int draw = 0; draw < draws; ++draw)
      ++found.at(listed(data::Permutation(ts::Key(static_cast<std::uint64_t>(draw)), size)));
    std::vector<double> counts;
    for (const auto& [unused, count] : found) counts.push_back(count);
    expect_uniform(counts, draws / static_cast<double>(counts.size()));
  }
}

TEST(Permutation, AnElementIsEquallyLikelyAtEachPlace) {
  constexpr std::int64_t size = 100;
  for (std::int64_t place : {0, 1, 57, 99}) {
    std::vector<double> counts(size, 0);
    for (std::uint64_t draw = 0; draw < 20'000; ++draw)
      ++counts[static_cast<std::size_t>(data::Permutation(ts::Key(draw), size)[place])];
    expect_uniform(counts, 200);
  }
}

TEST(Permutation, NeighboursDoNotStayNeighbours) {
  const data::Permutation order(ts::Key(3), 100'000);
  int ascending = 0, near = 0;
  for (std::int64_t i = 0; i + 1 < order.size(); ++i) {
    ascending += order[i] < order[i + 1];
    near += std::abs(order[i] - order[i + 1]) <= 10;
  }
  EXPECT_NEAR(ascending, 50'000, 6 * std::sqrt(100'000 / 12.0));
  EXPECT_NEAR(near, 20, 6 * std::sqrt(20.0));
}

std::vector<std::int64_t> listed(const data::Sampler& sampler, std::int64_t epoch) {
  const auto order = sampler.epoch(epoch);
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < sampler.size(); ++i) all.push_back(order[i]);
  return all;
}

TEST(Sampler, ReadsInOrderOrInARandomOrderPerEpoch) {
  EXPECT_EQ(listed(data::Sampler(4), 0), (std::vector<std::int64_t>{0, 1, 2, 3}));
  const data::Sampler shuffled(40, {.shuffle = ts::Key(1)});
  EXPECT_EQ(listed(shuffled, 2), listed(shuffled, 2));
  EXPECT_NE(listed(shuffled, 1), listed(shuffled, 2));
  EXPECT_NE(listed(shuffled, 0), listed(data::Sampler(40, {.shuffle = ts::Key(2)}), 0));
}

// torch.utils.data.DistributedSampler(range(10), num_replicas=3, shuffle=False): list(sampler) for the ranks 0 to 2.
TEST(Sampler, DealsRowsAsPyTorch) {
  using List = std::vector<std::int64_t>;
  const auto dealt = [](std::int64_t replica, bool drop_last) {
    return listed(data::Sampler(10, {.replicas = 3, .replica = replica, .drop_last = drop_last}), 0);
  };
  EXPECT_EQ(dealt(0, false), (List{0, 3, 6, 9}));
  EXPECT_EQ(dealt(1, false), (List{1, 4, 7, 0}));
  EXPECT_EQ(dealt(2, false), (List{2, 5, 8, 1}));
  EXPECT_EQ(dealt(0, true), (List{0, 3, 6}));
  EXPECT_EQ(dealt(2, true), (List{2, 5, 8}));
  // More replicas than rows: each has a row, the rows repeat.
  EXPECT_EQ(listed(data::Sampler(2, {.replicas = 5, .replica = 4}), 0), (List{0}));
  EXPECT_EQ(data::Sampler(0, {.replicas = 5, .replica = 4}).size(), 0);
}

TEST(Sampler, ShuffledReplicasTogetherReadEachRow) {
  std::set<std::int64_t> seen;
  for (std::int64_t replica = 0; replica < 4; ++replica)
    for (const std::int64_t row :
         listed(data::Sampler(40, {.shuffle = ts::Key(5), .replicas = 4, .replica = replica}), 3))
      EXPECT_TRUE(seen.insert(row).second) << row;
  EXPECT_EQ(seen.size(), 40u);
}

TEST(Sampler, RefusesWhatIsNoReplica) {
  expect_error(
      ts::errc::option, [] { data::Sampler(4, {.replicas = 2, .replica = 2}); }, "2 is none of 2 replicas",
      "order_test.cpp");
  expect_error(ts::errc::option, [] { data::Sampler(4, {.replicas = 0}); });
  expect_error(
      ts::errc::option, [] { data::Sampler(-1); }, "-1");
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  expect_error(
      ts::errc::capacity, [] { data::Sampler(4, {.replicas = most}); }, "more than 2^52", "order_test.cpp");
  expect_error(ts::errc::capacity, [] { data::Sampler{most}; });
  expect_error(
      ts::errc::option, [] { data::Permutation(ts::Key(1), -2); }, "-2 is negative", "order_test.cpp");
}

}  // namespace
