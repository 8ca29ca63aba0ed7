#ifndef TESSERA_OPS_SPATIAL_INTERPOLATE_HPP
#define TESSERA_OPS_SPATIAL_INTERPOLATE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/embedding.hpp>

namespace tessera {

/// How ts::interpolate computes element i of a dim of extent m from a dim of extent n; s = (i + 1/2) n / m - 1/2, or
/// i (n - 1) / (m - 1) with align_corners. Indices outside of the dim are those of its ends.
enum class InterpolateMode : std::uint8_t {
  nearest,        ///< element floor(i n / m), as PyTorch's "nearest"
  nearest_exact,  ///< element floor((i + 1/2) n / m), as PyTorch's "nearest-exact" and JAX's "nearest"
  linear,         ///< between the two elements beside s: of two dims bilinear, of three trilinear
  cubic,          ///< of the four elements around s, with the cubic kernel of a = -3/4, as PyTorch's "bicubic"
};
struct Interpolate {
  InterpolateMode mode = InterpolateMode::linear;
  bool align_corners = false;  ///< the first and last elements stay in their positions: for linear and cubic
};

namespace detail {

template <int Rank, int D, Interpolate Options> struct InterpolateTag {
  static constexpr const char* function = "interpolate";
  static_assert(!Options.align_corners || Options.mode == InterpolateMode::linear ||
                    Options.mode == InterpolateMode::cubic,
                "tessera: align_corners of interpolate is for linear and cubic");
  template <class X, class Size> struct result : Typed<typename X::type, Rank> {
    using Checks = decltype([] {
      static_assert(is_floating_v<typename X::type> || Options.mode == InterpolateMode::nearest ||
                        Options.mode == InterpolateMode::nearest_exact,
                    "tessera: interpolate takes float, double, bf16 or f16 tensors; integers with the mode nearest");
    });
  };

  static constexpr Value emit(Value context, Value x, Value size) {
    x = x.at(context.source);
    const int dim = x.shifted(D, Rank);
    const Value n = build::cast(build::extent(x, dim), DType::i64), m = as_size(size);
    const auto whole = [&](std::int64_t v) { return x.integer(v, DType::i64); };
    const Value line = build::arange(m.at(x.source));
    const Value i = build::cast(line, DType::i64), rows = build::move_dim(x, dim, 0);
    const auto at = [&](Value index) {
      const Value inside = build::minimum(build::maximum(index, whole(0)), n - whole(1));
      return build::move_dim(EmbeddingTag::emit(context, rows, inside), 0, dim);
    };
    if constexpr (Options.mode == InterpolateMode::nearest) {
      return at(i * n / m);
    } else if constexpr (Options.mode == InterpolateMode::nearest_exact) {
      return at((i * whole(2) + whole(1)) * n / (m * whole(2)));
    } else {
      // s = above / below, in integers, so that its whole part is exact
      const Value last = build::maximum(m - whole(1), whole(1));
      const Value below = Options.align_corners ? last : m * whole(2);
      Value above = Options.align_corners ? i * (n - whole(1)) : (i * whole(2) + whole(1)) * n - m;
      if constexpr (Options.mode == InterpolateMode::linear) above = build::maximum(above, whole(0));
      // rounded down: above is at least -m
      const Value first = (above + below) / below - whole(1);
      const DType type = computed_as(x.dtype());
      const Value t = build::cast(above - first * below, type) / build::cast(below, type);
      const auto term = [&](std::int64_t offset, Value weight) {
        const int dims = x.rank() - dim;
        return build::cast(at(first + whole(offset)), type) * build::insert_singletons(weight, (1u << dims) - 2, dims);
      };
      if constexpr (Options.mode == InterpolateMode::linear)
        return build::cast(term(0, 1.0 - t) + term(1, t), x.dtype());
      else
        return build::cast(
            term(-1, far(t + t.number(1))) + term(0, near(t)) + term(1, near(1.0 - t)) + term(2, far(2.0 - t)),
            x.dtype());
    }
  }

 private:
  static constexpr double a = -0.75;
  /// The kernel of Keys at a distance t of at most 1, and between 1 and 2.
  static constexpr Value near(Value t) { return (t * t.number(a + 2) - a - 3) * t * t + t.number(1); }
  static constexpr Value far(Value t) { return ((t * t.number(a) - 5 * a) * t + t.number(8 * a)) * t - 4 * a; }
};

}  // namespace detail

/// Dim D of x with another extent, by interpolation (F.interpolate, jax.image.resize without antialias). An image
/// [batch, height, width, features] is scaled along both dims:
///
///     const auto tall = ts::interpolate<1>(x, 2 * ts::extent<1>(x));
///     const auto large = ts::interpolate<2>(tall, 2 * ts::extent<2>(x));
///     const auto sharp = ts::interpolate<1, ts::Interpolate{.mode = ts::InterpolateMode::cubic}>(x, 64);
/// Positions are exact in integers and weights are computed in f32, or f64 for doubles; bf16 and f16 are interpolated
/// in f32. The gradient adds each cotangent to the elements that it was made of. Errors: shape_mismatch for a negative
/// extent, dim_range where x has no element along the dim. Communication: along a split dim the result is partial, as
/// that of embedding; other dims stay split.
template <int D, Interpolate Options = Interpolate{}, TensorArgument X, SizeOperand Size>
constexpr auto interpolate(const X& x, const Size& size, Here at = Here::current()) {
  return call<detail::InterpolateTag<X::rank, detail::checked_dim<D, X::rank>(), Options>>(Source::from(at), x,
                                                                                           Dim(size));
}

/// All spatial dims with other extents: `interpolate(images, {64, 64})` of [batch, height, width, features].
template <Interpolate Options = Interpolate{}, TensorArgument X, std::size_t N>
constexpr auto interpolate(const X& x, const Dim (&extents)[N], Here at = Here::current()) {
  constexpr bool is_each_dim = X::rank == static_cast<int>(N) + 2 && N <= 3;
  static_assert(
      is_each_dim,
      "tessera: ts::interpolate(x, {height, width}) takes an extent for each spatial dim of [batch, spatial..., "
      "features]");
  if constexpr (!is_each_dim)
    return x;
  else if constexpr (N == 1)
    return interpolate<1, Options>(x, extents[0], at);
  else if constexpr (N == 2)
    return interpolate<2, Options>(interpolate<1, Options>(x, extents[0], at), extents[1], at);
  else
    return interpolate<3, Options>(interpolate<2, Options>(interpolate<1, Options>(x, extents[0], at), extents[1], at),
                                   extents[2], at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
