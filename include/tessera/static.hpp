#ifndef TESSERA_STATIC_HPP
#define TESSERA_STATIC_HPP
#include <tessera/base/push_macros.hpp>

/// Compile-time planning: traces, gradients and plans as constants, for static_assert and for printing. Needs no
/// threads and nothing to link.

#include <tessera/graph/ir/print.hpp>
#include <tessera/graph/ir/verify.hpp>
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/mesh/picture.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/mesh/sharding_spec.hpp>
#include <tessera/mesh/sharding_string.hpp>
#include <tessera/mesh/sub_mesh.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/ops/shard_map/shard_map.hpp>
#include <tessera/partition/plan/explain.hpp>
#include <tessera/partition/plan/frozen_plan.hpp>
#include <tessera/partition/plan/plan_diff.hpp>
#include <tessera/partition/plan/plan_memory.hpp>
#include <tessera/partition/plan/static_plan.hpp>
#include <tessera/partition/plan/verify_plan.hpp>
#include <tessera/partition/propagation/explicit_axes.hpp>

#include <tessera/base/pop_macros.hpp>

#endif
