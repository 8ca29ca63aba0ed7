#ifndef TESSERA_TESTS_SUPPORT_SCALAR_OPS_HPP
#define TESSERA_TESTS_SUPPORT_SCALAR_OPS_HPP

#include <tessera/base/dtype.hpp>
#include <tessera/graph/ir/op.hpp>

/// Elementwise operations on one element, in double: the reference for kernels, folding and host scalars.
namespace oracle {

using tessera::DType;
using tessera::Op;

/// Applies an operation with operands of type `from` and a result of type `to`. Integer division truncates, and
/// division of an integer by 0 gives 0.
double apply(Op op, DType to, DType from, double a, double b, double c);

/// A real number cast to an integer type: rounded towards zero, the nearest integer of the type, 0 for NaN.
double to_integer(DType type, double number);

}  // namespace oracle

#endif
