// A denoising diffusion model of points on a spiral (Ho, Jain, Abbeel, 2006.11239), trained data-parallel on four
// devices, or split among N of them. A training step draws its points, noise and times on the devices; all steps back
// from noise to points are one program.
//
//     diffusion [--fsdp N] [--steps N] [PICTURE.svg]

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numbers>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "picture.hpp"

#include <tessera/parallel/fsdp.hpp>
#include <tessera/tessera.hpp>

namespace ts = tessera;

constexpr int levels = 100, batch = 512, samples = 2000;

/// The share of the signal's variance that is left at a level, a cosine (Nichol, Dhariwal, 2102.09672).
constexpr auto signal(const auto& level) {
  const auto c = ts::cos((level / double(levels) + 0.008) * (std::numbers::pi / 2 / 1.008));
  return ts::square(c);
}

/// Points [N, 2] of a spiral of one and three quarter turns, whose coordinates have about unit variance.
constexpr auto spiral(const auto& along) {
  const auto angle = (along * 3.5 + 0.5) * std::numbers::pi, radius = along * 1.4 + 0.4;
  return ts::stack<1>(radius * ts::cos(angle), radius * ts::sin(angle));
}

/// The noise in x [N, 2] at levels [N].
struct Denoiser {
  ts::nn::Linear<> in, hidden1, hidden2, out;

  constexpr auto operator()(const auto& x, const auto& level) const {
    const auto t = level / double(levels);
    const auto waves = x * std::numbers::pi;
    const auto features = ts::concat<1>(
        x, ts::sin(waves), ts::cos(waves),
        ts::stack<1>(t, ts::cos(t * std::numbers::pi), ts::cos(t * 2.0 * std::numbers::pi),
                     ts::cos(t * 4.0 * std::numbers::pi), ts::sqrt(signal(level)), ts::sqrt(1.0 - signal(level))));
    const auto first = ts::silu(in(features));
    const auto second = first + ts::silu(hidden1(first));
    return out(second + ts::silu(hidden2(second)));
  }
};

constexpr auto train_step = ts::compile([](auto model, auto state, auto like, auto key, auto config) {
  const auto x = spiral(ts::uniform_like<1>(like, key));  // like: [batch], split like the batch
  const auto level = ts::floor(ts::uniform_like<2>(like, key) * double(levels)) + 1.0;
  const auto noise = ts::normal_like<3>(x, key);
  const auto share = ts::unsqueeze<1>(signal(level));
  const auto noisy = ts::sqrt(share) * x + ts::sqrt(1.0 - share) * noise;
  const auto loss_of = [](const auto& m, const auto& points, const auto& at, const auto& target) {
    return ts::mse(m(points, at), target);
  };
  const auto [loss, gradient] = ts::value_and_grad(loss_of)(model, noisy, level, noise);
  const auto [next, next_state] = ts::adamw(model, gradient, state, config);
  return std::tuple(next, next_state, loss);
});

/// Points from noise: each step takes a part of the noise away that the model sees, and adds a little (DDPM).
constexpr auto sample = ts::compile([](auto model, auto like, auto key) {  // like: [samples, 2]
  const auto step = [&](const auto& i, const auto& x) {
    const auto level = ts::broadcast_like(ts::cast<float>(levels - i), ts::max<1>(x));
    const auto share = ts::unsqueeze<1>(signal(level)), before = ts::unsqueeze<1>(signal(level - 1.0));
    const auto kept = share / before;
    const auto clean = ts::clamp((x - ts::sqrt(1.0 - share) * model(x, level)) / ts::sqrt(share), -2.0, 2.0);
    const auto mean = (ts::sqrt(before) * (1.0 - kept) * clean + ts::sqrt(kept) * (1.0 - before) * x) / (1.0 - share);
    return mean + ts::sqrt((1.0 - before) / (1.0 - share) * (1.0 - kept)) * ts::normal_like<4>(x, key);
  };
  return ts::fori_loop(0, levels, step, ts::normal_like<5>(like, key));
});

/// The distance of a point from the spiral, by search.
double distance(double x, double y) {
  double least = 1e9;
  for (int i = 0; i <= 2000; ++i) {
    const double along = i / 2000.0, angle = (along * 3.5 + 0.5) * std::numbers::pi, radius = along * 1.4 + 0.4;
    least = std::fmin(least, std::hypot(x - radius * std::cos(angle), y - radius * std::sin(angle)));
  }
  return least;
}

int train(const examples::CommandLine& line) {
  const ts::Mesh mesh = line.fsdp > 0 ? ts::Mesh({{"fsdp", line.fsdp}}) : ts::Mesh({{"fsdp", 1}, {"data", 4}});
  const ts::nn::ShardingStrategy strategy = ts::nn::data_parallel(mesh, line.fsdp > 0 ? "fsdp" : "data");
  const auto [k1, k2, k3, k4] = ts::split<4>(ts::Key{11});
  const auto layer = [&](ts::Key key, int from, int to) {
    return ts::nn::linear(key, from, to, strategy, ts::nn::Role::column, std::sqrt(1.0 / from));
  };
  Denoiser denoiser{layer(k1, 12, 128), layer(k2, 128, 128), layer(k3, 128, 128), layer(k4, 128, 2)};
  auto model = ts::fsdp(std::move(denoiser), mesh);
  ts::optim::AdamW config{.learning_rate = 2e-3, .weight_decay = 0};
  auto state = ts::optim::init_state(config, model);
  const auto like = ts::zeros<float>({batch}, mesh, strategy.batch);
  const auto seeds = ts::zeros<float>({samples, 2}, mesh, strategy.batch);

  examples::Picture picture(3);
  double mean_loss = 0;
  constexpr int steps = 5000;
  const int last = line.steps > 0 ? static_cast<int>(std::min<std::int64_t>(line.steps, steps)) : steps;
  line.print_collectives(train_step.plan(model, state, like, ts::Scalar(1), config));
  for (int step = 1; step <= last; ++step) {
    config.learning_rate = 2e-3 * 0.5 * (1 + std::cos(std::numbers::pi * step / steps));
    auto [next, next_state, loss] = train_step(std::move(model), std::move(state), like, ts::Scalar(step), config);
    model = std::move(next);
    state = std::move(next_state);
    line.print_loss(step, double(ts::item(loss)));
    if (step > steps - 500) mean_loss += ts::item(loss) / 500.0;
    if (step == 1 || step == 600 || step == last) {
      const std::vector<float> points = ts::to_host(sample(model, seeds, ts::Scalar(0)));
      double away = 0;
      picture.panel(std::to_string(step) + (step == 1 ? " step" : " steps"));
      for (std::size_t i = 0; i < samples; ++i) {
        picture.point(points[2 * i] / 2, points[2 * i + 1] / 2, 0);
        away += distance(points[2 * i], points[2 * i + 1]) / samples;
      }
      std::printf("step %4d  loss %.4f  the samples are %.4f away from the spiral\n", step, double(ts::item(loss)),
                  away);
    }
  }
  if (last == steps) std::printf("mean loss of the last 500 steps: %.4f\n", mean_loss);
  if (!line.files.empty()) picture.write(line.files[0]);
  return 0;
}

int main(int argc, char** argv) { return examples::run(argc, argv, 1, train); }
