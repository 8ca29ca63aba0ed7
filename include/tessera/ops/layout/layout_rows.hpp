#ifndef TESSERA_OPS_LAYOUT_LAYOUT_ROWS_HPP
#define TESSERA_OPS_LAYOUT_LAYOUT_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/planning.hpp>
#include <tessera/ops/layout/rearrange_rows.hpp>
#include <tessera/ops/layout/slicing_rows.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::ops {

using LayoutOperations = OperationList<RearrangeOp, SliceOp, PadOp, ConcatOp, PermuteOp>;

}  // namespace tessera::ops

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
