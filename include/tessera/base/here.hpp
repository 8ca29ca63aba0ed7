#ifndef TESSERA_BASE_HERE_HPP
#define TESSERA_BASE_HERE_HPP
#include <tessera/base/push_macros.hpp>

#include <source_location>

namespace tessera {

/// The line of the user's program, as the last argument of operations: `Here at = Here::current()`.
using Here = std::source_location;

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
