#include <tuple>

#include <tessera/graph/fuse/traced_units.hpp>
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>

// Programs of 2,000 nodes, those of gradients counted, and models whose layers are written out rather than put into a
// Stack are traced, grouped and lowered to kernels within the default limits of both compilers.

namespace ts = tessera;

namespace {

using Image = ts::ShardedTensor<float, 4>;
using Cube = ts::ShardedTensor<float, 3>;
using Matrix = ts::ShardedTensor<float, 2>;
using Vector = ts::ShardedTensor<float, 1>;
using Tokens = ts::ShardedTensor<std::int32_t, 2>;

template <class Function, class... Args> using Program = ts::Traced<std::remove_const_t<Function>, Args...>;
template <class Program> constexpr int nodes = Program::frozen.used.nodes;
template <class Program> constexpr int kernels = ts::TracedUnits<Program>::units.kernel_count;

// 2,000 operations, elementwise, with a constant of its own in each second one: several kernels, few different ones.
constexpr auto fused = [](auto x) {
  auto y = x;
  for (int i = 0; i < 1000; ++i) y = y * x + (0.5f + 0.001f * static_cast<float>(i));
  return y;
};
using Fused = Program<decltype(fused), Matrix>;
static_assert(nodes<Fused> >= 3000 && kernels<Fused> >= 1 && kernels<Fused> < 8);

// Products and what is between them: about as many units as nodes.
constexpr auto differentiated = [](auto x) {
  return ts::value_and_grad([](auto in) {
    auto y = in;
    for (int i = 0; i < 260; ++i) y = ts::tanh(ts::matmul(y, in));
    return ts::sum(y);
  })(x);
};
using Differentiated = Program<decltype(differentiated), Matrix>;
static_assert(nodes<Differentiated> >= 2000 && kernels<Differentiated> >= 2);

// The second derivatives of a loop. Nearly all nodes are in the bodies of loops, which count as those around them.
constexpr auto looped = [](auto x) {
  const auto loss = [](const auto& in) {
    const auto step = [&](const auto&, const auto& carry) {
      auto y = carry;
      for (int i = 0; i < 30; ++i) y = ts::tanh(ts::matmul(y, in)) * 0.5f;
      return y;
    };
    return ts::sum(ts::fori_loop(0, 3, step, in));
  };
  return ts::hvp(loss, x, x);
};
using Looped = Program<decltype(looped), Matrix>;
static_assert(nodes<Looped> >= 1500 && kernels<Looped> >= 2);

// ResNet-18 with its batch norms composed of operations.
struct Convolution {
  Image weight;
  Vector gain, bias;
  constexpr auto operator()(const auto& x, int stride, int padding) const {
    const auto y = ts::conv2d(x, weight, {.strides = {stride, stride}, .padding = {padding, padding}});
    const auto centered = y - ts::mean<0, 1, 2>(y, ts::keepdims);
    const auto variance = ts::mean<0, 1, 2>(centered * centered, ts::keepdims);
    return centered * ts::rsqrt(variance + 1e-5) * gain + bias;
  }
};
struct Residual {
  Convolution first, second;
  constexpr auto operator()(const auto& x) const { return ts::relu(x + second(ts::relu(first(x, 1, 1)), 1, 1)); }
};
struct Narrowing {
  Convolution first, second, shortcut;
  constexpr auto operator()(const auto& x) const {
    return ts::relu(shortcut(x, 2, 0) + second(ts::relu(first(x, 2, 1)), 1, 1));
  }
};
struct ResNet {
  Convolution stem;
  Residual a, b;
  Narrowing c;
  Residual d;
  Narrowing e;
  Residual f;
  Narrowing g;
  Residual h;
  Matrix head;
  constexpr auto operator()(const auto& x) const {
    const auto features = h(g(f(e(d(c(b(a(ts::relu(stem(x, 2, 3))))))))));
    return ts::matmul(ts::mean<1, 2>(features), head);
  }
};
constexpr auto train_resnet = [](auto model, auto x, auto target) {
  return ts::value_and_grad([](const auto& m, const auto& in, const auto& out) { return ts::mse(m(in), out); })(
      model, x, target);
};
using TrainResNet = Program<decltype(train_resnet), ResNet, Image, Matrix>;
static_assert(nodes<TrainResNet> > 1000 && kernels<TrainResNet> > 5);

struct Lstm {
  Matrix input, state;
  Vector bias;
  Matrix head;
  ts::Dim width;
  constexpr auto operator()(const auto& x) const {  // [time, batch, features]
    const auto at = [&](int t) { return ts::squeeze<0>(ts::slice<0>(x, t, 1)); };
    const auto gates_of = [&](const auto& in, const auto& hidden) {
      return ts::matmul(in, input) + ts::matmul(hidden, state) + bias;
    };
    auto hidden = ts::zeros_like(ts::slice<1>(ts::matmul(at(0), input), 0, width)) + 0.0;
    auto cell = hidden;
    for (int t = 0; t < 20; ++t) {
      const auto gates = gates_of(at(t), hidden);
      const auto gate = [&](int k) { return ts::slice<1>(gates, k * width, width); };
      cell = ts::sigmoid(gate(0)) * cell + ts::sigmoid(gate(1)) * ts::tanh(gate(2));
      hidden = ts::sigmoid(gate(3)) * ts::tanh(cell);
    }
    return ts::matmul(hidden, head);
  }
};
constexpr auto train_lstm = [](auto model, auto x, auto target) {
  return ts::value_and_grad([](const auto& m, const auto& in, const auto& out) { return ts::mse(m(in), out); })(
      model, x, target);
};
using TrainLstm = Program<decltype(train_lstm), Lstm, Cube, Matrix>;
static_assert(nodes<TrainLstm> > 700 && kernels<TrainLstm> > 5);

// Two blocks as Llama's: rotary positions, grouped heads left out, a gated feed-forward part.
struct LlamaBlock {
  Vector norm;
  Matrix query, key, value, out;
  Vector feed_norm;
  Matrix gate, up, down;
  ts::Dim heads;

  static constexpr auto rotated(const auto& x, const auto& cosine, const auto& sine, ts::Dim half) {  // [B, T, H, E]
    const auto a = ts::slice<3>(x, 0, half), b = ts::slice<3>(x, half, half);
    return ts::concat<3>(a * cosine - b * sine, a * sine + b * cosine);
  }
  constexpr auto operator()(const auto& x, const auto& cosine, const auto& sine, ts::Dim half) const {
    const auto split = [&](const auto& y) { return ts::rearrange<"b t (h d) -> b t h d">(y, ts::len<"h">(heads)); };
    const auto h = ts::rms_norm(x, norm);
    const auto q = rotated(split(ts::matmul(h, query)), cosine, sine, half);
    const auto k = rotated(split(ts::matmul(h, key)), cosine, sine, half);
    const auto mixed = ts::causal_attention(q, k, split(ts::matmul(h, value)));
    const auto y = x + ts::matmul(ts::merge_dims<2, 3>(mixed), out);
    const auto fed = ts::rms_norm(y, feed_norm);
    return y + ts::matmul(ts::silu(ts::matmul(fed, gate)) * ts::matmul(fed, up), down);
  }
};
struct Llama {
  Matrix embedding;
  LlamaBlock first, second;
  Vector norm;
  Matrix head;
  ts::Dim half;
  constexpr auto operator()(const auto& tokens, const auto& cosine, const auto& sine) const {
    const auto x = second(first(ts::embedding(embedding, tokens), cosine, sine, half), cosine, sine, half);
    return ts::matmul(ts::rms_norm(x, norm), head);
  }
};
constexpr auto train_llama = [](auto model, auto tokens, auto targets, auto cosine, auto sine) {
  const auto loss = [](const auto& m, const auto& in, const auto& out, const auto& c, const auto& s) {
    return ts::cross_entropy(m(in, c, s), out);
  };
  return ts::value_and_grad(loss)(model, tokens, targets, cosine, sine);
};
using TrainLlama = Program<decltype(train_llama), Llama, Tokens, Tokens, Cube, Cube>;
static_assert(nodes<TrainLlama> > 300 && kernels<TrainLlama> > 5);

}  // namespace
