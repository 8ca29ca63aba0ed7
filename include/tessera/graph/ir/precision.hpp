#ifndef TESSERA_GRAPH_IR_PRECISION_HPP
#define TESSERA_GRAPH_IR_PRECISION_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

namespace tessera {

/// How a product of f32 is computed: as such, or from 1, 3 or 6 products of bf16 that are summed in f32, which are fast
/// where the processor has matrix registers (AMX) and slow elsewhere.
///
/// An operand is the sum of one, two or three numbers of bf16; pairs that matter less are left out. Of each term a b of
/// a sum, the error is at most |a b| times 2^-8 (bf16), 2^-16 (bf16_x3) or 2^-25 (bf16_x6), and that of summing in f32
/// comes to it. Numbers below 2^-100 lose more; infinities become NaN. Gradients are computed likewise.
enum class Precision : std::uint8_t { full = 0, bf16 = 1, bf16_x3 = 3, bf16_x6 = 6 };

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
