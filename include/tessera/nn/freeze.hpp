#ifndef TESSERA_NN_FREEZE_HPP
#define TESSERA_NN_FREEZE_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/name_pattern.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/body.hpp>
#include <tessera/graph/trace/named_leaves.hpp>
#include <tessera/ops/stop_gradient.hpp>

namespace tessera::nn {

/// A set of parameters, given by patterns of their names: `constexpr nn::Names frozen("tokens.*",
/// "blocks.*.norm.gain");` `*` matches any characters, including dots; `?` matches one character. In a traced function
/// the layers of a Stack have one name, with `*` for the position, so "blocks.3.*" matches nothing there.
class Names {
 public:
  static constexpr std::size_t max_patterns = 16;

  template <std::convertible_to<std::string_view>... Patterns>
    requires(sizeof...(Patterns) > 0)
  constexpr Names(const Patterns&... patterns) : patterns_{std::string_view(patterns)...}, count_(sizeof...(Patterns)) {
    static_assert(sizeof...(Patterns) <= max_patterns, "tessera: a set of names has at most 16 patterns");
  }
  constexpr bool contain(std::string_view name) const {
    for (std::size_t i = 0; i < count_; ++i)
      if (matches_pattern(name, patterns_[i])) return !others_;
    return others_;
  }
  /// All parameters that are not in this set: `nn::Names("*.lora_?").others()`.
  constexpr Names others() const {
    Names made = *this;
    made.others_ = !others_;
    return made;
  }
  constexpr std::size_t size() const { return count_; }
  constexpr std::string_view pattern(std::size_t i) const { return patterns_[i]; }

 private:
  std::array<std::string_view, max_patterns> patterns_;
  std::size_t count_;
  bool others_ = false;
};

namespace detail {

/// Calls f(name, leaf) for the floating-point tensors of a traced model; all layers of a Stack are one.
template <class Model, class F> constexpr void for_each_traced_parameter(Model& model, F&& f) {
  tessera::detail::for_each_named_leaf(model, tessera::detail::VisitLayers::together,
                                       [&](std::string_view name, auto& leaf, int) {
                                         using Type = std::remove_cvref_t<decltype(leaf)>;
                                         if constexpr (TensorOperand<Type>)
                                           if constexpr (is_floating_v<typename Type::element>) f(name, leaf);
                                       });
}
template <class Type> constexpr Value traced_value(const Type& leaf, Source source) {
  const Value value = tessera::detail::value_behind(leaf);
  if (value.module == nullptr)
    fail(errc::unsupported, "[freeze] outside of a traced function: call freeze in a function of ts::compile", source);
  return here(value).at(source);
}

/// Refuses a pattern that names no floating-point tensor of a traced model.
template <class Model> constexpr void check_names(const Model& model, const Names& names, Source source) {
  std::array<bool, Names::max_patterns> used{};
  Value any;
  for_each_traced_parameter(model, [&](std::string_view name, const auto& leaf) {
    any = traced_value(leaf, source);
    for (std::size_t i = 0; i < names.size(); ++i) used[i] = used[i] || matches_pattern(name, names.pattern(i));
  });
  for (std::size_t i = 0; i < names.size(); ++i)
    if (!used[i] && any.module != nullptr)
      any.refuse(errc::option,
                 "[names] pattern: it names no floating-point tensor of the model; in a traced function the layers of "
                 "a Stack are named together, as in blocks.*.mlp.up.weight",
                 names.pattern(i));
}

/// Calls f(part) for each part of the state of an optimizer that has the type of the model: its moments.
template <class Model, class State, class F> constexpr void for_each_model_in(State& state, F& f) {
  using S = std::remove_const_t<State>;
  if constexpr (std::is_same_v<S, Model>) {
    f(state);
  } else if constexpr (tessera::detail::is_tuple_v<S>) {
    std::apply([&](auto&... items) { (for_each_model_in<Model>(items, f), ...); }, state);
  } else if constexpr (tessera::detail::is_array_v<S>) {
    for (auto& item : state) for_each_model_in<Model>(item, f);
  } else if constexpr (!tessera::detail::is_leaf_v<S> && !tessera::detail::is_stack_v<S> && !std::is_empty_v<S>) {
    tessera::detail::for_each_field(state, [&](auto& field) { for_each_model_in<Model>(field, f); });
  }
}

}  // namespace detail

/// In a traced function: the model, without gradients of the tensors in `frozen`. Call it in the loss: the gradients of
/// these tensors are zeros, and operations that only they need are not computed. Call keep_frozen after the update,
/// since weight decay would change the tensors.
///
///     constexpr nn::Names frozen("tokens.*");
///     const auto loss_of = [&](const auto& m, const auto& in, const auto& out) {
///       return ts::cross_entropy(nn::freeze(m, frozen)(in), out);
///     };
///     const auto [loss, gradient] = ts::value_and_grad(loss_of)(model, x, t);
///     const auto [moved, moved_state] = ts::adamw(model, gradient, state, config);
///     const auto [next, next_state] = nn::keep_frozen(frozen, model, moved, state, moved_state);
/// Errors: `option` for a pattern that matches no floating-point tensor of the model. Communication: none.
template <class Model> constexpr Model freeze(Model model, const Names& frozen, Here at = Here::current()) {
  const Source source = Source::from(at);
  detail::check_names(model, frozen, source);
  detail::for_each_traced_parameter(model, [&](std::string_view name, auto& leaf) {
    if (!frozen.contain(name)) return;
    using Type = std::remove_cvref_t<decltype(leaf)>;
    leaf = Type(stop_gradient(Sym<typename Type::element, Type::rank>(detail::traced_value(leaf, source))).value);
  });
  return model;
}

/// In a traced function: `after`, with the tensors in `frozen` replaced by those of `before`. Their updates are not
/// computed.
template <class Model>
constexpr Model keep_frozen(const Names& frozen, const Model& before, Model after, Here at = Here::current()) {
  Growable<Value> kept;
  detail::for_each_traced_parameter(before, [&](std::string_view name, const auto& leaf) {
    if (frozen.contain(name)) kept.push_back(detail::traced_value(leaf, Source::from(at)));
  });
  std::size_t next = 0;
  detail::for_each_traced_parameter(after, [&](std::string_view name, auto& leaf) {
    if (frozen.contain(name)) leaf = std::remove_cvref_t<decltype(leaf)>(kept[next++]);
  });
  return after;
}
/// The same for a model and its optimizer state: returns std::tuple(model, state), with unchanged moments of frozen
/// tensors.
template <class Model, class State>
constexpr auto keep_frozen(const Names& frozen, const Model& before, const Model& after, const State& state_before,
                           State state_after, Here at = Here::current()) {
  Growable<Value> kept;
  const auto collect = [&](const Model& moments) {
    detail::for_each_traced_parameter(moments, [&](std::string_view name, const auto& leaf) {
      if (frozen.contain(name)) kept.push_back(detail::traced_value(leaf, Source::from(at)));
    });
  };
  detail::for_each_model_in<Model>(state_before, collect);
  std::size_t next = 0;
  const auto replace = [&](Model& moments) {
    detail::for_each_traced_parameter(moments, [&](std::string_view name, auto& leaf) {
      if (frozen.contain(name)) leaf = std::remove_cvref_t<decltype(leaf)>(kept[next++]);
    });
  };
  detail::for_each_model_in<Model>(state_after, replace);
  return std::tuple(keep_frozen(frozen, before, after, at), state_after);
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
