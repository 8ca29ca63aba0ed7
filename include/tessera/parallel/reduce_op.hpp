#ifndef TESSERA_PARALLEL_REDUCE_OP_HPP
#define TESSERA_PARALLEL_REDUCE_OP_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/base/monoid.hpp>

namespace tessera {

/// How a collective combines the values of several devices: a Reduction, or the average, which is a sum and a division.
/// Bitwise operations are for integers and bools; a Partial placement can't have them.
enum class ReduceOp : std::uint8_t { sum, avg, min, max, product, bit_and, bit_or };

/// The monoid that combines the partial values of a reduction.
constexpr Reduction reduction_of(ReduceOp op) {
  constexpr Reduction reductions[] = {Reduction::sum,     Reduction::sum,     Reduction::min,   Reduction::max,
                                      Reduction::product, Reduction::bit_and, Reduction::bit_or};
  return reductions[static_cast<std::size_t>(op)];
}
/// Whether the reduction of equal values is that value, as for max, min and avg.
constexpr bool is_idempotent(ReduceOp op) { return op == ReduceOp::avg || facts_of(reduction_of(op)).idempotent; }
/// The operation of a Reduction. Reduction::sum is ReduceOp::sum, never avg.
constexpr ReduceOp reduce_op_of(Reduction reduction) {
  for (int op = 0; op <= static_cast<int>(ReduceOp::bit_or); ++op)
    if (reduction_of(static_cast<ReduceOp>(op)) == reduction) return static_cast<ReduceOp>(op);
  return ReduceOp::sum;
}

constexpr std::string_view name_of(ReduceOp op) { return op == ReduceOp::avg ? "avg" : name_of(reduction_of(op)); }

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
