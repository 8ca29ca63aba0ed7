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

/// Windows of the dims first, first + 1, ...: each becomes two dims, [windows, size].
struct PatchDim {
  Value size, stride, dilation, before, after;  ///< rows of padding in front of the dim and behind it
};
/// `largest`: padding is -infinity instead of 0.
constexpr Value patches(Value x, int first, int count, const PatchDim* dims, bool largest = false) {
  Node made{.op = Op::patches,
            .dtype = x.dtype(),
            .rank = static_cast<std::uint8_t>(x.rank() + count),
            .labels = pack_dim(first)};
  made.labels[1] = static_cast<std::int8_t>(count);
  made.labels[2] = largest ? 1 : 0;
  std::int32_t ids[16]{x.id};
  unsigned singletons = 0;
  for (int d = 0; d < x.rank(); ++d) {
    const int own = d - first, shift = own < 0 ? 0 : own < count ? own : count;
    if ((own < 0 || own >= count) && x.is_singleton(d)) singletons |= 1u << (d + shift);
    if (own < 0 || own >= count) continue;
    const PatchDim& dim = dims[own];
    if (dim.size.is_number(1)) singletons |= 2u << (d + shift);
    const Value all[] = {dim.size, dim.stride, dim.dilation, dim.before, dim.after};
    for (int k = 0; k < 5; ++k) ids[1 + 5 * own + k] = all[k].id;
  }
  made.singletons = static_cast<std::uint8_t>(singletons);
  return x.make(made, ids, 1 + 5 * count);
}
/// The transpose of patches: adds windows into dims of these extents, which are statically 1 if `is_singleton`.
struct FoldDim {
  Value stride, dilation, before, extent;
  bool is_singleton = false;
};
/// `clips`: windows may end anywhere behind the dim; without it, at most `before` rows behind the dim.
constexpr Value fold_patches(Value x, int first, int count, const FoldDim* dims, bool clips = false) {
  Node made{.op = Op::fold_patches,
            .dtype = x.dtype(),
            .rank = static_cast<std::uint8_t>(x.rank() - count),
            .labels = pack_dim(first)};
  made.labels[1] = static_cast<std::int8_t>(count);
  made.labels[2] = clips ? 1 : 0;
  std::int32_t ids[16]{x.id};
  unsigned singletons = 0;
  for (int d = 0; d < x.rank() - count; ++d) {
    const int own = d - first;
    const bool windowed = own >= 0 && own < count;
    if (windowed ? dims[own].is_singleton : x.is_singleton(own < 0 ? d : d + count)) singletons |= 1u << d;
    if (!windowed) continue;
    const Value all[] = {dims[own].stride, dims[own].dilation, dims[own].before, dims[own].extent};
    for (int k = 0; k < 4; ++k) ids[1 + 4 * own + k] = all[k].id;
  }
  made.singletons = static_cast<std::uint8_t>(singletons);
  return x.make(made, ids, 1 + 4 * count);
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

/// How many dims patches and fold_patches have windows of.
constexpr int windowed_count(const Node& node) { return node.labels[1]; }

constexpr WindowedDims patches_windows(const ShapeContext& c) {
  WindowedDims dims;
  const int first = dim_of(c.node());
  for (int d = 0; d < windowed_count(c.node()); ++d) {
    const int at = 1 + 5 * d;
    WindowedDim own{first + d,
                    first + 2 * d,
                    c.operand(0)[static_cast<std::size_t>(first + d)],
                    0,
                    c.number(at),
                    c.number(at + 1),
                    c.number(at + 2),
                    c.number(at + 3)};
    if (own.size < 1 || own.stride < 1 || own.dilation < 1)
      fail_shapes(c, "a window size, stride or dilation is below 1", "conv");
    if (own.before < 0) fail_shapes(c, "negative padding", "conv");
    std::int64_t last = 0, padded = 0;  // the offset of a window's last element; the padded extent
    if (!add_fits(own.extent, own.before, padded) || !add_fits(padded, c.number(at + 4), padded)) fail_large(c);
    if (!multiply_fits(own.size - 1, own.dilation, last) || padded <= last)
      fail_shapes(c, "the window is longer than the padded dim", "conv");
    own.count = (padded - last - 1) / own.stride + 1;
    dims.push_back(own);
  }
  return dims;
}
constexpr Shape patches_shape(const ShapeContext& c) {
  Shape shape = c.operand(0);
  for (const WindowedDim& own : patches_windows(c)) {
    shape[static_cast<std::size_t>(own.runs)] = own.count;
    shape.insert(static_cast<std::size_t>(own.runs + 1), own.size);
  }
  return shape;
}
/// The extents of the rows that windows of these extents cover; the windowed dims get 0 rows where there is no window.
constexpr Shape covered_rows(const WindowedDims& dims, const Shape& runs) {
  Shape rows = runs;
  for (std::size_t k = dims.size(); k-- > 0;) {
    const auto at = static_cast<std::size_t>(dims[k].runs);
    rows.erase(at + 1);
    if (rows[at] > 0) rows[at] = (rows[at] - 1) * dims[k].stride + dims[k].span();
  }
  return rows;
}
/// Strides of windows over memory that has each covered row once, from the strides of the rows.
constexpr Shape overlapping_strides(const WindowedDims& dims, const Shape& rows) {
  const auto steps = [](std::int64_t from, std::int64_t by) {
    std::int64_t stride = 0;
    return multiply_fits(from, by, stride) ? stride : 0;  // on overflow the extent is 1, so the stride is never used
  };
  Shape strides = rows;
  for (const WindowedDim& own : dims) {
    const auto at = static_cast<std::size_t>(own.runs);
    strides.insert(at + 1, steps(strides[at], own.dilation));
    strides[at] = steps(strides[at], own.stride);
  }
  return strides;
}
/// Whether windows can be a view of their operand on each device: no row is padding, and no windowed dim is split.
constexpr bool in_place(const ShapeContext& c, const Sharding& operand) {
  for (const WindowedDim& own : patches_windows(c))
    if (own.before > 0 || (own.count - 1) * own.stride + own.span() > own.extent || !operand.dims[own.line].empty())
      return false;
  return true;
}

/// Sharding of patches and fold_patches: windows are split as the dim that they are of (an exchange of the rows that
/// cross borders), the elements of a window are whole, and other dims are shared.
constexpr void patches_factors(const Node& runs, const Node& line, int first, int count, DimFactors& of_runs,
                               DimFactors& of_line, FactorRule& rule) {
  const auto add = [&](FactorKind kind) { return static_cast<std::int8_t>(rule.add(kind)); };
  for (int d = 0; d < line.rank; ++d) {
    const int own = d - first, run = own < 0 ? d : own < count ? d + own : d + count;
    const bool windowed = own >= 0 && own < count;
    const bool both = !line.is_singleton(d) && !runs.is_singleton(run);
    const FactorKind kind = !windowed ? FactorKind::pass : both ? FactorKind::permutation : FactorKind::replicate;
    if (!line.is_singleton(d)) of_line.dims[d].push_back(add(kind));
    if (both)
      of_runs.dims[run] = of_line.dims[d];
    else if (!runs.is_singleton(run))
      of_runs.dims[run].push_back(add(kind));
    if (windowed && !runs.is_singleton(run + 1)) of_runs.dims[run + 1].push_back(add(FactorKind::replicate));
  }
}
constexpr BrokenRule check_patches(const NodeCheck& c, const Node& runs, const Node& line, int numbers) {
  const int first = dim_of(c.node()), count = windowed_count(c.node());
  if (count < 1 || count > 3 || first < 0 || first + count > line.rank || c.node().arity != 1 + numbers * count)
    return "the windowed dims are dims of the node";
  if (runs.rank != line.rank + count || runs.dtype != line.dtype) return "each windowed dim becomes two dims";
  for (int d = 0; d < line.rank; ++d)
    if ((d < first || d >= first + count) && line.is_singleton(d) != runs.is_singleton(d < first ? d : d + count))
      return "only the windowed dims change";
  for (int i = 1; i < c.node().arity; ++i)
    if (!c.is_size(i)) return "sizes, strides, dilations and paddings are sizes";
  return {};
}

// Operands after the first: size, stride, dilation, padding in front and behind, of each windowed dim.
struct PatchesOp {
  static constexpr OpRow row{
      .name = "patches",
      .unit = UnitKind::data_movement,
      .arity = any_arity,
      .linear = Linearity::first,
      .shape = patches_shape,
      .sharding =
          [](const GraphView& graph, int id, FactorRule& rule) {
            rule.operands.resize(graph[id].arity);
            patches_factors(graph[id], graph.operand_node(id, 0), dim_of(graph[id]), windowed_count(graph[id]),
                            rule.result, rule.operands[0], rule);
          },
      .view = [](const ShapeContext& c,
                 const Shape& strides) { return overlapping_strides(patches_windows(c), strides); },
      .windows = patches_windows,
      .flops = 0,
      .recomputed = true};
  static constexpr GradientRule gradient = [](Gradient& r) {
    const Value x = r.x(0), g = build::uncast(r.full_g(), computed_as(x.dtype()));
    const int first = dim_of(r.node()), count = windowed_count(r.node());
    build::FoldDim dims[3]{};
    for (int d = 0; d < count; ++d)
      dims[d] = {r.x(2 + 5 * d), r.x(3 + 5 * d), r.x(4 + 5 * d), build::extent(x, first + d),
                 x.is_singleton(first + d)};
    r.add(0, build::cast(build::fold_patches(g, first, count, dims, true), x.dtype()));
  };
  static constexpr CheckRule check = [](const NodeCheck& c) { return check_patches(c, c.node(), c.x(0), 5); };
  static constexpr AttributeText attributes = tessera::detail::dim_text;
};

constexpr WindowedDims fold_patches_windows(const ShapeContext& c) {
  WindowedDims dims;
  const int first = dim_of(c.node());
  for (int d = 0; d < windowed_count(c.node()); ++d) {
    const int at = 1 + 4 * d, runs = first + 2 * d;
    const WindowedDim own{first + d,
                          runs,
                          c.number(at + 3),
                          c.operand(0)[static_cast<std::size_t>(runs)],
                          c.operand(0)[static_cast<std::size_t>(runs + 1)],
                          c.number(at),
                          c.number(at + 1),
                          c.number(at + 2)};
    std::int64_t last = 0, reach = 0;  // the last window; the last row of windows
    if (own.stride < 1 || own.dilation < 1) fail_shapes(c, "a stride or a dilation is below 1", "conv_transpose");
    if (own.extent < 0 || own.before < 0)
      fail_shapes(c, "the padding is negative, or longer than the windows", "conv_transpose");
    if (!multiply_fits(own.count, own.stride, last) || !multiply_fits(own.size, own.dilation, reach) ||
        !add_fits(last, reach, reach))
      fail_large(c);
    // Padding of a transposed convolution is the same behind the dim as in front.
    if (c.node().labels[2] == 0 && own.count > 0 &&
        (own.count - 1) * own.stride + own.span() - own.before > own.extent + own.before)
      fail_shapes(c, "the windows are longer than the dim of the result", "conv_transpose");
    dims.push_back(own);
  }
  return dims;
}
constexpr Shape fold_patches_shape(const ShapeContext& c) {
  Shape shape = c.operand(0);
  const WindowedDims dims = fold_patches_windows(c);
  for (std::size_t k = dims.size(); k-- > 0;) {
    shape.erase(static_cast<std::size_t>(dims[k].runs + 1));
    shape[static_cast<std::size_t>(dims[k].runs)] = dims[k].extent;
  }
  return shape;
}

// Operands after the first: stride, dilation, padding in front and extent, of each windowed dim.
struct FoldPatchesOp {
  static constexpr OpRow row{.name = "fold_patches",
                             .unit = UnitKind::fold,
                             .arity = any_arity,
                             .linear = Linearity::first,
                             .shape = fold_patches_shape,
                             .sharding =
                                 [](const GraphView& graph, int id, FactorRule& rule) {
                                   rule.operands.resize(graph[id].arity);
                                   patches_factors(graph.operand_node(id, 0), graph[id], dim_of(graph[id]),
                                                   windowed_count(graph[id]), rule.operands[0], rule.result, rule);
                                 },
                             .windows = fold_patches_windows};
  static constexpr GradientRule gradient = [](Gradient& r) {
    const Value g = r.full_g(), x = r.x(0);
    const int first = dim_of(r.node()), count = windowed_count(r.node());
    build::PatchDim dims[3]{};
    for (int d = 0; d < count; ++d) {
      const int at = 1 + 4 * d;
      const Value size = build::extent(x, first + 2 * d + 1), one = g.number(1, DType::i64);
      // As many rows behind the dim as the last window needs; negative where windows end before the dim does.
      const Value reach = (build::extent(x, first + 2 * d) - one) * r.x(at) + (size - one) * r.x(at + 1) + one;
      dims[d] = {size, r.x(at), r.x(at + 1), r.x(at + 2), reach - r.x(at + 2) - r.x(at + 3)};
    }
    r.add(0, build::patches(g, first, count, dims));
  };
  static constexpr CheckRule check = [](const NodeCheck& c) { return check_patches(c, c.x(0), c.node(), 4); };
  static constexpr AttributeText attributes = tessera::detail::dim_text;
};

using WindowOperations = OperationList<WindowsOp, FoldOp, PatchesOp, FoldPatchesOp>;

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
