#ifndef TESSERA_OPS_CONTRACTION_PRODUCT_OPERAND_HPP
#define TESSERA_OPS_CONTRACTION_PRODUCT_OPERAND_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/graph/ir/value.hpp>
#include <tessera/ops/elementwise.hpp>

namespace tessera::build {

/// x as an operand of a product: an f32 value is rounded to the element type that ts::autocast sets.
constexpr Value product_operand(Value x) {
  return x.dtype() == DType::f32 ? build::cast(x, x.module->product_type) : x;
}

}  // namespace tessera::build

#include <tessera/base/pop_macros.hpp>

#endif
