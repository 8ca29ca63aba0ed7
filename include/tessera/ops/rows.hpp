#ifndef TESSERA_OPS_ROWS_HPP
#define TESSERA_OPS_ROWS_HPP
#include <tessera/base/push_macros.hpp>

#include <array>

#include <tessera/ops/attention_rows.hpp>
#include <tessera/ops/contraction_rows.hpp>
#include <tessera/ops/control_rows.hpp>
#include <tessera/ops/elementwise_rows.hpp>
#include <tessera/ops/indexed_rows.hpp>
#include <tessera/ops/layout_rows.hpp>
#include <tessera/ops/reduction_rows.hpp>
#include <tessera/ops/scan_rows.hpp>
#include <tessera/ops/sort_rows.hpp>
#include <tessera/ops/source_rows.hpp>
#include <tessera/ops/window_rows.hpp>

namespace tessera {

namespace detail {
struct RowTable {
  std::array<OpRow, static_cast<std::size_t>(op_count)> rows{};
  std::array<GradientRule, static_cast<std::size_t>(op_count)> gradients{};
  constexpr void fill(const auto& entries) {
    for (const RowEntry& entry : entries) {
      rows[static_cast<std::size_t>(entry.op)] = entry.row;
      gradients[static_cast<std::size_t>(entry.op)] = entry.row.gradient;
      rows[static_cast<std::size_t>(entry.op)].gradient = nullptr;
    }
  }
};

constexpr RowTable make_row_table() {
  RowTable table;
  table.fill(rows::source_rows);
  table.fill(rows::elementwise_rows);
  table.fill(rows::reduction_rows);
  table.fill(rows::contraction_rows);
  table.fill(rows::layout_rows);
  table.fill(rows::indexed_rows);
  table.fill(rows::window_rows);
  table.fill(rows::scan_rows);
  table.fill(rows::sort_rows);
  table.fill(rows::attention_rows);
  table.fill(rows::control_rows);
  return table;
}
// Two objects: only the first is ever asked at run time, so that the second's code is never generated.
inline constexpr auto row_table = make_row_table().rows;
inline constexpr auto gradient_table = make_row_table().gradients;

static_assert(
    [] {
      for (const OpRow& row : row_table)
        if (row.name.empty()) return false;
      return true;
    }(),
    "tessera: an operation has no row");
}  // namespace detail

constexpr const OpRow& row_of(Op op) { return detail::row_table[static_cast<std::size_t>(op)]; }
constexpr GradientRule gradient_of(Op op) { return detail::gradient_table[static_cast<std::size_t>(op)]; }

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
