#ifndef TESSERA_GRAPH_TRACE_REQUIRE_TRACE_HPP
#define TESSERA_GRAPH_TRACE_REQUIRE_TRACE_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>

#include <tessera/base/error.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/body.hpp>

namespace tessera::detail {

/// Throws unsupported. `called`: what the user calls, such as "ts::scan".
[[noreturn]] inline void fail_outside_of_trace(const char* function, const char* called, Source source) {
  fail(errc::unsupported, "[", function, "] outside of a traced function: call ", called,
       " inside a function of ts::compile", source);
}
/// Checks that an argument of a function that can't run on stored tensors is a value of a trace.
constexpr void require_trace(const char* function, const char* called, Source source, const auto&... arguments) {
  const auto is_traced = []<class T>(const T& argument) {
    if constexpr (std::is_arithmetic_v<T>)
      return false;
    else
      return trace_in(argument).module != nullptr;
  };
  if (!(is_traced(arguments) || ...)) fail_outside_of_trace(function, called, source);
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
