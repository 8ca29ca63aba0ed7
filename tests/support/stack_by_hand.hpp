#ifndef TESSERA_TESTS_SUPPORT_STACK_BY_HAND_HPP
#define TESSERA_TESTS_SUPPORT_STACK_BY_HAND_HPP

#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "gradients.hpp"

#include <tessera/graph/trace/stack.hpp>

namespace oracle::stacks {

namespace ts = tessera;

inline constexpr int n = 3;

/// The blocks of a stack, called one after the other.
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

/// One leaf of a block: the value of each layer, or a scalar that all layers share.
struct Leaf {
  Array value;
  bool number = false;
};
inline Leaf tensor(const Shape& inner, unsigned seed, double low = -1, double high = 1) {
  Shape shape = inner;
  shape.insert(0, n);
  return {random_array(shape, seed, low, high)};
}
inline Leaf number(double v) { return {Array::number(v), true}; }

inline Array layer(const Array& stacked, int i) {
  Array slice;
  slice.shape = stacked.shape;
  slice.shape.erase(0);
  const auto size = static_cast<std::ptrdiff_t>(tessera::volume(slice.shape));
  slice.data.assign(stacked.data.begin() + i * size, stacked.data.begin() + (i + 1) * size);
  return slice;
}

/// A net with a stack equals one with its blocks called one after the other: value and all gradients agree, also with
/// central differences.
template <class Block, class StackNet, class HandNet, class X, class... Extra>
void expect_equal_nets(const Array& weights, const std::vector<Leaf>& leaves, const std::vector<Array>& inputs) {
  const Program stack = trace<Step, X, StackNet, X, Extra...>();
  const Program hand = trace<Step, X, HandNet, X, Extra...>();
  EXPECT_EQ(stack.count(Op::repeat), 2);
  std::vector<Array> stacked{weights}, written{weights};
  std::vector<bool> constant{true};
  if (tessera::detail::counts_layers_v<Block>) {
    stacked.push_back(Array::number(n));
    constant.push_back(true);
  }
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
  const std::size_t k = leaves.size(), first = stacked.size() - inputs.size() - k;
  for (std::size_t leaf = 0; leaf < k; ++leaf)
    for (int i = 0; i < n && !leaves[leaf].number; ++i)
      expect_near(layer(got.at(first + leaf), i), want.at(1 + static_cast<std::size_t>(i) * k + leaf), 1e-12,
                  "leaf " + std::to_string(leaf) + " of layer " + std::to_string(i));
  for (std::size_t i = 0; i < inputs.size(); ++i)
    expect_near(got.at(first + k + i), want.at(1 + n * k + i), 1e-12, "input " + std::to_string(i));
  const auto value = [&](const std::vector<Array>& at) { return run(stack.view(), at).at(0).data[0]; };
  for (std::size_t a = 1; a < stacked.size(); ++a)
    if (!constant[a])
      expect_near(got.at(a), finite_difference(value, stacked, a), 1e-6, "difference " + std::to_string(a));
}

/// A stack equals its blocks called one after the other.
template <class Block, class X, class... Extra>
void expect_written_out(const Array& weights, const std::vector<Leaf>& leaves, const std::vector<Array>& inputs) {
  expect_equal_nets<Block, ts::Stack<Block>, ByHand<Block>, X, Extra...>(weights, leaves, inputs);
}

inline const Array x = random_array({2, 4}, 1), w = random_array({2, 4}, 2);

struct Residual {
  Float<2> weight;
  Float<1> bias;
  constexpr auto operator()(const auto& v) const { return v + ts::tanh(ts::matmul(v, weight) + bias); }
};

}  // namespace oracle::stacks

#endif
