// Transformers that write text token by token, with caches, equal to the pass over the whole text.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "transformer_strategies.hpp"
#include <gtest/gtest.h>

#include <tessera/nn/nn.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;

namespace {

/// GPT-2, as docs/loops.md writes it.
struct Gpt {
  nn::Embedding<> tokens;
  nn::Positions<> positions;
  ts::Stack<nn::Block<>> blocks;
  nn::LayerNorm<> norm;
  nn::Linear<float, false> head;

  constexpr auto operator()(const auto& in) const { return head(norm(blocks(positions(tokens(in))))); }
  constexpr auto cached(const auto& in, const auto& caches, const auto& position) const {
    const auto [y, next] = nn::cached(blocks, positions(tokens(in), position), caches, position);
    return std::tuple(head(norm(y)), next);
  }
};
Gpt make_gpt(const nn::ShardingStrategy& strategy) {
  const auto block = [&](int i) {
    return nn::block(ts::fold_in(ts::Key(3), static_cast<std::uint64_t>(i)), 12, 3, 20, strategy, 2, 0.4);
  };
  return {nn::embedding(ts::Key(1), 11, 12, strategy, 1), nn::positions(ts::Key(2), 9, 12, strategy, 1),
          ts::Stack<nn::Block<>>(2, block), nn::layer_norm(12, strategy),
          nn::linear<float, false>(ts::Key(4), 12, 11, strategy, nn::Role::head, 1)};
}

/// A decoder of a memory, with sinusoidal positions.
struct Decoder {
  nn::Embedding<> tokens;
  ts::Stack<nn::DecoderLayer<>> layers;
  nn::Linear<float, false> head;

  constexpr auto operator()(const auto& in, const auto& memory, const auto& mask) const {
    const auto x = tokens(in);
    return head(layers(x + nn::sinusoidal_positions(x), memory, mask));
  }
  constexpr auto cached(const auto& in, const auto& caches, const auto& position, const auto& known,
                        const auto& mask) const {
    const auto x = tokens(in);
    const auto [y, next] = nn::cached(layers, x + nn::sinusoidal_positions(x, position), caches, position, known, mask);
    return std::tuple(head(y), next);
  }
};
Decoder make_decoder(const nn::ShardingStrategy& strategy) {
  const auto layer = [&](int i) {
    return nn::decoder_layer(ts::fold_in(ts::Key(3), static_cast<std::uint64_t>(i)), 12, 3, 20, strategy);
  };
  return {nn::embedding(ts::Key(1), 11, 12, strategy, 1), ts::Stack<nn::DecoderLayer<>>(2, layer),
          nn::linear<float, false>(ts::Key(4), 12, 11, strategy, nn::Role::head, 1)};
}

/// Greedy decoding, a prompt of two tokens first, then token by token, against `full(text)`: all logits of the text so
/// far. `cached(tokens, position)` gives the logits of the tokens from a position on.
template <class Full, class Cached>
std::vector<std::int32_t> decode(const nn::ShardingStrategy& strategy, const Full& full, const Cached& cached) {
  constexpr std::int64_t batch = 3, classes = 11, length = 8;
  std::vector<std::vector<std::int32_t>> text{{1, 2}, {10, 0}, {5, 5}};
  const auto sharded = [&](std::int64_t from, std::int64_t to) {
    std::vector<std::int32_t> flat;
    for (const auto& row : text) flat.insert(flat.end(), row.begin() + from, row.begin() + to);
    // Times are not split: they are one in most steps.
    const ts::PartitionSpec spec{strategy.batch.entries.size() > 0 ? strategy.batch.entries[0] : ts::SpecEntry{}};
    return ts::shard(flat, {batch, to - from}, strategy.mesh, spec);
  };
  const auto last = [&](const std::vector<float>& logits, std::int64_t b) {
    const auto times = static_cast<std::int64_t>(logits.size()) / (batch * classes);
    const auto row = logits.begin() + ((b + 1) * times - 1) * classes;
    return std::vector<float>(row, row + classes);
  };
  for (std::int64_t at = 0, t = 2; t < length; ++t) {
    const std::vector<float> whole = full(sharded(0, t)), step = cached(sharded(at, t), at);
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::vector<float> want = last(whole, b), got = last(step, b);
      for (std::size_t c = 0; c < want.size(); ++c) EXPECT_NEAR(got[c], want[c], 2e-4) << t << " " << b << " " << c;
      const auto token = std::max_element(want.begin(), want.end()) - want.begin();
      EXPECT_EQ(std::max_element(got.begin(), got.end()) - got.begin(), token) << t << " " << b;
      text[static_cast<std::size_t>(b)].push_back(static_cast<std::int32_t>(token));
    }
    at = t;
  }
  std::vector<std::int32_t> all;
  for (const auto& row : text) all.insert(all.end(), row.begin(), row.end());
  return all;
}

template <class Rotary> void expect_generation_with(const Rotary& rotary) {
  constexpr auto full = ts::compile([](const auto& m, const auto& text) { return m(text); });
  constexpr auto step = ts::compile([](const auto& m, const auto& text, const ts::Stack<nn::KvCache<>>& caches,
                                       const ts::Scalar& position) { return m.cached(text, caches, position); });
  std::vector<std::int32_t> first;
  for (const nn::ShardingStrategy& strategy : transformers::strategies()) {
    const nn::Llama<float, nn::Linear<float, false>, Rotary> model =
        nn::llama(ts::Key(1), 11, 16, 4, 2, 20, 2, strategy, 0.5, rotary);
    ts::Stack<nn::KvCache<>> caches = nn::kv_caches(2, 3, 9, 2, 4, strategy);
    const std::vector<std::int32_t> text = decode(
        strategy, [&](const auto& tokens) { return ts::to_host(full(model, tokens)); },
        [&](const auto& tokens, std::int64_t position) {
          auto [logits, next] = step(model, tokens, std::move(caches), ts::Scalar(position));
          caches = std::move(next);
          return ts::to_host(logits);
        });
    if (first.empty()) first = text;
    EXPECT_EQ(text, first);
  }
}
TEST(Generation, OfLlamasWithScaledRotaryEmbeddings) {
  expect_generation_with(ts::Llama3Rotary{.base = 100.0, .factor = 4.0, .original_max_position_embeddings = 4});
  expect_generation_with(ts::YarnRotary{.base = 100.0, .factor = 4.0, .original_max_position_embeddings = 4});
}

TEST(Generation, OfAGptWithACacheIsThatOfTheWholeText) {
  constexpr auto full = ts::compile([](const auto& m, const auto& text) { return m(text); });
  constexpr auto step = ts::compile([](const auto& m, const auto& text, const ts::Stack<nn::KvCache<>>& caches,
                                       const ts::Scalar& position) { return m.cached(text, caches, position); });
  std::vector<std::int32_t> first;
  for (const nn::ShardingStrategy& strategy : transformers::strategies()) {
    const Gpt model = make_gpt(strategy);
    ts::Stack<nn::KvCache<>> caches = nn::kv_caches(2, 3, 9, 3, 4, strategy);
    const std::vector<std::int32_t> text = decode(
        strategy, [&](const auto& tokens) { return ts::to_host(full(model, tokens)); },
        [&](const auto& tokens, std::int64_t position) {
          auto [logits, next] = step(model, tokens, std::move(caches), ts::Scalar(position));
          caches = std::move(next);
          return ts::to_host(logits);
        });
    if (first.empty()) first = text;
    EXPECT_EQ(text, first) << strategy.mesh.text();
  }
}

/// All tokens in one program: the position is the index of the loop.
struct Generate {
  constexpr auto operator()(const auto& model, const auto& first, const ts::Stack<nn::KvCache<>>& empty,
                            const auto& text) const {
    const auto [token, caches, all] = ts::fori_loop(
        0, 6,
        [&](const auto& i, const auto& carry) {
          const auto& [last, seen, so_far] = carry;
          const auto [logits, next] = model.cached(last, seen, i);
          const auto drawn = ts::argmax<-1>(logits);  // [B, 1]
          return std::tuple(drawn, next, ts::dynamic_update_slice<1>(so_far, drawn, i));
        },
        std::tuple(first, empty, text));
    return all;
  }
};
TEST(Generation, InALoopOfOneProgram) {
  constexpr auto full = ts::compile([](const auto& m, const auto& text) { return ts::argmax<-1>(m(text)); });
  constexpr auto generate = ts::compile(Generate());
  for (const nn::ShardingStrategy& strategy : transformers::strategies()) {
    const Gpt model = make_gpt(strategy);
    const auto first = ts::shard<std::int32_t>({{4}, {0}, {7}}, strategy.mesh);
    const auto got = ts::to_host(
        generate(model, first, nn::kv_caches(2, 3, 7, 3, 4, strategy), ts::zeros<std::int32_t>({3, 6}, strategy.mesh)));
    // The model of the first token and the five generated after it gives the same tokens, and the last one.
    std::vector<std::int32_t> text;
    for (std::size_t b = 0; b < 3; ++b) {
      text.push_back(ts::to_host(first)[b]);
      text.insert(text.end(), got.begin() + static_cast<std::ptrdiff_t>(6 * b),
                  got.begin() + static_cast<std::ptrdiff_t>(6 * b + 5));
    }
    EXPECT_EQ(got, ts::to_host(full(model, ts::shard(text, {3, 6}, strategy.mesh)))) << strategy.mesh.text();
  }
}

/// Beam search in one program, which ends when all beams have: the `beams` continuations of the prompt with the largest
/// sums of log-probabilities that beam search finds, with `end` as the last token.
template <int Beams, int Steps, int End> struct BeamSearch {
  constexpr auto operator()(const auto& model, const ts::Stack<nn::KvCache<>>& empty, const auto& prompt) const {
    constexpr float never = -std::numeric_limits<float>::infinity();
    const auto [logits, primed] = model.cached(ts::broadcast_to(prompt, {Beams, -1}), empty, 0);
    const auto first = ts::log_softmax(ts::select<1>(logits, -1));
    const auto length = ts::extent<1>(prompt), classes = ts::extent<1>(first);
    const auto zeros = ts::zeros<std::int32_t>({Beams}, prompt);
    const auto begins = ts::select(ts::equal(ts::iota<0, std::int32_t>(zeros), 0), 0.0F, never);  // one beam at first
    const auto found = ts::while_loop(
        [](const auto& state) { return ts::logical_not(ts::all(std::get<2>(state))); },
        [&](const auto& state) {
          const auto& [text, sums, ended, step, next, caches] = state;
          const auto kept = ts::select(ts::equal(ts::iota<1, std::int32_t>(next), End), 0.0F, never);
          const auto all = ts::unsqueeze<1>(sums) + ts::select(ts::unsqueeze<1>(ended), kept, next);
          const auto [best, at] = ts::topk<0>(ts::merge_dims<0, 1>(all), Beams);
          const auto parents = ts::floor_divide(at, classes);
          const auto token = at - parents * classes;
          const auto [scores, own] =
              model.cached(ts::unsqueeze<1>(token), nn::reorder_caches(caches, parents), length + step);
          return std::tuple(ts::dynamic_update_index<1>(ts::index_select<0>(text, parents), token, step), best,
                            ts::equal(token, End), step + 1, ts::log_softmax(ts::select<1>(scores, 0)), own);
        },
        std::tuple(ts::full<std::int32_t>({Beams, Steps}, End, prompt), begins, ts::equal(zeros, 1), 0, first, primed),
        Steps);
    return std::tuple(std::get<0>(found), std::get<1>(found), std::get<3>(found));
  }
};
TEST(Generation, BeamsAreThoseOfWholeTexts) {
  constexpr int beams = 4, steps = 6, end = 3;
  constexpr std::size_t classes = 11;
  constexpr auto full =
      ts::compile([](const auto& m, const auto& text) { return ts::select<1>(ts::log_softmax(m(text)), -1); });
  constexpr auto search = ts::compile(BeamSearch<beams, steps, end>());
  for (const nn::ShardingStrategy& strategy : transformers::strategies()) {
    const Gpt model = make_gpt(strategy);
    const std::vector<std::int32_t> prompt{4, 9};
    using Beam = std::pair<double, std::vector<std::int32_t>>;  // the sum of its log-probabilities, its tokens
    std::vector<Beam> want{{0, {}}};
    for (int step = 0; step < steps; ++step) {
      std::vector<Beam> longer;
      for (const auto& [sum, text] : want) {
        if (!text.empty() && text.back() == end) {
          longer.emplace_back(sum, text);
          continue;
        }
        std::vector<std::int32_t> whole = prompt;
        whole.insert(whole.end(), text.begin(), text.end());
        const auto time = static_cast<std::int64_t>(whole.size());
        const std::vector<float> next = ts::to_host(full(model, ts::shard(whole, {1, time}, strategy.mesh)));
        for (std::size_t c = 0; c < classes; ++c) {
          longer.emplace_back(sum + static_cast<double>(next[c]), text);
          longer.back().second.push_back(static_cast<std::int32_t>(c));
        }
      }
      std::ranges::sort(longer, std::greater(), &Beam::first);
      longer.resize(std::min<std::size_t>(longer.size(), beams));
      want = longer;
    }
    const auto [text, sums, count] =
        search(model, nn::kv_caches(2, beams, 9, 3, 4, strategy), ts::shard(prompt, {1, 2}, strategy.mesh));
    const std::vector<std::int32_t> tokens = ts::to_host(text);
    const std::vector<float> got = ts::to_host(sums);
    std::size_t longest = 0;
    for (std::size_t b = 0; b < beams; ++b) {
      longest = std::max(longest, want[b].second.size());
      want[b].second.resize(steps, end);
      EXPECT_EQ(std::vector(tokens.begin() + static_cast<std::ptrdiff_t>(b * steps),
                            tokens.begin() + static_cast<std::ptrdiff_t>((b + 1) * steps)),
                want[b].second)
          << strategy.mesh.text() << " " << b;
      EXPECT_NEAR(got[b], want[b].first, 2e-4) << strategy.mesh.text() << " " << b;
    }
    EXPECT_EQ(ts::item(count), static_cast<int>(longest)) << "the loop ends with the last beam";
  }
}

TEST(Generation, OfADecoderWithACacheIsThatOfTheWholeText) {
  constexpr auto full = ts::compile(
      [](const auto& m, const auto& text, const auto& memory, const auto& mask) { return m(text, memory, mask); });
  constexpr auto remember =
      ts::compile([](const auto& m, const auto& memory) { return nn::keys_and_values(m.layers, memory); });
  constexpr auto step = ts::compile([](const auto& m, const auto& text, const ts::Stack<nn::KvCache<>>& caches,
                                       const ts::Scalar& position, const ts::Stack<nn::KvCache<>>& known,
                                       const auto& mask) { return m.cached(text, caches, position, known, mask); });
  std::vector<std::int32_t> first;
  for (const nn::ShardingStrategy& strategy : transformers::strategies()) {
    const Decoder model = make_decoder(strategy);
    const ts::PartitionSpec rows{strategy.batch.entries.size() > 0 ? strategy.batch.entries[0] : ts::SpecEntry{}};
    const auto memory = ts::normal<float>(ts::Key(7), {3, 5, 12}, strategy.mesh, rows);
    const auto mask =
        ts::shard<2>(std::array<bool, 15>{1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 0, 0, 0}, {3, 5}, strategy.mesh, rows);
    const ts::Stack<nn::KvCache<>> known = remember(model, memory);
    EXPECT_EQ(known.size(), 2);
    EXPECT_EQ(ts::shape(known[1].keys), (ts::Shape{3, 5, 3, 4}));
    ts::Stack<nn::KvCache<>> caches = nn::kv_caches(2, 3, 9, 3, 4, strategy);
    const std::vector<std::int32_t> text = decode(
        strategy, [&](const auto& tokens) { return ts::to_host(full(model, tokens, memory, mask)); },
        [&](const auto& tokens, std::int64_t position) {
          auto [logits, next] = step(model, tokens, std::move(caches), ts::Scalar(position), known, mask);
          caches = std::move(next);
          return ts::to_host(logits);
        });
    if (first.empty()) first = text;
    EXPECT_EQ(text, first) << strategy.mesh.text();
    // Split heads stay split: what is sent are the sums of the embedding, and of three products in each layer.
    if (strategy.mesh == ts::Mesh({{"model", 3}})) {
      const ts::Plan plan =
          step.plan(model, ts::zeros<std::int32_t>({3, 1}, strategy.mesh), caches, ts::Scalar(2), known, mask);
      EXPECT_EQ(plan.payload_bytes(ts::all_reduce), (1 + 2 * 3) * 3 * 12 * 4);
      EXPECT_EQ(plan.payload_bytes(ts::all_gather), 0);
    }
  }
}

}  // namespace
