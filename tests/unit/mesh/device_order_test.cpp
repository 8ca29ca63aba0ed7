#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/mesh/device_order.hpp>

namespace {

using tessera::DeviceOrder;
using Ids = std::vector<std::int32_t>;

DeviceOrder order_of(const Ids& ids) { return DeviceOrder(ids.data(), ids.size()); }
Ids ids_of(const DeviceOrder& order) {
  Ids ids;
  for (std::int64_t i = 0; i < order.size(); ++i) ids.push_back(order[i]);
  return ids;
}

/// A shuffled list, or the transpose of an array of random sizes, in the form that the class chooses.
Ids random_ids(std::mt19937& random, const std::vector<std::int64_t>& sizes) {
  Ids ids(static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>())));
  std::iota(ids.begin(), ids.end(), 0);
  if (random() % 3 == 0) std::shuffle(ids.begin(), ids.end(), random);
  return ids;
}

/// The definition: axis i of the result is axis order[i] of the array.
Ids transposed(const Ids& ids, const std::vector<std::int64_t>& sizes, const std::vector<int>& order) {
  Ids out;
  std::vector<std::int64_t> at(sizes.size(), 0);
  for (std::size_t n = 0; n < ids.size(); ++n) {
    std::int64_t from = 0;
    for (std::size_t axis = 0; axis < sizes.size(); ++axis) from = from * sizes[axis] + at[axis];
    out.push_back(ids[static_cast<std::size_t>(from)]);
    for (std::size_t i = order.size(); i-- > 0;) {
      const auto axis = static_cast<std::size_t>(order[i]);
      if (++at[axis] < sizes[axis]) break;
      at[axis] = 0;
    }
  }
  return out;
}

TEST(DeviceOrderTest, TransposesLikeAnArray) {
  std::mt19937 random(1);
  int counters = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::int64_t> sizes;
    for (std::size_t axes = 1 + random() % 4; axes > 0; --axes) sizes.push_back(1 + static_cast<int>(random() % 4));
    Ids ids = random_ids(random, sizes);
    DeviceOrder order = order_of(ids);
    for (int step = 0; step < 3; ++step) {
      std::shuffle(sizes.begin(), sizes.end(), random);  // other boundaries of the axes
      std::vector<int> axes(sizes.size());
      std::iota(axes.begin(), axes.end(), 0);
      std::shuffle(axes.begin(), axes.end(), random);
      ids = transposed(ids, sizes, axes);
      order = order.transposed(sizes.data(), axes.data(), axes.size());
      ASSERT_EQ(ids_of(order), ids);
      ASSERT_EQ(order, order_of(ids)) << "one form for one order";
      ASSERT_EQ(order.hash(), order_of(ids).hash());
      for (std::int32_t id = 0; id < static_cast<std::int32_t>(ids.size()); ++id)
        ASSERT_EQ(order[order.position_of(id)], id);
      ASSERT_EQ(order.position_of(static_cast<std::int32_t>(ids.size())), order.size());
    }
    counters += order.is_counter();
  }
  EXPECT_GT(counters, 1000);
}

TEST(DeviceOrderTest, SortsInGroups) {
  std::mt19937 random(2);
  for (int round = 0; round < 1000; ++round) {
    const std::vector<std::int64_t> sizes{1 + static_cast<int>(random() % 4), 1 + static_cast<int>(random() % 4),
                                          1 + static_cast<int>(random() % 6)};
    const int turn[] = {2, 0, 1};
    const Ids start = random_ids(random, sizes);
    const DeviceOrder order = order_of(start).transposed(sizes.data(), turn, 3);
    Ids ids = ids_of(order);
    for (std::size_t group = 1; group <= ids.size(); ++group) {
      if (ids.size() % group != 0) continue;
      Ids sorted = ids;
      for (std::size_t begin = 0; begin < ids.size(); begin += group)
        std::sort(sorted.begin() + static_cast<std::ptrdiff_t>(begin),
                  sorted.begin() + static_cast<std::ptrdiff_t>(begin + group));
      const DeviceOrder grouped = order.ascending_in_groups(static_cast<std::int64_t>(group));
      ASSERT_EQ(ids_of(grouped), sorted);
      ASSERT_EQ(grouped, order_of(sorted));
    }
  }
}

// An order is kept as digits exactly where it is the transpose of an array: all orders of up to six ids.
TEST(DeviceOrderTest, CountersAreFoundExactly) {
  for (int n = 1; n <= 6; ++n) {
    std::set<Ids> counters;
    for (std::int64_t a = 1; a <= n; ++a)
      for (std::int64_t b = 1; a * b <= n; ++b) {
        if (n % (a * b) != 0) continue;
        Ids range(static_cast<std::size_t>(n));
        std::iota(range.begin(), range.end(), 0);
        std::vector<int> axes{0, 1, 2};
        do counters.insert(transposed(range, {a, b, n / (a * b)}, axes));
        while (std::next_permutation(axes.begin(), axes.end()));
      }
    Ids ids(static_cast<std::size_t>(n));
    std::iota(ids.begin(), ids.end(), 0);
    do {
      ASSERT_EQ(order_of(ids).is_counter(), counters.count(ids) == 1);
      ASSERT_EQ(ids_of(order_of(ids)), ids);
    } while (std::next_permutation(ids.begin(), ids.end()));
  }
}

TEST(DeviceOrderTest, ListsThatAreNoPermutationStayLists) {
  for (const Ids& ids : {Ids{0, 2}, Ids{0, 0}, Ids{3}, Ids{0, 2, 4, 1, 3, 5, 7, 9}, Ids{0, 1, 3, 4}, Ids{0, 1, 1, 2},
                         Ids{0, 2, 2, 4}, Ids{0, 1, 2, 1, 2, 3, 2, 3, 4}}) {
    EXPECT_FALSE(order_of(ids).is_counter());
    EXPECT_EQ(ids_of(order_of(ids)), ids);
  }
  EXPECT_TRUE(DeviceOrder{0}.is_range());
  EXPECT_TRUE(DeviceOrder::range(1 << 30).is_range());
  EXPECT_TRUE(DeviceOrder().empty());
}

// A device is found in a long list without a search: 200,000 searches of it would take 20 seconds.
TEST(DeviceOrderTest, PositionsInLongListsAreKnown) {
  std::mt19937 random(3);
  Ids ids(200'000);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random);
  const DeviceOrder order = order_of(ids);
  for (std::size_t at = 0; at < ids.size(); ++at) ASSERT_EQ(order.position_of(ids[at]), static_cast<std::int64_t>(at));
  EXPECT_EQ(order.position_of(-1), order.size());
  EXPECT_EQ(order.position_of(200'000), order.size());
  ids[7] = ids[3];
  ids[9] = 200'001;
  const DeviceOrder wrong = order_of(ids);
  EXPECT_EQ(wrong.position_of(ids[3]), 3);
  EXPECT_EQ(wrong.position_of(order[7]), wrong.size());
  EXPECT_EQ(wrong.position_of(200'001), 9);
}

// All lists of up to five ids, one of them out of range.
TEST(DeviceOrderTest, RepeatedIdsAreFound) {
  for (int n = 1; n <= 5; ++n) {
    std::int64_t lists = 1;
    for (int i = 0; i < n; ++i) lists *= n + 1;
    for (std::int64_t list = 0; list < lists; ++list) {
      Ids ids;
      for (std::int64_t rest = list, i = 0; i < n; ++i, rest /= n + 1)
        ids.push_back(static_cast<std::int32_t>(rest % (n + 1)));
      const DeviceOrder order = order_of(ids);
      ASSERT_EQ(ids_of(order), ids);
      const std::set<std::int32_t> different(ids.begin(), ids.end());
      const std::int64_t at = order.repeated();
      ASSERT_EQ(at == n, different.size() == ids.size());
      ASSERT_TRUE(at == n || std::count(ids.begin(), ids.end(), ids[static_cast<std::size_t>(at)]) > 1);
    }
  }
}

}  // namespace
