#ifndef TRAIN_GPT_PIPELINED_GPT_HPP
#define TRAIN_GPT_PIPELINED_GPT_HPP

#include <array>
#include <utility>

#include "gpt.hpp"

#include <tessera/parallel/pipeline/pipeline_1f1b.hpp>
#include <tessera/parallel/pipeline/pipeline_gpipe.hpp>
#include <tessera/parallel/pipeline/pipeline_stage.hpp>

namespace train_gpt {

/// A GPT whose layers are shared out among the devices of an axis.
template <ts::Element T> struct PipelinedGpt {
  struct Head {
    ts::nn::LayerNorm<> norm;
    ts::nn::Linear<float, false> head;

    static constexpr std::array field_names{"norm", "head"};
    constexpr auto operator()(const auto& x) const { return head(norm(x)); }
  };

  ts::nn::Embedding<> characters;
  ts::nn::Positions<> positions;
  ts::Stack<ts::PipelineStage<"pipe", ts::nn::Block<float, Plain>>> blocks;
  Head head;
  ts::Dim microbatches;

  static constexpr std::array field_names{"characters", "positions", "blocks", "", "microbatches"};

  constexpr auto embedded(const auto& tokens) const { return ts::cast<T>(positions(characters(tokens))); }
  constexpr auto operator()(const auto& tokens) const { return head(ts::pipeline_gpipe(blocks, embedded(tokens), 1)); }
  /// The loss.
  constexpr auto operator()(const auto& tokens, const auto& targets) const {
    const auto loss_of = [](const auto& last, const auto& y, const auto& t) { return ts::cross_entropy(last(y), t); };
    return ts::pipeline_1f1b(loss_of, blocks, embedded(tokens), microbatches, head, targets);
  }
};

template <ts::Element T> PipelinedGpt<T> make_pipelined_gpt(ts::Key key, int classes, const Options& o) {
  auto gpt = make_gpt<T>(key, classes, o, strategy_of(o.strategy.strategy, o.mesh));
  return {std::move(gpt.characters),
          std::move(gpt.positions),
          ts::pipeline_stages<"pipe">(gpt.blocks, o.mesh),
          {std::move(gpt.norm), std::move(gpt.head)},
          o.microbatches};
}

}  // namespace train_gpt

#endif
