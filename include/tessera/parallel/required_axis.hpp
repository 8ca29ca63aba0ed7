#ifndef TESSERA_PARALLEL_REQUIRED_AXIS_HPP
#define TESSERA_PARALLEL_REQUIRED_AXIS_HPP
#include <tessera/base/push_macros.hpp>

#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/mesh/mesh.hpp>

namespace tessera::detail {

/// The index of an axis that `operation` needs. Errors: `mesh_axis`, with the operation and the line, where the mesh
/// lacks the axis.
inline int required_axis(std::string_view operation, const Mesh& mesh, std::string_view axis, Here at) {
  if (!mesh.has_axis(axis))
    fail(errc::mesh_axis, "[", operation, "] axis: ", mesh.text(), " has no axis '", axis, "'", Source::from(at));
  return mesh.axis_index(axis);
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
