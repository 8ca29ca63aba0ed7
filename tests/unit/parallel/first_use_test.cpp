// What a newcomer meets first: operations that PyTorch and JAX have, and errors that name the operation, the tensor and
// the line.
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/nn/nn.hpp>
#include <tessera/optim/optim.hpp>
#include <tessera/parallel/fsdp.hpp>
#include <tessera/parallel/parallelize_module.hpp>
#include <tessera/parallel/pipeline/pipeline_gpipe.hpp>
#include <tessera/parallel/pipeline/pipeline_stage.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;
using tessera_test::expect_error;

namespace {

struct Pair {
  nn::Linear<> up, down;
  static constexpr std::array field_names{"up", "down"};
  constexpr auto operator()(const auto& x) const { return down(ts::gelu(up(x))); }
};
Pair pair_of(const nn::ShardingStrategy& strategy) {
  return {nn::linear(ts::Key(1), 4, 6, strategy), nn::linear(ts::Key(2), 6, 4, strategy)};
}
std::string at_line(int line) { return "first_use_test.cpp:" + std::to_string(line); }
std::vector<float> counted(std::size_t n) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i) - 2.5F;
  return values;
}

constexpr int squeeze_line = __LINE__ + 1;
constexpr auto squeezed = ts::compile([](const auto& x) { return ts::squeeze<1>(x); });
constexpr auto squeezed_gradient = ts::compile([](const auto& x) {
  return ts::grad([](const auto& in) { return ts::sum(ts::squeeze<1>(in) * ts::squeeze<1>(in)); })(x);
});

TEST(FirstUse, SqueezesADimWhoseExtentIsOneAtRunTime) {
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const std::vector<float> values = counted(5);
    for (const ts::PartitionSpec& spec :
         {ts::PartitionSpec{}, ts::PartitionSpec{"x"}, ts::PartitionSpec{ts::none, "x"}}) {
      const auto column = ts::shard(values, {5, 1}, mesh, spec);
      const ts::ShardedTensor<float, 1> vector = squeezed(column), eager = ts::squeeze<-1>(column);
      EXPECT_EQ(ts::to_host(vector), values);
      EXPECT_EQ(ts::to_host(eager), values);
      const std::vector<float> gradient = ts::to_host(squeezed_gradient(column));
      for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(gradient[i], 2 * values[i]);
    }
    expect_error(
        ts::errc::shape_mismatch,
        [&] {
          squeezed(ts::zeros<float>({5, 2}, mesh));
        },
        "[squeeze] dim 1 of f32[5,2] has extent 2", at_line(squeeze_line));
    expect_error(
        ts::errc::shape_mismatch,
        [&] {
          squeezed(ts::zeros<float>({5, 0}, mesh));
        },
        "[squeeze] dim 1 of f32[5,0] has extent 0", at_line(squeeze_line));
  }
}

constexpr int select_line = __LINE__ + 1;
constexpr auto selected = ts::compile([](const auto& x, const ts::Dim& i) { return ts::select<0>(x, i); });
constexpr auto last = ts::compile([](const auto& x) { return ts::select<-1>(x, -1); });

TEST(FirstUse, SelectCountsNegativeIndicesFromTheEnd) {
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const std::vector<float> values = counted(12);
    const auto x = ts::shard(values, {4, 3}, mesh, {"x"});
    for (int i = -4; i < 4; ++i) {
      const auto row = static_cast<std::size_t>(3 * (i < 0 ? i + 4 : i));
      const ts::ShardedTensor<float, 1> eager = ts::select<0>(x, i);
      const std::vector<float> expected(values.begin() + static_cast<std::ptrdiff_t>(row),
                                        values.begin() + static_cast<std::ptrdiff_t>(row) + 3);
      EXPECT_EQ(ts::to_host(selected(x, ts::Dim(i))), expected) << i;
      EXPECT_EQ(ts::to_host(eager), expected) << i;
    }
    EXPECT_EQ(ts::to_host(last(x)), (std::vector<float>{values[2], values[5], values[8], values[11]}));
    for (const int i : {-5, 4})
      expect_error(
          ts::errc::shape_mismatch, [&] { selected(x, ts::Dim(i)); }, "[select] index", "of dim 0 of f32[4,3]",
          at_line(select_line));
  }
}

TEST(FirstUse, LongExpressionsRunInParts) {
  const ts::Mesh mesh({{"x", 2}});
  const std::vector<float> values = counted(6);
  const auto x = ts::shard(values, {6}, mesh, {"x"});
  const auto sum = x + x + x + x;
  const auto product = sum * sum * sum * sum;
  const ts::ShardedTensor<float, 1> all = product + product + product + product;
  const std::vector<float> found = ts::to_host(all);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(found[i], 4 * std::pow(4 * values[i], 4.0F));
}

struct Field {
  ts::ShardedTensor<float, 1> x;
};
constexpr auto in_parts = ts::compile([](const Field& field, const auto& y) {
  const auto& x = field.x;
  const auto sum = x + x + x + x;
  const auto product = sum * sum * sum * sum;
  return ts::eval(ts::eval(product + product + product) + ts::eval(y));
});

TEST(FirstUse, ATraceRecordsLongExpressionsOfFieldsAndEval) {
  const ts::Mesh mesh({{"x", 2}});
  const std::vector<float> values = counted(6);
  const Field field{ts::shard(values, {6}, mesh, {"x"})};
  const std::vector<float> found = ts::to_host(in_parts(field, field.x));
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(found[i], 3 * std::pow(4 * values[i], 4.0F) + values[i]);
}

constexpr auto lstm_in_scan = ts::compile([](const auto& lstm, const auto& start, const auto& xs) {
  return ts::scan(
      [&](const auto& carry, const auto& x) {
        const auto [outputs, state] = lstm(ts::unsqueeze<0>(x));
        const auto next = carry + ts::squeeze<0>(outputs);
        return std::tuple(next, next);
      },
      start, xs);
});
constexpr auto lstm_alone = ts::compile(
    [](const auto& lstm, const auto& x) { return ts::select<0>(std::get<0>(lstm(ts::unsqueeze<0>(x))), 0); });

constexpr auto scan_gradient = ts::compile([](const auto& lstm, const auto& start, const auto& xs) {
  return ts::grad([](const auto& in, const auto& layer, const auto& from) {
    const auto [end, all] = ts::scan(
        [&](const auto& carry, const auto& x) {
          const auto next = carry + ts::squeeze<0>(std::get<0>(layer(ts::unsqueeze<0>(x))));
          return std::tuple(next, std::tuple());
        },
        from, in);
    return ts::sum(end * end);
  })(xs, lstm, start);
});
constexpr auto whole_gradient = ts::compile([](const auto& lstm, const auto& start, const auto& xs) {
  return ts::grad([](const auto& in, const auto& layer, const auto& from) {
    const auto outputs = [&](int t) { return ts::squeeze<0>(std::get<0>(layer(ts::slice<0>(in, t, 1)))); };
    const auto end = from + outputs(0) + outputs(1) + outputs(2);
    return ts::sum(end * end);
  })(xs, lstm, start);
});

TEST(FirstUse, ALayerWithOneStepRunsInAScan) {
  for (const int devices : {1, 2}) {
    const ts::Mesh mesh({{"data", devices}});
    const auto lstm = nn::lstm<float>(ts::Key(3), 4, 5, nn::data_parallel(mesh));
    const auto xs = ts::normal<float>(ts::Key(4), {3, 2, 4}, mesh, {ts::none, "data"});
    const auto [end, all] = lstm_in_scan(lstm, ts::zeros<float>({2, 5}, mesh), xs);
    std::vector<float> expected(10, 0);
    for (int t = 0; t < 3; ++t) {
      const ts::ShardedTensor<float, 2> x = ts::select<0>(xs, t);
      const std::vector<float> one = ts::to_host(lstm_alone(lstm, x));
      for (std::size_t i = 0; i < one.size(); ++i) expected[i] += one[i];
    }
    const std::vector<float> found = ts::to_host(end);
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-6);
    EXPECT_EQ(ts::shape(all), (ts::Shape{3, 2, 5}));
    const auto start = ts::zeros<float>({2, 5}, mesh);
    const std::vector<float> gradient = ts::to_host(scan_gradient(lstm, start, xs)),
                             whole = ts::to_host(whole_gradient(lstm, start, xs));
    for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(gradient[i], whole[i], 1e-6);
  }
}

constexpr auto draw = ts::compile([](const auto& like, const ts::Scalar& key, const ts::Scalar& low) {
  return std::tuple(ts::uniform_like(like, key), ts::uniform_like(like, key, low, 5), ts::normal_like(like, key),
                    ts::normal_like(like, key, low, 0.5));
});

TEST(FirstUse, DrawsHaveBoundsOrAMeanAndADeviation) {
  for (const int devices : {1, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const auto like = ts::zeros<float>({1000}, mesh, {"x"});
    const auto [unit, between, standard, moved] = draw(like, ts::Scalar(7), ts::Scalar(-2));
    const auto u = ts::to_host(unit), b = ts::to_host(between), z = ts::to_host(standard), m = ts::to_host(moved);
    for (std::size_t i = 0; i < u.size(); ++i) {
      EXPECT_NEAR(b[i], -2 + 7.0 * u[i], 0x1p-21) << "two roundings of values below 8, or one with FMA";
      EXPECT_NEAR(m[i], -2 + 0.5 * z[i], 1e-6);
      EXPECT_TRUE(b[i] >= -2 && b[i] <= 5);
    }
  }
}

constexpr auto run_swi_glu = ts::compile([](const auto& layer, const auto& x) { return layer(x); });

TEST(FirstUse, SwiGluIsTheGatedMlpOfTheLiterature) {
  for (const int devices : {1, 2}) {
    const ts::Mesh mesh({{"data", 1}, {"model", devices}});
    const auto layer = nn::swi_glu(ts::Key(5), 4, 6, nn::fsdp_tensor_parallel(mesh), 1, 0.5);
    const auto x = ts::normal<float>(ts::Key(6), {3, 4}, mesh);
    const auto in = ts::to_host(x), gate = ts::to_host(layer.gate.weight), up = ts::to_host(layer.up.weight),
               down = ts::to_host(layer.down.weight), found = ts::to_host(run_swi_glu(layer, x));
    for (std::size_t r = 0; r < 3; ++r) {
      double hidden[6]{};
      for (std::size_t h = 0; h < 6; ++h) {
        double g = 0, v = 0;
        for (std::size_t k = 0; k < 4; ++k) {
          g += double{in[r * 4 + k]} * gate[k * 6 + h];
          v += double{in[r * 4 + k]} * up[k * 6 + h];
        }
        hidden[h] = g / (1 + std::exp(-g)) * v;
      }
      for (std::size_t c = 0; c < 4; ++c) {
        double y = 0;
        for (std::size_t h = 0; h < 6; ++h) y += hidden[h] * down[h * 4 + c];
        EXPECT_NEAR(found[r * 4 + c], y, 1e-5);
      }
    }
  }
}

constexpr auto loss_of = [](const auto& m, const auto& in, const auto& out) { return ts::mse(m(in), out); };
constexpr int accumulate_line = __LINE__ + 2;
constexpr auto accumulated = ts::compile(
    [](const auto& model, const auto& x, const auto& y) { return ts::optim::accumulate<4>(loss_of)(model, x, y); });
constexpr int pipeline_line = __LINE__ + 2;
constexpr auto piped = ts::compile(
    [](const auto& stages, const auto& x, const ts::Dim& parts) { return ts::pipeline_gpipe(stages, x, parts); });

TEST(FirstUse, MicrobatchesThatDoNotDivideTheBatchAreNamed) {
  const ts::Mesh mesh({{"pipe", 2}});
  const Pair model = pair_of(nn::single(mesh));
  const auto x = ts::zeros<float>({6, 4}, mesh);
  expect_error(
      ts::errc::not_divisible, [&] { accumulated(model, x, x); }, "[accumulate] microbatches: a batch of 6", "f32[6,4]",
      "4 microbatches", at_line(accumulate_line));
  const auto stages =
      ts::pipeline_stages<"pipe">(ts::Stack<Pair>(2, [&](int) { return pair_of(nn::single(mesh)); }), mesh);
  expect_error(
      ts::errc::not_divisible, [&] { piped(stages, x, ts::Dim(4)); }, "[pipeline] microbatches: a batch of 6",
      "f32[6,4]", "4 microbatches", at_line(pipeline_line));
}

struct Unnamed {
  nn::Linear<> only;
  constexpr auto operator()(const auto& x) const { return only(x); }
};
constexpr auto forward = ts::compile([](const auto& model, const auto& x) { return model(x); });

TEST(FirstUse, UnknownAxesAreErrorsOfTheOperationThatNeedsThem) {
  const ts::Mesh mesh({{"data", 2}});
  const Pair model = pair_of(nn::single(mesh));
  expect_error(
      ts::errc::mesh_axis, [&] { (void)ts::fsdp(model, mesh); }, "[fsdp] axis: mesh(data=2) has no axis 'fsdp'",
      at_line(__LINE__ - 1));
  expect_error(
      ts::errc::mesh_axis, [&] { (void)ts::parallelize_module(model, mesh, "model", {}); },
      "[parallelize_module] axis: mesh(data=2) has no axis 'model'", at_line(__LINE__ - 1));
  const ts::Stack<Pair> layers(2, [&](int) { return pair_of(nn::single(mesh)); });
  expect_error(
      ts::errc::mesh_axis, [&] { (void)ts::pipeline_stages<"pipe">(layers, mesh); },
      "[pipeline_stages] axis: mesh(data=2) has no axis 'pipe'", at_line(__LINE__ - 1));
  expect_error(
      ts::errc::mesh_axis,
      [&] {
        forward(ts::Fsdp<Pair>{model}, ts::zeros<float>({2, 4}, mesh));
      },
      "[wrapper] axis:", "no axis 'fsdp'", "first_use_test.cpp:");
}

TEST(FirstUse, AModelWithoutDataIsNamedByItsParameters) {
  const ts::Mesh mesh({{"fsdp", 2}});
  Pair model = pair_of(nn::single(mesh));
  model.down.weight = {};
  const auto x = ts::zeros<float>({2, 4}, mesh);
  expect_error(
      ts::errc::empty_tensor, [&] { forward(model, x); }, "[compile] argument 0, down.weight: an empty tensor",
      "first_use_test.cpp:");
  expect_error(
      ts::errc::empty_tensor, [&] { forward(pair_of(nn::single(mesh)), ts::ShardedTensor<float, 2>()); },
      "[compile] argument 1: an empty tensor");
  Unnamed unnamed{model.up};
  unnamed.only.bias = {};
  expect_error(
      ts::errc::empty_tensor, [&] { forward(unnamed, x); }, "[compile] argument 0, field 0.bias: an empty tensor");
  expect_error(
      ts::errc::empty_tensor, [&] { (void)ts::optim::init_state(ts::optim::AdamW{}, model); },
      "[init_state] down.weight: an empty tensor", at_line(__LINE__ - 1));
  expect_error(
      ts::errc::empty_tensor, [&] { (void)ts::summary(model); }, "[summary] down.weight: an empty tensor",
      at_line(__LINE__ - 1));
  expect_error(
      ts::errc::empty_tensor, [&] { (void)nn::parameter_count(model); },
      "[parameter_count] down.weight: an empty tensor", at_line(__LINE__ - 1));
  expect_error(
      ts::errc::empty_tensor, [&] { (void)ts::fsdp(model, mesh); }, "[fsdp] down.weight: an empty tensor",
      at_line(__LINE__ - 1));
}

constexpr auto entropy = ts::compile([](const auto& logits, const auto& labels) {
  return ts::value_and_grad([](const auto& z, const auto& t) { return ts::cross_entropy(z, t); })(logits, labels);
});

TEST(FirstUse, LabelsOutsideOfTheClassesAddNothing) {
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    for (const ts::PartitionSpec& spec : {ts::PartitionSpec{"x"}, ts::PartitionSpec{ts::none, "x"}}) {
      const std::vector<float> values = counted(12);
      const auto logits = ts::shard(values, {4, 3}, mesh, spec);
      const auto labels = ts::shard(std::vector<std::int32_t>{1, -1, 3, 2147483647}, {4}, mesh);
      const auto [loss, gradient] = entropy(logits, labels);
      const double sum = 1 + std::exp(1.0) + std::exp(2.0);
      EXPECT_NEAR(ts::to_host(loss)[0], (std::log(sum) - 1) / 4, 1e-6);
      const std::vector<float> found = ts::to_host(gradient);
      for (std::size_t c = 0; c < 3; ++c) {
        EXPECT_NEAR(found[c], (std::exp(double(c)) / sum - (c == 1 ? 1 : 0)) / 4, 1e-6);
        for (std::size_t r = 1; r < 4; ++r) EXPECT_EQ(found[3 * r + c], 0);
      }
    }
  }
}

}  // namespace
