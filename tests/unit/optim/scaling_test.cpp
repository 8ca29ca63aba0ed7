// Adafactor, and dynamic loss scaling, run on meshes with uneven shards.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/nn/nn.hpp>
#include <tessera/optim/optim.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>
#include <tessera/tensor/reshard.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;

namespace {

struct Layer {
  ts::ShardedTensor<double, 2> weight;
  ts::ShardedTensor<double, 1> bias;
};
struct Model {
  ts::ShardedTensor<double, 3> cube;
  ts::Stack<Layer> layers;
  ts::ShardedTensor<double, 0> scale;
};

using Host = std::vector<double>;
struct Tensor {
  Host values;
  std::int64_t matrices, rows, columns;  ///< rows 0: not a matrix
};
template <class M> std::vector<Tensor> tensors(const M& model) {
  std::vector<Tensor> list;
  nn::for_each_named_parameter(model, [&](const std::string&, const auto& leaf) {
    const ts::Shape& shape = ts::shape(leaf);
    const std::size_t rank = shape.size();
    const std::int64_t rows = rank >= 2 ? shape[rank - 2] : 0, columns = rank >= 2 ? shape[rank - 1] : 0;
    list.push_back({ts::to_host(leaf), rank >= 2 ? ts::size(leaf) / (rows * columns) : 1, rows, columns});
  });
  return list;
}

Model drawn(std::uint64_t seed, const ts::Mesh& mesh, const ts::PartitionSpec& matrix,
            const ts::PartitionSpec& vector) {
  const auto key = [&](std::uint64_t n) { return ts::fold_in(ts::Key(seed), n); };
  const auto on = [&](const auto& x, const ts::PartitionSpec& spec) { return ts::reshard(x, mesh, spec); };
  const ts::Mesh one;
  return {on(ts::normal<double>(key(0), {2, 5, 4}, one),
             {ts::none, matrix.entries.empty() ? ts::SpecEntry() : matrix.entries[0]}),
          ts::Stack<Layer>(3,
                           [&](int i) {
                             const auto n = static_cast<std::uint64_t>(2 * i + 1);
                             return Layer{on(ts::normal<double>(key(n), {7, 5}, one), matrix),
                                          on(ts::normal<double>(key(n + 1), {5}, one), vector)};
                           }),
          on(ts::normal<double, 0>(key(50), {}, one), {})};
}

// Partial sums of a Stack's tensors have memory for the part of each device.
TEST(Stacks, SumsOverSplitRowsOfEachLayer) {
  constexpr auto sums = ts::compile([](auto model) {
    return ts::optim::tree_map(
        [](auto v) {
          using S = decltype(v);
          if constexpr (S::rank < 2)
            return v;
          else
            return S(ts::build::sum_of(v.value * v.value, 1u << (v.value.rank() - 2), true) * 0.5);
        },
        model);
  });
  for (const int devices : {1, 2, 3, 5}) {
    const ts::Mesh mesh({{"x", devices}});
    const Model model = drawn(3, mesh, {"x"}, {}), result = sums(model);
    for (int layer = 0; layer < 3; ++layer) {
      const Host from = ts::to_host(model.layers[layer].weight), got = ts::to_host(result.layers[layer].weight);
      for (std::size_t column = 0; column < 5; ++column) {
        double sum = 0;
        for (std::size_t row = 0; row < 7; ++row) sum += from[row * 5 + column] * from[row * 5 + column];
        EXPECT_NEAR(got[column], sum / 2, 1e-12) << devices << " devices, layer " << layer;
      }
    }
  }
}

// Rows of each layer that are split: a softmax, whose maximum and sum are combined across devices.
TEST(Stacks, SoftmaxOfSplitRowsOfEachLayer) {
  constexpr auto softmax = ts::compile([](auto model) {
    return ts::optim::tree_map(
        [](auto v) {
          if constexpr (decltype(v)::rank < 2)
            return v;
          else
            return ts::softmax(v * 0.5);
        },
        model);
  });
  const std::pair<ts::Mesh, ts::PartitionSpec> layouts[] = {{ts::Mesh({{"x", 1}}), {ts::none, "x"}},
                                                            {ts::Mesh({{"x", 2}}), {ts::none, "x"}},
                                                            {ts::Mesh({{"x", 3}}), {ts::none, "x"}},
                                                            {ts::Mesh({{"x", 7}}), {ts::none, "x"}},
                                                            {ts::Mesh({{"y", 2}, {"x", 2}}), {"y", "x"}}};
  for (const auto& [mesh, matrix] : layouts) {
    const Model model = drawn(3, mesh, matrix, {});
    ts::CommunicationScope ran;
    const Model result = softmax(model);
    EXPECT_EQ(ran.wire_bytes(), softmax.plan(model).wire_bytes());
    for (int layer = 0; layer < 3; ++layer) {
      const Host from = ts::to_host(model.layers[layer].weight), got = ts::to_host(result.layers[layer].weight);
      for (std::size_t row = 0; row < 7; ++row) {
        double sum = 0;
        for (std::size_t column = 0; column < 5; ++column) sum += std::exp(from[row * 5 + column] * 0.5);
        for (std::size_t column = 0; column < 5; ++column)
          EXPECT_NEAR(got[row * 5 + column], std::exp(from[row * 5 + column] * 0.5) / sum, 1e-12)
              << mesh.size() << " devices, layer " << layer;
      }
    }
  }
}

// A dim that has to be whole gives its axis to a dim that the axis divides, also to that of the layers: these are in
// one block then, and layers again in the result.
TEST(Stacks, LayersThatAreSplitWithinAProgram) {
  constexpr auto flipped = ts::compile([](auto model) {
    return ts::optim::tree_map(
        [](auto v) {
          if constexpr (decltype(v)::rank < 2)
            return v;
          else
            return decltype(v)(ts::flip<0>(v * 2.0));
        },
        model);
  });
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const Model model = drawn(3, mesh, {"x"}, {});
    ts::CommunicationScope ran;
    const Model result = flipped(model);
    EXPECT_EQ(ran.wire_bytes(), flipped.plan(model).wire_bytes());
    for (int layer = 0; layer < 3; ++layer) {
      const Host from = ts::to_host(model.layers[layer].weight), got = ts::to_host(result.layers[layer].weight);
      for (std::size_t row = 0; row < 7; ++row)
        for (std::size_t column = 0; column < 5; ++column)
          EXPECT_EQ(got[row * 5 + column], 2 * from[(6 - row) * 5 + column]) << devices << " devices, layer " << layer;
    }
  }
}

// A field of a Stack in a result has all layers, also where it was not computed from what is stored in layers.
TEST(Stacks, ResultsHaveTheirLayersHoweverTheyAreMade) {
  constexpr auto zeros =
      ts::compile([](auto model) { return ts::optim::tree_map([](auto v) { return ts::zeros_like(v); }, model); });
  constexpr auto gradient = ts::compile(
      [](auto model) { return ts::grad([](const auto& m) { return ts::sum(m.cube * m.cube) + m.scale; })(model); });
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const Model model = drawn(3, mesh, {"x"}, {"x"}), nothing = zeros(model), slope = gradient(model);
    for (const Model* const made : {&nothing, &slope}) {
      ASSERT_EQ(made->layers.size(), 3);
      for (const Layer& layer : made->layers.layers()) {
        EXPECT_EQ(ts::to_host(layer.weight), Host(35, 0.0));
        EXPECT_EQ(ts::to_host(layer.bias), Host(5, 0.0));
      }
    }
    EXPECT_EQ(ts::item(nothing.scale), 0);
    EXPECT_EQ(ts::item(slope.scale), 1);
    const Host cube = ts::to_host(model.cube), of_cube = ts::to_host(slope.cube);
    ASSERT_EQ(of_cube.size(), cube.size());
    for (std::size_t i = 0; i < cube.size(); ++i) EXPECT_EQ(of_cube[i], 2 * cube[i]);
  }
}

struct AdafactorStep {
  constexpr auto operator()(const auto& model, const auto& gradient, const auto& state, const auto& config) const {
    return ts::adafactor(model, gradient, state, config);
  }
};

double rms(const Host& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum / static_cast<double>(x.size()));
}

// The pseudo code of torch.optim.Adafactor's page, in loops over doubles; decay only of matrices.
void reference(Tensor& p, const Host& g, Host& row, Host& column, double t, const ts::optim::Adafactor& c) {
  const double weight = std::pow(t, c.beta2_decay.value()), rate = std::min(c.learning_rate.value(), 1 / std::sqrt(t));
  const double e1 = c.epsilon1.value(), alpha = std::max(c.epsilon2.value(), rms(p.values)) * rate;
  Host update(g.size());
  if (p.rows > 0)
    for (double& v : p.values) v *= 1 - c.learning_rate.value() * c.weight_decay.value();
  if (p.rows == 0) {
    for (std::size_t i = 0; i < g.size(); ++i) {
      row[i] += weight * (g[i] * g[i] - row[i]);
      update[i] = g[i] / std::sqrt(std::max(row[i], e1 * e1));
    }
  } else {
    const auto rows = static_cast<std::size_t>(p.rows), columns = static_cast<std::size_t>(p.columns);
    for (std::size_t m = 0; m < static_cast<std::size_t>(p.matrices); ++m) {
      double mean = 0;
      for (std::size_t i = 0; i < rows; ++i) {
        double sum = 0;
        for (std::size_t j = 0; j < columns; ++j) sum += std::pow(g[(m * rows + i) * columns + j], 2);
        row[m * rows + i] += weight * (sum / static_cast<double>(columns) - row[m * rows + i]);
        mean += row[m * rows + i] / static_cast<double>(rows);
      }
      for (std::size_t j = 0; j < columns; ++j) {
        double sum = 0;
        for (std::size_t i = 0; i < rows; ++i) sum += std::pow(g[(m * rows + i) * columns + j], 2);
        column[m * columns + j] += weight * (sum / static_cast<double>(rows) - column[m * columns + j]);
        for (std::size_t i = 0; i < rows; ++i) {
          const double v = row[m * rows + i] * column[m * columns + j] / std::max(mean, e1);
          update[(m * rows + i) * columns + j] = g[(m * rows + i) * columns + j] / std::sqrt(std::max(v, e1 * e1));
        }
      }
    }
  }
  const double clip = std::max(1.0, rms(update) / c.clip_threshold.value());
  for (std::size_t i = 0; i < g.size(); ++i) p.values[i] -= alpha / clip * update[i];
}

TEST(Adafactor, IsThePublishedUpdateForTwentySteps) {
  const ts::optim::Adafactor config{
      .learning_rate = 0.3, .epsilon1 = 0x1p-52, .clip_threshold = 0.8, .weight_decay = 0.1};
  constexpr auto step = ts::compile(AdafactorStep{});
  struct Case {
    ts::Mesh mesh;
    ts::PartitionSpec matrix, vector;
  };
  for (const auto& [mesh, matrix, vector] :
       {Case{ts::Mesh{}, {}, {}}, Case{ts::Mesh({{"x", 2}, {"y", 3}}), {"x"}, {}},
        Case{ts::Mesh({{"x", 4}}), ts::PartitionSpec{"x"}.gathered_on_use(), {}}}) {
    Model model = drawn(1, mesh, matrix, vector);
    auto state = ts::optim::init_state(config, model);
    EXPECT_EQ(ts::shape(state.row.cube), (ts::Shape{2, 5, 1}));
    EXPECT_EQ(ts::shape(state.column.cube), (ts::Shape{2, 1, 4}));
    EXPECT_EQ(ts::shape(state.row.layers[0].bias), ts::Shape{5});
    EXPECT_EQ(ts::shape(state.column.layers[0].bias), ts::Shape{1});
    std::vector<Tensor> want = tensors(model);
    std::vector<Host> row, column;
    for (const Tensor& t : want) {
      row.emplace_back(t.rows > 0 ? t.matrices * t.rows : t.values.size(), 0.0);
      column.emplace_back(t.matrices * t.columns, 0.0);
    }
    for (std::uint64_t t = 1; t <= 20; ++t) {
      const Model gradient = drawn(t + 1, mesh, matrix, vector);
      std::tie(model, state) = step(model, gradient, state, config);
      const std::vector<Tensor> g = tensors(gradient);
      for (std::size_t i = 0; i < want.size(); ++i)
        reference(want[i], g[i].values, row[i], column[i], static_cast<double>(t), config);
      const std::vector<Tensor> got = tensors(model);
      for (std::size_t i = 0; i < want.size(); ++i)
        for (std::size_t k = 0; k < want[i].values.size(); ++k)
          ASSERT_NEAR(got[i].values[k], want[i].values[k], 1e-10) << mesh.text() << " tensor " << i << " step " << t;
    }
    EXPECT_EQ(ts::sharding(model.layers[1].weight), ts::resolve(matrix, mesh, 2));
    EXPECT_EQ(state.step.value(), 20);
  }
}

struct Regression {
  nn::Linear<> layer;
  constexpr auto operator()(const auto& x) const { return layer(x); }
};
struct ScaledStep {
  constexpr auto operator()(const auto& model, const auto& state, const auto& scaling, const auto& settings,
                            const auto& x, const auto& y) const {
    const ts::optim::AdamW config{.learning_rate = 0.05};
    const auto [loss, gradient] = ts::value_and_grad([&](const auto& m, const auto& in, const auto& out) {
      return ts::mse(m(in), out) * scaling.scale;
    })(model, x, y);
    const auto unscaled = ts::optim::unscale(gradient, scaling);
    const auto finite = ts::optim::all_finite(unscaled);
    const auto [moved, moved_state] = ts::adamw(model, unscaled, state, config);
    const auto next = ts::optim::keep_if(finite, moved, model);
    const auto next_state = ts::optim::keep_if(finite, moved_state, state);
    const auto next_scaling = ts::optim::next_scale(scaling, finite, settings);
    return std::tuple(next, next_state, next_scaling, finite);
  }
};
struct PlainStep {
  constexpr auto operator()(const auto& model, const auto& state, const auto& x, const auto& y) const {
    const ts::optim::AdamW config{.learning_rate = 0.05};
    const auto [loss, gradient] = ts::value_and_grad(
        [](const auto& m, const auto& in, const auto& out) { return ts::mse(m(in), out); })(model, x, y);
    return ts::adamw(model, gradient, state, config);
  }
};

// torch.amp.GradScaler with growth_interval=3: three finite steps double the scale, one that is not halves it.
TEST(LossScale, GrowsShrinksAndSkipsSteps) {
  constexpr auto scaled = ts::compile(ScaledStep{});
  constexpr auto plain = ts::compile(PlainStep{});
  const ts::optim::LossScaling settings{.growth_interval = 3};
  for (const ts::Mesh& mesh : {ts::Mesh({{"data", 1}}), ts::Mesh({{"data", 3}})}) {
    Regression model{nn::linear(ts::Key(1), 4, 2, nn::fsdp(mesh))}, other = model;
    auto state = ts::optim::init_state(ts::optim::AdamW{}, model), other_state = state;
    auto scaling = ts::optim::loss_scale(mesh, 1024);
    std::vector<float> bad(8 * 4, 1.0f);
    bad[13] = std::numeric_limits<float>::infinity();
    const auto broken = ts::shard(bad, {8, 4}, mesh, {"data"});
    const std::vector<float> scales{1024, 1024, 2048, 1024, 512, 512, 512, 1024, 512};
    const std::vector<float> counts{1, 2, 0, 0, 0, 1, 2, 0, 0};
    for (std::size_t i = 0; i < scales.size(); ++i) {
      const bool fails = i == 3 || i == 4 || i == 8;
      const auto x = fails ? broken : ts::reshard(ts::normal<float>(ts::Key(i), {8, 4}, ts::Mesh{}), mesh, {"data"});
      const auto y = ts::reshard(ts::normal<float>(ts::Key(100 + i), {8, 2}, ts::Mesh{}), mesh, {"data"});
      const Regression before = model;
      const auto mean_before = ts::to_host(state.mean.layer.weight);
      auto [next, next_state, next_scaling, finite] = scaled(model, state, scaling, settings, x, y);
      model = next, state = next_state, scaling = next_scaling;
      EXPECT_EQ(ts::item(finite), !fails) << i;
      EXPECT_EQ(ts::item(scaling.scale), scales[i]) << i;
      EXPECT_EQ(ts::item(scaling.steps), counts[i]) << i;
      if (fails) {
        EXPECT_EQ(ts::to_host(model.layer.weight), ts::to_host(before.layer.weight));
        EXPECT_EQ(ts::to_host(state.mean.layer.weight), mean_before);
        other_state.step = other_state.step.value() + 1;  // the count of steps counts them all
      } else {
        std::tie(other, other_state) = plain(other, other_state, x, y);
        const auto got = ts::to_host(model.layer.weight), want = ts::to_host(other.layer.weight);
        for (std::size_t k = 0; k < got.size(); ++k) EXPECT_NEAR(got[k], want[k], 1e-6) << i;
      }
    }
  }
}

/// As ScaledStep, with parameters, state and gradients in f16; returns the loss too.
struct HalfRegression {
  nn::Linear<ts::f16> layer;
  constexpr auto operator()(const auto& x) const { return layer(x); }
};
struct HalfStep {
  constexpr auto operator()(const auto& model, const auto& scaling, const auto& settings, const auto& x,
                            const auto& y) const {
    const auto [loss, gradient] = ts::value_and_grad([&](const auto& m, const auto& in, const auto& out) {
      return ts::mse(m(in), out) * scaling.scale;
    })(model, x, y);
    const auto unscaled = ts::optim::unscale(gradient, scaling);
    const auto finite = ts::optim::all_finite(unscaled);
    const auto next = ts::optim::keep_if(finite, ts::sgd(model, unscaled, {.learning_rate = 0.05}), model);
    return std::tuple(next, ts::optim::next_scale(scaling, finite, settings), finite, loss / scaling.scale, gradient);
  }
};

// Gradients in f16 end at 65504: a scale that is too large overflows, is halved until they fit, and the loss falls as
// that of the same model in f32.
TEST(LossScale, GradientsInF16ShrinkItUntilTheyFit) {
  constexpr auto step = ts::compile(HalfStep{});
  const ts::optim::LossScaling settings{};
  for (const ts::Mesh& mesh : {ts::Mesh({{"data", 1}}), ts::Mesh({{"data", 3}})}) {
    const auto drawn_layer = nn::linear(ts::Key(1), 4, 2, nn::fsdp(mesh));
    HalfRegression model{
        {ts::eval(ts::cast<ts::f16>(drawn_layer.weight)), ts::eval(ts::cast<ts::f16>(drawn_layer.bias))}};
    auto scaling = ts::optim::loss_scale(mesh, 0x1p24f);
    const auto drawn = [&](std::uint64_t seed, std::int64_t columns) {
      return ts::reshard(ts::eval(ts::cast<ts::f16>(ts::normal<float>(ts::Key(seed), {8, columns}, ts::Mesh{}))), mesh,
                         {"data"});
    };
    const auto x = drawn(2, 4), y = drawn(3, 2);
    // The same regression in double: one step of gradient descent per finite step.
    std::vector<double> weight, bias(2, 0.0);
    for (const ts::f16 w : ts::to_host(model.layer.weight)) weight.push_back(static_cast<double>(w));
    const auto inputs = ts::to_host(x), targets = ts::to_host(y);
    const auto descend = [&] {
      std::vector<double> dw(8, 0), db(2, 0);
      double loss = 0;
      for (std::size_t i = 0; i < 8; ++i)
        for (std::size_t j = 0; j < 2; ++j) {
          double off = bias[j] - static_cast<double>(targets[2 * i + j]);
          for (std::size_t k = 0; k < 4; ++k) off += static_cast<double>(inputs[4 * i + k]) * weight[2 * k + j];
          loss += off * off / 16;
          for (std::size_t k = 0; k < 4; ++k) dw[2 * k + j] += off * static_cast<double>(inputs[4 * i + k]) / 8;
          db[j] += off / 8;
        }
      for (std::size_t k = 0; k < 8; ++k) weight[k] -= 0.05 * dw[k];
      for (std::size_t j = 0; j < 2; ++j) bias[j] -= 0.05 * db[j];
      return loss;
    };
    int skipped = 0;
    for (int i = 0; i < 60; ++i) {
      auto [next, next_scaling, finite, loss, gradient] = step(model, scaling, settings, x, y);
      static_assert(std::is_same_v<typename decltype(gradient.layer.weight)::element, ts::f16>);
      const double scale = static_cast<double>(ts::item(scaling.scale));
      bool overflows = false;
      for (const ts::f16 g : ts::to_host(gradient.layer.weight))
        overflows = overflows || !std::isfinite(static_cast<float>(g));
      EXPECT_EQ(static_cast<double>(ts::item(next_scaling.scale)), ts::item(finite) ? scale : scale / 2) << i;
      EXPECT_FALSE(overflows && ts::item(finite)) << i;
      skipped += ts::item(finite) ? 0 : 1;
      if (ts::item(finite)) {
        const double wanted = descend();
        EXPECT_NEAR(static_cast<double>(ts::item(loss)), wanted, 0.02 * wanted + 1e-3) << i;
      }
      model = next, scaling = next_scaling;
    }
    EXPECT_GT(skipped, 3);
    EXPECT_LT(skipped, 20);
  }
}

// torch.amp.GradScaler: a scale that would be infinite stays, since it could not shrink again.
TEST(LossScale, DoesNotGrowToInfinity) {
  constexpr auto next = ts::compile([](const auto& now, const auto& x, const auto& settings) {
    return ts::optim::next_scale(now, ts::all(x < 1.0f), settings);
  });
  const ts::Mesh mesh({{"data", 2}});
  auto scaling = ts::optim::loss_scale(mesh, 0x1p126f);
  const auto x = ts::zeros<float>({3}, mesh, {"data"}), broken = ts::ones<float>({3}, mesh, {"data"});
  for (const float scale : {0x1p127f, 0x1p127f, 0x1p127f}) {
    scaling = next(scaling, x, ts::optim::LossScaling{.growth_interval = 1});
    EXPECT_EQ(ts::item(scaling.scale), scale);
    EXPECT_EQ(ts::item(scaling.steps), 0);
  }
  scaling = next(scaling, broken, ts::optim::LossScaling{.growth_interval = 1});
  EXPECT_EQ(ts::item(scaling.scale), 0x1p126f);
}

// The inverse of a scale need not be a number of the gradients' element type.
TEST(LossScale, IsDividedOutInF32) {
  constexpr auto unscale = ts::compile([](const auto& g, const auto& s) { return ts::optim::unscale(g, s); });
  const ts::Mesh mesh({{"data", 2}});
  const auto g = std::tuple(ts::eval(ts::cast<ts::f16>(ts::shard<float>({512, -49152, 3}, mesh))),
                            ts::eval(ts::cast<ts::bf16>(ts::shard<float>({512, -49152, 3}, mesh))));
  const auto small = unscale(g, ts::optim::loss_scale(mesh, 0x1p26f));
  EXPECT_EQ(ts::to_host(ts::eval(ts::cast<float>(std::get<0>(small)))),
            (std::vector<float>{0x1p-17f, -0x1.8p-11f, 0x1p-24f}));
  EXPECT_EQ(ts::to_host(ts::eval(ts::cast<float>(std::get<1>(small)))),
            (std::vector<float>{0x1p-17f, -0x1.8p-11f, 0x1.8p-25f}));
}

TEST(LossScale, NeedsOneAllReduce) {
  const ts::Mesh mesh({{"data", 2}});
  const Regression model{nn::linear(ts::Key(1), 4, 2, nn::data_parallel(mesh))};
  const auto state = ts::optim::init_state(ts::optim::AdamW{}, model);
  const auto x = ts::zeros<float>({8, 4}, mesh, {"data"}), y = ts::zeros<float>({8, 2}, mesh, {"data"});
  constexpr auto scaled = ts::compile(ScaledStep{});
  constexpr auto plain = ts::compile(PlainStep{});
  const ts::Plan with = scaled.plan(model, state, ts::optim::loss_scale(mesh), ts::optim::LossScaling{}, x, y);
  EXPECT_LE(with.count(ts::all_reduce), plain.plan(model, state, x, y).count(ts::all_reduce) + 1);
}

}  // namespace
