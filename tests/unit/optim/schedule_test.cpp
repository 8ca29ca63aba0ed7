#include <cmath>
#include <cstdint>

#include <gtest/gtest.h>

#include <tessera/base/error.hpp>
#include <tessera/optim/schedule/schedule.hpp>

namespace ts = tessera;

namespace {

TEST(WarmupCosine, RisesThenFallsToTheFloor) {
  const auto rate = [](std::int64_t step) { return ts::optim::warmup_cosine(step, 10, 110, 2.0, 0.5); };
  EXPECT_DOUBLE_EQ(rate(0), 0.2);
  EXPECT_DOUBLE_EQ(rate(4), 1.0);
  EXPECT_DOUBLE_EQ(rate(9), 2.0);
  EXPECT_DOUBLE_EQ(rate(10), 2.0);
  EXPECT_DOUBLE_EQ(rate(60), 1.25);  // halfway between peak and floor
  EXPECT_NEAR(rate(35), 0.5 + 1.5 * (1 + std::sqrt(0.5)) / 2, 1e-15);
  EXPECT_DOUBLE_EQ(rate(110), 0.5);
  EXPECT_DOUBLE_EQ(rate(100000), 0.5);
  for (std::int64_t step = 10; step < 110; ++step) EXPECT_GT(rate(step), rate(step + 1));
  EXPECT_DOUBLE_EQ(ts::optim::warmup_cosine(0, 0, 10, 3.0), 3.0);
  EXPECT_DOUBLE_EQ(ts::optim::warmup_cosine(5, 10, 5, 1.0), 0.6);  // a warm-up longer than the training
  EXPECT_DOUBLE_EQ(ts::optim::warmup_cosine(0, 0, 0, 1.0, 0.1), 0.1);
}

// The documentation of torch.optim.lr_scheduler.
TEST(Schedules, AreThoseOfPyTorch) {
  using namespace ts::optim;
  EXPECT_DOUBLE_EQ(step_decay(29, 30, 0.05), 0.05);
  EXPECT_DOUBLE_EQ(step_decay(30, 30, 0.05), 0.005);
  EXPECT_NEAR(step_decay(60, 30, 0.05), 0.0005, 1e-18);
  EXPECT_DOUBLE_EQ(inverse_root(50, 100, 2.0), 1.0);
  EXPECT_DOUBLE_EQ(inverse_root(100, 100, 2.0), 2.0);
  EXPECT_DOUBLE_EQ(inverse_root(400, 100, 2.0), 1.0);
  EXPECT_DOUBLE_EQ(inverse_root(0, 0, 2.0), 0.0);
  EXPECT_NEAR(exponential(3, 2.0, 0.1), 0.002, 1e-17);
  EXPECT_DOUBLE_EQ(polynomial(5, 10, 4.0, 2), 1.0);
  EXPECT_EQ(polynomial(11, 10, 4.0), 0);
  EXPECT_THROW(polynomial(0, 0, 1.0), ts::error);
  EXPECT_DOUBLE_EQ(cosine_restarts(5, 10, 2.0, 2, 1.0), 1.5);
  EXPECT_EQ(cosine_restarts(10, 10, 2.0, 2), 2.0);  // the second period has 20 steps
  EXPECT_DOUBLE_EQ(cosine_restarts(20, 10, 2.0, 2), 1.0);
  EXPECT_EQ(cosine_restarts(30, 10, 2.0, 2), 2.0);
  EXPECT_DOUBLE_EQ(cosine_restarts(1000005, 10, 2.0), 1.0);
  EXPECT_THROW(cosine_restarts(0, 0, 1.0), ts::error);
  EXPECT_NEAR(one_cycle(0, 100, 1.0), 0.04, 1e-15);
  EXPECT_DOUBLE_EQ(one_cycle(29, 100, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(one_cycle(64, 100, 1.0), 0.5 + 0.5 * 4e-6);
  EXPECT_NEAR(one_cycle(99, 100, 1.0), 4e-6, 1e-15);
  EXPECT_NEAR(one_cycle(1000, 100, 1.0), 4e-6, 1e-15);
  const auto rate = [](std::int64_t at) {
    return chained(
        at, 3, [](std::int64_t s) { return static_cast<double>(s); },
        [](std::int64_t s) { return step_decay(s, 2, 8.0, 0.5); });
  };
  EXPECT_EQ(rate(2), 2.0);
  EXPECT_EQ(rate(3), 8.0);
  EXPECT_EQ(rate(5), 4.0);
}

}  // namespace
