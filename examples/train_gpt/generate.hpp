#ifndef TRAIN_GPT_GENERATE_HPP
#define TRAIN_GPT_GENERATE_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "data.hpp"
#include "draw.hpp"
#include "trainer.hpp"

namespace train_gpt {

/// Continues a text character by character. The model sees each generated character when it predicts the next one.
class Generator {
 public:
  Generator(const Trainer& model, Tokens prompt, int context, double temperature, ts::Key key)
      : model_(model), text_(std::move(prompt)), context_(static_cast<std::size_t>(context)), temperature_(temperature),
        key_(key) {}

  std::int32_t next() {
    // The window always has `context_` tokens, so there is only one plan. Attention is causal: padding after the text
    // does not change the logits at the last character of the text.
    const std::size_t seen = std::min(text_.size(), context_);
    Tokens window(text_.end() - static_cast<std::ptrdiff_t>(seen), text_.end());
    window.resize(context_, 0);
    const std::vector<float> logits = model_.logits(window);  // [1, T, V]
    const std::size_t classes = logits.size() / context_;
    const double chance = std::ldexp(static_cast<double>(ts::fold_in(key_, drawn_++).seed >> 11), -53);
    text_.push_back(draw(std::span(logits).subspan((seen - 1) * classes, classes), temperature_, chance));
    return text_.back();
  }

 private:
  const Trainer& model_;
  Tokens text_;
  std::size_t context_;
  double temperature_;
  ts::Key key_;
  std::uint64_t drawn_ = 0;
};

}  // namespace train_gpt

#endif
