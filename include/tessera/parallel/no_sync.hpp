#ifndef TESSERA_PARALLEL_NO_SYNC_HPP
#define TESSERA_PARALLEL_NO_SYNC_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/dtype.hpp>
#include <tessera/base/fixed_string.hpp>
#include <tessera/ops/constraint.hpp>
#include <tessera/optim/tree_map.hpp>
#include <tessera/parallel/fsdp.hpp>

namespace tessera {

namespace detail {
constexpr FsdpPolicy gathered_policy(FsdpPolicy policy) {
  policy.reduce_dtype = DType::f32;
  return policy;
}
template <class T> inline constexpr bool reduces_rounded_v = false;
template <class Model, FsdpPolicy policy, class Output>
inline constexpr bool reduces_rounded_v<Fsdp<Model, policy, Output>> = policy.reduce_dtype != DType::f32;

/// Whether a model contains a wrapper that would round and reduce gradients in each microbatch.
template <class T> constexpr bool has_rounding_wrapper() {
  if constexpr (reduces_rounded_v<T>) {
    return true;
  } else if constexpr (is_stack_v<T> || is_array_v<T>) {
    return has_rounding_wrapper<std::remove_cvref_t<decltype(std::declval<const T&>()[0])>>();
  } else if constexpr (is_tuple_v<T>) {
    return []<class... Items>(std::type_identity<std::tuple<Items...>>) {
      return (has_rounding_wrapper<Items>() || ...);
    }(std::type_identity<T>{});
  } else if constexpr (!is_leaf_v<T> && !std::is_empty_v<T>) {
    bool found = false;
    T model{};
    for_each_field(model, [&]<class Field>(Field&) { found = found || has_rounding_wrapper<Field>(); });
    return found;
  } else {
    return false;
  }
}
}  // namespace detail

/// Inside a traced function: calls f with a wrapped model whose parameters are gathered once, and reduces the gradient
/// that f returns once, as no_sync of PyTorch's and PyTorch/XLA's FSDP, for gradients of several microbatches. f
/// returns (loss, gradient), as optim::accumulate does. So does no_sync, with the gradient in the shardings of the
/// parameters. While f runs, a device needs memory for whole parameters and gradients.
///
///     const auto [loss, gradient] = ts::no_sync(wrapped, [&](const auto& m) {
///       return ts::optim::accumulate<4>(loss_of)(m, x, y);
///     });
/// Communication: an all_gather of each parameter and a reduce_scatter of its gradient; none for them in f.
template <class Model, FsdpPolicy policy, class Output, class F>
constexpr auto no_sync(const Fsdp<Model, policy, Output>& wrapped, const F& f) {
  using Wrapper = Fsdp<Model, policy, Output>;
  static_assert(
      !detail::has_rounding_wrapper<Model>(),
      "tessera: inside of ts::no_sync gradients are reduced once, by the wrapper around the whole model: give "
      "the reduce_dtype to the policy of that wrapper, and none to the wrappers inside of the model");
  Fsdp<Model, detail::gathered_policy(policy), Output> gathered{wrapped.module};
  detail::VisitParameters<detail::GatherParameter<policy>> gather{};
  for_each_leaf(gathered, gather);
  const auto [loss, gradient] = f(std::as_const(gathered));
  static_assert(std::is_same_v<std::remove_cvref_t<decltype(gradient)>, std::remove_cvref_t<decltype(gathered)>>,
                "tessera: the function of no_sync returns a loss and the gradient by its model");
  return std::tuple(loss,
                    Wrapper{optim::tree_map(
                        [](auto g, auto p) { return decltype(g)(detail::reduced_as_stored<policy>(g.value, p.value)); },
                        gradient.module, wrapped.module)});
}

/// The same for a model that is not wrapped, with an optimizer state that is split over an axis (ZeroRedundancy): the
/// gradients that f returns are reduced once. Communication: a reduce_scatter of each gradient, or an all_reduce if it
/// has several readers, such as clipping.
///
///     const auto [loss, gradient] = ts::no_sync<"data">(model, [&](const auto& m) {
///       return ts::optim::accumulate<4>(loss_of)(m, x, y);
///     });
template <FixedString axis, class Model, class F> constexpr auto no_sync(const Model& model, const F& f) {
  const auto [loss, gradient] = f(model);
  return std::tuple(
      loss, optim::tree_map([](auto g) { return decltype(g)(detail::summed_over(g.value, axis.view())); }, gradient));
}

/// The same with gradients that are split like `moments`, a part of the state such as AdamWState::mean. Communication:
/// a reduce_scatter of each gradient, also if it has several readers.
///
///     const auto [loss, gradient] = ts::no_sync<"data">(model, state.mean, [&](const auto& m) {
///       return ts::optim::accumulate<4>(loss_of)(m, x, y);
///     });
///     const auto [clipped, norm] = ts::clip_grad_norm(gradient, 1.0);
template <FixedString axis, class Model, class F>
constexpr auto no_sync(const Model& model, const Model& moments, const F& f) {
  const auto [loss, gradient] = f(model);
  const auto reduced = [](auto g, auto moment) {
    return decltype(g)(build::alike(detail::summed_over(g.value, axis.view()), moment.value, {.exactly = true}));
  };
  return std::tuple(loss, optim::tree_map(reduced, gradient, moments));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
