#ifndef TESSERA_GRAPH_TRACE_FUNCTION_CALL_HPP
#define TESSERA_GRAPH_TRACE_FUNCTION_CALL_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>

#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/body.hpp>
#include <tessera/graph/trace/expression/expr.hpp>

namespace tessera::detail {

/// A call of a function that is composed of others: while it exists, errors of the operations that are recorded name
/// the function too, and so do those of an expression of stored tensors that is made. Of nested calls that is the
/// outermost, which the user wrote. Tags have `function` instead.
class FunctionCall {
 public:
  constexpr FunctionCall(const char* name, const auto&... arguments) {
    (look(arguments), ...);
    if (module_ == nullptr) {
      if (!__builtin_is_constant_evaluated() && function_of_expressions == nullptr) {
        function_of_expressions = name;
        names_expressions_ = true;
      }
    } else if (module_->function == nullptr) {
      module_->function = name;
    } else {
      module_ = nullptr;
    }
  }
  constexpr ~FunctionCall() {
    if (module_ != nullptr) module_->function = nullptr;
    if (names_expressions_) function_of_expressions = nullptr;
  }
  FunctionCall(const FunctionCall&) = delete;
  FunctionCall& operator=(const FunctionCall&) = delete;

 private:
  Module* module_ = nullptr;
  bool names_expressions_ = false;

  template <class T> constexpr void look(const T& argument) {
    if constexpr (!std::is_arithmetic_v<T>)
      if (module_ == nullptr) module_ = trace_in(argument).module;
  }
};

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
