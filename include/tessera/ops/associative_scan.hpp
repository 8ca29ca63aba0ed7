#ifndef TESSERA_OPS_ASSOCIATIVE_SCAN_HPP
#define TESSERA_OPS_ASSOCIATIVE_SCAN_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/custom/given_gradient.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/one_hot.hpp>

namespace tessera {

namespace detail {

/// The least k with 2^k >= n, for a size n of at most 2^31.
constexpr Value log2_rounded_up(const Value& n) {
  const auto of = [&](std::int64_t value) { return n.integer(value, DType::i64); };
  Value rest = build::maximum(n, of(1)) - of(1), k = of(0);  // the number of its bits
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
    return T(as_sym(select(tensor_beside_t<local_in_t<T>, bool, T::rank>(own), yes, no, at)).value);
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

/// x, of which only elements along dim D whose flag holds get gradients: those of the others are zeros even where the
/// cotangent is NaN.
template <int D, class T, class Flags> constexpr T gradients_where(const Flags& flags, const T& x, Here at) {
  if constexpr (TensorOperand<T>) {
    if constexpr (is_floating_v<typename T::element>) {
      const Value own = here(x.value).at(Source::from(at)), g = build::variable_like(own);
      const T kept = elements_where<D>(flags, T(g), T(build::broadcast(own.number(0), own)), at);
      return T(build::with_gradients<1>(own, g, {own}, {kept.value}));
    } else {
      return x;
    }
  } else {
    return map_items(x, [&](const auto& item) { return gradients_where<D>(flags, item, at); });
  }
}

/// associative_scan of values of a trace. `direction`: 1 combines each element with those before it, -1 with those
/// after it.
template <int D, class F, class Elements>
constexpr auto associative_scan(const F& f, const Elements& elements, const Value& direction, Here at) {
  const Value context = direction;
  using Like = local_in_t<Elements>;
  const auto x = as_carry<Like>(context, elements);
  using X = std::remove_const_t<decltype(x)>;
  constexpr bool is_tensors = is_tensors_v<X>;
  static_assert(is_tensors,
                "tessera: ts::associative_scan takes a tensor, or a tuple, pair or array of tensors; give the fields "
                "of a struct as a tuple");
  if constexpr (!is_tensors) {
    return x;
  } else {
    const Dim count = extent<D>(first_tensor(x), at);
    const Dim steps(log2_rounded_up(as_size(lower(context, count))));
    const tensor_beside_t<Like, std::int32_t, 1> positions(counted_to<std::int32_t>(context, count).value);
    const tensor_beside_t<Like, std::int32_t, 0> last(build::cast(lower(context, count - 1), DType::i32));
    const auto step = [&](const auto&, const auto& carry) {
      const auto& [so_far, distance] = carry;
      const auto wanted = as_sym(call<SubTag>(Source::from(at), positions, distance));
      const auto other = minimum(maximum(wanted, 0, at), last, at);
      const auto has_other = tessera::equal(wanted, other, at);
      const auto before = elements_at<D>(so_far, other, at);
      // f is also computed where there is no other element, and its result dropped: so are its gradients there.
      const auto combined = as_carry<Like>(
          context, f(gradients_where<D>(has_other, before, at), gradients_where<D>(has_other, so_far, at)));
      using SoFar = std::remove_cvref_t<decltype(so_far)>;
      using Both = joined_t<SoFar, std::remove_const_t<decltype(combined)>>;
      constexpr bool is_alike = join_v<SoFar, std::remove_const_t<decltype(combined)>>;
      static_assert(is_alike, "tessera: the function of ts::associative_scan returns tensors of the element types, "
                              "ranks and structure of its arguments; convert element types with ts::cast");
      if constexpr (is_alike)
        return std::pair(elements_where<D>(has_other, widened<Both>(combined), widened<Both>(so_far), at),
                         call<AddTag>(Source::from(at), distance, distance));
      else
        return carry;
    };
    return fori_loop(0, steps, step, std::pair(x, tensor_beside_t<Like, std::int32_t, 0>(direction)), at).first;
  }
}

/// Item `Item` of the result, from stored tensors: X are their element types and ranks, Structure<...> is what holds
/// them.
template <int D, int Item, class F, template <class...> class Structure, class... X> struct AssociativeScanTag {
  static constexpr const char* function = "associative_scan";
  template <class...> using result = std::tuple_element_t<Item, std::tuple<X...>>;
  template <class...> static constexpr void convert(Value& direction, std::same_as<Value> auto&...) {
    direction = build::cast(direction, DType::i32);
  }
  static constexpr Value emit(Value context, Value direction, std::same_as<Value> auto... x) {
    using Elements = Structure<Sym<typename X::type, X::rank>...>;
    const auto all =
        associative_scan<D>(F{}, Elements{Sym<typename X::type, X::rank>(x)...}, direction.at(context.source), Here());
    if constexpr (TensorOperand<Elements>)
      return all.value;
    else
      return std::get<Item>(all).value;
  }
};

/// associative_scan of tensors outside of a trace: an expression for each.
template <int D, class F> struct StoredScan {
  template <template <class...> class Structure, class... X>
  static constexpr auto of(int direction, Source source, const X&... x) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return [](const auto&... made) {
        return Structure<std::remove_cvref_t<decltype(made)>...>{made...};
      }(call<AssociativeScanTag<D, static_cast<int>(I), F, Structure, typed_of<X>...>>(source, direction, x...)...);
    }(std::index_sequence_for<X...>{});
  }
};
template <class... X> using OneTensor = std::tuple_element_t<0, std::tuple<X...>>;

/// Whether T is a tensor that is not a value of a trace, or a tuple or pair of such.
template <class T> inline constexpr bool is_stored_v = StoredOperand<T>;
template <class Tag, class... X>
inline constexpr bool is_stored_v<Expr<Tag, X...>> = ((is_stored_v<X> || NumberOperand<X>)&&...);
template <template <class...> class Tuple, class First, class... Rest>
  requires(is_tuple_v<Tuple<First, Rest...>>)
inline constexpr bool is_stored_v<Tuple<First, Rest...>> = is_stored_v<First> && (is_stored_v<Rest> && ...);

template <int D, class F, TensorOperand X> constexpr auto stored_scan(int direction, Source source, const X& x) {
  return StoredScan<D, F>::template of<OneTensor>(direction, source, x);
}
template <int D, class F, template <class...> class Tuple, class... X>
  requires(is_tuple_v<Tuple<X...>>)
constexpr auto stored_scan(int direction, Source source, const Tuple<X...>& elements) {
  return std::apply([&](const X&... x) { return StoredScan<D, F>::template of<Tuple>(direction, source, x...); },
                    elements);
}

}  // namespace detail

/// All partial results of an associative function along dim D, as jax.lax.associative_scan:
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
/// are combined with element 0 and the result is dropped: f has to be finite there, for its gradient. Of stored tensors
/// it is an expression, for a tuple one for each item, which computes the whole scan; f must not capture then. Errors:
/// shape_mismatch for tensors of other extents along D, or a result of another shape. Communication: none if D is not
/// split; else each step gathers each tensor along D, and the result is split again. All other dims stay split. Source:
/// Hillis, Steele, Data parallel algorithms, 1986.
template <int D = 0, class F, class Elements>
constexpr auto associative_scan(const F& f, const Elements& elements, ScanOptions options = {},
                                Here at = Here::current()) {
  const int direction = options.reverse ? -1 : 1;
  if constexpr (detail::is_stored_v<Elements> && std::is_empty_v<F>) {
    return detail::stored_scan<D, F>(direction, Source::from(at), elements);
  } else {
    const Value found = detail::trace_in(elements);
    if (found.module == nullptr)
      fail(
          errc::unsupported,
          "[associative_scan] outside of a traced function: call ts::associative_scan inside a function of ts::compile",
          Source::from(at));
    return detail::associative_scan<D>(f, elements, found.at(Source::from(at)).integer(direction, DType::i32), at);
  }
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
