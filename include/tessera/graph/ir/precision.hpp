#ifndef TESSERA_GRAPH_IR_PRECISION_HPP
#define TESSERA_GRAPH_IR_PRECISION_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

namespace tessera {

/// How products of f32 are computed: in f32, or as 1, 3 or 6 products of bf16 that are summed in f32. The products of
/// bf16 are fast on processors with matrix registers (AMX), and slow on others.
///
/// Each operand is split into a sum of one, two or three bf16 values; products of the less significant parts are left
/// out. For each term a * b of a sum, the error is at most |a b| times 2^-8 (bf16), 2^-16 (bf16_x3) or 2^-25 (bf16_x6),
/// plus the error of summing in f32. Operands below 2^-100 lose more; infinities become NaN. Gradients use the same
/// precision.
enum class Precision : std::uint8_t { full = 0, bf16 = 1, bf16_x3 = 3, bf16_x6 = 6 };

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
