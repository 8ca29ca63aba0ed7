// The models of examples/, written without a thought of devices: wrapped by one line, they train as on one device.
#include <array>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "../../support/page.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/nn/nn.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/optim/optim.hpp>
#include <tessera/parallel/fsdp.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;

namespace {

// examples/lstm.cpp
struct Adder {
  nn::Lstm<> lstm;
  nn::Linear<> head;
  static constexpr std::array field_names{"lstm", "head"};
  constexpr auto operator()(const auto& xs) const {                       // [T, B, 2]
    const auto [outputs, state] = lstm(xs);                               // state: h and c, [1, B, H]
    return head(ts::squeeze<0>(ts::slice<0>(std::get<0>(state), 0, 1)));  // [B, 1]
  }
};
// examples/diffusion.cpp, without the features of the level
struct Denoiser {
  nn::Linear<> in, hidden1, hidden2, out;
  constexpr auto operator()(const auto& x) const {
    const auto first = ts::silu(in(ts::concat<1>(x, ts::sin(x), ts::cos(x))));
    const auto second = first + ts::silu(hidden1(first));
    return out(second + ts::silu(hidden2(second)));
  }
};
// examples/llama.cpp
struct Llama {
  nn::Embedding<> tokens;
  ts::Stack<nn::LlamaBlock<>> blocks;
  nn::RmsNorm<> norm;
  nn::Linear<float, false> head;
  static constexpr std::array field_names{"tokens", "blocks", "norm", "head"};
  constexpr auto operator()(const auto& in) const { return head(norm(blocks(tokens(in)))); }
};
// examples/digits_cnn.cpp, whose training calls a method of the model
constexpr ts::Conv<2> same{.padding = {1, 1}};
struct Cnn {
  nn::Conv2d<same, float, false> first;
  nn::BatchNorm<> norm;
  nn::Linear<> head;
  static constexpr std::array field_names{"first", "norm", "head"};
  constexpr auto train(const auto& x, const auto& old) const {
    const auto [a, next] = norm.train(first(x), old);
    const auto pooled = ts::max_pool2d(ts::relu(a), {.window = {2, 2}});
    return std::tuple(head(ts::rearrange<"b h w c -> b (h w c)">(pooled)), next);
  }
};
// examples/mixture_of_experts.cpp
struct Mixture {
  nn::Linear<> in;
  nn::MoE<float> experts;
  nn::Linear<> head;
  static constexpr std::array field_names{"in", "experts", "head"};
  constexpr auto operator()(const auto& x) const {
    const auto h = ts::gelu(in(x));
    const auto [y, balance, z] = experts(h);
    return std::tuple(head(h + y), balance);
  }
};
// examples/kmeans.cpp: no gradient
struct Clusters {
  ts::ShardedTensor<float, 2> centers;
  constexpr auto operator()(const auto& x) const {
    const auto own =
        ts::one_hot(ts::argmin<1>(ts::sum<1>(centers * centers) - ts::matmul(x, ts::transpose<1, 0>(centers)) * 2.0),
                    ts::extent<0>(centers));
    const auto means = ts::einsum<"nk,nd->kd">(own, x) / ts::unsqueeze<1>(ts::maximum(ts::sum<0>(own), 1.0));
    return ts::select(ts::unsqueeze<1>(ts::sum<0>(own)) > 0.0, means, centers);
  }
};

/// A training step with a loss of (model, x, y), where x and y are tensors or structures of them.
template <class Loss> struct Step {
  constexpr auto operator()(const auto& model, const auto& state, const auto& config, const auto& x,
                            const auto& y) const {
    const auto [loss, gradient] = ts::value_and_grad(Loss{})(model, x, y);
    const auto [clipped, norm] = ts::clip_by_global_norm(gradient, 1.0);
    const auto [next, next_state] = ts::adamw(model, clipped, state, config);
    return std::tuple(next, next_state, loss);
  }
};
struct Squares {
  constexpr auto operator()(const auto& m, const auto& x, const auto& y) const { return ts::mse(m(x), y); }
};
struct Classes {
  constexpr auto operator()(const auto& m, const auto& x, const auto& y) const { return ts::cross_entropy(m(x), y); }
};
struct Balanced {
  constexpr auto operator()(const auto& m, const auto& x, const auto& y) const {
    const auto [logits, balance] = m(x);
    return ts::cross_entropy(logits, y) + 0.01 * balance;
  }
};
struct Normalized {
  template <class M> constexpr auto operator()(const M& m, const auto& x, const auto& y) const {
    const auto& [images, statistics] = x;
    if constexpr (requires { m.module; })
      return ts::cross_entropy(std::get<0>(m.module.train(images, statistics)), y);
    else
      return ts::cross_entropy(std::get<0>(m.train(images, statistics)), y);
  }
};

/// Losses of four steps.
template <class Loss> std::vector<double> losses(auto model, const auto& x, const auto& y) {
  static constexpr auto step = ts::compile(Step<Loss>{});
  const ts::optim::AdamW config{.learning_rate = 1e-2, .weight_decay = 0.01};
  auto state = ts::optim::init_state(config, model);
  std::vector<double> found;
  for (int i = 0; i < 4; ++i) {
    auto [next, next_state, loss] = step(model, state, config, x, y);
    model = next, state = next_state;
    found.push_back(static_cast<double>(ts::item(loss)));
  }
  EXPECT_LT(found.back(), found.front());
  return found;
}
/// Trains a model, and the model wrapped by one line, on meshes of 2 and 3 devices that split the batch.
template <class Loss> void expect_equal_losses(const auto& model, const auto& x, const auto& y, const auto& split) {
  const std::vector<double> wanted = losses<Loss>(model, x, y);
  for (const int devices : {2, 3}) {
    const ts::Mesh mesh({{"fsdp", devices}});
    SCOPED_TRACE(mesh.text());
    // clang-format off
    const auto wrapped = ts::fsdp(model, mesh);
    // clang-format on
    std::int64_t whole = 0, own = 0;
    nn::for_each_named_parameter(wrapped, [&](const std::string&, const auto& leaf) {
      whole += ts::size(leaf) * 4, own += ts::device_bytes(leaf, devices - 1);
    });
    EXPECT_LE(own, whole / devices);
    const std::vector<double> got = losses<Loss>(wrapped, split(x, mesh), split(y, mesh));
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 2e-5 * std::fabs(wanted[i])) << i;
  }
}
constexpr auto by_rows = [](const auto& x, const ts::Mesh& mesh) { return ts::reshard(x, mesh, {"fsdp"}); };

const nn::ShardingStrategy& one_device() {
  static const nn::ShardingStrategy strategy = nn::single(ts::Mesh{});
  return strategy;
}
template <int Rank> auto drawn(std::uint64_t seed, const std::int64_t (&shape)[Rank]) {
  ts::Shape extents;
  for (const std::int64_t extent : shape) extents.push_back(extent);
  std::int64_t count = ts::volume(extents);
  const std::vector<float> values = ts::to_host(ts::normal<float>(ts::Key(seed), {count}, ts::Mesh{}));
  return ts::shard<Rank>(values, extents, ts::Mesh{});
}
template <int Rank> auto integers(std::int32_t below, const std::int64_t (&shape)[Rank]) {
  ts::Shape extents;
  for (const std::int64_t extent : shape) extents.push_back(extent);
  std::vector<std::int32_t> values;
  for (std::int64_t i = 0; i < ts::volume(extents); ++i) values.push_back(static_cast<std::int32_t>(i * i % below));
  return ts::shard<Rank>(values, extents, ts::Mesh{});
}

TEST(ExampleModels, Lstm) {
  const Adder model{nn::lstm(ts::Key(1), 2, 12, one_device()), nn::linear(ts::Key(2), 12, 1, one_device())};
  expect_equal_losses<Squares>(
      model, drawn<3>(1, {5, 12, 2}), drawn<2>(2, {12, 1}), [](const auto& x, const ts::Mesh& mesh) {
        using Tensor = std::remove_cvref_t<decltype(x)>;
        return Tensor::rank == 3 ? ts::reshard(x, mesh, {ts::none, "fsdp"}) : ts::reshard(x, mesh, {"fsdp"});
      });
  // The gradients that the times sum up are reduced once, behind the loop, also for several readers.
  constexpr auto step = ts::compile(Step<Squares>{});
  for (const int devices : {2, 3}) {
    const ts::Mesh mesh({{"fsdp", devices}});
    const auto wrapped = ts::fsdp(model, mesh);
    const ts::optim::AdamW config;
    const ts::Plan plan = step.plan(wrapped, ts::optim::init_state(config, wrapped), config,
                                    ts::reshard(drawn<3>(1, {5, 60, 2}), mesh, {ts::none, "fsdp"}),
                                    ts::reshard(drawn<2>(2, {60, 1}), mesh, {"fsdp"}));
    std::int64_t bytes = 0;
    nn::for_each_named_parameter(wrapped, [&](const std::string&, const auto& leaf) { bytes += ts::size(leaf) * 4; });
    EXPECT_EQ(plan.payload_bytes(ts::reduce_scatter), bytes);
    EXPECT_EQ(plan.payload_bytes(ts::all_reduce), 8);  // the loss and the square of the norm
    plan.for_each_collective([](const ts::CollectiveInfo& c, std::int64_t times) {
      if (c.kind == ts::reduce_scatter) {
        EXPECT_EQ(times, 1);
      }
    });
  }
}
TEST(ExampleModels, Diffusion) {
  const auto layer = [](std::uint64_t key, int in, int out) { return nn::linear(ts::Key(key), in, out, one_device()); };
  const Denoiser model{layer(1, 6, 24), layer(2, 24, 24), layer(3, 24, 24), layer(4, 24, 2)};
  expect_equal_losses<Squares>(model, drawn<2>(1, {12, 2}), drawn<2>(2, {12, 2}), by_rows);
}
TEST(ExampleModels, Llama) {
  const Llama model{nn::embedding(ts::Key(1), 11, 16, one_device(), 0.5),
                    {2,
                     [](int i) {
                       return nn::llama_block(ts::Key(2 + static_cast<std::uint64_t>(i)), 16, 4, 2, 32, one_device(), 2,
                                              0.1);
                     }},
                    nn::rms_norm(16, one_device()),
                    nn::linear<float, false>(ts::Key(5), 16, 11, one_device(), nn::Role::head, 0.1)};
  expect_equal_losses<Classes>(model, integers<2>(11, {6, 8}), integers<2>(7, {6, 8}), by_rows);
}
TEST(ExampleModels, DigitsCnn) {
  const Cnn model{nn::conv2d<same, float, false>(ts::Key(1), 1, 6, {3, 3}, one_device()),
                  nn::batch_norm(6, one_device()), nn::linear(ts::Key(2), 6 * 9, 4, one_device())};
  const auto statistics = nn::running_statistics(6, one_device());
  expect_equal_losses<Normalized>(model, std::tuple(drawn<4>(1, {12, 6, 6, 1}), statistics), integers<1>(4, {12}),
                                  [](const auto& x, const ts::Mesh& mesh) {
                                    if constexpr (requires { std::get<0>(x); }) {
                                      auto [images, running] = x;
                                      running.mean = ts::reshard(running.mean, mesh, {});
                                      running.variance = ts::reshard(running.variance, mesh, {});
                                      return std::tuple(ts::reshard(images, mesh, {"fsdp"}), running);
                                    } else {
                                      return ts::reshard(x, mesh, {"fsdp"});
                                    }
                                  });
}
TEST(ExampleModels, MixtureOfExperts) {
  const Mixture model{nn::linear(ts::Key(1), 2, 8, one_device(), nn::Role::column, 2.0),
                      nn::moe<float>(ts::Key(2), 8, 16, 4, 2, one_device(), 0, "expert", 0.2),
                      nn::linear(ts::Key(3), 8, 3, one_device(), nn::Role::head, 0.2)};
  expect_equal_losses<Balanced>(model, drawn<3>(1, {6, 5, 2}), integers<2>(3, {6, 5}), by_rows);
}
TEST(ExampleModels, KMeans) {
  constexpr auto move = ts::compile([](auto model, auto x) { return model(x); });
  const Clusters model{drawn<2>(1, {5, 2})};
  const auto x = drawn<2>(2, {31, 2});
  const std::vector<float> wanted = ts::to_host(move(model, x));
  for (const int devices : {2, 3}) {
    const ts::Mesh mesh({{"fsdp", devices}});
    const std::vector<float> got = ts::to_host(move(ts::fsdp(model, mesh), by_rows(x, mesh)));
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-6);
  }
}

TEST(ExampleModels, CodeOnThePageIsInThisFile) {
  tessera_test::expect_lines({.name = "parallelism.md", .section = "Models of the examples", .lines = 1}, __FILE__);
}

}  // namespace
