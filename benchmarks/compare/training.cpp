// Steps of training: an MLP, a GPT, the same GPT on many devices, and the memory that it takes.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "harness.hpp"

#include <tessera/tessera.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;

namespace {

using compare::Array;
using compare::GptShape;
using compare::MlpShape;
using compare::Task;

struct Mlp {
  nn::Linear<> up, middle, down;
  constexpr auto operator()(const auto& x) const { return down(ts::gelu(middle(ts::gelu(up(x))))); }
};

constexpr auto mlp_step = ts::compile([](auto model, auto x, auto target, auto config) {
  const auto loss_of = [](const auto& m, const auto& in, const auto& out) { return ts::mse(m(in), out); };
  const auto [loss, gradient] = ts::value_and_grad(loss_of)(model, x, target);
  return std::tuple(ts::sgd(model, gradient, config), loss);
});

Task mlp_task(const MlpShape& s) {
  const nn::ShardingStrategy strategy = nn::single(ts::Mesh({{"data", 1}}));
  const auto [a, b, c] = ts::split<3>(ts::Key(1));
  const auto model =
      std::make_shared<Mlp>(nn::linear(a, s.in, s.hidden, strategy), nn::linear(b, s.hidden, s.hidden, strategy),
                            nn::linear(c, s.hidden, s.out, strategy));
  const Array in(std::int64_t{s.batch} * s.in, 1), out(std::int64_t{s.batch} * s.out, 2);
  const auto x = ts::shard(in, {s.batch, s.in}, strategy.mesh),
             target = ts::shard(out, {s.batch, s.out}, strategy.mesh);
  return Task([=] {
    auto [next, loss] = mlp_step(std::move(*model), x, target, ts::optim::Sgd{.learning_rate = 0.01});
    *model = std::move(next);
    ts::item(loss);
  });
}

/// Without the gradient of the first layer's input, which is not needed.
double mlp_flops(const MlpShape& s) {
  const double first = double(s.in) * s.hidden, others = double(s.hidden) * s.hidden + double(s.hidden) * s.out;
  return 2.0 * s.batch * (2 * first + 3 * others);
}

struct Gpt {
  nn::Embedding<> tokens;
  nn::Positions<> positions;
  ts::Stack<nn::Block<>> blocks;
  nn::LayerNorm<> norm;
  nn::Linear<float, false> head;
  /// Logits, computed in T from parameters of f32.
  template <ts::Element T> constexpr auto logits(const auto& x) const {
    return head(norm(blocks(ts::cast<T>(positions(tokens(x))))));
  }
};

template <ts::Element T>
constexpr auto gpt_step = ts::compile([](auto model, auto state, auto inputs, auto targets, auto config) {
  const auto loss_of = [](const auto& m, const auto& x, const auto& t) {
    return ts::cross_entropy(m.template logits<T>(x), t);
  };
  const auto [loss, gradient] = ts::value_and_grad(loss_of)(model, inputs, targets);
  const auto [next, next_state] = ts::adamw(model, gradient, state, config);
  return std::tuple(next, next_state, loss);
});

template <ts::Element T = float> Task gpt_task(const GptShape& s, const nn::ShardingStrategy& strategy) {
  struct Training {
    Gpt model;
    ts::optim::AdamWState<Gpt> state;
  };
  const auto [a, b, c, d] = ts::split<4>(ts::Key(1));
  const auto training = std::make_shared<Training>();
  const auto block = [&, key = c](int i) {
    return nn::block(ts::fold_in(key, static_cast<std::uint64_t>(i)), s.features, s.heads, 4 * s.features, strategy,
                     s.layers);
  };
  training->model = {nn::embedding(a, s.classes, s.features, strategy),
                     nn::positions(b, s.time, s.features, strategy),
                     {s.layers, block},
                     nn::layer_norm(s.features, strategy),
                     nn::linear<float, false>(d, s.features, s.classes, strategy, nn::Role::head)};
  training->state = ts::optim::init_state(ts::optim::AdamW{}, training->model);

  std::vector<std::int32_t> in, out;
  for (std::int64_t i = 0; i < std::int64_t{s.batch} * s.time; ++i) {
    in.push_back(static_cast<std::int32_t>((i * 7919 + 13) % s.classes));
    out.push_back(static_cast<std::int32_t>((i * 104729 + 7) % s.classes));
  }
  const auto x = ts::shard(in, {s.batch, s.time}, strategy.mesh, strategy.batch);
  const auto target = ts::shard(out, {s.batch, s.time}, strategy.mesh, strategy.batch);
  return Task([=] {
    auto [next, next_state, loss] = gpt_step<T>(std::move(training->model), std::move(training->state), x, target,
                                                ts::optim::AdamW{.learning_rate = 3e-4});
    training->model = std::move(next);
    training->state = std::move(next_state);
    ts::item(loss);
  });
}

/// Flops of the products, once forward and twice backward; of attention only the half below the causal mask.
double gpt_flops(const GptShape& s) {
  const double tokens = double(s.batch) * s.time, d = s.features;
  return 3 * tokens * (2 * (s.layers * 12 * d * d + d * s.classes) + s.layers * 2.0 * s.time * d);
}

/// The least memory traffic of a step in bf16: gradients are written, then AdamW reads each parameter, its gradient and
/// two moments, and writes the parameter and the moments.
double gpt_bytes(const GptShape& s) {
  const double d = s.features;
  return 4.0 * 8 * (2 * s.classes * d + s.time * d + s.layers * 12 * d * d);
}

/// Peak resident memory of this process, in bytes.
double peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return 1024 * std::stod(line.substr(6));
  throw std::runtime_error("/proc/self/status has no VmHWM");
}

/// Reports the peak memory of one contender's training; the process must do nothing else.
void report_memory(compare::Harness& harness, const std::string& contender) {
  Task task;
  if (contender == "tessera")
    task = gpt_task({}, nn::single(ts::Mesh({{"data", 1}})));
  else if (compare::Peer* peer = harness.load(contender))
    task = peer->gpt_step({});
  if (!task) return;
  task.seconds(4);
  std::printf("{\"memory\": %.0f}\n", peak_memory());
}

void rows(compare::Harness& harness) {
  if (const auto& contender = harness.arguments().memory_of; !contender.empty())
    return report_memory(harness, contender);

  const nn::ShardingStrategy one = nn::single(ts::Mesh({{"data", 1}}));
  if (const auto row = harness.row("train/mlp"); !row.empty())
    harness.measure(row, {.flops = mlp_flops({})}, mlp_task({}), [](compare::Peer& peer) { return peer.mlp_step({}); });
  if (const auto row = harness.row("train/gpt"); !row.empty())
    harness.measure(row, {.flops = gpt_flops({})}, gpt_task({}, one),
                    [](compare::Peer& peer) { return peer.gpt_step({}); });

  // Tessera in bf16, the peer in f32. The floor counts only memory traffic, since the FMA probe doesn't use AMX.
  if (const auto row = harness.row("train/gpt_bf16"); !row.empty())
    harness.measure(row, {.bytes = gpt_bytes({})}, gpt_task<ts::bf16>({}, one),
                    [](compare::Peer& peer) { return peer.gpt_step({}); });

  // As many tokens as train/gpt, in 64 short sequences, so that each of 64 devices has one.
  const GptShape wide{.batch = 64, .time = 32};
  for (const int devices : {2, 8, 64})
    if (const auto row = harness.row("devices/gpt/" + std::to_string(devices)); !row.empty())
      harness.measure(row, {.flops = gpt_flops(wide)}, gpt_task(wide, nn::data_parallel(ts::Mesh({{"data", devices}}))),
                      "one_device", gpt_task(wide, one));
}

}  // namespace

int main(int argc, char** argv) { return compare::run(argc, argv, {"libtorch"}, rows); }
