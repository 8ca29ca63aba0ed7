#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

#include <gtest/gtest.h>

#include <tessera/runtime/threads/team.hpp>

namespace {

using tessera::Cost;

class Team : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { tessera::set_parallelism(GetParam()); }
  void TearDown() override { tessera::set_parallelism(before_); }

 private:
  int before_ = tessera::parallelism();
};

TEST_P(Team, VisitsEveryItemOnce) {
  EXPECT_EQ(tessera::parallelism(), GetParam());
  for (std::int64_t items : {0, 1, 2, 3, 7, 64, 1000, 100000})
    for (double cost : {0.0, 1.0, 300.0, 1e6}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(items));
      tessera::parallel_for(items, Cost{cost}, [&](std::int64_t i) { ++visits[static_cast<std::size_t>(i)]; });
      for (const auto& count : visits) ASSERT_EQ(count, 1) << items << " items of " << cost;
    }
}

TEST_P(Team, RangesCoverEverythingInOrderInside) {
  std::vector<int> visits(12345);
  tessera::parallel_ranges(12345, Cost{1000}, [&](std::int64_t begin, std::int64_t end) {
    ASSERT_LT(begin, end);
    for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
  });
  for (int count : visits) ASSERT_EQ(count, 1);
}

TEST_P(Team, TinyLoopsStayOnTheCallingThread) {
  const auto caller = std::this_thread::get_id();
  for (int round = 0; round < 50; ++round)
    tessera::parallel_for(100, Cost{5}, [&](std::int64_t) { ASSERT_EQ(std::this_thread::get_id(), caller); });
}

TEST_P(Team, ExceptionsReachTheCaller) {
  for (std::int64_t thrower : {0, 499, 999})
    EXPECT_THROW(tessera::parallel_for(1000,
                                       [&](std::int64_t i) {
                                         if (i == thrower) throw std::out_of_range("item");
                                       }),
                 std::out_of_range);
  std::atomic<int> count{0};
  tessera::parallel_for(100, [&](std::int64_t) { ++count; });
  EXPECT_EQ(count, 100);
}

TEST_P(Team, LoopsNest) {
  std::atomic<int> count{0};
  tessera::parallel_for(64, [&](std::int64_t) {
    tessera::parallel_for(32, [&](std::int64_t) { tessera::parallel_for(4, [&](std::int64_t) { ++count; }); });
  });
  EXPECT_EQ(count, 64 * 32 * 4);
}

// While it waits for its inner loop, a thread must not start another item of the outer one.
TEST_P(Team, WaitingNeverEntersAnotherItem) {
  std::atomic<int> entered_twice{0};
  tessera::parallel_for(200, [&](std::int64_t) {
    static thread_local bool inside = false;
    if (inside) ++entered_twice;
    inside = true;
    tessera::parallel_for(8, [&](std::int64_t) {
      const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(5);
      while (std::chrono::steady_clock::now() < until) {
      }
    });
    inside = false;
  });
  EXPECT_EQ(entered_twice, 0);
}

TEST_P(Team, CallersOnManyThreads) {
  std::atomic<int> count{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) tessera::parallel_for(50, [&](std::int64_t) { ++count; });
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(count, 8 * 20 * 50);
}

INSTANTIATE_TEST_SUITE_P(Threads, Team, ::testing::Values(1, 2, 3, 8));

TEST(TeamOfSeveral, UsesSeveralThreads) {
  const int before = tessera::parallelism();
  tessera::set_parallelism(4);
  // An item ends once another thread has begun one, or after a second: no thread is owed to us.
  std::atomic<bool> several{false};
  std::mutex mutex;
  std::set<std::thread::id> seen;
  tessera::parallel_for(8, [&](std::int64_t) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (!several && std::chrono::steady_clock::now() < until) {
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
      if (seen.size() > 1) several = true;
    }
  });
  EXPECT_TRUE(several);
  tessera::set_parallelism(before);
}

TEST(TeamOfSeveral, SizeMayChangeWhileLoopsRun) {
  const int before = tessera::parallelism();
  std::atomic<bool> stop{false};
  std::atomic<std::int64_t> count{0};
  std::thread runner([&] {
    while (!stop) tessera::parallel_for(16, [&](std::int64_t) { ++count; });
  });
  for (int round = 0; round < 200; ++round) tessera::set_parallelism(1 + round % 5);
  stop = true;
  runner.join();
  EXPECT_EQ(count % 16, 0);
  tessera::set_parallelism(before);
}

#if defined(__linux__) && !defined(__SANITIZE_THREAD__)
TEST(TeamOfSeveral, WorkersStayOnOneProcessor) {
  const int before = tessera::parallelism();
  cpu_set_t own;
  ASSERT_EQ(sched_getaffinity(0, sizeof own, &own), 0);
  const auto main = std::this_thread::get_id();
  for (const int threads : {2, 3}) {
    tessera::set_parallelism(threads);
    tessera::pin_workers();
    std::atomic<int> workers = 0, free = 0;
    for (int round = 0; round < 1000 && workers == 0; ++round)
      tessera::parallel_for(8, [&](std::int64_t) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        cpu_set_t cpus;
        ASSERT_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
        if (std::this_thread::get_id() != main)
          ++workers, free += CPU_COUNT(&cpus) != 1;
        else
          ASSERT_TRUE(CPU_EQUAL(&cpus, &own));
      });
    EXPECT_GT(workers, 0);
    EXPECT_EQ(free, 0);
  }
  tessera::set_parallelism(before);
}
#endif

TEST(TeamOfSeveral, RefusesNumbersThatNoMachineHas) {
  const int before = tessera::parallelism();
  for (const int threads : {0, -1, INT_MIN, tessera::max_parallelism + 1, INT_MAX})
    EXPECT_THROW(tessera::set_parallelism(threads), tessera::error) << threads;
  EXPECT_EQ(tessera::parallelism(), before);
}

}  // namespace
