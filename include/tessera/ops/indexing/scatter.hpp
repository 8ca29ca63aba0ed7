#ifndef TESSERA_OPS_INDEXING_SCATTER_HPP
#define TESSERA_OPS_INDEXING_SCATTER_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>

#include <tessera/base/monoid.hpp>
#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/indexing/scatter_rows.hpp>
#include <tessera/ops/indexing/scatter_rule.hpp>

namespace tessera {

namespace detail {

template <int Rank, int D, ScatterRule Rule> struct ScatterTag {
  static constexpr auto leading_dims = ops::LeadingDims::extended;
  template <class A, class Indices, class Source> struct result : A {
    using Checks = decltype([] {
      static_assert(
          std::is_same_v<typename Indices::type, std::int32_t> || std::is_same_v<typename Indices::type, std::int64_t>,
          "tessera: the indices of a scatter must be std::int32_t or std::int64_t; use "
          "ts::cast<std::int32_t>(indices)");
      static_assert(Indices::rank == A::rank && Source::rank == A::rank,
                    "tessera: the operands of a scatter must have equal ranks");
      static_assert(std::is_same_v<typename Source::type, typename A::type>,
                    "tessera: the first operand and the source of a scatter must have the same element type");
      static_assert(Rule.replaces || combines(Rule.reduction, dtype_v<typename A::type>),
                    "tessera: this reduction does not take elements of this type, such as sums of bools; use ts::cast");
    });
  };
  static constexpr Value emit(Value context, Value x, Value indices, Value source) {
    const int dim = x.shifted(D, Rank);
    const unsigned along = 1u << dim;
    if (((x.node().singletons ^ indices.node().singletons) & ~along) != 0 ||
        source.node().singletons != indices.node().singletons)
      context.refuse(
          errc::shape_mismatch,
          "[scatter] dims: a dim has static extent 1 in only some of the operands; use ts::broadcast_like first");
    return build::scatter(x.at(context.source), dim, indices, source.at(context.source), Rule);
  }
};

template <int D, ScatterRule Rule, class X, class Indices, class Elements>
constexpr auto scatter(const X& x, const Indices& indices, const Elements& source, Here at) {
  return call<ScatterTag<X::rank, checked_dim<D, X::rank>(), Rule>>(Source::from(at), x, indices, source);
}

}  // namespace detail

/// x with elements along dim D replaced (torch.scatter, x.at[...].set): y = x, then y[.., indices[.., k, ..], ..] =
/// source[.., k, ..] for each element of the source, in the order of k: of several elements at one index the last one
/// stays, on every sharding. Indices and source have one shape, and the extents of x along the other dims. Gradients:
/// of x the cotangent where no element was replaced; of source the cotangent at the index, 0 for an element that
/// another element replaced. Errors: dim_range for an index outside of the dim, shape_mismatch where another dim
/// differs. Communication: D of x, of the indices and of the source is made whole, as in sort.
template <int D, TensorArgument X, TensorArgument Indices, TensorArgument Elements>
constexpr auto scatter(const X& x, const Indices& indices, const Elements& source, Here at = Here::current()) {
  return detail::scatter<D, ScatterRule{.replaces = true}>(x, indices, source, at);
}

/// With one number in place of the source (scatter.value of PyTorch): `scatter<1>(zeros_like(x), indices, 1)`.
template <int D, TensorArgument X, TensorArgument Indices, NumberOperand V>
constexpr auto scatter(const X& x, const Indices& indices, const V& value, Here at = Here::current()) {
  const detail::FunctionCall named("scatter", x, indices);
  return scatter<D>(x, indices, full_like(cast<typename X::element>(indices, at), value, at), at);
}

/// Adds elements to a copy of x along dim D (torch.scatter_add): y = x, then y[.., indices[.., k, ..], ..] +=
/// source[.., k, ..] for each element of source. A histogram is `scatter_add<0>(zeros, bins, ones)`. Indices and source
/// have one shape, and the extents of x along the other dims. Floating elements are added in f64 in the order of the
/// indices and rounded once; integers wrap around. Gradients: of x the cotangent, of source the cotangent gathered at
/// the indices. Errors: as gather. Communication: D of x is made whole; a source that is split along D gives a partial
/// sum.
template <int D, TensorArgument X, TensorArgument Indices, TensorArgument Elements>
constexpr auto scatter_add(const X& x, const Indices& indices, const Elements& source, Here at = Here::current()) {
  return detail::scatter<D, ScatterRule{}>(x, indices, source, at);
}

/// Combines the elements of x and of the source that are at one index (torch.scatter_reduce, x.at[...].mul, .min,
/// .max): `scatter_reduce<0, ts::Reduction::max>(x, indices, source)`; product, max, min or sum. Without `IncludeSelf`,
/// elements of x at an index of the source do not count. Products of floating elements are computed in f64 and rounded
/// once. NaN is the extreme of any elements. Gradients: elements that equal the extreme share its cotangent equally, as
/// in PyTorch; those of a product are exact where elements are 0, second derivatives where none is. Errors: as scatter.
/// Communication: as scatter_add, with partial extremes; for a product as scatter.
template <int D, Reduction R, bool IncludeSelf = true, TensorArgument X, TensorArgument Indices,
          TensorArgument Elements>
constexpr auto scatter_reduce(const X& x, const Indices& indices, const Elements& source, Here at = Here::current()) {
  const detail::FunctionCall named("scatter_reduce", x, indices, source);
  static_assert(R == Reduction::sum || R == Reduction::product || R == Reduction::max || R == Reduction::min,
                "tessera: scatter_reduce takes ts::Reduction::sum, product, max or min");
  using T = typename X::element;
  if constexpr (IncludeSelf)
    return detail::scatter<D, ScatterRule{.reduction = R}>(x, indices, source, at);
  else
    return detail::scatter<D, ScatterRule{.reduction = R}>(
        scatter<D>(
            x, indices,
            full_like(source, monoid_of<R>::template identity<std::conditional_t<is_floating_v<T>, double, T>>(), at),
            at),
        indices, source, at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
