#ifndef TESSERA_GRAPH_TRACE_LAYER_CALL_HPP
#define TESSERA_GRAPH_TRACE_LAYER_CALL_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/body.hpp>

namespace tessera::detail {

/// A call of a layer of the library: while it exists, operations that are recorded by lines of the library have the
/// line of the call. Of nested calls that is the innermost of the user's program.
class LayerCall {
 public:
  constexpr LayerCall(const auto& argument, Here at) : module_(trace_in(argument).module) {
    if (module_ == nullptr) return;  // no trace: an expression of stored tensors
    before_ = module_->layer_call;
    const Source call = Source::from(at);
    if (call.line != 0 && !call.in_library()) module_->layer_call = call;
  }
  constexpr ~LayerCall() {
    if (module_ != nullptr) module_->layer_call = before_;
  }
  LayerCall(const LayerCall&) = delete;
  LayerCall& operator=(const LayerCall&) = delete;

 private:
  Module* module_;
  Source before_{};
};

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
