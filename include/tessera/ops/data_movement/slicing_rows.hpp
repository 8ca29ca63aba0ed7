#ifndef TESSERA_OPS_DATA_MOVEMENT_SLICING_ROWS_HPP
#define TESSERA_OPS_DATA_MOVEMENT_SLICING_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/integers/checked.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/ops/source/extent_rows.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::build {

constexpr Value slice(Value x, int dim, Value start, Value size, MadeBy by = MadeBy::operation) {
  Node made{.op = Op::slice,
            .dtype = x.dtype(),
            .rank = x.node().rank,
            .singletons = x.node().singletons,
            .labels = pack_dim(dim, by)};
  if (size.is_number(1)) made.singletons = static_cast<std::uint8_t>(made.singletons | 1u << dim);
  return x.make(made, {x.id, start.id, size.id});
}
constexpr Value pad(Value x, int dim, Value start, Value like) {
  return x.make({.op = Op::pad,
                 .dtype = x.dtype(),
                 .rank = like.node().rank,
                 .singletons = like.node().singletons,
                 .labels = pack_dim(dim)},
                {x.id, start.id, like.id});
}
/// Pads x with zeros along a dim: x begins at `start` of the padded `extent`.
constexpr Value pad_to(Value x, int dim, Value start, Value extent) {
  Node made{.op = Op::pad,
            .dtype = x.dtype(),
            .rank = x.node().rank,
            .singletons = x.node().singletons,
            .labels = pack_dim(dim)};
  made.singletons = static_cast<std::uint8_t>(made.singletons & ~(1u << dim));
  return x.make(made, {x.id, start.id, extent.id});
}

}  // namespace tessera::build

namespace tessera::ops {

[[noreturn]] inline void fail_slice(const ShapeContext& c) {
  const MadeBy by = maker_of(c.node());
  const int dim = dim_of(c.node());
  if (by == MadeBy::operation) fail_shapes(c, "start and size are outside the dim");
  const Shape& shape = c.operand(0);
  const std::int64_t extent = shape[static_cast<std::size_t>(dim)];
  if (by == MadeBy::pad)
    fail(errc::shape_mismatch, "[pad] ",
         c.number(2) < 0 ? "negative padding: " : "the dim is too short to be padded with its own elements: ",
         c.number(2), " elements at an end of dim ", dim, " of ", shape_text(c.node().dtype, shape), c.node().source);
  if (by == MadeBy::squeeze)
    fail(errc::shape_mismatch, "[squeeze] dim ", dim, " of ", shape_text(c.node().dtype, shape), " has extent ", extent,
         ", and only a dim of extent 1 can be removed", c.node().source);
  const std::int64_t index = c.number(1) < 0 ? c.number(1) - extent : c.number(1);  // one that counts from the end
  fail(errc::shape_mismatch, "[", name_of(by), "] index ", index, " is outside of dim ", dim, " of ",
       shape_text(c.node().dtype, shape), c.node().source);
}
constexpr Shape slice_shape(const ShapeContext& c) {
  Shape shape = c.operand(0);
  const auto dim = static_cast<std::size_t>(dim_of(c.node()));
  const std::int64_t start = c.number(1), size = c.number(2);
  if (start < 0 || size < 0 || start > shape[dim] || size > shape[dim] - start) fail_slice(c);
  shape[dim] = size;
  return shape;
}

/// The third operand is a tensor of the padded shape, or the padded extent.
constexpr Shape pad_shape(const ShapeContext& c) {
  const auto dim = static_cast<std::size_t>(dim_of(c.node()));
  Shape shape = c.operand(0);
  const std::int64_t extent = c.graph.operand_node(c.id, 2).rank == 0 ? c.number(2) : c.operand(2)[dim];
  if (c.number(1) < 0 || shape[dim] > extent || c.number(1) > extent - shape[dim]) {
    if (const std::string_view function = c.node().source.function(); function.ends_with("_scatter"))
      fail(errc::shape_mismatch, "[", function, "] the update leaves the dim: from element ", c.number(1), " on, dim ",
           dim, " of extent ", extent, " has no room for ", shape_text(c.node().dtype, shape), c.node().source);
    std::int64_t room = 0, after = 0;
    if (!subtract_fits(extent, shape[dim], room) || !subtract_fits(room, c.number(1), after))
      fail_shapes(c, "negative padding", {}, 1);
    fail_shapes(
        c, concat_text("negative padding, ", c.number(1), " before and ", after, " after the elements of dim ", dim),
        {}, 1);
  }
  shape[dim] = extent;
  return shape;
}

/// Sharding of an operation along one dim: that dim is a factor of kind `along`, others are as in elementwise
/// operations.
constexpr void along_dim_sharding(const GraphView& graph, int id, FactorRule& rule, FactorKind along) {
  const Node& node = graph[id];
  const int dim = dim_of(node);
  for (int d = 0; d < node.rank; ++d) {
    if (d == dim || !node.is_singleton(d)) {
      const auto f = static_cast<std::int8_t>(rule.add(d == dim ? along : FactorKind::pass));
      rule.result.dims[d].push_back(f);
    }
  }
  for (int i = 0; i < node.arity; ++i) {
    const Node& x = graph.operand_node(id, i);
    DimFactors& dims = rule.operands.emplace_back();
    if (x.rank == node.rank)
      for (int d = 0; d < x.rank; ++d)
        if (d == dim || !x.is_singleton(d)) dims.dims[d] = rule.result.dims[d];
  }
}
/// Sharding of an operation for which its dim has to be whole.
constexpr void along_dim_sharding(const GraphView& graph, int id, FactorRule& rule) {
  along_dim_sharding(graph, id, rule, FactorKind::replicate);
}
/// Sharding of an operation that reads its dim whole, and makes the part of it that a device has of the result.
constexpr void whole_operand_sharding(const GraphView& graph, int id, FactorRule& rule) {
  along_dim_sharding(graph, id, rule);
  InlineVector<std::int8_t, 4>& made = rule.result.dims[dim_of(graph[id])];
  made.clear();
  made.push_back(static_cast<std::int8_t>(rule.add(FactorKind::pass)));
}
/// Whether a slice takes a single row, so that it can be a partial value: the row on one device, zeros on all others.
constexpr bool takes_row(const GraphView& graph, int id) {
  const Node& node = graph[id];
  return node.op == Op::slice && is_floating(node.dtype) && !is_float8(node.dtype) && node.is_singleton(dim_of(node)) &&
         !graph.operand_node(id, 0).is_singleton(dim_of(node));
}
/// Sharding of slice, pad and concat: rows move across borders of shards (a halo exchange). Singleton dims can't be
/// split: a slice of one row gives a partial value, and of an operand with one row each device takes what its own part
/// of the result has of it.
constexpr void moved_dim_sharding(const GraphView& graph, int id, FactorRule& rule) {
  const Node& node = graph[id];
  const int dim = dim_of(node);
  const auto is_row = [&](int i) {
    const Node& x = graph.operand_node(id, i);
    return x.rank == node.rank && x.is_singleton(dim);
  };
  const bool takes = takes_row(graph, id);
  const bool moves = !node.is_singleton(dim) && (node.op != Op::slice || !is_row(0));
  along_dim_sharding(graph, id, rule,
                     takes   ? FactorKind::reduction
                     : moves ? (node.op == Op::pad && is_row(0) ? FactorKind::pass : FactorKind::permutation)
                             : FactorKind::replicate);
  if (takes) rule.result.dims[dim].clear();
  for (int i = 0; i < node.arity && moves; ++i)
    if (is_row(i)) rule.operands[static_cast<std::size_t>(i)].dims[dim].clear();
}

/// The function of a concat of tensors to which ts::stack has given a new dim, which its errors do not show.
inline constexpr const char* stack_function = "stack";
[[noreturn]] inline void fail_stack(const ShapeContext& c) {
  const auto dim = static_cast<std::size_t>(dim_of(c.node()));
  std::string shapes;
  for (int i = 0; i < c.node().arity; ++i) {
    Shape given;
    for (std::size_t d = 0; d < c.operand(i).size(); ++d)
      if (d != dim) given.push_back(c.operand(i)[d]);
    shapes += concat_text(i > 0 ? " x " : "", shape_text(c.node().dtype, given));
  }
  fail(errc::shape_mismatch, "[stack] tensors differ in shape: ", shapes, c.node().source);
}

constexpr Shape concat_shape(const ShapeContext& c) {
  const auto dim = static_cast<std::size_t>(dim_of(c.node()));
  Shape shape = c.operand(0);
  for (int i = 1; i < c.node().arity; ++i) {
    for (std::size_t d = 0; d < shape.size(); ++d)
      if (d != dim && shape[d] != c.operand(i)[d]) {
        if (c.node().source.function() == stack_function) fail_stack(c);
        fail_shapes(c, "operands differ in a dim other than the concatenated dim");
      }
    if (!add_fits(shape[dim], c.operand(i)[dim], shape[dim])) fail_large(c);
  }
  return shape;
}

constexpr std::int64_t slice_offset(const ShapeContext& c, int) { return -c.number(1); }
constexpr std::int64_t pad_offset(const ShapeContext& c, int) { return c.number(1); }
constexpr std::int64_t concat_offset(const ShapeContext& c, int i) {
  std::int64_t rows = 0;
  for (int before = 0; before < i; ++before) rows += c.operand(before)[static_cast<std::size_t>(dim_of(c.node()))];
  return rows;
}

constexpr void concat_gradient(Gradient& r) {
  const int dim = dim_of(r.node());
  const Value g = r.full_g();
  Value start = g.number(0, DType::i64);
  for (int i = 0; i < r.arity(); ++i) {
    const Value size = build::extent(r.x(i), dim);
    r.add(i, build::slice(g, dim, start, size));
    start = start + size;
  }
}

/// Operands of a permute after the first: one size, the shift, or pairs of sources and destinations.
constexpr Shape permute_shape(const ShapeContext& c) {
  const std::int64_t extent = c.operand(0)[static_cast<std::size_t>(dim_of(c.node()))];
  for (int i = 1; i < c.node().arity && c.node().arity != 2; ++i) {
    if (c.number(i) < 0 || c.number(i) >= extent)
      fail(errc::shape_mismatch, "[ppermute] route: index ", c.number(i),
           " is outside the axis, which has the indices 0 to ", extent - 1, c.node().source);
    for (int other = i + 2; other < c.node().arity; other += 2)
      if (c.number(i) == c.number(other))
        fail(errc::shape_mismatch, "[ppermute] routes: index ", c.number(i),
             i % 2 == 1 ? " sends twice" : " receives twice",
             ", but an index of the axis is the source of one route and the destination of one route at most",
             c.node().source);
  }
  return c.operand(0);
}
/// The slice that becomes slice `position` of the result, -1: none.
constexpr std::int64_t permuted_from(const ShapeContext& c, std::int64_t position, std::int64_t extent) {
  if (c.node().arity == 2) return (position - c.number(1) % extent + extent) % extent;
  for (int i = 1; i < c.node().arity; i += 2)
    if (c.number(i + 1) == position) return c.number(i);
  return -1;
}
constexpr void permute_gradient(Gradient& r) {
  const Graph& graph = r.module().graph(r.x(0).graph);
  const Value g = r.full_g();
  Growable<std::int32_t> operands{g.id};
  for (int i = 1; i < r.arity(); i += 2) {
    operands.push_back(r.arity() == 2 ? -1 : graph.operand(r.id(), i + 1));
    if (r.arity() > 2) operands.push_back(graph.operand(r.id(), i));
  }
  if (r.arity() == 2) operands[1] = (g.number(0, DType::i64) - r.x(1)).id;
  r.add(0, g.make(r.node(), operands.data(), static_cast<int>(operands.size())));
}

/// The dim that an operation works along is one of the rank, and the others are those of its operands.
constexpr BrokenRule check_along_dim(const NodeCheck& c, int operands) {
  if (!c.has_dim()) return "the dim is a dim of the node";
  const unsigned dim = 1u << dim_of(c.node());
  for (int i = 0; i < operands; ++i)
    if (c.x(i).rank != c.node().rank || c.x(i).dtype != c.node().dtype ||
        ((c.x(i).singletons ^ c.node().singletons) & ~dim) != 0)
      return "only the extent of one dim changes";
  return {};
}
constexpr BrokenRule check_slice(const NodeCheck& c) {
  if (const BrokenRule broken = check_along_dim(c, 1); !broken.empty()) return broken;
  return c.is_size(1) && c.is_size(2) ? BrokenRule{} : "start and size are i64 scalars";
}
constexpr BrokenRule check_pad(const NodeCheck& c) {
  if (const BrokenRule broken = check_along_dim(c, 1); !broken.empty()) return broken;
  if (!c.is_size(1)) return "the start is an i64 scalar";
  return c.is_size(2) || same_static_shape(c.node(), c.x(2)) ? BrokenRule{}
                                                             : "the result has the shape of the third operand";
}
constexpr BrokenRule check_concat(const NodeCheck& c) { return check_along_dim(c, c.node().arity); }
constexpr BrokenRule check_permute(const NodeCheck& c) {
  if (const BrokenRule broken = check_along_dim(c, 1); !broken.empty()) return broken;
  for (int i = 1; i < c.node().arity; ++i)
    if (!c.is_size(i)) return "device indices are i64 scalars";
  return c.node().singletons == c.x(0).singletons ? BrokenRule{} : "the result has the type of the operand";
}

struct SliceOp {
  static constexpr OpRow row{.name = "slice",
                             .unit = UnitKind::data_movement,
                             .arity = 3,
                             .linear = Linearity::first,
                             .shape = slice_shape,
                             .sharding = moved_dim_sharding,
                             .partial = takes_row,
                             .offset = slice_offset,
                             .view = [](const ShapeContext&, const Shape& strides) { return strides; },
                             .flops = 0,
                             .recomputed = true};
  static constexpr GradientRule gradient = [](Gradient& r) {
    r.add(0, build::pad(r.full_g(), dim_of(r.node()), r.x(1), r.x(0)));
  };
  static constexpr BatchRule batch = batch_along_dim;
  static constexpr CheckRule check = check_slice;
  static constexpr AttributeText attributes = tessera::detail::dim_text;
};

struct PadOp {
  static constexpr OpRow row{.name = "pad",
                             .unit = UnitKind::data_movement,
                             .arity = 3,
                             .linear = Linearity::first,
                             .shape = pad_shape,
                             .sharding = moved_dim_sharding,
                             .offset = pad_offset,
                             .flops = 0,
                             .shape_only = 1u << 2};
  static constexpr GradientRule gradient = [](Gradient& r) {
    r.add(0, build::slice(r.full_g(), dim_of(r.node()), r.x(1), build::extent(r.x(0), dim_of(r.node()))));
  };
  static constexpr BatchRule batch = batch_along_dim;
  static constexpr CheckRule check = check_pad;
  static constexpr AttributeText attributes = tessera::detail::dim_text;
};

struct ConcatOp {
  static constexpr OpRow row{.name = "concat",
                             .unit = UnitKind::data_movement,
                             .arity = any_arity,
                             .linear = Linearity::jointly,
                             .shape = concat_shape,
                             .sharding = moved_dim_sharding,
                             .offset = concat_offset,
                             .flops = 0};
  static constexpr GradientRule gradient = concat_gradient;
  static constexpr BatchRule batch = batch_along_dim;
  static constexpr CheckRule check = check_concat;
  static constexpr AttributeText attributes = tessera::detail::dim_text;
};

struct FlipOp {
  static constexpr OpRow row{.name = "flip",
                             .unit = UnitKind::data_movement,
                             .arity = 1,
                             .linear = Linearity::first,
                             .shape = [](const ShapeContext& c) { return c.operand(0); },
                             .sharding = whole_operand_sharding,
                             .flops = 0,
                             .reverses = true};
  static constexpr GradientRule gradient = [](Gradient& r) {
    const Value g = r.full_g();
    r.add(0, g.make(r.node(), {g.id}));
  };
  static constexpr BatchRule batch = batch_along_dim;
  static constexpr CheckRule check = [](const NodeCheck& c) {
    if (const BrokenRule broken = check_along_dim(c, 1); !broken.empty()) return broken;
    return same_type(c.node(), c.x(0)) ? BrokenRule{} : "the result has the type of the operand";
  };
  static constexpr AttributeText attributes = tessera::detail::dim_text;
};

struct PermuteOp {
  static constexpr OpRow row{.name = "ppermute",
                             .unit = UnitKind::data_movement,
                             .arity = any_arity,
                             .linear = Linearity::first,
                             .shape = permute_shape,
                             .sharding = like_sharding,
                             .permutation = permuted_from,
                             .flops = 0};
  static constexpr GradientRule gradient = permute_gradient;
  static constexpr BatchRule batch = batch_along_dim;
  static constexpr CheckRule check = check_permute;
  static constexpr AttributeText attributes = tessera::detail::dim_text;
};

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
