#ifndef TESSERA_GRAPH_OP_HPP
#define TESSERA_GRAPH_OP_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

namespace tessera {

/// Every operation a node can be. What is known of one stands in its row (ops/), found through `row_of`.
enum class Op : std::uint8_t {
  // Sources.
  argument,   ///< a tensor leaf of the program's arguments
  dim,        ///< a ts::Dim leaf: a size known when the program is planned
  scalar,     ///< a ts::Scalar leaf: a number known when the program runs
  constant,   ///< a number
  extent,     ///< the extent of one dim of the operand, known when the program is planned
  axis_size,  ///< the size of a mesh axis, known when the program is planned
  arange,     ///< 0, 1, ... below the operand, a size
  iota,       ///< the index along one dim, shaped like the operand
  random,     ///< counter-based random numbers on the global index, shaped like the operand
  // Elementwise, one operand.
  neg,
  abs,
  exp,
  log,
  sqrt,
  rsqrt,
  tanh,
  sigmoid,
  relu,
  gelu,
  silu,
  sign,
  logical_not,
  cast,
  // Elementwise, two operands.
  add,
  sub,
  mul,
  div,
  pow,
  minimum,
  maximum,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  logical_and,
  logical_or,
  // Elementwise, three operands: a condition, the value where it holds, the value where it does not.
  select,
  broadcast,  ///< the first operand spread over the shape of the second
  // Reductions over a set of dims.
  sum,
  max,
  min,
  // The rest.
  einsum,     ///< a contraction of two operands over labels
  rearrange,  ///< the same elements under another split, order and merge of dims
  slice,      ///< a range of one dim
  pad,        ///< zeros before and after, along one dim, to the shape of the third operand, or to the extent that it is
  concat,     ///< operands joined along one dim
  permute,    ///< slices of one dim in other places; zeros where none goes
  windows,    ///< runs of elements along one dim, which becomes two: which run, and where in it
  fold,       ///< runs added back into one dim: the gradient of windows
  cumsum,     ///< along one dim, of each element the sum of those before it, with or without itself
  argsort,    ///< the indices that put one dim in order, the first so many of them
  take_along,      ///< elements along one dim at integer indices of the same rank
  put_along,       ///< elements added along one dim at such indices, shaped like the third operand: its gradient
  gather,          ///< rows of a table at integer indices: embedding lookup
  scatter,         ///< rows added into a table shaped like the third operand: the gradient of gather
  attention_lse,   ///< the logarithm of each row's sum of exponentials of scores
  attention,       ///< values weighted by the softmax of scores of queries and keys
  attention_grad,  ///< its cotangent of queries, keys or values
  constraint,      ///< the operand, laid out as a spec says
  alike,           ///< the first operand, laid out as the second is
  repeat,          ///< a body run once a layer, on carried values and stacked ones
  project,         ///< one output of an operand that has several
  count_
};

inline constexpr int op_count = static_cast<int>(Op::count_);

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
