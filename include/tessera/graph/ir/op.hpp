#ifndef TESSERA_GRAPH_IR_OP_HPP
#define TESSERA_GRAPH_IR_OP_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string_view>

namespace tessera {

/// The hash of an operation's name (FNV-1a).
constexpr std::uint32_t operation_id(std::string_view name) {
  std::uint32_t hash = 2166136261u;
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619u;
  return hash;
}

/// Which operation a node is: the hash of the operation's name, so that a new operation in ops/ needs no entry here.
/// Only operations that other code names have enumerators. Everything else about an operation is in its row, see
/// `row_of`.
enum class Op : std::uint32_t {
  // Sources.
  argument = operation_id("argument"),    ///< a tensor leaf of the program's arguments
  dim = operation_id("dim"),              ///< a ts::Dim leaf: an integer known when the program is planned
  scalar = operation_id("scalar"),        ///< a ts::Scalar leaf: a value known when the program runs
  constant = operation_id("constant"),    ///< a rank-0 constant
  extent = operation_id("extent"),        ///< the extent of one dim of the operand, known when the program is planned
  axis_size = operation_id("axis_size"),  ///< the size of a mesh axis, known when the program is planned
  arange = operation_id("arange"),        ///< 0, 1, ..., n - 1, where n is the operand
  iota = operation_id("iota"),            ///< the index along one dim, in the shape of the operand
  random = operation_id("random"),        ///< counter-based random values in the shape of the operand
  // Elementwise, one operand.
  neg = operation_id("neg"),
  abs = operation_id("abs"),
  exp = operation_id("exp"),
  log = operation_id("log"),
  sqrt = operation_id("sqrt"),
  rsqrt = operation_id("rsqrt"),
  tanh = operation_id("tanh"),
  sigmoid = operation_id("sigmoid"),
  relu = operation_id("relu"),
  gelu = operation_id("gelu"),
  silu = operation_id("silu"),
  sign = operation_id("sign"),
  logical_not = operation_id("not"),
  cast = operation_id("cast"),
  // Elementwise, two operands.
  add = operation_id("add"),
  sub = operation_id("sub"),
  mul = operation_id("mul"),
  div = operation_id("div"),
  pow = operation_id("pow"),
  minimum = operation_id("minimum"),
  maximum = operation_id("maximum"),
  equal = operation_id("equal"),
  not_equal = operation_id("not_equal"),
  less = operation_id("less"),
  less_equal = operation_id("less_equal"),
  greater = operation_id("greater"),
  greater_equal = operation_id("greater_equal"),
  logical_and = operation_id("and"),
  logical_or = operation_id("or"),
  // Elementwise, three operands: a condition, the value where it holds, the value where it does not.
  select = operation_id("select"),
  broadcast = operation_id("broadcast"),  ///< the first operand broadcast to the shape of the second
  // Reductions over a set of dims.
  sum = operation_id("sum"),
  max = operation_id("max"),
  min = operation_id("min"),
  // The rest.
  einsum = operation_id("einsum"),  ///< a contraction of two operands over labels
  /// reshape, transpose and unsqueeze in one: dims are split, permuted and merged
  rearrange = operation_id("rearrange"),
  slice = operation_id("slice"),  ///< a range of one dim
  /// zeros before and after, along one dim; operand 2 is a tensor of the padded extent, or that extent
  pad = operation_id("pad"),
  concat = operation_id("concat"),     ///< operands concatenated along one dim
  permute = operation_id("ppermute"),  ///< slices of one dim permuted; zeros where no slice goes
  patches = operation_id("patches"),   ///< padded windows of several dims: convolutions, pools, slices with steps
  fold_patches = operation_id("fold_patches"),  ///< adds padded windows back: the gradient of patches
  cumsum = operation_id("cumsum"),              ///< cumulative sum along one dim
  argsort = operation_id("argsort"),            ///< the indices that sort one dim, or the first of them (top_k)
  gather = operation_id("gather"),  ///< elements along one dim at integer indices of the same rank (torch.gather)
  scatter_add = operation_id(
      /// adds elements along one dim at indices; shaped like the third operand: the gradient of gather
      "scatter_add"),
  scatter = operation_id("scatter"),  ///< replaces or combines elements of the third operand along one dim at indices
  embedding = operation_id("embedding"),  ///< rows of a table at integer indices
  index_add =
      operation_id("index_add"),  ///< adds rows into a table shaped like the third operand: the gradient of embedding
  attention_lse = operation_id("attention_lse"),    ///< the logarithm of each row's sum of exponentials of scores
  attention = operation_id("attention"),            ///< values weighted by the softmax of scores of queries and keys
  attention_grad = operation_id("attention_grad"),  ///< the cotangent of queries, keys or values
  custom_call = operation_id("custom_call"),        ///< a function of the user's, see CustomFunction
  constraint = operation_id("constraint"),          ///< the operand, sharded as a spec says
  alike = operation_id("alike"),                    ///< the first operand, sharded as the second
  // The operand, unchanged. The first three are removed when a program is simplified.
  variable = operation_id("variable"),                ///< what a gradient differentiates with respect to
  name = operation_id("name"),                        ///< with a name for the policy of a checkpoint
  custom_gradient = operation_id("custom_gradient"),  ///< with a gradient that the user gave
  custom_result = operation_id("custom_result"),      ///< a further result of a function with such a gradient
  /// the first operand, never shared with it, and computed after the second: what is recomputed reads it
  barrier = operation_id("barrier"),
  /// runs its body once for each layer, on carried values and slices of stacked values
  repeat = operation_id("repeat"),
  project = operation_id("project"),  ///< one output of an operation with several
  // Collectives over the examples of a vmap, in the graph of one example.
  sum_examples = operation_id("sum_examples"),
  gather_examples = operation_id("gather_examples"),
  own_example = operation_id("own_example"),
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
