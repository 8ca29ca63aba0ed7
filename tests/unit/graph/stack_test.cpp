#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "../../support/stack_by_hand.hpp"

#include <tessera/graph/trace/stack.hpp>

namespace ts = tessera;
using namespace oracle;
using namespace oracle::stacks;

namespace {

TEST(Stack, IsItsBlocksWrittenOut) {
  expect_written_out<Residual, Float<2>>(w, {tensor({4, 4}, 3), tensor({4}, 4)}, {x});
}

struct Numbers {
  Float<1> gain;
  ts::Dim parts;
  ts::Scalar rate;
  constexpr auto operator()(const auto& v, const auto& shift, const ts::Scalar& power, const ts::Dim& count,
                            const auto& unused) const {
    const auto split = ts::rearrange<"a (p b) -> a p b">(v * gain, ts::len<"p">(parts));
    const auto mixed = ts::rearrange<"a p b -> a (b p)">(ts::softmax<1>(split * rate));
    (void)unused;
    return v + mixed * shift * power / count;
  }
};
TEST(Stack, ExtraArgumentsAndNumbers) {
  expect_written_out<Numbers, Float<2>, Float<1>, ts::Scalar, ts::Dim, Float<2>>(
      w, {tensor({4}, 3), number(2), number(0.7)},
      {x, random_array({4}, 5), Array::number(1.3), Array::number(5), random_array({2, 2}, 6)});
}

struct Attention {
  Float<1> gain, bias;
  Float<2> query, key, value, out;
  ts::Dim heads;
  constexpr auto operator()(const auto& v) const {
    const auto h = ts::layer_norm(v, gain, bias);
    const auto split = [&](const auto& y) { return ts::rearrange<"b t (h d) -> b t h d">(y, ts::len<"h">(heads)); };
    const auto mixed =
        ts::causal_attention(split(ts::matmul(h, query)), split(ts::matmul(h, key)), split(ts::matmul(h, value)));
    return v + ts::matmul(ts::rearrange<"b t h d -> b t (h d)">(mixed), out);
  }
};
TEST(Stack, TransformerLayers) {
  const Shape square{4, 4};
  expect_written_out<Attention, Float<3>>(random_array({1, 3, 4}, 8),
                                          {tensor({4}, 1), tensor({4}, 2), tensor(square, 3), tensor(square, 4),
                                           tensor(square, 5), tensor(square, 6), number(2)},
                                          {random_array({1, 3, 4}, 7)});
}

// Values that a block does not read, or that its result does not depend on.
struct Odd {
  Float<1> unused, used;
  constexpr auto operator()(const auto& v) const { return ts::zeros_like(v) + used * used; }
};
TEST(Stack, BlocksThatReadLittle) { expect_written_out<Odd, Float<2>>(w, {tensor({4}, 3), tensor({4}, 4)}, {x}); }

// The carried value is read in several ways, and reduced; a result smaller than it is broadcast.
struct Reducing {
  Float<2> weight;
  constexpr auto operator()(const auto& v, const auto& scale) const {
    const auto centred = v - ts::mean<-1>(v, ts::keepdims);
    return ts::sigmoid(ts::einsum<"ab,bc->ac">(centred, weight)) * ts::sum(v * v) * scale + ts::max<0>(v);
  }
};
TEST(Stack, ReductionsInside) {
  expect_written_out<Reducing, Float<2>, Float<0>>(w, {tensor({4, 4}, 3)}, {x, random_array({}, 4)});
}

struct Lookup {
  Float<2> table;
  constexpr auto operator()(const auto& v, const auto& ids) const { return v * 0.5 + ts::embedding(table, ids) * v; }
};
TEST(Stack, IntegerArguments) {
  expect_written_out<Lookup, Float<2>, Int<1>>(w, {tensor({3, 4}, 3)}, {x, Array({2}, {2, 0})});
}

// Two stacks, one of them run twice: its gradients add up.
struct Twice {
  ts::Stack<Residual> first, second;
  constexpr auto operator()(const auto& v) const { return first(second(first(v))); }
};
TEST(Stack, RunTwice) {
  const Program program = trace<Step, Float<2>, Twice, Float<2>>();
  EXPECT_EQ(program.count(Op::repeat), 6);
  std::vector<Array> arguments{w};
  for (unsigned s = 0; s < 2; ++s) {
    arguments.push_back(tensor({4, 4}, 3 + s).value);
    arguments.push_back(tensor({4}, 5 + s).value);
  }
  arguments.push_back(x);
  const auto got = run(program.view(), arguments);
  const auto value = [&](const std::vector<Array>& at) { return run(program.view(), at).at(0).data[0]; };
  for (std::size_t a = 1; a < arguments.size(); ++a)
    expect_near(got.at(a), finite_difference(value, arguments, a), 1e-6);
}

// The gradient of a gradient: a repeat of four bodies.
TEST(Stack, SecondDerivatives) {
  const auto slope = [](const auto& weights, const auto& net, const auto& direction, const auto& v) {
    return ts::value_and_grad([](const auto& all, const auto& dir, const auto& ws) {
      const auto gradient = ts::grad([](const auto& both, const auto& ws2) {
        return ts::sum(std::get<0>(both)(std::get<1>(both)) * ws2);
      })(all, ws);
      return ts::sum(std::get<1>(gradient) * dir);
    })(std::tuple(net, v), direction, weights);
  };
  const Program program = trace<decltype(slope), Float<2>, ts::Stack<Residual>, Float<2>, Float<2>>();
  std::vector<Array> arguments{w, tensor({4, 4}, 3).value, tensor({4}, 4).value, random_array({2, 4}, 9), x};
  const auto got = run(program.view(), arguments);
  const auto value = [&](const std::vector<Array>& at) { return run(program.view(), at).at(0).data[0]; };
  expect_near(got.at(1), finite_difference(value, arguments, 1), 1e-6);
  expect_near(got.at(2), finite_difference(value, arguments, 2), 1e-6);
  expect_near(got.at(3), finite_difference(value, arguments, 4), 1e-6);
}

// Dropout differs from layer to layer, and the backward pass draws the values of the forward pass.
struct Noisy {
  Float<2> weight;
  constexpr auto operator()(const auto& v, const ts::Scalar& key) const {
    return ts::dropout(v + ts::tanh(ts::matmul(v, weight)), 0.3, key);
  }
};
TEST(Stack, RandomNumbersInside) {
  const Program program = trace<Step, Float<2>, ts::Stack<Noisy>, Float<2>, ts::Scalar>();
  std::vector<Array> arguments{w, tensor({4, 4}, 3).value, x, Array::number(5)};
  const auto got = run(program.view(), arguments);
  const auto value = [&](const std::vector<Array>& at) { return run(program.view(), at).at(0).data[0]; };
  expect_near(got.at(1), finite_difference(value, arguments, 1), 1e-6);
  expect_near(got.at(2), finite_difference(value, arguments, 2), 1e-6);
}

// A result may be a tuple whose first item is the loss; parameters are updated as structures.
TEST(Stack, TupleResultsAndUpdates) {
  const auto train = [](const auto& net, const auto& v, const ts::Scalar& rate) {
    const auto [result, gradient] = ts::value_and_grad([](const auto& f, const auto& at) {
      const auto y = f(at);
      return std::tuple(ts::sum(y * y), ts::max(y), y);
    })(net, v);
    auto updated = net;
    updated[0].weight = net[0].weight - gradient[0].weight * rate;
    updated[0].bias = net[0].bias - gradient[0].bias * rate;
    return std::tuple(result, updated);
  };
  const Program program = compiled<decltype(train), ts::Stack<Residual>, Float<2>, ts::Scalar>();
  const Array weight = tensor({4, 4}, 3).value, bias = tensor({4}, 4).value;
  const auto got = run(program.view(), {weight, bias, x, Array::number(0.1)});
  ASSERT_EQ(got.size(), 5u);
  const auto gradient = run(trace<Step, Float<2>, ts::Stack<Residual>, Float<2>>().view(), {got[2], weight, bias, x});
  for (std::size_t i = 0; i < weight.data.size(); ++i)
    EXPECT_NEAR(got[3].data[i], weight.data[i] - 0.1 * 2 * gradient[1].data[i], 1e-12);
  EXPECT_EQ(got[4].shape, bias.shape);
}

// ---- a carry of several tensors

struct Carrying {
  Float<2> weight;
  constexpr auto operator()(const auto& carry, const auto& shift) const {
    const auto& [v, sums, count] = carry;
    const auto next = ts::tanh(ts::matmul(v, weight) + sums[0]) * shift;
    return std::tuple(next + v, std::array{sums[0] + ts::sum<0>(next) * 0.5, sums[0] * sums[1]}, count * 2 + 1);
  }
};
template <class Net> struct OfSeveral {
  Net layers;
  constexpr auto operator()(const auto& v, const auto& start, const auto& shift) const {
    const auto first = ts::sum<0>(v);
    const auto [y, sums, count] = layers(std::tuple(v, std::array{first * 0.25, first}, start), shift);
    return y * ts::cast<float>(count) + sums[0] * sums[1];
  }
};
TEST(Stack, CarriesSeveralTensors) {
  expect_equal_nets<Carrying, OfSeveral<ts::Stack<Carrying>>, OfSeveral<ByHand<Carrying>>, Float<2>, Int<1>, Float<2>>(
      w, {tensor({4, 4}, 3)}, {x, Array({4}, {1, 0, -2, 3}), random_array({2, 4}, 5)});
}

struct State {
  Float<2> v;
  Float<0> scale;
};
struct OfAState {
  Float<2> weight;
  constexpr auto operator()(const State& s) const {
    const auto next = ts::tanh(ts::matmul(s.v, weight)) * s.scale;
    return State{next, s.scale * 0.5 + ts::sum(next)};
  }
};
TEST(Stack, CarriesAPlainStruct) {
  const auto of_stack = [](const ts::Stack<OfAState>& net, const State& s) { return net(s); };
  const auto of_layer = [](const OfAState& layer, const State& s) { return layer(s); };
  const Program stack = compiled<decltype(of_stack), ts::Stack<OfAState>, State>();
  const Program one = compiled<decltype(of_layer), OfAState, State>();
  EXPECT_EQ(stack.count(Op::repeat), 1);
  const Array weights = tensor({4, 4}, 3).value;
  std::vector<Array> state{x, Array::number(0.75)};
  const auto got = run(stack.view(), {weights, state[0], state[1]});
  for (int i = 0; i < n; ++i) state = run(one.view(), {layer(weights, i), state[0], state[1]});
  expect_near(got.at(0), state[0], 1e-12);
  expect_near(got.at(1), state[1], 1e-12);
}

TEST(Stack, RejectsUseOutsideOfATrace) {
  EXPECT_THROW(ts::Stack<Residual>()(ts::Sym<float, 2>()), ts::error);
  EXPECT_THROW((ts::Stack<Residual>(-1, [](int) { return Residual{}; })), ts::error);
}

// A size that is computed outside of the layers is computed again inside of them.
TEST(Stack, TakesComputedSizes) {
  const auto computed = [](const auto& net, const auto& v) {
    return net(v, ts::sum<0>(v), ts::Scalar(2), ts::extent<0>(v) * 2 + 1, v);
  };
  const Program stack = trace<decltype(computed), ts::Stack<Numbers>, Float<2>>();
  const Program hand = trace<decltype(computed), ByHand<Numbers>, Float<2>>();
  const Array gains = tensor({4}, 3).value, parts = Array::number(2), rate = Array::number(0.7);
  std::vector<Array> written;
  for (int i = 0; i < n; ++i) written.insert(written.end(), {layer(gains, i), parts, rate});
  written.push_back(x);
  expect_near(run(stack.view(), {gains, parts, rate, x}).at(0), run(hand.view(), written).at(0), 1e-12);
}

}  // namespace
