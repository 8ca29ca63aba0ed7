#include "train_gpt/draw.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace {

using train_gpt::draw;

/// Shares of the tokens, over evenly spread chances.
std::vector<double> shares(const std::vector<float>& logits, double temperature) {
  constexpr int draws = 100'000;
  std::vector<double> share(logits.size(), 0);
  for (int i = 0; i < draws; ++i)
    share[static_cast<std::size_t>(draw(logits, temperature, (i + 0.5) / draws))] += 1.0 / draws;
  return share;
}

TEST(Draw, FollowsTheSoftmaxOfLogitsOverTemperature) {
  const std::vector<float> logits{1, 3, -2, 0.5f};
  for (const double temperature : {0.25, 1.0, 4.0}) {
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit / temperature);
    const std::vector<double> share = shares(logits, temperature);
    for (std::size_t i = 0; i < logits.size(); ++i)
      EXPECT_NEAR(share[i], std::exp(logits[i] / temperature) / sum, 2e-5) << temperature << " " << i;
  }
}

TEST(Draw, TemperatureZeroTakesTheLikeliest) {
  for (const double chance : {0.0, 0.5, 0.999999}) EXPECT_EQ(draw(std::vector<float>{1, 5, 5.5f, -1}, 0, chance), 2);
}

TEST(Draw, StaysAmongTheTokens) {
  const double last = std::nextafter(1.0, 0.0);
  EXPECT_EQ(draw(std::vector<float>{7}, 1, last), 0);
  EXPECT_EQ(draw(std::vector<float>{0, 0, 0}, 1, last), 2);
  EXPECT_EQ(draw(std::vector<float>{1000, 0}, 1e-3, last), 0);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const int token = draw(std::vector<float>{nan, nan}, 1, 0.5);
  EXPECT_TRUE(token == 0 || token == 1);
}

}  // namespace
