#ifndef TESSERA_PARALLEL_MOVE_PIECES_HPP
#define TESSERA_PARALLEL_MOVE_PIECES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/base/dtype.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/parallel/placement.hpp>
#include <tessera/runtime/transport/reduce_shards.hpp>
#include <tessera/runtime/transport/reshard.hpp>

namespace tessera::detail {

/// Copies a value from the shards of placements `from` to those of `to`. Reduces the value over the axes `reduced`, in
/// mesh order; along the axes `kept` it stays partial, so each part is copied to the part with the same coordinates.
/// `in` has an array per device, `out` one per shard of the grid over `out_axes`; null: nothing is written there. Each
/// process has all of these arrays.
inline void move_pieces(DType type, Reduction reduction, const Shape& shape, const Mesh& mesh, const Placements& from,
                        const Placements& to, unsigned reduced, unsigned kept, unsigned out_axes,
                        std::span<const void* const> in, std::span<void* const> out) {
  using runtime::Holders;
  const unsigned split = split_axes(from), in_axes = split | reduced | kept;
  const ShardGrid chunks(mesh, split), parts(mesh, reduced), keeps(mesh, kept), outs(mesh, out_axes);
  std::vector<std::vector<runtime::ShardRef>> destinations(static_cast<std::size_t>(keeps.count()));
  for (int shard = 0; shard < outs.count(); ++shard) {
    void* const data = out[static_cast<std::size_t>(shard)];
    if (data == nullptr) continue;
    const Coordinates at = outs.coordinates(shard);
    destinations[static_cast<std::size_t>(keeps.index_of(at))].push_back(
        runtime::shard_ref(data, placed_box(shape, to, mesh, at), Holders(mesh, out_axes, at).in_every_process()));
  }
  std::vector<runtime::ShardRef> sources;
  for (int k = 0; k < keeps.count(); ++k) {
    sources.clear();
    const Coordinates kept_at = keeps.coordinates(k);
    for (int chunk = 0; chunk < chunks.count(); ++chunk)
      for (int part = 0; part < parts.count(); ++part) {
        Coordinates at = chunks.coordinates(chunk);
        const Coordinates part_at = parts.coordinates(part);
        for (std::size_t axis = 0; axis < at.size(); ++axis) at[axis] += part_at[axis] + kept_at[axis];
        void* const data = const_cast<void*>(in[static_cast<std::size_t>(mesh.device_at(at))]);
        sources.push_back(
            runtime::shard_ref(data, placed_box(shape, from, mesh, at), Holders(mesh, in_axes, at).in_every_process()));
      }
    runtime::reduce_shards(type, reduction, destinations[static_cast<std::size_t>(k)], sources, parts.count());
  }
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
