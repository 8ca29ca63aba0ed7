#ifndef TESSERA_OPS_CONTROL_ROWS_HPP
#define TESSERA_OPS_CONTROL_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/graph/repeat_gradient.hpp>
#include <tessera/ops/row_entry.hpp>

namespace tessera::rows {

inline constexpr RowEntry control_rows[] = {
    {Op::repeat,
     {.name = "repeat", .kind = OpKind::control, .arity = any_arity, .gradient = repeat_gradient, .flops = 0}},
    // The repeat reads the cotangents of its projections.
    {Op::project,
     {.name = "project",
      .kind = OpKind::control,
      .arity = 1,
      .linear = Linearity::first,
      .gradient = nullptr,
      .flops = 0}},
};

}  // namespace tessera::rows

#include <tessera/base/pop_macros.hpp>

#endif
