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
#include <tessera/mesh/sharding.hpp>

namespace tessera {

/// The groups of devices that take part in a collective together, XLA's replica_groups: all devices, the devices along
/// some mesh axes, or lists of ids. A group is ordered row-major along the axes, or as its list.
class DeviceGroups {
 public:
  DeviceGroups() = default;
  DeviceGroups(const char* axis) : axes_{Name(axis)}, by_axes_(true) {}
  DeviceGroups(std::initializer_list<Name> axes) : axes_(axes), by_axes_(true) {}
  explicit DeviceGroups(std::vector<std::vector<int>> lists) : lists_(std::move(lists)), by_lists_(true) {}

  /// The mesh axes along which the devices of a group differ, one bit each; 0 for groups given as lists.
  unsigned axes(const Mesh& mesh) const {
    if (by_lists_) return 0;
    unsigned mask = 0;
    for (const Name& name : axes_) mask |= 1u << mesh.axis_index(name.view());
    return by_axes_ ? mask : (1u << mesh.rank()) - 1;
  }

  /// The groups as lists of ids. Errors: `mesh_axis` for an unknown axis; `mesh_devices` for lists without a device of
  /// the mesh or with a device twice; `structure` for lists of unequal lengths.
  std::vector<std::vector<int>> on(const Mesh& mesh, std::string_view op) const {
    if (by_lists_) return checked(mesh, op);
    // A group for each combination of coordinates along the other axes, in mesh order.
    const unsigned all = (1u << mesh.rank()) - 1;
    const ShardGrid others(mesh, all & ~axes(mesh));
    std::vector<std::vector<int>> groups(static_cast<std::size_t>(others.count()));
    for (int group = 0; group < others.count(); ++group)
      for (int member = 0; member < others.replicas(); ++member)
        groups[static_cast<std::size_t>(group)].push_back(mesh.device_at(others.coordinates(group, member)));
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
        fail(errc::structure, "[", op, "] equal groups: a group of ", lists_[0].size(), " and a group of ",
             group.size(), " devices");
      for (const int device : group) {
        const bool inside = device >= 0 && device < mesh.size();
        const bool seen_twice = inside && seen[static_cast<std::size_t>(device)];
        if (!inside || seen_twice)
          fail(errc::mesh_devices, "[", op, "] each device in one group: device ", device,
               seen_twice ? " is listed twice" : concat_text(" is outside ", mesh.text()));
        seen[static_cast<std::size_t>(device)] = 1;
        ++listed;
      }
    }
    if (listed != seen.size())
      fail(errc::mesh_devices, "[", op, "] each device in one group: only ", listed, " of ", seen.size(),
           " devices are listed");
    return lists_;
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
