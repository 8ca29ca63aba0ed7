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
  bool forbid_implicit_reshards = false;  ///< a reshard that no constraint asks for is an error (`policy`)
  /// Mesh axes over which results are sharded as their operands are, see explicit_shardings. Others are automatic.
  InlineVector<Name, max_axes> explicit_axes = {};
  /// Results are the same to the bit on every mesh, and on one device: what is summed is gathered and summed whole, so
  /// no partial value is ever added up. See docs/spmd.md for what it costs.
  bool deterministic = false;
  /// Steps may run fused with the one that follows (see Fusion). false: each ends before the next begins, and stores
  /// what it makes, as the reference of oracle mode does.
  bool fuse_steps = true;
  const Mesh* sizes = nullptr;  ///< whose axes' sizes the program is told; null: those of the mesh it is planned on
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
