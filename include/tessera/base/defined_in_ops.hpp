#ifndef TESSERA_BASE_DEFINED_IN_OPS_HPP
#define TESSERA_BASE_DEFINED_IN_OPS_HPP
#include <tessera/base/push_macros.hpp>

/// Around the constexpr functions that graph/ declares and ops/ defines with its operations: clang warns about them in
/// a program that includes a header of graph/ and none of ops/, and traces nothing. Headers of all other folders
/// include the definitions, which tools/check_headers proves.
#ifdef __clang__
#define TESSERA_DEFINED_IN_OPS_BEGIN \
  _Pragma("clang diagnostic push") _Pragma("clang diagnostic ignored \"-Wundefined-inline\"")
#define TESSERA_DEFINED_IN_OPS_END _Pragma("clang diagnostic pop")
#else
#define TESSERA_DEFINED_IN_OPS_BEGIN
#define TESSERA_DEFINED_IN_OPS_END
#endif

#include <tessera/base/pop_macros.hpp>

#endif
