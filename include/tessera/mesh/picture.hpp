#ifndef TESSERA_MESH_PICTURE_HPP
#define TESSERA_MESH_PICTURE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/picture_grid.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/mesh/sharding_string.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

/// The number of columns of a text of narrow UTF-8 characters.
inline std::size_t width_of(std::string_view text) {
  std::size_t width = 0;
  for (char c : text) width += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return width;
}

/// One table; a cell has a text and the shard that colors it, or -1.
struct TextTable {
  struct Cell {
    std::string text;
    std::int64_t shard;
  };
  Growable<Cell> cells;
  std::size_t columns = 1;

  std::string draw(bool color) const {
    Growable<std::size_t> widths(columns, 0);
    for (std::size_t i = 0; i < cells.size(); ++i)
      if (const std::size_t width = width_of(cells[i].text); width > widths[i % columns]) widths[i % columns] = width;
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
      const std::string text =
          concat_text(" ", cells[i].text, std::string(widths[column] - width_of(cells[i].text) + 1, ' '));
      out += "│";
      if (color && cells[i].shard >= 0) {
        const Color c = color_of(cells[i].shard);
        out += concat_text("\x1b[30;48;2;", c.red, ";", c.green, ";", c.blue, "m", text, "\x1b[0m");
      } else {
        out += text;
      }
      if (column + 1 == columns) out += "│\n";
    }
    rule("└", "┴", "┘");
    return out;
  }
};

inline TextTable plane_table(const PictureGrid& grid, std::int64_t plane) {
  TextTable table;
  const Growable<std::int64_t> columns = grid.shown_columns();
  table.columns = columns.size();
  for (std::int64_t row : grid.shown_rows())
    for (std::int64_t column : columns) {
      if (row >= 0 && column >= 0) {
        const std::int64_t shard = grid.shard(plane, row, column);
        table.cells.push_back({grid.label(shard), shard});
      } else {
        table.cells.push_back({row < 0 && column < 0 ? "⋱" : row < 0 ? "⋮" : "…", -1});
      }
    }
  return table;
}

}  // namespace detail

/// Draws which devices hold which shard, as a table of the first two dims; a tensor of one dim is one row. Devices in a
/// cell hold replicas. If later dims are split, there is a table with a title for each of their shards. `device_count`
/// is used if the sharding names no devices. Manual and unreduced subgroups are labelled. Large meshes are abbreviated.
///
///     ┌────────────┬────────────┐
///     │ CPU [0, 1] │ CPU [2, 3] │
///     └────────────┴────────────┘
inline std::string visualize_sharding(const HloSharding& sharding, std::int64_t device_count,
                                      const PictureOptions& options) {
  const detail::PictureGrid grid(sharding, device_count, options);
  std::string out;
  for (std::int64_t plane : grid.shown_planes()) {
    if (plane < 0) {
      out += "…\n";
      continue;
    }
    if (grid.planes() > 1) out += grid.plane_title(plane) + "\n";
    out += detail::plane_table(grid, plane).draw(options.color);
  }
  if (grid.is_summary()) out += grid.summary() + "\n";
  return out;
}
inline std::string visualize_sharding(const HloSharding& sharding, std::int64_t device_count,
                                      std::string_view device_kind = "CPU") {
  return visualize_sharding(sharding, device_count, PictureOptions{.device_kind = device_kind});
}
inline std::string visualize_sharding(const Sharding& sharding, const Mesh& mesh, const PictureOptions& options) {
  return visualize_sharding(hlo_sharding(sharding, mesh), mesh.size(), options);
}
inline std::string visualize_sharding(const Sharding& sharding, const Mesh& mesh,
                                      std::string_view device_kind = "CPU") {
  return visualize_sharding(sharding, mesh, PictureOptions{.device_kind = device_kind});
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
