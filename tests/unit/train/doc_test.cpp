// The examples of docs/training_loop.md.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "../../support/page.hpp"
#include <gtest/gtest.h>

#include <tessera/data/data.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/train.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;

namespace {

struct Model {
  nn::Linear<> up, down;
  constexpr auto operator()(const auto& x) const { return down(ts::relu(up(x))); }
};
struct Statistics {};

/// Points of ten clusters.
auto loader_of(const ts::Mesh& mesh, std::int64_t rows, std::uint64_t seed) {
  const auto points = ts::data::generate<float>(rows, {10}, [seed](ts::data::Row row, auto to) {
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = static_cast<float>(row.index % 10 == static_cast<std::int64_t>(i)) +
              0.01f * static_cast<float>((static_cast<std::uint64_t>(row.index) * 7 + i * 3 + seed) % 11);
  });
  const auto labels = ts::data::generate<std::int32_t>(rows, [](std::int64_t row) { return row % 10; });
  return ts::data::data_loader(mesh, {.batch_size = 40, .shuffle = ts::Key(seed), .spec = {"data"}}, points, labels);
}

TEST(TrainingLoopDoc, TrainsAndPrints) {
  const ts::Mesh mesh({{"data", 2}});
  const nn::ShardingStrategy strategy = nn::data_parallel(mesh);
  const Model model{nn::linear(ts::Key(1), 10, 16, strategy, nn::Role::column, 0.3),
                    nn::linear(ts::Key(2), 16, 10, strategy, nn::Role::row, 0.3)};
  auto loader = loader_of(mesh, 480, 1), tests = loader_of(mesh, 120, 2);
  // clang-format off
    constexpr ts::train::TrainStepOptions clipped{.microbatches = 2, .clip = true};
    constexpr auto step = ts::train::train_step<clipped>(
        [](const auto& m, const auto& x, const auto& labels) { return ts::cross_entropy(m(x), labels); });
    constexpr auto accuracy = ts::compile([](auto m, auto x, auto labels) {
      return ts::mean(ts::cast<float>(ts::equal(ts::argmax<1>(m(x)), labels)));
    });
  // clang-format on
  testing::internal::CaptureStdout();
  // clang-format off
    auto state = ts::train::train_state(model, ts::optim::AdamW{});
    ts::train::fit(state, step, loader,
                   {.epochs = 3,
                    .learning_rate = [](auto i) { return ts::optim::warmup_cosine(i, 5, 36, 5e-2); },
                    .after_step = ts::train::PrintProgress(12),
                    .after_epoch = [&](ts::train::EpochReport& epoch) {
                      epoch.stop = ts::train::evaluate(accuracy, state.model, tests) > 0.99;
                    }});
  // clang-format on
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_EQ(state.step, 12);
  EXPECT_GT(ts::train::evaluate(accuracy, state.model, tests), 0.99);
  // The page has its lines, but for the speed and the last digits.
  const std::string page = tessera_test::page_text("training_loop.md");
  std::size_t begin = 0;
  for (int lines = 0; lines < 2; ++lines) {
    const std::size_t end = printed.find('\n', begin), digits = printed.find("loss ", begin) + 8;
    EXPECT_NE(page.find("    " + printed.substr(begin, digits - begin)), std::string::npos) << printed;
    begin = end + 1;
  }
}

TEST(TrainingLoopDoc, TakesAStateOfYourOwn) {
  // clang-format off
    struct Running {
      Model model;
      Statistics statistics;
      std::int64_t step = 0;
    };
    const auto own_step = [](Running& state, const auto&... /*x, labels*/) {
      // ... trains state.model with x and labels, updates state.statistics
      ++state.step;
      return ts::train::StepMetrics{.loss = 0.5};
    };
  // clang-format on
  Running state;
  auto loader = loader_of(ts::Mesh({{"data", 2}}), 120, 1);
  ts::train::fit(state, own_step, loader, {.epochs = 2});
  EXPECT_EQ(state.step, 6);
}

TEST(TrainingLoopDoc, CodeOnThePageIsInThisFile) {
  tessera_test::expect_lines(
      {.name = "training_loop.md",
       .lines = 20,
       .left_out = [](std::string_view line) { return line.find("rows/s") != std::string_view::npos; }},
      __FILE__);
}

}  // namespace
