#ifndef TESSERA_OPS_CONTRACTION_WINDOW_ROWS_HPP
#define TESSERA_OPS_CONTRACTION_WINDOW_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/node_check.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/elementwise/select.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/ops/source/extent_rows.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::build {

/// Windows of the dims first, first + 1, ...: each becomes two dims, [windows, size].
struct PatchDim {
  Value size, stride, dilation, before, after;  ///< rows of padding before the dim and after it
};
/// `largest`: padding is -infinity instead of 0. `slices`: the windows are a slice with steps: both paddings are
/// negative, the numbers of rows that are left out.
constexpr Value patches(Value x, int first, int count, const PatchDim* dims, bool largest = false,
                        bool slices = false) {
  Node made{.op = Op::patches,
            .dtype = x.dtype(),
            .rank = static_cast<std::uint8_t>(x.rank() + count),
            .labels = pack_dim(first)};
  made.labels[1] = static_cast<std::int8_t>(count);
  made.labels[2] = largest ? 1 : 0;
  made.labels[3] = slices ? 1 : 0;
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
/// `clips`: windows may end anywhere after the dim; without it, at most `before` rows after the dim. `slices`: as for
/// patches; `before` is negative, the row of the first window, and all windows are inside the dim.
constexpr Value fold_patches(Value x, int first, int count, const FoldDim* dims, bool clips = false,
                             bool slices = false) {
  Node made{.op = Op::fold_patches,
            .dtype = x.dtype(),
            .rank = static_cast<std::uint8_t>(x.rank() - count),
            .labels = pack_dim(first)};
  made.labels[1] = static_cast<std::int8_t>(count);
  made.labels[2] = clips ? 1 : 0;
  made.labels[3] = slices ? 1 : 0;
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

/// How many dims patches and fold_patches have windows of.
constexpr int windowed_count(const Node& node) { return node.labels[1]; }
/// Whether the windows are a slice with steps, or are added where such a slice was.
constexpr bool of_slices(const Node& node) { return node.labels[3] != 0; }

/// Not constexpr on purpose: in a constant expression it ends the compilation.
[[noreturn]] inline void fail_windows(const ShapeContext& c, const char* why, const WindowedDim& own,
                                      std::int64_t behind) {
  const std::string_view given = c.node().source.function();
  fail(errc::shape_mismatch, "[", given.empty() ? "conv" : given, "] ", why, ": windows of ", own.size, ", stride ",
       own.stride, ", dilation ", own.dilation, ", along dim ", own.line, " of ",
       shape_text(shown_dtype(c, 0), c.operand(0)), " with padding of ", own.before, " and ", behind, c.node().source);
}

/// Throws shape_mismatch, for windows that are added.
[[noreturn]] inline void fail_folded(const ShapeContext& c, const char* why) {
  const std::string_view given = c.node().source.function();
  fail_shapes(c, why, given.empty() ? "conv_transpose" : given);
}

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
    const bool slices = of_slices(c.node());
    if (slices && own.stride < 1) fail_shapes(c, "the step is below 1", "slice");
    if (own.size < 1 || own.stride < 1 || own.dilation < 1)
      fail_windows(c, "a window size, stride or dilation is below 1", own, c.number(at + 4));
    if (!slices && own.before < 0) fail_windows(c, "negative padding", own, c.number(at + 4));
    std::int64_t last = 0, padded = 0;  // the offset of a window's last element; the padded extent
    if (!add_fits(own.extent, own.before, padded) || !add_fits(padded, c.number(at + 4), padded)) fail_large(c);
    if (slices) {
      const bool empty = padded == 1 - own.stride;  // a slice of size 0
      if (own.before > 0 || (empty ? -own.before > own.extent : c.number(at + 4) > 0 || padded < 1))
        fail_shapes(c, "start and size are outside the dim", "slice");
      if (empty) {
        dims.push_back(own);
        continue;
      }
    }
    if (!multiply_fits(own.size - 1, own.dilation, last) || padded <= last)
      fail_windows(c, "a window is longer than the padded dim", own, c.number(at + 4));
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
/// Whether each window is one row. Such windows do not overlap, so a step stores them without the rows between them.
constexpr bool of_single_rows(const WindowedDims& dims) {
  for (const WindowedDim& own : dims)
    if (own.size != 1) return false;
  return true;
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
    if (own.before > 0 || (own.count - 1) * own.stride + own.span() - own.before > own.extent ||
        !operand.dims[own.line].empty())
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

// Operands after the first: size, stride, dilation, padding before and after, of each windowed dim.
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
    r.add(0, build::cast(build::fold_patches(g, first, count, dims, true, of_slices(r.node())), x.dtype()));
  };
  static constexpr BatchRule batch = batch_along_dim;
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
    if (own.stride < 1 || own.dilation < 1) fail_folded(c, "a stride or a dilation is below 1");
    const bool slices = of_slices(c.node());
    if (own.extent < 0 || (own.before < 0 && !slices))
      fail_folded(c, "the padding is negative, or longer than the windows");
    if (!multiply_fits(own.count, own.stride, last) || !multiply_fits(own.size, own.dilation, reach) ||
        !add_fits(last, reach, reach))
      fail_large(c);
    const std::int64_t run = own.count > 0 ? (own.count - 1) * own.stride + own.span() : 0;
    std::int64_t end = 0;
    if (slices && (own.before > 0 || !add_fits(run, -own.before, end) || end > own.extent))
      fail_shapes(c, "the update leaves the dim", "slice_scatter");
    // Padding of a transposed convolution is the same before and after the dim.
    if (c.node().labels[2] == 0 && !slices && own.count > 0 &&
        (own.count - 1) * own.stride + own.span() - own.before > own.extent + own.before)
      fail_folded(c, "the windows are longer than the dim of the result");
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

// Operands after the first: stride, dilation, padding before and extent, of each windowed dim.
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
      // As many rows after the dim as the last window needs; negative where windows end before the dim does.
      const Value reach = (build::extent(x, first + 2 * d) - one) * r.x(at) + (size - one) * r.x(at + 1) + one;
      dims[d] = {size, r.x(at), r.x(at + 1), r.x(at + 2), reach - r.x(at + 2) - r.x(at + 3)};
    }
    r.add(0, build::patches(g, first, count, dims, false, of_slices(r.node())));
  };
  static constexpr BatchRule batch = batch_along_dim;
  static constexpr CheckRule check = [](const NodeCheck& c) { return check_patches(c, c.x(0), c.node(), 4); };
  static constexpr AttributeText attributes = tessera::detail::dim_text;
};

using WindowOperations = OperationList<PatchesOp, FoldPatchesOp>;

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
