#ifndef TESSERA_TENSOR_GLOBAL_MESH_HPP
#define TESSERA_TENSOR_GLOBAL_MESH_HPP
#include <tessera/base/push_macros.hpp>

#include <mutex>
#include <optional>
#include <utility>

#include <tessera/base/error.hpp>
#include <tessera/kernels/at_fork.hpp>
#include <tessera/kernels/made_once.hpp>
#include <tessera/mesh/mesh.hpp>

namespace tessera {

namespace detail {
struct GlobalMesh {
  std::mutex mutex;
  std::optional<Mesh> mesh;

  static GlobalMesh& instance() {
    static constinit MadeOnce<GlobalMesh> global;
    return global.get([] { return new GlobalMesh; });
  }
  GlobalMesh() {
    hold_at_fork<[]() -> std::mutex& { return instance().mutex; }>();
  }
  std::optional<Mesh> exchange(std::optional<Mesh> next) {
    const std::lock_guard lock(mutex);
    return std::exchange(mesh, std::move(next));
  }
};
}  // namespace detail

/// Sets the mesh of this process. All threads see it; a later call replaces it.
inline void set_global_mesh(const Mesh& mesh) { detail::GlobalMesh::instance().exchange(mesh); }
/// The mesh of this process, set by set_global_mesh. Errors: `mesh_devices` if no mesh is set.
inline Mesh global_mesh() {
  auto& global = detail::GlobalMesh::instance();
  const std::lock_guard lock(global.mutex);
  if (!global.mesh)
    fail(errc::mesh_devices, "[global_mesh] global mesh: no mesh is set; call ts::set_global_mesh(mesh) first");
  return *global.mesh;
}

/// Sets the mesh of this process; its destructor restores the previous mesh.
class GlobalMeshScope {
 public:
  explicit GlobalMeshScope(const Mesh& mesh) : before_(detail::GlobalMesh::instance().exchange(mesh)) {}
  ~GlobalMeshScope() { detail::GlobalMesh::instance().exchange(before_); }
  GlobalMeshScope(const GlobalMeshScope&) = delete;
  GlobalMeshScope& operator=(const GlobalMeshScope&) = delete;

 private:
  std::optional<Mesh> before_;
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
