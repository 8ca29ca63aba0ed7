// What parallel training costs where the devices of a mesh share the threads of one machine, so that splitting can only
// cost: steps of a GPT and of an MLP, in rounds in which each program runs once, so that all of them meet the same
// load.
//
//   benchmark_strategies [rounds]
//
// With `moe`, the dispatches of a mixture of experts on one device, forward and gradient, beside one gated MLP of as
// many rows as tokens are chosen:
//
//   benchmark_strategies moe [rounds]

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

struct MoeStep {
  constexpr auto operator()(const auto& moe, const auto& x) const {
    const auto loss_of = [](const auto& all) {
      const auto y = std::get<0>(std::get<0>(all)(std::get<1>(all)));
      return ts::sum(y * y);
    };
    return ts::value_and_grad(loss_of)(std::tuple(moe, x));
  }
};
/// An expert for all rows, by the same products.
struct GatedMlp {
  ts::ShardedTensor<float, 2> gate, up, down;
  static constexpr std::array field_names{"gate", "up", "down"};
  constexpr auto operator()(const auto& x) const {
    return std::tuple(ts::matmul(ts::silu(ts::matmul(x, gate)) * ts::matmul(x, up), down));
  }
};
constexpr auto moe_step = ts::compile(MoeStep{});

template <class Model, class X> Case moe_case(std::string name, Model model, X x) {
  return {std::move(name), [model = std::move(model), x = std::move(x)] {
            const auto [loss, gradient] = moe_step(model, x);
            if (!(ts::item(loss) < 1e30)) std::abort();
          }};
}
/// 8 experts of 256 features and 512 hidden ones, 2 for each of 4096 tokens.
template <nn::Dispatch How> Case moe(std::string name, std::int64_t sequences) {
  const nn::ShardingStrategy one = nn::single(ts::Mesh{});
  const std::int64_t time = 4096 / sequences;
  return moe_case(tessera::concat_text(name, ", ", sequences, " x ", time),
                  nn::moe<float, How>(ts::Key(1), 256, 512, 8, 2, one, nn::expert_capacity(time, 8, 2)),
                  ts::normal<float>(ts::Key(2), {sequences, time, 256}, one.mesh, one.batch));
}
Case chosen_rows() {
  const ts::Mesh mesh{};
  return moe_case("one MLP of 8192 rows",
                  GatedMlp{ts::normal<float>(ts::Key(1), {256, 512}, mesh, {}, 0, 0.02f),
                           ts::normal<float>(ts::Key(2), {256, 512}, mesh, {}, 0, 0.02f),
                           ts::normal<float>(ts::Key(3), {512, 256}, mesh, {}, 0, 0.02f)},
                  ts::normal<float>(ts::Key(4), {8192, 256}, mesh, {}));
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

/// Runs all cases in each round, each round in another order. The first rounds plan, and warm up.
void run_rounds(std::vector<Case>& cases, int rounds, int warm_up) {
  for (int round = -warm_up; round < rounds; ++round)
    for (std::size_t k = 0; k < cases.size(); ++k) {
      Case& own = cases[(static_cast<std::size_t>(round + warm_up) + k) % cases.size()];
      const auto start = std::chrono::steady_clock::now();
      own.step();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      if (round >= 0) own.seconds.push_back(taken.count());
    }
}

int compare_dispatches(int rounds) {
  std::vector<Case> cases;
  cases.push_back(chosen_rows());
  for (const std::int64_t sequences : {1, 8, 64}) {
    cases.push_back(moe<nn::Dispatch::ragged>("ragged", sequences));
    if (sequences > 1) cases.push_back(moe<nn::Dispatch::sequence_capacity>("sequence_capacity", sequences));
    if (sequences > 1) cases.push_back(moe<nn::Dispatch::dropless>("dropless", sequences));
    if (sequences == 1) cases.push_back(moe<nn::Dispatch::dense>("dense", sequences));
  }
  run_rounds(cases, rounds, 2);
  std::printf("%-28s %8.3f ms\n", cases[0].name.c_str(), 1e3 * median(cases[0].seconds));
  for (std::size_t k = 1; k < cases.size(); ++k) print_ratio(cases[k], cases[0]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "moe")
    return compare_dispatches(argc > 2 ? std::max(1, std::atoi(argv[2])) : 10);
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
  run_rounds(cases, rounds, 5);
  for (std::size_t k = 0; k < cases.size(); ++k)
    if (k == 0 || k == 3 || k == 6)
      std::printf("%-28s %8.3f ms\n", cases[k].name.c_str(), 1e3 * median(cases[k].seconds));
    else
      print_ratio(cases[k], cases[k - 1]);
}
