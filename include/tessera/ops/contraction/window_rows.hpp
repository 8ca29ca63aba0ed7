#ifndef TESSERA_OPS_CONTRACTION_WINDOW_ROWS_HPP
#define TESSERA_OPS_CONTRACTION_WINDOW_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/ops/source_rows.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::build {

/// Windows of `size` elements of one dim, `dilation` apart, one every `stride` elements: dim d becomes two dims,
/// [windows, size]. `slices`: they are a slice with steps, of which errors then tell.
constexpr Value windows(Value x, int dim, Value size, Value stride, Value dilation, bool slices = false) {
  const Node& from = x.node();
  const unsigned before = (1u << dim) - 1, after = unsigned{from.singletons} >> (dim + 1);
  const unsigned singletons = (from.singletons & before) | (size.is_number(1) ? 2u << dim : 0u) | after << (dim + 2);
  Labels labels = pack_dim(dim);
  labels[1] = slices ? 1 : 0;
  return x.make({.op = Op::windows,
                 .dtype = from.dtype,
                 .rank = static_cast<std::uint8_t>(from.rank + 1),
                 .singletons = static_cast<std::uint8_t>(singletons),
                 .labels = labels},
                {x.id, size.id, stride.id, dilation.id});
}
/// The transpose of windows: adds them into a dim of `extent`, which is statically 1 if `is_singleton`.
constexpr Value fold(Value x, int dim, Value stride, Value dilation, Value extent, bool is_singleton) {
  const Node& from = x.node();
  const unsigned before = (1u << dim) - 1, after = unsigned{from.singletons} >> (dim + 2);
  const unsigned singletons = (from.singletons & before) | (is_singleton ? 1u << dim : 0u) | after << (dim + 1);
  return x.make({.op = Op::fold,
                 .dtype = from.dtype,
                 .rank = static_cast<std::uint8_t>(from.rank - 1),
                 .singletons = static_cast<std::uint8_t>(singletons),
                 .labels = pack_dim(dim)},
                {x.id, stride.id, dilation.id, extent.id});
}

}  // namespace tessera::build

namespace tessera::ops {

constexpr Shape windows_shape(const ShapeContext& c) {
  Shape shape = c.operand(0);
  const auto dim = static_cast<std::size_t>(dim_of(c.node()));
  const std::int64_t size = c.number(1), stride = c.number(2), dilation = c.number(3);
  if (c.node().labels[1] != 0 && stride < 1) fail_shapes(c, "the step is below 1", "slice");
  if (size < 1 || stride < 1 || dilation < 1) fail_shapes(c, "a window size, stride or dilation is below 1", "conv");
  std::int64_t last = 0;  // the offset of a window's last element
  if (!multiply_fits(size - 1, dilation, last) || shape[dim] <= last)
    fail_shapes(c, "the window is longer than the padded dim", "conv");
  shape[dim] = (shape[dim] - last - 1) / stride + 1;
  shape.insert(dim + 1, size);
  return shape;
}

/// Strides of the windows, which overlap, over the operand's memory.
constexpr Shape window_strides(const ShapeContext& c, const Shape& operand) {
  const auto dim = static_cast<std::size_t>(dim_of(c.node()));
  // If the product overflows, the dim has extent 1, so its stride is never used.
  const auto steps = [from = operand[dim]](std::int64_t by) {
    std::int64_t stride = 0;
    return multiply_fits(from, by, stride) ? stride : 0;
  };
  Shape strides = operand;
  strides.insert(dim + 1, steps(c.number(3)));
  strides[dim] = steps(c.number(2));
  return strides;
}
/// The operand's sharding below windows of this sharding; false where windows or their elements are split.
constexpr bool under_windows(const Node& node, const Sharding& windows, Sharding& operand) {
  const int dim = dim_of(node);
  if (!windows.dims[dim].empty() || !windows.dims[dim + 1].empty() || windows.unreduced != 0) return false;
  operand = replicated(windows.rank - 1);
  for (int d = 0; d < operand.rank; ++d) operand.dims[d] = windows.dims[d > dim ? d + 1 : d];
  return true;
}

/// Sharding of windows and fold: the dims of windows and the dim behind them stay whole, all others are shared. `runs`
/// has the two dims of windows, `line` the one dim.
constexpr void windows_factors(const Node& runs, const Node& line, int dim, DimFactors& of_runs, DimFactors& of_line,
                               FactorRule& rule) {
  for (int d = 0; d < line.rank; ++d) {
    const int other = d > dim ? d + 1 : d;
    if (!line.is_singleton(d)) {
      of_line.dims[d].push_back(
          static_cast<std::int8_t>(rule.add(d == dim ? FactorKind::replicate : FactorKind::pass)));
      if (d != dim) of_runs.dims[other] = of_line.dims[d];
    }
    for (int r = dim; d == dim && r < dim + 2; ++r)
      if (!runs.is_singleton(r)) of_runs.dims[r].push_back(static_cast<std::int8_t>(rule.add(FactorKind::replicate)));
  }
}

/// Operands after the first: size, stride and dilation. `runs` has the two dims of windows, `line` the one dim.
constexpr BrokenRule check_windows(const NodeCheck& c, const Node& runs, const Node& line) {
  const int dim = dim_of(c.node());
  if (dim < 0 || dim >= line.rank) return "the dim is a dim of the node";
  const unsigned before = (1u << dim) - 1, after = unsigned{line.singletons} >> (dim + 1);
  if (runs.rank != line.rank + 1 || runs.dtype != line.dtype || ((runs.singletons ^ line.singletons) & before) != 0 ||
      unsigned{runs.singletons} >> (dim + 2) != after)
    return "a dim becomes two dims, windows and their elements, or the reverse";
  return c.is_size(1) && c.is_size(2) && c.is_size(3) ? BrokenRule{} : "size, stride and dilation are sizes";
}

struct WindowsOp {
  static constexpr OpRow row{.name = "windows",
                             .unit = UnitKind::data_movement,
                             .arity = 4,
                             .linear = Linearity::first,
                             .shape = windows_shape,
                             .sharding =
                                 [](const GraphView& graph, int id, FactorRule& rule) {
                                   rule.operands.resize(4);
                                   windows_factors(graph[id], graph.operand_node(id, 0), dim_of(graph[id]), rule.result,
                                                   rule.operands[0], rule);
                                 },
                             .view = window_strides,
                             .under_view = under_windows,
                             .flops = 0};
  static constexpr GradientRule gradient = [](Gradient& r) {
    const Value x = r.x(0), g = build::uncast(r.full_g(), computed_as(x.dtype()));
    const int dim = dim_of(r.node());
    r.add(0, build::cast(build::fold(g, dim, r.x(2), r.x(3), build::extent(x, dim), x.is_singleton(dim)), x.dtype()));
  };
  static constexpr CheckRule check = [](const NodeCheck& c) { return check_windows(c, c.node(), c.x(0)); };
  static constexpr AttributeText attributes = tessera::detail::dim_text;
};

/// All windows have to end inside the dim to which they are added.
constexpr Shape fold_shape(const ShapeContext& c) {
  Shape shape = c.operand(0);
  const auto dim = static_cast<std::size_t>(dim_of(c.node()));
  const std::int64_t stride = c.number(1), dilation = c.number(2), extent = c.number(3);
  if (stride < 1 || dilation < 1) fail_shapes(c, "a stride or a dilation is below 1", "conv_transpose");
  std::int64_t last_window = 0, last_element = 0;
  if (volume(shape) > 0 &&
      (!multiply_fits(shape[dim] - 1, stride, last_window) ||
       !multiply_fits(shape[dim + 1] - 1, dilation, last_element) || last_window >= extent - last_element))
    fail_shapes(c, "the windows are longer than the dim of the result", "conv_transpose");
  shape.erase(dim + 1);
  shape[dim] = extent;
  return shape;
}

// Operands after the first: stride, dilation and extent.
struct FoldOp {
  static constexpr OpRow row{.name = "fold",
                             .unit = UnitKind::fold,
                             .arity = 4,
                             .linear = Linearity::first,
                             .shape = fold_shape,
                             .sharding = [](const GraphView& graph, int id, FactorRule& rule) {
                               rule.operands.resize(4);
                               windows_factors(graph.operand_node(id, 0), graph[id], dim_of(graph[id]),
                                               rule.operands[0], rule.result, rule);
                             }};
  static constexpr GradientRule gradient = [](Gradient& r) {
    const int dim = dim_of(r.node());
    r.add(0, build::windows(r.full_g(), dim, build::extent(r.x(0), dim + 1), r.x(1), r.x(2)));
  };
  static constexpr CheckRule check = [](const NodeCheck& c) { return check_windows(c, c.x(0), c.node()); };
  static constexpr AttributeText attributes = tessera::detail::dim_text;
};

using WindowOperations = OperationList<WindowsOp, FoldOp>;

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
