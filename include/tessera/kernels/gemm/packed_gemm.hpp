#ifndef TESSERA_KERNELS_GEMM_PACKED_GEMM_HPP
#define TESSERA_KERNELS_GEMM_PACKED_GEMM_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/kernels/cpu.hpp>
#include <tessera/kernels/gemm/gemm.hpp>
#include <tessera/kernels/gemm/gemm_pack.hpp>
#include <tessera/kernels/gemm/gemm_tiles.hpp>
#include <tessera/kernels/gemm/gemm_variant.hpp>
#include <tessera/kernels/gemm/matrix_vector.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/scratch.hpp>

namespace tessera::kernels::inline TESSERA_ISA {

/// Rows [row, row + rows) of columns [col, col + cols) of C.
struct PartOfC {
  std::int64_t row = 0, rows = 0, col = 0, cols = 0;
};
/// A callback for parts of C, called as soon as they are final, while they are in the cache. Each element is in one
/// part.
struct FinishedPart {
  void (*call)(const void* context, const PartOfC& part) = nullptr;
  const void* context = nullptr;
  std::int64_t first_col = 0;  ///< of the columns that are counted from 0
  /// Bytes from each element of C to an element that the callback reads, which is fetched before; 0: it reads none.
  std::uintptr_t beside = 0;

  void operator()(PartOfC part) const {
    part.col += first_col;
    if (call) call(context, part);
  }
  /// The same for a product of the columns from `col` on.
  FinishedPart from(std::int64_t col) const { return {call, context, first_col + col, beside}; }
};

/// The layout of a packed right operand. Its rows are divided into blocks of `depth`, each block into panels of `width`
/// columns, stored row by row. Blocks and panels are consecutive; a block's last panel is padded to `width`.
struct PackedLayout {
  std::int64_t rows = 0, cols = 0;
  std::int64_t depth = 0, width = 0;
  std::int64_t padding = 0;  ///< rows of zeros at the end, beyond those of the matrix

  constexpr std::int64_t panels() const { return (cols + width - 1) / width; }
  constexpr std::int64_t blocks() const { return (rows + depth - 1) / depth; }
  constexpr std::int64_t block_rows(std::int64_t block) const { return std::min(depth, rows - block * depth); }
  /// Elements of the packed matrix.
  constexpr std::int64_t size() const { return rows * panels() * width; }
  /// Offset in elements of a panel of a block.
  constexpr std::int64_t offset(std::int64_t block, std::int64_t panel) const {
    return block * depth * panels() * width + panel * block_rows(block) * width;
  }
};

/// The CpuLevel of the micro-kernels for T.
template <class T> CpuLevel product_level() { return cpu_level(); }

namespace detail {

/// The extent of a block when `size` is divided into equal blocks of at most `most`, rounded up to a `multiple`.
constexpr std::int64_t equal_parts(std::int64_t size, std::int64_t most, std::int64_t multiple) {
  const std::int64_t parts = std::max<std::int64_t>((size + most - 1) / most, 1);
  return ((size + parts - 1) / parts + multiple - 1) / multiple * multiple;
}

/// Extent of a block along k: long enough to hide the store of a tile, short enough for a panel of A to fit the L1
/// cache.
template <class T> constexpr std::int64_t most_depth = sizeof(T) == 4 ? 320 : 256;

/// Columns of B whose panels fill the member's share of the L2 cache. Half of it leaves the rest to A and C; where
/// reads from the last cache are hidden, a larger share is faster, since A is packed less often.
template <class T> std::int64_t columns_in_cache(std::int64_t depth, std::int64_t width, const GemmVariant& variant) {
  const std::int64_t fit =
      second_level_cache() / 8 * variant.cache_eighths / (depth * static_cast<std::int64_t>(sizeof(T)));
  return std::max(fit / width * width, 4 * width);
}

/// A block of B as micro-kernels read it: packed, or in place in the matrix, except for a partial last panel.
template <class T> struct PanelsOfB {
  const T* first = nullptr;
  std::int64_t panel = 0, step = 0;  ///< strides between panels and between rows
  const T* last = nullptr;           ///< the last panel, packed
};

/// Stores a tile from a buffer into C, or adds it: for edge tiles and for strided C.
template <class T>
void place_tile(const T* tile, std::int64_t width, const Gemm<T>& g, T* c, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) {
      T& to = c[i * g.c_row + j * g.c_col];
      to = g.accumulate ? to + tile[i * width + j] : tile[i * width + j];
    }
}

/// Panels of A, packed as tiles read them. If the columns of A are contiguous, many panels are packed together: the
/// part of a column that a panel needs is less than a cache line, and only longer parts are read at the speed of a
/// copy.
template <class T> struct PanelsOfA {
  PanelsOfA(const GemmKernels<T>& by, const Gemm<T>& product)
      : kernels(by), g(product), by_steps(g.a_row == 1 && g.a_col != 1), together(by_steps ? 20 : 1),
        size(by.a_step * g.k), packed(thread_scratch<Scratch::panel_a, T>(static_cast<std::size_t>(together * size))) {}

  /// The panel of the tile at row i. Panels are used in order.
  const T* at(std::int64_t i) const {
    const std::int64_t member = i / kernels.rows % together;
    if (member == 0) pack(i);
    return packed + member * size;
  }

  const GemmKernels<T>& kernels;
  const Gemm<T>& g;
  bool by_steps;
  std::int64_t together, size;
  T* packed;

 private:
  void pack(std::int64_t first) const {
    const std::int64_t rows = kernels.rows, left = g.m - first, own = std::min(together * rows, left);
    // The panel's width, whole registers, may exceed the rows of a tile: copying further rows avoids a partial
    // register.
    pack_panels<T>(kernels.pack_steps, {g.a + first * g.a_row, g.a_row, g.a_col}, own, g.k, kernels.a_step, packed,
                   rows, by_steps ? left : own);
  }
};

/// Elements of a cache line.
template <class T> constexpr std::int64_t cache_line = 64 / sizeof(T);

/// Where in C a tile is: rows [i, i + height), panel p of `panels`, `width` columns at `c`; `next_height` rows follow.
template <class T> struct TileOfC {
  T* c = nullptr;
  std::int64_t i = 0, height = 0, next_height = 0, p = 0, panels = 0, width = 0;
};

/// What a tile fetches into the caches for its successors: the next tile of C; if the rows of A are contiguous, a part
/// of the next panel of A (otherwise its cache lines would evict each other from the L1 cache); what the epilogue of
/// the tile reads.
template <class T>
void fetch_ahead(Prefetch* ahead, const Gemm<T>& g, const GemmVariant& variant, const PanelsOfA<T>& a,
                 const TileOfC<T>& at, const FinishedPart& finished) {
  constexpr std::int64_t line = cache_line<T>;
  const auto bytes = [](std::int64_t elements) { return elements * static_cast<std::int64_t>(sizeof(T)); };
  const auto address = [](const T* element) { return reinterpret_cast<const char*>(element); };
  if (g.c_col == 1 && variant.fetches_c) {
    const T* next = at.p + 1 < at.panels ? at.c + a.kernels.cols : g.c + (at.i + at.height) * g.c_row;
    const std::int64_t count = at.p + 1 < at.panels ? at.height : at.next_height;
    if (count > 0) {
      *ahead++ = {address(next), bytes(g.c_row), count};
      *ahead++ = {address(next) + 64, bytes(g.c_row), count};
    }
  }
  if (at.next_height > 0) {
    const std::int64_t lines = g.a_col == 1 ? (g.k + line - 1) / line : 0;
    const std::int64_t from = lines * at.p / at.panels, to = lines * (at.p + 1) / at.panels;
    if (to > from)
      *ahead++ = {address(g.a + (at.i + a.kernels.rows) * g.a_row + from * line), bytes(g.a_row), at.next_height};
  }
  if (finished.beside != 0 && g.c_col == 1)
    for (std::int64_t col = 0; col < at.width; col += line)
      *ahead++ = {reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(at.c + col) + finished.beside),
                  bytes(g.c_row), at.height};
  *ahead = {address(a.packed), 0, -1};
}

/// C (+)= alpha A B for one block of k. Packs one panel of A at a time and multiplies it by all panels of B, which are
/// in the L2 cache.
template <class T>
void gemm_block(const GemmVariant& variant, const Gemm<T>& g, const PanelsOfB<T>& b, FinishedPart finished) {
  const GemmKernels<T>& kernels = gemm_kernels<T>(variant);
  alignas(64) T buffer[GemmKernels<T>::most_rows * GemmKernels<T>::most_cols];
  const PanelsOfA<T> a(kernels, g);
  const std::int64_t rows = kernels.rows, cols = kernels.cols, panels = (g.n + cols - 1) / cols;
  std::int64_t reported = 0;
  const std::int64_t row_bytes = std::max<std::int64_t>(g.n * static_cast<std::int64_t>(sizeof(T)), 1),
                     report_every = std::max<std::int64_t>((1 << 14) / row_bytes, rows);

  GemmTile<T> tile;
  tile.depth = g.k;
  tile.alpha = g.alpha;
  for (std::int64_t i = 0; i < g.m; i += rows) {
    const std::int64_t height = std::min(rows, g.m - i), next_height = std::min(rows, g.m - i - height);
    tile.a = a.at(i);
    const int fit = kernels.fit(height);
    const auto run = kernels.tiles[fit];
    for (std::int64_t p = 0; p < panels; ++p) {
      const std::int64_t width = std::min(cols, g.n - p * cols);
      T* const c = g.c + i * g.c_row + p * cols * g.c_col;
      tile.b = width < cols ? b.last : b.first + p * b.panel;
      tile.b_step = width < cols ? cols : b.step;
      fetch_ahead<T>(tile.ahead, g, variant, a, {c, i, height, next_height, p, panels, width}, finished);
      if (height == kernels.heights[fit] && width == cols && g.c_col == 1) {
        tile.c = c, tile.c_row = g.c_row, tile.accumulate = g.accumulate;
        run(tile);
      } else {
        tile.c = buffer, tile.c_row = cols, tile.accumulate = false;
        run(tile);
        place_tile(buffer, cols, g, c, height, width);
      }
    }
    if (i + height - reported >= report_every || i + height == g.m) {
      finished({reported, i + height - reported, 0, g.n});
      reported = i + height;
    }
  }
}

}  // namespace detail

/// The packed layout of a [rows, cols] matrix as the right operand of packed_gemm().
template <class T>
PackedLayout packed_layout(std::int64_t rows, std::int64_t cols, CpuLevel level = product_level<T>()) {
  return {rows, cols, std::max<std::int64_t>(detail::equal_parts(rows, detail::most_depth<T>, 4), 4),
          detail::gemm_kernels<T>(level).cols};
}

/// Packs panels [first, first + count) of b, which may have any strides, into `packed`, which has layout.size()
/// elements. Different panels may be packed concurrently.
template <class T>
void pack_matrix(const PackedLayout& layout, const T* b, std::int64_t b_row, std::int64_t b_col, std::int64_t first,
                 std::int64_t count, T* packed, CpuLevel level = product_level<T>()) {
  const detail::GemmKernels<T>& kernels = detail::gemm_kernels<T>(level);
  const std::int64_t col = first * layout.width, cols = std::min(count * layout.width, layout.cols - col);
  for (std::int64_t block = 0; block < layout.blocks(); ++block)
    detail::pack_panels<T>(kernels.pack_steps, {b + block * layout.depth * b_row + col * b_col, b_col, b_row}, cols,
                           layout.block_rows(block), layout.width, packed + layout.offset(block, first));
}

/// A product with packed right operand: g.b and its strides are not used; `layout` has k rows and n columns. C may have
/// any strides; contiguous rows are fastest.
template <class T>
void packed_gemm(const Gemm<T>& g, const PackedLayout& layout, const T* packed, FinishedPart finished,
                 const GemmVariant& variant) {
  using namespace detail;
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) {
    thin_gemm(g);
    return finished({0, g.m, 0, g.n});
  }
  const std::int64_t chunk = equal_parts(g.n, columns_in_cache<T>(layout.depth, layout.width, variant), layout.width);
  for (std::int64_t col = 0; col < g.n; col += chunk) {
    const std::int64_t panel = col / layout.width, cols = std::min(chunk, g.n - col);
    const std::int64_t panels = (cols + layout.width - 1) / layout.width;
    for (std::int64_t block = 0; block < layout.blocks(); ++block) {
      const std::int64_t depth = layout.block_rows(block), step = depth * layout.width;
      const bool last = block + 1 == layout.blocks();
      Gemm<T> part = g;
      part.n = cols, part.k = depth;
      part.a += block * layout.depth * g.a_col;
      part.c += col * g.c_col;
      part.accumulate = g.accumulate || block > 0;
      PanelsOfB<T> b{packed + layout.offset(block, panel), step, layout.width};
      b.last = b.first + (panels - 1) * step;
      gemm_block(variant, part, b, last ? finished.from(col) : FinishedPart{});
    }
  }
}
template <class T>
void packed_gemm(const Gemm<T>& g, const PackedLayout& layout, const T* packed, FinishedPart finished = {},
                 CpuLevel level = product_level<T>()) {
  packed_gemm(g, layout, packed, finished, gemm_variant(level));
}

/// C (+)= alpha A B on the calling thread, with micro-kernels chosen at run time. Any strides and extents, 0 included.
template <class T>
void packed_gemm(const Gemm<T>& given, FinishedPart finished = {}, CpuLevel level = product_level<T>()) {
  using namespace detail;
  if (thin_gemm(given)) return finished({0, given.m, 0, given.n});
  // Micro-kernels store vectors along rows of C: if its columns are contiguous instead, compute the transposed product.
  const bool turned = given.c_col != 1 && given.c_row == 1;
  const Gemm<T> g = turned ? transposed(given) : given;
  const GemmVariant& variant = gemm_variant(level);
  const GemmKernels<T>& kernels = gemm_kernels<T>(variant);
  const std::int64_t wide = kernels.cols;
  const std::int64_t depth = std::max<std::int64_t>(equal_parts(g.k, most_depth<T>, 4), 4);
  const std::int64_t chunk = equal_parts(g.n, columns_in_cache<T>(depth, wide, variant), wide);
  // With few rows, B is reused too rarely for packing to be worthwhile; even more so if B is in the cache already.
  const bool cached = g.k * g.n * static_cast<std::int64_t>(sizeof(T)) <= second_level_cache() / 2;
  const bool in_place = g.b_col == 1 && g.m <= (cached ? 256 : 2 * kernels.rows);
  for (std::int64_t col = 0; col < g.n; col += chunk) {
    const std::int64_t cols = std::min(chunk, g.n - col), whole = in_place ? cols / wide * wide : 0;
    for (std::int64_t k = 0; k < g.k; k += depth) {
      Gemm<T> part = g;
      part.n = cols, part.k = std::min(depth, g.k - k);
      part.a += k * g.a_col;
      part.b += k * g.b_row + col * g.b_col;
      part.c += col * g.c_col;
      part.accumulate = g.accumulate || k > 0;
      const std::int64_t panels = (cols - whole + wide - 1) / wide;
      T* packed = thread_scratch<Scratch::panel_b, T>(static_cast<std::size_t>(panels * wide * part.k));
      pack_panels<T>(kernels.pack_steps, {part.b + whole * g.b_col, g.b_col, g.b_row}, cols - whole, part.k, wide,
                     packed);
      PanelsOfB<T> b{packed, part.k * wide, wide, panels > 0 ? packed + (panels - 1) * part.k * wide : nullptr};
      if (whole > 0) b.first = part.b, b.panel = wide, b.step = g.b_row;
      const bool last = k + depth >= g.k && !turned;
      gemm_block(variant, part, b, last ? finished.from(col) : FinishedPart{});
    }
  }
  if (turned) finished({0, given.m, 0, given.n});
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
