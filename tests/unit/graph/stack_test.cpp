#include <array>

#include "../../support/gradients.hpp"

#include <tessera/graph/stack.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

constexpr int n = 3;

/// The same blocks, written out one after the other.
template <class Block> struct ByHand {
  std::array<Block, n> blocks;
  constexpr auto operator()(const auto& x, const auto&... extra) const {
    return blocks[2](blocks[1](blocks[0](x, extra...), extra...), extra...);
  }
};

/// sum(net(x, extra...) * weights) and its gradient by the net, x and the extra arguments.
struct Step {
  constexpr auto operator()(const auto& weights, const auto& net, const auto& x, const auto&... extra) const {
    return ts::value_and_grad([](const auto& all, const auto& w) {
      return std::apply([&](const auto& f, const auto&... arguments) { return ts::sum(f(arguments...) * w); }, all);
    })(std::tuple(net, x, extra...), weights);
  }
};

/// One leaf of a block: the value of each layer, or a number that all layers share.
struct Leaf {
  Array value;
  bool number = false;
};
Leaf tensor(const Shape& inner, unsigned seed, double low = -1, double high = 1) {
  Shape shape = inner;
  shape.insert(0, n);
  return {random_array(shape, seed, low, high)};
}
Leaf number(double v) { return {Array::number(v), true}; }

Array layer(const Array& stacked, int i) {
  Array slice;
  slice.shape = stacked.shape;
  slice.shape.erase(0);
  const auto size = static_cast<std::ptrdiff_t>(tessera::volume(slice.shape));
  slice.data.assign(stacked.data.begin() + i * size, stacked.data.begin() + (i + 1) * size);
  return slice;
}

/// A stack is the blocks written out: value and every gradient agree, and agree with central differences.
template <class Block, class X, class... Extra>
void expect_written_out(const Array& weights, const std::vector<Leaf>& leaves, const std::vector<Array>& inputs) {
  const Program stack = trace<Step, X, ts::Stack<Block>, X, Extra...>();
  const Program hand = trace<Step, X, ByHand<Block>, X, Extra...>();
  EXPECT_EQ(stack.count(Op::repeat), 2);
  std::vector<Array> stacked{weights}, written{weights};
  std::vector<bool> constant{true};
  for (const Leaf& leaf : leaves) {
    stacked.push_back(leaf.value);
    constant.push_back(leaf.number);
  }
  for (int i = 0; i < n; ++i)
    for (const Leaf& leaf : leaves) written.push_back(leaf.number ? leaf.value : layer(leaf.value, i));
  const std::vector<bool> differentiable{differentiable_v<X>, differentiable_v<Extra>...};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    stacked.push_back(inputs[i]);
    written.push_back(inputs[i]);
    constant.push_back(!differentiable[i]);
  }
  const std::vector<Array> got = run(stack.view(), stacked), want = run(hand.view(), written);
  expect_near(got.at(0), want.at(0), 1e-12, "value");
  const std::size_t k = leaves.size();
  for (std::size_t leaf = 0; leaf < k; ++leaf)
    for (int i = 0; i < n && !leaves[leaf].number; ++i)
      expect_near(layer(got.at(1 + leaf), i), want.at(1 + static_cast<std::size_t>(i) * k + leaf), 1e-12,
                  "leaf " + std::to_string(leaf) + " of layer " + std::to_string(i));
  for (std::size_t i = 0; i < inputs.size(); ++i)
    expect_near(got.at(1 + k + i), want.at(1 + n * k + i), 1e-12, "input " + std::to_string(i));
  const auto value = [&](const std::vector<Array>& at) { return run(stack.view(), at).at(0).data[0]; };
  for (std::size_t a = 1; a < stacked.size(); ++a)
    if (!constant[a])
      expect_near(got.at(a), finite_difference(value, stacked, a), 1e-6, "difference " + std::to_string(a));
}

const Array x = random_array({2, 4}, 1), w = random_array({2, 4}, 2);

struct Residual {
  Float<2> weight;
  Float<1> bias;
  constexpr auto operator()(const auto& v) const { return v + ts::tanh(ts::matmul(v, weight) + bias); }
};
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
  constexpr auto operator()(const auto& v, const auto& ids) const { return v * 0.5 + ts::gather(table, ids) * v; }
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

// Noise differs from layer to layer, and the backward pass sees that of the forward pass.
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

struct Nested {
  ts::Stack<Residual> inner;
  constexpr auto operator()(const auto& v) const { return inner(v); }
};
TEST(Stack, RejectsNestingAndUseOutsideOfATrace) {
  EXPECT_THROW((trace<Step, Float<2>, ts::Stack<Nested>, Float<2>>()), ts::error);
  EXPECT_THROW(ts::Stack<Residual>()(ts::Sym<float, 2>()), ts::error);
  const auto computed = [](const ts::Stack<Numbers>& net, const auto& v) {
    return net(v, ts::sum<0>(v), ts::Scalar(2), ts::extent<0>(v) + 1, v);
  };
  EXPECT_THROW((trace<decltype(computed), ts::Stack<Numbers>, Float<2>>()), ts::error);
}

}  // namespace
