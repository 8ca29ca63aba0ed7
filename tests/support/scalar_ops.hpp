#ifndef TESSERA_TESTS_SUPPORT_SCALAR_OPS_HPP
#define TESSERA_TESTS_SUPPORT_SCALAR_OPS_HPP

#include <tessera/base/dtype.hpp>
#include <tessera/graph/ir/op.hpp>

/// What elementwise operations mean, of one element, in double: the reference of every other way to compute them.
namespace oracle {

using tessera::DType;
using tessera::Op;

/// Of an operation with operands of type `from` and a result of type `to`. Whole numbers are divided towards zero, and
/// by zero give 0.
double apply(Op op, DType to, DType from, double a, double b, double c);

}  // namespace oracle

#endif
