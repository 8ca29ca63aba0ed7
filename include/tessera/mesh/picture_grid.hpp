#ifndef TESSERA_MESH_PICTURE_GRID_HPP
#define TESSERA_MESH_PICTURE_GRID_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/mesh/device_order.hpp>
#include <tessera/mesh/sharding_string.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// Options of a picture of a sharding. Beyond a limit, only the beginning and the end are shown.
struct PictureOptions {
  std::string_view device_kind = "CPU";
  bool color = false;    ///< ANSI colors in text; an SVG always has colors
  int max_rows = 16;     ///< of a table
  int max_columns = 16;  ///< of a table
  int max_planes = 4;    ///< tables, one for each shard of the dims beyond the second
  int max_ids = 16;      ///< device ids in a cell
};

namespace detail {

/// The cells of a picture: the shards of the first two dims, with a plane for each shard of the other dims.
class PictureGrid {
 public:
  PictureGrid(const HloSharding& sharding, std::int64_t device_count, const PictureOptions& options)
      : options_(options) {
    const HloSharding one = sharding.canonical();
    using Kind = HloSharding::Kind;
    devices_ = one.kind == Kind::tiled || one.kind == Kind::maximal ? one.devices : DeviceOrder::range(device_count);
    if (one.kind == Kind::manual) role_ = " manual";
    if (one.kind == Kind::unreduced) role_ = " unreduced";
    if (one.kind == Kind::tiled) {
      for (std::size_t dim = 0; dim < one.rank(); ++dim) tile_.push_back(one.tile[dim]);
      for (HloSharding::Subgroup group : one.subgroups)
        if (group != HloSharding::Subgroup::replicated) role_ += concat_text(" ", name_of(group));
    }
    group_ = devices_.size() / one.tile_count();
    if (one.kind != Kind::tiled) group_ = devices_.size();
    devices_ = devices_.ascending_in_groups(group_);
  }

  /// Numbers of rows and columns; a tensor of one dim is one row.
  std::int64_t rows() const { return tile_.size() < 2 ? 1 : tile_[0]; }
  std::int64_t columns() const { return tile_.empty() ? 1 : tile_.size() < 2 ? tile_[0] : tile_[1]; }
  std::int64_t planes() const {
    std::int64_t count = 1;
    for (std::size_t dim = 2; dim < tile_.size(); ++dim) count *= tile_[dim];
    return count;
  }
  std::int64_t device_count() const { return devices_.size(); }
  /// The dim that the columns (the rows) show, -1: none.
  int column_dim() const { return static_cast<int>(tile_.size() < 2 ? tile_.size() : 2) - 1; }
  int row_dim() const { return tile_.size() < 2 ? -1 : 0; }

  Growable<std::int64_t> shown_rows() const { return shown(rows(), options_.max_rows); }
  Growable<std::int64_t> shown_columns() const { return shown(columns(), options_.max_columns); }
  Growable<std::int64_t> shown_planes() const { return shown(planes(), options_.max_planes); }
  bool is_summary() const {
    return rows() > limit(options_.max_rows) || columns() > limit(options_.max_columns) ||
           planes() > limit(options_.max_planes);
  }

  std::int64_t shard(std::int64_t plane, std::int64_t row, std::int64_t column) const {
    return (row * columns() + column) * planes() + plane;
  }
  /// "CPU 3", "CPU [0, 1]", "CPU [0, 1, 2, …, 99]".
  std::string label(std::int64_t shard) const {
    const std::int64_t begin = shard * group_;
    if (group_ == 1) return concat_text(options_.device_kind, " ", devices_[begin], role_);
    std::string ids;
    for (std::int64_t i : shown(group_, options_.max_ids)) {
      if (!ids.empty()) ids += ", ";
      ids += i < 0 ? std::string("…") : std::to_string(devices_[begin + i]);
    }
    return concat_text(options_.device_kind, " [", ids, "]", role_);
  }
  /// "dim 2: shard 1 of 4", or "dims 2, 3: shard (1, 0) of (4, 2)".
  std::string plane_title(std::int64_t plane) const {
    std::string dims, at, of;
    for (std::size_t dim = tile_.size(); dim-- > 2; plane /= tile_[dim]) {
      const char* comma = dims.empty() ? "" : ", ";
      dims = concat_text(dim, comma, dims);
      at = concat_text(plane % tile_[dim], comma, at);
      of = concat_text(tile_[dim], comma, of);
    }
    if (tile_.size() == 3) return concat_text("dim ", dims, ": shard ", at, " of ", of);
    return concat_text("dims ", dims, ": shard (", at, ") of (", of, ")");
  }
  /// "100 x 1000 shards on 100000 devices".
  std::string summary() const {
    std::string out;
    for (std::int64_t size : tile_) out += concat_text(out.empty() ? "" : " x ", size);
    return concat_text(out, " shards on ", device_count(), " devices");
  }

 private:
  static std::int64_t limit(int given) { return given < 3 ? 3 : given; }
  /// 0, 1, ..., with -1 in place of those that are left out.
  static Growable<std::int64_t> shown(std::int64_t count, int given) {
    Growable<std::int64_t> places;
    for (std::int64_t i = 0; i < count && i < limit(given); ++i) places.push_back(i);
    if (count > limit(given)) {
      places[places.size() - 2] = -1;
      places.back() = count - 1;
    }
    return places;
  }

  PictureOptions options_;
  Growable<std::int64_t> tile_;
  DeviceOrder devices_;
  std::int64_t group_ = 1;  // devices in a cell
  std::string role_;
};

/// A light color for each shard that differs from those next to it; red, green and blue from 0 to 255.
struct Color {
  int red, green, blue;
};
inline Color color_of(std::int64_t shard) {
  constexpr Color colors[] = {{158, 202, 225}, {253, 208, 162}, {161, 217, 155}, {218, 178, 255},
                              {252, 187, 161}, {199, 233, 192}, {255, 237, 160}, {188, 220, 244},
                              {250, 196, 220}, {204, 235, 197}, {222, 203, 228}, {229, 216, 189}};
  return colors[static_cast<std::size_t>(shard) % std::size(colors)];
}

}  // namespace detail

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
