#ifndef TESSERA_OPTIM_TREE_MAP_HPP
#define TESSERA_OPTIM_TREE_MAP_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/require_trace.hpp>
#include <tessera/graph/trace/stack.hpp>
#include <tessera/graph/trace/trace_types.hpp>
#include <tessera/graph/trace/tree.hpp>
#include <tessera/ops/rows.hpp>

namespace tessera::optim {

/// The type that a traced model has as a field of a struct, such as the state of an optimizer: ts::ShardedTensor<float,
/// 2> for a ts::Sym<float, 2>, which is a tensor on its own; tuples of such tensors likewise; a struct is itself.
template <class Model> using stored_t = typename tessera::detail::FinalResult<Model>::type;

namespace detail {

/// The graph value of a leaf of a traced model.
template <class Leaf> constexpr Value value_of(const Leaf& leaf) {
  if constexpr (SymOperand<Leaf>)
    return here(leaf.value);
  else
    return here(leaf.placeholder());
}
template <class Leaf> inline constexpr bool is_parameter_v = false;
template <class T, int R> inline constexpr bool is_parameter_v<ShardedTensor<T, R>> = is_floating_v<T>;
template <class T, int R> inline constexpr bool is_parameter_v<Sym<T, R>> = is_floating_v<T>;

/// Lists the values of the floating-point tensors of a traced model. A tensor of a Stack is one value, whose first dim
/// is the layers.
struct CollectParameters {
  static constexpr const char* no_local_tensors =
      "[tree_map] local tensors: optimizers and tree_map take no tensors of the function of a shard_map; call them "
      "with the results of the shard_map";
  Source line{};
  Growable<Value> values{};
  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    if constexpr (is_parameter_v<std::remove_const_t<Leaf>>) {
      const Value value = value_of(leaf);
      if (value.module == nullptr) tessera::detail::fail_outside_of_trace("tree_map", "ts::optim::tree_map", line);
      if (value.graph < 0) fail(errc::unsupported, no_local_tensors);
      values.push_back(value);
    } else if constexpr (LocalOperand<std::remove_const_t<Leaf>>) {
      leaf.value.refuse(errc::unsupported, no_local_tensors);
      values.push_back(leaf.value);  // so that no error follows from it
    }
  }
  constexpr void enter_stack(const auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};
/// Whether a floating-point tensor of a model is in no trace.
struct FindStoredParameter {
  bool found = false;
  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    if constexpr (is_parameter_v<std::remove_const_t<Leaf>>) found = found || value_of(leaf).module == nullptr;
  }
  constexpr void enter_stack(const auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};
/// Checks that the models with which a function is called are in a trace. `called`: what the user calls.
constexpr void require_traced(const char* function, const char* called, Source source, const auto&... models) {
  FindStoredParameter stored;
  (for_each_leaf(models, stored), ...);
  if (stored.found) tessera::detail::fail_outside_of_trace(function, called, source);
}
template <class Model> constexpr Growable<Value> parameters_of(const Model& model, Source line = {}) {
  CollectParameters collect{line};
  for_each_leaf(model, collect);
  return collect.values;
}

/// Calls f on the corresponding values of several models, and collects its results, `Outputs` values per tensor, which
/// are in a tuple if they are Several.
template <class F, std::size_t Inputs, std::size_t Outputs, bool Several> struct MapParameters {
  F& f;
  const std::array<Growable<Value>, Inputs>& inputs;
  std::array<Growable<Value>, Outputs> outputs{};
  std::size_t next = 0;

  template <class Leaf> constexpr void leaf(Leaf&) {
    using L = std::remove_const_t<Leaf>;
    if constexpr (is_parameter_v<L>) {
      using S = Sym<typename L::element, L::rank>;
      [&]<std::size_t... I>(std::index_sequence<I...>) {
        for (const Value& v : {inputs[I][next]...})
          if (v.rank() != inputs[0][next].rank() || v.dtype() != inputs[0][next].dtype())
            fail(errc::structure,
                 "[tree_map] structure: corresponding tensors of the models differ in rank or element type");
        keep<S>(f(S(inputs[I][next])...));
      }(std::make_index_sequence<Inputs>{});
      ++next;
    }
  }
  constexpr void enter_stack(const auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}

 private:
  template <class S, class Result> constexpr void keep(const Result& result) {
    constexpr bool is_tuple = tessera::detail::is_tuple_v<Result>, is_same_count = [] {
      if constexpr (is_tuple)
        return Several && std::tuple_size_v<Result> == Outputs;
      else
        return !Several;
    }();
    static_assert(is_same_count,
                  "tessera: the function of tree_map must return as many tensors for each rank and element type: one "
                  "tensor, or a tuple of as many, for all tensors of the model");
    if constexpr (!is_same_count) {
      for (Growable<Value>& list : outputs) list.push_back(inputs[0][next]);  // so that no error follows from it
    } else if constexpr (is_tuple) {
      [&]<std::size_t... O>(std::index_sequence<O...>) {
        (outputs[O].push_back(checked<S>(std::get<O>(result))), ...);
      }(std::make_index_sequence<Outputs>{});
    } else {
      outputs[0].push_back(checked<S>(result));
    }
  }
  template <class S, class Result> static constexpr Value checked(const Result& result) {
    static_assert(
        std::is_same_v<S, Result>,
        "tessera: the function of tree_map must return tensors with the rank and element type of its arguments");
    return result.value;
  }
};

/// Replaces the floating-point tensors of a traced model by the given values.
struct ReplaceParameters {
  const Growable<Value>& values;
  std::size_t next = 0;
  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    if constexpr (is_parameter_v<Leaf>) leaf = Leaf(values[next++]);
  }
  constexpr void enter_stack(const auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};
template <class Model> constexpr Model with_parameters(Model model, const Growable<Value>& values) {
  ReplaceParameters replace{values};
  for_each_leaf(model, replace);
  return model;
}

/// The type of the first floating-point tensor of a model, with which f is tried to find out how many results it has.
struct FirstParameter {
  DType dtype = DType::f32;
  int rank = -1;
  template <class Leaf> constexpr void leaf(const Leaf&) {
    if constexpr (is_parameter_v<Leaf>)
      if (rank < 0) dtype = dtype_v<typename Leaf::element>, rank = Leaf::rank;
  }
  template <class Block> constexpr void enter_stack(const Stack<Block>&) {
    Block block{};
    for_each_leaf(block, *this);
  }
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}

  template <class Model> static constexpr FirstParameter of() {
    FirstParameter found;
    Model model{};
    for_each_leaf(model, found);
    if (found.rank < 0) found.rank = 1;
    return found;
  }
};
template <class Model> inline constexpr FirstParameter first_parameter_v = FirstParameter::of<Model>();
template <class Model>
using first_parameter_t = Sym<element_t<first_parameter_v<Model>.dtype>, first_parameter_v<Model>.rank>;

/// The element types and ranks of the floating-point tensors of a model, of a Stack those of its block.
struct ParameterTypes {
  Growable<std::pair<DType, int>> types;
  template <class Leaf> constexpr void leaf(const Leaf&) {
    if constexpr (is_parameter_v<Leaf>) types.push_back({dtype_v<typename Leaf::element>, Leaf::rank});
  }
  template <class Block> constexpr void enter_stack(const Stack<Block>&) {
    Block block{};
    for_each_leaf(block, *this);
  }
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}

  template <class Model> static constexpr ParameterTypes of() {
    ParameterTypes found;
    Model model{};
    for_each_leaf(model, found);
    return found;
  }
};
template <class A, class B> constexpr bool have_equal_parameters() {
  const ParameterTypes a = ParameterTypes::of<A>(), b = ParameterTypes::of<B>();
  bool equal = a.types.size() == b.types.size();
  for (std::size_t k = 0; k < a.types.size() && equal; ++k) equal = a.types[k] == b.types[k];
  return equal;
}

template <class F, class X, std::size_t... I>
using result_on = decltype(std::declval<F&>()(((void)I, std::declval<X>())...));

template <class F, class X, class Indices> struct OutputCount;
template <class F, class X, std::size_t... I> struct OutputCount<F, X, std::index_sequence<I...>> {
  using result = result_on<F, X, I...>;
  static constexpr bool several = tessera::detail::is_tuple_v<result>;
  static constexpr std::size_t value = [] {
    if constexpr (several)
      return std::tuple_size_v<result>;
    else
      return std::size_t{1};
  }();
};

/// tree_map of models of one structure; f has `Count` results.
template <class Count, class F, class First, class... Rest>
constexpr auto mapped(Source line, F& f, const First& first, const Rest&... rest) {
  const std::array<Growable<Value>, 1 + sizeof...(Rest)> inputs{parameters_of(first, line),
                                                                parameters_of(rest, line)...};
  for (const Growable<Value>& list : inputs)
    if (list.size() != inputs[0].size())
      fail(errc::structure, "[tree_map] structure: the models have different numbers of tensors");
  MapParameters<F, 1 + sizeof...(Rest), Count::value, Count::several> map{f, inputs};
  for_each_leaf(first, map);
  if constexpr (Count::several) {
    return [&]<std::size_t... O>(std::index_sequence<O...>) {
      // Not by deduction: a std::tuple of one model that is a tuple would be that model.
      return std::tuple<decltype((void)O, First(first))...>(with_parameters(first, map.outputs[O])...);
    }(std::make_index_sequence<Count::value>{});
  } else {
    return with_parameters(first, map.outputs[0]);
  }
}

/// tree_map, with the line of errors.
template <class F, class First, class... Rest>
constexpr auto tree_map_at(Source line, F& f, const First& first, const Rest&... rest) {
  using Count = OutputCount<F, first_parameter_t<First>, std::make_index_sequence<1 + sizeof...(Rest)>>;
  constexpr bool is_one_structure = (have_equal_parameters<First, Rest>() && ...);
  constexpr bool returns = !std::is_void_v<typename Count::result>;
  static_assert(
      is_one_structure,
      "tessera: the models of tree_map must have equal structures: as many tensors, with the same element types "
      "and ranks in the same order; the function may capture a tensor that is the same for all of them");
  static_assert(returns, "tessera: the function of tree_map returns nothing; add a return statement");
  if constexpr (is_one_structure && returns)
    return mapped<Count>(line, f, first, rest...);
  else
    return first;
}

}  // namespace detail

/// Inside a traced function: calls f on the corresponding floating-point tensors of several models of one structure,
/// and returns a model of the results, as jax.tree.map does. Optimizers are written with it.
/// f takes a Sym of each model and returns a Sym, or a tuple of Syms for a tuple of models. It is generic, and may
/// distinguish ranks: `if constexpr (decltype(p)::rank == 2)`; the number of results must be the same. A tensor of a
/// Stack is one value for all layers: elementwise operations and reductions over given dims treat each layer
/// separately. The result has the Dims, Scalars and integer tensors of the first model. Errors: structure if the models
/// differ in structure. Communication: that of f.
///
///     auto moved = ts::optim::tree_map([](auto p, auto g) { return p - 0.1 * g; }, model, gradient);
template <class F, class First> constexpr auto tree_map(F f, const First& first, Here at = Here::current()) {
  return detail::tree_map_at(Source::from(at), f, first);
}
template <class F, class First, class Second>
constexpr auto tree_map(F f, const First& first, const Second& second, Here at = Here::current()) {
  return detail::tree_map_at(Source::from(at), f, first, second);
}
template <class F, class M1, class M2, class M3>
constexpr auto tree_map(F f, const M1& m1, const M2& m2, const M3& m3, Here at = Here::current()) {
  return detail::tree_map_at(Source::from(at), f, m1, m2, m3);
}
template <class F, class M1, class M2, class M3, class M4>
constexpr auto tree_map(F f, const M1& m1, const M2& m2, const M3& m3, const M4& m4, Here at = Here::current()) {
  return detail::tree_map_at(Source::from(at), f, m1, m2, m3, m4);
}
template <class F, class M1, class M2, class M3, class M4, class M5>
constexpr auto tree_map(F f, const M1& m1, const M2& m2, const M3& m3, const M4& m4, const M5& m5,
                        Here at = Here::current()) {
  return detail::tree_map_at(Source::from(at), f, m1, m2, m3, m4, m5);
}
template <class F, class M1, class M2, class M3, class M4, class M5, class M6>
constexpr auto tree_map(F f, const M1& m1, const M2& m2, const M3& m3, const M4& m4, const M5& m5, const M6& m6,
                        Here at = Here::current()) {
  return detail::tree_map_at(Source::from(at), f, m1, m2, m3, m4, m5, m6);
}
template <class F, class First, class... Rest>
  requires(sizeof...(Rest) > 5)
constexpr auto tree_map(F f, const First& first, const Rest&... rest) {
  return detail::tree_map_at({}, f, first, rest...);
}

}  // namespace tessera::optim

#include <tessera/base/pop_macros.hpp>

#endif
