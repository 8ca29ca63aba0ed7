#ifndef TESSERA_NN_FREEZE_HPP
#define TESSERA_NN_FREEZE_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
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
#include <tessera/ops/constraint.hpp>
#include <tessera/ops/custom/given_gradient.hpp>
#include <tessera/ops/source/extent_rows.hpp>
#include <tessera/ops/source/position_rows.hpp>
#include <tessera/ops/stop_gradient.hpp>

namespace tessera::nn {

/// A set of parameters, given by patterns of their names: `constexpr nn::Names frozen("tokens.*",
/// "blocks.*.norm.gain");` `*` matches any characters, including dots; `?` matches one character. Single layers of a
/// Stack: "blocks.3.*", or "blocks.0-5.*" for layers 0 to 5, counted from 0. In a traced function all layers are one
/// tensor, with `*` for the position in its name, of which such patterns select a part.
class Names {
 public:
  static constexpr std::size_t max_patterns = 16;

  template <std::convertible_to<std::string_view>... Patterns>
    requires(sizeof...(Patterns) > 0)
  constexpr Names(const Patterns&... patterns) : patterns_{std::string_view(patterns)...}, count_(sizeof...(Patterns)) {
    static_assert(sizeof...(Patterns) <= max_patterns, "tessera: a set of names has at most 16 patterns");
    for (std::size_t i = 0; i < count_; ++i) has_range_[i] = has_layer_range(patterns_[i]);
  }
  /// Which part of a tensor is in a set: of a traced tensor of a Stack it may be some of the layers.
  enum class Part : std::uint8_t { none, layers, all };
  constexpr Part part_of(std::string_view name) const {
    bool layers = false;
    for (std::size_t i = 0; i < count_; ++i) {
      if (matches_pattern(name, patterns_[i]) || (has_range_[i] && matches_in_range(name, patterns_[i])))
        return others_ ? Part::none : Part::all;
      layers = layers || (has_range_[i] && selected_layers(name, patterns_[i]).dim >= 0);
    }
    return layers ? Part::layers : others_ ? Part::all : Part::none;
  }
  constexpr bool contain(std::string_view name) const { return part_of(name) == Part::all; }
  /// Whether the i-th pattern selects any elements of a tensor.
  constexpr bool selects(std::size_t i, std::string_view name) const {
    return matches_pattern(name, patterns_[i]) ||
           (has_range_[i] && (matches_in_range(name, patterns_[i]) || selected_layers(name, patterns_[i]).dim >= 0));
  }
  /// All parameters that are not in this set: `nn::Names("*.lora_?").others()`.
  constexpr Names others() const {
    Names made = *this;
    made.others_ = !others_;
    return made;
  }
  constexpr std::size_t size() const { return count_; }
  constexpr std::string_view pattern(std::size_t i) const { return patterns_[i]; }
  constexpr bool are_others() const { return others_; }

 private:
  std::array<std::string_view, max_patterns> patterns_;
  std::array<bool, max_patterns> has_range_{};  // a part that is a number or a range of layers
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
constexpr Value traced(const Value& value, Source source) {
  if (value.module == nullptr)
    fail(errc::unsupported, "[freeze] outside of a traced function: call freeze in a function of ts::compile", source);
  return here(value).at(source);
}
template <class Type> constexpr Value traced_value(const Type& leaf, Source source) {
  return traced(tessera::detail::value_behind(leaf), source);
}

/// Which patterns of a set name a floating-point tensor of a model, whose names are added one after the other.
class UsedPatterns {
 public:
  static constexpr const char* rule =
      "[names] pattern: it names no floating-point tensor of the model; the tensors of a Stack are named "
      "blocks.*.mlp.up.weight, blocks.3.mlp.up.weight or blocks.0-5.mlp.up.weight";

  constexpr explicit UsedPatterns(const Names& names) : names_(names) {}
  constexpr void add(std::string_view name) {
    for (std::size_t i = 0; i < names_.size(); ++i) used_[i] = used_[i] || names_.selects(i, name);
  }
  /// The same for a tensor of a Stack. Errors: `option` for a layer that the Stack lacks.
  constexpr void add(std::string_view name, std::int64_t layers, Source source) {
    add(name);
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (const LayerRange range = selected_layers(name, names_.pattern(i)); range.dim >= 0 && range.last >= layers)
        ops::fail_layer(range.last, layers, source);
  }
  /// Errors: `option` for a pattern that names none.
  constexpr void require_all(const char* function, Source source) const {
    for_each_unused(
        [&](std::string_view pattern) { fail(errc::option, rule, ": ", pattern, " in ", function, source); });
  }
  /// Calls f(pattern) for the patterns that name none.
  template <class F> constexpr void for_each_unused(const F& f) const {
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (!used_[i]) f(names_.pattern(i));
  }

 private:
  const Names& names_;
  std::array<bool, Names::max_patterns> used_{};
};
/// Refuses a pattern that names no floating-point tensor of a traced model.
template <class Model> constexpr void check_names(const Model& model, const Names& names, Source source) {
  UsedPatterns used(names);
  Value any;
  for_each_traced_parameter(model, [&](std::string_view name, const auto& leaf) {
    any = traced_value(leaf, source);
    used.add(name);
  });
  if (any.module == nullptr) return;
  used.for_each_unused([&](std::string_view pattern) { any.refuse(errc::option, UsedPatterns::rule, pattern); });
}

/// For the elements of a traced tensor of a Stack, whether they are in layers of the set.
constexpr Value in_layers(const Names& names, std::string_view name, Value like) {
  Value any;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const LayerRange range = selected_layers(name, names.pattern(i));
    if (range.dim < 0) continue;
    build::require_layer(like, range.dim, range.last);
    const Value layer = build::iota(like, range.dim, DType::i32);
    const auto number = [&](std::int64_t of) { return layer.integer(of, DType::i32); };
    const Value own = build::logical_and(build::greater_equal(layer, number(range.first)),
                                         build::less_equal(layer, number(range.last)));
    any = any.module == nullptr ? own : build::logical_or(any, own);
  }
  return names.are_others() ? build::logical_not(any) : any;
}
/// A traced tensor whose elements in the set get no gradients.
template <class Type>
constexpr Type frozen_leaf(const Names& frozen, std::string_view name, const Type& leaf, Source source) {
  const Names::Part part = frozen.part_of(name);
  if (part == Names::Part::none) return leaf;
  const Value own = traced_value(leaf, source);
  if (part == Names::Part::all) return Type(stop_gradient(Sym<typename Type::element, Type::rank>(own)).value);
  const Value g = build::variable_like(own);
  const Value kept = build::select(in_layers(frozen, name, own), g.number(0), g);
  return Type(build::with_gradients<1>(own, g, {own}, {kept}));
}
/// Takes the elements of a traced tensor that are in the set from `before`, and all others from `after`, in the
/// sharding of `before`.
template <class Type>
constexpr Type kept_leaf(const Names& frozen, std::string_view name, const Value& before, const Type& after,
                         Source source) {
  const Names::Part part = frozen.part_of(name);
  if (part == Names::Part::none) return after;
  const Value own = traced(before, source);
  if (part == Names::Part::all) return Type(own);
  const Value moved = traced_value(after, source);
  return Type(build::alike(build::select(in_layers(frozen, name, moved), own, moved), own, {.exactly = true}));
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
/// these tensors are zeros, and operations that only they need are not computed. If some layers of a Stack are frozen,
/// the whole gradient of its tensors is computed, and is zero for these layers. Call keep_frozen after the update,
/// since weight decay would change the tensors.
///
///     constexpr nn::Names frozen("tokens.*");
///     const auto loss_of = [&](const auto& m, const auto& in, const auto& out) {
///       return ts::cross_entropy(nn::freeze(m, frozen)(in), out);
///     };
///     const auto [loss, gradient] = ts::value_and_grad(loss_of)(model, x, t);
///     const auto [moved, moved_state] = ts::adamw(model, gradient, state, config);
///     const auto [next, next_state] = nn::keep_frozen(frozen, model, moved, state, moved_state);
/// Errors: `option` for a pattern that matches no floating-point tensor of the model, and, when the program is planned,
/// for a layer that the Stack lacks. Communication: none.
template <class Model> constexpr Model freeze(Model model, const Names& frozen, Here at = Here::current()) {
  const Source source = Source::from(at);
  detail::check_names(model, frozen, source);
  detail::for_each_traced_parameter(
      model, [&](std::string_view name, auto& leaf) { leaf = detail::frozen_leaf(frozen, name, leaf, source); });
  return model;
}

namespace detail {

template <class Model>
constexpr Model kept_model(const Names& frozen, const Model& before, Model after, Source source) {
  Growable<Value> kept;
  for_each_traced_parameter(
      before, [&](std::string_view, const auto& leaf) { kept.push_back(tessera::detail::value_behind(leaf)); });
  std::size_t next = 0;
  for_each_traced_parameter(
      after, [&](std::string_view name, auto& leaf) { leaf = kept_leaf(frozen, name, kept[next++], leaf, source); });
  return after;
}
template <class Model, class State>
constexpr State kept_state(const Names& frozen, const State& before, State after, Source source) {
  Growable<Value> kept;
  const auto collect = [&](const Model& moments) {
    for_each_traced_parameter(
        moments, [&](std::string_view, const auto& leaf) { kept.push_back(tessera::detail::value_behind(leaf)); });
  };
  for_each_model_in<Model>(before, collect);
  std::size_t next = 0;
  const auto replace = [&](Model& moments) {
    for_each_traced_parameter(moments, [&](std::string_view name, auto& leaf) {
      leaf = kept_leaf(frozen, name, kept[next++], leaf, source);
    });
  };
  for_each_model_in<Model>(after, replace);
  return after;
}

}  // namespace detail

/// In a traced function: `after`, with the tensors in `frozen` replaced by those of `before`. Their updates are not
/// computed.
template <class Model>
constexpr Model keep_frozen(const Names& frozen, const Model& before, const Model& after, Here at = Here::current()) {
  return detail::kept_model(frozen, before, after, Source::from(at));
}
/// The same for a model and its optimizer state: returns std::tuple(model, state), with unchanged moments of frozen
/// tensors.
template <class Model, class State>
constexpr auto keep_frozen(const Names& frozen, const Model& before, const Model& after, const State& state_before,
                           const State& state_after, Here at = Here::current()) {
  const Source source = Source::from(at);
  return std::tuple(detail::kept_model(frozen, before, after, source),
                    detail::kept_state<Model>(frozen, state_before, state_after, source));
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
