#ifndef TESSERA_OPS_INDEXING_ONE_HOT_HPP
#define TESSERA_OPS_INDEXING_ONE_HOT_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/embedding.hpp>

namespace tessera {

namespace detail {

template <int Rank, class T> struct OneHotTag {
  static constexpr const char* function = "one_hot";
  static_assert(Rank < max_rank, "tessera: a tensor has at most 8 dims");
  template <class Indices, class Count> struct result {
    using type = T;
    static constexpr int rank = Rank + 1;
    using Checks = decltype([] {
      static_assert(is_integer(dtype_v<typename Indices::type>), "tessera: one_hot takes an integer tensor");
    });
  };
  static constexpr Value emit(Value context, Value indices, Value count) {
    indices = indices.at(context.source);
    const int rank = indices.rank() + 1;
    const Value classes = build::arange(as_size(count).at(indices.source));
    const DType type = promote(indices.dtype(), DType::i32);
    const Value one = build::insert_singletons(build::cast(indices, type), 1u << (rank - 1), rank);
    return build::cast(build::equal(one, build::cast(classes, type)), dtype_v<T>);
  }
};

/// A lookup whose errors name index_select.
struct IndexSelectTag : EmbeddingTag {
  static constexpr const char* function = "index_select";
};

}  // namespace detail

/// 1 at the index and 0 elsewhere along a new last dim of `count` classes: indices [...] give [..., count], of element
/// type T, f32 as in JAX when none is named. An index outside of the classes gives only zeros, as in JAX. No gradient,
/// no communication.
///
///     const auto targets = ts::one_hot(labels, 10);
template <Element T = float, TensorArgument Indices, SizeOperand Count>
constexpr auto one_hot(const Indices& indices, const Count& count, Here at = Here::current()) {
  return call<detail::OneHotTag<Indices::rank, T>>(Source::from(at), indices, Dim(count));
}

/// The elements of x at indices along one dim, a vector of integers: `index_select<1>(x, indices)` of a matrix has the
/// columns at the indices, in their order. Its gradient adds to the elements that were taken. Errors: dim_range for an
/// index outside of the dim. Communication: as embedding; other dims stay split.
template <int D, TensorArgument X, TensorArgument Indices>
constexpr auto index_select(const X& x, const Indices& indices, Here at = Here::current()) {
  static_assert(Indices::rank == 1, "tessera: the indices of index_select must be a vector");
  const detail::FunctionCall named("index_select", x, indices);
  constexpr int dim = detail::checked_dim<D, X::rank>();
  if constexpr (dim == 0)
    return call<detail::IndexSelectTag>(Source::from(at), x, indices);
  else
    return movedim<0, dim>(call<detail::IndexSelectTag>(Source::from(at), movedim<dim, 0>(x, at), indices), at);
}

/// With a dim as an argument it does not compile.
template <TensorArgument X, std::integral Dim, TensorArgument Indices>
constexpr X index_select(const X& x, Dim, const Indices&) {
  return detail::refuse_dim_argument<Dim>(x);
}

/// The value where the mask holds, x elsewhere: select(mask, value, x). The value is a number or a tensor, broadcast
/// against x and promoted with it. The gradient of x is 0 where the mask holds. Errors and communication: as select.
template <TensorArgument X, TensorArgument Mask, Operand V>
constexpr auto masked_fill(const X& x, const Mask& mask, const V& value, Here at = Here::current()) {
  const detail::FunctionCall named("masked_fill", x, mask);
  return select(mask, value, x, at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
