#ifndef TESSERA_MESH_TORUS_HPP
#define TESSERA_MESH_TORUS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/base/error.hpp>
#include <tessera/base/inline_vector.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/source.hpp>
#include <tessera/mesh/device_order.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// The maximum number of dims of the network in a slice, such as x, y, z and the core of a chip.
inline constexpr int max_torus_dims = 4;
using TorusDims = InlineVector<std::int32_t, max_torus_dims>;

/// Equal slices whose devices are numbered slice by slice, and within a slice with the first dim fastest, as TPUs are.
/// `{{2, 2, 1}, 2}` is two slices of 2x2x1.
struct Torus {
  TorusDims dims;
  std::int32_t slices = 1;
};

namespace detail {

inline std::string product_text(const std::int32_t* sizes, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += concat_text(i ? "x" : "", sizes[i]);
  return out;
}

/// A factor of a torus dim that an axis uses: `size` devices, `step` apart.
struct TorusFactor {
  int dim = 0;
  std::int32_t size = 1, step = 1;
};
/// By axis: its factors, the most significant first.
using TorusFactors = std::vector<std::vector<TorusFactor>>;

/// Assigns whole dims to each axis of `shape`, the last axis first: the largest set of dims whose sizes multiply to the
/// axis, and of equally large sets the first (mesh_utils of JAX). Returns -1, or the axis for which there is no such
/// set.
inline int lay_on_whole_dims(const std::vector<std::int32_t>& shape, const TorusDims& dims, TorusFactors& laid) {
  const auto rank = static_cast<unsigned>(dims.size());
  unsigned taken = 0;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    unsigned best = 0, best_order = 0;
    int most = 0;
    for (unsigned mask = 1; mask < 1u << rank; ++mask) {
      if (mask & taken) continue;
      std::int64_t product = 1;
      int count = 0;
      // A number that is larger for sets whose dims come first.
      unsigned order = 0;
      for (unsigned dim = 0; dim < rank; ++dim) {
        order = order << 1 | (mask >> dim & 1);
        if (!(mask >> dim & 1)) continue;
        product *= dims[dim];
        ++count;
      }
      if (product != shape[axis] || count > 3 || count < most || (count == most && order < best_order)) continue;
      best = mask;
      best_order = order;
      most = count;
    }
    if (most == 0 && shape[axis] > 1) return static_cast<int>(axis);
    taken |= best;
    for (unsigned dim = 0; dim < rank; ++dim)
      if (best >> dim & 1) laid[axis].push_back({static_cast<int>(dim), dims[dim], 1});
  }
  return -1;
}

/// One way to make up an axis: how much of each dim it uses, where axes share dims.
struct TorusShare {
  TorusDims sizes;
  /// products of its sizes: those that are whole dims, and those in dims that are in use already
  std::int64_t whole = 1, begun = 1;
  int whole_count = 0;

  /// Order of preference: more in whole dims, more of these, more in dims that are in use already, then the first dims.
  /// This rule, and so the mesh, is that of mesh_utils with allow_split_physical_axes.
  bool before(const TorusShare& other) const {
    if (whole != other.whole) return whole > other.whole;
    if (whole_count != other.whole_count) return whole_count > other.whole_count;
    if (begun != other.begun) return begun > other.begun;
    for (std::size_t dim = 0; dim < sizes.size(); ++dim)
      if (sizes[dim] != other.sizes[dim]) return sizes[dim] > other.sizes[dim];
    return false;
  }
};

/// Tries all sizes from dim `made.sizes.size()` on that multiply to `rest` and divide what is left of their dims.
inline void find_share(const TorusDims& dims, const TorusDims& left, std::int32_t rest, TorusShare made,
                       TorusShare& best) {
  const std::size_t dim = made.sizes.size();
  if (dim == dims.size()) {
    if (rest == 1 && (best.sizes.empty() || made.before(best))) best = made;
    return;
  }
  for (std::int64_t low = 1; low * low <= left[dim]; ++low) {
    if (left[dim] % low != 0) continue;
    const auto high = static_cast<std::int32_t>(left[dim] / low);
    for (std::int32_t size : {static_cast<std::int32_t>(low), high}) {
      if (rest % size != 0 || (low == high && size != low)) continue;
      TorusShare more = made;
      more.sizes.push_back(size);
      if (size == dims[dim]) {
        more.whole *= size;
        more.whole_count += size > 1 ? 1 : 0;
      }
      if (left[dim] < dims[dim]) more.begun *= size;
      find_share(dims, left, rest / size, more, best);
      if (low == high) break;
    }
  }
}

/// Assigns factors of dims to axes. In a shared dim, the devices of later axes are neighbours, those of earlier ones
/// far apart.
inline TorusFactors lay_on_parts_of_dims(const std::vector<std::int32_t>& shape, const TorusDims& dims) {
  TorusFactors laid(shape.size());
  TorusDims left = dims;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    TorusShare best;
    find_share(dims, left, shape[axis], {}, best);
    for (std::size_t dim = 0; dim < dims.size(); ++dim) {
      const std::int32_t size = best.sizes[dim];
      if (size > 1) laid[axis].push_back({static_cast<int>(dim), size, dims[dim] / left[dim]});
      left[dim] /= size;
    }
  }
  return laid;
}

/// Assigns dims of the torus to the axes of a mesh with as many devices.
inline TorusFactors lay_on_torus(const std::vector<std::int32_t>& shape, const TorusDims& dims, bool split_dims,
                                 Source source) {
  TorusFactors laid(shape.size());
  const int missing = lay_on_whole_dims(shape, dims, laid);
  if (missing < 0) return laid;
  if (!split_dims)
    fail(errc::mesh_devices, "[hybrid_mesh] inner axis ", missing, " of size ",
         shape[static_cast<std::size_t>(missing)], " does not fit the torus ", product_text(dims.data(), dims.size()),
         ": no whole dims that later axes leave free have this product; with .split_dims = true, axes may share a dim",
         source);
  return lay_on_parts_of_dims(shape, dims);
}

/// The order of devices with these digits: as digits if they are few enough, otherwise as a list.
inline DeviceOrder order_of(const std::vector<Digit>& digits) {
  DigitList few;
  std::int64_t count = 1;
  bool fits = true;
  for (const Digit& digit : digits) {
    count *= digit.size;
    if (digit.size == 1) continue;
    fits = fits && few.size() < max_digits;
    if (fits) few.push_back(digit);
  }
  if (fits) return DeviceOrder::of_digits(few);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (std::size_t position = 0; position < ids.size(); ++position) {
    auto rest = static_cast<std::int64_t>(position);
    for (std::size_t d = digits.size(); d-- > 0; rest /= digits[d].size)
      ids[position] += static_cast<std::int32_t>(rest % digits[d].size * digits[d].stride);
  }
  return DeviceOrder(ids.data(), ids.size());
}

}  // namespace detail

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
