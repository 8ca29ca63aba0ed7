#ifndef TESSERA_OPTIM_GRADIENTS_TENSOR_NORM_HPP
#define TESSERA_OPTIM_GRADIENTS_TENSOR_NORM_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/graph/ir/value.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/reduce.hpp>

namespace tessera::optim::detail {

/// The Euclidean norm of a tensor of a model, of each layer of a Stack separately, with dims of extent 1; in f32 or
/// f64. `rank`: of one layer's tensor.
constexpr Value tensor_norm(Value of, int rank) {
  const Value v = of.dtype() == DType::f64 ? of : build::cast(of, DType::f32);
  if (rank == 0) return build::apply<ops::AbsOp>(v);
  const unsigned dims = ((1u << rank) - 1) << (v.rank() - rank);
  return build::apply<ops::SqrtOp>(build::sum_of(v * v, dims, true));
}

}  // namespace tessera::optim::detail

#include <tessera/base/pop_macros.hpp>

#endif
