#ifndef TESSERA_PARTITION_PLAN_PLANNED_MESH_HPP
#define TESSERA_PARTITION_PLAN_PLANNED_MESH_HPP
#include <tessera/base/push_macros.hpp>

#include <string_view>

#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/mesh/sub_axes.hpp>

namespace tessera {

/// The mesh that a program is planned on: that of its tensors, with axes cut where a sharding or a reshape takes them
/// in parts. Behind it planning and running know axes alone.
struct PlannedMesh {
  Mesh given;      ///< as tensors have it, and specs name its axes
  AxisCuts cuts;   ///< of its axes
  Mesh refined{};  ///< with an axis for each sub-axis: what indices of axes are about

  constexpr PlannedMesh(const Mesh& mesh, const AxisCuts& made = {})
      : given(mesh), cuts(made), refined(refined_mesh(mesh, made)) {}

  /// A sharding of the given mesh, canonical, as one of the refined mesh.
  constexpr Sharding refine(const Sharding& sharding) const {
    return refined_sharding(canonical(sharding, given), given, cuts);
  }
  /// What a spec says, as a sharding of the refined mesh.
  constexpr Sharding resolve(const PartitionSpec& spec, int rank) const {
    const Sharding written = tessera::resolve(spec, given, rank);
    return refined_sharding(written, given, cuts);
  }
};

/// A sharding of a refined mesh as one of the mesh that was cut.
constexpr Sharding given_sharding(const Sharding& refined, const Mesh& given, const AxisCuts& cuts) {
  if (cuts.empty()) return refined;
  Sharding made = refined;
  made.cuts = cuts;
  return canonical(made, given);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
