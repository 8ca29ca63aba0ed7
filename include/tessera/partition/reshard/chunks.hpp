#ifndef TESSERA_PARTITION_RESHARD_CHUNKS_HPP
#define TESSERA_PARTITION_RESHARD_CHUNKS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/planning.hpp>
#include <tessera/graph/ir/row.hpp>
#include <tessera/ops/rows.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// Rows of a dim: begin <= row < end.
struct IndexRange {
  std::int64_t begin = 0, end = 0;

  constexpr std::int64_t size() const { return end > begin ? end - begin : 0; }
  constexpr IndexRange within(const IndexRange& other) const {
    return {begin > other.begin ? begin : other.begin, end < other.end ? end : other.end};
  }
};

/// The windows of a dim that begin in a range of its rows, of windows without end.
constexpr IndexRange windows_at(const WindowedDim& dim, const IndexRange& rows) {
  const auto from = [&](std::int64_t row) {  // the first window that begins at this row or after it
    const std::int64_t on = row + dim.before;
    return on > 0 ? (on - 1) / dim.stride + 1 : on / dim.stride;
  };
  return rows.size() == 0 ? IndexRange{} : IndexRange{from(rows.begin), from(rows.end)};
}

/// How many rows of a dim each of `count` devices holds. The last devices with rows may hold fewer, or none.
constexpr std::int64_t rows_of_chunk(std::int64_t extent, std::int64_t count) {
  return extent / count + (extent % count != 0);
}
constexpr IndexRange chunk_of(std::int64_t extent, std::int64_t count, std::int64_t device) {
  const std::int64_t rows = rows_of_chunk(extent, count);
  return IndexRange{device * rows, (device + 1) * rows}.within({0, extent});
}

// A dim split by several axes has a chunk for each combination of them, so chunks of {x,y} need not be within chunks of
// {x}: of 12 rows on 4 x 4 devices, device (1, 3) has rows 3 to 5 when {x} splits them, and row 7 when {x,y} does.
// Below, a dim is split into `outer` chunks along the first axes, and into outer * inner along all.

/// The most rows that a device lacks when outer chunks become outer * inner, if it keeps what it has of its new chunk.
constexpr std::int64_t rows_lacking_after_slice(std::int64_t extent, std::int64_t outer, std::int64_t inner) {
  const std::int64_t rows = rows_of_chunk(extent, outer * inner);
  if (rows == 0 || rows * inner == rows_of_chunk(extent, outer)) return 0;
  std::int64_t most = 0;
  // The larger k is, the further new chunk k begins after chunk k / inner. The last full chunk, the chunk after it, or
  // the last new chunk of the outer chunk before lacks most.
  const std::int64_t full = extent / rows - 1;
  const std::int64_t candidates[] = {full - (full + 1) % inner, full, full + 1};
  for (const std::int64_t k : candidates) {
    if (k < 0 || k >= outer * inner) continue;
    const IndexRange chunk = chunk_of(extent, outer * inner, k);
    const std::int64_t lacking = chunk.size() - chunk.within(chunk_of(extent, outer, k / inner)).size();
    if (lacking > most) most = lacking;
  }
  return most;
}

/// The most rows that a device lacks when outer * inner chunks become outer, after each device has got the chunks of
/// the devices that differ from it only along the inner axes.
constexpr std::int64_t rows_lacking_after_gather(std::int64_t extent, std::int64_t outer, std::int64_t inner) {
  const std::int64_t rows = rows_of_chunk(extent, outer), gathered = rows_of_chunk(extent, outer * inner) * inner;
  if (rows == 0 || gathered == rows) return 0;
  std::int64_t most = 0;
  // Chunk i begins i * (gathered - rows) rows before what was gathered: the last full chunk or the next lacks most.
  const std::int64_t full = extent / rows - 1;
  const std::int64_t candidates[] = {full, full + 1};
  for (const std::int64_t i : candidates) {
    if (i < 0 || i >= outer) continue;
    const IndexRange chunk = chunk_of(extent, outer, i);
    const std::int64_t lacking = chunk.size() - chunk.within({i * gathered, (i + 1) * gathered}).size();
    if (lacking > most) most = lacking;
  }
  return most;
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
