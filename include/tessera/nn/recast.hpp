#ifndef TESSERA_NN_RECAST_HPP
#define TESSERA_NN_RECAST_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/dtype.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/graph/trace/stack.hpp>
#include <tessera/ops/rows.hpp>

// Models of which some parts have another type: cast_model, add_lora.

namespace tessera::detail {

/// A type with other element types, or, by a specialisation for a Map, other layers: a tensor, an element type itself,
/// or a template of these.
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
template <class Map, template <class, auto, class, class...> class Made, class T, auto V, class U, class... Us>
struct Recast<Map, Made<T, V, U, Us...>> {
  using type = Made<typename Recast<Map, T>::type, V, typename Recast<Map, U>::type, typename Recast<Map, Us>::type...>;
};
template <class Map, template <auto, class, auto...> class Made, auto V, class T, auto... Vs>
struct Recast<Map, Made<V, T, Vs...>> {
  using type = Made<V, typename Recast<Map, T>::type, Vs...>;
};
template <class Map, class T> using recast_t = typename Recast<Map, T>::type;

/// A model of type To that has the fields of `from`: one of the same type is copied, and convert(std::type_identity<
/// Part>(), part) makes each part that it takes.
template <class To, class From, class Convert> constexpr To rebuilt(const From& from, const Convert& convert) {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else if constexpr (requires { convert(std::type_identity<To>(), from); }) {
    return convert(std::type_identity<To>(), from);
  } else if constexpr (is_stack_v<From>) {
    To made;
    for (const auto& layer : from.layers()) made.layers().push_back(rebuilt<typename To::block>(layer, convert));
    return made;
  } else if constexpr (is_tuple_v<From> || is_array_v<From>) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return To{rebuilt<std::tuple_element_t<I, To>>(std::get<I>(from), convert)...};
    }(std::make_index_sequence<std::tuple_size_v<To>>());
  } else {
    return with_fields(from, [&](const auto&... fields) {
      return [&]<class... Fields>(TypeList<Fields...>) {
        return To{rebuilt<Fields>(fields, convert)...};
      }(typename FieldsOf<To>::type{});
    });
  }
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
