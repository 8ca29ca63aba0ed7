#ifndef TESSERA_MESH_HYBRID_MESH_HPP
#define TESSERA_MESH_HYBRID_MESH_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/base/error.hpp>
#include <tessera/base/fixed_string.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/source.hpp>
#include <tessera/mesh/device_order.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/torus.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// Where a device is: its slice, and its coordinates in the torus of the slice.
struct DeviceCoordinates {
  TorusDims coordinates;
  std::int32_t slice = 0;
};

/// The shape of a hybrid mesh, one entry per axis, the axis with the least communication first: `inner` over the fast
/// network of each slice (ICI), `outer` over slices (DCN). Without `axes`, the names are 0, 1, ... With `split_dims`,
/// axes may share a dim of the torus if whole dims don't match the size of an axis.
struct HybridShape {
  std::vector<std::int32_t> inner;
  std::vector<std::int32_t> outer{};
  std::vector<Name> axes{};
  bool split_dims = false;
};

namespace detail {

/// Checks the shape and fills in a missing `outer` with ones. Returns the sizes of the whole mesh.
inline AxisTable check_hybrid(HybridShape& shape, std::int64_t slices, std::int64_t devices_in_slice, Source source) {
  if (shape.outer.empty()) shape.outer.assign(shape.inner.size(), 1);
  if (shape.inner.size() != shape.outer.size())
    fail(errc::mesh_axis, "[hybrid_mesh] number of axes: inner has ", shape.inner.size(), " sizes, outer ",
         shape.outer.size(), "; each axis has an inner and an outer size", source);
  if (!shape.axes.empty() && shape.axes.size() != shape.inner.size())
    fail(errc::mesh_axis, "[hybrid_mesh] number of axis names: ", shape.axes.size(), " names for ", shape.inner.size(),
         " axes", source);
  check_axis_count(shape.inner.size(), source);
  AxisTable axes;
  std::int64_t inner = 1, outer = 1;
  for (std::size_t axis = 0; axis < shape.inner.size(); ++axis) {
    if (shape.inner[axis] < 1 || shape.outer[axis] < 1)
      fail(errc::mesh_axis, "[hybrid_mesh] axis size: axis ", axis, " has inner size ", shape.inner[axis],
           " and outer size ", shape.outer[axis], "; sizes are at least 1", source);
    inner *= shape.inner[axis];
    outer *= shape.outer[axis];
    const std::int64_t size = std::int64_t{shape.inner[axis]} * shape.outer[axis];
    if (inner > INT32_MAX || outer > INT32_MAX || size > INT32_MAX)
      fail(errc::mesh_devices, "[hybrid_mesh] device count: more than ", INT32_MAX, " devices", source);
    axes.push_back(
        {shape.axes.empty() ? name_of_index(static_cast<int>(axis)) : shape.axes[axis], static_cast<int>(size)});
  }
  if (slices == 1 && outer > 1)
    fail(errc::mesh_devices, "[hybrid_mesh] number of slices: the outer shape is ",
         product_text(shape.outer.data(), shape.outer.size()), ", but all devices are in a single slice", source);
  if (inner != devices_in_slice)
    fail(errc::mesh_devices, "[hybrid_mesh] devices per slice: ", devices_in_slice, " for an inner shape of ",
         product_text(shape.inner.data(), shape.inner.size()), source);
  if (outer != slices)
    fail(errc::mesh_devices, "[hybrid_mesh] number of slices: ", slices, " for an outer shape of ",
         product_text(shape.outer.data(), shape.outer.size()), source);
  return axes;
}

}  // namespace detail

/// A mesh over slices with a fast network in each slice and a slow network between slices (create_hybrid_device_mesh of
/// JAX). Each axis goes over slices first, then over dims of the torus; the last axes get the fastest links. The size
/// of an axis is the product of its inner and outer size. Device ids are not row-major. Takes no time or memory per
/// device. Errors: `mesh_devices` for an outer shape with a single slice, for shapes that don't match the numbers of
/// devices or slices, and, unless `split_dims` is set, for an axis whose size is not a product of whole dims of the
/// torus; `mesh_axis` for shapes and names that don't match.
///
///     const ts::Mesh mesh = ts::hybrid_mesh({.inner = {1, 4}, .outer = {2, 1}, .axes = {"data", "model"}},
///                                           ts::Torus{{2, 2, 1}, 2});
inline Mesh hybrid_mesh(HybridShape shape, const Torus& torus, Here at = Here::current()) {
  const Source source = Source::from(at);
  std::int64_t in_slice = 1;
  for (std::int32_t dim : torus.dims) {
    if (dim < 1 || dim > INT32_MAX / in_slice)
      fail(errc::mesh_devices, "[hybrid_mesh] torus dims: ", detail::product_text(torus.dims.data(), torus.dims.size()),
           "; each is at least 1, and their product below 2^31", source);
    in_slice *= dim;
  }
  if (torus.slices < 1 || torus.slices > INT32_MAX / in_slice)
    fail(errc::mesh_devices, "[hybrid_mesh] number of slices: ", torus.slices, " of ", in_slice,
         " devices; there is at least 1 slice, and there are fewer than 2^31 devices", source);
  const AxisTable axes = detail::check_hybrid(shape, torus.slices, in_slice, source);
  const detail::TorusFactors laid = detail::lay_on_torus(shape.inner, torus.dims, shape.split_dims, source);
  std::vector<Digit> digits;
  std::int64_t slices = torus.slices;
  for (std::size_t axis = 0; axis < shape.inner.size(); ++axis) {
    slices /= shape.outer[axis];
    digits.push_back({shape.outer[axis], static_cast<std::int32_t>(slices * in_slice)});
    for (const detail::TorusFactor& factor : laid[axis]) {
      std::int32_t stride = factor.step;
      for (int faster = 0; faster < factor.dim; ++faster) stride *= torus.dims[static_cast<std::size_t>(faster)];
      digits.push_back({factor.size, stride});
    }
  }
  return Mesh(axes, detail::order_of(digits), source);
}

namespace detail {

struct DeviceSlice {
  std::int32_t index;
  TorusDims low, high;            // of the coordinates of its devices
  std::vector<std::int32_t> ids;  // row-major over the box
};

/// The slices of devices, in ascending order of their numbers, without ids.
inline std::vector<DeviceSlice> slices_of(const std::vector<DeviceCoordinates>& devices, const Source& source) {
  if (devices.empty())
    fail(errc::mesh_devices, "[hybrid_mesh] number of devices: the list of devices is empty", source);
  const std::size_t rank = devices[0].coordinates.size();
  std::vector<DeviceSlice> slices;
  for (const DeviceCoordinates& device : devices) {
    if (device.coordinates.size() != rank)
      fail(errc::mesh_devices, "[hybrid_mesh] number of coordinates: a device has ", device.coordinates.size(),
           ", the first device has ", rank, source);
    std::size_t which = 0;
    while (which < slices.size() && slices[which].index < device.slice) ++which;
    if (which == slices.size() || slices[which].index != device.slice)
      slices.insert(slices.begin() + static_cast<std::ptrdiff_t>(which),
                    DeviceSlice{device.slice, device.coordinates, device.coordinates, {}});
    for (std::size_t dim = 0; dim < rank; ++dim) {
      const std::int32_t place = device.coordinates[dim];
      if (place < slices[which].low[dim]) slices[which].low[dim] = place;
      if (place > slices[which].high[dim]) slices[which].high[dim] = place;
    }
  }
  return slices;
}

/// The shape that all slices have.
inline TorusDims shape_of_slices(const std::vector<DeviceSlice>& slices, std::size_t devices, const Source& source) {
  const std::size_t rank = slices[0].low.size();
  TorusDims dims;
  std::int64_t in_slice = 1;
  for (std::size_t dim = 0; dim < rank; ++dim) {
    const std::int64_t size = std::int64_t{slices[0].high[dim]} - slices[0].low[dim] + 1;
    if (size > static_cast<std::int64_t>(devices))
      fail(errc::mesh_devices, "[hybrid_mesh] full slices: the coordinates of slice ", slices[0].index,
           " have a range of ", size, " in dim ", dim, ", but there are only ", devices, " devices", source);
    dims.push_back(static_cast<std::int32_t>(size));
    in_slice *= size;
  }
  for (const DeviceSlice& slice : slices) {
    for (std::size_t dim = 0; dim < rank; ++dim)
      if (std::int64_t{slice.high[dim]} - slice.low[dim] + 1 != dims[dim])
        fail(errc::mesh_devices, "[hybrid_mesh] slices of equal shapes: slice ", slices[0].index, " is ",
             product_text(dims.data(), rank), ", slice ", slice.index, " is not", source);
    if (in_slice * static_cast<std::int64_t>(slices.size()) != static_cast<std::int64_t>(devices))
      fail(errc::mesh_devices, "[hybrid_mesh] full slices: ", devices, " devices for ", slices.size(),
           " slices of shape ", product_text(dims.data(), rank), source);
  }
  return dims;
}

/// Sets the ids of the devices at each place of the slices, whose shape is `dims`.
inline void place_ids(std::vector<DeviceSlice>& slices, const std::vector<DeviceCoordinates>& devices,
                      const TorusDims& dims, const Source& source) {
  for (DeviceSlice& slice : slices) slice.ids.assign(devices.size() / slices.size(), -1);
  for (std::size_t id = 0; id < devices.size(); ++id) {
    std::size_t which = 0;
    while (slices[which].index != devices[id].slice) ++which;
    std::int64_t place = 0;
    for (std::size_t dim = 0; dim < dims.size(); ++dim)
      place = place * dims[dim] + (devices[id].coordinates[dim] - slices[which].low[dim]);
    std::int32_t& held = slices[which].ids[static_cast<std::size_t>(place)];
    if (held >= 0)
      fail(errc::mesh_devices, "[hybrid_mesh] distinct coordinates: devices ", held, " and ", id, " of slice ",
           slices[which].index, " have the same coordinates", source);
    held = static_cast<std::int32_t>(id);
  }
}

}  // namespace detail

/// hybrid_mesh for devices at explicit places, in the order of their ids. Slices may have any numbers and places, as
/// long as each is a complete box of the same shape. Errors: also `mesh_devices` for two devices at one place and for
/// an incomplete slice.
inline Mesh hybrid_mesh(HybridShape shape, const std::vector<DeviceCoordinates>& devices, Here at = Here::current()) {
  const Source source = Source::from(at);
  std::vector<detail::DeviceSlice> slices = detail::slices_of(devices, source);
  const TorusDims dims = detail::shape_of_slices(slices, devices.size(), source);
  detail::place_ids(slices, devices, dims, source);
  const auto in_slice = static_cast<std::int64_t>(slices[0].ids.size());
  const AxisTable axes = detail::check_hybrid(shape, static_cast<std::int64_t>(slices.size()), in_slice, source);
  const detail::TorusFactors laid = detail::lay_on_torus(shape.inner, dims, shape.split_dims, source);

  // The order on a row-major torus; its positions are then replaced by ids.
  std::vector<std::int32_t> ids(devices.size());
  for (std::size_t position = 0; position < ids.size(); ++position) {
    auto rest = static_cast<std::int64_t>(position);
    std::int64_t slice = 0, slice_stride = 1, place = 0;
    for (std::size_t axis = shape.inner.size(); axis-- > 0;) {
      for (std::size_t i = laid[axis].size(); i-- > 0;) {
        const detail::TorusFactor& factor = laid[axis][i];
        std::int64_t stride = factor.step;
        for (std::size_t minor = static_cast<std::size_t>(factor.dim) + 1; minor < dims.size(); ++minor)
          stride *= dims[minor];
        place += rest % factor.size * stride;
        rest /= factor.size;
      }
      slice += rest % shape.outer[axis] * slice_stride;
      rest /= shape.outer[axis];
      slice_stride *= shape.outer[axis];
    }
    ids[position] = slices[static_cast<std::size_t>(slice)].ids[static_cast<std::size_t>(place)];
  }
  return Mesh(axes, DeviceOrder(ids.data(), ids.size()), source);
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
