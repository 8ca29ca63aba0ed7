#ifndef TESSERA_OPS_ASSOCIATIVE_SCAN_HPP
#define TESSERA_OPS_ASSOCIATIVE_SCAN_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/one_hot.hpp>

namespace tessera {

namespace detail {

/// The least k with 2^k >= n, for a size n of at most 2^31.
constexpr Value log2_rounded_up(const Value& n) {
  const auto of = [&](std::int64_t value) { return n.integer(value, DType::i64); };
  Value rest = build::binary(Op::maximum, n, of(1)) - of(1), k = of(0);  // the number of its bits
  for (const std::int64_t bits : {16, 8, 4, 2, 1}) {
    const Value low = build::less(rest, of(std::int64_t{1} << bits));
    k = k + build::select(low, of(0), of(bits));
    rest = build::select(low, rest, rest / of(std::int64_t{1} << bits));
  }
  return k + rest;
}

/// The first tensor of a tensor, or of a tuple, pair or array of tensors.
template <class T> constexpr const auto& first_tensor(const T& x) {
  if constexpr (TensorOperand<T>)
    return x;
  else
    return first_tensor(std::get<0>(x));
}
/// Whether T is a tensor of a trace, or a tuple, pair or array of such.
template <class T> inline constexpr bool is_tensors_v = SymOperand<T>;
template <template <class...> class Tuple, class First, class... Rest>
  requires(is_tuple_v<Tuple<First, Rest...>>)
inline constexpr bool is_tensors_v<Tuple<First, Rest...>> = is_tensors_v<First> && (is_tensors_v<Rest> && ...);
template <class T, std::size_t Size>
inline constexpr bool is_tensors_v<std::array<T, Size>> = Size > 0 && is_tensors_v<T>;

/// The elements at the indices along dim D, of each tensor.
template <int D, class T, class Indices> constexpr auto elements_at(const T& x, const Indices& indices, Here at) {
  if constexpr (TensorOperand<T>)
    return as_sym(index_select<D>(x, indices, at));
  else
    return map_items(x, [&](const auto& item) { return elements_at<D>(item, indices, at); });
}

/// `yes` where the flag of the element along dim D holds, else `no`, of each tensor.
template <int D, class T, class Flags>
constexpr T elements_where(const Flags& flags, const T& yes, const T& no, Here at) {
  if constexpr (TensorOperand<T>) {
    constexpr int dim = checked_dim<D, T::rank>();
    const Value own = build::insert_singletons(here(flags.value), ((1u << T::rank) - 1) & ~(1u << dim), T::rank);
    return T(as_sym(select(Sym<bool, T::rank>(own), yes, no, at)).value);
  } else if constexpr (is_array_v<T>) {
    T made = no;
    for (std::size_t i = 0; i < no.size(); ++i) made[i] = elements_where<D>(flags, yes[i], no[i], at);
    return made;
  } else {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return T{elements_where<D>(flags, std::get<I>(yes), std::get<I>(no), at)...};
    }(std::make_index_sequence<std::tuple_size_v<T>>());
  }
}

}  // namespace detail

/// Inside a traced function: all partial results of an associative function along dim D, as jax.lax.associative_scan:
/// element i of the result is `f(...f(f(x0, x1), x2)..., xi)`. `elements` is a tensor, or a tuple, pair or array of
/// tensors that have dim D in common; the result is like it. f takes two such structures and computes all elements of
/// them at once: it sees whole tensors, and combines elements with equal indices. With `{.reverse = true}` the elements
/// are combined from the last one to the first, the later element as first argument.
///
///     // h_i = a_i h_(i-1) + b_i, of a and b [T, D]
///     const auto h = std::get<1>(ts::associative_scan([](const auto& x, const auto& y) {
///       return std::pair(y.first * x.first, y.first * x.second + y.second);
///     }, std::pair(a, b)));
///
/// Step k, of ceil(log2 n), combines each element with the one 2^k before it (Hillis and Steele). f is traced once, in
/// one loop; it computes n elements a step, so n log2 n in all. ts::cumsum and ts::cumprod are faster for sums and
/// products, and ts::scan does less work for long dims where its n steps have enough to do each. The first 2^k elements
/// are combined with element 0 and the result is dropped: f has to be finite there, for its gradient. Errors:
/// shape_mismatch for tensors of other extents along D, or a result of another shape. Communication: none if D is not
/// split; else each step gathers each tensor along D, and the result is split again. All other dims stay split. Source:
/// Hillis, Steele, Data parallel algorithms, 1986.
template <int D = 0, class F, class Elements>
constexpr auto associative_scan(const F& f, const Elements& elements, ScanOptions options = {},
                                Here at = Here::current()) {
  const Value found = detail::trace_in(elements);
  if (found.module == nullptr)
    fail(errc::unsupported,
         "[associative_scan] outside of a traced function: call ts::associative_scan inside a function of ts::compile",
         Source::from(at));
  const Value context = found.at(Source::from(at));
  const auto x = detail::as_carry(context, elements);
  using X = std::remove_const_t<decltype(x)>;
  constexpr bool is_tensors = detail::is_tensors_v<X>;
  static_assert(is_tensors,
                "tessera: ts::associative_scan takes a tensor, or a tuple, pair or array of tensors; give the fields "
                "of a struct as a tuple");
  if constexpr (!is_tensors) {
    return x;
  } else {
    const Dim count = extent<D>(detail::first_tensor(x), at);
    const Dim steps(detail::log2_rounded_up(detail::as_size(lower(context, count))));
    const auto places = detail::counted_to<std::int32_t>(context, count);
    const Sym<std::int32_t, 0> last(build::cast(lower(context, count - 1), DType::i32));
    const auto step = [&](const auto&, const auto& carry) {
      const auto& [so_far, distance] = carry;
      const Source source = Source::from(at);
      const auto before = call<SubTag>(source, places, distance), after = call<AddTag>(source, places, distance);
      const auto other = options.reverse ? minimum(after, last, at) : maximum(before, 0, at);
      const auto has_other = options.reverse ? less_equal(after, last, at) : greater_equal(before, 0, at);
      const auto combined = detail::as_carry(context, f(detail::elements_at<D>(so_far, other, at), so_far));
      constexpr bool is_alike = std::is_same_v<std::remove_const_t<decltype(combined)>, X>;
      static_assert(is_alike, "tessera: the function of ts::associative_scan returns tensors of the element types, "
                              "ranks and structure of its arguments; convert element types with ts::cast");
      if constexpr (is_alike)
        return std::pair(detail::elements_where<D>(has_other, combined, so_far, at),
                         call<AddTag>(source, distance, distance));
      else
        return carry;
    };
    const auto one = Sym<std::int32_t, 0>(context.integer(1, DType::i32));
    return fori_loop(0, steps, step, std::pair(x, one), at).first;
  }
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
