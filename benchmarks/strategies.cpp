// What parallel training costs where the devices of a mesh share the threads of one machine, so that splitting can only
// cost: steps of a GPT and of an MLP, in rounds in which each program runs once, so that all of them meet the same
// load.
//
//   benchmark_strategies [rounds]

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/nn/nn.hpp>
#include <tessera/optim/optim.hpp>
#include <tessera/parallel/fsdp.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>

namespace {

namespace ts = tessera;
namespace nn = tessera::nn;

struct Gpt {
  nn::Embedding<> characters;
  nn::Positions<> positions;
  ts::Stack<nn::Block<>> blocks;
  nn::LayerNorm<> norm;
  nn::Linear<float, false> head;
  static constexpr std::array field_names{"characters", "positions", "blocks", "norm", "head"};
  constexpr auto operator()(const auto& tokens) const { return head(norm(blocks(positions(characters(tokens))))); }
};
struct Mlp {
  nn::Linear<> up, down;
  static constexpr std::array field_names{"up", "down"};
  constexpr auto operator()(const auto& x) const { return down(ts::gelu(up(x))); }
};

struct GptStep {
  constexpr auto operator()(const auto& model, const auto& state, const auto& config, const auto& in,
                            const auto& out) const {
    const auto loss_of = [](const auto& m, const auto& x, const auto& y) { return ts::cross_entropy(m(x), y); };
    const auto [loss, gradient] = ts::value_and_grad(loss_of)(model, in, out);
    const auto [next, next_state] = ts::adamw(model, gradient, state, config);
    return std::tuple(next, next_state, loss);
  }
};
struct MlpStep {
  constexpr auto operator()(const auto& model, const auto& state, const auto& config, const auto& in,
                            const auto& out) const {
    const auto loss_of = [](const auto& m, const auto& x, const auto& y) { return ts::mse(m(x), y); };
    const auto [loss, gradient] = ts::value_and_grad(loss_of)(model, in, out);
    const auto [next, next_state] = ts::adamw(model, gradient, state, config);
    return std::tuple(next, next_state, loss);
  }
};
constexpr auto gpt_step = ts::compile(GptStep{});
constexpr auto mlp_step = ts::compile(MlpStep{});
constexpr ts::optim::AdamW config{};

constexpr std::int64_t classes = 96;
struct Size {
  std::int64_t batch, context, features;
  int heads, depth;
};
/// That of train_gpt by default, and one of 3.2 million parameters.
constexpr Size small{16, 64, 64, 4, 2}, large{16, 128, 256, 4, 4};

struct Case {
  std::string name;
  std::function<void()> step;
  std::vector<double> seconds{};
};

/// A step that trains a model of its own, and reads the loss.
template <class Step, class Model, class Batch>
Case stepping(std::string name, const Step& step, Model model, Batch b) {
  auto state = ts::optim::init_state(config, model);
  return {std::move(name), [&step, model = std::move(model), state = std::move(state), b = std::move(b)]() mutable {
            auto [next, next_state, loss] =
                step(std::move(model), std::move(state), config, std::get<0>(b), std::get<1>(b));
            model = std::move(next), state = std::move(next_state);
            if (!(ts::item(loss) < 100)) std::abort();
          }};
}

Case gpt(std::string name, const nn::ShardingStrategy& strategy, const Size& size) {
  const std::int64_t batch = size.batch, context = size.context, features = size.features;
  const auto [first, second, third, fourth] = ts::split<4>(ts::Key(1));
  Gpt model{nn::embedding(first, classes, features, strategy), nn::positions(second, context, features, strategy),
            ts::Stack<nn::Block<>>(size.depth,
                                   [&, key = third](int i) {
                                     return nn::block(ts::fold_in(key, static_cast<std::uint64_t>(i)), size.features,
                                                      size.heads, 4 * size.features, strategy, size.depth);
                                   }),
            nn::layer_norm(features, strategy),
            nn::linear<float, false>(fourth, features, classes, strategy, nn::Role::head, 0.02)};
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < batch * context; ++i) tokens.push_back(static_cast<std::int32_t>(i * i % classes));
  const auto in = ts::shard(tokens, {batch, context}, strategy.mesh, strategy.batch);
  return stepping(std::move(name), gpt_step, std::move(model), std::pair(in, in));
}

constexpr std::int64_t features = 256;
Mlp mlp(const nn::ShardingStrategy& strategy) {
  return {nn::linear(ts::Key(1), features, 4 * features, strategy, nn::Role::column, 0.05),
          nn::linear(ts::Key(2), 4 * features, features, strategy, nn::Role::row, 0.05)};
}
template <class Model> Case mlp_case(std::string name, Model model, const nn::ShardingStrategy& strategy) {
  const auto x = ts::normal<float>(ts::Key(3), {512, features}, strategy.mesh, strategy.batch);
  return stepping(std::move(name), mlp_step, std::move(model), std::pair(x, x));
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}
/// The median over rounds of the time of one program by that of another in the same round.
void print_ratio(const Case& of, const Case& to) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < of.seconds.size(); ++i) ratios.push_back(of.seconds[i] / to.seconds[i]);
  std::printf("%-28s %8.3f ms   %.3f of %s\n", of.name.c_str(), 1e3 * median(of.seconds), median(ratios),
              to.name.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 100;
  const ts::Mesh mesh({{"data", 2}});
  const nn::ShardingStrategy by_annotation = nn::fsdp(mesh), replicated = nn::data_parallel(mesh);
  constexpr ts::FsdpPolicy over_data{.axis = "data"};
  // What nn::fsdp splits: matrices, over dim 0.
  const auto wrap = [&](Mlp model) {
    return ts::fsdp<over_data>(std::move(model), mesh,
                               {.dim = ts::StorageDim::outermost,
                                .wraps = [](const std::string&, const ts::Shape& shape) { return shape.size() == 2; }});
  };
  std::vector<Case> cases;
  for (const auto& [name, size] : {std::pair("small GPT", small), std::pair("large GPT", large)}) {
    cases.push_back(gpt(std::string(name) + ", one device", nn::single(ts::Mesh{}), size));
    cases.push_back(gpt(std::string(name) + ", dp=2", replicated, size));
    cases.push_back(gpt(std::string(name) + ", fsdp=2", by_annotation, size));
  }
  cases.push_back(mlp_case("MLP, fsdp=2 by annotation", mlp(by_annotation), by_annotation));
  cases.push_back(mlp_case("MLP, fsdp=2 by ts::fsdp", wrap(mlp(replicated)), by_annotation));
  for (int round = -5; round < rounds; ++round)  // the first ones plan, and warm up
    for (std::size_t k = 0; k < cases.size(); ++k) {
      Case& own = cases[(static_cast<std::size_t>(round + 5) + k) % cases.size()];
      const auto start = std::chrono::steady_clock::now();
      own.step();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      if (round >= 0) own.seconds.push_back(taken.count());
    }
  for (std::size_t k = 0; k < cases.size(); ++k)
    if (k == 0 || k == 3 || k == 6)
      std::printf("%-28s %8.3f ms\n", cases[k].name.c_str(), 1e3 * median(cases[k].seconds));
    else
      print_ratio(cases[k], cases[k - 1]);
}
