#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <tuple>

#include "trainer_of.hpp"

namespace train_gpt {

/// A GPT whose layers have experts in place of the MLP, two of which compute each character.
template <ts::Element T> struct ExpertGpt {
  struct Block {
    ts::nn::LayerNorm<> attention_norm;
    ts::nn::Attention<> attention;
    ts::nn::LayerNorm<> experts_norm;
    ts::nn::MoE<float, ts::nn::Dispatch::sequence_capacity> experts;

    static constexpr std::array field_names{"attention_norm", "attention", "experts_norm", "experts"};
  };

  ts::nn::Embedding<> characters;
  ts::nn::Positions<> positions;
  ts::Stack<Block> blocks;
  ts::nn::LayerNorm<> norm;
  ts::nn::Linear<float, false> head;

  static constexpr std::array field_names{"characters", "positions", "blocks", "norm", "head"};

  /// Logits, and for each layer how unequally its experts are used.
  constexpr auto with_balance(const auto& tokens) const {
    const auto layer = [](const auto& x, const auto& block) {
      const auto middle = x + block.attention(block.attention_norm(x));
      const auto [y, balance, z] = block.experts(block.experts_norm(middle));
      return std::tuple(middle + y, balance);
    };
    const auto [x, balances] = ts::scan(layer, ts::cast<T>(positions(characters(tokens))), blocks);
    return std::tuple(head(norm(x)), balances);
  }
  constexpr auto operator()(const auto& tokens) const { return std::get<0>(with_balance(tokens)); }
  constexpr auto loss(const auto& tokens, const auto& targets) const {
    const auto [logits, balances] = with_balance(tokens);
    return ts::cross_entropy(logits, targets) + 0.01 * ts::mean(balances);
  }
};

std::unique_ptr<Trainer> make_expert_trainer(ts::Key key, int classes, const Options& o) {
  return trainer_of(o, [&]<class T>() -> ExpertGpt<T> {
    const ts::nn::ShardingStrategy strategy = strategy_of(o.strategy.strategy, o.mesh);
    const int choices = std::min(2, o.experts);
    const std::int64_t capacity = ts::nn::expert_capacity(o.context, o.experts, choices);
    const auto [characters, positions, blocks, head] = ts::split<4>(key);
    const auto block = [&, of_blocks = blocks](int i) -> typename ExpertGpt<T>::Block {
      const auto [first, second] = ts::split<2>(ts::fold_in(of_blocks, static_cast<std::uint64_t>(i)));
      return {ts::nn::layer_norm(o.dim, strategy), ts::nn::attention(first, o.dim, o.heads, strategy, o.layers),
              ts::nn::layer_norm(o.dim, strategy),
              ts::nn::moe<float, ts::nn::Dispatch::sequence_capacity>(second, o.dim, 4 * o.dim, o.experts, choices,
                                                                      strategy, capacity)};
    };
    return {ts::nn::embedding(characters, classes, o.dim, strategy),
            ts::nn::positions(positions, o.context, o.dim, strategy),
            {o.layers, block},
            ts::nn::layer_norm(o.dim, strategy),
            ts::nn::linear<float, false>(head, o.dim, classes, strategy, ts::nn::Role::head)};
  });
}

}  // namespace train_gpt
