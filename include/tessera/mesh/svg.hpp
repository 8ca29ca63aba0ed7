#ifndef TESSERA_MESH_SVG_HPP
#define TESSERA_MESH_SVG_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/picture.hpp>
#include <tessera/mesh/picture_grid.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/mesh/sharding_string.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

inline std::string escape_xml(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) >= ' ')
      out += c;
  }
  return out;
}

/// Draws a PictureGrid: a table with a caption for each plane, one below the other. Lengths are in pixels.
class SvgPicture {
 public:
  SvgPicture(const PictureGrid& grid, std::string title, std::string row_caption, std::string column_caption,
             const Shape* shape)
      : grid_(grid), title_(std::move(title)), row_caption_(std::move(row_caption)),
        column_caption_(std::move(column_caption)), shape_(shape), rows_(grid.shown_rows()),
        columns_(grid.shown_columns()) {
    for (std::int64_t plane : grid_.shown_planes()) {
      if (plane < 0) continue;
      for (std::int64_t row : rows_)
        for (std::int64_t column : columns_)
          if (row >= 0 && column >= 0) widen(cell_width_, grid_.label(grid_.shard(plane, row, column)), 20);
    }
    for (std::int64_t column : columns_)
      if (column >= 0) widen(cell_width_, range(grid_.column_dim(), column, grid_.columns()), 12);
    for (std::int64_t row : rows_)
      if (row >= 0) widen(left_, range(grid_.row_dim(), row, grid_.rows()), 20);
    widen(left_, row_caption_, 20);
  }

  std::string draw() {
    int y = margin + 10;
    if (!title_.empty()) text(margin, y, title_, "start", "font-weight=\"bold\"");
    y += title_.empty() ? -10 : 14;
    for (std::int64_t plane : grid_.shown_planes()) y = draw_plane(plane, y);
    if (grid_.is_summary()) {
      text(margin, y + 12, grid_.summary(), "start", muted);
      y += 20;
    }
    int width = margin + left_ + static_cast<int>(columns_.size()) * cell_width_ + margin;
    for (const std::string* line : {&title_, &column_caption_})
      if (const int needed = 2 * margin + left_ / 2 + text_width(*line); needed > width) width = needed;
    const int height = y + margin;
    return concat_text("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height,
                       "\" viewBox=\"0 0 ", width, " ", height,
                       "\" font-family=\"DejaVu Sans Mono, Menlo, monospace\" font-size=\"12\">\n"
                       "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
                       body_, "</svg>\n");
  }

 private:
  static constexpr int margin = 12, cell_height = 34;
  static constexpr const char* muted = "fill=\"#666666\"";

  static int text_width(std::string_view line) { return static_cast<int>(width_of(line)) * 73 / 10 + 1; }
  static void widen(int& width, std::string_view line, int padding) {
    if (const int needed = line.empty() ? 0 : text_width(line) + padding; needed > width) width = needed;
  }
  /// "3:6", the indices of a shard along a dim; empty if the shape is not known.
  std::string range(int dim, std::int64_t shard, std::int64_t count) const {
    if (!shape_ || dim < 0) return {};
    const std::int64_t n = (*shape_)[static_cast<std::size_t>(dim)];
    const std::int64_t chunk = n / count + (n % count != 0);
    const std::int64_t begin = shard * chunk < n ? shard * chunk : n;
    const std::int64_t end = begin + chunk < n ? begin + chunk : n;
    return begin == end ? std::string("empty") : concat_text(begin, ":", end);
  }
  void text(int x, int y, std::string_view line, const char* anchor, const char* style = "") {
    body_ += concat_text("<text x=\"", x, "\" y=\"", y, "\" text-anchor=\"", anchor, "\" ", style, ">",
                         escape_xml(line), "</text>\n");
  }

  int draw_plane(std::int64_t plane, int y) {
    if (plane < 0) {
      text(margin, y + 14, "…", "start", muted);
      return y + 24;
    }
    const int x = margin + left_;
    if (grid_.planes() > 1) {
      text(margin, y + 14, grid_.plane_title(plane), "start");
      y += 22;
    }
    if (!column_caption_.empty()) {
      text(x, y + 12, column_caption_, "start", muted);
      y += 18;
    }
    if (shape_ && grid_.column_dim() >= 0) {
      for (std::size_t c = 0; c < columns_.size(); ++c)
        text(x + static_cast<int>(c) * cell_width_ + cell_width_ / 2, y + 11,
             columns_[c] < 0 ? "" : range(grid_.column_dim(), columns_[c], grid_.columns()), "middle", muted);
      y += 16;
    }
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const int top = y + static_cast<int>(r) * cell_height;
      if (rows_[r] >= 0)
        text(x - 8, top + cell_height / 2 + 4, range(grid_.row_dim(), rows_[r], grid_.rows()), "end", muted);
      for (std::size_t c = 0; c < columns_.size(); ++c) cell(plane, r, c, x + static_cast<int>(c) * cell_width_, top);
    }
    if (!row_caption_.empty()) text(margin, y - 6, row_caption_, "start", muted);
    return y + static_cast<int>(rows_.size()) * cell_height + 14;
  }
  void cell(std::int64_t plane, std::size_t r, std::size_t c, int x, int y) {
    const std::int64_t row = rows_[r], column = columns_[c];
    if (row < 0 || column < 0) {
      text(x + cell_width_ / 2, y + cell_height / 2 + 4,
           row < 0 && column < 0 ? "⋱"
           : row < 0             ? "⋮"
                                 : "…",
           "middle", muted);
      return;
    }
    const std::int64_t shard = grid_.shard(plane, row, column);
    const bool empty = range(grid_.row_dim(), row, grid_.rows()) == "empty" ||
                       range(grid_.column_dim(), column, grid_.columns()) == "empty";
    const Color color = color_of(shard);
    const std::string fill =
        empty ? std::string("#f4f4f4") : concat_text("rgb(", color.red, ",", color.green, ",", color.blue, ")");
    body_ += concat_text("<rect x=\"", x, "\" y=\"", y, "\" width=\"", cell_width_, "\" height=\"", cell_height,
                         "\" fill=\"", fill, "\" stroke=\"#333333\"", empty ? " stroke-dasharray=\"3 3\"" : "", "/>\n");
    text(x + cell_width_ / 2, y + cell_height / 2 + 4, grid_.label(shard), "middle",
         empty ? "fill=\"#999999\"" : "fill=\"#111111\"");
  }

  const PictureGrid& grid_;
  std::string title_, row_caption_, column_caption_, body_;
  const Shape* shape_;
  Growable<std::int64_t> rows_, columns_;
  int cell_width_ = 64, left_ = 0;
};

/// "dim 0 over data, model"; empty for a dim that is not split.
inline std::string dim_caption(const Sharding& sharding, const Mesh& mesh, int dim) {
  if (dim < 0 || sharding.dims[dim].empty()) return {};
  const PartitionSpec spec = spec_of(sharding, mesh);
  std::string axes;
  for (const Name& axis : spec.entries[static_cast<std::size_t>(dim)].axes)
    axes += concat_text(axes.empty() ? "" : ", ", axis.view());
  return concat_text("dim ", dim, " over ", axes);
}

}  // namespace detail

/// The picture of visualize_sharding as an SVG document, with captions. If the shape is known, it shows the indices of
/// each shard, and which shards are empty.
inline std::string sharding_svg(const HloSharding& sharding, std::int64_t device_count,
                                const PictureOptions& options = {}) {
  const detail::PictureGrid grid(sharding, device_count, options);
  return detail::SvgPicture(grid, sharding.text(), "", "", nullptr).draw();
}
inline std::string sharding_svg(const Sharding& sharding, const Mesh& mesh, const PictureOptions& options = {}) {
  const detail::PictureGrid grid(hlo_sharding(sharding, mesh), mesh.size(), options);
  return detail::SvgPicture(grid, concat_text(text(sharding, mesh), " on ", mesh.text()),
                            detail::dim_caption(sharding, mesh, grid.row_dim()),
                            detail::dim_caption(sharding, mesh, grid.column_dim()), nullptr)
      .draw();
}
inline std::string sharding_svg(const Shape& shape, const Sharding& sharding, const Mesh& mesh,
                                const PictureOptions& options = {}) {
  detail::check_same_rank(shape, sharding);
  const detail::PictureGrid grid(hlo_sharding(sharding, mesh), mesh.size(), options);
  std::string title = "[";
  for (std::size_t dim = 0; dim < shape.size(); ++dim) title += concat_text(dim ? "," : "", shape[dim]);
  return detail::SvgPicture(grid, concat_text(title, "] ", text(sharding, mesh), " on ", mesh.text()),
                            detail::dim_caption(sharding, mesh, grid.row_dim()),
                            detail::dim_caption(sharding, mesh, grid.column_dim()), &shape)
      .draw();
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
