#ifndef TESSERA_PARALLEL_DEVICE_GROUPS_HPP
#define TESSERA_PARALLEL_DEVICE_GROUPS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/base/error.hpp>
#include <tessera/base/fixed_string.hpp>
#include <tessera/mesh/mesh.hpp>

namespace tessera {

/// Which devices of a mesh take part in a collective together: all of them, those along some axes, or lists of ids. The
/// order within a group is that of the axes, row-major, or of the list.
class DeviceGroups {
 public:
  DeviceGroups() = default;
  DeviceGroups(const char* axis) : axes_{Name(axis)}, by_axes_(true) {}
  DeviceGroups(std::initializer_list<Name> axes) : axes_(axes), by_axes_(true) {}
  explicit DeviceGroups(std::vector<std::vector<int>> lists) : lists_(std::move(lists)), by_lists_(true) {}

  /// The mesh axes that the groups run along, one bit each; 0 for lists.
  unsigned axes(const Mesh& mesh) const {
    if (by_lists_) return 0;
    unsigned mask = 0;
    for (const Name& name : axes_) mask |= 1u << mesh.axis_index(name.view());
    return by_axes_ ? mask : (1u << mesh.rank()) - 1;
  }

  /// The groups as lists. Errors: `mesh_axis` for an unknown axis; `mesh_devices` for lists in which a device of the
  /// mesh is missing or comes twice, `structure` for lists of unequal lengths.
  std::vector<std::vector<int>> on(const Mesh& mesh, std::string_view op) const {
    if (by_lists_) return checked(mesh, op);
    const unsigned along = axes(mesh);
    // A group for each combination of coordinates along the other axes, in mesh order.
    std::vector<std::vector<int>> groups;
    std::vector<Coordinates> places;
    Coordinates at(static_cast<std::size_t>(mesh.rank()), 0);
    for (std::int64_t position = 0; position < mesh.size(); ++position) {
      std::int64_t rest = position;
      for (int axis = mesh.rank() - 1; axis >= 0; --axis) {
        at[static_cast<std::size_t>(axis)] = static_cast<int>(rest % mesh.axis_size(axis));
        rest /= mesh.axis_size(axis);
      }
      Coordinates place = at;
      for (int axis = 0; axis < mesh.rank(); ++axis)
        if (along >> axis & 1u) place[static_cast<std::size_t>(axis)] = 0;
      std::size_t g = 0;
      while (g < places.size() && !(places[g] == place)) ++g;
      if (g == places.size()) {
        places.push_back(place);
        groups.emplace_back();
      }
      groups[g].push_back(mesh.device_at(at));
    }
    return groups;
  }

 private:
  std::vector<Name> axes_;
  std::vector<std::vector<int>> lists_;
  bool by_axes_ = false, by_lists_ = false;

  std::vector<std::vector<int>> checked(const Mesh& mesh, std::string_view op) const {
    std::vector<char> seen(static_cast<std::size_t>(mesh.size()), 0);
    std::size_t listed = 0;
    for (const std::vector<int>& group : lists_) {
      if (group.size() != lists_[0].size())
        fail(errc::structure, "[", op, "] groups of one size: ", group.size(), " and ", lists_[0].size(), " devices");
      for (const int device : group) {
        if (device < 0 || device >= mesh.size() || seen[static_cast<std::size_t>(device)])
          fail(errc::mesh_devices, "[", op, "] each device in one group: ", device, " in ", mesh.text());
        seen[static_cast<std::size_t>(device)] = 1;
        ++listed;
      }
    }
    if (listed != seen.size())
      fail(errc::mesh_devices, "[", op, "] each device in one group: ", listed, " of ", seen.size(), " are listed");
    return lists_;
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
