// Trains a small Llama to sort digits, and generates with a cache of keys and values.
//
//   llama [--fsdp N] [--steps N] [loss.svg]
//
// A sequence is eight digits in any order, a separator, and the same digits sorted. The model sees the first part and
// has to continue it; the program ends when it sorts 99 % of sequences that it was not trained on. Every token of the
// answer is generated twice: by the model of the whole sequence, and by a step that gets the last token alone. With
// --fsdp N the model is split among N devices, with --steps N training ends after N steps.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
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

constexpr int digits = 8, separator = 10, classes = 11, context = 2 * digits;
constexpr int layers = 2, features = 64, heads = 4, key_heads = 2;

constexpr auto train_step = ts::compile([](auto model, auto state, auto in, auto out, auto config) {
  const auto loss_of = [](const auto& m, const auto& tokens, const auto& sorted) {
    // Only the tokens after the separator can be known.
    return ts::cross_entropy(ts::slice<1>(m(tokens), digits, digits), sorted);
  };
  const auto [loss, gradient] = ts::value_and_grad(loss_of)(model, in, out);
  const auto [clipped, norm] = ts::clip_by_global_norm(gradient, 1.0);
  const auto [next, next_state] = ts::adamw(model, clipped, state, config);
  return std::tuple(next, next_state, loss);
});

/// The most likely token after each position.
constexpr auto predict = ts::compile([](auto model, auto in) { return ts::argmax<-1>(model(in)); });

/// The most likely token after the last one of `in`, which is at `position` and later, and the next caches.
constexpr auto generate = ts::compile([](auto model, auto caches, auto in, ts::Scalar position) {
  const auto [logits, next] = model.cached(in, caches, position);
  return std::tuple(ts::slice<1>(ts::argmax<-1>(logits), ts::extent<1>(in) - 1, 1), next);
});

struct Batch {
  std::vector<std::int32_t> in, out;  // [batch, 16] and [batch, 8]
};
Batch make_batch(std::mt19937& random, int batch) {
  Batch made;
  for (int b = 0; b < batch; ++b) {
    std::array<std::int32_t, digits> given{};
    for (std::int32_t& digit : given) digit = static_cast<std::int32_t>(random() % 10);
    made.in.insert(made.in.end(), given.begin(), given.end());
    std::sort(given.begin(), given.end());
    made.in.push_back(separator);
    made.in.insert(made.in.end(), given.begin(), given.end() - 1);
    made.out.insert(made.out.end(), given.begin(), given.end());
  }
  return made;
}

/// The answers of the model to `count` questions [count, 9], generated token by token with a cache.
std::vector<std::int32_t> answers(const nn::Llama<>& model, const std::vector<std::int32_t>& questions, int count,
                                  const nn::ShardingStrategy& strategy) {
  ts::Stack<nn::KvCache<>> caches = nn::kv_caches(layers, count, context, key_heads, features / heads, strategy);
  std::vector<std::int32_t> made(static_cast<std::size_t>(count * digits));
  auto token = ts::shard(questions, {count, digits + 1}, strategy.mesh, strategy.batch);
  for (int i = 0; i < digits; ++i) {
    const ts::Scalar position = i == 0 ? 0 : digits + i;  // first the question, then one token
    std::tie(token, caches) = generate(model, std::move(caches), token, position);
    const std::vector<std::int32_t> last = ts::to_host(token);
    for (int b = 0; b < count; ++b) made[static_cast<std::size_t>(b * digits + i)] = last[static_cast<std::size_t>(b)];
  }
  return made;
}

int train(const examples::CommandLine& line) {
  const nn::ShardingStrategy strategy =
      line.fsdp > 0 ? nn::data_parallel(ts::Mesh({{"fsdp", line.fsdp}}), "fsdp")
                    : nn::fsdp_tensor_parallel(ts::Mesh({{"fsdp", 1}, {"data", 2}, {"model", 2}}));
  nn::Llama<> llama = nn::llama(ts::Key(1), classes, features, heads, key_heads, 2 * features, layers, strategy, 0.1);
  auto model = ts::fsdp(std::move(llama), strategy.mesh);
  ts::optim::AdamW config{.learning_rate = 3e-3, .weight_decay = 0};
  auto state = ts::optim::init_state(config, model);
  std::printf("%s\n", ts::summary(model).c_str());

  constexpr int batch = 64, tests = 500;
  std::mt19937 random(1);
  std::vector<std::int32_t> questions;
  const Batch test = make_batch(random, tests);
  for (int b = 0; b < tests; ++b)
    questions.insert(questions.end(), test.in.begin() + b * context, test.in.begin() + b * context + digits + 1);

  std::vector<double> losses;
  double share = 0;
  std::vector<std::int32_t> made;
  while (share < 0.99 && losses.size() < 3000 && !line.ends_after(std::ssize(losses))) {
    for (int i = 0; i < 100 && !line.ends_after(std::ssize(losses)); ++i) {
      const Batch next = make_batch(random, batch);
      config.learning_rate = ts::optim::warmup_cosine(static_cast<std::int64_t>(losses.size()), 50, 1000, 3e-3, 3e-4);
      const auto in = ts::shard(next.in, {batch, context}, strategy.mesh, strategy.batch);
      const auto out = ts::shard(next.out, {batch, digits}, strategy.mesh, strategy.batch);
      if (losses.empty()) line.print_collectives(train_step.plan(model, state, in, out, config));
      ts::ShardedTensor<float, 0> loss;
      std::tie(model, state, loss) = train_step(std::move(model), std::move(state), in, out, config);
      losses.push_back(static_cast<double>(ts::item(loss)));
      line.print_loss(std::ssize(losses), losses.back());
    }
    made = answers(model.module, questions, tests, strategy);
    int right = 0;
    for (int b = 0; b < tests; ++b)
      right += std::equal(made.begin() + b * digits, made.begin() + (b + 1) * digits, test.out.begin() + b * digits);
    share = static_cast<double>(right) / tests;
    std::printf("step %4zu  loss %.4f  sorted %.1f %%\n", losses.size(), losses.back(), 100 * share);
  }

  // The model of the whole sequence, given each answer, would continue it by the same tokens.
  std::vector<std::int32_t> whole;
  for (int b = 0; b < tests; ++b) {
    whole.insert(whole.end(), questions.begin() + b * (digits + 1), questions.begin() + (b + 1) * (digits + 1));
    whole.insert(whole.end(), made.begin() + b * digits, made.begin() + (b + 1) * digits - 1);
  }
  const std::vector<std::int32_t> again =
      ts::to_host(predict(model, ts::shard(whole, {tests, context}, strategy.mesh, strategy.batch)));
  int different = 0;
  for (int b = 0; b < tests; ++b)
    for (int i = 0; i < digits; ++i)
      different +=
          made[static_cast<std::size_t>(b * digits + i)] != again[static_cast<std::size_t>(b * context + digits + i)];
  std::printf("of %d generated tokens %d differ from those of the model without a cache\n", tests * digits, different);

  if (!line.files.empty()) {
    const train_gpt::LossChart chart("A Llama learns to sort eight digits", "batches of 64", "cross-entropy, nats");
    std::ofstream(line.files[0]) << chart.svg(losses);
  }
  return different > 0 || (share < 0.99 && line.steps == 0) ? 1 : 0;
}

int main(int count, char** arguments) { return examples::run(count, arguments, 1, train); }
