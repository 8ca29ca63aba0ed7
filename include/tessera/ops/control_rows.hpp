#ifndef TESSERA_OPS_CONTROL_ROWS_HPP
#define TESSERA_OPS_CONTROL_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/graph/repeat_gradient.hpp>
#include <tessera/ops/operation.hpp>

namespace tessera::ops {

struct RepeatOp {
  static constexpr OpRow row{.name = "repeat", .kind = OpKind::control, .arity = any_arity, .flops = 0};
  static constexpr GradientRule gradient = repeat_gradient;
};

// The repeat reads the cotangents of its projections.
struct ProjectOp {
  static constexpr OpRow row{
      .name = "project", .kind = OpKind::control, .arity = 1, .linear = Linearity::first, .flops = 0};
};

using ControlOperations = OperationList<RepeatOp, ProjectOp>;

}  // namespace tessera::ops

#include <tessera/base/pop_macros.hpp>

#endif
