#ifndef TESSERA_OPS_CONTRACTION_RAGGED_DOT_HPP
#define TESSERA_OPS_CONTRACTION_RAGGED_DOT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <type_traits>

#include <tessera/base/shape.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/contraction/ragged_rows.hpp>

namespace tessera {

namespace detail {

template <class Out, int RankX, int RankW, int RankSizes> struct RaggedDotTag {
  template <class X, class W, class Sizes> struct result {
    using type = product_element_t<Out, typename X::type>;
    static constexpr int rank = RankX;
    using Checks = decltype([] {
      static_assert(std::is_same_v<typename X::type, typename W::type>,
                    "tessera: the rows and the matrices of ragged_dot must have the same element type; use ts::cast");
      static_assert(
          std::is_same_v<typename Sizes::type, std::int32_t> || std::is_same_v<typename Sizes::type, std::int64_t>,
          "tessera: the group sizes of ragged_dot must be std::int32_t or std::int64_t; use "
          "ts::cast<std::int32_t>(group_sizes)");
      require_arithmetic<typename X::type>();
    });
  };
  static constexpr Value emit(Value context, Value x, Value w, Value sizes) {
    constexpr int leads = RankX - 2;
    const int first = x.leading(RankX);
    const DType given = x.dtype(), type = given == DType::f32 ? x.module->product_type : given;
    const unsigned shared = ((1u << leads) - 1) << first;  // leading dims that an operand lacks
    if (leads > 0 && RankW == 3) w = build::insert_singletons(w, shared, first + RankX + 1);
    if (leads > 0 && RankSizes == 1) sizes = build::insert_singletons(sizes, shared, first + RankX - 1);
    const int rows = first + leads;
    if (x.is_singleton(rows + 1) != w.is_singleton(rows + 1) || sizes.is_singleton(rows) != w.is_singleton(rows))
      context.refuse(errc::shape_mismatch,
                     "[ragged_dot] dims: a dim has static extent 1 in only one of two operands; use ts::broadcast_like "
                     "first");
    x = build::cast(x.at(context.source), type);
    const Value product = build::ragged_dot(x, build::cast(w, type), sizes, false);
    if constexpr (std::is_void_v<Out>)
      return build::cast(build::cast(product, type), given);
    else
      return build::cast(product, dtype_v<Out>);
  }
};

template <class Out, class X, class W, class Sizes>
constexpr auto ragged_dot_of(Source source, const X& x, const W& w, const Sizes& sizes) {
  constexpr bool rows = X::rank >= 2 && X::rank < max_rank, matrices = W::rank == 3 || W::rank == X::rank + 1,
                 groups = Sizes::rank == 1 || Sizes::rank == X::rank - 1;
  static_assert(rows, "tessera: the rows of ragged_dot are [..., m, k], of at most 7 dims");
  static_assert(
      matrices,
      "tessera: the matrices of ragged_dot are [groups, k, n], or have the leading dims of the rows in front");
  static_assert(groups,
                "tessera: the group sizes of ragged_dot are [groups], or have the leading dims of the rows in front");
  if constexpr (rows && matrices && groups)
    return call<RaggedDotTag<Out, X::rank, W::rank, Sizes::rank>>(source, x, w, sizes);
  else
    return x;
}

}  // namespace detail

/// A product in which each group of rows has its own matrix (jax.lax.ragged_dot, torch's grouped_mm): the first
/// group_sizes[0] rows of x are multiplied with w[0], the next group_sizes[1] rows with w[1], and so on. Rows beyond
/// the last group are 0. Only the rows of groups are computed.
///
///     const auto y = ts::ragged_dot(x, w, group_sizes);   // [m, k], [groups, k, n], i32 [groups] -> [m, n]
///     const auto z = ts::ragged_dot(xs, w, sizes);        // [b, m, k], [groups, k, n], [b, groups] -> [b, m, n]
///
/// With leading dims of x, each of their rows has groups of its own; w and group_sizes have these dims too, or share
/// one value among them. Sizes are used as they are when the program runs: a negative size is 0, and rows that sizes
/// claim beyond the m rows do not exist. Products of bf16 and f16 are summed in f32 and rounded once;
/// `ragged_dot<float>(x, w, sizes)` returns the f32 sums. It has gradients of every order with respect to x and w; f32
/// products are f32 whatever ts::default_matmul_precision says.
///
/// Errors: shape_mismatch where k, the number of groups or a leading dim differs. Communication: none for split rows,
/// leading dims or n; each device finds the groups of its own rows. Over a split k, and over split groups, of which
/// each device computes the rows of its own, the result is a partial value. Group sizes are gathered.
template <TensorArgument X, TensorArgument W, TensorArgument Sizes>
constexpr auto ragged_dot(const X& x, const W& w, const Sizes& group_sizes, Here at = Here::current()) {
  return detail::ragged_dot_of<void>(Source::from(at), x, w, group_sizes);
}
template <Element Out, TensorArgument X, TensorArgument W, TensorArgument Sizes>
constexpr auto ragged_dot(const X& x, const W& w, const Sizes& group_sizes, Here at = Here::current()) {
  return detail::ragged_dot_of<Out>(Source::from(at), x, w, group_sizes);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
