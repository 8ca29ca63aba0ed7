#ifndef TESSERA_OPS_ELEMENTWISE_EACH_ELEMENT_HPP
#define TESSERA_OPS_ELEMENTWISE_EACH_ELEMENT_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>

#include <tessera/base/inline.hpp>

namespace tessera::ops {

/// A function of one element, or of two, applied to each of a vector or to a double: for what no vector unit does.
template <class F, class Batch, class... More>
TESSERA_INLINE Batch each_element(F f, const Batch& x, const More&... more) {
  if constexpr (std::is_same_v<Batch, double>) {
    return f(x, more...);
  } else {
    using T = typename Batch::value_type;
    T made[Batch::size], operands[1 + sizeof...(More)][Batch::size];
    int count = 0;
    x.store_unaligned(operands[count++]);
    (more.store_unaligned(operands[count++]), ...);
    for (unsigned i = 0; i < Batch::size; ++i)
      if constexpr (sizeof...(More) == 0)
        made[i] = static_cast<T>(f(operands[0][i]));
      else
        made[i] = static_cast<T>(f(operands[0][i], operands[1][i]));
    return Batch::load_unaligned(made);
  }
}

}  // namespace tessera::ops

#include <tessera/base/pop_macros.hpp>

#endif
