#ifndef TESSERA_OPTIM_UPDATE_HPP
#define TESSERA_OPTIM_UPDATE_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/graph/ir/attributes.hpp>
#include <tessera/graph/ir/node.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/settle.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
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

/// The parameter whose update is traced: converts hyper-parameters to its element type, at the user's line.
struct Updated {
  Value parameter;
  int rank;  ///< of one layer's tensor, for a tensor of a Stack

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
  return tree_map(
      [&](auto p, auto g, auto... s) {
        using S = decltype(p);
        const Value from = p.value.at(Source::from(at));
        return std::apply([](const auto&... made) { return std::tuple(S(made)...); },
                          f(Updated{from, S::rank}, from, g.value, s.value...));
      },
      model, tessera::detail::settle(gradients), states...);
}

/// The pattern of every optimizer: `update` of map_parameters returns the next parameter and its next states. A
/// parameter keeps its sharding, whatever that of its state is.
template <class F, class Model, class Gradients, class... States>
constexpr auto update_parameters(Here at, const F& update, const Model& model, const Gradients& gradients,
                                 const States&... states) {
  return map_parameters(
      at,
      [&](const Updated& x, const Value& p, const auto&... rest) {
        return std::apply(
            [&](const Value& next, const auto&... state) {
              return std::tuple(build::alike(next, p, {.exactly = true}), state...);
            },
            update(x, p, rest...));
      },
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
