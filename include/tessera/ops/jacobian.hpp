#ifndef TESSERA_OPS_JACOBIAN_HPP
#define TESSERA_OPS_JACOBIAN_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/graph/transform/vjp.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/layers.hpp>
#include <tessera/ops/vmap/vmap.hpp>

namespace tessera {

namespace detail {

/// The floating tensors of a structure in nested tuples: a struct is the tuple of its fields, a Stack its layer with
/// tensors of all layers, and what has no gradient an empty tuple.
template <bool OfLayers = false, class T> constexpr auto floating_tree(const T& x) {
  if constexpr (TensorOperand<T>) {
    if constexpr (!is_differentiable_v<T>)
      return std::tuple();
    else if constexpr (OfLayers)
      return of_all_layers(x, trace_of(x).source);
    else
      return Sym<typename T::element, T::rank>(here(trace_of(as_sym(x))));
  } else if constexpr (NumberOperand<T> || std::is_empty_v<T>) {
    return std::tuple();
  } else if constexpr (is_stack_v<T>) {
    return floating_tree<true>(x[0]);
  } else if constexpr (is_tuple_v<T> || is_array_v<T>) {
    return map_items(x, [](const auto& item) { return floating_tree<OfLayers>(item); });
  } else {
    return with_fields(x, [](const auto&... fields) {
      return std::tuple<decltype(floating_tree<OfLayers>(fields))...>{floating_tree<OfLayers>(fields)...};
    });
  }
}
template <class T> using floating_tree_t = decltype(floating_tree(std::declval<const T&>()));

/// A tree of the same form with the results of f for each tensor, in order.
template <class T, class F> constexpr auto map_tensors(const T& tree, const F& f) {
  if constexpr (TensorOperand<T>)
    return f(tree);
  else
    return map_items(tree, [&](const auto& item) { return map_tensors(item, f); });
}
/// The number of tensors of such a tree.
template <class T> constexpr int tensor_count() {
  if constexpr (TensorOperand<T>)
    return 1;
  else if constexpr (is_array_v<T>)
    return static_cast<int>(std::tuple_size_v<T>) * tensor_count<typename T::value_type>();
  else
    return []<template <class...> class Tuple, class... Ts>(const Tuple<Ts...>*) {
      return (0 + ... + tensor_count<Ts>());
    }(static_cast<const T*>(nullptr));
}
template <class T> constexpr int max_rank_in() {
  if constexpr (TensorOperand<T>)
    return T::rank;
  else if constexpr (is_array_v<T>)
    return max_rank_in<typename T::value_type>();
  else
    return []<template <class...> class Tuple, class... Ts>(const Tuple<Ts...>*) {
      int found = 0;
      ((found = max_rank_in<Ts>() > found ? max_rank_in<Ts>() : found), ...);
      return found;
    }(static_cast<const T*>(nullptr));
}

/// How many elements a tensor has; the floating tensors of a structure, together.
constexpr Value element_count(const Value& x) {
  Value count = x.integer(1, DType::i64);
  for (int d = 0; d < x.rank(); ++d)
    if (!x.is_singleton(d)) count = count * build::extent(x, d);
  return count;
}
template <class T> constexpr Value element_count(const T& structure) {
  Value total{};
  for_each_floating(structure, [&](const auto&, const Value& given) {
    const Value own = element_count(here(given));
    total = total.module == nullptr ? own : total + own;
  });
  return total;
}
/// Replaces the floating tensors of a structure by 1 at element i, counted in row-major order through all of them, and
/// 0 elsewhere.
template <class T> constexpr void set_one_at(T& structure, const Value& element) {
  Value offset = element.integer(0, DType::i32);
  for_each_floating(structure, [&](auto& leaf, const Value& given) {
    const Value own = here(given).at(element.source);
    Value position = offset, count = own.integer(1, DType::i32);
    for (int d = own.rank() - 1; d >= 0; --d) {
      if (!own.is_singleton(d)) position = position + build::iota(own, d, DType::i32) * count;
      count = count * build::cast(build::extent(own, d), DType::i32);
    }
    const Value one = build::cast(build::equal(position, element), own.dtype());
    leaf = std::remove_cvref_t<decltype(leaf)>(build::broadcast(one, own));
    offset = offset + count;
  });
}

/// 0, 1, ... for the elements of the floating tensors of a structure.
template <class T> constexpr auto numbers_to(const T& structure) {
  const Value count = element_count(structure);
  return Sym<std::int32_t, 1>(build::arange(count));
}

/// The part of x for one of the tensors whose elements its dim `dim` counts: that dim becomes the dims of `like`, whose
/// elements begin at `offset`. `whole`: there is no other tensor.
constexpr Value part_of(Value x, int dim, const Value& offset, const Value& like, bool whole) {
  int extending = 0;
  for (int d = 0; d < like.rank(); ++d) extending += like.is_singleton(d) ? 0 : 1;
  if (extending == 0) {
    x = build::slice(x, dim, offset, x.integer(1, DType::i64));
    if (like.rank() == 0) return build::drop_singletons(x, 1u << dim);
    return build::insert_singletons(x, ((1u << (like.rank() - 1)) - 1) << dim, x.rank() + like.rank() - 1);
  }
  if (!whole) x = build::slice(x, dim, offset, element_count(like));
  return build::split_dim_as(x, dim, like, 0, like.rank());
}

/// The same as a typed tensor: the Jacobian of one result by one argument.
template <bool Whole, int Dim, class All, class Like>
constexpr auto jacobian_part(const All& all, const Value& offset, const Like& like) {
  constexpr int rank = All::rank - 1 + Like::rank;
  static_assert(rank <= max_rank, "tessera: a Jacobian has the dims of the result and of the argument, at most 8 "
                                  "together");
  return Sym<typename All::element, rank>(part_of(as_sym(all).value, Dim, offset, like.value, Whole));
}

/// f as a function of its arguments with the numbers Chosen: a single argument, or a tuple.
template <int First, int... More, class Transform, class F>
constexpr auto of_chosen_arguments(const Transform& transform, const F& f) {
  return [transform, f](const auto&... arguments) {
    constexpr int count = sizeof...(arguments);
    constexpr bool in_range = First >= 0 && First < count && ((More >= 0 && More < count) && ...);
    static_assert(in_range, "tessera: a number of ts::jacrev<...>, ts::jacfwd<...> and ts::hessian<...> is that of an "
                            "argument, counted from 0");
    if constexpr (in_range) {
      const auto all = std::tie(arguments...);
      const auto called = [&](const auto& chosen) {
        return [&]<std::size_t... I>(std::index_sequence<I...>) {
          return f(chosen_argument<static_cast<int>(I), First, More...>(chosen, all)...);
        }(std::make_index_sequence<sizeof...(arguments)>());
      };
      if constexpr (sizeof...(More) == 0)
        return transform([&](const auto& own) { return called(std::tie(own)); })(std::get<First>(all));
      else
        return transform(called)(std::tuple(std::get<First>(all), std::get<More>(all)...));
    }
  };
}

/// Whether a function with the argument X and the result Y has a Jacobian.
template <class X, class Y> constexpr bool has_jacobian() {
  if constexpr (Model<X> && Model<Y>)
    return tensor_count<floating_tree_t<X>>() > 0 && tensor_count<floating_tree_t<Y>>() > 0;
  else
    return false;
}

}  // namespace detail

/// Inside a traced function: the Jacobian of f by its first argument x, as jax.jacrev; `rest` is held constant. For a
/// tensor y and a tensor x, J[i..., k...] is the derivative of element i... of y by element k... of x: J has the dims
/// of y and then those of x. One pullback for all elements of the result at once, by ts::vmap; for results of few
/// elements.
///
/// x and y may be structures: the result has for each tensor of y a structure like x, in a structure like y. A struct
/// appears there as the tuple of its fields, since a Jacobian has more dims than a field; tuples, pairs and arrays stay
/// what they are, a tensor of a Stack has a dim of layers, and in the place of integers, Dims and Scalars is
/// `std::tuple()`:
///
///     const auto by_model = ts::jacrev([](const auto& m, const auto& in) { return m(in); })(model, x);
///     const auto& of_weight = std::get<0>(by_model);                  // [B, out] by [in, out]: [B, out, in, out]
///
/// Errors: shape_mismatch, structure as ts::vjp; y and x together have at most 8 dims. Communication: that of the
/// operations, for all elements at once.
template <class F> constexpr auto jacrev(const F& f, Here at = Here::current()) {
  return [f, line = Source::from(at)](const auto& first, const auto&... rest) {
    const auto x = detail::settle(first);
    const auto called = [&](const auto& own) { return detail::settle(f(own, rest...)); };
    using X = std::remove_cvref_t<decltype(x)>;
    using Y = std::remove_cvref_t<decltype(called(x))>;
    constexpr bool fits = detail::has_jacobian<X, Y>();
    static_assert(fits, "tessera: the function of ts::jacrev and of ts::hessian takes and returns floating tensors, or "
                        "structures with some; convert integers with ts::cast<float>(x)");
    if constexpr (!fits) {
      return x;
    } else {
      using Results = detail::floating_tree_t<Y>;
      const auto recorded = detail::vjp_at(line, called, x);
      const auto& y = std::get<0>(recorded);
      const auto pulled = [&](const Value& element) {
        auto cotangent = y;
        detail::set_one_at(cotangent, element);
        return detail::floating_tree(std::get<1>(recorded)(cotangent));
      };
      const Value zero = here(detail::trace_in(y)).integer(0, DType::i64);
      const auto results = detail::floating_tree(y);
      if constexpr (detail::tensor_count<Results>() == 1 && detail::max_rank_in<Results>() == 0) {
        return detail::map_tensors(results, [&](const auto&) { return pulled(build::cast(zero, DType::i32)); });
      } else {
        constexpr bool is_whole = detail::tensor_count<Results>() == 1;
        const auto rows = vmap([&](const auto& i) { return pulled(i.value); })(detail::numbers_to(y));
        Value offset = zero;
        return detail::map_tensors(results, [&](const auto& result) {
          const Value begin = offset;
          if constexpr (!is_whole) offset = offset + detail::element_count(result.value);
          return detail::map_tensors(
              rows, [&](const auto& all) { return detail::jacobian_part<is_whole, 0>(all, begin, result); });
        });
      }
    }
  };
}
/// By the arguments with these numbers, from 0 (argnums of JAX): `jacrev<1>(f)(x, w)` by w, `jacrev<0, 1>(f)(x, w)` by
/// the tuple of both.
template <int First, int... More, class F> constexpr auto jacrev(const F& f, Here at = Here::current()) {
  return detail::of_chosen_arguments<First, More...>([at](const auto& own) { return jacrev(own, at); }, f);
}

/// The same Jacobian as jax.jacfwd: one product with tangents of all elements of x at once, by ts::vmap; for an x of
/// few elements.
template <class F> constexpr auto jacfwd(const F& f, Here at = Here::current()) {
  return [f, line = Source::from(at)](const auto& first, const auto&... rest) {
    const auto x = detail::settle(first);
    const auto called = [&](const auto& own) { return detail::settle(f(own, rest...)); };
    using X = std::remove_cvref_t<decltype(x)>;
    using Y = std::remove_cvref_t<decltype(called(x))>;
    constexpr bool fits = detail::has_jacobian<X, Y>();
    static_assert(fits, "tessera: the function of ts::jacfwd takes and returns floating tensors, or structures with "
                        "some; convert integers with ts::cast<float>(x)");
    if constexpr (!fits) {
      return x;
    } else {
      using Arguments = detail::floating_tree_t<X>;
      const auto linear = detail::linearize_at(line, called, x);
      const auto pushed = [&](const Value& element) {
        auto tangent = x;
        detail::set_one_at(tangent, element);
        return detail::floating_tree(std::get<1>(linear).push(std::tuple(tangent)));
      };
      const Value zero = here(detail::trace_in(x)).integer(0, DType::i64);
      const auto arguments = detail::floating_tree(x);
      constexpr bool is_whole = detail::tensor_count<Arguments>() == 1;
      if constexpr (is_whole && detail::max_rank_in<Arguments>() == 0) {
        return detail::map_tensors(pushed(build::cast(zero, DType::i32)), [&](const auto& column) {
          return detail::map_tensors(arguments, [&](const auto&) { return column; });
        });
      } else {
        const auto columns = vmap([&](const auto& i) { return pushed(i.value); })(detail::numbers_to(x));
        return detail::map_tensors(columns, [&](const auto& given) {
          constexpr int last = std::remove_cvref_t<decltype(given)>::rank - 1;
          const auto all = movedim<0, -1>(given);
          Value offset = zero;
          return detail::map_tensors(arguments, [&](const auto& argument) {
            const Value begin = offset;
            if constexpr (!is_whole) offset = offset + detail::element_count(argument.value);
            return detail::jacobian_part<is_whole, last>(all, begin, argument);
          });
        });
      }
    }
  };
}
/// By the arguments with these numbers: see jacrev.
template <int First, int... More, class F> constexpr auto jacfwd(const F& f, Here at = Here::current()) {
  return detail::of_chosen_arguments<First, More...>([at](const auto& own) { return jacfwd(own, at); }, f);
}

/// The Hessian of a scalar function of x, the Jacobian of its gradient, as jax.hessian: of a vector a matrix; for an x
/// of few elements. Of a structure x it has for each tensor of x a structure like x. Of a function with another result
/// than a scalar, the Hessian of each element, as in JAX.
template <class F> constexpr auto hessian(const F& f, Here at = Here::current()) {
  return jacrev([f, at](const auto& x, const auto&... rest) { return jacrev(f, at)(x, rest...); }, at);
}
/// By the arguments with these numbers: see jacrev.
template <int First, int... More, class F> constexpr auto hessian(const F& f, Here at = Here::current()) {
  return detail::of_chosen_arguments<First, More...>([at](const auto& own) { return hessian(own, at); }, f);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
