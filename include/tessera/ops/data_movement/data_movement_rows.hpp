#ifndef TESSERA_OPS_DATA_MOVEMENT_DATA_MOVEMENT_ROWS_HPP
#define TESSERA_OPS_DATA_MOVEMENT_DATA_MOVEMENT_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/planning.hpp>
#include <tessera/ops/data_movement/rearrange_rows.hpp>
#include <tessera/ops/data_movement/slicing_rows.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::ops {

using DataMovementOperations = OperationList<RearrangeOp, SliceOp, PadOp, ConcatOp, FlipOp, PermuteOp>;

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
