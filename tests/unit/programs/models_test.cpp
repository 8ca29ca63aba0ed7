#include <array>
#include <tuple>
#include <vector>

#include "check.hpp"

#include <tessera/optim/adam/adamw.hpp>
#include <tessera/optim/gradients/clip.hpp>
#include <tessera/optim/sgd.hpp>

namespace ts = tessera;
using namespace programs;

namespace {

struct Layer {
  Tensor<2> up, down;  // [e, f], [f, e]
  Tensor<1> gain;      // [e]
  ts::Dim heads;
  ts::Scalar scale;

  constexpr auto operator()(const auto& x) const {
    const auto split = ts::rearrange<"b t (h d) -> b h t d">(ts::rms_norm(x, gain), ts::len<"h">(heads));
    const auto mixed = ts::rearrange<"b h t d -> b t (h d)">(ts::softmax<2>(split) * scale);
    return x + ts::matmul(ts::gelu(ts::matmul(mixed, up)), down);
  }
  constexpr auto operator()(const auto& x, const auto& bias, const auto& mask, const auto& key) const {
    const auto kept = ts::select(ts::unsqueeze<1>(mask > 0), x, bias);
    return ts::dropout<1>((*this)(kept), 0.25, key) + ts::with_sharding(ts::normal_like<2>(x, key), {"x"}) * bias;
  }
};

std::vector<Argument> layer_arguments(double low = -1, double high = 1) {
  std::vector<Argument> all{values("ef", low, high), values("fe", low, high), values("e", low, high), size('h'),
                            scalar(0.5, 2)};
  for (Argument& argument : all) argument = stacked(argument);
  return all;
}
const std::vector<std::pair<char, std::vector<std::int64_t>>> layer_extents{{'h', {1, 2, 3, 4}}, {'d', {1, 2, 3, 5}}};

std::vector<Argument> join(std::initializer_list<std::vector<Argument>> lists) {
  std::vector<Argument> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

struct Deep {
  Tensor<3> x;     // [b, t, e]
  Tensor<1> bias;  // [e]
  ts::Stack<Layer> layers;
};

struct Tiny {
  Tensor<2> table, head;  // [v, e], [e, v]
  ts::Stack<Layer> layers;
  constexpr auto operator()(const auto& tokens) const { return ts::matmul(layers(ts::embedding(table, tokens)), head); }
};

struct Product {
  Tensor<2, double> w;
  constexpr auto operator()(const auto& x) const { return ts::tanh(ts::matmul(x, w)) + x * 0.5; }
};

// Bodies of a Stack that change shardings, don't read all of their tensors, or have none.
struct Turned {
  Tensor<2> w;  // [m, m]
  constexpr auto operator()(const auto& v) const {
    return ts::with_sharding(ts::transpose<1, 0>(ts::matmul(v, w)), {"x"}) * 0.25 + v * 0.5;
  }
};
struct LaidOut {
  constexpr auto operator()(const auto& v) const {
    return ts::tanh(ts::with_sharding(v, {ts::none, "x"})) - ts::transpose<1, 0>(ts::with_sharding(v, {"x"})) * 0.5;
  }
};
struct Same {
  constexpr auto operator()(const auto& v) const { return v; }
};
struct Own {
  Tensor<2> w;  // [m, m]
  constexpr auto operator()(const auto&) const { return w; }
};
struct Filled {
  ts::Scalar with;
  constexpr auto operator()(const auto& v, const auto& other) const { return ts::full_like(v, with) * other; }
};
struct Bodies {
  Tensor<2> x;  // [m, m]
  ts::Stack<Turned> turned;
  ts::Stack<LaidOut> laid_out;
  ts::Stack<Same> same;
  ts::Stack<Own> own;
  ts::Stack<Filled> filled;
};

// A block of more than 255 tensors, some of which it does not read.
struct Many {
  std::array<Tensor<0>, 300> own;
  constexpr auto operator()(const auto& v) const { return v * own[1] + ts::tanh(own[150] * v) + own[299]; }
};

}  // namespace

TEST(Programs, StackBodies) {
  constexpr auto f = [](const auto& bodies) {
    return ts::value_and_grad([](const auto& b) {
      const auto turned = b.turned(b.x), laid_out = b.laid_out(turned), same = b.same(b.x), own = b.own(laid_out),
                 filled = b.filled(b.x, turned);
      return std::tuple(energy(turned, laid_out, same, own, filled), turned, laid_out, same, own, filled);
    })(bodies);
  };
  const Argument square = values("mm"), count = size('L');
  expect_equal_on_all_meshes<Bodies>(
      f,
      {.arguments = {square, stacked(square), count, count, stacked(square), count, scalar(0.5, 1)}, .least_axes = 1},
      25);
}

TEST(Programs, StackOfManyTensors) {
  constexpr auto f = [](const auto& layers, const auto& x) {
    return ts::value_and_grad([](const auto& l, const auto& at) { return energy(l(at)); })(layers, x);
  };
  std::vector<Argument> arguments(300, stacked(values("")));
  arguments.push_back(values("m"));
  expect_equal_on_all_meshes<ts::Stack<Many>, Tensor<1>>(f, {.arguments = arguments, .cases = 10}, 26);
}

TEST(Programs, Layers) {
  constexpr auto f = [](const auto& deep, const auto& mask, const auto& key) {
    return ts::value_and_grad([](const auto& all, const auto& m, const auto& k) {
      const auto y = all.layers(ts::tanh(ts::Sym<float, 3>(all.x.placeholder())), all.bias, m, k);
      return std::tuple(energy(y), y);
    })(deep, mask, key);
  };
  expect_equal_on_all_meshes<Deep, Tensor<1, std::int32_t>, ts::Scalar>(
      f,
      {.arguments =
           join({{values("bte"), values("e")}, layer_arguments(), {values<std::int32_t>("t", -1, 2), scalar(0, 1e6)}}),
       .tolerance = 5e-5,
       .least_axes = 1,
       .extents = layer_extents,
       .products = {{'e', "hd"}}},
      21);
}

TEST(Programs, TrainingStep) {
  constexpr auto f = [](const auto& model, const auto& state, const auto& config, const auto& tokens,
                        const auto& targets) {
    const auto [loss, gradients] = ts::value_and_grad([](const auto& m, const auto& in, const auto& out) {
      return ts::cross_entropy(m(in), out);
    })(model, tokens, targets);
    const auto [clipped, norm] = ts::clip_by_global_norm(gradients, 0.5);
    return std::tuple(loss, norm, ts::adamw(model, clipped, state, config), ts::sgd(model, gradients), gradients);
  };
  const std::vector<Argument> model = join({{values("ve"), values("ev")}, layer_arguments()});
  const std::vector<Argument> square = join({{values("ve", 0.1, 1), values("ev", 0.1, 1)}, layer_arguments(0.1, 1)});
  const std::vector<Argument> config{scalar(1e-3, 0.1), scalar(0.8, 0.95), scalar(0.9, 0.99), scalar(1e-8, 1e-6),
                                     scalar(0, 0.1)};
  expect_equal_on_all_meshes<Tiny, ts::optim::AdamWState<Tiny>, ts::optim::AdamW, Tensor<2, std::int32_t>,
                             Tensor<2, std::int32_t>>(
      f,
      {.arguments = join({model, model, square, {scalar(0, 9)}, config, {indices("bt", 'v'), indices("bt", 'v')}}),
       .tolerance = 5e-5,
       .extents = layer_extents,
       .products = {{'e', "hd"}}},
      22);
}

TEST(Programs, SecondDerivativesOfLayers) {
  constexpr auto f = [](const auto& input, const auto& stack) {
    return ts::value_and_grad([](const auto& x, const auto& layers) {
      const auto gradient = ts::grad([](const auto& at, const auto& all) { return ts::sum(all(at) * at); })(x, layers);
      return std::tuple(ts::sum(gradient * gradient), gradient);
    })(input, stack);
  };
  expect_equal_on_all_meshes<Tensor<2, double>, ts::Stack<Product>>(
      f, {.arguments = {values<double>("me"), stacked(values<double>("ee", -0.5, 0.5))}, .may_be_empty = true}, 23);
}

TEST(Programs, Results) {
  constexpr auto f = [](auto x, auto unused, auto y, auto d, auto s) {
    const auto z = ts::tanh(x) * s, again = ts::tanh(x) * s;
    const auto grads =
        ts::grad([](const auto& both) { return ts::sum(std::get<0>(both)) * 3.0; })(std::tuple(x, unused));
    return std::tuple(x, x, ts::transpose<1, 0>(x), ts::slice<0>(x, 0, 1), ts::merge_dims<0, 1>(x), z, again,
                      ts::transpose<1, 0>(z), ts::slice<1>(z, 0, 1), ts::merge_dims<0, 1>(z), ts::sum<0>(z), y,
                      ts::with_sharding(y, {ts::none, "x"}), ts::extent<0>(x), ts::extent<1>(x) * d + 1, s, d,
                      ts::full_like(ts::sum(x), s), ts::full_like(ts::sum(y), d), ts::zeros_like(x), ts::ones_like(y),
                      grads, ts::sum(x), ts::unsqueeze<0>(ts::mean(z)));
  };
  expect_equal_on_all_meshes<Tensor<2>, Tensor<2>, Tensor<2, std::int32_t>, ts::Dim, ts::Scalar>(
      f,
      {.arguments = {values("mn"), values("mn"), values<std::int32_t>("mn", -9, 9), size('d'), scalar(-2, 2)},
       .least_axes = 1},
      24);
}
