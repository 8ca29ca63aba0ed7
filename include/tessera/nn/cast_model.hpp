#ifndef TESSERA_NN_CAST_MODEL_HPP
#define TESSERA_NN_CAST_MODEL_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/dtype.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/graph/trace/stack.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/tensor/evaluate.hpp>

namespace tessera {

namespace detail {

// What an element type becomes.
template <class To> struct ToElement {
  template <class T> using of = std::conditional_t<is_floating_v<T>, To, T>;
};
struct UseBf16 {
  template <class T> using of = std::conditional_t<std::is_same_v<T, float>, bf16, T>;
};
struct DowncastBf16 {
  template <class T> using of = std::conditional_t<std::is_same_v<T, double>, float, UseBf16::of<T>>;
};
struct WidenBf16 {
  template <class T> using of = std::conditional_t<std::is_same_v<T, bf16>, float, T>;
};

/// A type with other element types: a tensor, an element type itself, or a template of these.
template <class Map, class T> struct Recast {
  using type = T;
};
template <class Map, class T>
  requires(std::is_arithmetic_v<T> || Element<T>)
struct Recast<Map, T> {
  using type = typename Map::template of<T>;
};
template <class Map, class T, int R> struct Recast<Map, ShardedTensor<T, R>> {
  using type = ShardedTensor<typename Map::template of<T>, R>;
};
template <class Map, class T, int R> struct Recast<Map, Sym<T, R>> {
  using type = Sym<typename Map::template of<T>, R>;
};
template <class Map, class T, std::size_t Size> struct Recast<Map, std::array<T, Size>> {
  using type = std::array<typename Recast<Map, T>::type, Size>;
};
template <class Map, template <class...> class Made, class... Ts> struct Recast<Map, Made<Ts...>> {
  using type = Made<typename Recast<Map, Ts>::type...>;
};
template <class Map, template <class, auto, auto...> class Made, class T, auto V, auto... Vs>
struct Recast<Map, Made<T, V, Vs...>> {
  using type = Made<typename Recast<Map, T>::type, V, Vs...>;
};
template <class Map, template <class, auto, class> class Made, class T, auto V, class U>
struct Recast<Map, Made<T, V, U>> {
  using type = Made<typename Recast<Map, T>::type, V, typename Recast<Map, U>::type>;
};
template <class Map, template <auto, class, auto...> class Made, auto V, class T, auto... Vs>
struct Recast<Map, Made<V, T, Vs...>> {
  using type = Made<V, typename Recast<Map, T>::type, Vs...>;
};
template <class Map, class T> using recast_t = typename Recast<Map, T>::type;

/// Whether a model has a tensor whose element type Map changes.
template <class Map> struct FindRecast {
  bool found = false;
  template <class Leaf> constexpr void leaf(const Leaf&) {
    found = found || !std::is_same_v<recast_t<Map, Leaf>, Leaf>;
  }
  constexpr void enter_stack(const auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};
template <class Map, class T> constexpr bool has_recast() {
  if constexpr (is_stack_v<T>) {
    return has_recast<Map, typename T::block>();
  } else {
    T model{};
    FindRecast<Map> find;
    for_each_leaf(model, find);
    return find.found;
  }
}

template <class To, class From> constexpr To cast_leaves(const From& from, Here at) {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else if constexpr (TensorOperand<From>) {
    if constexpr (SymOperand<From>) {
      return cast<typename To::element>(from, at);
    } else {
      if (const Value& value = value_behind(from); value.module != nullptr)
        return To(build::cast(here(value).at(Source::from(at)), dtype_v<typename To::element>));
      return To(cast<typename To::element>(from, at));
    }
  } else if constexpr (is_stack_v<From>) {
    To made;
    for (const auto& layer : from.layers()) made.layers().push_back(cast_leaves<typename To::block>(layer, at));
    return made;
  } else if constexpr (is_tuple_v<From> || is_array_v<From>) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return To{cast_leaves<std::tuple_element_t<I, To>>(std::get<I>(from), at)...};
    }(std::make_index_sequence<std::tuple_size_v<To>>());
  } else {
    return with_fields(from, [&](const auto&... fields) {
      return [&]<class... Fields>(TypeList<Fields...>) {
        return To{cast_leaves<Fields>(fields, at)...};
      }(typename FieldsOf<To>::type{});
    });
  }
}

template <class Map, class T> constexpr auto recast(const T& x, Here at) {
  using To = recast_t<Map, T>;
  if constexpr (std::is_same_v<To, T> && !TensorOperand<T>) {
    constexpr bool is_unchanged = !has_recast<Map, T>();
    static_assert(is_unchanged,
                  "tessera: a model has other element types only if it is a template of its element type, as `template "
                  "<ts::Element T> struct Mlp { nn::Linear<T> up, down; };`; or name the type, as in "
                  "ts::cast_model<Mlp16>(model); ts::autocast needs neither");
  }
  return cast_leaves<To>(x, at);
}

/// f of arguments with other element types, and results with f32 in the place of bf16.
template <class Map, class F> constexpr auto recast_function(const F& f) {
  return [f](const auto&... given) {
    constexpr Here at = Here::current();
    return recast<WidenBf16>(settle(f(recast<Map>(settle(given), at)...)), at);
  };
}

}  // namespace detail

/// A copy of a model, or of a tuple or array of tensors, with floating tensors of the element type T: `model.to(T)` of
/// PyTorch, as `auto small = ts::cast_model<ts::bf16>(model)`. Integer tensors, Dims and Scalars are copied. The type
/// of the copy has T in the place of every floating template argument: `nn::Linear<bf16>` for `nn::Linear<float>`, and
/// a Mlp<bf16> for a `template <ts::Element T> struct Mlp`. `cast_model<To>(model)` names the type of the copy itself,
/// a model of the same fields. Inside of a traced function it is differentiated: gradients are those of the original.
/// Communication: none.
template <Element T, class Model> constexpr auto cast_model(const Model& model, Here at = Here::current()) {
  return detail::recast<detail::ToElement<T>>(model, at);
}
template <class To, class Model>
  requires(!Element<To>)
constexpr To cast_model(const Model& model, Here at = Here::current()) {
  return detail::cast_leaves<To>(model, at);
}

/// Inside a traced function: f, whose f32 arguments (models too) become bf16, and whose bf16 results become f32: the
/// environment variable XLA_USE_BF16 of PyTorch/XLA. All of f computes in bf16, as far as its operations do; f64 stays.
template <class F> constexpr auto use_bf16(const F& f) { return detail::recast_function<detail::UseBf16>(f); }
/// The same, and f64 arguments become f32: XLA_DOWNCAST_BF16.
template <class F> constexpr auto downcast_bf16(const F& f) { return detail::recast_function<detail::DowncastBf16>(f); }

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
