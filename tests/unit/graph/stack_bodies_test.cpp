// Kinds of body: each equals its blocks called one after the other, or is an error that says what is wrong.
#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "../../support/stack_by_hand.hpp"

#include <tessera/graph/trace/stack.hpp>
#include <tessera/partition/propagation/shapes.hpp>

namespace ts = tessera;
using namespace oracle;
using namespace oracle::stacks;

namespace {

struct Polynomial {
  constexpr auto operator()(const auto& v) const { return v * 0.5 - v * v + 1.0; }
};
struct NumbersAlone {
  ts::Scalar rate;
  ts::Dim parts;
  constexpr auto operator()(const auto& v, const auto& shift) const { return v * rate + shift / parts; }
};
struct Empty {
  std::array<Residual, 0> none;
  constexpr auto operator()(const auto& v, const auto& shift) const { return ts::tanh(v) * shift; }
};
TEST(StackBodies, WithoutTensors) {
  expect_written_out<Polynomial, Float<2>>(w, {}, {x});
  expect_written_out<Polynomial, Float<0>>(Array::number(0.7), {}, {Array::number(0.3)});
  expect_written_out<NumbersAlone, Float<2>, Float<1>>(w, {number(0.7), number(2)}, {x, random_array({4}, 5)});
  expect_written_out<Empty, Float<2>, Float<2>>(w, {}, {x, w});
}

struct Identity {
  constexpr auto operator()(const auto& v) const { return v; }
};
struct ItsTensor {
  Float<2> own;
  constexpr auto operator()(const auto&) const { return own; }
};
struct OfItsTensors {
  Float<2> own;
  Float<1> gain;
  constexpr auto operator()(const auto&) const { return own * gain; }
};
struct ItsArgument {
  Float<1> unused;
  constexpr auto operator()(const auto&, const auto& other) const { return other; }
};
struct Constant {
  Float<1> unused;
  constexpr auto operator()(const auto& v) const { return ts::full_like(v, 0.5); }
};
TEST(StackBodies, ThatIgnoreSomething) {
  expect_written_out<Identity, Float<2>>(w, {}, {x});
  expect_written_out<ItsTensor, Float<2>>(w, {tensor({2, 4}, 3)}, {x});
  expect_written_out<OfItsTensors, Float<2>>(w, {tensor({2, 4}, 3), tensor({4}, 4)}, {x});
  expect_written_out<ItsArgument, Float<2>, Float<2>>(w, {tensor({4}, 3)}, {x, random_array({2, 4}, 5)});
  expect_written_out<Constant, Float<2>>(w, {tensor({4}, 3)}, {x});
}

struct Turned {
  Float<2> weight;
  constexpr auto operator()(const auto& v) const { return ts::transpose<1, 0>(ts::matmul(v, weight)) + v; }
};
struct Rolled {
  constexpr auto operator()(const auto& v) const {
    return ts::concat<1>(ts::slice<1>(v, 1, 3), ts::slice<1>(v, 0, 1)) * v;
  }
};
struct Widened {
  constexpr auto operator()(const auto& v) const { return ts::cast<float>(ts::tanh(ts::cast<double>(v))); }
};
struct Composed {
  std::array<Residual, 2> both;
  std::tuple<Polynomial, Float<1>> rest;
  constexpr auto operator()(const auto& v, const auto& options, double factor) const {
    const auto& [scale, blocks] = options;
    return std::get<0>(rest)(both[1](both[0](v)) * scale) * std::get<1>(rest) + blocks.gain * factor;
  }
};
struct Gain {
  Float<1> gain;
};
struct CallsComposed {
  ts::Stack<Composed> blocks;
  constexpr auto operator()(const auto& v, const auto& options) const { return blocks(v, options, 0.25); }
};
struct ComposedByHand {
  std::array<Composed, 3> blocks;
  constexpr auto operator()(const auto& v, const auto& options) const {
    return blocks[2](blocks[1](blocks[0](v, options, 0.25), options, 0.25), options, 0.25);
  }
};
TEST(StackBodies, ThatMoveAndConvert) {
  const Array square = random_array({4, 4}, 8);
  expect_written_out<Turned, Float<2>>(square, {tensor({4, 4}, 3)}, {random_array({4, 4}, 9)});
  expect_written_out<Rolled, Float<2>>(w, {}, {x});
  expect_written_out<Widened, Float<2>>(w, {}, {x});
}
TEST(StackBodies, StructsTuplesAndPlainNumbers) {
  using Options = std::tuple<Float<1>, Gain>;
  const Program stack = trace<Step, Float<2>, CallsComposed, Float<2>, Options>();
  const Program hand = trace<Step, Float<2>, ComposedByHand, Float<2>, Options>();
  const std::vector<Leaf> leaves{tensor({4, 4}, 1), tensor({4}, 2), tensor({4, 4}, 3), tensor({4}, 4), tensor({4}, 5)};
  std::vector<Array> stacked{w}, written{w};
  for (const Leaf& leaf : leaves) stacked.push_back(leaf.value);
  for (int i = 0; i < n; ++i)
    for (const Leaf& leaf : leaves) written.push_back(layer(leaf.value, i));
  for (std::vector<Array>* all : {&stacked, &written})
    all->insert(all->end(), {x, random_array({4}, 6), random_array({4}, 7)});
  const std::vector<Array> got = run(stack.view(), stacked), want = run(hand.view(), written);
  expect_near(got.at(0), want.at(0), 1e-12);
  for (std::size_t leaf = 0; leaf < 5; ++leaf)
    for (int i = 0; i < n; ++i)
      expect_near(layer(got.at(1 + leaf), i), want.at(1 + static_cast<std::size_t>(i) * 5 + leaf), 1e-12);
  for (std::size_t i = 0; i < 3; ++i) expect_near(got.at(6 + i), want.at(16 + i), 1e-12);
}

// A carried value may be an integer tensor, a field of a model, or an expression of such values.
struct Next {
  Int<1> table;
  constexpr auto operator()(const auto& ids) const { return ts::embedding(table, ids); }
};
struct FromItsFields {
  Float<2> start;
  ts::Stack<Residual> layers;
  constexpr auto operator()() const { return layers(start) + layers(start * 0.5); }
};
TEST(StackBodies, WhatIsCarried) {
  const auto follow = [](const ts::Stack<Next>& net, const auto& ids) { return net(ids); };
  const Array tables({3, 4}, {1, 2, 3, 0, 3, 3, 1, 2, 2, 0, 1, 3});
  const auto got = run(trace<decltype(follow), ts::Stack<Next>, Int<1>>().view(), {tables, Array({3}, {0, 1, 3})});
  EXPECT_EQ(got.at(0).data, (std::vector<double>{3, 0, 3}));  // 0, 1, 3, 3; 1, 2, 1, 0; 3, 0, 3, 3
  const auto fields = [](const FromItsFields& net) {
    return ts::value_and_grad([](const auto& m) { return ts::sum(m() * m()); })(net);
  };
  const Program program = trace<decltype(fields), FromItsFields>();
  const std::vector<Array> arguments{x, tensor({4, 4}, 3).value, tensor({4}, 4).value};
  check_against_differences(program, arguments, {true, true, true});
}

// Gradients of gradients of what has no tensors: the count is passed on.
TEST(StackBodies, SecondDerivativesWithoutTensors) {
  const auto curvature = [](const ts::Stack<Polynomial>& net, const auto& v) {
    return ts::value_and_grad([](const auto& at, const auto& f) {
      const auto slope = ts::grad([](const auto& a, const auto& g) { return ts::sum(g(a)); })(at, f);
      return ts::sum(slope * slope);
    })(v, net);
  };
  const Program program = trace<decltype(curvature), ts::Stack<Polynomial>, Float<1>>();
  for (const double layers : {1, 2, 4}) {
    const std::vector<Array> arguments{Array::number(layers), random_array({3}, 4)};
    const auto value = [&](const std::vector<Array>& at) { return run(program.view(), at).at(0).data[0]; };
    expect_near(run(program.view(), arguments).at(1), finite_difference(value, arguments, 1), 1e-6);
  }
}

// A layer that changes the extents of the carried value: found when shapes are inferred.
struct Wide {
  Float<2> weight;
  constexpr auto operator()(const auto& v) const { return ts::matmul(v, weight); }
};
struct OneRow {
  constexpr auto operator()(const auto& v) const { return ts::slice<0>(v, ts::Dim(0), ts::extent<0>(v) - 1); }
};
struct Doubled {
  Float<1> gain;
  constexpr auto operator()(const auto& v) const { return ts::concat<0>(v, v * gain); }
};
template <class Block> std::string shape_error(std::vector<Shape> arguments, double layers = 0) {
  const Program program = trace<Step, Float<2>, ts::Stack<Block>, Float<2>>();
  std::vector<ts::HostNumber> numbers(arguments.size(), layers);
  try {
    ts::infer_shapes(program.view(), arguments.data(), numbers.data());
  } catch (const ts::error& e) {
    EXPECT_EQ(e.id(), ts::errc::shape_mismatch);
    return e.what();
  }
  return "no error";
}
TEST(StackBodies, ThatChangeTheShape) {
  const auto names = [](const std::string& what, const std::string& shapes) {
    EXPECT_NE(what.find("[stack]"), std::string::npos) << what;
    EXPECT_NE(what.find(shapes), std::string::npos) << what;
    EXPECT_NE(what.find("stack_bodies_test.cpp:"), std::string::npos) << what;
  };
  for (const std::int64_t layers : {1, 2, 5}) {
    names(shape_error<Wide>({{4, 8}, {layers, 8, 16}, {4, 8}}), "f32[4,8], but returns f32[4,16]");
    names(shape_error<Wide>({{4, 16}, {layers, 16, 8}, {4, 16}}), "f32[4,16], but returns f32[4,8]");
    names(shape_error<Doubled>({{2, 4}, {layers, 4}, {2, 4}}), "f32[2,4], but returns f32[4,4]");
    names(shape_error<OneRow>({{2, 4}, {}, {2, 4}}, static_cast<double>(layers)), "f32[2,4], but returns f32[1,4]");
    EXPECT_EQ(shape_error<Wide>({{4, 8}, {layers, 8, 8}, {4, 8}}), "no error");
  }
  const Program counted = trace<Step, Float<2>, ts::Stack<Polynomial>, Float<2>>();
  const std::vector<Shape> arguments{{2, 4}, {}, {2, 4}};
  for (const double layers : {0.0, -1.0})
    EXPECT_THROW(ts::infer_shapes(counted.view(), arguments.data(), std::vector<ts::HostNumber>(3, layers).data()),
                 ts::error);
}
struct Narrowed {
  constexpr auto operator()(const auto& v) const { return ts::sum<0>(v, ts::keepdims); }
};
struct Spread {
  Float<2> bias;
  constexpr auto operator()(const auto& v) const { return v + bias; }
};
TEST(StackBodies, ThatChangeStaticExtents) {
  EXPECT_THROW((trace<Step, Float<2>, ts::Stack<Narrowed>, Float<2>>()), ts::error);
  const auto spread = [](const ts::Stack<Spread>& net, const auto& v) { return net(ts::mean<0>(v, ts::keepdims)); };
  EXPECT_THROW((trace<decltype(spread), ts::Stack<Spread>, Float<2>>()), ts::error);
}

// More than 255 tensors: stacked, shared by all layers, and in the backward pass.
template <std::size_t Count> struct Many {
  std::array<Float<0>, Count> own;
  constexpr auto operator()(const auto& v, const auto& shared) const {
    auto sum = v * 0.5;
    for (std::size_t i = 0; i < Count; ++i) sum = sum + v * own[i] * shared[i];
    return sum;
  }
};
template <std::size_t Count> void expect_many() {
  using Block = Many<Count>;
  using Shared = std::array<Float<0>, Count>;
  const Program program = trace<Step, Float<1>, ts::Stack<Block>, Float<1>, Shared>();
  std::vector<Array> arguments{random_array({2}, 1)};
  for (unsigned i = 0; i < Count; ++i) arguments.push_back(random_array({2}, 10 + i, -0.1, 0.1));
  arguments.push_back(random_array({2}, 2));
  for (unsigned i = 0; i < Count; ++i) arguments.push_back(random_array({}, 700 + i, -1, 1));
  const auto got = run(program.view(), arguments);
  const auto value = [&](const std::vector<Array>& at) { return run(program.view(), at).at(0).data[0]; };
  for (std::size_t a : {std::size_t{1}, Count / 2, Count, Count + 1, Count + 2, 2 * Count + 1})
    expect_near(got.at(a), finite_difference(value, arguments, a), 1e-6, "argument " + std::to_string(a));
}
TEST(StackBodies, OfManyTensors) {
  expect_many<100>();
  expect_many<140>();
  expect_many<300>();
}

// Outside of the layers, a tensor of a Stack has a leading dim of layers.
struct OfAllDims {
  Float<8> own;
  constexpr auto operator()(const auto& v) const { return v * own; }
};
struct ReadsAllDims {
  constexpr auto operator()(const auto& v) const { return v * v; }
};
TEST(StackBodies, OfTheHighestRank) {
  EXPECT_THROW((trace<Step, Float<8>, ts::Stack<OfAllDims>, Float<8>>()), ts::error);
  EXPECT_THROW((trace<Step, Float<8>, ts::Stack<ReadsAllDims>, Float<8>>()), ts::error);
  const auto forward = [](const ts::Stack<ReadsAllDims>& net, const auto& v) { return net(v); };
  const Program program = trace<decltype(forward), ts::Stack<ReadsAllDims>, Float<8>>();
  const Array one(Shape{1, 1, 1, 1, 1, 1, 1, 2}, 3);
  EXPECT_EQ(run(program.view(), {Array::number(2), one}).at(0).data, (std::vector<double>{81, 81}));
}

// Outside of the layers, tensors of a Stack can be combined with each other and with scalars only.
struct Loop {
  constexpr auto operator()(const auto& net, const auto& v) const {
    auto y = v;
    for (int i = 0; i < net.size(); ++i) y = net[i](y);
    return y;
  }
};
TEST(Stack, RejectsALoopOverItsLayers) {
  EXPECT_THROW((trace<Loop, ts::Stack<Residual>, Float<2>>()), ts::error);
  EXPECT_THROW((trace<Loop, ts::Stack<Spread>, Float<2>>()), ts::error);
  EXPECT_THROW((trace<Loop, ts::Stack<Doubled>, Float<2>>()), ts::error);
  const auto mixed = [](const ts::Stack<Residual>& net, const auto& v) { return v + net[0].weight * net[0].bias; };
  EXPECT_THROW((trace<decltype(mixed), ts::Stack<Residual>, Float<0>>()), ts::error);
  const auto returned = [](const ts::Stack<Residual>& net) { return net[0].bias; };
  EXPECT_THROW((trace<decltype(returned), ts::Stack<Residual>>()), ts::error);
  const auto replaced = [](ts::Stack<Residual> net, const auto& v) {
    net[0].weight = v;
    return net;
  };
  EXPECT_THROW((trace<decltype(replaced), ts::Stack<Residual>, Float<2>>()), ts::error);
  const auto called = [](ts::Stack<Residual> net, const auto& v) {
    net[0].weight = v;
    return net(v);
  };
  EXPECT_THROW((trace<decltype(called), ts::Stack<Residual>, Float<2>>()), ts::error);
  const auto carried = [](const ts::Stack<Residual>& net) { return net(net[0].weight); };
  EXPECT_THROW((trace<decltype(carried), ts::Stack<Residual>>()), ts::error);
  const auto penalty = [](const ts::Stack<Residual>& net, const auto& v) {
    return ts::grad([](const auto& f, const auto& at) { return ts::sum(f(at)) + ts::sum(f[0].bias * f[0].bias); })(net,
                                                                                                                   v);
  };
  EXPECT_THROW((trace<decltype(penalty), ts::Stack<Residual>, Float<2>>()), ts::error);
}

}  // namespace
