#ifndef TESSERA_OPS_SPATIAL_AFFINE_GRID_HPP
#define TESSERA_OPS_SPATIAL_AFFINE_GRID_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstdint>

#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/slicing_rows.hpp>
#include <tessera/ops/elementwise.hpp>

namespace tessera {

namespace detail {

template <bool AlignCorners> struct AffineGridTag {
  static constexpr const char* function = "affine_grid";
  template <class Theta, class... Sizes> struct result : Typed<typename Theta::type, 4> {
    using Checks = decltype([] {
      static_assert(Theta::rank == 3 && is_floating_v<typename Theta::type>,
                    "tessera: affine_grid takes float, double, bf16 or f16 matrices [batch, 2, 3]");
    });
  };
  static constexpr Value emit(Value context, Value theta, Value height, Value width) {
    const DType type = theta.dtype();
    theta = build::cast(theta.at(context.source), computed_as(type));
    const int first = theta.leading(3), rank = first + 4;
    // Column k of the matrices: [batch, 1, 1, 2]
    const auto column = [&](int k) {
      const Value own = build::slice(theta, first + 2, theta.number(k, DType::i64), theta.number(1, DType::i64));
      return build::insert_singletons(build::drop_singletons(own, 1u << (first + 2)), 6u << first, rank);
    };
    const auto positions = [&](Value extent, int dim) {
      const Value line = build::arange(extent.at(theta.source));
      const Value i =
          build::cast(build::insert_singletons(line, ((1u << rank) - 1) & ~(1u << dim), rank), theta.dtype());
      const Value n = build::cast(extent, theta.dtype());
      if constexpr (!AlignCorners) return (i * 2.0 + 1.0) / n - 1.0;
      // One position alone is in the middle.
      const Value last = build::maximum(n - 1.0, n.number(1));
      return i * 2.0 / last - build::minimum(n - 1.0, n.number(1));
    };
    return build::cast(column(0) * positions(as_size(width), first + 2) +
                           column(1) * positions(as_size(height), first + 1) + column(2),
                       type);
  }
};

}  // namespace detail

/// The positions that ts::grid_sample reads for an affine map of images (F.affine_grid): of matrices theta [batch, 2,
/// 3] and the extents {height, width} of the result a grid [batch, height, width, 2] of theta (x, y, 1), where x and y
/// are from -1 to 1. `affine_grid<true>`: -1 and 1 are the middles of the first and last pixels, as align_corners of
/// grid_sample, which is given the same. No communication for a split batch.
///
///     const auto turned = ts::grid_sample(images, ts::affine_grid(theta, {28, 28}));
template <bool AlignCorners = false, TensorArgument Theta>
constexpr auto affine_grid(const Theta& theta, const std::array<std::int64_t, 2>& extents, Here at = Here::current()) {
  return call<detail::AffineGridTag<AlignCorners>>(Source::from(at), theta, Dim(extents[0]), Dim(extents[1]));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
