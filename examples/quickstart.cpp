// Shows the first steps with Tessera: shard tensors, compute with them and print the plan, then train a small model.

#include <cmath>
#include <cstdio>
#include <iostream>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/tessera.hpp>

namespace ts = tessera;

// A grid of four devices. They are virtual: the threads of this process run them, however many they are.
constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});

void shard_and_compute() {
  // x is split along both dims, w along the dim over which the product sums: each device computes partial sums.
  const auto x = ts::normal<float>(ts::Key{1}, {4, 6}, mesh, {"data", "model"});
  const auto w = ts::normal<float>(ts::Key{2}, {6, 4}, mesh, {"model", ts::none});
  const auto b = ts::shard<float>({0.5f, -0.5f, 1.0f, -1.0f}, mesh);

  const auto y = ts::relu(ts::matmul(x, w) + b);  // an expression: nothing runs yet
  std::cout << ts::explain(y) << "\n";            // its kernels and collectives, bytes, source lines

  const ts::ShardedTensor<float, 2> z = y;  // now it is fused, partitioned and run
  std::cout << ts::sharded_type_text(z) << "\n";
  const std::vector<float> values = ts::to_host(z);
  for (int row = 0; row < 4; ++row, std::cout << "\n")
    for (int column = 0; column < 4; ++column) std::printf("%8.3f", values[static_cast<std::size_t>(4 * row + column)]);
}

/// A model is a plain struct of tensors and other models.
struct Mlp {
  ts::nn::Linear<> up, down;
  constexpr auto operator()(const auto& x) const { return down(ts::gelu(up(x))); }
};

// Traced by the C++ compiler, once: loss, gradient and update become one program.
constexpr auto train_step = ts::compile([](auto model, auto state, auto x, auto target, auto config) {
  const auto loss_of = [](const auto& m, const auto& in, const auto& out) { return ts::mse(m(in), out); };
  const auto [loss, gradient] = ts::value_and_grad(loss_of)(model, x, target);
  const auto [next, next_state] = ts::adamw(model, gradient, state, config);
  return std::tuple(next, next_state, loss);
});

void train() {
  // Only the strategy says how the model is sharded: try ts::nn::single(mesh) or ts::nn::fsdp(mesh).
  const ts::nn::ShardingStrategy strategy = ts::nn::fsdp_tensor_parallel(mesh);
  const auto [up, down] = ts::split<2>(ts::Key{3});
  Mlp model{ts::nn::linear(up, 1, 64, strategy, ts::nn::Role::column, 1.0),
            ts::nn::linear(down, 64, 1, strategy, ts::nn::Role::row, 0.1)};
  const ts::optim::AdamW config{.learning_rate = 0.02};
  auto state = ts::optim::init_state(config, model);

  // Points of sin(3x) on [-1, 1]; each half of the mesh along `data` has half of them.
  constexpr int points = 128;
  std::vector<float> in, out;
  for (int i = 0; i < points; ++i) {
    in.push_back(2 * static_cast<float>(i) / (points - 1) - 1);
    out.push_back(std::sin(3 * in.back()));
  }
  const auto x = ts::shard(in, {points, 1}, mesh, strategy.batch);
  const auto target = ts::shard(out, {points, 1}, mesh, strategy.batch);

  for (int step = 1; step <= 300; ++step) {
    auto [next, next_state, loss] = train_step(std::move(model), std::move(state), x, target, config);
    model = std::move(next);
    state = std::move(next_state);
    if (step == 1 || step % 50 == 0) std::printf("step %3d  loss %.6f\n", step, static_cast<double>(ts::item(loss)));
  }
}

int main() {
  shard_and_compute();
  std::cout << "\n";
  train();
}
