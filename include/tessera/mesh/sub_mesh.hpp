#ifndef TESSERA_MESH_SUB_MESH_HPP
#define TESSERA_MESH_SUB_MESH_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/fixed_string.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/mesh/mesh.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// The devices of a mesh along some of its axes, at fixed coordinates along the others: `mesh["data"]`, or
/// `mesh[{"model", "data"}]` in that order of axes. Device ids and axis names are those of the whole mesh: a spec for
/// the submesh resolves against parent() to a sharding that is replicated along the other axes. Errors: `mesh_axis` for
/// an axis that is unknown or named twice, `mesh_devices` for coordinates outside of the mesh.
///
///     mesh["model"].devices()                  // of the submesh that holds device 0
///     mesh["model"].containing(5).devices()    // of the submesh that holds device 5
class SubMesh {
 public:
  constexpr SubMesh(const Mesh& parent, std::initializer_list<Name> axes)
      : parent_(parent), coordinates_(static_cast<std::size_t>(parent.rank()), 0) {
    for (const Name& name : axes) {
      const int axis = parent.axis_index(name.view());
      if (axes_.contains(axis))
        fail(errc::mesh_axis, "[mesh] distinct axes of a submesh: '", name.view(), "' is given twice");
      axes_.push_back(axis);
      size_ *= parent.axis_size(axis);
    }
  }

  constexpr const Mesh& parent() const { return parent_; }
  constexpr int rank() const { return static_cast<int>(axes_.size()); }
  constexpr std::int64_t size() const { return size_; }
  /// Indices of the axes in the parent.
  constexpr const Coordinates& axes() const { return axes_; }

  /// The submesh along the same axes that contains a device.
  constexpr SubMesh containing(int device) const {
    SubMesh other = *this;
    other.coordinates_ = parent_.coordinates_of(device);
    for (int axis : axes_) other.coordinates_[static_cast<std::size_t>(axis)] = 0;
    return other;
  }
  constexpr bool contains(int device) const { return containing(device).coordinates_ == coordinates_; }

  /// The id, in the whole mesh, of the device at these coordinates in the submesh.
  constexpr int device_at(const Coordinates& coordinates) const {
    if (coordinates.size() != axes_.size())
      fail(errc::mesh_devices, "[mesh] number of coordinates: ", coordinates.size(), " given for ", rank(), " axes");
    Coordinates place = coordinates_;
    for (std::size_t i = 0; i < axes_.size(); ++i) place[static_cast<std::size_t>(axes_[i])] = coordinates[i];
    return parent_.device_at(place);
  }
  /// The coordinates of a device along the axes of the submesh.
  constexpr Coordinates coordinates_of(int device) const {
    if (!contains(device))
      fail(errc::mesh_devices, "[mesh] device id: ", device, " is not in this submesh of ", parent_.text());
    const Coordinates place = parent_.coordinates_of(device);
    Coordinates coordinates;
    for (int axis : axes_) coordinates.push_back(place[static_cast<std::size_t>(axis)]);
    return coordinates;
  }
  /// The device ids, in row-major order of the axes of the submesh.
  constexpr DeviceOrder devices() const {
    Growable<std::int32_t> ids(static_cast<std::size_t>(size_));
    for (std::int64_t i = 0; i < size_; ++i) {
      Coordinates coordinates(axes_.size(), 0);
      std::int64_t rest = i;
      for (std::size_t a = axes_.size(); a-- > 0;) {
        const int size = parent_.axis_size(axes_[a]);
        coordinates[a] = static_cast<int>(rest % size);
        rest /= size;
      }
      ids[static_cast<std::size_t>(i)] = device_at(coordinates);
    }
    return DeviceOrder(ids.data(), ids.size());
  }
  /// A separate mesh with the same axes, whose devices are numbered from 0.
  constexpr Mesh mesh() const {
    AxisTable axes;
    for (int axis : axes_) {
      const bool named = parent_.is_named(axis);
      axes.push_back({named ? parent_.axis_name(axis) : detail::name_of_index(static_cast<int>(axes.size())),
                      parent_.axis_size(axis)});
    }
    return Mesh(axes);
  }

 private:
  Mesh parent_;
  Coordinates axes_;
  Coordinates coordinates_;  // of the submesh: 0 along its own axes
  std::int64_t size_ = 1;
};

constexpr SubMesh Mesh::operator[](std::string_view axis) const { return SubMesh(*this, {Name(axis)}); }
constexpr SubMesh Mesh::operator[](std::initializer_list<Name> axes) const { return SubMesh(*this, axes); }

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
