// Trains an LSTM to add two numbers that it sees far apart, the adding problem of Hochreiter and Schmidhuber, 1997.
//
//   lstm [--fsdp N] [--steps N] [loss.svg]
//
// Each of 40 steps shows a number in [0, 1] and a mark; two steps are marked, one in each half. The last state has to
// give the sum of the two marked numbers. Always answering 1 has an error of 1/6; the program ends at an error of .005.
// With --fsdp N the model is split among N devices, with --steps N training ends after N steps.

#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "train_gpt/chart.hpp"

#include <tessera/parallel/fsdp.hpp>
#include <tessera/tessera.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;

struct Adder {
  nn::Lstm<> lstm;
  nn::Linear<> head;
  static constexpr std::array field_names{"lstm", "head"};  // for ts::summary

  constexpr auto operator()(const auto& xs) const {                       // [T, B, 2]
    const auto [outputs, state] = lstm(xs);                               // state: h and c, [1, B, H]
    return head(ts::squeeze<0>(ts::slice<0>(std::get<0>(state), 0, 1)));  // [B, 1]
  }
};

// The 40 steps are a ts::scan: traced and planned once, forward and backward, whatever their number is.
constexpr auto train_step = ts::compile([](auto model, auto state, auto xs, auto sums, auto config) {
  const auto loss_of = [](const auto& m, const auto& in, const auto& out) { return ts::mse(m(in), out); };
  const auto [loss, gradient] = ts::value_and_grad(loss_of)(model, xs, sums);
  const auto [clipped, norm] = ts::clip_by_global_norm(gradient, 1.0);
  const auto [next, next_state] = ts::adamw(model, clipped, state, config);
  return std::tuple(next, next_state, loss);
});

constexpr int steps = 40, batch = 64, hidden = 64;

/// Sequences and the sums of their marked numbers, split along the batch.
auto make_batch(std::mt19937& random, const nn::ShardingStrategy& strategy) {
  std::uniform_real_distribution<float> number(0, 1);
  std::uniform_int_distribution<int> place(0, steps / 2 - 1);
  std::vector<float> xs(steps * batch * 2), sums(batch);
  for (int b = 0; b < batch; ++b) {
    const int first = place(random), second = steps / 2 + place(random);
    for (int t = 0; t < steps; ++t) {
      const auto at = static_cast<std::size_t>((t * batch + b) * 2);
      xs[at] = number(random);
      if (t != first && t != second) continue;
      xs[at + 1] = 1;
      sums[static_cast<std::size_t>(b)] += xs[at];
    }
  }
  return std::pair(ts::shard(xs, {steps, batch, 2}, strategy.mesh, {ts::none, strategy.batch.entries[0]}),
                   ts::shard(sums, {batch, 1}, strategy.mesh, strategy.batch));
}

int train(const examples::CommandLine& line) {
  // The model axis splits the hidden features of every gate, the data axis the batch; with --fsdp one axis splits both.
  const nn::ShardingStrategy strategy = line.fsdp > 0
                                            ? nn::data_parallel(ts::Mesh({{"fsdp", line.fsdp}}), "fsdp")
                                            : nn::tensor_parallel(ts::Mesh({{"fsdp", 1}, {"data", 2}, {"model", 2}}));
  const auto [first, second] = ts::split<2>(ts::Key(1));
  Adder adder{nn::lstm(first, 2, hidden, strategy), nn::linear(second, hidden, 1, strategy, nn::Role::row, 0.1)};
  auto model = ts::fsdp(std::move(adder), strategy.mesh);
  ts::optim::AdamW config{.learning_rate = 5e-3, .weight_decay = 0};
  auto state = ts::optim::init_state(config, model);
  std::printf("%s\n", ts::summary(model).c_str());

  std::mt19937 random(1);
  std::vector<double> losses;
  double mean = 1.0 / 6;  // a moving average
  while (mean > 0.005 && losses.size() < 4000 && !line.ends_after(std::ssize(losses))) {
    const auto [xs, sums] = make_batch(random, strategy);
    if (losses.empty()) line.print_collectives(train_step.plan(model, state, xs, sums, config));
    ts::ShardedTensor<float, 0> loss;
    std::tie(model, state, loss) = train_step(std::move(model), std::move(state), xs, sums, config);
    losses.push_back(static_cast<double>(ts::item(loss)));
    line.print_loss(std::ssize(losses), losses.back());
    mean += 0.02 * (losses.back() - mean);
    if (losses.size() % 100 == 0) std::printf("step %4zu  error %.4f\n", losses.size(), mean);
  }
  std::printf("error %.4f after %zu steps\n", mean, losses.size());

  if (!line.files.empty()) {
    const train_gpt::LossChart chart("An LSTM learns to add two of 40 numbers", "batches of 64", "mean squared error");
    std::ofstream(line.files[0]) << chart.svg(losses);
  }
  return mean > 0.005 && line.steps == 0 ? 1 : 0;
}

int main(int count, char** arguments) { return examples::run(count, arguments, 1, train); }
