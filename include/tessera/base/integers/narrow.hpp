#ifndef TESSERA_BASE_INTEGERS_NARROW_HPP
#define TESSERA_BASE_INTEGERS_NARROW_HPP
#include <tessera/base/push_macros.hpp>

#include <limits>

#include <tessera/base/error.hpp>

namespace tessera {

/// Converts an integer to a narrower type. Errors: `capacity` if it does not fit; `what` says what is too many.
template <class To, class From> constexpr To narrow(From value, const char* what) {
  const To made = static_cast<To>(value);
  if (static_cast<From>(made) != value || (made < To{}) != (value < From{}))
    fail(errc::capacity, what, ": ", value, " is outside the range ", std::numeric_limits<To>::min(), " to ",
         std::numeric_limits<To>::max());
  return made;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
