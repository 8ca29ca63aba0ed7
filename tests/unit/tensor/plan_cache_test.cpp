#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#if defined(__linux__)
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "../base/expect_error.hpp"

#include <tessera/kernels/made_once.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/runtime/executor/executable.hpp>
#include <tessera/runtime/steps/attention_step.hpp>
#include <tessera/runtime/steps/contraction_step.hpp>
#include <tessera/runtime/steps/data_movement_step.hpp>
#include <tessera/runtime/steps/indexed_step.hpp>
#include <tessera/runtime/steps/random_step.hpp>
#include <tessera/runtime/steps/repeat_step.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/program/plan_cache.hpp>
#include <tessera/tensor/reshard.hpp>

namespace ts = tessera;

namespace {

using tessera_test::expect_error;
using Matrix = ts::ShardedTensor<float, 2>;
constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});

Matrix rows(std::int64_t n) { return ts::ones<float>({n, 4}, mesh, {"data"}); }

/// What a test sets ends with it.
struct Caches : testing::Test {
  void SetUp() override { ts::clear_plan_cache(); }
  void TearDown() override {
    ts::set_plan_cache_limit({});
    ts::clear_plan_cache();
  }
};

constexpr auto twice = ts::compile([](auto x) { return ts::sum<1>(x) * 2.0f; });
constexpr auto both = ts::compile([](auto x, auto y) { return std::tuple(x + y, ts::sum<0>(x * y)); });

TEST_F(Caches, KeepNoMoreThanTheirLimitAndWhatWasUsedLast) {
  ts::set_plan_cache_limit({.entries = 8});
  const auto misses = [] { return twice.cache_statistics<Matrix>().misses; };
  const std::int64_t before = misses();
  for (std::int64_t n = 1; n <= 40; ++n) {
    EXPECT_EQ(ts::to_host(twice(rows(n))), std::vector<float>(static_cast<std::size_t>(n), 8.0f));
    EXPECT_EQ(ts::to_host(twice(rows(1))), std::vector<float>{8.0f});
    EXPECT_LE(ts::plan_cache_statistics().entries, 8);
  }
  EXPECT_EQ(misses() - before, 40) << "the first shape is used all the time, and stays";
  (void)twice(rows(40));
  (void)twice(rows(38));
  EXPECT_EQ(misses() - before, 40) << "so do the last ones";
  (void)twice(rows(2));
  EXPECT_EQ(misses() - before, 41);
  const ts::CacheStatistics all = ts::plan_cache_statistics(), own = twice.cache_statistics<Matrix>();
  EXPECT_EQ(all.entries, 8);
  EXPECT_LE(own.entries, 8);
  EXPECT_GE(own.evictions, 41 - 8);
  EXPECT_GT(own.bytes, own.entries * 1000);
  ts::set_plan_cache_limit({.entries = 3});
  EXPECT_EQ(ts::plan_cache_statistics().entries, 3) << "a new limit holds at once";
}

TEST_F(Caches, OfAllProgramsAndExpressionsHaveOneLimit) {
  ts::set_plan_cache_limit({.entries = 4});
  for (std::int64_t n = 1; n <= 6; ++n) {
    const Matrix x = rows(n);
    EXPECT_EQ(ts::to_host(ts::eval(x + x))[0], 2.0f);
    EXPECT_EQ(ts::to_host(twice(x))[0], 8.0f);
    EXPECT_EQ(ts::to_host(std::get<1>(both(x, x)))[0], static_cast<float>(n));
    EXPECT_LE(ts::plan_cache_statistics().entries, 4);
  }
}

TEST_F(Caches, AreBoundedInBytesAndKeepAtLeastOnePlan) {
  (void)twice(rows(3));
  const std::int64_t one = ts::plan_cache_statistics().bytes;
  ts::set_plan_cache_limit({.bytes = 3 * one + one / 2});
  for (std::int64_t n = 4; n < 20; ++n) (void)twice(rows(n));
  EXPECT_LE(ts::plan_cache_statistics().bytes, 3 * one + one / 2);
  EXPECT_GE(ts::plan_cache_statistics().entries, 2);
  ts::set_plan_cache_limit({.bytes = 0});
  (void)twice(rows(5));
  (void)twice(rows(6));
  EXPECT_EQ(ts::plan_cache_statistics().entries, 1);
  expect_error(
      ts::errc::option, [] { ts::set_plan_cache_limit({.entries = 0}); }, "[plan_cache]");
  expect_error(
      ts::errc::option, [] { ts::set_plan_cache_limit({.bytes = -1}); }, "[plan_cache]");
}

TEST_F(Caches, CanBeClearedAndPlanAgain) {
  const Matrix x = rows(6);
  const auto run = [&] {
    EXPECT_EQ(ts::to_host(twice(x))[5], 8.0f);
    EXPECT_EQ(ts::to_host(std::get<1>(both(x, x)))[0], 6.0f);
    EXPECT_EQ(ts::to_host(ts::eval(x * 3 + x))[0], 4.0f);
  };
  run();
  run();  // found by the layouts of what they are called with
  EXPECT_EQ(ts::plan_cache_statistics().entries, 3);
  twice.clear_cache<Matrix>();
  EXPECT_EQ(ts::plan_cache_statistics().entries, 2);
  EXPECT_EQ(twice.cache_statistics<Matrix>().entries, 0);
  ts::clear_plan_cache();
  EXPECT_EQ(ts::plan_cache_statistics().entries, 0);
  EXPECT_EQ(ts::plan_cache_statistics().bytes, 0);
  const std::int64_t misses = ts::plan_cache_statistics().misses;
  run();
  run();
  EXPECT_EQ(ts::plan_cache_statistics().misses, misses + 3);
}

TEST_F(Caches, KnowManyShapesAndGiveEachItsOwnPlan) {
  std::vector<Matrix> inputs;
  for (std::int64_t n = 1; n <= 300; ++n) inputs.push_back(rows(n));
  for (int round = 0; round < 2; ++round)
    for (const Matrix& x : inputs)
      EXPECT_EQ(ts::to_host(twice(x)), std::vector<float>(static_cast<std::size_t>(ts::shape(x)[0]), 8.0f));
  EXPECT_EQ(twice.cache_statistics<Matrix>().entries, 300);
}

// Each plan has intermediates of half a megabyte, and they run in the same memory.
TEST_F(Caches, OfPlansShareTheMemoryThatTheyRunIn) {
  constexpr auto chain = ts::compile([](auto x) { return ts::sum<1>(ts::matmul(ts::matmul(x, x), x)); });
  ts::trim_memory();
  const std::int64_t before = ts::memory_use().in_use;
  for (std::int64_t n = 240; n < 256; ++n) {
    const auto x = ts::ones<float>({n, n}, mesh, {"data"});
    EXPECT_NEAR(ts::to_host(chain(x))[0], static_cast<float>(n * n * n), 10.0f);
  }
  EXPECT_LT(ts::memory_use().in_use - before, 2 << 20);
  ts::clear_plan_cache();
  EXPECT_EQ(ts::memory_use().in_use, before);
}

struct Add {
  constexpr auto operator()(const auto& a, const auto& b) const { return a + b; }
};

// Options refer to requests and to a mesh: a plan is for what they say, not for where it lies.
TEST_F(Caches, CompareWhatOptionsReferTo) {
  const auto x = ts::arange<float>(8, mesh), y = ts::arange<float>(8, mesh);
  ts::OutputRequest request;
  request.given = true;
  ts::PlanOptions options;
  options.outputs = &request;
  const auto add = ts::compile(Add{}, options);
  for (const ts::PartitionSpec& spec : {ts::PartitionSpec{"data"}, ts::PartitionSpec{"model"}, ts::PartitionSpec{}}) {
    request.sharding = ts::resolve(spec, mesh, 1);
    EXPECT_EQ(ts::sharding(add(x, y)), request.sharding);
    const ts::OutputRequest elsewhere = request;
    ts::PlanOptions same;
    same.outputs = &elsewhere;
    const std::int64_t misses = ts::plan_cache_statistics().misses;
    EXPECT_EQ(ts::sharding(ts::compile(Add{}, same)(x, y)), request.sharding);
    EXPECT_EQ(ts::plan_cache_statistics().misses, misses);
  }
  request.given = false;
  EXPECT_EQ(ts::sharding(add(x, y)), ts::sharding(ts::compile(Add{})(x, y)));

  ts::Mesh told({{"data", 4}, {"model", 2}});
  ts::PlanOptions sized;
  sized.sizes = &told;
  const auto planned = [&] {
    const std::int64_t misses = ts::plan_cache_statistics().misses;
    (void)ts::compile(Add{}, sized)(x, y);
    return ts::plan_cache_statistics().misses - misses;
  };
  EXPECT_EQ(planned(), 1);
  EXPECT_EQ(planned(), 0);
  told = ts::Mesh({{"data", 8}, {"model", 2}});
  EXPECT_EQ(planned(), 1);
}

TEST_F(Caches, ServeThreadsThatCallAndClearAtOnce) {
  ts::set_plan_cache_limit({.entries = 5});
  std::atomic<int> wrong{0};
  std::atomic<bool> stop{false};
  const auto work = [&](int seed) {
    for (int i = 0; i < 300; ++i) {
      const std::int64_t n = 1 + (i * seed) % 9;
      const Matrix x = rows(n);
      if (ts::to_host(twice(x)) != std::vector<float>(static_cast<std::size_t>(n), 8.0f)) ++wrong;
      if (ts::to_host(std::get<1>(both(x, x))) != std::vector<float>(4, static_cast<float>(n))) ++wrong;
      if (ts::to_host(ts::eval(x + x))[0] != 2.0f) ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (int seed : {1, 2, 5, 7}) threads.emplace_back(work, seed);
  std::thread clears([&] {
    while (!stop) {
      ts::clear_plan_cache();
      (void)ts::plan_cache_statistics();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  for (std::thread& thread : threads) thread.join();
  stop = true;
  clears.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(ts::plan_cache_statistics().entries, 5);
}

// One thread plans for all that ask for the same.
TEST_F(Caches, PlanOnceForThreadsThatAskTogether) {
  const std::int64_t before = twice.cache_statistics<Matrix>().misses;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back([] { (void)twice(rows(17)); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(twice.cache_statistics<Matrix>().misses, before + 1);
}

// Units that are compiled for other instruction sets have steps of other names, since these hold what their kernels
// prepared.
#define TESSERA_TEST_NAME(name) #name
#define TESSERA_TEST_NAME_OF(macro) TESSERA_TEST_NAME(macro)
TEST(Steps, NameTheInstructionSetOfTheirUnit) {
  namespace rt = ts::runtime;
  const std::string isa = TESSERA_TEST_NAME_OF(TESSERA_ISA);
  for (const std::type_info* type :
       {&typeid(rt::ContractionStep<ts::DTypeSet{1}>), &typeid(rt::AttentionStep<ts::DTypeSet{1}>),
        &typeid(rt::FusedStep), &typeid(rt::DataMovementStep<>), &typeid(rt::IndexedStep<ts::DTypeSet{1}>),
        &typeid(rt::RandomStep<>), &typeid(rt::ReshardStep), &typeid(rt::ReshardPlan), &typeid(rt::RepeatStep<>)})
    EXPECT_NE(std::string(type->name()).find(isa), std::string::npos) << type->name();
}

/// A static object that computes when it is destroyed, as an averaged model that is saved at exit.
struct Late {
  Matrix x;
  ~Late() {
    if (!x.storage()) return;
    const auto product = ts::matmul(x, ts::transpose<1, 0>(x));
    if (ts::to_host(twice(x))[0] != 8.0f || ts::to_host(std::get<1>(both(x, x)))[0] != 6.0f ||
        ts::to_host(ts::eval(product))[0] != 4.0f || ts::to_host(ts::eval(ts::softmax(x)))[0] != 0.25f)
      std::abort();
  }
};
Late late;

TEST(AtExit, StaticObjectsMayComputeInTheirDestructors) {
  late.x = rows(6);
  (void)twice(late.x);
  (void)both(late.x, late.x);
  (void)ts::eval(ts::matmul(late.x, ts::transpose<1, 0>(late.x)));
}

// Sanitizers have locks of their own, which they do not hand over to a child, and look at threads when a process ends.
#if defined(__has_feature)
#define TESSERA_TEST_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TESSERA_TEST_SANITIZED 1
#else
#define TESSERA_TEST_SANITIZED 0
#endif
#if defined(__linux__) && !TESSERA_TEST_SANITIZED
TEST(AtExit, ThreadsMayStillCompute) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const auto x = ts::ones<float>({64, 64}, mesh, {"data"});
        std::thread([x] {
          for (;;) (void)both(x, x), (void)twice(x);
        }).detach();
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

// The child has no thread that would finish what a thread of the parent was making.
TEST(Fork, WaitsForWhatThreadsAreMaking) {
  static constinit ts::detail::MadeOnce<int> made;
  std::atomic<bool> started{false};
  std::thread maker([&] {
    (void)made.get([&] {
      started = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return new int(7);
    });
  });
  while (!started) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(made.get([] { return new int(8); }) == 7 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  maker.join();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// The child finds the library's locks free whatever other threads did, and runs its loops itself.
TEST(Fork, ChildrenComputeWhileThreadsOfTheParentDo) {
  const auto x = ts::ones<float>({256, 256}, mesh, {"data", "model"});
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (std::int64_t n = 1; !stop; n = n % 50 + 1) (void)both(x, x), (void)twice(x), (void)twice(rows(n + t * 50));
    });
  int fine = 0;
  for (int i = 0; i < 10; ++i) {
    (void)twice(x);  // remembered by this thread
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      const bool right = ts::to_host(twice(x))[0] == 512.0f && ts::to_host(std::get<1>(both(x, x)))[0] == 256.0f;
      _exit(right && ts::parallelism() == 1 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    fine += WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fine, 10);
  EXPECT_GE(ts::parallelism(), 1);
}
#endif

}  // namespace
