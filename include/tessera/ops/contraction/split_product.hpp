#ifndef TESSERA_OPS_CONTRACTION_SPLIT_PRODUCT_HPP
#define TESSERA_OPS_CONTRACTION_SPLIT_PRODUCT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/graph/ir/graph.hpp>
#include <tessera/graph/ir/precision.hpp>

namespace tessera::ops {

/// Writes an f32 einsum as einsums of bf16 parts of its operands (see Precision), summed from the smallest on.
constexpr int split_product(Graph& made, const Node& node, const std::int32_t* operands) {
  constexpr int most = 3;
  const auto precision = static_cast<Precision>(node.index());
  const int count = precision == Precision::bf16_x6 ? 3 : precision == Precision::bf16_x3 ? 2 : 1;
  std::int32_t pieces[2][most]{};
  for (int k = 0; k < 2; ++k) {
    std::int32_t rest = operands[k];
    Node type = made[rest];
    type = {.op = Op::cast,
            .rank = type.rank,
            .singletons = type.singletons,
            .derived = node.derived,
            .source = node.source};
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
                 .singletons = node.singletons,
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

}  // namespace tessera::ops

#include <tessera/base/pop_macros.hpp>

#endif
