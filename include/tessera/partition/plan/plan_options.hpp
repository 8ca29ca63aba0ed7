#ifndef TESSERA_PARTITION_PLAN_PLAN_OPTIONS_HPP
#define TESSERA_PARTITION_PLAN_PLAN_OPTIONS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/inline_vector.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/partition/propagation/solve.hpp>

namespace tessera {

/// What a caller asks of a plan.
struct PlanOptions {
  const OutputRequest* outputs =
      nullptr;  ///< by output of the program; null: the planner chooses the shardings of outputs
  bool forbid_implicit_reshards = false;  ///< a reshard that no constraint requires is an error (`policy`)
  /// Mesh axes over which the shardings of results follow from those of operands by rules, see explicit_shardings.
  /// Other axes are automatic: propagation chooses.
  InlineVector<Name, max_axes> explicit_axes = {};
  /// Results are bitwise equal on every mesh and on one device: operands of sums are gathered and summed whole, so no
  /// partial values are added. docs/plans.md says what that costs.
  bool deterministic = false;
  /// Steps may run fused with the next step (see Fusion). false: each step ends before the next begins and stores its
  /// results, as in the reference of oracle mode.
  bool fuse_steps = true;
  /// the mesh whose axis sizes the program sees (ts::axis_size); null: the mesh that it is planned on
  const Mesh* sizes = nullptr;
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
