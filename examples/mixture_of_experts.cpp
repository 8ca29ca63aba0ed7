// A mixture of experts that learns to tell the arms of a spiral apart. One axis of four devices splits the points and
// the experts: points travel to the devices of their experts and back, by all-to-alls. With --fsdp N the model is split
// among N devices instead.
//
//     mixture_of_experts [--fsdp N] [--steps N] [PICTURE.svg]

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numbers>
#include <random>
#include <ranges>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "picture.hpp"

#include <tessera/parallel/fsdp.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/train.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;

constexpr int arms = 3, experts = 4, sequences = 16, points = 64, features = 32;
constexpr double goal = 0.97;

struct Mixture {
  nn::Linear<> in;  // [2, features]
  nn::MoE<float, nn::Dispatch::sequence_capacity> experts;
  nn::Linear<> head;  // [features, arms]
  static constexpr std::array field_names{"in", "experts", "head"};

  constexpr auto embedded(const auto& x) const { return ts::gelu(in(x)); }
  /// Logits of x [sequences, points, 2], and the loss that keeps the experts in equal use.
  constexpr auto operator()(const auto& x) const {
    const auto h = embedded(x);
    const auto [y, balance, z] = experts(h);
    return std::tuple(head(h + y), balance);
  }
};

constexpr auto train_step = ts::train::train_step([](const auto& model, const auto& x, const auto& wanted) {
  const auto [logits, balance] = model(x);
  return ts::cross_entropy(logits, wanted) + 0.01 * balance;
});

/// The class of each point, and the first of its experts.
constexpr auto classify = ts::compile([](auto model, auto x) {
  const auto logits = ts::matmul(model.embedded(x), model.experts.router.weight);
  return std::tuple(ts::argmax<2>(std::get<0>(model(x))), ts::argmax<2>(logits));
});

/// Points of the unit disc, x and y of each, and the arms that they are on.
struct Sample {
  std::vector<float> x;
  std::vector<std::int32_t> classes;

  explicit Sample(std::uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> in_square(-1, 1);
    while (classes.size() < sequences * points) {
      const double a = in_square(random), b = in_square(random), radius = std::hypot(a, b);
      if (radius > 1) continue;
      const double turns = std::atan2(b, a) / (2 * std::numbers::pi) + 1.2 * radius + 1;
      x.push_back(static_cast<float>(a));
      x.push_back(static_cast<float>(b));
      classes.push_back(static_cast<std::int32_t>(turns * arms) % arms);
    }
  }
};

int train(const examples::CommandLine& line) {
  const ts::Mesh mesh = line.fsdp > 0 ? ts::Mesh({{"fsdp", line.fsdp}}) : ts::Mesh({{"fsdp", 1}, {"expert", 4}});
  const nn::ShardingStrategy strategy = nn::data_parallel(mesh, line.fsdp > 0 ? "fsdp" : "expert");
  const auto [first, second, third] = ts::split<3>(ts::Key(1));
  Mixture model{.in = nn::linear(first, 2, features, strategy, nn::Role::column, 2.0),
                .experts = nn::moe<float, nn::Dispatch::sequence_capacity>(
                    second, features, 2 * features, experts, 2, strategy, nn::expert_capacity(points, experts, 2, 1.5),
                    "expert", 0.2),
                .head = nn::linear(third, features, arms, strategy, nn::Role::head, 0.2)};
  auto state = ts::train::train_state(ts::fsdp(std::move(model), mesh), ts::optim::AdamW{});
  const auto x_of = [&](const Sample& s) { return ts::shard(s.x, {sequences, points, 2}, mesh, strategy.batch); };
  const auto classes_of = [&](const Sample& s) {
    return ts::shard(s.classes, {sequences, points}, mesh, strategy.batch);
  };

  const Sample test(0);
  const auto accuracy = [&] {
    const std::vector<std::int32_t> found = ts::to_host(std::get<0>(classify(state.model.module, x_of(test))));
    int right = 0;
    for (std::size_t i = 0; i < found.size(); ++i) right += found[i] == test.classes[i] ? 1 : 0;
    return static_cast<double>(right) / static_cast<double>(found.size());
  };
  const ts::Plan plan = train_step.plan(state, x_of(test), classes_of(test));
  plan.for_each_collective([](const ts::CollectiveInfo& c, std::int64_t) {
    if (c.kind == ts::all_to_all) std::printf("all_to_all: a device sends %d bytes\n", static_cast<int>(c.wire_bytes));
  });
  line.print_collectives(plan);

  constexpr int steps = 1200;
  double reached = 0;
  const auto batches = std::views::iota(1, steps + 1) | std::views::transform([&](int step) {
                         const Sample batch(static_cast<std::uint32_t>(step));
                         return std::tuple(x_of(batch), classes_of(batch));
                       });
  ts::train::fit(state, train_step, batches,
                 {.steps = line.steps,
                  .learning_rate = [](auto step) { return ts::optim::warmup_cosine(step, 50, steps, 1e-2, 1e-4); },
                  .after_step =
                      [&](const ts::train::StepReport& report) {
                        line.print_loss(report.step, report.metrics.loss);
                        if (report.step % 200 != 0) return;
                        reached = accuracy();
                        std::printf("step %4d  loss %.3f  accuracy %.3f\n", static_cast<int>(report.step),
                                    report.metrics.loss, reached);
                      }});

  if (!line.files.empty()) {
    examples::Picture picture(2);
    const Sample shown[] = {Sample(1), Sample(2), Sample(3)};
    for (const bool of_experts : {false, true}) {
      picture.panel(of_experts ? "the first expert of each point" : "the arm that is found");
      for (const Sample& s : shown) {
        const auto [found, expert] = classify(state.model.module, x_of(s));
        const std::vector<std::int32_t> kinds = ts::to_host(of_experts ? expert : found);
        for (std::size_t i = 0; i < kinds.size(); ++i)
          picture.point(static_cast<double>(s.x[2 * i]), static_cast<double>(s.x[2 * i + 1]), kinds[i], 2.4);
      }
    }
    picture.write(line.files[0]);
  }
  if (reached >= goal || line.steps > 0) return 0;
  std::fprintf(stderr, "the accuracy is below %.2f\n", goal);
  return 1;
}

int main(int argc, char** argv) { return examples::run(argc, argv, 1, train); }
