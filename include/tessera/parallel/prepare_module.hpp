#ifndef TESSERA_PARALLEL_PREPARE_MODULE_HPP
#define TESSERA_PARALLEL_PREPARE_MODULE_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <type_traits>
#include <utility>

#include <tessera/base/here.hpp>
#include <tessera/graph/trace/body.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/ops/elementwise.hpp>

namespace tessera {

/// The planner chooses the shardings of arguments or of the result.
struct AsPlanned {
  template <class X> constexpr const X& operator()(const X& x) const { return x; }
};

/// A layer whose arguments or result are resharded. Parameters have the names of the layer. Make it with
/// prepare_module_input() and prepare_module_output().
template <class Model, class Input, class Output> struct PrepareModule {
  static_assert(std::is_empty_v<Input> && std::is_empty_v<Output> && std::is_default_constructible_v<Input> &&
                    std::is_default_constructible_v<Output>,
                "tessera: the function of a prepared module is traced by the compiler, so it can't capture variables");
  Model module;

  static constexpr std::array field_names{""};

  TESSERA_LAYER_OPERATOR(called)

 private:
  template <class... Args> constexpr auto called(Here at, const Args&... args) const {
    const detail::LayerCall call(at, args...);
    using Result = decltype(module(args...));
    if constexpr (!std::is_same_v<Result, decltype(detail::settle(std::declval<Result>()))>)
      return module(args...);  // an expression of stored tensors, which is traced later
    else
      return Output{}(module(Input{}(args)...));
  }
};

/// A layer whose arguments are resharded before the call, as PrepareModuleInput of PyTorch: f is called with each.
/// Communication: the reshards of arguments whose sharding changes.
///
///     auto layer = ts::prepare_module_input(mlp, [](const auto& x) { return ts::with_sharding(x, {"data"}); });
template <class Model, class F> PrepareModule<Model, F, AsPlanned> prepare_module_input(Model model, const F&) {
  return {std::move(model)};
}
/// A layer whose result is resharded, as PrepareModuleOutput of PyTorch. Communication: the reshard.
template <class Model, class F> PrepareModule<Model, AsPlanned, F> prepare_module_output(Model model, const F&) {
  return {std::move(model)};
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
