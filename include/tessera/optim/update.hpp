#ifndef TESSERA_OPTIM_UPDATE_HPP
#define TESSERA_OPTIM_UPDATE_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/graph/ir/node.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/named_leaves.hpp>
#include <tessera/graph/trace/settle.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/graph/trace/tree.hpp>
#include <tessera/ops/constraint.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/optim/tree_map.hpp>

namespace tessera::optim {

namespace detail {
/// Whether gradients have the structure of a model; does not compile where they have not.
template <class Gradients, class Model> struct HaveStructure {
  using Settled = std::remove_const_t<decltype(tessera::detail::settle(std::declval<const Gradients&>()))>;
  static constexpr bool value = std::is_same_v<stored_t<Settled>, stored_t<Model>>;
  static_assert(value,
                "tessera: the gradients that an optimizer takes have the structure of the model: for a std::pair of a "
                "model and a tensor a std::pair of their gradients, with equal element types and ranks");
};
}  // namespace detail

/// Gradients of a model. Those of a tuple of tensors need not be of the model's type: an item may be a tensor of an
/// argument in the model, and computed by the traced function in the gradients.
template <class Gradients, class Model>
concept GradientsOf = detail::HaveStructure<Gradients, Model>::value;

namespace detail {

/// Gives each Stack of a model one layer, as in a trace.
struct OneLayer {
  constexpr void leaf(auto&) {}
  constexpr void enter_stack(auto& stack) { stack.layers().resize(1); }
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};
struct CollectParameterNames {
  Growable<char> letters{};
  template <class Leaf> constexpr void operator()(std::string_view name, Leaf&, int) {
    if constexpr (is_parameter_v<std::remove_const_t<Leaf>>) {
      for (const char c : name) letters.push_back(c);
      letters.push_back('\0');
    }
  }
};
/// The names of the floating-point tensors of a model, in order, each followed by a zero.
template <class Model> constexpr Growable<char> list_parameter_names() {
  Model model{};
  OneLayer one;
  for_each_leaf(model, one);
  CollectParameterNames names;
  tessera::detail::for_each_named_leaf(model, tessera::detail::VisitLayers::each_alike, names);
  return names.letters;
}
template <class Model>
inline constexpr auto parameter_names_v = [] {
  constexpr std::size_t size = [] {
    const Growable<char> list = list_parameter_names<Model>();
    return list.size();
  }();
  const Growable<char> list = list_parameter_names<Model>();
  std::array<char, size + 1> letters{};
  for (std::size_t i = 0; i < size; ++i) letters[i] = list[i];
  return letters;
}();
/// Gives the names of a model's parameters one after the other.
template <class Model> class NextName {
 public:
  constexpr const char* operator()() {
    const char* const name = at_;
    while (*at_++ != '\0') {
    }
    return name;
  }

 private:
  const char* at_ = parameter_names_v<Model>.data();
};

/// A value of an optimizer in the sharding of the parameter for which it is computed. Errors of the operations that
/// compute it name the parameter.
constexpr Value like_parameter(const Value& of, const Value& parameter, const char* name) {
  Value named = of;
  named.source.inside = name;
  return of.with(build::alike(named, parameter, {.exactly = true, .of_update = true}).id);
}

/// The parameter whose update is traced: converts hyper-parameters to its element type, at the user's line.
struct Updated {
  Value parameter;
  int rank;  ///< of one layer's tensor, for a tensor of a Stack
  const char* name;

  /// Weight decay applies to matrices, not to biases and gains.
  constexpr bool decays() const { return rank >= 2; }
  /// A hyper-parameter in f64, for arithmetic on the host.
  constexpr Value wide(const Scalar& of) const { return lower(parameter, of); }
  constexpr Value operator()(const Value& of) const { return build::cast(of, parameter.dtype()); }
  constexpr Value operator()(const Scalar& of) const { return (*this)(wide(of)); }

  /// The gradient of the loss and of decay / 2 times the squared parameter: weight decay that is coupled.
  constexpr Value decayed(const Scalar& decay, const Value& gradient) const {
    return (*this)(decay)*parameter + gradient;
  }
  /// A running mean after one more value: beta mean + (1 - beta) value, for a beta in f64.
  constexpr Value running_mean(const Value& beta, const Value& mean, const Value& value) const {
    return (*this)(beta)*mean + (*this)(1.0 - beta) * value;
  }
};

/// For each parameter p with gradient g, `f(x, p, g, states...)` returns a tuple of Values; x is the Updated of p.
/// Returns a tuple of models.
template <class F, class Model, class Gradients, class... States>
constexpr auto map_parameters(Here at, const F& f, const Model& model, const Gradients& gradients,
                              const States&... states) {
  NextName<Model> next_name;
  return tree_map(
      [&](auto p, auto g, auto... s) {
        using S = decltype(p);
        const Source source = Source::from(at);
        const Value from = p.value.at(source);
        return std::apply([](const auto&... made) { return std::tuple(S(made)...); },
                          f(Updated{from, S::rank, next_name()}, from, g.value.at(source), s.value.at(source)...));
      },
      model, tessera::detail::settle(gradients), states...);
}

/// The results of `update(x, p, rest...)`, the next parameter and its next states, for the Updated x of parameter p.
/// Arithmetic is in f32 for parameters in bf16 or f16, in which a beta of 0.999 would be 1, and an epsilon of 1e-8
/// would be 0. A parameter keeps its sharding, whatever that of its state is.
template <class F, class... Rest>
constexpr auto update_parameter(const Updated& x, const F& update, const Value& p, const Rest&... rest) {
  const DType type = p.dtype(), wide = computed_as(type);
  const Value from = build::cast(p, wide);
  return std::apply(
      [&](const Value& next, const auto&... state) {
        return std::tuple(like_parameter(build::cast(next, type), p, x.name), build::cast(state, type)...);
      },
      update(Updated{from, x.rank, x.name}, from, build::cast(rest, wide)...));
}

/// The pattern of every optimizer: map_parameters of update_parameter. Errors of operations on tensors of different
/// shapes, such as those of the state of another model, are `structure` and name the parameter.
template <class F, class Model, class Gradients, class... States>
constexpr auto update_parameters(Here at, const F& update, const Model& model, const Gradients& gradients,
                                 const States&... states) {
  return map_parameters(
      at,
      [&](const Updated& x, const Value& p, const auto&... rest) { return update_parameter(x, update, p, rest...); },
      model, gradients, states...);
}

/// The number of this step, for an optimizer whose state counts steps. Errors: structure for a model without
/// parameters.
template <class Model>
constexpr Scalar next_step(const char* optimizer, const Model& model, const Scalar& last, Here at) {
  const Growable<Value> any = parameters_of(model);
  if (any.empty()) fail(errc::structure, "[", optimizer, "] model: the model has no floating-point tensor");
  return Scalar(lower(any.front().at(Source::from(at)), last) + 1);
}

}  // namespace detail

}  // namespace tessera::optim

#include <tessera/base/pop_macros.hpp>

#endif
