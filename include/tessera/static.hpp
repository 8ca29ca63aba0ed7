#ifndef TESSERA_STATIC_HPP
#define TESSERA_STATIC_HPP
#include <tessera/base/push_macros.hpp>

/// Planning, asserting and printing: traces, gradients, units and plans as constants. No threads, nothing to link.

#include <tessera/graph/print.hpp>
#include <tessera/graph/value_and_grad.hpp>
#include <tessera/graph/verify.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/mesh/picture.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/mesh/sharding_spec.hpp>
#include <tessera/mesh/sharding_string.hpp>
#include <tessera/mesh/sub_mesh.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/ops/shard_map.hpp>
#include <tessera/partition/explain.hpp>
#include <tessera/partition/explicit_axes.hpp>
#include <tessera/partition/frozen_plan.hpp>
#include <tessera/partition/plan_diff.hpp>
#include <tessera/partition/plan_memory.hpp>
#include <tessera/partition/static_plan.hpp>
#include <tessera/partition/verify_plan.hpp>

#include <tessera/base/pop_macros.hpp>

#endif
