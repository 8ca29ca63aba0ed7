#ifndef TRAIN_GPT_GPT_HPP
#define TRAIN_GPT_GPT_HPP

#include <array>
#include <cstdint>
#include <tuple>

#include "options.hpp"

#include <tessera/ops/attention/ring_attention.hpp>
#include <tessera/ops/attention/ulysses_attention.hpp>
#include <tessera/ops/attention/zigzag_order.hpp>
#include <tessera/tessera.hpp>

namespace train_gpt {

/// A way to compute attention: what happens to x [B, T, D] before the first layer, to queries, keys and values in each
/// layer, and to x after the last layer. This is attention on one device, or as the planner splits it.
struct Plain : ts::nn::CausalAttention {
  static constexpr auto enter(const auto& x) { return x; }
  static constexpr auto leave(const auto& x) { return x; }
};
/// Times are exchanged for heads.
struct Ulysses : Plain {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const {
    return ts::ulysses_attention<"context">(Plain{}, q, k, v);
  }
};
/// Keys and values travel from device to device.
struct Ring {
  static constexpr auto enter(const auto& x) { return ts::zigzag_order<"context", 1>(x); }
  static constexpr auto leave(const auto& x) { return ts::natural_order<"context", 1>(x); }
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const {
    return ts::causal_ring_attention<"context">(q, k, v);
  }
};

/// A GPT over characters, written as for a single device. Activations have the element type T, parameters f32.
template <ts::Element T = float, class Attend = Plain> struct GptOf {
  ts::nn::Embedding<> characters;
  ts::nn::Positions<> positions;
  ts::Stack<ts::nn::Block<float, Attend>> blocks;
  ts::nn::LayerNorm<> norm;
  ts::nn::Linear<float, false> head;

  static constexpr std::array field_names{"characters", "positions", "blocks", "norm", "head"};

  /// Characters [B, T] to logits of the next character, [B, T, V].
  constexpr auto operator()(const auto& tokens) const {
    const auto x = Attend::enter(ts::cast<T>(positions(characters(tokens))));  // [B, T, D]
    return head(norm(Attend::leave(blocks(x))));
  }
};
using Gpt = GptOf<>;

/// How parameters and batches are sharded over the mesh. No other code of this program chooses shardings.
inline ts::nn::ShardingStrategy strategy_of(Strategy strategy, const ts::Mesh& mesh) {
  switch (strategy) {
    case Strategy::single:
      break;
    case Strategy::dp:
    case Strategy::zero1:
    case Strategy::zero2:
      return ts::nn::data_parallel(mesh);
    case Strategy::fsdp:
      return ts::nn::fsdp(mesh);
    case Strategy::hsdp:
      return ts::nn::hybrid_fsdp(mesh);
    case Strategy::tp:
      return ts::nn::tensor_parallel(mesh);
    case Strategy::sp:
      return ts::nn::sequence_parallel(mesh);
    case Strategy::fsdp_tp:
      return ts::nn::fsdp_tensor_parallel(mesh);
    case Strategy::cp:
    case Strategy::ulysses:
    case Strategy::ring:
      return ts::nn::context_parallel(mesh);
    case Strategy::pp:
      if (mesh.has_axis("model")) return ts::nn::tensor_parallel(mesh);
      if (mesh.has_axis("data")) return ts::nn::data_parallel(mesh);
      break;
    case Strategy::fsdp_pp: {
      // The parameters are split over "fsdp" when they are in stages; here that axis splits the batch.
      ts::nn::ShardingStrategy by_stage =
          mesh.has_axis("model") ? ts::nn::tensor_parallel(mesh, "model", "fsdp") : ts::nn::data_parallel(mesh, "fsdp");
      if (mesh.has_axis("data")) by_stage.batch = {{"data", "fsdp"}};
      return by_stage;
    }
    case Strategy::cp_pp:
      return ts::nn::context_parallel(mesh);
    case Strategy::ep: {
      // The axis splits the batch too: each device computes attention for its sequences.
      ts::nn::ShardingStrategy by_sequence = ts::nn::data_parallel(mesh, "expert");
      if (mesh.has_axis("data")) by_sequence.batch = {{"data", "expert"}};
      return by_sequence;
    }
  }
  return ts::nn::single(mesh);
}

/// Random parameters, generated directly in their shards: equal on every mesh and for every strategy.
template <ts::Element T = float, class Attend = Plain>
GptOf<T, Attend> make_gpt(ts::Key key, int classes, const Options& o, const ts::nn::ShardingStrategy& strategy) {
  const auto [characters, positions, blocks, head] = ts::split<4>(key);
  const auto block = [&, key = blocks](int i) {
    return ts::nn::block<float, Attend>(ts::fold_in(key, static_cast<std::uint64_t>(i)), o.dim, o.heads, 4 * o.dim,
                                        strategy, o.layers);
  };
  return {ts::nn::embedding(characters, classes, o.dim, strategy),
          ts::nn::positions(positions, o.context, o.dim, strategy),
          {o.layers, block},
          ts::nn::layer_norm(o.dim, strategy),
          ts::nn::linear<float, false>(head, o.dim, classes, strategy, ts::nn::Role::head)};
}

struct TrainConfig {
  ts::optim::AdamW adamw;
  ts::Scalar clip;
};

/// One training step: returns (model, state, loss) for a batch of inputs and targets, [B, T] each. Parameters, their
/// gradients, the loss and the optimizer state are f32.
inline constexpr auto train_step = ts::compile([](auto model, auto state, auto inputs, auto targets, auto config) {
  const auto loss_of = [](const auto& m, const auto& x, const auto& t) {
    if constexpr (
        requires { m.microbatches; } || requires { m.module.microbatches; })
      return m(x, t);  // a pipeline, which may be wrapped
    else
      return ts::cross_entropy(m(x), t);
  };
  const auto [loss, gradient] = ts::value_and_grad(loss_of)(model, inputs, targets);
  const auto [clipped, norm] = ts::clip_by_global_norm(gradient, config.clip);
  const auto [next, next_state] = ts::adamw(model, clipped, state, config.adamw);
  return std::tuple(next, next_state, loss);
});

}  // namespace train_gpt

#endif
