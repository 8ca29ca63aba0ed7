#include <tuple>

#include <tessera/graph/ir/verify.hpp>
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/partition/plan/static_plan.hpp>

// Whole training steps of a transformer, optimizer included, traced, differentiated and planned in constant expressions
// within the default limits of both compilers.

namespace ts = tessera;

namespace {

using Matrix = ts::ShardedTensor<float, 2>;
using Vector = ts::ShardedTensor<float, 1>;
using Tokens = ts::ShardedTensor<std::int32_t, 2>;

struct Block {
  Vector gain1, bias1;
  Matrix query, key, value, out;
  Vector gain2, bias2;
  Matrix up;
  Vector up_bias;
  Matrix down;
  Vector down_bias;
  ts::Dim heads;

  constexpr auto operator()(const auto& x) const {
    const auto split = [&](const auto& y) { return ts::rearrange<"b t (h d) -> b t h d">(y, ts::len<"h">(heads)); };
    const auto h = ts::layer_norm(x, gain1, bias1);
    const auto mixed =
        ts::causal_attention(split(ts::matmul(h, query)), split(ts::matmul(h, key)), split(ts::matmul(h, value)));
    const auto y = x + ts::matmul(ts::merge_dims<2, 3>(mixed), out);
    const auto hidden = ts::gelu(ts::matmul(ts::layer_norm(y, gain2, bias2), up) + up_bias);
    return y + ts::matmul(hidden, down) + down_bias;
  }
};

template <class Blocks> struct Model {
  Matrix table, positions;
  Blocks blocks;
  Vector gain, bias;
  Matrix head;

  constexpr auto operator()(const auto& tokens) const {
    const auto x = blocks(ts::embedding(table, tokens) + positions);
    return ts::matmul(ts::layer_norm(x, gain, bias), head);
  }
};

struct TwoBlocks {
  Block first, second;
  constexpr auto operator()(const auto& x) const { return second(first(x)); }
};

/// AdamW on every tensor of four structures of one type, leaf by leaf: parameter, gradient and both moments.
template <class T>
constexpr void adamw(T& p, const T& g, T& m, T& v, const ts::Scalar& rate, const ts::Scalar& beta1,
                     const ts::Scalar& beta2) {
  if constexpr (ts::StoredOperand<T>) {
    m = m * beta1 + g * 0.1;
    v = v * beta2 + g * g * 0.001;
    p = p - m * rate / (ts::sqrt(v) + 1e-8);
  } else if constexpr (std::is_same_v<T, ts::Dim>) {
    (void)p, (void)g, (void)m, (void)v;
  } else if constexpr (std::is_same_v<T, ts::Stack<Block>>) {
    adamw(p[0], g[0], m[0], v[0], rate, beta1, beta2);
  } else {
    const auto all = [&](auto... fields) {
      (adamw(p.*fields, g.*fields, m.*fields, v.*fields, rate, beta1, beta2), ...);
    };
    if constexpr (std::is_same_v<T, Block>)
      all(&Block::gain1, &Block::bias1, &Block::query, &Block::key, &Block::value, &Block::out, &Block::gain2,
          &Block::bias2, &Block::up, &Block::up_bias, &Block::down, &Block::down_bias);
    else if constexpr (std::is_same_v<T, TwoBlocks>)
      all(&TwoBlocks::first, &TwoBlocks::second);
    else
      all(&T::table, &T::positions, &T::blocks, &T::gain, &T::bias, &T::head);
  }
}

struct Step {
  constexpr auto operator()(auto model, auto mean, auto square, auto tokens, auto targets, ts::Scalar rate,
                            ts::Scalar beta1, ts::Scalar beta2) const {
    const auto [loss, gradient] = ts::value_and_grad(
        [](const auto& m, const auto& x, const auto& t) { return ts::cross_entropy(m(x), t); })(model, tokens, targets);
    adamw(model, gradient, mean, square, rate, beta1, beta2);
    return std::tuple(loss, model, mean, square);
  }
};

template <class Blocks>
using Traced =
    ts::Traced<Step, Model<Blocks>, Model<Blocks>, Model<Blocks>, Tokens, Tokens, ts::Scalar, ts::Scalar, ts::Scalar>;

constexpr int count(const ts::ProgramView& program, ts::Op op) {
  int n = 0;
  for (int g = 0; g < program.graph_count; ++g)
    for (int id = 0; id < program.graphs[g].size; ++id) n += program.graphs[g][id].op == op ? 1 : 0;
  return n;
}

// Any number of layers: one traced body, forward and backward.
constexpr ts::ProgramView deep = Traced<ts::Stack<Block>>::program();
static_assert(!ts::find_defect(deep));
static_assert(deep.graph_count == 3 && count(deep, ts::Op::repeat) == 2);
static_assert(deep.argument_count == 3 * 18 + 2 + 3);
static_assert(deep.main().output_count == 1 + 3 * 18);
// Forward: six products a block and the head's. Backward: two for each, the rest recomputed without any.
static_assert(count(deep, ts::Op::einsum) == 3 * (6 + 1));
// The cotangents of queries, keys and values are nodes of one unit.
static_assert(count(deep, ts::Op::attention) == 1 && count(deep, ts::Op::attention_grad) == 3);

// The same blocks written out, as a check on the size of one evaluation.
constexpr ts::ProgramView wide = Traced<TwoBlocks>::program();
static_assert(!ts::find_defect(wide));
static_assert(count(wide, ts::Op::einsum) == 3 * (2 * 6 + 1));

// The plan of one layer's step, all weights with their moments, data and tensor parallel.
struct LayerStep {
  constexpr auto operator()(auto layer, auto mean, auto square, auto x, auto wanted, ts::Scalar rate) const {
    const auto [loss, gradient] = ts::value_and_grad(
        [](const auto& m, const auto& in, const auto& out) { return ts::mse(m(in), out); })(layer, x, wanted);
    adamw(layer, gradient, mean, square, rate, ts::Scalar(0.9), ts::Scalar(0.999));
    return std::tuple(loss, layer, mean, square);
  }
};

constexpr ts::Mesh mesh({{"data", 2}, {"model", 4}});
constexpr ts::PartitionSpec column{ts::none, "model"}, row{"model", ts::none};
constexpr ts::Abstract vector({256}), split_vector({1024}, {"model"}), heads = ts::Abstract::dim(8);
constexpr ts::Abstract in({256, 256}, column), out({256, 256}, row), up({256, 1024}, column), down({1024, 256}, row);

constexpr ts::Plan plan() {
  const auto layer =
      ts::abstract<Block>({vector, vector, in, in, in, out, vector, vector, up, split_vector, down, vector, heads});
  const auto batch = ts::abstract<float>({8, 128, 256}, {"data"});
  return ts::plan(LayerStep{}, mesh, layer, layer, layer, batch, batch, ts::abstract(ts::Scalar()));
}
// Every gradient and the loss over the batch, but for the two of the first norm. They are reduced over both axes, for
// nothing else needs the cotangent of its result. Of the stream: attention and MLP forward, MLP backward.
static_assert(plan().count(ts::all_reduce, "data") == 12 + 1 - 2);
static_assert(plan().count(ts::all_reduce, "model") == 3);
static_assert(plan().count(ts::all_reduce) == 12 + 1 + 3);

}  // namespace
