#ifndef TESSERA_OPS_INDEXING_GATHER_HPP
#define TESSERA_OPS_INDEXING_GATHER_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/data_movement/shape.hpp>

namespace tessera {

namespace detail {

template <int Rank, int D> struct GatherTag {
  static constexpr auto leading_dims = ops::LeadingDims::extended;
  template <class A, class Indices> struct result : A {
    using Checks = decltype([] {
      static_assert(
          std::is_same_v<typename Indices::type, std::int32_t> || std::is_same_v<typename Indices::type, std::int64_t>,
          "tessera: the indices of gather must be std::int32_t or std::int64_t; use ts::cast<std::int32_t>(indices)");
      static_assert(Indices::rank == A::rank, "tessera: the indices of gather must have the rank of the first operand");
    });
  };
  static constexpr Value emit(Value context, Value x, Value indices) {
    const int dim = x.shifted(D, Rank);
    if ((x.node().singletons & ~unsigned{indices.node().singletons} & ~(1u << dim)) != 0)
      context.refuse(errc::shape_mismatch,
                     "[gather] dims: a dim has static extent 1 in the operand, but not in the indices; use "
                     "ts::broadcast_like first");
    return build::gather(x.at(context.source), dim, indices);
  }
};

}  // namespace detail

/// Elements along dim D at integer indices (torch.gather): y[.., k, ..] = x[.., indices[.., k, ..], ..]. The result has
/// the shape of the indices, which have the rank of x and its extents along the other dims. Along a dim of static
/// extent 1 of the indices, all elements of x have the same index (jnp.take_along_axis):
/// `gather<1>(x, ts::unsqueeze<2>(rows))` of x [b, n, f] and rows [b, m] copies rows, [b, m, f]. The gradient adds the
/// cotangent at the indices. Errors: dim_range for an index outside of the dim, shape_mismatch where another dim
/// differs. Communication: D of x is made whole, as in sort; indices that are split along D stay split.
template <int D, TensorArgument X, TensorArgument Indices>
constexpr auto gather(const X& x, const Indices& indices, Here at = Here::current()) {
  return call<detail::GatherTag<X::rank, detail::checked_dim<D, X::rank>()>>(Source::from(at), x, indices);
}

/// With a dim as an argument it does not compile.
template <TensorArgument X, std::integral Dim, TensorArgument Indices>
constexpr X gather(const X& x, Dim, const Indices&) {
  return detail::refuse_dim_argument<Dim>(x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
