#ifndef TESSERA_OPS_INDEXING_TAKE_ALONG_DIM_HPP
#define TESSERA_OPS_INDEXING_TAKE_ALONG_DIM_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/indexing/gather.hpp>

namespace tessera {

namespace detail {

/// gather of a tensor that is first repeated along the dims of static extent 1 along which the indices extend.
template <int Rank, int D> struct TakeAlongDimTag : GatherTag<Rank, D> {
  static constexpr const char* function = "take_along_dim";
  static constexpr Value emit(Value context, Value x, Value indices) {
    x = x.at(context.source);
    const int dim = x.shifted(D, Rank), rank = x.rank();
    Value like{};  // of these only the shape is used
    for (int d = 0; d < rank; ++d) {
      if (d == dim || !x.is_singleton(d) || indices.is_singleton(d)) continue;
      const Value counting = build::arange(build::extent(indices, d).at(x.source));
      const Value own = build::insert_singletons(counting, ((1u << rank) - 1) & ~(1u << d), rank);
      like = (like.module == nullptr ? build::iota(x, dim, DType::i32) : like) + own;
    }
    return build::gather(like.module == nullptr ? x : build::broadcast(x, like), dim, indices);
  }
};

}  // namespace detail

/// Elements along dim D at integer indices, of two tensors that are broadcast against each other along all other dims
/// (torch.take_along_dim, jnp.take_along_axis): `take_along_dim<1>(x, argsort<1>(x))` is sorted. x and indices have
/// equal ranks, and extents that are equal or statically 1. Gradient and errors: as gather. Communication: as gather;
/// a tensor that is repeated along a dim is repeated on each device.
template <int D, TensorArgument X, TensorArgument Indices>
constexpr auto take_along_dim(const X& x, const Indices& indices, Here at = Here::current()) {
  return call<detail::TakeAlongDimTag<X::rank, detail::checked_dim<D, X::rank>()>>(Source::from(at), x, indices);
}
/// Elements at indices into all elements of x in row-major order: a vector with as many elements as the indices, which
/// have any rank. Communication: as merge_dims of all dims, and gather.
template <TensorArgument X, TensorArgument Indices>
constexpr auto take_along_dim(const X& x, const Indices& indices, Here at = Here::current()) {
  static_assert(X::rank >= 1 && Indices::rank >= 1,
                "tessera: take_along_dim takes tensors with at least one dim; use ts::unsqueeze<0>(x)");
  return gather<0>(detail::flattened(x, at), detail::flattened(indices, at), at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
