#ifndef TESSERA_OPS_DATA_MOVEMENT_COMBINATIONS_HPP
#define TESSERA_OPS_DATA_MOVEMENT_COMBINATIONS_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>
#include <utility>

#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/indexing/nonzero.hpp>

// Rows made of the elements of vectors.

namespace tessera {

namespace detail {

/// A vector along dim k of a grid of `Count` dims, and the indices along that dim.
template <int Count> constexpr Value along_grid(Value x, int k) {
  return build::insert_singletons(x, ((1u << Count) - 1) & ~(1u << k), Count);
}
template <int Count> constexpr Value grid_index(Value x, int k) {
  return along_grid<Count>(build::arange(build::extent(x, 0)), k);
}

struct CartesianTag {
  static constexpr const char* function = "cartesian_prod";
  static constexpr auto leading_dims = ops::LeadingDims::mapped;
  template <class X, class... Rest> struct result : Typed<typename X::type, 2> {
    using Checks = decltype([] {
      static_assert(X::rank == 1 && ((Rest::rank == 1) && ...), "tessera: cartesian_prod takes vectors");
      static_assert((std::is_same_v<typename Rest::type, typename X::type> && ...),
                    "tessera: the vectors of cartesian_prod must have the same element type; use ts::cast");
    });
  };
  static constexpr Value emit(Value context, auto... vectors) {
    constexpr int count = sizeof...(vectors);
    const Value all[] = {vectors.at(context.source)...};
    if (((vectors.rank() != 1) || ...))
      context.refuse(errc::unsupported, "[cartesian_prod] field of all layers of a Stack: use it inside the block");
    Value grid = grid_index<count>(all[0], 0);
    for (int k = 1; k < count; ++k) grid = grid + grid_index<count>(all[k], k);
    return [&]<int... K>(std::integer_sequence<int, K...>) {
      const auto column = [&](int k) {
        const Value rows =
            MergeTag<count, 0, count - 1>::emit(context, build::broadcast(along_grid<count>(all[k], k), grid));
        return build::insert_singletons(rows, 2u, 2);
      };
      return ConcatTag<2, 1>::emit(context, column(K)...);
    }(std::make_integer_sequence<int, count>{});
  }
};

template <int Count, bool Repeated> struct CombinationsTag {
  static constexpr const char* function = "combinations";
  static constexpr auto leading_dims = ops::LeadingDims::mapped;
  template <class X> struct result : Typed<typename X::type, 2> {
    using Checks = decltype([] {
      static_assert(X::rank == 1, "tessera: combinations takes a vector");
      static_assert(Count >= 1 && Count <= 4, "tessera: combinations are of 1 to 4 elements");
    });
  };
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    if (x.rank() != 1)
      context.refuse(errc::unsupported, "[combinations] field of all layers of a Stack: use it inside the block");
    const Value n = build::extent(x, 0), one = x.number(1, DType::i64);
    Value taken{}, size = one;
    for (int k = 0; k < Count; ++k) {
      // (n + i) (n + i - 1) ... / 1 2 ..., a whole number after each factor
      size = size * (Repeated ? n + n.number(k) : n - n.number(k)) / n.number(k + 1);
      if (k == 0) continue;
      const Value own =
          build::binary(Repeated ? Op::less_equal : Op::less, grid_index<Count>(x, k - 1), grid_index<Count>(x, k));
      taken = taken.module == nullptr ? own : build::logical_and(taken, own);
    }
    // Of fewer elements than a combination has, the product has a factor of 0 or below.
    size = build::maximum(size, size.number(0));
    return [&]<int... K>(std::integer_sequence<int, K...>) {
      const auto column = [&](int k) {
        if constexpr (Count == 1)
          return build::insert_singletons(x, 2u, 2);
        else
          return build::insert_singletons(
              MaskedSelectTag<Count>::emit(context, build::broadcast(along_grid<Count>(x, k), taken), taken, size,
                                           x.number(0)),
              2u, 2);
      };
      if constexpr (Count == 1)
        return column(0);
      else
        return ConcatTag<2, 1>::emit(context, column(K)...);
    }(std::make_integer_sequence<int, Count>{});
  }
};

}  // namespace detail

/// All rows with one element of each vector, the last changing first (torch.cartesian_prod): vectors of m and n give [m
/// n, 2]. The vectors have one element type. Communication: as merge_dims, by which the grid becomes rows.
///
///     const auto pairs = ts::cartesian_prod(x, y);   // [1, 2], [4, 5]: [1, 4], [1, 5], [2, 4], [2, 5]
template <TensorArgument A, TensorArgument B>
constexpr auto cartesian_prod(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::CartesianTag>(Source::from(at), a, b);
}
template <TensorArgument A, TensorArgument B, TensorArgument C>
constexpr auto cartesian_prod(const A& a, const B& b, const C& c, Here at = Here::current()) {
  return call<detail::CartesianTag>(Source::from(at), a, b, c);
}

/// The combinations of `Count` elements of a vector as rows, in the order of their indices (torch.combinations): of n
/// elements n (n - 1) / 2 pairs; with `Repeated` an element can be taken several times, n (n + 1) / 2 pairs. The
/// gradient goes to the elements. Cost: a mask of n^Count elements. Communication: as masked_select.
///
///     const auto pairs = ts::combinations(x);   // [1, 2, 3]: [1, 2], [1, 3], [2, 3]
template <int Count = 2, bool Repeated = false, TensorArgument X>
constexpr auto combinations(const X& x, Here at = Here::current()) {
  return call<detail::CombinationsTag<Count, Repeated>>(Source::from(at), x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
