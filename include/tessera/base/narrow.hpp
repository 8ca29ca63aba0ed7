#ifndef TESSERA_BASE_NARROW_HPP
#define TESSERA_BASE_NARROW_HPP
#include <tessera/base/push_macros.hpp>

#include <limits>

#include <tessera/base/error.hpp>

namespace tessera {

/// An integer in a narrower type. `what` is what there are too many of where it does not fit: capacity.
template <class To, class From> constexpr To narrow(From value, const char* what) {
  const To made = static_cast<To>(value);
  if (static_cast<From>(made) != value || (made < To{}) != (value < From{}))
    fail(errc::capacity, what, ": ", value, ", of which there can be ", std::numeric_limits<To>::max());
  return made;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
