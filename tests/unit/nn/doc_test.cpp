// The examples of docs/nn.md, docs/training_step.md and docs/loops.md.
#include <array>
#include <cstdint>
#include <cstring>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "../../support/page.hpp"
#include "../../support/scratch_folder.hpp"
#include <gtest/gtest.h>

#include <tessera/data/safetensors.hpp>
#include <tessera/tessera.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;

namespace {

struct Classifier {
  nn::Linear<> up, down;
  constexpr auto operator()(const auto& x) const { return down(ts::gelu(up(x))); }
};
struct NamedClassifier {
  nn::Linear<> up, down;
  static constexpr std::array field_names{"up", "down"};
};

struct Step {
  constexpr auto operator()(const auto& model, const auto& state, const auto& config, const auto& x,
                            const auto& t) const {
    const auto loss = [](const auto& m, const auto& in, const auto& target) {
      return ts::cross_entropy(m(in), target);
    };
    const auto [value, gradient] = ts::value_and_grad(loss)(model, x, t);
    const auto [clipped, norm] = ts::clip_by_global_norm(gradient, 1.0);
    const auto [next, next_state] = ts::adamw(model, clipped, state, config);
    return std::tuple(value, norm, next, next_state);
  }
};

struct SignStep {
  constexpr auto operator()(const auto& model, const auto& gradient, const auto& rate) const {
    return ts::optim::tree_map([&](auto p, auto g) { return p - rate * ts::sign(g); }, model, gradient);
  }
};

struct Lstm {
  nn::Linear<> in, back;  // [D, 4 H], [H, 4 H]

  constexpr auto operator()(const auto& xs, const auto& zeros) const {  // [T, B, D], [B, H]
    const auto cell = [&](const auto& state, const auto& x) {
      const auto& [h, c] = state;
      const auto [i, f, g, o] = ts::chunk<4, 1>(in(x) + back(h));
      const auto next = ts::sigmoid(f) * c + ts::sigmoid(i) * ts::tanh(g);
      const auto y = ts::sigmoid(o) * ts::tanh(next);
      return std::tuple(std::tuple(y, next), y);
    };
    return ts::scan(cell, std::tuple(zeros, zeros), xs);  // ((h, c), all y [T, B, H])
  }
};
struct Cache {
  ts::ShardedTensor<float, 2> sum;
};
struct NextToken {
  constexpr auto operator()(const auto& model, const ts::Stack<nn::KvCache<>>& caches, const auto& tokens,
                            const ts::Scalar& position, const ts::Scalar& p, const auto& key) const {
    const auto [logits, next] = model.cached(tokens, caches, position);          // [batch, time, classes]
    const auto last = ts::slice<1>(logits, ts::extent<1>(tokens) - 1, 1) / 0.8;  // a temperature of 0.8
    return std::tuple(ts::categorical(ts::top_p_logits(last, p), key), next);
  }
};

struct Decode {
  constexpr auto operator()(const auto& blocks, const ts::Stack<Cache>& caches, const auto& x) const {
    const auto layer = [](const auto& v, const auto& both) {
      const auto& [block, cache] = both;
      const auto y = block(v + cache.sum);
      return std::tuple(y, Cache{cache.sum + y});
    };
    return ts::scan(layer, x, std::tuple(blocks, caches));  // (y, the new ts::Stack<Cache>)
  }
};

struct Encode {
  constexpr auto operator()(const auto& encoder, const auto& xs) const {
    const auto [outputs, state] = encoder(xs);  // [T, B, 32], state = (h, c), each [4, B, 16]
    return encoder(xs, state);                  // goes on from this state
  }
};
struct MoeLoss {
  constexpr auto operator()(const auto& layer, const auto& x, const auto& target) const {
    const auto [y, balance, z] = layer(x);
    return ts::mse(y, target) + 0.01 * balance + 0.001 * z;
  }
};

constexpr ts::Conv<2> same{.padding = {1, 1}};
constexpr ts::Conv<2> halved{.strides = {2, 2}, .padding = {1, 1}};

struct Images {
  nn::Conv2d<same> first;
  nn::BatchNorm<> norm;
  nn::Conv2d<halved> second;
  nn::Dropout<> drop{0.25};
  nn::Linear<> head;
};
struct Forward {
  constexpr auto operator()(const auto& m, const auto& old, const auto& x, const auto& key) const {
    const auto [normed, next] = m.norm.train(m.first(x), old);
    const auto y = ts::mean<1, 2>(ts::relu(m.second(ts::relu(normed))));  // [batch, 16]
    return std::tuple(m.head(m.drop(y, key)), next);
  }
};
struct Classify {
  constexpr auto operator()(const auto& m, const auto& running, const auto& x) const {
    const auto normed = m.norm(m.first(x), running);
    return m.head(m.drop(ts::mean<1, 2>(ts::relu(m.second(ts::relu(normed))))));
  }
};

Classifier make_classifier(const nn::ShardingStrategy& strategy) {
  auto [first, second] = ts::split<2>(ts::Key(1));
  return {nn::linear(first, 16, 64, strategy, nn::Role::column), nn::linear(second, 64, 10, strategy, nn::Role::row)};
}

// An LSTM of 100 steps learns to sum what it is shown: the mean of 100 numbers, from the last output.
TEST(DocNn, LoopsAndBranches) {
  ts::Mesh mesh({{"data", 2}, {"model", 2}});
  const auto strategy = nn::tensor_parallel(mesh, "model");
  struct Model {
    Lstm lstm;
    nn::Linear<> head;
  };
  const auto [a, b, c, d] = ts::split<4>(ts::Key(5));
  Model model{
      {nn::linear(a, 1, 32, strategy, nn::Role::column, 0.5), nn::linear(b, 8, 32, strategy, nn::Role::column, 0.3)},
      nn::linear(c, 8, 1, strategy, nn::Role::row, 0.3)};
  constexpr auto train = ts::compile([](auto m, auto state, auto xs, auto zeros, auto target, auto config) {
    const auto loss_of = [](const auto& net, const auto& in, const auto& start, const auto& out) {
      return ts::mse(net.head(std::get<0>(std::get<0>(net.lstm(in, start)))), out);
    };
    const auto [loss, gradient] = ts::value_and_grad(loss_of)(m, xs, zeros, target);
    const auto [next, next_state] = ts::adamw(m, gradient, state, config);
    return std::tuple(next, next_state, loss);
  });
  const auto xs = ts::normal<float>(d, {100, 16, 1}, mesh, {ts::none, "data"});
  const auto zeros = ts::zeros<float>({16, 8}, mesh, {"data"});
  const ts::ShardedTensor<float, 2> target = ts::sum<0>(xs) * 0.1;
  const ts::optim::AdamW config{.learning_rate = 0.02, .weight_decay = 0};
  auto state = ts::optim::init_state(config, model);
  float first = 0, last = 0;
  for (int step = 0; step < 40; ++step) {
    ts::ShardedTensor<float, 0> loss;
    std::tie(model, state, loss) = train(std::move(model), std::move(state), xs, zeros, target, config);
    last = ts::to_host(loss)[0];
    if (step == 0) first = last;
  }
  EXPECT_LT(last, 0.5F * first);

  const ts::Stack<nn::Linear<>> blocks(
      3, [&](int i) { return nn::linear(ts::fold_in(a, i), 8, 8, strategy, nn::Role::column); });
  const ts::Stack<Cache> caches(3, [&](int) { return Cache{ts::zeros<float>({16, 8}, mesh, {"data"})}; });
  const auto [y, made] = ts::compile(Decode())(blocks, caches, zeros);
  EXPECT_EQ(made.size(), 3);
  EXPECT_EQ(ts::sharded_type_text(made[2].sum).substr(0, 9), "f32[16,8]");
}

TEST(DocNn, GenerationWithACache) {
  const nn::ShardingStrategy strategy = nn::fsdp_tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}}));
  // 11 classes, 16 features, 4 heads, 2 of keys, 24 hidden features, 2 layers
  nn::Llama<> model = nn::llama(ts::Key(1), 11, 16, 4, 2, 24, 2, strategy, 0.5);
  ts::Stack<nn::KvCache<>> caches = nn::kv_caches(2, 2, 7, 2, 4, strategy);  // 2 layers, batch 2, context 7
  const auto prompt = ts::shard<std::int32_t>({{1, 2, 3}, {10, 0, 7}}, strategy.mesh, strategy.batch);
  constexpr auto next = ts::compile(NextToken());
  // Of p = 0 only the most likely token is left: the tokens are those of the model of the whole text.
  constexpr auto likely = ts::compile([](const auto& m, const auto& text) { return ts::argmax<-1>(m(text)); });
  std::vector<std::int32_t> text{1, 2, 3, 10, 0, 7};
  auto tokens = prompt;
  for (std::int64_t t = 3; t < 8; ++t) {
    const auto count = static_cast<std::size_t>(t);
    const std::vector<std::int32_t> expected =
        ts::to_host(likely(model, ts::shard(text, {2, t}, strategy.mesh, strategy.batch)));
    auto [token, made] =
        next(model, std::move(caches), tokens, ts::Scalar(t == 3 ? 0 : t - 1), ts::Scalar(0.0), ts::Key(4));
    tokens = token, caches = made;
    const std::vector<std::int32_t> drawn = ts::to_host(tokens);
    EXPECT_EQ(drawn, (std::vector{expected[count - 1], expected[2 * count - 1]})) << t;
    text.insert(text.begin() + t, drawn[0]);
    text.push_back(drawn[1]);
  }
  // Draws of all likely tokens differ from key to key.
  caches = nn::kv_caches(2, 2, 7, 2, 4, strategy);
  std::set<std::int32_t> seen;
  for (std::uint64_t k = 0; k < 20; ++k)
    seen.insert(ts::to_host(std::get<0>(next(model, caches, prompt, ts::Scalar(0), ts::Scalar(0.95), ts::Key(k))))[0]);
  EXPECT_GT(seen.size(), 1u);
}

TEST(DocNn, RecurrentLayersAndMixturesOfExperts) {
  const nn::ShardingStrategy strategy = nn::fsdp_tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}}));
  auto lstm = nn::lstm<float, 2, nn::Direction::both>(ts::Key(5), 8, 16, strategy);  // 2 layers, both directions
  const auto xs = ts::normal<float>(ts::Key(7), {5, 4, 8}, strategy.mesh, {ts::none, "data"});
  const auto [outputs, state] = ts::compile(Encode())(lstm, xs);
  EXPECT_EQ(ts::shape(outputs), (ts::Shape{5, 4, 32}));
  EXPECT_EQ(ts::shape(std::get<1>(state)), (ts::Shape{4, 4, 16}));

  auto moe = nn::moe(ts::Key(6), 64, 128, 8, 2, strategy);  // 8 experts, 2 for each token
  const auto x = ts::normal<float>(ts::Key(8), {4, 5, 64}, strategy.mesh, {"data"});
  EXPECT_GT(ts::item(ts::compile(MoeLoss())(moe, x, x)), 0.9F);
  auto sorted = nn::moe<float, nn::Dispatch::ragged>(ts::Key(6), 64, 128, 8, 2, strategy);
  EXPECT_NEAR(ts::item(ts::compile(MoeLoss())(sorted, x, x)), ts::item(ts::compile(MoeLoss())(moe, x, x)), 1e-5F);
}

TEST(DocNn, ConvolutionsBatchNormAndDropout) {
  nn::ShardingStrategy data = nn::data_parallel(ts::Mesh({{"data", 4}}));
  Images images{.first = nn::conv2d<same>(ts::Key(1), 3, 8, {3, 3}, data),
                .norm = nn::batch_norm(8, data),
                .second = nn::conv2d<halved>(ts::Key(2), 8, 16, {3, 3}, data),
                .head = nn::linear(ts::Key(3), 16, 10, data, nn::Role::head)};
  nn::RunningStatistics<> running = nn::running_statistics(8, data);
  const auto pictures = ts::normal<float>(ts::Key(5), {8, 6, 6, 3}, data.mesh, data.batch);
  const auto [logits, next] = ts::compile(Forward())(images, running, pictures, ts::Key(4));  // [8, 10]
  const auto scores = ts::compile(Classify())(images, next, pictures);
  EXPECT_EQ(ts::shape(logits), (ts::Shape{8, 10}));
  EXPECT_EQ(ts::shape(scores), ts::shape(logits));
  EXPECT_NE(ts::to_host(next.mean), ts::to_host(running.mean));
  EXPECT_NE(ts::to_host(scores), ts::to_host(logits));
}

TEST(DocNn, LoopsThatEnd) {
  constexpr auto root = ts::compile([](auto a) {
    const auto [x, steps] = ts::while_loop(
        [&](const auto& state) { return ts::max(ts::abs(state.first * state.first - a)) > 1e-6; },
        [&](const auto& state) { return std::pair((state.first + a / state.first) * 0.5, state.second + 1); },
        std::pair(ts::ones_like(a), 0), 20);  // the square root of a
    return std::tuple(x, steps);
  });
  const auto [x, steps] = root(ts::full<float>({4}, 9.F, ts::Mesh({{"data", 2}}), {"data"}));
  for (const float v : ts::to_host(x)) EXPECT_FLOAT_EQ(v, 3);
  EXPECT_EQ(ts::to_host(steps)[0], 5);
}

TEST(DocNn, LayersAndLayouts) {
  ts::Mesh mesh({{"data", 2}, {"model", 2}});
  nn::ShardingStrategy strategy = nn::fsdp_tensor_parallel(mesh);
  ts::Stack<nn::Block<>> blocks(12,
                                [&](int i) { return nn::block(ts::fold_in(ts::Key(2), i), 64, 4, 256, strategy, 12); });
  EXPECT_EQ(blocks.size(), 12);
  EXPECT_EQ(nn::parameter_count(blocks), 12 * (12 * 64 * 64 + 13 * 64));
  strategy.embedding = {};
  EXPECT_EQ(ts::sharded_type_text(nn::embedding(ts::Key(1), 10, 4, strategy).table), "f32[10,4]{-,-}");
  nn::ShardingStrategy own = nn::tensor_parallel(mesh, "model");
  EXPECT_EQ(own.batch.text(), "{data}");
}

TEST(DocNn, ATrainingStep) {
  const ts::Mesh mesh({{"data", 2}, {"model", 2}});
  const nn::ShardingStrategy strategy = nn::fsdp_tensor_parallel(mesh);
  Classifier model = make_classifier(strategy);
  auto x = ts::normal<float>(ts::Key(5), {32, 16}, mesh, strategy.batch);
  std::vector<std::int32_t> classes;
  for (int i = 0; i < 32; ++i) classes.push_back(i % 10);
  auto t = ts::shard(classes, mesh, strategy.batch);

  auto step = ts::compile(Step{});
  ts::optim::AdamW config;
  auto state = ts::optim::init_state(config, model);
  float first = 0, last = 0;
  for (int i = 0; i < 30; ++i) {
    config.learning_rate = ts::optim::warmup_cosine(i, 5, 30, 1e-2);
    auto [loss, norm, next, next_state] = step(std::move(model), std::move(state), config, x, t);
    model = std::move(next);
    state = std::move(next_state);
    (i == 0 ? first : last) = ts::item(loss);
  }
  EXPECT_NEAR(first, 2.3, 0.1);
  EXPECT_LT(last, 1.0);
}

TEST(DocNn, AnOptimizerOfYourOwn) {
  const ts::Mesh mesh({{"data", 2}});
  using Vector = ts::ShardedTensor<float, 1>;
  const Vector p = ts::shard<float>({1, 2, 3}, mesh, {"data"}), g = ts::shard<float>({-5, 0, 0.5}, mesh, {"data"});
  const auto moved = ts::compile(SignStep{})(std::tuple(p), std::tuple(g), ts::Scalar(0.25));
  EXPECT_EQ(ts::to_host(std::get<0>(moved)), (std::vector<float>{1.25, 2, 2.75}));
}

TEST(DocNn, Parameters) {
  const nn::ShardingStrategy strategy = nn::fsdp_tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}}));
  const Classifier model = make_classifier(strategy);
  EXPECT_EQ(nn::parameter_count(model), 16 * 64 + 64 + 64 * 10 + 10);
  EXPECT_EQ(nn::parameter_bytes(model, 0), 4 * (16 * 64 / 4 + 64 / 2 + 64 * 10 / 4 + 10));
  EXPECT_EQ(nn::parameter_bytes_per_device(model), nn::parameter_bytes(model, 0));
  std::ostringstream out;
  nn::for_each_named_parameter(
      model, [&](const std::string& name, const auto& x) { out << name << " " << ts::sharded_type_text(x) << "\n"; });
  EXPECT_EQ(
      out.str(),
      "0.weight f32[16,64]{data*,model}\n0.bias f32[64]{model}\n1.weight f32[64,10]{model,data*}\n1.bias f32[10]{-}\n");
  Classifier other = model;
  other.up.weight = ts::init::kaiming_uniform<float>(ts::Key(9), {16, 64}, strategy.mesh, strategy.column_weight);
  EXPECT_EQ(ts::sharded_type_text(other.up.weight), ts::sharded_type_text(model.up.weight));
  const NamedClassifier named{model.up, model.down};
  std::vector<std::string> names;
  nn::for_each_named_parameter(named, [&](const std::string& name, const auto&) { names.push_back(name); });
  EXPECT_EQ(names, (std::vector<std::string>{"up.weight", "up.bias", "down.weight", "down.bias"}));
}

TEST(DocNn, SavingAndLoading) {
  const nn::ShardingStrategy strategy = nn::fsdp_tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}}));
  const ScratchFolder folder;
  const std::string path = (folder.path / "checkpoint.safetensors").string();
  Classifier model = make_classifier(strategy);
  const Classifier trained = model;
  const ts::optim::AdamW config;
  auto state = ts::optim::init_state(config, model);
  ts::save_file(ts::full_state_dict(std::tuple(model, state)), path);
  model.up.weight = ts::zeros<float>({16, 64}, strategy.mesh, strategy.column_weight);
  const ts::StateDict saved = ts::load_file(path);
  std::tie(model, state) = ts::load_state_dict(std::tuple(model, state), saved);
  EXPECT_TRUE(ts::all_equal(model.up.weight, trained.up.weight));

  // A body with another head: `down` of the dict has another name, and stays as it is in the model.
  ts::StateDict pretrained = ts::full_state_dict(NamedClassifier{trained.up, trained.down});
  pretrained[2].name = "head.weight", pretrained[3].name = "head.bias";
  const ts::ShardedTensor<float, 2> up = trained.up.weight * 2.0, down = trained.down.weight * 3.0;
  NamedClassifier fresh{{up, trained.up.bias}, {down, trained.down.bias}};
  fresh = ts::load_state_dict(fresh, pretrained, {.strict = false});
  EXPECT_TRUE(ts::all_equal(fresh.up.weight, trained.up.weight));
  EXPECT_TRUE(ts::all_equal(fresh.down.weight, down));
}

// A weight [out, in] of PyTorch, from a file with names of PyTorch.
TEST(DocNn, LoadingWeightsOfPyTorch) {
  const nn::ShardingStrategy strategy = nn::fsdp_tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}}));
  const ScratchFolder folder;
  const std::string path = (folder.path / "linear.safetensors").string();
  nn::Linear<> linear = nn::linear(ts::Key(1), 2, 3, strategy);
  ts::StateDict theirs = ts::full_state_dict(std::tuple(ts::shard<float>({{1, 2}, {3, 4}, {5, 6}}, strategy.mesh),
                                                        ts::shard<float>({7, 8, 9}, strategy.mesh)));
  theirs[0].name = "fc.weight", theirs[1].name = "fc.bias";
  ts::save_file(theirs, path);
  ts::StateDict saved = ts::load_file(path);
  for (ts::StateEntry& entry : saved) {
    if (entry.name == "fc.weight") entry = ts::transposed(entry);
    entry.name = entry.name.substr(3);
  }
  linear = ts::load_state_dict(linear, saved);
  EXPECT_EQ(ts::to_host(linear.weight), (std::vector<float>{1, 3, 5, 2, 4, 6}));
  EXPECT_EQ(ts::to_host(linear.bias), (std::vector<float>{7, 8, 9}));

  const auto taps = ts::reshape(ts::arange<double>(24, strategy.mesh), {2, 3, 4});
  const ts::StateEntry entry = ts::full_state_dict(std::tuple(ts::ShardedTensor<double, 3>(taps)))[0];
  const ts::StateEntry back = ts::transposed(entry);
  std::vector<double> values(24);
  std::memcpy(values.data(), back.bytes.data(), back.bytes.size());
  EXPECT_EQ(back.shape, (ts::Shape{4, 3, 2}));
  EXPECT_EQ(values, ts::to_host(ts::transpose(taps)));
  EXPECT_EQ(ts::transposed(back).bytes, entry.bytes);
}

template <ts::Element T> struct Half {
  nn::Linear<T> up, down;
  constexpr auto operator()(const auto& x) const { return down(ts::gelu(up(x))); }
};
constexpr auto cast_loss = ts::compile([](const auto& model, const auto& x, const auto& t) {
  const auto loss = [](const auto& m, const auto& in, const auto& target) {
    const auto logits = ts::autocast<ts::bf16>(m)(in);
    return ts::cross_entropy(logits, target);
  };
  return std::get<0>(ts::value_and_grad(loss)(model, x, t));
});

TEST(DocNn, ModelsInBf16) {
  const ts::Mesh mesh({{"data", 2}, {"model", 2}});
  const nn::ShardingStrategy strategy = nn::fsdp_tensor_parallel(mesh);
  const Classifier model = make_classifier(strategy);
  const auto x = ts::normal<float>(ts::Key(5), {4, 16}, mesh, strategy.batch);
  const auto t = ts::shard<std::int32_t>({1, 2, 3, 4}, mesh, strategy.batch);
  EXPECT_NEAR(ts::item(cast_loss(model, x, t)), 2.3, 0.1);
  const Half<ts::bf16> small = ts::cast_model<ts::bf16>(Half<float>{model.up, model.down});
  EXPECT_EQ(ts::to_host(small.up.weight)[3], ts::bf16(ts::to_host(model.up.weight)[3]));
}

// Other sections have code of other files in this folder too.
TEST(DocNn, HoldsTheLinesOfThesePages) {
  const auto expect = [](std::string_view page, std::string_view section, int lines) {
    tessera_test::expect_lines({.name = page, .section = section, .lines = lines}, __FILE__);
  };
  expect("nn.md", "Convolutions, batch norm, dropout", 30);
  expect("nn.md", "Recurrent layers", 7);
  expect("nn.md", "Mixtures of experts", 8);
  expect("training_step.md", "A training step", 18);
  expect("training_step.md", "Custom optimizers", 5);
  expect("training_step.md", "In bf16 or f16", 9);
  expect("loops.md", "Loops and branches", 30);
}

}  // namespace
