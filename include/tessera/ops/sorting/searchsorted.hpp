#ifndef TESSERA_OPS_SORTING_SEARCHSORTED_HPP
#define TESSERA_OPS_SORTING_SEARCHSORTED_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/reduce.hpp>

namespace tessera {

/// Where an element that equals elements of the sorted vector would be inserted: before them, or after them.
enum class Side : std::uint8_t { left, right };

namespace detail {

template <Side Where> struct SearchSortedTag {
  static constexpr auto leading_dims = ops::LeadingDims::mapped;
  template <class Sorted, class X> struct result : Typed<std::int32_t, X::rank> {
    using Checks = decltype([] {
      static_assert(Sorted::rank == 1, "tessera: searchsorted searches in a vector");
      static_assert(std::is_same_v<typename Sorted::type, typename X::type>,
                    "tessera: searchsorted compares elements of one type; convert one operand with ts::cast");
      static_assert(X::rank < max_rank, "tessera: searchsorted takes at most 7 dims");
    });
  };
  static constexpr Value emit(Value context, Value sorted, Value x) {
    sorted = sorted.at(context.source);
    const int rank = x.rank() + 1;
    x = build::insert_singletons(x.at(context.source), 1u << (rank - 1), rank);
    Value before = build::binary(Where == Side::left ? Op::less : Op::less_equal, sorted, x);
    if (is_floating(x.dtype())) {  // NaN is sorted last
      const Value is_nan = build::not_equal(x, x);
      const Value counted = Where == Side::right ? is_nan : build::logical_and(is_nan, build::equal(sorted, sorted));
      before = build::logical_or(before, counted);
    }
    return build::sum_of(build::cast(before, DType::i32), 1u << (rank - 1));
  }
};

}  // namespace detail

/// For each element of x the index at which it would be inserted into a sorted vector: the number of smaller elements,
/// or with Side::right of elements that are not larger (torch.searchsorted, torch.bucketize, jnp.searchsorted). NaN
/// counts as the largest value. It compares all pairs, in one pass, so that no dim is gathered. No gradient.
/// Communication: an all-reduce of counts if the sorted vector is split.
///
///     const auto bins = ts::searchsorted<ts::Side::right>(edges, x);
template <Side Where = Side::left, TensorArgument Sorted, TensorArgument X>
constexpr auto searchsorted(const Sorted& sorted, const X& x, Here at = Here::current()) {
  return call<detail::SearchSortedTag<Where>>(Source::from(at), sorted, x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
