#ifndef TESSERA_PARTITION_PLAN_PLANNED_MESH_HPP
#define TESSERA_PARTITION_PLAN_PLANNED_MESH_HPP
#include <tessera/base/push_macros.hpp>

#include <string_view>

#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/mesh/sub_axes.hpp>

namespace tessera {

/// The mesh that a program is planned on: the given mesh with some axes cut into sub-axes, where a sharding or a
/// reshape needs that. Planning and running see sub-axes as ordinary axes of the refined mesh.
struct PlannedMesh {
  Mesh given;      ///< the mesh of the tensors, whose axes specs name
  AxisCuts cuts;   ///< of its axes
  Mesh refined{};  ///< with one axis for each sub-axis; indices of axes refer to this mesh

  constexpr PlannedMesh(const Mesh& mesh, const AxisCuts& made = {})
      : given(mesh), cuts(made), refined(refined_mesh(mesh, made)) {}

  /// The sharding that a spec names, on the refined mesh.
  constexpr Sharding resolve(const PartitionSpec& spec, int rank) const {
    const Sharding written = tessera::resolve(spec, given, rank);
    return refined_sharding(written, given, cuts);
  }
};

/// A sharding of the refined mesh as a sharding of the given mesh.
constexpr Sharding given_sharding(const Sharding& refined, const Mesh& given, const AxisCuts& cuts) {
  if (cuts.empty()) return refined;
  Sharding made = refined;
  made.cuts = cuts;
  return canonical(made, given);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
