#ifndef TRAIN_GPT_DRAW_HPP
#define TRAIN_GPT_DRAW_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

namespace train_gpt {

/// A token drawn with the probabilities softmax(logits / temperature), or the most probable token at temperature 0.
/// `chance` is a random number in [0, 1).
inline std::int32_t draw(std::span<const float> logits, double temperature, double chance) {
  const auto likeliest = std::max_element(logits.begin(), logits.end());
  if (temperature == 0) return static_cast<std::int32_t>(likeliest - logits.begin());
  std::vector<double> sums;
  double sum = 0;
  for (const float logit : logits) sums.push_back(sum += std::exp((double{logit} - double{*likeliest}) / temperature));
  const auto at = std::upper_bound(sums.begin(), sums.end(), chance * sum);
  return static_cast<std::int32_t>(std::min<std::ptrdiff_t>(at - sums.begin(), std::ssize(sums) - 1));
}

}  // namespace train_gpt

#endif
