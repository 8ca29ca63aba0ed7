#ifndef TESSERA_GRAPH_TRANSFORM_VALUE_AND_GRAD_HPP
#define TESSERA_GRAPH_TRANSFORM_VALUE_AND_GRAD_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <tuple>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/trace/trace.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

struct CollectSources {
  Growable<std::int32_t> ids;
  Value context{};
  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    Value value;
    if constexpr (SymOperand<std::remove_const_t<Leaf>>)
      value = leaf.value;
    else if constexpr (StoredOperand<std::remove_const_t<Leaf>>)
      value = leaf.placeholder();
    else
      return;
    if (!is_floating(value.dtype())) return;
    value = here(value);
    ids.push_back(value.id);
    context = value;
  }
  constexpr void enter_stack(auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};

/// A loss may also be a field of a struct, or the result of a compiled function: both are ShardedTensors.
template <class T> constexpr auto as_scalar(const T& loss) {
  if constexpr (StoredOperand<T>)
    return as_sym(loss);
  else
    return loss;
}

/// Replaces floating tensors by their gradients. Other leaves (Dims, Scalars, integer tensors) stay.
struct ReplaceLeaves {
  const Growable<std::int32_t>& ids;
  Value context;
  std::size_t next = 0;
  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    if constexpr (SymOperand<Leaf> || StoredOperand<Leaf>) {
      Value value;
      if constexpr (SymOperand<Leaf>)
        value = leaf.value;
      else
        value = leaf.placeholder();
      if (is_floating(value.dtype())) leaf = Leaf(context.with(ids[next++]));
    }
  }
  constexpr void enter_stack(auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};

}  // namespace detail

/// Inside a traced function: value_and_grad(f)(first, rest...) returns (f(first, rest...), gradient), where the
/// gradient is that of f's result with respect to the tensors of `first`.
///
/// f returns a rank-0 tensor, or a tuple that begins with one. The gradient has the type and the shapes of `first`;
/// a field without gradient (a Dim, a Scalar, an integer tensor) is copied. `rest` is held constant.
/// Errors: `structure` for a loss that has a value for each layer of a Stack.
/// Source: reverse-mode differentiation of the traced graph; no tape exists at run time.
template <class F> constexpr auto value_and_grad(F f) {
  return [f](const auto& first, const auto&... rest) {
    auto value = detail::settle(f(first, rest...));
    auto loss = [&] {
      if constexpr (detail::is_tuple_v<decltype(value)>)
        return detail::as_scalar(std::get<0>(value));
      else
        return detail::as_scalar(value);
    }();
    using Loss = decltype(loss);
    static_assert(SymOperand<Loss>,
                  "tessera: call ts::value_and_grad inside a traced function, and its result on traced arguments");
    static_assert(Loss::rank == 0,
                  "tessera: ts::value_and_grad needs a loss of rank 0; reduce the loss with ts::mean or ts::sum");
    if constexpr (Loss::rank == 0)  // otherwise a static_assert has failed
      if (loss.value.rank() != 0)
        loss.value.refuse(errc::structure, "[stack] loss: the loss is computed from a field of all layers, so it has a "
                                           "value for each layer, not a single value");
    detail::CollectSources sources;
    for_each_leaf(first, sources);
    const Growable<std::int32_t> gradients = differentiate(loss.value, sources.ids);
    auto gradient = first;
    detail::ReplaceLeaves replace{gradients, loss.value};
    for_each_leaf(gradient, replace);
    return std::tuple(value, gradient);
  };
}

/// Inside a traced function: the gradient alone.
template <class F> constexpr auto grad(F f) {
  return [f](const auto& first, const auto&... rest) { return std::get<1>(value_and_grad(f)(first, rest...)); };
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
