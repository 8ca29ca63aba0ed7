#ifndef TESSERA_OPS_LAYOUT_LAYOUT_ROWS_HPP
#define TESSERA_OPS_LAYOUT_LAYOUT_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/layout/rearrange_rows.hpp>
#include <tessera/ops/layout/slicing_rows.hpp>

namespace tessera::ops {

using LayoutOperations = OperationList<RearrangeOp, SliceOp, PadOp, ConcatOp, PermuteOp>;

}  // namespace tessera::ops

#include <tessera/base/pop_macros.hpp>

#endif
