#ifndef TESSERA_PARTITION_RESHARD_HALO_HPP
#define TESSERA_PARTITION_RESHARD_HALO_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/ops/rows.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/partition/reshard/chunks.hpp>
#include <tessera/partition/reshard/reshard_path.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// The rows of an operand from which rows of the result are computed: row i reads the rows [first, last) + i * stride
/// that exist. Examples: a slice reads [start, start + 1); padding and concat read before the operand's first row and
/// past its last; a convolution reads [-padding, -padding + window), a halo of `padding` rows on the left and the rest
/// on the right.
struct HaloWindow {
  std::int64_t extent = 0;  ///< of the operand
  std::int64_t first = 0, last = 1;
  std::int64_t stride = 1;

  /// The rows read for a range of result rows. Rows that a stride above the window skips are included.
  constexpr IndexRange read_by(const IndexRange& rows) const {
    if (rows.size() == 0) return {};
    return IndexRange{rows.begin * stride + first, (rows.end - 1) * stride + last}.within({0, extent});
  }
  /// Whether the windows of consecutive rows neither overlap nor leave gaps.
  constexpr bool reads_once() const { return last - first == stride; }
};

/// The rows that devices exchange when an operand and the result are both split over the same `count` devices in equal
/// chunks: each device sends the rows of its chunk that other devices need for their chunks of the result.
class Halo {
 public:
  /// `rows`: extent of the result's dim.
  constexpr Halo(std::int64_t rows, std::int64_t count) : rows_(rows), count_(count) {}
  constexpr void read(const HaloWindow& window) { windows_.push_back(window); }

  /// Rows that a device sends, of all operands together.
  constexpr std::int64_t sent_by(std::int64_t device) const {
    std::int64_t sent = 0;
    for (const HaloWindow& window : windows_) {
      const IndexRange own = chunk_of(window.extent, count_, device);
      if (window.reads_once()) {
        sent += window.read_by({0, rows_}).within(own).size();
      } else {
        for (std::int64_t to = first_reader(window, own); to < count_; ++to) {
          const IndexRange rows = chunk_of(rows_, count_, to), read = window.read_by(rows);
          if (rows.size() == 0 || read.begin >= own.end) break;
          sent += read.within(own).size();
        }
      }
      sent -= window.read_by(chunk_of(rows_, count_, device)).within(own).size();
    }
    return sent;
  }

  /// The rows sent by the device that sends most. Along the devices the number of sent rows is piecewise linear, so on
  /// many devices only those next to its corners, where borders of chunks cross, need to be looked at.
  constexpr std::int64_t most_sent() const {
    std::int64_t most = 0;
    const auto look_at = [&](std::int64_t device) {
      if (device < 0 || device >= count_) return;
      const std::int64_t sent = sent_by(device);
      most = sent > most ? sent : most;
    };
    bool all = count_ <= few;
    for (const HaloWindow& window : windows_) all = all || !window.reads_once();
    for (std::int64_t device = 0; all && device < count_; ++device) look_at(device);
    for (const HaloWindow& window : windows_) {
      if (all) break;
      const std::int64_t chunk = rows_of_chunk(window.extent, count_);
      const std::int64_t read = rows_of_chunk(rows_, count_) * window.stride;
      const Line lines[] = {
          {chunk, 0}, {chunk, chunk},    {read, window.first}, {read, window.first + read},
          {0, 0},     {0, window.first}, {0, window.extent},   {0, (rows_ - 1) * window.stride + window.last}};
      for (const Line& a : lines)
        for (const Line& b : lines) {
          if (a.slope <= b.slope) continue;
          const std::int64_t device = (b.at_zero - a.at_zero) / (a.slope - b.slope);
          for (std::int64_t near = device - 1; near <= device + 1; ++near) look_at(near);
        }
      look_at(0);
      look_at(count_ - 1);
    }
    return most;
  }

 private:
  static constexpr std::int64_t few = 64;
  /// A border of a chunk (a row) as a linear function of the device: slope * device + at_zero.
  struct Line {
    std::int64_t slope, at_zero;
  };
  std::int64_t rows_, count_;
  Growable<HaloWindow> windows_;

  /// A lower bound of the devices whose chunk of the result reads rows of the given range.
  constexpr std::int64_t first_reader(const HaloWindow& window, const IndexRange& rows) const {
    const std::int64_t step = rows_of_chunk(rows_, count_) * window.stride;
    const std::int64_t reads_past = rows.begin - window.last;
    return step == 0 ? count_ : reads_past < step ? 0 : reads_past / step - 1;
  }
};

namespace detail {

constexpr CollectiveInfo sent_along(const Node& node, const Sharding& made, std::int64_t bytes, const char* why) {
  CollectiveInfo sent;
  sent.kind = Collective::permute;
  for (std::uint8_t axis : made.dims[dim_of(node)]) sent.axes = static_cast<std::uint16_t>(sent.axes | 1u << axis);
  sent.dtype = node.dtype;
  sent.payload_bytes = sent.wire_bytes = bytes;
  sent.source = node.source;
  sent.why = why;
  return sent;
}

}  // namespace detail

/// Bytes that a device sends when a node takes windows of dims, or adds windows into them, along dims that are split.
/// Windows are split in equal chunks, and so are the rows of the dim; a device sends the rows of its chunk that windows
/// of other devices need, or, where windows are added, the sums of its windows that are in the chunks of others.
constexpr std::int64_t window_halo_bytes(const ShapeContext& c, const Sharding& made, const Mesh& mesh) {
  const bool takes = row_of(c.node()).unit == UnitKind::data_movement;
  Shape slab = local_extents(c.shapes[c.id], made, mesh);  // one row, on the device that holds most
  // By windowed dim and device along it: the rows that it has for all devices, and for itself.
  Growable<std::int64_t> all[3], own[3];
  std::int64_t devices = 1;
  const WindowedDims dims = row_of(c.node()).windows(c);
  const bool single = ops::of_single_rows(dims);
  for (std::size_t k = 0; k < dims.size(); ++k) {
    const WindowedDim& dim = dims[k];
    const int at = takes ? dim.runs : dim.line;
    slab[static_cast<std::size_t>(at)] = 1;
    if (takes) slab[static_cast<std::size_t>(at + 1)] = 1;
    const std::int64_t count = shard_count(made, mesh, at);
    const HaloWindow window{dim.extent, -dim.before, dim.span() - dim.before, dim.stride};
    const auto shared = [&](std::int64_t holder, std::int64_t windows) {
      const IndexRange rows = chunk_of(dim.extent, count, holder), runs = chunk_of(dim.count, count, windows);
      return single ? windows_at(dim, rows).within(runs).size() : window.read_by(runs).within(rows).size();
    };
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t sum = 0;
      for (std::int64_t j = 0; j < count; ++j) sum += takes ? shared(i, j) : shared(j, i);
      all[k].push_back(sum);
      own[k].push_back(shared(i, i));
    }
    devices *= count;
  }
  std::int64_t most = 0;
  for (std::int64_t device = 0; device < devices; ++device) {
    std::int64_t rest = device, every = 1, kept = 1;
    for (std::size_t k = 0; k < dims.size(); ++k) {
      const auto count = static_cast<std::int64_t>(all[k].size());
      every *= all[k][static_cast<std::size_t>(rest % count)];
      kept *= own[k][static_cast<std::size_t>(rest % count)];
      rest /= count;
    }
    most = every - kept > most ? every - kept : most;
  }
  return checked_product(most, volume(slab) * static_cast<std::int64_t>(size_of(c.node().dtype)), "bytes of a halo",
                         c.node().source);
}

/// How many rows the device that sends most sends when a slice, pad or concat moves rows along a dim along which its
/// operands and its result, of sharding `made`, are split alike.
constexpr std::int64_t halo_rows(const ShapeContext& c, const Sharding& made, const Mesh& mesh) {
  const int dim = dim_of(c.node());
  const OpRow& row = row_of(c.node());
  Halo halo(c.shapes[c.id][static_cast<std::size_t>(dim)], shard_count(made, mesh, dim));
  for (int i = 0; i < c.node().arity; ++i) {
    if (!c.has(i) || has_operand(row.shape_only, i) || c.graph.operand_node(c.id, i).rank != c.node().rank) continue;
    if (c.graph.operand_node(c.id, i).is_singleton(dim)) continue;  // singleton dims are on every device
    const std::int64_t offset = row.offset(c, i);
    halo.read({c.operand(i)[static_cast<std::size_t>(dim)], -offset, 1 - offset});
  }
  return halo.most_sent();
}

/// Bytes that a device sends when a node moves rows or takes windows along a dim along which its operands and its
/// result, of sharding `made`, are split alike: those of the device that sends most.
constexpr std::int64_t halo_bytes(const ShapeContext& c, const Sharding& made, const Mesh& mesh) {
  if (row_of(c.node()).windows != nullptr) return window_halo_bytes(c, made, mesh);
  Shape slab = local_extents(c.shapes[c.id], made, mesh);  // one row, on the device that holds most
  slab[static_cast<std::size_t>(dim_of(c.node()))] = 1;
  return checked_product(halo_rows(c, made, mesh), volume(slab) * static_cast<std::int64_t>(size_of(c.node().dtype)),
                         "bytes of a halo", c.node().source);
}

/// The collective of a data movement operation along the dim that it works along: a permute of the rows that cross
/// borders of shards. None where that dim is not split. `made` is the sharding of the result.
constexpr Growable<CollectiveInfo> halo_exchange(const ShapeContext& c, const Sharding& made, const Mesh& mesh) {
  Growable<CollectiveInfo> sent;
  const Node& node = c.node();
  if (row_of(node).windows != nullptr) {
    const std::int64_t bytes = window_halo_bytes(c, made, mesh);
    if (bytes == 0) return sent;
    CollectiveInfo halo = detail::sent_along(node, made, bytes, "halo");
    halo.axes = 0;
    for (const WindowedDim& dim : row_of(node).windows(c))
      for (std::uint8_t axis : made.dims[row_of(node).unit == UnitKind::data_movement ? dim.runs : dim.line])
        halo.axes = static_cast<std::uint16_t>(halo.axes | 1u << axis);
    sent.push_back(halo);
    return sent;
  }
  const bool moves = row_of(node).offset != nullptr;
  if ((row_of(node).permutation == nullptr && !moves) || made.dims[dim_of(node)].empty()) return sent;
  const std::int64_t bytes = moves ? halo_bytes(c, made, mesh) : local_bytes(c.shapes[c.id], made, mesh, node.dtype);
  if (bytes != 0 || !moves) sent.push_back(detail::sent_along(node, made, bytes, moves ? "halo" : "shard_map"));
  return sent;
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
