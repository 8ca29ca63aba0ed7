#ifndef TESSERA_PARALLEL_CHECKPOINT_MODULE_HPP
#define TESSERA_PARALLEL_CHECKPOINT_MODULE_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/here.hpp>
#include <tessera/graph/trace/body.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/ops/checkpoint.hpp>

namespace tessera {

/// A model that recomputes its values in the backward pass instead of keeping them in memory: ts::checkpoint as a
/// wrapper. Parameters have the names of the model. Make it with checkpoint_module(), or write CheckpointModule<Block>
/// for a field of a model or the block of a Stack.
template <class Model, CheckpointPolicy policy = nothing_saveable> struct CheckpointModule {
  Model module;

  static constexpr std::array field_names{""};

  /// The model, called with the same arguments. Communication: that of the model, again in the gradient.
  TESSERA_LAYER_OPERATOR(called)

 private:
  template <class... Args> constexpr auto called(Here at, const Args&... args) const {
    const detail::LayerCall call(at, args...);
    using Result = decltype(module(args...));
    using Settled = decltype(detail::settle(std::declval<Result>()));
    if constexpr (!std::is_same_v<Result, Settled>) {
      return module(args...);  // an expression of stored tensors, which has no gradient
    } else {
      const Value context = detail::trace_in(module);
      if (context.module == nullptr) return module(args...);
      detail::OpenCheckpoint region(context, policy);
      Result result = module(args...);
      region.close();
      return result;
    }
  }
};

/// Wraps a model, as checkpoint_module of PyTorch/XLA and checkpoint_wrapper of PyTorch. Put ts::fsdp around it: then
/// the backward pass gathers parameters again and recomputes the values. Communication: none.
///
///     auto wrapped = ts::fsdp(ts::checkpoint_module(model), mesh);
///     auto some = ts::checkpoint_module<ts::dots_saveable>(model);   // products are kept
template <CheckpointPolicy policy = nothing_saveable, class Model>
CheckpointModule<Model, policy> checkpoint_module(Model model) {
  return {std::move(model)};
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
