#ifndef TESSERA_OPS_SPATIAL_GRID_SAMPLE_HPP
#define TESSERA_OPS_SPATIAL_GRID_SAMPLE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/error.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/sort_rows.hpp>

namespace tessera {

enum class GridSampleMode : std::uint8_t { bilinear, nearest };
/// What is outside of an image: zeros, or the nearest element of its border.
enum class GridSamplePadding : std::uint8_t { zeros, border };
/// `align_corners`: whether -1 and 1 are the middles of the first and the last element, or the ends of the image.
struct GridSample {
  GridSampleMode mode = GridSampleMode::bilinear;
  GridSamplePadding padding = GridSamplePadding::zeros;
  bool align_corners = false;
};

namespace detail {

template <GridSample Options> struct GridSampleTag {
  static constexpr const char* function = "grid_sample";
  static constexpr auto leading_dims = ops::LeadingDims::batch;
  static constexpr int batched = 2;
  template <class X, class Grid> struct result : Typed<typename X::type, 4> {
    using Checks = decltype([] {
      static_assert(
          X::rank == 4 && Grid::rank == 4 && is_floating_v<typename X::type> && is_floating_v<typename Grid::type>,
          "tessera: grid_sample takes float, double, bf16 or f16 tensors: images [batch, height, width, features] "
          "and a grid [batch, rows, columns, 2]");
    });
  };

  static constexpr Value emit(Value context, Value x, Value grid) {
    if (x.rank() != 4 || grid.rank() != 4)
      fail(errc::unsupported,
           "[grid_sample] field of all layers of a Stack: call grid_sample inside the block of the Stack",
           context.source);
    const DType type = x.dtype();
    x = x.at(context.source);
    grid = build::cast(grid.at(context.source), computed_as(type));
    // The last dim of the grid is (x, y), as in PyTorch: a column and a row of the image.
    const Axis rows = axis(grid, 1, build::extent(x, 1)), columns = axis(grid, 0, build::extent(x, 2));
    const Value pixels = rearrange(x, 4, 3, RearrangeText("b h w c -> b (h w) c").factors, nullptr);
    const Value zero = x.number(0, DType::i64), one = x.number(1, DType::i64);
    const Value each_feature = build::minimum(build::iota(build::slice(pixels, 1, zero, one), 2, DType::i64), zero);
    const auto tap = [&](int row, int column) {
      const Tap y = tap_of(rows, row), z = tap_of(columns, column);
      const Value index =
          rearrange(y.index * columns.count + z.index, 4, 3, RearrangeText("b h w c -> b (h w) c").factors, nullptr);
      constexpr RearrangeText apart("b (h w) c -> b h w c");
      Value extents[max_rank]{};
      extents[apart.find("h")] = build::extent(grid, 1);
      extents[apart.find("w")] = build::extent(grid, 2);
      const Value found = rearrange(build::gather(pixels, 1, index + each_feature), 3, 4, apart.factors, extents);
      return build::cast(found, grid.dtype()) * (y.weight * z.weight);
    };
    if constexpr (Options.mode == GridSampleMode::nearest)
      return build::cast(tap(0, 0), type);
    else
      return build::cast(tap(0, 0) + tap(0, 1) + (tap(1, 0) + tap(1, 1)), type);
  }

 private:
  /// Positions along one dim of the image: its extent, the last element at or before each position, and the distance
  /// from there. All but the extent are [batch, rows, columns, 1].
  struct Axis {
    Value count, lower, distance;
  };
  static constexpr Axis axis(Value grid, int coordinate, Value extent) {
    const Value count = build::cast(extent, DType::i64), n = build::cast(extent, grid.dtype());
    const Value start = grid.number(coordinate, DType::i64), one = grid.number(1, DType::i64);
    const Value ahead = build::slice(grid, 3, start, one) + 1.0;  // from 0 to 2
    Value position = Options.align_corners ? ahead * ((n - 1.0) * 0.5) : (ahead * n - 1.0) * 0.5;
    if constexpr (Options.padding == GridSamplePadding::border)
      position = build::minimum(build::maximum(position, position.number(0)), n - 1.0);
    constexpr bool is_nearest = Options.mode == GridSampleMode::nearest;
    const Value lower = build::unary(is_nearest ? ops::op_v<ops::RoundOp> : ops::op_v<ops::FloorOp>, position);
    return {count, lower, position - lower};
  }

  struct Tap {
    Value index, weight;
  };
  /// The element with index `lower + offset`, and its weight: 0 outside of the image, where the index is 0.
  static constexpr Tap tap_of(const Axis& a, int offset) {
    const Value element = a.lower + static_cast<double>(offset), zero = element.number(0);
    const Value inside = build::logical_and(build::greater_equal(element, zero),
                                            build::less(element, build::cast(a.count, element.dtype())));
    const Value weight = Options.mode == GridSampleMode::nearest ? element.number(1)
                         : offset == 0                           ? 1.0 - a.distance
                                                                 : a.distance;
    return {build::cast(build::select(inside, element, zero), DType::i64), build::select(inside, weight, zero)};
  }
};

}  // namespace detail

/// Images [batch, height, width, features] at the positions of a grid [batch, rows, columns, 2] (F.grid_sample): (x, y)
/// from -1, the left or upper end of an image, to 1; the result is [batch, rows, columns, features]. Between elements
/// it is bilinear, with a gradient for the grid too, or the nearest, rounding halves to even:
///
///     const auto y = ts::grid_sample<ts::GridSample{.padding = ts::GridSamplePadding::border}>(images, grid);
/// PyTorch's modes "bicubic" and "reflection" have no counterpart. NaN in the grid gives 0. bf16 and f16 are sampled in
/// f32. Errors: shape_mismatch, dim_range for images without elements; unsupported for layers of a Stack.
/// Communication: split height or width is gathered; batch and features stay split.
template <GridSample Options = GridSample{}, TensorArgument X, TensorArgument Grid>
constexpr auto grid_sample(const X& x, const Grid& grid, Here at = Here::current()) {
  return call<detail::GridSampleTag<Options>>(Source::from(at), x, grid);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
