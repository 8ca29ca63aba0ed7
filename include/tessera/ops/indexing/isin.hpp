#ifndef TESSERA_OPS_INDEXING_ISIN_HPP
#define TESSERA_OPS_INDEXING_ISIN_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/reduction.hpp>

namespace tessera {

/// Which elements of x are elements of `set`, a tensor or a number (torch.isin, jnp.isin): bools in the shape of x.
/// Operands are promoted; NaN is in no set. Each element is compared with each of the set, without storing the results.
/// No gradient. Communication: where the set is split an all-reduce.
///
///     const auto stops = ts::isin(tokens, ends);
template <TensorArgument X, Operand Set> constexpr auto isin(const X& x, const Set& set, Here at = Here::current()) {
  if constexpr (!TensorOperand<Set>) {
    return equal(x, set, at);
  } else if constexpr (Set::rank == 0) {
    return equal(x, set, at);
  } else {
    const auto elements = [&] {
      if constexpr (Set::rank == 1)
        return set;
      else
        return merge_dims<0, Set::rank - 1>(set, at);
    }();
    return any<-1>(equal(unsqueeze<-1>(x, at), elements, at), at);
  }
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
