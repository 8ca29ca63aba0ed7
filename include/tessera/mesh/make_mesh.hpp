#ifndef TESSERA_MESH_MAKE_MESH_HPP
#define TESSERA_MESH_MAKE_MESH_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/base/error.hpp>
#include <tessera/base/fixed_string.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/source.hpp>
#include <tessera/mesh/mesh.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// A mesh from device ids in row-major order, sizes and names (one per axis, or none), like the constructors of JAX and
/// PyTorch. `device_count` is the number of existing devices, if known. Errors, checked in this order: `mesh_devices`
/// if the numbers of ids and devices differ; `mesh_axis` for names that don't match the sizes, or repeat;
/// `mesh_devices` for ids that don't fill the mesh, repeat, or are out of range.
inline Mesh make_mesh(const std::vector<std::int32_t>& device_ids, const std::vector<int>& sizes,
                      const std::vector<Name>& names = {}, std::int64_t device_count = -1, Here at = Here::current()) {
  const Source source = Source::from(at);
  const auto given = static_cast<std::int64_t>(device_ids.size());
  if (device_count >= 0 && given != device_count)
    fail(errc::mesh_devices, "[mesh] number of device ids: ", given, " ids for ", device_count, " devices", source);
  if (!names.empty() && names.size() != sizes.size())
    fail(errc::mesh_axis, "[mesh] number of axis names: ", names.size(), " names for ", sizes.size(), " axes", source);
  detail::check_axis_count(sizes.size(), source);
  AxisTable axes;
  for (std::size_t axis = 0; axis < sizes.size(); ++axis)
    axes.push_back({names.empty() ? detail::name_of_index(static_cast<int>(axis)) : names[axis], sizes[axis]});
  if (device_ids.empty())
    fail(errc::mesh_devices, "[mesh] number of device ids: the list of ids is empty; give an id for each device",
         source);
  return Mesh(axes, DeviceOrder(device_ids.data(), device_ids.size()), source);
}

/// The device ids as nested lists, one level per axis: "[[0, 1], [2, 3]]".
inline std::string logical_mesh_text(const Mesh& mesh) {
  std::string out;
  const auto print = [&](const auto& self, int axis, Coordinates& place) -> void {
    if (axis == mesh.rank()) {
      out += std::to_string(mesh.device_at(place));
      return;
    }
    out += "[";
    for (int i = 0; i < mesh.axis_size(axis); ++i) {
      if (i > 0) out += ", ";
      place[static_cast<std::size_t>(axis)] = i;
      self(self, axis + 1, place);
    }
    out += "]";
  };
  Coordinates place(static_cast<std::size_t>(mesh.rank()), 0);
  print(print, 0, place);
  return out;
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
