#ifndef TESSERA_OPTIM_OPTIMIZER_CALL_HPP
#define TESSERA_OPTIM_OPTIMIZER_CALL_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/function_call.hpp>
#include <tessera/optim/tree_map.hpp>

namespace tessera::optim::detail {

/// A call of an optimizer, whose operations have its name. Errors: `unsupported` for a model outside of a trace.
class OptimizerCall {
 public:
  constexpr OptimizerCall(const char* optimizer, const auto& model, Here at) : named_(optimizer, model) {
    require_traced(optimizer, "the optimizer", Source::from(at), model);
  }

 private:
  tessera::detail::FunctionCall named_;
};

}  // namespace tessera::optim::detail

#include <tessera/base/pop_macros.hpp>

#endif
