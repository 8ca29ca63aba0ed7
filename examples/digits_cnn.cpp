// A convolutional network that reads digits, trained data-parallel on two devices, or with --fsdp N split among N of
// them. Batch norm has the statistics of the whole batch; its running statistics are a value that each training step
// takes and returns.
//
//     digits_cnn [--fsdp N] [--steps N] [PICTURE.svg]      draws its own digits
//     digits_cnn ... PICTURE.svg DIRECTORY                 reads MNIST, or files of the same format, from a directory

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "digits_cnn/batches.hpp"
#include "digits_cnn/digits.hpp"
#include "digits_cnn/draw_digits.hpp"
#include "picture.hpp"

#include <tessera/data/data.hpp>
#include <tessera/parallel/fsdp.hpp>
#include <tessera/tessera.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;
using digits_cnn::Batch;
using digits_cnn::Digits;

constexpr ts::Conv<2> same{.padding = {1, 1}};
constexpr std::int64_t batch = 100;
constexpr int epochs = 3;
constexpr double goal = 0.97;

/// The running statistics of both batch norms.
struct Statistics {
  nn::RunningStatistics<> first, second;
};

struct Cnn {
  nn::Conv2d<same, float, false> first, second;  // a bias before a batch norm has no effect
  nn::BatchNorm<> norm1, norm2;
  nn::Dropout<> drop{0.25};
  nn::Linear<> head;
  static constexpr std::array field_names{"first", "second", "norm1", "norm2", "drop", "head"};

  /// In training: logits of x [batch, height, width, 1], and the next running statistics.
  constexpr auto operator()(const auto& x, const Statistics& old, const auto& key) const {
    const auto [a, first_next] = norm1.train(first(x), old.first);
    const auto [b, second_next] = norm2.train(second(pooled(a)), old.second);
    return std::tuple(head(drop(flat(pooled(b)), key)), Statistics{first_next, second_next});
  }
  constexpr auto operator()(const auto& x, const Statistics& running) const {
    const auto a = pooled(norm1(first(x), running.first));
    const auto b = pooled(norm2(second(a), running.second));
    return head(drop(flat(b)));
  }

 private:
  static constexpr auto pooled(const auto& x) { return ts::max_pool2d(ts::relu(x), {.window = {2, 2}}); }
  static constexpr auto flat(const auto& x) { return ts::rearrange<"b h w c -> b (h w c)">(x); }
};

constexpr auto train_step =
    ts::compile([](auto model, auto state, auto statistics, auto x, auto labels, auto key, auto config) {
      const auto loss_of = [](const auto& m, const auto& old, const auto& images, const auto& targets, const auto& k) {
        const auto [logits, next] = m(images, old, k);
        return std::tuple(ts::cross_entropy(logits, targets), next);
      };
      const auto [result, gradient] = ts::value_and_grad(loss_of)(model, statistics, x, labels, key);
      const auto [next, next_state] = ts::adamw(model, gradient, state, config);
      return std::tuple(next, next_state, std::get<1>(result), std::get<0>(result));
    });

constexpr auto classify =
    ts::compile([](auto model, auto statistics, auto x) { return ts::argmax<1>(model(x, statistics)); });

std::vector<std::int32_t> classes_of(const ts::Fsdp<Cnn>& model, const Statistics& statistics, const Digits& digits,
                                     const nn::ShardingStrategy& strategy) {
  auto loader = digits_cnn::loader_of(strategy.mesh, digits,
                                      {.batch_size = batch, .ragged = ts::Ragged::keep, .spec = strategy.batch});
  std::vector<std::int32_t> classes;
  for (const Batch& b : loader)
    for (const std::int32_t found : ts::to_host(classify(model, statistics, b.images))) classes.push_back(found);
  return classes;
}

int train(const examples::CommandLine& line) {
  const auto load = [&](const std::string& name, std::size_t count, std::uint32_t seed) {
    if (line.files.size() < 2) return digits_cnn::draw_digits(count, seed);
    const std::string path = line.files[1] + "/" + name;
    return digits_cnn::read_digits(path + "-images-idx3-ubyte", path + "-labels-idx1-ubyte");
  };
  // Of 6,000 digits, no more are drawn than --steps needs.
  const auto drawn = static_cast<std::size_t>(line.steps > 0 ? std::min(line.steps * batch, std::int64_t{6000}) : 6000);
  const Digits training = load("train", drawn, 1), test = load("t10k", 1000, 2);
  if (training.images.row_shape() != test.images.row_shape() || training.count() < batch) {
    std::fprintf(stderr, "training and test images must have one size, and there must be %d training images\n",
                 static_cast<int>(batch));
    return 1;
  }

  const ts::Mesh mesh = line.fsdp > 0 ? ts::Mesh({{"fsdp", line.fsdp}}) : ts::Mesh({{"fsdp", 1}, {"data", 2}});
  const nn::ShardingStrategy strategy = nn::data_parallel(mesh, line.fsdp > 0 ? "fsdp" : "data");
  const auto [k1, k2, k3, of_steps, of_order] = ts::split<5>(ts::Key(1));
  const std::int64_t features = 32 * (training.height() / 4) * (training.width() / 4);
  Cnn cnn{.first = nn::conv2d<same, float, false>(k1, 1, 16, {3, 3}, strategy),
          .second = nn::conv2d<same, float, false>(k2, 16, 32, {3, 3}, strategy),
          .norm1 = nn::batch_norm(16, strategy),
          .norm2 = nn::batch_norm(32, strategy),
          .head = nn::linear(k3, features, 10, strategy, nn::Role::head)};
  auto model = ts::fsdp(std::move(cnn), mesh);
  Statistics statistics{nn::running_statistics(16, strategy), nn::running_statistics(32, strategy)};
  ts::optim::AdamW config{.learning_rate = 2e-3};
  auto state = ts::optim::init_state(config, model);
  std::printf("%s\n", ts::summary(model).c_str());

  // A last, smaller batch is left out.
  auto loader = digits_cnn::loader_of(
      mesh, training, {.batch_size = batch, .shuffle = of_order, .ragged = ts::Ragged::drop, .spec = strategy.batch});
  const auto tests = static_cast<std::size_t>(test.count());
  std::vector<std::int32_t> found;
  std::vector<std::size_t> mistakes;
  double accuracy = 0;
  std::int64_t step = 0;
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    double total = 0;
    for (const Batch& b : loader) {
      ts::ShardedTensor<float, 0> loss;
      const ts::Key key = ts::fold_in(of_steps, static_cast<std::uint64_t>(step));
      if (step++ == 0)
        line.print_collectives(train_step.plan(model, state, statistics, b.images, b.labels, key, config));
      std::tie(model, state, statistics, loss) =
          train_step(std::move(model), std::move(state), std::move(statistics), b.images, b.labels, key, config);
      total += static_cast<double>(ts::item(loss));
      line.print_loss(step, static_cast<double>(ts::item(loss)));
      if (line.ends_after(step)) return 0;
    }
    found = classes_of(model, statistics, test, strategy);
    mistakes.clear();
    for (std::size_t i = 0; i < tests; ++i)
      if (found[i] != test.labels.values()[i]) mistakes.push_back(i);
    accuracy = 1 - static_cast<double>(mistakes.size()) / static_cast<double>(tests);
    std::printf("epoch %d  loss %.4f  %.2f %% of the test digits are read correctly\n", epoch,
                total / static_cast<double>(loader.batches()), 100 * accuracy);
  }

  if (!line.files.empty()) {
    examples::Picture picture(2);
    std::vector<std::size_t> first(std::min<std::size_t>(36, tests));
    std::iota(first.begin(), first.end(), std::size_t{0});
    digits_cnn::add_panel(picture, "test digits", test, first);
    digits_cnn::add_panel(picture, std::to_string(mistakes.size()) + " mistakes", test, mistakes);
    picture.write(line.files[0]);
  }
  return accuracy < goal ? 1 : 0;
}

int main(int argc, char** argv) { return examples::run(argc, argv, 2, train); }
