#ifndef TESSERA_INTEROP_COMPLEX_HPP
#define TESSERA_INTEROP_COMPLEX_HPP
#include <tessera/base/push_macros.hpp>

namespace tessera {

/// A complex tensor, as a pair of tensors, since there is no complex element type.
template <class Real, class Imag> struct Complex {
  Real real;
  Imag imag;
};

namespace detail {
template <class Real, class Imag> constexpr auto complex_of(const Real& real, const Imag& imag) {
  return Complex<Real, Imag>{real, imag};
}
}  // namespace detail

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
