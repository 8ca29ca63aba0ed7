// Trains a small model on four virtual devices, and prints what a training step communicates. README.md shows it whole.
#include <cstdio>
#include <iostream>
#include <tuple>
#include <utility>

#include <tessera/tessera.hpp>

namespace ts = tessera;

constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});  // four virtual devices: threads of this process run them

struct Mlp {  // a model is a plain struct of tensors and other models
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

int main() {
  // Only this line says how the model and the batch are sharded: try ts::nn::single(mesh), data_parallel or fsdp.
  const ts::nn::ShardingStrategy strategy = ts::nn::fsdp_tensor_parallel(mesh);
  const auto [up, down] = ts::split<2>(ts::Key(3));
  Mlp model{ts::nn::linear(up, 1, 64, strategy, ts::nn::Role::column, 1.0),
            ts::nn::linear(down, 64, 1, strategy, ts::nn::Role::row, 0.1)};
  const ts::optim::AdamW config{.learning_rate = 0.02};
  auto state = ts::optim::init_state(config, model);

  const auto x = ts::uniform<float>(ts::Key(4), {128, 1}, mesh, strategy.batch, -1.0f, 1.0f);
  const ts::ShardedTensor<float, 2> target = ts::sin(3.0f * x);  // an expression runs when it becomes a tensor

  std::cout << train_step.plan(model, state, x, target, config);  // known before anything runs
  for (int step = 1; step <= 100; ++step) {
    auto [next, next_state, loss] = train_step(std::move(model), std::move(state), x, target, config);
    model = std::move(next);
    state = std::move(next_state);
    if (step == 1 || step % 50 == 0) std::printf("step %d  loss %.2f\n", step, static_cast<double>(ts::item(loss)));
  }
}
