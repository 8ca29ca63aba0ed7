#ifndef TESSERA_OPS_ELEMENTWISE_OPERATIONS_HPP
#define TESSERA_OPS_ELEMENTWISE_OPERATIONS_HPP
#include <tessera/base/push_macros.hpp>

#include <utility>

#include <tessera/ops/elementwise/activation.hpp>
#include <tessera/ops/elementwise/arithmetic.hpp>
#include <tessera/ops/elementwise/comparison.hpp>
#include <tessera/ops/elementwise/exponential.hpp>
#include <tessera/ops/elementwise/gcd.hpp>
#include <tessera/ops/elementwise/incomplete_gamma.hpp>
#include <tessera/ops/elementwise/integer.hpp>
#include <tessera/ops/elementwise/nextafter.hpp>
#include <tessera/ops/elementwise/rounding.hpp>
#include <tessera/ops/elementwise/select.hpp>
#include <tessera/ops/elementwise/special.hpp>
#include <tessera/ops/elementwise/trigonometric.hpp>
#include <tessera/ops/random/key_rows.hpp>

namespace tessera::ops {

using ElementwiseOperations = JoinedLists<ArithmeticOperations, ComparisonOperations, ExponentialOperations,
                                          ActivationOperations, IntegerOperations, RoundingOperations, SelectOperations,
                                          SpecialOperations, TrigonometricOperations>::type;

namespace detail {
template <Op Id, class Operation> struct OperationAt {
  using type = Operation;
};
template <class List> struct OperationMap;
template <class... Operation>
struct OperationMap<OperationList<Operation...>> : OperationAt<op_v<Operation>, Operation>... {};
using InKernels = JoinedLists<ElementwiseOperations, NextafterOperations, GcdOperations, IncompleteGammaOperations,
                              KeyOperations>::type;
template <Op Id, class Operation> OperationAt<Id, Operation> find_operation(const OperationAt<Id, Operation>&);
}  // namespace detail

/// The elementwise operation with this id.
template <Op Id>
using elementwise_operation =
    typename decltype(detail::find_operation<Id>(std::declval<detail::OperationMap<detail::InKernels>>()))::type;

}  // namespace tessera::ops

#include <tessera/base/pop_macros.hpp>

#endif
