#ifndef TRAIN_GPT_GPT_HPP
#define TRAIN_GPT_GPT_HPP

#include <array>
#include <tuple>

#include "options.hpp"

#include <tessera/tessera.hpp>

namespace train_gpt {

/// A GPT over characters, written as for a single device: nothing in it refers to devices or shardings.
struct Gpt {
  ts::nn::Embedding<> characters;
  ts::nn::Positions<> positions;
  ts::Stack<ts::nn::Block<>> blocks;
  ts::nn::LayerNorm<> norm;
  ts::nn::Linear<float, false> head;

  static constexpr std::array field_names{"characters", "positions", "blocks", "norm", "head"};

  /// Characters [B, T] to logits of the next character, [B, T, V], computed in T: float or bf16.
  template <ts::Element T = float> constexpr auto logits(const auto& tokens) const {
    const auto x = blocks(ts::cast<T>(positions(characters(tokens))));  // [B, T, D]
    return head(norm(x));
  }
};

/// How parameters and batches are sharded over the mesh. No other code of this program chooses shardings.
inline ts::nn::ShardingStrategy strategy_of(const Options& o) {
  switch (o.strategy.strategy) {
    case Strategy::dp:
      return ts::nn::data_parallel(o.mesh);
    case Strategy::fsdp:
      return ts::nn::fsdp(o.mesh);
    case Strategy::tp:
      return ts::nn::tensor_parallel(o.mesh);
    case Strategy::fsdp_tp:
      return ts::nn::fsdp_tensor_parallel(o.mesh);
    case Strategy::single:
      break;
  }
  return ts::nn::single(o.mesh);
}

/// Random parameters, generated directly in their shards: equal on every mesh and for every strategy.
inline Gpt make_gpt(ts::Key key, int classes, const Options& o, const ts::nn::ShardingStrategy& strategy) {
  const auto [characters, positions, blocks, head] = ts::split<4>(key);
  const auto block = [&, key = blocks](int i) {
    return ts::nn::block(ts::fold_in(key, static_cast<std::uint64_t>(i)), o.dim, o.heads, 4 * o.dim, strategy,
                         o.layers);
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

/// One training step: returns (model, state, loss) for a batch of inputs and targets, [B, T] each. Activations have the
/// element type T; parameters, their gradients, the loss and the optimizer state are f32.
template <ts::Element T>
inline constexpr auto train_step = ts::compile([](auto model, auto state, auto inputs, auto targets, auto config) {
  const auto loss_of = [](const auto& m, const auto& x, const auto& t) {
    return ts::cross_entropy(m.template logits<T>(x), t);
  };
  const auto [loss, gradient] = ts::value_and_grad(loss_of)(model, inputs, targets);
  const auto [clipped, norm] = ts::clip_by_global_norm(gradient, config.clip);
  const auto [next, next_state] = ts::adamw(model, clipped, state, config.adamw);
  return std::tuple(next, next_state, loss);
});

/// Logits of the character after each position.
inline constexpr auto predict = ts::compile([](auto model, auto tokens) { return model.logits(tokens); });

}  // namespace train_gpt

#endif
