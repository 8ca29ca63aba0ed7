#ifndef TESSERA_OPS_CUSTOM_GIVEN_GRADIENT_HPP
#define TESSERA_OPS_CUSTOM_GIVEN_GRADIENT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/graph/transform/primals.hpp>
#include <tessera/ops/elementwise/select.hpp>
#include <tessera/ops/gradient_rows.hpp>
#include <tessera/ops/rows.hpp>

// For compositions whose gradient is cheaper than that of their operations; users have ts::custom_vjp.

namespace tessera::build {

/// The cotangent of y on which its gradient is written.
constexpr Value variable_like(Value y) { return detail::as_variable(broadcast(y.number(0), y)); }

/// y, whose gradients with respect to `values` are given: functions of `cotangent`, the variable_like(y). They may have
/// fewer dims than the values, or singleton dims. Other operands of y get no cotangent.
template <int Count>
constexpr Value with_gradients(Value y, Value cotangent, const Value (&values)[Count],
                               const Value (&gradients)[Count]) {
  const Node& from = y.node();
  std::int32_t ids[2 + 2 * Count]{y.id, cotangent.id};
  for (int i = 0; i < Count; ++i) ids[2 + i] = values[i].id, ids[2 + Count + i] = gradients[i].id;
  return y.make({.op = Op::custom_gradient,
                 .dtype = from.dtype,
                 .rank = from.rank,
                 .singletons = from.singletons,
                 .labels = CustomGradient{Count, 1}.pack()},
                ids, 2 + 2 * Count);
}

/// x, as a value that is not that of the forward pass, to be read once `after` is known: what a gradient computes from
/// it is computed again, where a value of two kernels would be stored by the first of them.
constexpr Value read_again(Value x, Value after) {
  const Node& from = x.node();
  return x.make({.op = Op::barrier, .dtype = from.dtype, .rank = from.rank, .singletons = from.singletons},
                {x.id, after.id});
}

}  // namespace tessera::build

#include <tessera/base/pop_macros.hpp>

#endif
