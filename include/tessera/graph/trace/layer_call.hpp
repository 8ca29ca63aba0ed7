#ifndef TESSERA_GRAPH_TRACE_LAYER_CALL_HPP
#define TESSERA_GRAPH_TRACE_LAYER_CALL_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>

#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/body.hpp>

namespace tessera::detail {

/// A call of a layer of the library: while it exists, operations that are recorded by lines of the library have the
/// line of the call. Of nested calls that is the innermost of the user's program.
class LayerCall {
 public:
  constexpr LayerCall(Here at, const auto&... arguments) {
    (look(arguments), ...);
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
  Module* module_ = nullptr;
  Source before_{};

  template <class T> constexpr void look(const T& argument) {
    if constexpr (!std::is_arithmetic_v<T>)
      if (module_ == nullptr) module_ = trace_in(argument).module;
  }
};

}  // namespace tessera::detail

/// The call operator of a layer that takes any arguments, and passes the line of the call and then these to `called`.
/// Parameters after a pack have no default, so there is an operator for each number of arguments; calls with more than
/// six have no line.
#define TESSERA_LAYER_OPERATOR(called)                                                                                \
  template <class A> constexpr auto operator()(const A& a, Here at = Here::current()) const { return called(at, a); } \
  template <class A, class B> constexpr auto operator()(const A& a, const B& b, Here at = Here::current()) const {    \
    return called(at, a, b);                                                                                          \
  }                                                                                                                   \
  template <class A, class B, class C>                                                                                \
  constexpr auto operator()(const A& a, const B& b, const C& c, Here at = Here::current()) const {                    \
    return called(at, a, b, c);                                                                                       \
  }                                                                                                                   \
  template <class A, class B, class C, class D>                                                                       \
  constexpr auto operator()(const A& a, const B& b, const C& c, const D& d, Here at = Here::current()) const {        \
    return called(at, a, b, c, d);                                                                                    \
  }                                                                                                                   \
  template <class A, class B, class C, class D, class E>                                                              \
  constexpr auto operator()(const A& a, const B& b, const C& c, const D& d, const E& e, Here at = Here::current())    \
      const {                                                                                                         \
    return called(at, a, b, c, d, e);                                                                                 \
  }                                                                                                                   \
  template <class A, class B, class C, class D, class E, class F>                                                     \
  constexpr auto operator()(const A& a, const B& b, const C& c, const D& d, const E& e, const F& f,                   \
                            Here at = Here::current()) const {                                                        \
    return called(at, a, b, c, d, e, f);                                                                              \
  }                                                                                                                   \
  template <class... Args>                                                                                            \
    requires(sizeof...(Args) == 0 || sizeof...(Args) > 6)                                                             \
  constexpr auto operator()(const Args&... args) const {                                                              \
    return called(Here(), args...);                                                                                   \
  }

#include <tessera/base/pop_macros.hpp>

#endif
