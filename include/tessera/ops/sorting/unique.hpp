#ifndef TESSERA_OPS_SORTING_UNIQUE_HPP
#define TESSERA_OPS_SORTING_UNIQUE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/indexing/nonzero.hpp>
#include <tessera/ops/indexing/sort_rows.hpp>
#include <tessera/ops/reduction/reduce.hpp>

namespace tessera {

/// The distinct elements of a tensor: their values and how often each occurs, vectors of a given size; for each element
/// of the tensor the index of its value; and how many there are, which can be more than the size.
template <class Values, class Counts, class Inverse, class Count> struct Unique {
  Values values;
  Counts counts;
  Inverse inverse;
  Count count;
};

namespace detail {

enum class UniquePart : std::uint8_t { values, counts, inverse, count };

/// Elements in order form runs of equal ones: sorted, one run for each distinct value.
template <int Rank, UniquePart Part, bool Sorted> struct UniqueTag {
  static constexpr auto leading_dims = ops::LeadingDims::mapped;
  static constexpr int rank_of = Part == UniquePart::inverse ? Rank : Part == UniquePart::count ? 0 : 1;
  template <class X, class Size> struct result {
    using type = std::conditional_t<Part == UniquePart::values, typename X::type, std::int32_t>;
    static constexpr int rank = rank_of;
    using Checks = decltype([] { check_nonzero<X>(); });
  };
  static constexpr Value emit(Value context, Value x, Value given) {
    x = x.at(context.source);
    const Value flat = flattened<Rank>(context, x), size = as_size(given);
    const Value order = Sorted ? build::argsort(flat, 0, Order::ascending, DType::i32) : Value{};
    const Value element = Sorted ? build::gather(flat, 0, order) : flat;
    const Value position = build::iota(element, 0, DType::i32);
    const Value before = build::gather(element, 0, build::maximum(position - position.number(1), position.number(0)));
    Value differs = build::not_equal(element, before);
    if (is_floating(x.dtype())) {  // NaNs are equal to each other here
      const auto is_number = [](Value v) { return build::equal(v, v); };
      differs = build::logical_and(differs, build::logical_or(is_number(element), is_number(before)));
    }
    const Value starts = build::logical_or(differs, build::equal(position, position.number(0)));
    const Value begins = build::cast(starts, DType::i32);
    if constexpr (Part == UniquePart::count) return build::sum_of(begins, 1);
    const Value run = build::cumsum(begins, 0, {}) - begins.number(1);
    if constexpr (Part == UniquePart::values) {
      // After the last value, the first one again; there is a zero for a tensor without elements.
      const Value one = size.number(1);
      const Value table = build::pad_to(element, 0, size.number(0), build::extent(element, 0) + one);
      const Value first = build::drop_singletons(build::slice(table, 0, size.number(0), one), 1u);
      return put_at(element, run, size, first);
    } else if constexpr (Part == UniquePart::counts) {
      const Value room = build::broadcast(begins.number(0), build::arange(size + size.number(1)));
      const Value positions = build::minimum(run, build::cast(size, DType::i32));
      const Value ones = build::broadcast(begins.number(1), run);
      return build::slice(build::scatter_add(ones, 0, positions, room), 0, size.number(0), size);
    } else if constexpr (Part == UniquePart::inverse) {
      Value index = run;
      if constexpr (Sorted)
        index = build::scatter(build::broadcast(run.number(0), run), 0, order, run, {.replaces = true});
      if constexpr (Rank > 1)
        index = [&]<int... I>(std::integer_sequence<int, I...>) {
          return SplitTag<1, 0, Rank>::emit(context, index, build::extent(x, I + 1)...);
        }(std::make_integer_sequence<int, Rank - 1>{});
      return index;
    }
  }
};

template <bool Sorted, class X, class Size> constexpr auto unique_of(const X& x, const Size& size, Here at) {
  const auto part = [&]<UniquePart Part>(std::integral_constant<UniquePart, Part>) {
    return call<UniqueTag<X::rank, Part, Sorted>>(Source::from(at), x, Dim(size));
  };
  const auto values = part(std::integral_constant<UniquePart, UniquePart::values>{});
  const auto counts = part(std::integral_constant<UniquePart, UniquePart::counts>{});
  const auto inverse = part(std::integral_constant<UniquePart, UniquePart::inverse>{});
  const auto count = part(std::integral_constant<UniquePart, UniquePart::count>{});
  return Unique<std::remove_const_t<decltype(values)>, std::remove_const_t<decltype(counts)>,
                std::remove_const_t<decltype(inverse)>, std::remove_const_t<decltype(count)>>{values, counts, inverse,
                                                                                              count};
}

}  // namespace detail

/// The `size` smallest distinct elements of x in ascending order (jnp.unique with a size, torch.unique): `const auto
/// [values, counts, inverse, count] = ts::unique(x, 16)`. After the last one, values are the smallest element, as in
/// JAX, and counts 0. `inverse` has the shape of x: values[inverse] is x, where there is room for all. NaNs are equal
/// to each other, and last. The gradient of a value goes to its last element. Errors: shape_mismatch for a negative
/// size. Communication: as sort of the tensor as a vector.
template <TensorArgument X, SizeOperand Size>
constexpr auto unique(const X& x, const Size& size, Here at = Here::current()) {
  const detail::FunctionCall named("unique", x);
  return detail::unique_of<true>(x, size, at);
}
/// The first `size` runs of equal elements in row-major order (torch.unique_consecutive): their values and lengths, and
/// for each element the index of its run. After the last one, values are the first element. Otherwise as unique.
template <TensorArgument X, SizeOperand Size>
constexpr auto unique_consecutive(const X& x, const Size& size, Here at = Here::current()) {
  const detail::FunctionCall named("unique_consecutive", x);
  return detail::unique_of<false>(x, size, at);
}

/// Without a size it does not compile.
template <TensorArgument X> constexpr auto unique(const X& x) {
  static_assert(std::is_void_v<X>, "tessera: shapes can't depend on values, so as in JAX the size of the result is an "
                                   "argument: ts::unique(x, size)");
  return x;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
