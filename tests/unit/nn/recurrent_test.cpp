#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../../support/gradients.hpp"
#include "../base/expect_error.hpp"
#include "plain.hpp"
#include <gtest/gtest.h>

#include <tessera/nn/nn.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;
using oracle::Array;
using oracle::Float;
using oracle::random_array;
using tessera_test::expect_error;

namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The equations of the pages of torch.nn.LSTM, GRU and RNN, one sequence, step and feature after the other. A weight is
// [in, gates, hidden].
struct Cell {
  int gates, in, hidden;
  Array w, b, u, d;
  Cell(int gate_count, int inputs, int features, unsigned seed)
      : gates(gate_count), in(inputs), hidden(features), w(random_array({in, gates, hidden}, seed)),
        b(random_array({gates, hidden}, seed + 1)), u(random_array({hidden, gates, hidden}, seed + 2)),
        d(random_array({gates, hidden}, seed + 3)) {}

  double of_x(const plain::Row& x, int g, int j) const {
    double sum = b.at({g, j});
    for (int i = 0; i < in; ++i) sum += x[static_cast<std::size_t>(i)] * w.at({i, g, j});
    return sum;
  }
  double of_h(const plain::Row& h, int g, int j) const {
    double sum = d.at({g, j});
    for (int i = 0; i < hidden; ++i) sum += h[static_cast<std::size_t>(i)] * u.at({i, g, j});
    return sum;
  }
  /// One step of one sequence; c is used by an LSTM alone.
  void step(const plain::Row& x, plain::Row& h, plain::Row& c) const {
    const plain::Row old = h;
    for (int j = 0; j < hidden; ++j) {
      const auto k = static_cast<std::size_t>(j);
      const auto gate = [&](int g) { return of_x(x, g, j) + of_h(old, g, j); };
      if (gates == 4) {
        c[k] = sigmoid(gate(1)) * c[k] + sigmoid(gate(0)) * std::tanh(gate(2));
        h[k] = sigmoid(gate(3)) * std::tanh(c[k]);
      } else if (gates == 3) {
        const double n = std::tanh(of_x(x, 2, j) + sigmoid(gate(0)) * of_h(old, 2, j)), z = sigmoid(gate(1));
        h[k] = (1 - z) * n + z * old[k];
      } else {
        h[k] = std::tanh(gate(0));
      }
    }
  }
  /// All steps: outputs [T, B, H], and h and c [B, H], which it changes.
  Array run(const Array& xs, Array& h, Array& c, bool reverse) const {
    const std::int64_t steps = xs.shape[0], batch = xs.shape[1];
    Array out(ts::Shape{steps, batch, hidden});
    for (std::int64_t n = 0; n < batch; ++n) {
      plain::Row own = plain::row(h, static_cast<std::size_t>(n)), cell = plain::row(c, static_cast<std::size_t>(n));
      for (std::int64_t s = 0; s < steps; ++s) {
        const std::int64_t t = reverse ? steps - 1 - s : s;
        step(plain::row(xs, static_cast<std::size_t>(t * batch + n)), own, cell);
        for (std::int64_t j = 0; j < hidden; ++j) out.at({t, n, j}) = own[static_cast<std::size_t>(j)];
      }
      for (std::int64_t j = 0; j < hidden; ++j) {
        h.at({n, j}) = own[static_cast<std::size_t>(j)];
        c.at({n, j}) = cell[static_cast<std::size_t>(j)];
      }
    }
    return out;
  }
  void add_to(std::vector<Array>& arguments) const {
    for (const Array& leaf : {w, b, u, d}) arguments.push_back(leaf);
  }
};

constexpr auto call = [](const auto& layer, const auto&... arguments) { return layer(arguments...); };
template <class... Args, class F> std::vector<Array> run(F, const std::vector<Array>& arguments) {
  return oracle::run(oracle::trace<F, Args...>().view(), arguments);
}
template <class F, class... Args> std::vector<Array> run_cell(const Cell& cell, std::vector<Array> inputs) {
  std::vector<Array> arguments;
  cell.add_to(arguments);
  arguments.insert(arguments.end(), inputs.begin(), inputs.end());
  return run<F, Args...>(call, arguments);
}

TEST(RecurrentCells, AreTheEquationsOfPyTorch) {
  const Array x = random_array({2, 3}, 1), h = random_array({2, 5}, 2), c = random_array({2, 5}, 3);
  const auto expect = [&](const Cell& cell, const std::vector<Array>& got, bool zeros) {
    Array xs({1, 2, 3}, x.data), next_h = zeros ? Array({2, 5}) : h, next_c = zeros ? Array({2, 5}) : c;
    cell.run(xs, next_h, next_c, false);
    oracle::expect_near(got.at(0), next_h, 1e-12);
    if (cell.gates == 4) oracle::expect_near(got.at(1), next_c, 1e-12);
  };
  const Cell four(4, 3, 5, 10), three(3, 3, 5, 20), one(1, 3, 5, 30);
  constexpr auto with_state = [](const auto& cell, const auto& in, const auto& old, const auto& memory) {
    return cell(in, std::tuple(old, memory));
  };
  std::vector<Array> arguments;
  four.add_to(arguments);
  for (const Array& leaf : {x, h, c}) arguments.push_back(leaf);
  expect(four, run<nn::LstmCell<>, Float<2>, Float<2>, Float<2>>(with_state, arguments), false);
  expect(four, run_cell<nn::LstmCell<>, Float<2>>(four, {x}), true);
  expect(three, run_cell<nn::GruCell<>, Float<2>, Float<2>>(three, {x, h}), false);
  expect(three, run_cell<nn::GruCell<>, Float<2>>(three, {x}), true);
  expect(one, run_cell<nn::RnnCell<>, Float<2>, Float<2>>(one, {x, h}), false);
  Cell no_bias = three;
  no_bias.b = no_bias.d = Array({3, 5});
  expect(no_bias, run<nn::GruCell<float, false>, Float<2>, Float<2>>(call, {three.w, three.u, x, h}), false);

  // relu in the place of tanh, here of a positive and a negative sum.
  const Array weight({1, 1, 1}, 1.0), zero({1, 1});
  using Relu = nn::RnnCell<float, true, nn::RnnFunction::relu>;
  const Array two = Array({2, 1}, {3, -3});
  EXPECT_EQ((run<Relu, Float<2>, Float<2>>(call, {weight, zero, weight, zero, two, Array({2, 1}, {1, 1})})[0].data),
            (std::vector<double>{4, 0}));
}

TEST(RecurrentLayers, VisitTheStepsInBothDirections) {
  const Array xs = random_array({4, 2, 3}, 1), h0 = random_array({4, 2, 5}, 2), c0 = random_array({4, 2, 5}, 3);
  const auto position = [](const Array& all, int k) {
    return Array({2, 5}, std::vector<double>(all.data.begin() + k * 10, all.data.begin() + (k + 1) * 10));
  };
  const auto concat = [](const Array& a, const Array& b) {
    Array made(ts::Shape{4, 2, 10});
    oracle::for_each_index(made.shape, [&](const ts::Shape& i) {
      made.at(i) = i[2] < 5 ? a.at(i) : b.at({i[0], i[1], i[2] - 5});
    });
    return made;
  };
  const Cell cells[] = {{4, 3, 5, 10}, {4, 3, 5, 20}, {4, 10, 5, 30}, {4, 10, 5, 40}};
  std::vector<Array> arguments, h, c;
  for (int k = 0; k < 4; ++k) {
    cells[k].add_to(arguments);
    h.push_back(position(h0, k));
    c.push_back(position(c0, k));
  }
  const Array first = concat(cells[0].run(xs, h[0], c[0], false), cells[1].run(xs, h[1], c[1], true));
  const Array second = concat(cells[2].run(first, h[2], c[2], false), cells[3].run(first, h[3], c[3], true));
  for (const Array& leaf : {xs, h0, c0}) arguments.push_back(leaf);
  const auto got = run<nn::Lstm<float, 2, nn::Direction::both>, Float<3>, Float<3>, Float<3>>(
      [](const auto& lstm, const auto& in, const auto& a, const auto& b) { return lstm(in, std::tuple(a, b)); },
      arguments);
  oracle::expect_near(got.at(0), second, 1e-12, "outputs");
  for (int k = 0; k < 4; ++k) {
    oracle::expect_near(position(got.at(1), k), h[static_cast<std::size_t>(k)], 1e-12, "h");
    oracle::expect_near(position(got.at(2), k), c[static_cast<std::size_t>(k)], 1e-12, "c");
  }

  // A GRU in reverse and a network of tanh, from zeros.
  const Cell gru(3, 3, 5, 50), rnn(1, 3, 5, 60);
  Array last({2, 5}), unused({2, 5});
  const Array outputs = gru.run(xs, last, unused, true);
  const auto reversed = run_cell<nn::Gru<float, 1, nn::Direction::reverse>, Float<3>>(gru, {xs});
  oracle::expect_near(reversed.at(0), outputs, 1e-12);
  oracle::expect_near(reversed.at(1), Array({1, 2, 5}, last.data), 1e-12);
  last = Array({2, 5});
  oracle::expect_near(run_cell<nn::Rnn<>, Float<3>>(rnn, {xs}).at(0), rnn.run(xs, last, unused, false), 1e-12);

  // No steps, and no sequences.
  const auto none =
      run_cell<nn::Gru<>, Float<3>, Float<3>>(gru, {Array(ts::Shape{0, 2, 3}), random_array({1, 2, 5}, 7)});
  EXPECT_EQ(none.at(0).shape, (ts::Shape{0, 2, 5}));
  oracle::expect_near(none.at(1), random_array({1, 2, 5}, 7), 0);
  EXPECT_EQ((run_cell<nn::Gru<>, Float<3>>(gru, {Array(ts::Shape{2, 0, 3})}).at(0).shape), (ts::Shape{2, 0, 5}));
}

// Every parameter, x and the initial state.
template <class Cell> constexpr auto of_cell(const auto& w, const auto& b, const auto& u, const auto& d) {
  nn::Recurrent<Cell> layer;
  layer.cells[0].ih.weight = w, layer.cells[0].ih.bias = b;
  layer.cells[0].hh.weight = u, layer.cells[0].hh.bias = d;
  return layer;
}
TEST(RecurrentLayers, HaveTheGradientsOfDifferences) {
  const Cell four(4, 2, 3, 10), three(3, 2, 3, 20);
  const Array xs = random_array({3, 2, 2}, 1), h = random_array({1, 2, 3}, 2), c = random_array({1, 2, 3}, 3);
  oracle::check_gradient<Float<3>, Float<2>, Float<3>, Float<2>, Float<3>, Float<3>, Float<3>>(
      [](const auto& w, const auto& b, const auto& u, const auto& d, const auto& in, const auto& old,
         const auto& memory) {
        const auto [outputs, last] = of_cell<nn::LstmCell<>>(w, b, u, d)(in, std::tuple(old, memory));
        return ts::sum<0>(outputs) + ts::squeeze<0>(std::get<0>(last) * 0.5 + std::get<1>(last));
      },
      {four.w, four.b, four.u, four.d, xs, h, c}, oracle::first_order);
  oracle::check_gradient<Float<3>, Float<2>, Float<3>, Float<2>, Float<3>, Float<3>>(
      [](const auto& w, const auto& b, const auto& u, const auto& d, const auto& in, const auto& old) {
        const auto [outputs, last] = of_cell<nn::GruCell<>>(w, b, u, d)(in, old);
        return ts::sum<0>(outputs) + ts::squeeze<0>(last) * 0.5;
      },
      {three.w, three.b, three.u, three.d, xs, h}, oracle::first_order);
}

// A split batch communicates nothing; split hidden features gather h in each step. In bf16 the state c stays f32.
TEST(RecurrentLayers, SplitTheBatchAndTheFeatures) {
  constexpr auto forward = ts::compile([](auto lstm, auto xs) {
    const auto [outputs, last] = lstm(xs);
    return std::tuple(outputs, std::get<0>(last), std::get<1>(last));
  });
  const ts::Mesh mesh({{"data", 2}, {"model", 2}});
  const auto make = [&](const nn::ShardingStrategy& strategy) {
    return nn::lstm<float, 2>(ts::Key(3), 3, 6, strategy);
  };
  const auto whole = nn::single(mesh), batch = nn::data_parallel(mesh), features = nn::tensor_parallel(mesh);
  const auto x = [&](const nn::ShardingStrategy& strategy) {
    const ts::PartitionSpec spec =
        strategy.batch.entries.empty() ? ts::PartitionSpec{} : ts::PartitionSpec{ts::none, "data"};
    return ts::normal<float>(ts::Key(4), {5, 4, 3}, strategy.mesh, spec);
  };
  const std::vector<float> want = ts::to_host(std::get<0>(forward(make(whole), x(whole))));
  for (const float v : ts::to_host(make(whole).cells[0].ih.weight)) EXPECT_LE(std::fabs(v), 1 / std::sqrt(6.F));
  for (const auto& strategy : {batch, features}) {
    const std::vector<float> got = ts::to_host(std::get<0>(forward(make(strategy), x(strategy))));
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << i;
  }
  EXPECT_EQ(forward.plan(make(batch), x(batch)).wire_bytes(), 0);
  const auto plan = forward.plan(make(features), x(features));
  EXPECT_GT(plan.wire_bytes(), 0);
  EXPECT_EQ(make(features).cells[1].ih.weight.rank, 3);
  EXPECT_EQ(ts::sharded_type_text(make(features).cells[1].hh.weight), "f32[6,4,6]{-,-,model}");
  EXPECT_EQ(ts::sharded_type_text(make(features).cells[1].hh.bias), "f32[4,6]{-,model}");

  constexpr auto in_bf16 = ts::compile([](auto lstm, auto xs) {
    const auto [outputs, last] = lstm(ts::cast<ts::bf16>(xs));
    return std::tuple(ts::cast<float>(outputs), std::get<1>(last));
  });
  const auto [outputs, memory] = in_bf16(make(whole), x(whole));
  EXPECT_EQ(ts::sharded_type_text(memory).substr(0, 3), "f32");
  const std::vector<float> rounded = ts::to_host(outputs);
  for (std::size_t i = 0; i < rounded.size(); ++i) EXPECT_NEAR(rounded[i], want[i], 2e-2) << i;
}

// The second layer repeats what it gets: its inputs are those of relu, positive, and it has no memory.
TEST(RecurrentLayers, DropOutputsBetweenLayers) {
  using Layers = nn::Rnn<float, 2, nn::Direction::forward, false, nn::RnnFunction::relu>;
  constexpr auto train = ts::compile([](auto layers, auto xs, auto key) {
    const auto rate = [&](double r) { return std::get<0>(layers(xs, nn::layer_dropout(r, key))); };
    return std::tuple(std::get<0>(layers(xs)), rate(0.5), rate(0), rate(1));
  });
  const int hidden = 24;
  std::vector<float> identity(hidden * hidden), ones(3 * hidden, 0.5F), none(hidden * hidden);
  for (int i = 0; i < hidden; ++i) identity[static_cast<std::size_t>(i * hidden + i)] = 1;
  std::vector<float> first;
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const auto weight = [&](const std::vector<float>& values, int in) {
      return ts::shard(values, {in, 1, hidden}, mesh, {});
    };
    Layers layers;
    layers.cells[0].ih.weight = weight(ones, 3), layers.cells[0].hh.weight = weight(none, hidden);
    layers.cells[1].ih.weight = weight(identity, hidden), layers.cells[1].hh.weight = weight(none, hidden);
    const auto xs = ts::uniform<float>(ts::Key(2), {6, 5, 3}, mesh, {ts::none, "x"}, 0.5F, 1.F);
    const auto [whole, half, all, nothing] = train(layers, xs, ts::Key(3));
    const auto want = ts::to_host(whole), got = ts::to_host(half);
    int kept = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_GT(want[i], 0);
      ASSERT_TRUE(got[i] == 0 || std::fabs(got[i] - 2 * want[i]) < 1e-5) << i;
      kept += got[i] != 0;
    }
    const double n = static_cast<double>(want.size());
    EXPECT_NEAR(kept, n / 2, 4.5 * std::sqrt(n / 4));
    EXPECT_EQ(ts::to_host(all), want);
    EXPECT_EQ(ts::to_host(nothing), std::vector<float>(want.size(), 0));
    if (first.empty()) first = got;
    for (std::size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(got[i], first[i], 1e-5);
  }
}

// Each sequence of a batch gives what it gives alone; a split batch communicates nothing. Options are in any order.
TEST(RecurrentLayers, OfSequencesOfDifferentLengths) {
  constexpr auto padded = ts::compile([](auto gru, auto xs, auto state, auto steps, auto key) {
    const auto [outputs, last] = gru(xs, nn::lengths(steps), state);
    const auto [more, end] = gru(xs, nn::layer_dropout(0.0, key), state, nn::lengths(steps));
    return std::tuple(outputs, last, more, end);
  });
  constexpr auto alone = ts::compile([](auto gru, auto xs, auto state) { return gru(xs, state); });
  const std::vector<std::int32_t> steps{4, 1, 6, 3, 0};
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"data", devices}});
    const auto gru = nn::gru<float, 2, nn::Direction::both>(ts::Key(1), 3, 4, nn::data_parallel(mesh));
    const std::vector<float> xs = ts::to_host(ts::normal<float>(ts::Key(2), {6, 5, 3}, ts::Mesh{}, {})),
                             h = ts::to_host(ts::normal<float>(ts::Key(3), {4, 5, 4}, ts::Mesh{}, {}));
    const auto on_mesh = [&](const std::vector<float>& values, const ts::Shape& shape) {
      return ts::shard<3>(values, shape, mesh, {ts::none, "data"});
    };
    const auto in = on_mesh(xs, {6, 5, 3}), state = on_mesh(h, {4, 5, 4});
    const auto lengths = ts::shard(steps, {5}, mesh, {"data"});
    const auto [outputs, last, more, end] = padded(gru, in, state, lengths, ts::Key(4));
    EXPECT_EQ(ts::to_host(outputs), ts::to_host(more));
    EXPECT_EQ(ts::to_host(last), ts::to_host(end));
    EXPECT_EQ(padded.plan(gru, in, state, lengths, ts::Key(4)).wire_bytes(), 0);
    const std::vector<float> y = ts::to_host(outputs), s = ts::to_host(last);
    for (int b = 0; b < 5; ++b) {
      const int n = steps[static_cast<std::size_t>(b)];
      std::vector<float> own, of_state;
      for (int t = 0; t < n; ++t)
        for (int f = 0; f < 3; ++f) own.push_back(xs[static_cast<std::size_t>((t * 5 + b) * 3 + f)]);
      for (int k = 0; k < 4; ++k)
        for (int f = 0; f < 4; ++f) of_state.push_back(h[static_cast<std::size_t>((k * 5 + b) * 4 + f)]);
      const auto [want_outputs, want_last] =
          alone(gru, ts::shard(own, {n, 1, 3}, mesh, {}), ts::shard(of_state, {4, 1, 4}, mesh, {}));
      const std::vector<float> want = ts::to_host(want_outputs), want_state = ts::to_host(want_last);
      for (int t = 0; t < 6; ++t)
        for (int f = 0; f < 8; ++f) {
          const float got = y[static_cast<std::size_t>((t * 5 + b) * 8 + f)];
          if (t < n)
            EXPECT_NEAR(got, want[static_cast<std::size_t>(t * 8 + f)], 1e-5) << b << " " << t;
          else
            EXPECT_EQ(got, 0) << b << " " << t;
        }
      for (int k = 0; k < 4; ++k)
        for (int f = 0; f < 4; ++f)
          EXPECT_NEAR(s[static_cast<std::size_t>((k * 5 + b) * 4 + f)], want_state[static_cast<std::size_t>(k * 4 + f)],
                      1e-5)
              << b << " " << k;
    }
  }
}

// As torch.nn.utils.rnn.pack_padded_sequence: lengths of frames are an error where a strided convolution has left fewer
// steps. The error names what is wrong in words of the caller, and the caller's line.
TEST(RecurrentLayers, RefuseLengthsThatDoNotFit) {
  constexpr int line = __LINE__ + 2;
  constexpr auto padded = ts::compile([](auto rnn, auto xs, auto steps) {
    return std::get<0>(rnn(xs, nn::lengths(steps)));  // the outputs
  });
  const std::string at = "lengths of a recurrent layer at recurrent_test.cpp:" + std::to_string(line);
  for (const int devices : {1, 2}) {
    const ts::Mesh mesh({{"data", devices}});
    const auto rnn = nn::rnn(ts::Key(1), 3, 4, nn::data_parallel(mesh));
    const auto xs = ts::normal<float>(ts::Key(2), {6, 3, 3}, mesh, {ts::none, "data"});
    const auto run = [&](std::vector<std::int32_t> steps) {
      return [&, steps = std::move(steps)] {
        (void)padded(rnn, xs, ts::shard(steps, {static_cast<std::int64_t>(steps.size())}, mesh, {"data"}));
      };
    };
    EXPECT_NO_THROW(run({6, 0, 3})());
    expect_error(ts::errc::dim_range, run({6, 7, 3}), "7 is outside", at);
    expect_error(ts::errc::dim_range, run({6, 2, -1}), "-1 is outside", at);
    expect_error(ts::errc::shape_mismatch, run({6, 2, 1, 3}), "i32[6,3] x i32[4]", at);
  }
}

// As torch.nn.LSTM, which refuses the state of another number of layers, and of another batch.
TEST(RecurrentLayers, RefuseStatesAndFeaturesThatDoNotFit) {
  constexpr int line = __LINE__ + 1;
  constexpr auto run = ts::compile([](auto layer, auto xs, auto state) { return layer(xs, state); });
  const std::string at = " at recurrent_test.cpp:" + std::to_string(line);
  const ts::Mesh mesh({{"data", 2}});
  const auto strategy = nn::data_parallel(mesh);
  const auto zeros = [&](const ts::Shape& shape) { return ts::zeros<float>({shape[0], shape[1], shape[2]}, mesh); };
  const auto lstm = nn::lstm<float, 2>(ts::Key(1), 3, 4, strategy);
  const auto of_lstm = [&](const ts::Shape& xs, const ts::Shape& h, const ts::Shape& c) {
    return [&, xs, h, c] { (void)run(lstm, zeros(xs), std::tuple(zeros(h), zeros(c))); };
  };
  const auto mismatch = ts::errc::shape_mismatch;
  EXPECT_NO_THROW(of_lstm({5, 2, 3}, {2, 2, 4}, {2, 2, 4})());
  const std::string cells = "[lstm] the state must have a row for each of the 2 cells, which are the layers times the "
                            "directions: ";
  expect_error(mismatch, of_lstm({5, 2, 3}, {3, 2, 4}, {2, 2, 4}), cells + "f32[3,2,4]" + at);
  expect_error(mismatch, of_lstm({5, 2, 3}, {2, 2, 4}, {1, 2, 4}), cells + "f32[1,2,4]" + at);
  expect_error(
      mismatch, of_lstm({5, 2, 3}, {2, 3, 4}, {2, 2, 4}),
      "[lstm] the state [cells, batch, hidden] must have the batch of xs [time, batch, features]: f32[2,3,4] x "
      "f32[5,2,3]" +
          at);
  expect_error(mismatch, of_lstm({5, 2, 6}, {2, 2, 4}, {2, 2, 4}),
               "[lstm] xs must have the features of the weight [in, gates, hidden]: f32[5,2,6] x f32[3,4,4]" + at);

  const auto gru = nn::gru<float, 1, nn::Direction::both>(ts::Key(1), 3, 4, strategy);
  EXPECT_NO_THROW((void)run(gru, zeros({5, 2, 3}), zeros({2, 2, 4})));
  expect_error(
      mismatch,
      [&] {
        (void)run(gru, zeros({5, 2, 3}), zeros({4, 2, 4}));
      },
      "[gru] the state must have a row", "f32[4,2,4]" + at);
}

}  // namespace
