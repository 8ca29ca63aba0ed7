#ifndef TESSERA_OPS_SOURCE_ROWS_HPP
#define TESSERA_OPS_SOURCE_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/ops/elementwise/select.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/ops/random/random_draw.hpp>

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
constexpr Value arange(Value count, DType type) {
  return count.make({.op = Op::arange, .dtype = type, .rank = 1}, {count.id});
}
constexpr Value iota(Value like, int dim, DType type) {
  // Broadcast within a fused kernel, it would count along the dim of the kernel.
  if (like.is_singleton(dim)) return broadcast(like.number(0, type), like);
  like = shape_source(like).at(like.source);
  return like.make({.op = Op::iota,
                    .dtype = type,
                    .rank = like.node().rank,
                    .singletons = like.node().singletons,
                    .labels = pack_dim(dim)},
                   {like.id});
}
}  // namespace tessera::build

namespace tessera::ops {

/// Whether some node reads the elements of a node, and not only its shape.
constexpr bool reads_elements(const ShapeContext& c) {
  for (int i = 0; i < c.graph.output_count; ++i)
    if (c.graph.outputs[i] == c.id) return true;
  for (int id = c.id + 1; id < c.graph.size; ++id)
    for (int i = 0; i < c.graph[id].arity; ++i)
      if (c.graph.operand(id, i) == c.id && !has_operand(row_of(c.graph[id]).shape_only, i)) return true;
  return false;
}
/// check_countable for positions, of which it does not matter that they wrap around if they only give a shape.
constexpr void check_positions(const ShapeContext& c, std::int64_t extent) {
  if (c.node().dtype == DType::i32 && extent > 0x7fffffff && reads_elements(c)) check_countable(c, extent);
}

constexpr Shape argument_shape(const ShapeContext& c) { return c.arguments[c.node().index()]; }
constexpr Shape scalar_shape(const ShapeContext&) { return {}; }
constexpr Shape like_shape(const ShapeContext& c) { return c.operand(0); }
constexpr Shape alike_shape(const ShapeContext& c) {
  if (!(c.operand(0) == c.operand(1))) fail_shapes(c, "shapes differ", "shard_as");
  return c.operand(0);
}
constexpr void no_factors(const GraphView& graph, int id, FactorRule& rule) {
  rule.operands.resize(static_cast<std::size_t>(graph[id].arity));
}
constexpr void like_sharding(const GraphView& graph, int id, FactorRule& rule) {
  rule.operands.resize(static_cast<std::size_t>(graph[id].arity));
  for (int d = 0; d < graph[id].rank; ++d)
    if (!graph[id].is_singleton(d)) {
      rule.result.dims[d].push_back(static_cast<std::int8_t>(rule.add(FactorKind::pass)));
      rule.operands[0].dims[d] = rule.result.dims[d];
    }
}

constexpr HostNumber number_of_argument(const HostContext& c) {
  return c.arguments != nullptr ? c.arguments[c.node().index()] : HostNumber();
}
[[noreturn]] inline void fail_named_axis(std::string_view rule, const Name& axis, const Node& node, const Mesh& mesh) {
  fail(errc::spec_axis, "[shard_map] ", rule, ": '", axis.view(), "' is not an axis of ", mesh.text(), node.source);
}
[[noreturn]] inline void fail_axis_of_wrapper(const Name& axis, const Node& node, const Mesh& mesh) {
  fail(errc::mesh_axis, "[wrapper] axis: the parameters of a wrapped model are gathered over the axis '", axis.view(),
       "', but ", mesh.text(), " has no axis '", axis.view(), "'", node.source);
}
constexpr HostNumber size_of_axis(const HostContext& c) {
  if (c.mesh == nullptr) return c.numbers[c.id];
  const Name axis = axis_of(c.node());
  if (!c.mesh->has_axis(axis.view())) fail_named_axis("unknown axis", axis, c.node(), *c.mesh);
  return c.mesh->axis_size(c.mesh->axis_index(axis.view()));
}

constexpr BrokenRule check_argument(const NodeCheck& c) {
  return c.node().index() < 0 || (c.graph_index == 0 && c.node().index() >= c.program.argument_count)
             ? "the index of an argument is that of an argument of the program"
             : BrokenRule{};
}
constexpr BrokenRule check_number(const NodeCheck& c) { return c.node().rank == 0 ? BrokenRule{} : "the rank is 0"; }
constexpr BrokenRule check_size(const NodeCheck& c) {
  if (c.node().rank != 0) return "the rank is 0";
  return c.node().dtype == DType::i64 ? BrokenRule{} : "the element type of a size is i64";
}
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
  } else if (kind == build::ExtentsOf::transposed) {
    function = "conv_transpose";
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
  if (is_heads && extent(1, 0) > 0 && extent(0, 0) % extent(1, 0) != 0) fail_extents_of_operands_differ(c);
  if (node.arity == 2 && !is_room && !is_tall && !is_heads)
    for (int d = 0; d < node.labels[2]; ++d)
      if (!c.graph.operand_node(c.id, 0).is_singleton(node.labels[0] + d) &&
          !c.graph.operand_node(c.id, 1).is_singleton(node.labels[1] + d) && extent(0, d) != extent(1, d))
        fail_extents_of_operands_differ(c);
  if (node.arity == 1 && is(build::ExtentsOf::layers) && static_cast<double>(extent(0, 0)) <= node.value)
    fail_layer(static_cast<std::int64_t>(c.node().value), extent(0, 0), c.node().source);
  if (node.arity == 1 && is(build::ExtentsOf::cells) && static_cast<double>(extent(0, 0)) != node.value) fail_cells(c);
  return node.arity == 2 ? 0 : extent(0, 0);
}
constexpr BrokenRule check_arange(const NodeCheck& c) {
  if (!c.has_dim()) return "the dim is a dim of the node";
  return c.is_size(0) && c.node().rank == 1 && c.node().singletons == 0
             ? BrokenRule{}
             : "the operand is the extent of the result, a vector";
}
constexpr BrokenRule check_iota(const NodeCheck& c) {
  if (!c.has_dim()) return "the dim is a dim of the node";
  return same_static_shape(c.node(), c.x(0)) ? BrokenRule{} : "the result has the shape of the operand";
}
constexpr BrokenRule check_like_operand(const NodeCheck& c) {
  return same_type(c.node(), c.x(0)) ? BrokenRule{} : "the result has the type of the operand";
}
constexpr BrokenRule check_random(const NodeCheck& c) {
  if (c.x(1).rank != 0 || (c.x(1).dtype != DType::f64 && c.x(1).dtype != DType::i64))
    return "the key is an f64 or an i64 of rank 0";
  return same_static_shape(c.node(), c.x(0)) ? BrokenRule{} : "the result has the shape of the operand";
}
constexpr BrokenRule check_constraint(const NodeCheck& c) {
  return c.node().index() >= 0 ? check_like_operand(c) : "a constraint has a spec";
}
constexpr BrokenRule check_alike(const NodeCheck& c) {
  return same_static_shape(c.node(), c.x(1)) ? check_like_operand(c) : "operands have equal static shapes";
}

inline std::string index_text(const ProgramView&, const GraphView& graph, int id) {
  return std::to_string(graph[id].index()) + (is_in_layers(graph[id]) ? ", stacked" : "");
}

struct ArgumentOp {
  static constexpr OpRow row{
      .name = "argument", .kind = OpKind::source, .shape = argument_shape, .sharding = no_factors, .flops = 0};
  static constexpr CheckRule check = check_argument;
  static constexpr AttributeText attributes = index_text;
};

struct DimOp {
  static constexpr OpRow row{.name = "dim",
                             .kind = OpKind::source,
                             .shape = scalar_shape,
                             .sharding = no_factors,
                             .host = number_of_argument,
                             .host_source = HostSource::planned,
                             .flops = 0,
                             .recomputed = true};
  static constexpr CheckRule check = check_size;
  static constexpr AttributeText attributes = index_text;
};

struct ScalarOp {
  static constexpr OpRow row{.name = "scalar",
                             .kind = OpKind::source,
                             .shape = scalar_shape,
                             .sharding = no_factors,
                             .host = number_of_argument,
                             .host_source = HostSource::run,
                             .flops = 0,
                             .recomputed = true};
  static constexpr CheckRule check = check_number;
  static constexpr AttributeText attributes = index_text;
};

struct ConstantOp {
  static constexpr OpRow row{.name = "constant",
                             .kind = OpKind::source,
                             .shape = scalar_shape,
                             .sharding = no_factors,
                             .host = [](const HostContext& c) { return number_of(c.node()); },
                             .host_source = HostSource::planned,
                             .flops = 0,
                             .recomputed = true};
  static constexpr CheckRule check = check_number;
  static constexpr AttributeText attributes = [](const ProgramView&, const GraphView& graph, int id) {
    return tessera::detail::number_text(graph[id]);
  };
};

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

struct AxisSizeOp {
  static constexpr OpRow row{.name = "axis_size",
                             .kind = OpKind::source,
                             .shape = scalar_shape,
                             .sharding = no_factors,
                             .host = size_of_axis,
                             .host_source = HostSource::planned,
                             .flops = 0,
                             .recomputed = true};
  static constexpr CheckRule check = check_size;
  static constexpr AttributeText attributes = [](const ProgramView&, const GraphView& graph, int id) {
    return std::string(axis_of(graph[id]).view());
  };
};

struct ArangeOp {
  static constexpr OpRow row{.name = "arange",
                             .kind = OpKind::index,
                             .arity = 1,
                             .shape =
                                 [](const ShapeContext& c) {
                                   const std::int64_t count = c.number(0);
                                   if (count < 0 && maker_of(c.node()) == MadeBy::fori_loop)
                                     fail(errc::shape_mismatch, "[fori_loop] steps: `to` is less than `from`, by ",
                                          -count, c.node().source);
                                   if (count < 0)
                                     fail_shapes(c, concat_text("negative size ", count), name_of(maker_of(c.node())));
                                   check_positions(c, c.number(0));
                                   return Shape{c.number(0)};
                                 },
                             .sharding =
                                 [](const GraphView&, int, FactorRule& rule) {
                                   rule.operands.resize(1);
                                   rule.result.dims[0].push_back(static_cast<std::int8_t>(rule.add(FactorKind::pass)));
                                 },
                             .flops = 0,
                             .shape_only = 1,
                             .recomputed = true};
  static constexpr CheckRule check = check_arange;
  static constexpr AttributeText attributes = tessera::detail::dim_text;
};

struct IotaOp {
  static constexpr OpRow row{.name = "iota",
                             .kind = OpKind::index,
                             .arity = 1,
                             .shape =
                                 [](const ShapeContext& c) {
                                   check_positions(c, c.operand(0)[static_cast<std::size_t>(dim_of(c.node()))]);
                                   return c.operand(0);
                                 },
                             .sharding = like_sharding,
                             .flops = 0,
                             .shape_only = 1,
                             .recomputed = true};
  static constexpr BatchRule batch = batch_along_dim;
  static constexpr CheckRule check = check_iota;
  static constexpr AttributeText attributes = tessera::detail::dim_text;
};

// Operands: a tensor of which only the shape is used, and the key.
struct RandomOp {
  static constexpr OpRow row{.name = "random",
                             .unit = UnitKind::random,
                             .arity = 2,
                             .shape = like_shape,
                             .sharding = like_sharding,
                             .flops = 20,
                             .shape_only = 1};
  /// A number as key gives each example its own draws. A tensor gives all examples that have it the same draws.
  static constexpr BatchRule batch = [](const Batch& b) -> Batched {
    if (b.differs(1)) return {};
    if (b.one(1).dtype == DType::f64) return b.make(b.batched(), {b.full(0).id, b.x(1).id});
    const Batched made = b.make(b.node(), {b.shape_of_one(0).id, b.x(1).id});
    return {made.id, -1};
  };
  static constexpr CheckRule check = check_random;
  static constexpr AttributeText attributes = [](const ProgramView&, const GraphView& graph, int id) {
    const RandomDraw draw = RandomDraw::of(graph[id]);
    return (draw.distribution == Distribution::uniform ? "uniform, stream " : "normal, stream ") +
           std::to_string(draw.stream);
  };
};

struct ConstraintOp {
  static constexpr OpRow row{.name = "constraint",
                             .unit = UnitKind::constraint,
                             .arity = 1,
                             .linear = Linearity::first,
                             .shape = like_shape,
                             .sharding = like_sharding,
                             .flops = 0,
                             .constrains = true,
                             .recomputed = true};
  /// A number is on the host, and has no sharding.
  static constexpr int simplify(Graph& made, const Node&, const std::int32_t* operands) {
    return is_host_number(made, operands[0]) ? operands[0] : -1;
  }
  static constexpr GradientRule gradient = [](Gradient& r) {
    Node made = r.node();
    const Constraint own = Constraint::of(made);
    if (own.cotangent == CotangentSharding::free || is_host_number(r.g())) return r.add(0, r.g());
    if (own.cotangent == CotangentSharding::stored) {
      if (!r.g().node().is_projection()) return r.add(0, r.g());
      Constraint{own.spec, CotangentSharding::free, 0, own.about, true, own.of_parameter}.write(made);
      const Value sum = r.y().make(made, {r.full_g().id});
      Node alike{.op = Op::alike, .dtype = made.dtype, .rank = made.rank, .singletons = made.singletons};
      Alike{.exactly = true}.write(alike);
      return r.add(0, sum.make(alike, {sum.id, r.operand(0).id}));
    }
    if (own.cotangent == CotangentSharding::own_spec)  // the cotangent's own cotangent has the spec of the value
      Constraint{own.cotangent_spec, own.cotangent, static_cast<std::int8_t>(own.spec), own.about}.write(made);
    r.add(0, r.y().make(made, {r.full_g().id}));
  };
  /// The spec is for one example: the dim of examples may be split over the axes that it does not name.
  static constexpr BatchRule batch = [](const Batch& b) -> Batched {
    Constraint own = Constraint::of(b.node());
    Module& module = b.module();
    const auto behind_examples = [&](int spec) {
      PartitionSpec whole = module.specs[static_cast<std::size_t>(spec)];
      whole.entries.insert(0, SpecEntry(none));
      return module.add_spec(whole);
    };
    if (own.about < 0) {
      bool names_axes = false;
      for (const SpecEntry& entry : module.specs[static_cast<std::size_t>(own.spec)].entries)
        names_axes = names_axes || !entry.axes.empty();
      if (!names_axes) return Batch::all(b.full(0));
      if (own.spec > 126) return {};
      own.about = static_cast<std::int8_t>(own.spec);
    }
    own.spec = behind_examples(own.spec);
    if (own.cotangent == CotangentSharding::own_spec)
      own.cotangent_spec = static_cast<std::int8_t>(behind_examples(own.cotangent_spec));
    Node made = b.batched();
    own.write(made);
    return b.make(made, batched_operands(b, 1));
  };
  static constexpr CheckRule check = check_constraint;
  static constexpr AttributeText attributes = [](const ProgramView& program, const GraphView& graph, int id) {
    return program.specs[graph[id].index()].text();
  };
};

// The first operand with the sharding of the second, whose elements are not read.
struct AlikeOp {
  static constexpr OpRow row{.name = "alike",
                             .unit = UnitKind::constraint,
                             .arity = 2,
                             .linear = Linearity::first,
                             .shape = alike_shape,
                             .sharding =
                                 [](const GraphView& graph, int id, FactorRule& rule) {
                                   like_sharding(graph, id, rule);
                                   rule.operands[1] = rule.operands[0];
                                   rule.operands[0] = {};  // operand 0 is resharded to the sharding of the result
                                 },
                             .flops = 0,
                             .shape_only = 2,
                             .sharded_as = 1,
                             .recomputed = true};
  /// Numbers are on the host, and have no sharding.
  static constexpr int simplify(Graph& made, const Node&, const std::int32_t* operands) {
    return is_host_number(made, operands[0]) || is_host_number(made, operands[1]) ? operands[0] : -1;
  }
  static constexpr GradientRule gradient = [](Gradient& r) {
    const Alike own = Alike::of(r.node());
    if (!own.of_experts || is_host_number(r.g())) return r.add(0, r.g());
    Node made = r.node();
    Alike{.of_experts = true}.write(made);
    const Value g = r.full_g();
    r.add(0, r.y().make(made, {g.id, g.id}));
  };
  static constexpr BatchRule batch = [](const Batch& b) { return b.make(b.batched(), batched_operands(b, 3)); };
  static constexpr CheckRule check = check_alike;
};

using SourceOperations = OperationList<ArgumentOp, DimOp, ScalarOp, ConstantOp, ExtentOp, AxisSizeOp, ArangeOp, IotaOp,
                                       RandomOp, ConstraintOp, AlikeOp>;

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
