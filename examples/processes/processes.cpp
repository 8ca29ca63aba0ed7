// Trains a small model on the devices of several processes: mpirun -n 2 --bind-to none processes
// The losses have the same bits in any number of processes. docs/processes.md explains it.
#include <cstdio>
#include <tuple>
#include <utility>

#include <tessera/interop/mpi.hpp>
#include <tessera/tessera.hpp>

namespace ts = tessera;

struct Mlp {
  ts::nn::Linear<> up, middle, down;
  constexpr auto operator()(const auto& x) const { return down(ts::gelu(middle(ts::gelu(up(x))))); }
};

constexpr auto train_step = ts::compile([](auto model, auto state, auto x, auto target, auto config) {
  const auto loss_of = [](const auto& m, const auto& in, const auto& out) { return ts::mse(m(in), out); };
  const auto [loss, gradient] = ts::value_and_grad(loss_of)(model, x, target);
  const auto [next, next_state] = ts::adamw(model, gradient, state, config);
  return std::tuple(next, next_state, loss);
});

int main() {
  const ts::mpi::Session session;
  const ts::Mesh mesh({{"data", 3}, {"model", 2}});  // mpirun -n 2: three devices in each process

  const ts::nn::ShardingStrategy strategy = ts::nn::fsdp_tensor_parallel(mesh);
  const auto [up, middle, down] = ts::split<3>(ts::Key(3));
  Mlp model{ts::nn::linear(up, 1, 64, strategy, ts::nn::Role::column, 1.0),
            ts::nn::linear(middle, 64, 64, strategy, ts::nn::Role::column),
            ts::nn::linear(down, 64, 1, strategy, ts::nn::Role::row, 0.1)};
  const ts::optim::AdamW config{.learning_rate = 0.02};
  auto state = ts::optim::init_state(config, model);
  const auto x = ts::uniform<float>(ts::Key(4), {128, 1}, mesh, strategy.batch, -1.0f, 1.0f);
  const ts::ShardedTensor<float, 2> target = ts::sin(3.0f * x);

  for (int step = 1; step <= 100; ++step) {
    auto [next, next_state, loss] = train_step(std::move(model), std::move(state), x, target, config);
    model = std::move(next);
    state = std::move(next_state);
    const float loss_now = ts::item(loss);  // in each process, also where nobody prints it
    if (ts::process_index() == 0 && step % 25 == 0) std::printf("step %d  loss %.9g\n", step, loss_now);
  }
  std::printf("process %d of %d stores %lld of %lld bytes of the second weight\n", ts::process_index(),
              ts::process_count(), static_cast<long long>(ts::stored_bytes(model.middle.weight)),
              static_cast<long long>(ts::size(model.middle.weight) * 4));
}
