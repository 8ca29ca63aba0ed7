#ifndef TESSERA_OPS_ATTENTION_ATTENTION_FORM_HPP
#define TESSERA_OPS_ATTENTION_ATTENTION_FORM_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/graph/ir/node.hpp>

namespace tessera {

/// The result of an attention node. The gradients have the order of the operands whose cotangents they are.
enum class AttentionResult : std::int8_t { query_gradient, key_gradient, value_gradient, output, logarithms };

/// Attributes of the three attention nodes. Shapes: queries [batch, time, heads, width], keys [batch, keys, heads,
/// width], values [batch, keys, heads, value width]. The last operand, `scale`, is a host scalar. In a banded node two
/// host scalars of i64 are in front of it, `lower` and `upper`: query i attends to keys i + lower to i + upper. In a
/// biased node the last tensor is a bias, which is added to the scores, or a mask of bool, which is true for the keys
/// that a query attends to: [batch, heads, time, keys], with singleton dims where all have the same.
///
///   attention_lse   (q, k, scale)                      log of each row's sum of exponentials: [batch, heads, time]
///   attention       (q, k, v, lse, scale)              exp(scores - lse) v: [batch, time, heads, value width]
///   attention_grad  (q, k, v, out, lse, g, scale)      the cotangent of operand `of()`
///
/// Each node has one result. Nodes that share tiles of scores run in one unit: lse with the attention that reads it,
/// and the three gradients of one attention.
struct AttentionForm {
  bool causal = false;  ///< a query attends to keys up to its own position
  AttentionResult result = AttentionResult::output;
  bool banded = false;  ///< a query attends to the keys of a band around its position, given by operands
  bool biased = false;  ///< a bias or a mask of each pair of a query and a key is an operand

  constexpr bool is_gradient() const { return result <= AttentionResult::value_gradient; }
  /// The operand whose cotangent a gradient is.
  constexpr int of() const { return static_cast<int>(result); }
  /// Number of host scalars, which are the last operands: the band, if there is one, and the scale.
  constexpr int host_scalars() const { return banded ? 3 : 1; }
  constexpr int tensors() const { return bias() + (biased ? 1 : 0); }
  /// The operand of a biased node that is the bias or the mask.
  constexpr int bias() const {
    return result == AttentionResult::logarithms ? 2 : result == AttentionResult::output ? 4 : 6;
  }
  /// The operand of a banded node that is the lower bound; the upper one follows it.
  constexpr int lower() const { return tensors(); }

  static constexpr AttentionForm of_node(const Node& node) {
    return {node.labels[0] != 0, static_cast<AttentionResult>(node.labels[1]), node.labels[2] != 0,
            node.labels[3] != 0};
  }
  constexpr Labels pack() const {
    Labels labels{};
    labels[0] = causal ? 1 : 0;
    labels[1] = static_cast<std::int8_t>(result);
    labels[2] = banded ? 1 : 0;
    labels[3] = biased ? 1 : 0;
    return labels;
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
