#ifndef TESSERA_OPS_SOURCE_EXTENT_ROWS_HPP
#define TESSERA_OPS_SOURCE_EXTENT_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/operation.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::build {

/// What same_extents compares, for its message.
enum class ExtentsOf : std::int8_t {
  examples,    ///< of the arguments of a vmap
  positions,   ///< of scores and targets
  classes,     ///< of scores and probabilities
  features,    ///< of x and a gain or bias
  models,      ///< of a parameter in two models, whose name is `inside` of the line
  cache,       ///< of a cache and new keys or values
  update,      ///< of a tensor and its new part
  room,        ///< of a dim and an update along it, which may be shorter: require_room
  halves,      ///< of a dim
  rows,        ///< of a matrix and of the right-hand sides
  tall,        ///< of the rows and columns of a matrix, with the right-hand sides: require_tall
  caches,      ///< of the layers of a Stack and of a Stack of caches
  layers,      ///< of a Stack: require_layer
  heads,       ///< of queries and keys, of which the latter divide the former: require_heads
  batch,       ///< of the state of a recurrent layer and its xs
  cells,       ///< of the state of a recurrent layer: require_cells
  inputs,      ///< of the features of a recurrent layer's xs and of its weight
  transposed,  ///< of the in-features of a transposed convolution
  queries,     ///< of a bias of attention and the queries: require_queries
  put,         ///< of a tensor and of rows that are put into it
  put_rows,    ///< of rows that are put into a tensor, and of their indices
  mask,        ///< of a tensor and a mask of its elements
  diagonal,    ///< of diagonals and of matrices: require_diagonal
};

constexpr Value extent(Value x, int dim) {
  if (x.is_singleton(dim)) return x.number(1, DType::i64);
  x = shape_source(x).at(x.source);
  return x.make({.op = Op::extent, .dtype = DType::i64, .labels = pack_dim(dim)}, {x.id});
}
/// Checks that `count` dims of x, from dim `of_x` on, have the extents of dims of y, from `of_y` on, unless one of them
/// has static extent 1: by a node that no value depends on.
constexpr void same_extents(Value x, int of_x, Value y, int of_y, int count, ExtentsOf kind) {
  x = shape_source(x).at(x.source), y = shape_source(y);
  Node made{.op = Op::extent, .dtype = DType::i64, .labels = pack_dim(of_x)};
  made.labels[1] = static_cast<std::int8_t>(of_y), made.labels[2] = static_cast<std::int8_t>(count);
  made.labels[3] = static_cast<std::int8_t>(kind);
  x.make(made, {x.id, y.id});
}
/// Checks that dim `dim` of x is at least as long as that of an update: by a node that no value depends on.
constexpr void require_room(Value x, int of_x, Value update, int of_update) {
  same_extents(x, of_x, update, of_update, 1, ExtentsOf::room);
}
/// Checks that matrices have at least as many rows as columns: by a node that no value depends on. Messages show the
/// right-hand sides too.
constexpr void require_tall(Value matrices, Value right, int rows_of_right) {
  same_extents(matrices, matrices.rank() - 2, right, rows_of_right, 1, ExtentsOf::tall);
}
/// Checks that the heads of keys divide those of queries: by a node that no value depends on.
constexpr void require_heads(Value q, int of_q, Value k, int of_k) {
  same_extents(q, of_q, k, of_k, 1, ExtentsOf::heads);
}
/// Checks that a bias of attention has as many queries as there are: by a node that no value depends on.
constexpr void require_queries(Value bias, int of_bias, Value q, int of_q) {
  same_extents(bias, of_bias, q, of_q, 1, ExtentsOf::queries);
}
/// Checks that dim `dim` of diagonals is as long as the diagonal of matrices, whose rows are dim `rows`: by a node that
/// no value depends on.
constexpr void require_diagonal(Value diagonals, int dim, Value matrices, int rows) {
  same_extents(diagonals, dim, matrices, rows, 1, ExtentsOf::diagonal);
}
/// Checks that dim `dim` of a state has one row for each of `count` cells: by a node that no value depends on.
constexpr void require_cells(Value state, int dim, std::int64_t count) {
  state = shape_source(state).at(state.source);
  Node made{.op = Op::extent, .dtype = DType::i64, .labels = pack_dim(dim)};
  made.value = static_cast<double>(count);
  made.labels[3] = static_cast<std::int8_t>(ExtentsOf::cells);
  state.make(made, {state.id});
}
/// Checks that dim `dim` of x, the layers of a Stack, has a layer of this number: by a node that no value depends on.
constexpr void require_layer(Value x, int dim, std::int64_t layer) {
  x = shape_source(x).at(x.source);
  Node made{.op = Op::extent, .dtype = DType::i64, .labels = pack_dim(dim)};
  made.value = static_cast<double>(layer);
  made.labels[3] = static_cast<std::int8_t>(ExtentsOf::layers);
  x.make(made, {x.id});
}

}  // namespace tessera::build

namespace tessera::ops {

constexpr BrokenRule check_extent(const NodeCheck& c) {
  if (const BrokenRule broken = check_size(c); !broken.empty()) return broken;
  const Node& node = c.node();
  if (node.arity < 1 || node.arity > 2) return "there are one or two operands";
  for (int i = 0; i < node.arity; ++i)
    if (node.labels[i] < 0 || node.labels[i] + (node.arity == 2 ? node.labels[2] : 1) > c.x(i).rank)
      return "the dim is a dim of the operand";
  return {};
}
/// Not constexpr on purpose: in a constant expression it ends the compilation.
[[noreturn]] inline void fail_extents_of_operands_differ(const HostContext& c) {
  const Node& node = c.node();
  const std::string_view given = node.source.function();
  const auto kind = static_cast<build::ExtentsOf>(node.labels[3]);
  const auto text = [&](int i) {
    return shape_text(c.graph.operand_node(c.id, i).dtype, c.shapes[c.graph.operand(c.id, i)]);
  };
  const auto extent = [&](int i) {
    return c.shapes[c.graph.operand(c.id, i)][static_cast<std::size_t>(node.labels[i])];
  };
  if (kind == build::ExtentsOf::models)
    fail(errc::structure, "[tree_vdot] shapes: both models must have the same shapes, but parameter ",
         node.source.inside == nullptr ? "" : node.source.inside, " is ", text(0), " in one and ", text(1),
         " in the other", node.source);
  if (kind == build::ExtentsOf::caches)
    fail(errc::structure, "[cached] number of caches: a Stack of ", extent(0), " layers takes ", extent(0),
         " caches, but is given ", extent(1), ": ", text(0), " x ", text(1), node.source);
  if (kind == build::ExtentsOf::halves)
    fail(errc::not_divisible, "[", given, "] the dim must have an even number of elements, not ", extent(0) + extent(1),
         node.source);
  if (kind == build::ExtentsOf::heads)
    fail(errc::not_divisible, "[repeat_heads] heads: ", extent(0), " heads of queries are not divisible by ", extent(1),
         " heads of keys: ", text(0), " x ", text(1), node.source);
  std::string_view function = given;
  std::string rule = "targets must have the dims of the scores except the last";
  if (kind == build::ExtentsOf::examples) {
    function = "vmap";
    rule = concat_text("arguments with ", extent(0), " and ", extent(1), " examples");
  } else if (kind == build::ExtentsOf::classes) {
    rule = "targets that are probabilities must have the shape of the scores";
  } else if (kind == build::ExtentsOf::features) {
    rule = "gain and bias must have as many elements as x has features";
  } else if (kind == build::ExtentsOf::cache) {
    function = "kv_cache";
    rule = "the cache must have the batch, heads and width of the new keys [batch, time, heads, width]";
  } else if (kind == build::ExtentsOf::update) {
    rule = "the update must have the shape of what it updates, except along the dim of the slice";
  } else if (kind == build::ExtentsOf::room) {
    rule = "the update is longer than the dim of the slice";
  } else if (kind == build::ExtentsOf::rows) {
    rule = "the right-hand sides must have as many rows as the matrix";
  } else if (kind == build::ExtentsOf::tall) {
    rule = "the matrix must have at least as many rows as columns";
  } else if (kind == build::ExtentsOf::batch) {
    rule = "the state [cells, batch, hidden] must have the batch of xs [time, batch, features]";
  } else if (kind == build::ExtentsOf::inputs) {
    rule = "xs must have the features of the weight [in, gates, hidden]";
  } else if (kind == build::ExtentsOf::queries) {
    rule = concat_text("a bias or mask of ", extent(0), " queries for ", extent(1), ": it is of [batch, heads, time, ",
                       "keys] of queries [batch, time, heads, width]");
  } else if (kind == build::ExtentsOf::put) {
    rule = "the source must have the dims of the tensor that it goes to, except the dim of the indices";
  } else if (kind == build::ExtentsOf::put_rows) {
    rule = "the source must have as many rows as there are indices";
  } else if (kind == build::ExtentsOf::mask) {
    rule = "the mask must have the shape of the tensor from which it selects";
  } else if (kind == build::ExtentsOf::diagonal) {
    rule = "the last dim must be as long as the diagonal of the matrices";
  } else if (kind == build::ExtentsOf::transposed) {
    if (function.empty()) function = "conv_transpose";
    rule = "in-features differ, of [batch, spatial..., in] and [taps..., in, out / groups]";
  }
  const bool names = kind != build::ExtentsOf::cache || given.empty() || given == function;
  fail(errc::shape_mismatch, "[", function.empty() ? "loss" : function, "] ", rule, ": ", text(0), " x ", text(1),
       names ? "" : " in ", names ? "" : given, node.source);
}
[[noreturn]] inline void fail_layer(std::int64_t layer, std::int64_t layers, const Source& source) {
  fail(errc::option, "[names] layer: a pattern selects layer ", layer, " of a Stack of ", layers,
       " layers, which are counted from 0", source);
}
[[noreturn]] inline void fail_cells(const HostContext& c) {
  const Node& node = c.node();
  fail(errc::shape_mismatch, "[", node.source.function(), "] the state must have a row for each of the ",
       static_cast<std::int64_t>(node.value), " cells, which are the layers times the directions: ",
       shape_text(c.graph.operand_node(c.id, 0).dtype, c.shapes[c.graph.operand(c.id, 0)]), node.source);
}
constexpr HostNumber number_of_extent(const HostContext& c) {
  const Node& node = c.node();
  const auto extent = [&](int i, int d) {
    return c.shapes[c.graph.operand(c.id, i)][static_cast<std::size_t>(node.labels[i] + d)];
  };
  const auto is = [&](build::ExtentsOf kind) { return node.labels[3] == static_cast<std::int8_t>(kind); };
  const bool is_room = node.arity == 2 && is(build::ExtentsOf::room);
  const bool is_tall = node.arity == 2 && is(build::ExtentsOf::tall);
  if (is_room && extent(0, 0) < extent(1, 0)) fail_extents_of_operands_differ(c);
  if (is_tall && extent(0, 0) < extent(0, 1)) fail_extents_of_operands_differ(c);
  const bool is_heads = node.arity == 2 && is(build::ExtentsOf::heads);
  const bool is_queries = node.arity == 2 && is(build::ExtentsOf::queries);
  if (is_queries && extent(0, 0) != extent(1, 0)) fail_extents_of_operands_differ(c);
  const bool is_diagonal = node.arity == 2 && is(build::ExtentsOf::diagonal);
  const auto diagonal = [&] { return extent(1, 0) < extent(1, 1) ? extent(1, 0) : extent(1, 1); };
  if (is_diagonal && extent(0, 0) != diagonal()) fail_extents_of_operands_differ(c);
  if (is_heads && extent(1, 0) > 0 && extent(0, 0) % extent(1, 0) != 0) fail_extents_of_operands_differ(c);
  if (node.arity == 2 && !is_room && !is_tall && !is_heads && !is_queries && !is_diagonal)
    for (int d = 0; d < node.labels[2]; ++d)
      if (!c.graph.operand_node(c.id, 0).is_singleton(node.labels[0] + d) &&
          !c.graph.operand_node(c.id, 1).is_singleton(node.labels[1] + d) && extent(0, d) != extent(1, d))
        fail_extents_of_operands_differ(c);
  if (node.arity == 1 && is(build::ExtentsOf::layers) && static_cast<double>(extent(0, 0)) <= node.value)
    fail_layer(static_cast<std::int64_t>(c.node().value), extent(0, 0), c.node().source);
  if (node.arity == 1 && is(build::ExtentsOf::cells) && static_cast<double>(extent(0, 0)) != node.value) fail_cells(c);
  return node.arity == 2 ? 0 : extent(0, 0);
}

// Of two operands it only checks their extents, see build::same_extents.
struct ExtentOp {
  static constexpr OpRow row{.name = "extent",
                             .kind = OpKind::source,
                             .arity = any_arity,
                             .shape = scalar_shape,
                             .sharding = no_factors,
                             .host = number_of_extent,
                             .host_source = HostSource::planned,
                             .flops = 0,
                             .shape_only = 3,
                             .recomputed = true};
  static constexpr BatchRule batch = [](const Batch& b) {
    if (b.arity() == 1) return Batch::same(build::extent(b.x(0), dim_of(b.node()) + 1));
    Node made = b.node();
    for (int i = 0; i < 2; ++i) made.labels[i] = static_cast<std::int8_t>(made.labels[i] + (b.differs(i) ? 1 : 0));
    return Batch::same(b.x(0).make(made, {b.x(0).id, b.x(1).id}));
  };
  static constexpr CheckRule check = check_extent;
  static constexpr AttributeText attributes = tessera::detail::dim_text;
};

using ExtentOperations = OperationList<ExtentOp>;

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
