// The examples of docs/training_loop.md.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "../../support/page.hpp"
#include "../../support/scratch_folder.hpp"
#include <gtest/gtest.h>

#include <tessera/data/checkpoint/checkpoint_manager.hpp>
#include <tessera/data/data.hpp>
#include <tessera/tensor/deferred_init.hpp>
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

/// Makes a folder the current one.
class InFolder {
 public:
  explicit InFolder(const std::filesystem::path& folder) { std::filesystem::current_path(folder); }
  ~InFolder() { std::filesystem::current_path(before_); }

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
};

TEST(TrainingLoopDoc, GoesOnFromACheckpoint) {
  const ScratchFolder folder;
  const InFolder in_folder(folder.path);
  const auto make_model = [](const ts::Key& key, const ts::Mesh& mesh) {
    const nn::ShardingStrategy strategy = nn::fsdp(mesh);
    return Model{nn::linear(key, 10, 16, strategy), nn::linear(key, 16, 10, strategy)};
  };
  const ts::Mesh mesh({{"data", 2}});
  constexpr auto step = ts::train::train_step(
      [](const auto& m, const auto& x, const auto& labels) { return ts::cross_entropy(m(x), labels); });
  std::vector<float> trained;
  for (int job = 0; job < 2; ++job) {  // the second has nothing left to train
    auto state = ts::train::train_state(make_model(ts::Key(1), mesh), ts::optim::AdamW{});
    auto loader = loader_of(mesh, 120, 1);
    // clang-format off
    ts::CheckpointManager checkpoints("runs/digits", {.save_interval_steps = 100, .max_to_keep = 3});
    if (const auto latest = checkpoints.latest_step()) {
      std::tie(state.model, state.optimizer, state.state) =
          checkpoints.restore(*latest, std::tuple(state.model, state.optimizer, state.state));
      state.step = *latest;
    }
    ts::train::fit(state, step, loader, {.steps = 300, .after_step = [&](ts::train::StepReport& report) {
                     checkpoints.save(report.step, std::tuple(state.model, state.optimizer, state.state));
                   }});
    checkpoints.wait_until_finished();
    // clang-format on
    EXPECT_EQ(checkpoints.all_steps(), (std::vector<std::int64_t>{100, 200, 300}));
    EXPECT_EQ(state.step, 300);
    if (job == 0) trained = ts::to_host(state.model.up.weight);
    EXPECT_EQ(ts::to_host(state.model.up.weight), trained);
  }
  ts::save_checkpoint(make_model(ts::Key(2), mesh), "runs/digits/300");
  // clang-format off
    auto model = ts::deferred_init([&] { return make_model(ts::Key(0), mesh); });
    model = ts::load_checkpoint(model, "runs/digits/300");
  // clang-format on
  EXPECT_EQ(ts::to_host(model.up.weight), ts::to_host(make_model(ts::Key(2), mesh).up.weight));
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
