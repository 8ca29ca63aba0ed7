// A vision transformer (Dosovitskiy et al., 2010.11929) that reads digits: an image is a sequence of patches of 4 x 4
// pixels after a class token, whose last features are classified. Training is data-parallel on two devices; with
// --fsdp N the model is split among N devices.
//
//     vision_transformer [--fsdp N] [--steps N] [PICTURE.svg]     draws its own digits
//     vision_transformer ... PICTURE.svg DIRECTORY                reads MNIST from a directory

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

constexpr std::int64_t patch = 4, features = 64, hidden = 128, batch = 100;
constexpr int depth = 3, heads = 4, epochs = 4;
constexpr double root_of_width = 4;
static_assert(features == heads * root_of_width * root_of_width);
constexpr double goal = 0.97;

/// A layer with norms before attention and MLP; every patch attends to all patches.
struct EncoderBlock {
  nn::LayerNorm<> attention_norm;
  nn::MultiHeadAttention<> attention;
  nn::LayerNorm<> mlp_norm;
  nn::Mlp<> mlp;  // with gelu
  static constexpr std::array field_names{"attention_norm", "attention", "mlp_norm", "mlp"};

  constexpr auto operator()(const auto& x) const {  // [B, tokens, features]
    const auto y = x + attention(attention_norm(x));
    return y + mlp(mlp_norm(y));
  }
  /// How much the class token attends to each token, the mean over the heads: [B, tokens].
  constexpr auto of_class_token(const auto& x) const {
    const auto normed = attention_norm(x);
    const auto q = attention.split(attention.query(ts::slice<1>(normed, 0, 1)));  // [B, 1, heads, width]
    const auto k = attention.split(attention.key(normed));                        // [B, tokens, heads, width]
    const auto weights = ts::softmax(ts::einsum<"bqhe,bthe->bhqt">(q, k) / root_of_width);
    return ts::squeeze<1>(ts::mean<1>(weights));
  }
};

struct VisionTransformer {
  nn::Linear<> embed;        // [patch * patch, features]
  nn::Positions<> position;  // its first row is the class token
  ts::Stack<EncoderBlock> blocks;
  nn::LayerNorm<> norm;
  nn::Linear<> head;
  ts::Dim patch_size;
  static constexpr std::array field_names{"embed", "position", "blocks", "norm", "head", "patch_size"};

  /// Logits of images x [B, height, width, 1].
  constexpr auto operator()(const auto& x) const {
    const auto y = norm(blocks(tokens(x)));
    return head(ts::squeeze<1>(ts::slice<1>(y, 0, 1)));
  }
  /// What the class token attends to in each block: [depth, B, tokens].
  constexpr auto attention_maps(const auto& x) const {
    const auto block_of = [](const auto& v, const auto& block) {
      return std::tuple(block(v), block.of_class_token(v));
    };
    return std::get<1>(ts::scan(block_of, tokens(x), blocks));
  }

 private:
  constexpr auto tokens(const auto& x) const {
    const auto patches =
        ts::rearrange<"b (r i) (c j) f -> b (r c) (i j f)">(x, ts::len<"i">(patch_size), ts::len<"j">(patch_size));
    return position(ts::pad<1>(embed(patches), 1, 0));
  }
};

constexpr auto train_step = ts::compile([](auto model, auto state, auto x, auto labels, auto config) {
  const auto loss_of = [](const auto& m, const auto& images, const auto& targets) {
    return ts::cross_entropy(m(images), targets);
  };
  const auto [loss, gradient] = ts::value_and_grad(loss_of)(model, x, labels);
  const auto [next, next_state] = ts::adamw(model, gradient, state, config);
  return std::tuple(next, next_state, loss);
});

constexpr auto classify = ts::compile([](auto model, auto x) { return ts::argmax<1>(model(x)); });
constexpr auto attention_maps = ts::compile([](auto model, auto x) { return model.attention_maps(x); });

VisionTransformer make_model(std::int64_t patches, const nn::ShardingStrategy& strategy) {
  const auto [k1, k2, k3, of_blocks] = ts::split<4>(ts::Key(1));
  return {.embed = nn::linear(k1, patch * patch, features, strategy, nn::Role::column, 0.25),
          .position = nn::positions(k2, patches + 1, features, strategy, 0.25),
          .blocks = ts::Stack<EncoderBlock>(
              depth,
              [&](int i) {
                const auto [a, b] = ts::split<2>(ts::fold_in(of_blocks, i));
                return EncoderBlock{
                    nn::layer_norm(features, strategy), nn::multi_head_attention(a, features, heads, strategy),
                    nn::layer_norm(features, strategy), nn::mlp(b, features, hidden, strategy, depth, 0.1)};
              }),
          .norm = nn::layer_norm(features, strategy),
          .head = nn::linear(k3, features, 10, strategy, nn::Role::head),
          .patch_size = patch};
}

std::vector<std::int32_t> classes_of(const ts::Fsdp<VisionTransformer>& model, const Digits& digits,
                                     const nn::ShardingStrategy& strategy) {
  auto loader = digits_cnn::loader_of(strategy.mesh, digits,
                                      {.batch_size = batch, .ragged = ts::Ragged::keep, .spec = strategy.batch});
  std::vector<std::int32_t> classes;
  for (const Batch& b : loader)
    for (const std::int32_t found : ts::to_host(classify(model, b.images))) classes.push_back(found);
  return classes;
}

/// What the class token of the last block attends to in the first 36 digits, in six rows, in place of the images.
void add_attention_panel(examples::Picture& picture, const VisionTransformer& model, const Digits& digits,
                         const nn::ShardingStrategy& strategy) {
  auto loader = digits_cnn::loader_of(strategy.mesh, digits,
                                      {.batch_size = 36, .ragged = ts::Ragged::keep, .spec = strategy.batch});
  const Batch first = *loader.begin();
  const std::vector<float> maps = ts::to_host(attention_maps(model, first.images));  // [depth, B, tokens]
  const auto rows = static_cast<std::size_t>(digits.height() / patch);
  const auto columns = static_cast<std::size_t>(digits.width() / patch);
  const std::size_t images = maps.size() / depth / (rows * columns + 1);
  std::vector<float> sheet(36 * rows * columns);
  for (std::size_t i = 0; i < images; ++i) {
    const float* const map = maps.data() + ((depth - 1) * images + i) * (rows * columns + 1) + 1;
    const float most = *std::max_element(map, map + rows * columns);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < columns; ++c)
        sheet[(i / 6 * rows + r) * 6 * columns + i % 6 * columns + c] = map[r * columns + c] / most;
  }
  picture.panel("what the class token attends to");
  picture.grid(sheet, static_cast<int>(6 * rows), static_cast<int>(6 * columns));
}

int train(const examples::CommandLine& line) {
  const auto load = [&](const std::string& name, std::size_t count, std::uint32_t seed) {
    if (line.files.size() < 2) return digits_cnn::draw_digits(count, seed);
    const std::string path = line.files[1] + "/" + name;
    return digits_cnn::read_digits(path + "-images-idx3-ubyte", path + "-labels-idx1-ubyte");
  };
  // Of 16,000 digits, no more are drawn than --steps needs.
  const auto drawn =
      static_cast<std::size_t>(line.steps > 0 ? std::min(line.steps * batch, std::int64_t{16000}) : 16000);
  const Digits training = load("train", drawn, 1), test = load("t10k", 1000, 2);
  if (training.images.row_shape() != test.images.row_shape() || training.count() < batch ||
      training.height() % patch != 0 || training.width() % patch != 0) {
    std::fprintf(stderr, "images must have one size, of whole patches of %d pixels, and %d must be there to train on\n",
                 static_cast<int>(patch), static_cast<int>(batch));
    return 1;
  }

  // Copies of the model on two devices, or one line that splits it among N.
  const ts::Mesh mesh = line.fsdp > 0 ? ts::Mesh({{"fsdp", line.fsdp}}) : ts::Mesh({{"fsdp", 1}, {"data", 2}});
  const nn::ShardingStrategy strategy = nn::data_parallel(mesh, line.fsdp > 0 ? "fsdp" : "data");
  auto model = ts::fsdp(make_model(training.height() / patch * (training.width() / patch), strategy), mesh);
  ts::optim::AdamW config;
  auto state = ts::optim::init_state(config, model);
  std::printf("%lld parameters\n", static_cast<long long>(nn::parameter_count(model)));

  auto loader = digits_cnn::loader_of(
      mesh, training, {.batch_size = batch, .shuffle = ts::Key(2), .ragged = ts::Ragged::drop, .spec = strategy.batch});
  const auto tests = static_cast<std::size_t>(test.count());
  const std::int64_t steps = epochs * static_cast<std::int64_t>(loader.batches());
  std::vector<std::size_t> mistakes;
  double accuracy = 0;
  std::int64_t step = 0;
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    double total = 0;
    for (const Batch& b : loader) {
      config.learning_rate = ts::optim::warmup_cosine(step, 100, steps, 2e-3);
      if (step++ == 0) line.print_collectives(train_step.plan(model, state, b.images, b.labels, config));
      ts::ShardedTensor<float, 0> loss;
      std::tie(model, state, loss) = train_step(std::move(model), std::move(state), b.images, b.labels, config);
      total += static_cast<double>(ts::item(loss));
      line.print_loss(step, static_cast<double>(ts::item(loss)));
      if (line.ends_after(step)) return 0;
    }
    const std::vector<std::int32_t> found = classes_of(model, test, strategy);
    mistakes.clear();
    for (std::size_t i = 0; i < tests; ++i)
      if (found[i] != test.labels.values()[i]) mistakes.push_back(i);
    accuracy = 1 - static_cast<double>(mistakes.size()) / static_cast<double>(tests);
    std::printf("epoch %d  loss %.4f  %.2f %% of the test digits are read correctly\n", epoch,
                total / static_cast<double>(loader.batches()), 100 * accuracy);
    std::fflush(stdout);
  }

  if (!line.files.empty()) {
    examples::Picture picture(3);
    std::vector<std::size_t> first(std::min<std::size_t>(36, tests));
    std::iota(first.begin(), first.end(), std::size_t{0});
    digits_cnn::add_panel(picture, "test digits", test, first);
    add_attention_panel(picture, model.module, test, strategy);
    digits_cnn::add_panel(picture, std::to_string(mistakes.size()) + " mistakes", test, mistakes);
    picture.write(line.files[0]);
  }
  return accuracy < goal ? 1 : 0;
}

int main(int argc, char** argv) { return examples::run(argc, argv, 2, train); }
