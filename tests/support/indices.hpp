#ifndef TESSERA_TESTS_SUPPORT_INDICES_HPP
#define TESSERA_TESTS_SUPPORT_INDICES_HPP

#include <cstddef>

#include <tessera/base/shape.hpp>

namespace tessera_test {

/// Visits every index of a box in row-major order.
template <class F> void for_each_index(const tessera::Shape& extents, F f) {
  if (tessera::volume(extents) == 0) return;
  tessera::Shape index(extents.size(), 0);
  for (;;) {
    f(index);
    std::size_t d = extents.size();
    while (d > 0 && ++index[d - 1] == extents[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace tessera_test

#endif
