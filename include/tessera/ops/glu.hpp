#ifndef TESSERA_OPS_GLU_HPP
#define TESSERA_OPS_GLU_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/ops/data_movement/stack.hpp>
#include <tessera/ops/elementwise.hpp>

namespace tessera {

namespace detail {

/// The product of the halves of a dim.
template <int Rank, int D> struct GluTag : Binary<ops::MulOp> {
  static constexpr const char* function = "glu";
  static constexpr Value emit(Value context, Value value, Value gate) {
    build::same_extents(value.at(context.source), value.shifted(D, Rank), gate, gate.shifted(D, Rank), 1,
                        build::ExtentsOf::halves);
    return Binary<ops::MulOp>::emit(context, value, gate);
  }
};

}  // namespace detail

/// The gated linear unit, as torch.nn.functional.glu: the first half of dim D, by default the last, times the sigmoid
/// of the second. [..., 2 n] gives [..., n]. x is floating or integer, of which the result is f32. Errors:
/// not_divisible for an odd extent. Communication: as slice; none along other dims. Source: Dauphin and others,
/// 1612.08083.
template <int D = -1, TensorArgument X> constexpr auto glu(const X& x, Here at = Here::current()) {
  const auto [value, gate] = chunk<2, D>(x, at);
  return call<detail::GluTag<X::rank, detail::checked_dim<D, X::rank>()>>(Source::from(at), value, sigmoid(gate, at));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
