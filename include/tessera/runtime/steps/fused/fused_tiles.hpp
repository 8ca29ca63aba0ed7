#ifndef TESSERA_RUNTIME_STEPS_FUSED_FUSED_TILES_HPP
#define TESSERA_RUNTIME_STEPS_FUSED_FUSED_TILES_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/fuse/fused.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/long_sums.hpp>
#include <tessera/runtime/memory/buffer.hpp>
#include <tessera/runtime/steps/fused/fused_place.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::runtime::inline TESSERA_ISA {

/// The tiles of the calls of a fused kernel, which threads run independently, and private accumulators per tile for
/// results that are reduced over rows.
struct FusedTiles {
  struct Tile {
    int place;
    std::int64_t row_begin, row_end, inner_begin, inner_end;
    int first_part = 0;  ///< index in FusedTiles::parts, of the first sum of its place
  };
  /// One accumulated result of one place.
  struct Sum {
    int pointer;
    int output;
    int place;
    std::int64_t elements;
    bool is_long = false;  ///< has f64 sums
  };
  /// The private accumulator of a tile for a sum: of those elements to which the tile's rows are added.
  struct Part {
    std::int64_t first = 0, elements = 0;
    std::int64_t scratch = 0;  ///< offset of its first element
  };

  Growable<FusedPlace> places;
  Growable<Tile> tiles;
  Growable<Sum> sums;
  Growable<Part> parts;
  std::int64_t scratch_bytes = 0;
  int reduces = 0;            ///< number of reductions along the row
  bool accumulates = false;   ///< some result is reduced over rows
  bool split_phases = false;  ///< rows are sharded: their reductions are combined across shards between passes
  double tile_cost = 0;       ///< elements of the largest tile

  const Part& part(const Tile& tile, int sum) const {
    const int own = sum - places[static_cast<std::size_t>(tile.place)].first_sum;
    return parts[static_cast<std::size_t>(tile.first_part + own)];
  }
  /// A range of the elements of a sum that contains all to which the rows of a call are added.
  static std::pair<std::int64_t, std::int64_t> summed_range(const FusedCall& call, const FusedStrides& view) {
    std::int64_t first = 0, last = 0, begin = call.row_begin, end = call.row_end - 1;
    for (int d = call.outer_rank - 1; d >= 0; --d) {
      const std::int64_t extent = call.outer_extent[d], stride = view.outer_stride[d];
      if (stride == 0 && d == 0) break;  // as for each run of a sum over all rows: divisions cost as much as the sum
      // If the rows span several indices of an outer dim, they cover this inner dim completely.
      const bool whole = begin / extent != end / extent;
      first += whole ? 0 : begin % extent * stride;
      last += whole ? (extent - 1) * stride : end % extent * stride;
      begin /= extent, end /= extent;
    }
    if (view.row_stride == 0) return {first, last + 1};
    return {first + call.inner_begin, last + call.inner_end};
  }

 protected:
  const Fused& fused_;

  explicit FusedTiles(const Fused& fused) : fused_(fused) {
    for (int i = 0; i < fused_.instr_count; ++i) reduces += fused_.instrs[i].kind == InstrKind::reduce ? 1 : 0;
    for (int s = 0; s < fused_.store_count; ++s)
      accumulates = accumulates || fused_.stores[s].kind == StoreKind::accumulate;
  }

  static std::int64_t aligned(std::int64_t bytes) {
    return (bytes + block_alignment - 1) / block_alignment * block_alignment;
  }

  /// Divides the places. `bytes`: how much of scratch is used before.
  void make_tiles(std::int64_t bytes) {
    constexpr std::int64_t tile_elements = 16384;
    tiles.reserve(places.size());
    for (std::size_t p = 0; p < places.size(); ++p) {
      FusedPlace& place = places[p];
      place.first_tile = static_cast<int>(tiles.size());
      place.unstored = bytes;
      bytes += place.unstored_bytes;
      if (place.idle) continue;
      if (split_phases) {
        place.row_values = bytes;
        bytes += aligned(reduces * place.rows * 8);
      }
      std::int64_t row_step = std::max<std::int64_t>(1, tile_elements / std::max<std::int64_t>(place.inner, 1));
      std::int64_t inner_step = place.inner;
      if (fused_.phases == 1 && place.inner > 2 * tile_elements) inner_step = tile_elements;
      if (accumulates) {
        // The accumulators of all tiles are combined, so the number of tiles is bounded.
        constexpr std::int64_t most = 16;
        const std::int64_t across = place.inner == 0 ? 1 : (place.inner + inner_step - 1) / inner_step;
        if (across > most) inner_step = (place.inner + most - 1) / most / 64 * 64 + 64;
        const std::int64_t along = std::max<std::int64_t>(1, most / across);
        row_step = std::max(row_step, place.inner == 0 ? place.rows : (place.rows + along - 1) / along);
      }
      std::int64_t divided = place.rows;  // how many rows are divided into parts of row_step
      if (place.transposed != 0) {
        constexpr std::int64_t box_rows = 128, box_columns = 128;
        row_step = box_rows;
        inner_step = box_columns;
        divided = place.call.outer_extent[place.call.outer_rank - 1];
      }
      if (inner_step == 0) inner_step = 1;
      for (std::int64_t row = 0, end = 0; row < place.rows; row = end) {
        end = std::min(row + row_step, (row / divided + 1) * divided);
        for (std::int64_t inner = 0; inner == 0 || inner < place.inner;
             inner += inner_step)  // at least one tile: a reduction of 0 elements stores its identity
          tiles.push_back({static_cast<int>(p), row, end, inner, std::min(inner + inner_step, place.inner)});
      }
      place.tiles = static_cast<int>(tiles.size()) - place.first_tile;
      tile_cost =
          std::max(tile_cost, static_cast<double>(std::min(row_step, place.rows) * std::min(inner_step, place.inner)));
      if (accumulates) bytes = add_sums(static_cast<int>(p), bytes);
    }
    scratch_bytes = bytes;
  }

 private:
  /// Gives a sum of more than sum_run terms per element f64 sums. The kernel keeps a full reduction in f64 anyway.
  void add_long_sum(FusedPlace& place, Sum& sum) const {
    if (place.rows == 0 || (fused_.stores[sum.output].along_row && sum.elements == 1)) return;
    const FusedStrides& view = place.outputs[static_cast<std::size_t>(sum.output)].strides;
    std::int64_t rows = 1, terms = 1;  // `rows` consecutive rows add `terms` terms to each element
    for (int d = place.call.outer_rank - 1; d >= 0; --d) {
      const bool reduced = view.outer_stride[d] == 0;
      const std::int64_t extent = place.call.outer_extent[d];
      const std::int64_t taken = reduced ? std::min(extent, kernels::sum_run / terms) : extent;
      rows *= taken;
      if (reduced) terms *= taken;
      if (taken < extent) break;
    }
    if (rows >= place.rows) return;
    place.run_rows = place.run_rows == 0 ? rows : std::min(rows, place.run_rows);
    sum.is_long = true;
  }

  std::int64_t add_sums(int p, std::int64_t scratch) {
    FusedPlace& place = places[static_cast<std::size_t>(p)];
    place.first_sum = static_cast<int>(sums.size());
    for (int s = 0; s < fused_.store_count; ++s) {
      if (fused_.stores[s].kind != StoreKind::accumulate) continue;
      // Private accumulators are contiguous and have only the dims that the output keeps.
      FusedStrides& view = place.outputs[static_cast<std::size_t>(s)].strides;
      std::int64_t elements = 1;
      if (view.row_stride != 0 && !fused_.stores[s].along_row) {
        view.row_stride = 1;
        elements = place.inner;
      } else {
        view.row_stride = 0;
      }
      for (int d = place.call.outer_rank - 1; d >= 0; --d)
        if (view.outer_stride[d] != 0) {
          view.outer_stride[d] = elements;
          elements *= place.call.outer_extent[d];
        }
      sums.push_back({place.outputs[static_cast<std::size_t>(s)].pointer, s, p, elements});
      if (fused_.stores[s].reduction == Reduction::sum && fused_.stores[s].dtype == DType::f32)
        add_long_sum(place, sums.back());
    }
    place.sums = static_cast<int>(sums.size()) - place.first_sum;
    for (int t = place.first_tile; t < place.first_tile + place.tiles; ++t) {
      Tile& tile = tiles[static_cast<std::size_t>(t)];
      tile.first_part = static_cast<int>(parts.size());
      FusedCall call = place.call;
      call.row_begin = tile.row_begin;
      call.row_end = tile.row_end;
      call.inner_begin = tile.inner_begin;
      call.inner_end = tile.inner_end;
      for (int k = place.first_sum; k < place.first_sum + place.sums; ++k) {
        const Sum& sum = sums[static_cast<std::size_t>(k)];
        const auto [first, last] = summed_range(call, place.outputs[static_cast<std::size_t>(sum.output)].strides);
        const Part part{first, std::clamp<std::int64_t>(last - first, 0, sum.elements), scratch};
        parts.push_back(part);
        scratch += aligned(part.elements * static_cast<std::int64_t>(size_of(fused_.stores[sum.output].dtype)));
      }
    }
    return scratch;
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
