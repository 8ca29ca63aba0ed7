#ifndef TESSERA_MESH_MESH_HPP
#define TESSERA_MESH_MESH_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/fixed_string.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/base/integers/hash.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/source.hpp>
#include <tessera/mesh/device_order.hpp>
#include <tessera/mesh/text_reader.hpp>

namespace tessera {

/// The maximum number of axes of a mesh.
inline constexpr int max_axes = 6;

/// An axis of a mesh. An axis without a name is named by its index in decimal digits.
struct Axis {
  Name name;
  int size = 1;
  friend constexpr bool operator==(const Axis&, const Axis&) = default;
};

using AxisTable = InlineVector<Axis, max_axes>;

namespace detail {
constexpr void check_axis_count(std::size_t count, Source source = {}) {
  if (count > max_axes)
    fail(errc::capacity, "[mesh] number of axes: ", count, "; a mesh has at most ", max_axes, source);
}
}  // namespace detail

/// The coordinates of a device: one index per axis, in mesh order.
using Coordinates = InlineVector<int, max_axes>;

class SubMesh;  // mesh/sub_mesh.hpp

/// Devices arranged in a grid of named axes. A mesh without axes is one device.
/// Device ids are 0 to size()-1 in row-major order of the axes, unless you pass another order. A mesh without axes can
/// be one device of another mesh, with its id. A mesh is a plain value of fixed size, for any number of devices.
/// Errors: `mesh_axis` for a bad name or size, `mesh_devices` for an order that is not a permutation of the ids.
///
///     constexpr ts::Mesh mesh({{"data", 2}, {"model", 4}});
class Mesh {
 public:
  constexpr Mesh() = default;
  constexpr Mesh(std::initializer_list<Axis> axes, const DeviceOrder& order = {}, Here at = Here::current())
      : Mesh((detail::check_axis_count(axes.size(), Source::from(at)), AxisTable(axes)), order, Source::from(at)) {}
  constexpr explicit Mesh(const AxisTable& axes, const DeviceOrder& order = {}, Source source = {})
      : axes_(axes), order_(order) {
    check_axes(source);
    check_order(source);
  }

  constexpr int rank() const { return static_cast<int>(axes_.count); }
  /// Number of devices.
  constexpr std::int64_t size() const { return size_; }
  /// Name and size of each axis, in mesh order.
  constexpr const AxisTable& axes() const { return axes_; }
  /// Sizes of the axes, in mesh order.
  constexpr Coordinates shape() const {
    Coordinates sizes;
    for (const Axis& axis : axes_) sizes.push_back(axis.size);
    return sizes;
  }
  constexpr int axis_size(int axis) const { return at(axis).size; }
  constexpr Name axis_name(int axis) const { return at(axis).name; }
  constexpr bool is_named(int axis) const { return detail::index_of_digits(at(axis).name.view()) < 0; }
  constexpr bool has_axis(std::string_view name) const { return find(name) < rank(); }
  /// The index of an axis, from its name or from its index in digits. Errors: `mesh_axis`, with the names of the mesh.
  constexpr int axis_index(std::string_view name) const {
    const int axis = find(name);
    if (axis == rank()) fail_axis_is_not_in_the_mesh(name);
    return axis;
  }

  /// The submesh along some of its axes, as in DeviceMesh; defined in mesh/sub_mesh.hpp.
  constexpr SubMesh operator[](std::string_view axis) const;
  constexpr SubMesh operator[](std::initializer_list<Name> axes) const;

  /// The device ids in row-major order of the axes; empty where they are 0, 1, 2, ...
  constexpr const DeviceOrder& order() const { return order_; }
  constexpr int device_at(const Coordinates& coordinates) const {
    if (coordinates.size() != axes_.size())
      fail(errc::mesh_devices, "[mesh] number of coordinates: ", coordinates.size(), " given for ", rank(), " axes");
    std::int64_t position = 0;
    for (int axis = 0; axis < rank(); ++axis) {
      const int size = axes_[axis].size;
      if (coordinates[axis] < 0 || coordinates[axis] >= size)
        fail(errc::mesh_devices, "[mesh] coordinate range: ", coordinates[axis], " is outside axis '",
             axes_[axis].name.view(), "' of size ", size);
      position = position * size + coordinates[axis];
    }
    return order_.empty() ? static_cast<int>(position) : order_[position];
  }
  constexpr Coordinates coordinates_of(int device) const {
    if (axes_.empty() && !order_.empty() ? device != order_[0] : device < 0 || device >= size_)
      fail(errc::mesh_devices, "[mesh] device id: no device of ", text(), " has id ", device);
    std::int64_t position = order_.empty() ? device : order_.position_of(device);
    Coordinates coordinates(axes_.size(), 0);
    for (int axis = rank() - 1; axis >= 0; --axis) {
      coordinates[axis] = static_cast<int>(position % axes_[axis].size);
      position /= axes_[axis].size;
    }
    return coordinates;
  }

  friend constexpr bool operator==(const Mesh&, const Mesh&) = default;
  constexpr std::uint64_t hash() const {
    std::uint64_t hash = hash_mix(0, axes_.size());
    for (const Axis& axis : axes_)
      hash = hash_mix(hash_mix(hash, axis.name.view()), static_cast<std::uint64_t>(axis.size));
    return order_.empty() ? hash : hash_mix(hash, order_.hash());
  }

  /// "mesh(data=2,model=4)". Ids that are not row-major follow as ";order=3,2,1,0", or, for more than eight devices in
  /// the order of a transposed array, as ";order=[2,4]T(1,0)". parse_mesh parses this text.
  TESSERA_PLANNING std::string text() const {
    std::string out = "mesh(";
    const char* separator = "";
    for (const Axis& axis : axes_) {
      out += concat_text(separator, axis.name.view(), "=", axis.size);
      separator = ",";
    }
    if (order_.empty()) return out + ")";
    const bool few = !order_.is_counter() || size_ <= 8;
    return concat_text(out, ";order=", few ? order_.list_text() : order_.counter_text(), ")");
  }

 private:
  constexpr int find(std::string_view name) const {
    int axis = 0;
    while (axis < rank() && axes_[axis].name.view() != name) ++axis;
    if (const int index = detail::index_of_digits(name); axis == rank() && index >= 0 && index < rank()) return index;
    return axis;
  }
  constexpr const Axis& at(int axis) const {
    if (axis < 0 || axis >= rank())
      fail(errc::mesh_axis, "[mesh] axis index: ", axis, " on a mesh of ", rank(), " axes; the first axis has index 0");
    return axes_[axis];
  }

  constexpr void check_axes(Source source) {
    for (int axis = 0; axis < rank(); ++axis) {
      const std::string_view name = axes_[axis].name.view();
      if (!detail::is_axis_name(name))
        fail(errc::mesh_axis, "[mesh] axis name: '", name,
             "' is empty, '-', or contains a space or a character of {}()[]=,;*'\"", source);
      if (const int index = detail::index_of_digits(name); index >= 0 && index != axis)
        fail(errc::mesh_axis, "[mesh] axis name: '", name, "' for axis ", axis,
             "; only an unnamed axis has digits as its name, which are its index", source);
      if (find(name) != axis) fail(errc::mesh_axis, "[mesh] distinct axis names: '", name, "' is given twice", source);
      if (axes_[axis].size < 1)
        fail(errc::mesh_axis, "[mesh] axis size: axis '", name, "' has size ", axes_[axis].size,
             "; sizes are at least 1", source);
      size_ *= axes_[axis].size;
      if (size_ > INT32_MAX) fail(errc::mesh_devices, "[mesh] device count: more than ", INT32_MAX, " devices", source);
    }
  }
  constexpr void check_order(Source source) {
    if (order_.empty()) return;
    if (order_.size() != size_)
      fail(errc::mesh_devices, "[mesh] number of device ids: ", order_.size(), " ids for ", size_, " devices", source);
    if (const std::int64_t repeated = order_.repeated(); repeated < size_)
      fail(errc::mesh_devices, "[mesh] distinct device ids: ", order_[repeated], " is given twice", source);
    const std::int64_t ids = axes_.empty() ? INT32_MAX : size_;
    for (std::int64_t i = 0; !order_.is_counter() && i < size_; ++i)
      if (order_[i] < 0 || order_[i] >= ids)
        fail(errc::mesh_devices, "[mesh] device id range: ", order_[i], ", but ids are from 0 to ", ids - 1, source);
    // Each mesh has one form: equality and hashes are keys of the plan cache.
    if (order_.is_range()) order_ = {};
  }
  [[noreturn]] void fail_axis_is_not_in_the_mesh(std::string_view name) const {
    fail(errc::mesh_axis, "[mesh] unknown axis: ", text(), " has no axis '", name, "'");
  }

  AxisTable axes_;
  DeviceOrder order_;
  std::int64_t size_ = 1;
};

/// Parses "data=2,model=4", with or without "mesh( )" around it: the text of Mesh::text(), for command lines.
constexpr Mesh parse_mesh(std::string_view text, Here at = Here::current()) {
  const Source source = Source::from(at);
  detail::TextReader reader{text};
  const bool wrapped = reader.take("mesh(");
  const auto at_end = [&] {
    detail::TextReader ahead = reader;
    return wrapped ? ahead.take(")") && ahead.done() : ahead.done();
  };
  const auto expect = [&](bool matches) {
    if (!matches)
      fail(errc::mesh_axis, "[mesh] syntax: can't read '", text, "' from '", reader.rest,
           "' on; a mesh is written data=2,model=4", source);
  };

  AxisTable axes;
  if (at_end()) return {};
  if (!reader.take(";")) {
    do {
      const std::string_view name = reader.take_name();
      int size = 0;
      expect(!name.empty() && reader.take("=") && reader.take(size));
      detail::check_axis_count(axes.size() + 1, source);
      Name::check_length(name, source);
      axes.push_back({Name(name), size});
    } while (reader.take(","));
    if (at_end()) return Mesh(axes, {}, source);
    expect(reader.take(";"));
  }
  expect(reader.take("order="));
  Growable<std::int32_t> ids;
  const auto take_list = [&] {
    do {
      std::int32_t number = 0;
      expect(reader.take(number));
      ids.push_back(number);
    } while (reader.take(","));
  };
  if (!reader.take("[")) {
    take_list();
    expect(at_end());
    return Mesh(axes, DeviceOrder(ids.data(), ids.size()), source);
  }
  take_list();
  const auto dims = ids;
  ids.clear();
  expect(reader.take("]") && reader.take("T("));
  take_list();
  expect(reader.take(")") && at_end());
  DeviceOrder order;
  if (!detail::transposed_range(dims.data(), dims.size(), ids.data(), ids.size(), order))
    fail(errc::mesh_devices,
         "[mesh] device order: the numbers in T(...) are not a permutation of the dims in [...] of '", text, "'",
         source);
  return Mesh(axes, order, source);
}

/// A mesh of axes without names, which specs call 0, 1, ...
constexpr Mesh unnamed_mesh(std::initializer_list<int> sizes, const DeviceOrder& order = {},
                            Here at = Here::current()) {
  detail::check_axis_count(sizes.size(), Source::from(at));
  AxisTable axes;
  for (int size : sizes) axes.push_back({detail::name_of_index(static_cast<int>(axes.size())), size});
  return Mesh(axes, order, Source::from(at));
}

/// All devices along one axis, by default without a name.
constexpr Mesh mesh_1d(int devices, const Name& axis = detail::name_of_index(0), Here at = Here::current()) {
  return Mesh({{axis, devices}}, {}, at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
