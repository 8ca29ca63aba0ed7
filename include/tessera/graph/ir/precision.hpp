#ifndef TESSERA_GRAPH_IR_PRECISION_HPP
#define TESSERA_GRAPH_IR_PRECISION_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/graph/ir/graph.hpp>
#include <tessera/graph/ir/op.hpp>

namespace tessera {

/// How a product of f32 is computed: as such, or from 1, 3 or 6 products of bf16 that are summed in f32, which are fast
/// where the processor has matrix registers (AMX) and slow elsewhere.
///
/// An operand is the sum of one, two or three numbers of bf16; pairs that matter less are left out. Of each term a b of
/// a sum, the error is at most |a b| times 2^-8 (bf16), 2^-16 (bf16_x3) or 2^-25 (bf16_x6), and that of summing in f32
/// comes to it. Numbers below 2^-100 lose more; infinities become NaN. Gradients are computed likewise.
enum class Precision : std::uint8_t { full = 0, bf16 = 1, bf16_x3 = 3, bf16_x6 = 6 };

namespace detail {

/// Writes an einsum of f32 as products of the pieces of its operands, the smallest first. Returns their sum.
constexpr int split_product(Graph& made, const Node& node, const std::int32_t* operands) {
  constexpr int most = 3;
  const auto precision = static_cast<Precision>(node.index());
  const int count = precision == Precision::bf16_x6 ? 3 : precision == Precision::bf16_x3 ? 2 : 1;
  std::int32_t pieces[2][most]{};
  for (int k = 0; k < 2; ++k) {
    std::int32_t rest = operands[k];
    Node type = made[rest];
    type = {.op = Op::cast, .rank = type.rank, .unit = type.unit, .derived = node.derived, .source = node.source};
    for (int p = 0; p < count; ++p) {
      type.op = Op::cast;
      type.dtype = DType::bf16;
      pieces[k][p] = made.add(type, {rest});
      if (p + 1 == count) break;
      type.dtype = DType::f32;
      const std::int32_t taken = made.add(type, {pieces[k][p]});
      type.op = Op::sub;
      rest = made.add(type, {rest, taken});
    }
  }
  const Node add{.op = Op::add,
                 .dtype = node.dtype,
                 .rank = node.rank,
                 .unit = node.unit,
                 .derived = node.derived,
                 .source = node.source};
  std::int32_t sum = -1;
  for (int order = count - 1; order >= 0; --order)
    for (int p = order; p >= 0; --p) {
      const std::int32_t product = made.add(node, {pieces[0][p], pieces[1][order - p]});
      sum = sum < 0 ? product : made.add(add, {sum, product});
    }
  return sum;
}

}  // namespace detail

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
