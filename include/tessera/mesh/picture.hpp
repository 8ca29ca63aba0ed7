#ifndef TESSERA_MESH_PICTURE_HPP
#define TESSERA_MESH_PICTURE_HPP

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/base/error.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/mesh/sharding_string.hpp>

namespace tessera {

namespace detail {

/// Devices by the tile of the first two dims that they hold, row-major; ids ascend in each cell.
struct CellTable {
  std::size_t rows = 1;
  std::size_t columns = 1;
  std::vector<std::vector<std::int32_t>> cells{{}};
};

inline CellTable cells_of(const HloSharding& sharding, std::int64_t device_count) {
  CellTable table;
  if (sharding.kind == HloSharding::Kind::maximal) {
    table.cells[0] = sharding.devices;
    return table;
  }
  if (sharding.kind != HloSharding::Kind::tiled) {
    for (std::int64_t device = 0; device < device_count; ++device)
      table.cells[0].push_back(static_cast<std::int32_t>(device));
    return table;
  }
  const std::size_t rank = sharding.rank();
  if (rank == 1) table.columns = static_cast<std::size_t>(sharding.tile[0]);
  if (rank >= 2) {
    table.rows = static_cast<std::size_t>(sharding.tile[0]);
    table.columns = static_cast<std::size_t>(sharding.tile[1]);
  }
  table.cells.resize(table.rows * table.columns);
  const std::size_t devices_per_cell = sharding.devices.size() / table.cells.size();
  std::vector<std::size_t> cell_of(sharding.devices.size());
  for (std::size_t i = 0; i < cell_of.size(); ++i)
    cell_of.at(static_cast<std::size_t>(sharding.devices[i])) = i / devices_per_cell;
  for (std::size_t device = 0; device < cell_of.size(); ++device)
    table.cells[cell_of[device]].push_back(static_cast<std::int32_t>(device));
  return table;
}

inline std::string cell_text(const std::vector<std::int32_t>& devices, std::string_view device_kind) {
  std::string ids;
  append_list(ids, devices, ", ");
  return devices.size() == 1 ? concat_text(device_kind, " ", ids) : concat_text(device_kind, " [", ids, "]");
}

inline std::string draw_table(const std::vector<std::string>& cells, std::size_t columns) {
  std::vector<std::size_t> widths(columns, 0);
  for (std::size_t i = 0; i < cells.size(); ++i)
    if (cells[i].size() > widths[i % columns]) widths[i % columns] = cells[i].size();
  std::string out;
  const auto rule = [&](const char* left, const char* middle, const char* right) {
    for (std::size_t column = 0; column < columns; ++column) {
      out += column ? middle : left;
      for (std::size_t i = 0; i < widths[column] + 2; ++i) out += "─";
    }
    out += concat_text(right, "\n");
  };
  rule("┌", "┬", "┐");
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::size_t column = i % columns;
    if (i > 0 && column == 0) rule("├", "┼", "┤");
    out += concat_text("│ ", cells[i], std::string(widths[column] - cells[i].size(), ' '), " ");
    if (column + 1 == columns) out += "│\n";
  }
  rule("└", "┴", "┘");
  return out;
}

}  // namespace detail

/// Draws which device holds which tile of the first two dims, as a table; one dim is one row. Devices that share a
/// cell hold replicas of it, or tiles of later dims. `device_count` matters where the sharding names no devices.
///
///     ┌────────────┬────────────┐
///     │ CPU [0, 1] │ CPU [2, 3] │
///     └────────────┴────────────┘
inline std::string visualize_sharding(const HloSharding& sharding, std::int64_t device_count,
                                      std::string_view device_kind = "CPU") {
  const detail::CellTable table = detail::cells_of(sharding, device_count);
  std::vector<std::string> cells;
  for (const std::vector<std::int32_t>& cell : table.cells) cells.push_back(detail::cell_text(cell, device_kind));
  if (sharding.kind == HloSharding::Kind::manual) cells[0] += " manual";
  if (sharding.kind == HloSharding::Kind::unreduced) cells[0] += " unreduced";
  return detail::draw_table(cells, table.columns);
}

inline std::string visualize_sharding(const Sharding& sharding, const Mesh& mesh,
                                      std::string_view device_kind = "CPU") {
  return visualize_sharding(hlo_sharding(sharding, mesh), mesh.size(), device_kind);
}

}  // namespace tessera

#endif
