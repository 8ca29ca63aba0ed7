#ifndef TESSERA_GRAPH_IR_ATTRIBUTES_NUMBER_RULE_HPP
#define TESSERA_GRAPH_IR_ATTRIBUTES_NUMBER_RULE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/promotion.hpp>
#include <tessera/graph/ir/node.hpp>

namespace tessera {

/// Which values a cast accepts from a host scalar whose value is known only when the program is planned or runs.
enum class NumberRule : std::int8_t {
  any,
  of_its_type,     ///< those of the integer type to which it casts
  rate,            ///< of a dropout: from 0 to 1
  probability,     ///< of a distribution: from 0 to 1
  positive,        ///< a parameter of a distribution
  quantile,        ///< from 0 to 1
  top_p,           ///< of top_p_logits: from 0 to 1
  min_p,           ///< of min_p_logits: from 0 to 1
  rotary_factor,   ///< at least 1
  rotary_context,  ///< positions of the original context, above 0
  rotary_range,    ///< high_freq_factor - low_freq_factor, above 0
};
constexpr NumberRule number_rule(const Node& cast) { return static_cast<NumberRule>(cast.labels[0]); }
constexpr Labels pack_rule(NumberRule rule) {
  Labels labels{};
  labels[0] = static_cast<std::int8_t>(rule);
  return labels;
}
/// Whether a cast rounds the parts of a partial value, which are summed after the cast, instead of their sum.
constexpr bool casts_parts(const Node& cast) { return cast.labels[1] != 0; }
constexpr Labels pack_cast_of_parts() {
  Labels labels{};
  labels[1] = 1;
  return labels;
}
constexpr bool keeps(NumberRule rule, DType type, double number) {
  if (rule == NumberRule::of_its_type) return holds(type, number);
  if (rule == NumberRule::rotary_factor) return number >= 1;
  if (rule == NumberRule::positive || rule == NumberRule::rotary_context || rule == NumberRule::rotary_range)
    return number > 0;
  return rule == NumberRule::any || (number >= 0 && number <= 1);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
