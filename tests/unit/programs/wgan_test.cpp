// A Wasserstein GAN with a gradient penalty: the gradient of a gradient, two models, and an optimizer that divides by
// the size of each gradient.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/nn/nn.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/optim/optim.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>

namespace {

namespace ts = tessera;
namespace nn = tessera::nn;

template <class T> struct Net {
  nn::Linear<T> in, hidden, out;
  static constexpr std::array field_names{"in", "hidden", "out"};
  constexpr auto operator()(const auto& x) const {
    return out(ts::leaky_relu(hidden(ts::leaky_relu(in(x), 0.2)), 0.2));
  }
};
Net<float> net(ts::Key key, int in, int out, const nn::ShardingStrategy& strategy) {
  const auto [first, second, third] = ts::split<3>(key);
  return {nn::linear<float>(first, in, 16, strategy, nn::Role::column, 0.5),
          nn::linear<float>(second, 16, 16, strategy, nn::Role::row, 0.25),
          nn::linear<float>(third, 16, out, strategy, nn::Role::head, 0.25)};
}

/// The mean score of the fakes less that of the examples, and ten times the mean of (|slope| - 1)^2 between them.
constexpr auto critic_loss = [](const auto& critic, const auto& real, const auto& fake, const auto& mixed) {
  const auto slope = ts::grad([](const auto& x, const auto& model) { return ts::sum(model(x)); })(mixed, critic);
  const auto off = ts::sqrt(ts::sum<1>(slope * slope) + 1e-12) - 1.0;
  return ts::mean(critic(fake)) - ts::mean(critic(real)) + 10.0 * ts::mean(off * off);
};
constexpr auto critic_step = ts::compile([](auto generator, auto critic, auto state, auto real, auto z, auto share) {
  const auto fake = ts::stop_gradient(generator(z));
  const auto [loss, gradient] =
      ts::value_and_grad(critic_loss)(critic, real, fake, share * real + (1.0 - share) * fake);
  const auto [next, next_state] = ts::rmsprop(critic, gradient, state, {.learning_rate = 1e-3});
  return std::tuple(next, next_state, gradient);
});
constexpr auto generator_step = ts::compile([](auto generator, auto critic, auto state, auto z) {
  const auto loss = [](const auto& model, const auto& judge, const auto& in) { return -ts::mean(judge(model(in))); };
  const auto gradient = ts::grad(loss)(generator, critic, z);
  return ts::rmsprop(generator, gradient, state, {.learning_rate = 1e-3});
});

template <class T> void append(std::vector<double>& numbers, const Net<T>& net) {
  const auto take = [&](const auto& x) {
    for (const T v : ts::to_host(x)) numbers.push_back(static_cast<double>(v));
  };
  for (const auto* layer : {&net.in, &net.hidden, &net.out}) take(layer->weight), take(layer->bias);
}

struct Trained {
  std::vector<double> parameters, first_gradient;
};
template <class T> Trained train(const nn::ShardingStrategy& strategy, const ts::Mesh& mesh, int steps) {
  auto generator = ts::cast_model<T>(net(ts::Key(1), 8, 2, strategy)),
       critic = ts::cast_model<T>(net(ts::Key(2), 2, 1, strategy));
  const ts::optim::RmsProp config;
  auto of_generator = ts::optim::init_state(config, generator);
  auto of_critic = ts::optim::init_state(config, critic);
  // The numbers of an f64 run are those of the f32 run.
  const auto drawn = [&](ts::Key key, std::int64_t columns, float low, float high) {
    return ts::eval(ts::cast<T>(ts::uniform<float>(key, {32, columns}, mesh, strategy.batch, low, high)));
  };
  Trained made;
  for (int step = 0; step < steps; ++step) {
    const auto keys = ts::split<4>(ts::fold_in(ts::Key(3), static_cast<std::uint64_t>(step)));
    const auto one_share = drawn(keys[2], 1, 0, 1);
    const auto share = ts::eval(ts::concat<1>(one_share, one_share));
    auto [next, state, gradient] = critic_step(generator, std::move(critic), std::move(of_critic),
                                               drawn(keys[0], 2, -1, 1), drawn(keys[1], 8, -1, 1), share);
    if (step == 0) append(made.first_gradient, gradient);
    critic = std::move(next), of_critic = std::move(state);
    std::tie(generator, of_generator) =
        generator_step(std::move(generator), critic, std::move(of_generator), drawn(keys[3], 8, -1, 1));
  }
  append(made.parameters, generator);
  append(made.parameters, critic);
  return made;
}
double difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

struct OnDevices {
  const char* name;
  ts::Mesh mesh;
  nn::ShardingStrategy (*strategy)(const ts::Mesh&);
};
const std::vector<OnDevices>& placements() {
  static const std::vector<OnDevices> made{
      {"data parallel", ts::Mesh({{"data", 4}}), [](const ts::Mesh& on) { return nn::data_parallel(on); }},
      {"fsdp", ts::Mesh({{"data", 4}}), [](const ts::Mesh& on) { return nn::fsdp(on); }},
      {"fsdp and tensor parallel", ts::Mesh({{"data", 2}, {"model", 2}}),
       [](const ts::Mesh& on) { return nn::fsdp_tensor_parallel(on); }}};
  return made;
}
template <class T> Trained train_on_one(int steps) {
  const ts::Mesh one({{"data", 1}});
  return train<T>(nn::single(one), one, steps);
}

TEST(Wgan, TrainsOnFourDevicesAsOnOne) {
  const Trained one = train_on_one<double>(20);
  EXPECT_GT(difference(one.parameters, train_on_one<double>(1).parameters), 0.01);
  for (const OnDevices& four : placements())
    EXPECT_LT(difference(train<double>(four.strategy(four.mesh), four.mesh, 20).parameters, one.parameters), 1e-10)
        << four.name;
}

// In f32 the gradients differ by rounding only. Parameters can differ by more: RMSprop divides a gradient by its size,
// also one that is 0 but for rounding, as that of the critic's last bias, which adds the same to both scores.
TEST(Wgan, HasGradientsInFloatThatDifferByRounding) {
  const std::vector<double> exact = train_on_one<double>(1).first_gradient;
  EXPECT_GT(*std::max_element(exact.begin(), exact.end()), 0.1);
  EXPECT_LT(std::abs(exact.back()), 1e-15);
  EXPECT_LT(difference(train_on_one<float>(1).first_gradient, exact), 1e-5);
  for (const OnDevices& four : placements()) {
    const Trained made = train<float>(four.strategy(four.mesh), four.mesh, 1);
    EXPECT_LT(difference(made.first_gradient, exact), 1e-5) << four.name;
    EXPECT_LT(std::abs(made.first_gradient.back()), 1e-7) << four.name;
  }
}

}  // namespace
