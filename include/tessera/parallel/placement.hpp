#ifndef TESSERA_PARALLEL_PLACEMENT_HPP
#define TESSERA_PARALLEL_PLACEMENT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/parallel/reduce_op.hpp>

namespace tessera {

/// Placement of a tensor along one mesh axis: Shard, Replicate or Partial, as in PyTorch's DTensor.
struct Placement {
  enum class Kind : std::uint8_t { replicate, shard, strided_shard, partial };
  Kind kind = Kind::replicate;
  ReduceOp op = ReduceOp::sum;
  std::int32_t dim = 0;
  std::int32_t split_factor = 1;

  constexpr bool is_shard() const { return kind == Kind::shard || kind == Kind::strided_shard; }
  constexpr bool is_partial() const { return kind == Kind::partial; }
  friend constexpr bool operator==(const Placement&, const Placement&) = default;
};

/// Each device holds the whole tensor.
constexpr Placement Replicate() { return {}; }
/// Each device holds its chunk of a dim; negative dims count from the last.
constexpr Placement Shard(int dim) { return {Placement::Kind::shard, ReduceOp::sum, dim, 1}; }
/// Each device holds a value of the full shape; their sum, average, minimum, maximum or product is the value.
constexpr Placement Partial(ReduceOp op = ReduceOp::sum) { return {Placement::Kind::partial, op, 0, 1}; }
/// A chunk of a dim that mesh axes further right have already split into `split_factor` chunks. With FSDP after tensor
/// parallelism on mesh(data, model), a weight is (StridedShard(0, model size), Shard(0)).
constexpr Placement StridedShard(int dim, int split_factor) {
  return {Placement::Kind::strided_shard, ReduceOp::sum, dim, split_factor};
}

/// One placement for each axis of a mesh.
using Placements = InlineVector<Placement, max_axes>;

/// "(S(0), R, P(sum))", as DTensor prints it.
inline std::string text(const Placements& placements) {
  std::string out = "(";
  for (const Placement& p : placements) {
    if (out.size() > 1) out += ", ";
    if (p.kind == Placement::Kind::replicate) out += "R";
    if (p.kind == Placement::Kind::shard) out += concat_text("S(", p.dim, ")");
    if (p.kind == Placement::Kind::strided_shard) out += concat_text("_S(", p.dim, ", ", p.split_factor, ")");
    if (p.kind == Placement::Kind::partial) out += concat_text("P(", name_of(p.op), ")");
  }
  return out + ")";
}

/// Placements of a tensor of this rank on a mesh, checked, with dims counted from the first.
/// Errors: `structure` for another number of placements than axes; `dim_range`; `unsupported` for a StridedShard whose
/// split_factor is not the number of chunks that axes to its right make, and for Partial placements that don't commute.
constexpr Placements normalized(Placements placements, const Mesh& mesh, int rank, std::string_view op) {
  if (static_cast<int>(placements.size()) != mesh.rank())
    fail(errc::structure, "[", op, "] one placement for each mesh axis: ", text(placements), " for ", mesh.text());
  const Placement* partial = nullptr;
  for (Placement& p : placements) {
    if (p.is_shard()) {
      const int dim = p.dim < 0 ? p.dim + rank : p.dim;
      if (dim < 0 || dim >= rank)
        fail(errc::dim_range, "[", op, "] dim of a placement: ", p.dim, " is out of range in ", text(placements),
             " for a tensor of rank ", rank);
      p.dim = dim;
    }
    if (!p.is_partial()) continue;
    if (p.op == ReduceOp::bit_and || p.op == ReduceOp::bit_or)
      fail(errc::unsupported, "[", op,
           "] reduction of a Partial: only sum, avg, min, max and product are supported, not ", text(placements));
    // The order of reductions over two axes doesn't matter only if both are sums or averages, or the same operation.
    if (partial != nullptr && reduction_of(partial->op) != reduction_of(p.op))
      fail(errc::unsupported, "[", op,
           "] reductions of several Partials: sum and avg may be combined, all others must be equal: ",
           text(placements));
    partial = &p;
  }
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    const Placement& p = placements[static_cast<std::size_t>(axis)];
    if (p.kind != Placement::Kind::strided_shard) continue;
    int chunks = 1;
    for (int right = axis + 1; right < mesh.rank(); ++right) {
      const Placement& other = placements[static_cast<std::size_t>(right)];
      if (other.kind == Placement::Kind::shard && other.dim == p.dim) chunks *= mesh.axis_size(right);
    }
    if (p.split_factor != chunks)
      fail(errc::unsupported, "[", op, "] split_factor of a StridedShard: ", p.split_factor, " in ", text(placements),
           ", but the mesh axes to its right split the dim into ", chunks, " chunks");
  }
  return placements;
}

namespace detail {
/// The mesh axes that split a dim, one bit each.
constexpr unsigned split_axes(const Placements& placements) {
  unsigned axes = 0;
  for (std::size_t axis = 0; axis < placements.size(); ++axis) axes |= unsigned{placements[axis].is_shard()} << axis;
  return axes;
}

/// The mesh axes that split a dim, in the order of the splits: first Shard, from left to right, then StridedShard, from
/// right to left.
constexpr InlineVector<std::uint8_t, max_axes> chunk_order(const Placements& placements, int dim) {
  InlineVector<std::uint8_t, max_axes> axes;
  for (std::size_t axis = 0; axis < placements.size(); ++axis)
    if (placements[axis].kind == Placement::Kind::shard && placements[axis].dim == dim)
      axes.push_back(static_cast<std::uint8_t>(axis));
  for (std::size_t axis = placements.size(); axis-- > 0;)
    if (placements[axis].kind == Placement::Kind::strided_shard && placements[axis].dim == dim)
      axes.push_back(static_cast<std::uint8_t>(axis));
  return axes;
}
}  // namespace detail

/// The indices that the device at `coordinates` holds. As in DTensor, the first axis splits a dim of n into chunks of
/// ceil(n/k), the next axis splits each chunk, and so on: two axes of 2 split 5 rows into 2, 1, 1, 1, where a Sharding
/// splits them into 2, 2, 1, 0. An empty chunk is at the end of the dim.
constexpr Box placed_box(const Shape& shape, const Placements& placements, const Mesh& mesh,
                         const Coordinates& coordinates) {
  Box box{Shape(shape.size(), 0), shape};
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    for (std::uint8_t axis : detail::chunk_order(placements, static_cast<int>(dim))) {
      const std::int64_t n = box.end[dim] - box.begin[dim], k = mesh.axis_size(axis);
      const std::int64_t chunk = n / k + (n % k != 0), at = coordinates[axis] * chunk;
      const std::int64_t skipped = at < n ? at : n, left = n - skipped;
      box.begin[dim] += skipped;
      box.end[dim] = box.begin[dim] + (chunk < left ? chunk : left);
    }
    if (box.begin[dim] == box.end[dim]) box.begin[dim] = box.end[dim] = shape[dim];
  }
  return box;
}

/// The sharding that has the same shards as the placements, if all chunks are even. Averages become sums.
/// Errors: `capacity`.
constexpr Sharding sharding_of(const Placements& placements, const Mesh& mesh, int rank) {
  Sharding made = replicated(rank);
  for (int dim = 0; dim < rank; ++dim)
    for (std::uint8_t axis : detail::chunk_order(placements, dim)) made.dims[dim].push_back(axis);
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    const Placement& p = placements[static_cast<std::size_t>(axis)];
    if (!p.is_partial()) continue;
    made.unreduced = static_cast<std::uint16_t>(made.unreduced | 1u << axis);
    made.reduction = reduction_of(p.op);
  }
  return made;
}

/// The placements of a sharding. Errors: `unsupported` if there are none: for sub-axes, and for a dim split by axes in
/// an order that is no sequence of ascending (Shard), then descending (StridedShard) axes of the mesh.
constexpr Placements placements_of(const Sharding& sharding, const Mesh& mesh) {
  if (!sharding.cuts.empty())
    fail(errc::unsupported, "[placement] placements of a sharding: no placements express the sub-axes of ",
         text(sharding, mesh));
  Placements made(static_cast<std::size_t>(mesh.rank()), Replicate());
  for (int axis = 0; axis < mesh.rank(); ++axis)
    if (sharding.unreduced >> axis & 1u)
      made[static_cast<std::size_t>(axis)] = Partial(reduce_op_of(sharding.reduction));
  for (int dim = 0; dim < sharding.rank; ++dim) {
    const AxisList& axes = sharding.dims[dim];
    // The ascending first axes are Shard; the axes after them split the dim later than an axis further right.
    std::size_t plain = axes.empty() ? 0 : 1;
    while (plain < axes.size() && axes[plain] > axes[plain - 1]) ++plain;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      int chunks = 1;
      for (std::size_t j = 0; j < plain && i >= plain; ++j)
        if (axes[j] > axes[i]) chunks *= mesh.axis_size(axes[j]);
      made[axes[i]] = i < plain ? Shard(dim) : StridedShard(dim, chunks);
    }
    const auto order = detail::chunk_order(made, dim);
    bool same = order.size() == axes.size();
    for (std::size_t i = 0; same && i < axes.size(); ++i) same = order[i] == axes[i];
    if (!same)
      fail(errc::unsupported, "[placement] placements of a sharding: no placements express the order of the axes of ",
           text(sharding, mesh));
  }
  return made;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
