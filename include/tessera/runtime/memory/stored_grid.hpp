#ifndef TESSERA_RUNTIME_MEMORY_STORED_GRID_HPP
#define TESSERA_RUNTIME_MEMORY_STORED_GRID_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/error.hpp>
#include <tessera/mesh/sharding.hpp>

namespace tessera::runtime {

/// Limit of distinct shards of a tensor and of places of a step: the tables for each take up to a kilobyte.
inline constexpr int most_shards = 1 << 20;

/// The distinct shards of a tensor in memory (planning alone has no limit). Errors: `capacity` above most_shards.
inline ShardGrid stored_grid(const Mesh& mesh, const Sharding& sharding) {
  const ShardGrid grid(mesh, sharding);
  if (grid.count() > most_shards)
    fail(errc::capacity, "[run] shards: ", text(sharding, mesh), " on ", mesh.text(), " has ", grid.count(),
         " distinct shards, but a stored tensor has at most ", most_shards, "; only a plan may have more");
  return grid;
}

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
