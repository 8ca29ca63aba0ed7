#ifndef TESSERA_RUNTIME_ORACLE_ORACLE_VALUE_HPP
#define TESSERA_RUNTIME_ORACLE_ORACLE_VALUE_HPP
#include <tessera/base/push_macros.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tessera/base/growable.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/strided.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/oracle/oracle_rounding.hpp>

namespace tessera::runtime {

inline double read_number(DType dtype, const char* at) {
  double value = 0;
  dispatch(
      dtype,
      [&]<class T>() {
        T own;
        std::memcpy(&own, at, sizeof own);
        value = static_cast<double>(own);
      },
      [] {});
  return value;
}

/// A global tensor on the host, contiguous and row-major.
struct WholeValue {
  DType dtype = DType::f32;
  Shape shape;
  Growable<char> bytes;
  bool known = false;

  double operator[](std::int64_t i) const {
    return read_number(dtype, bytes.data() + i * static_cast<std::int64_t>(size_of(dtype)));
  }
  std::int64_t size() const { return volume(shape); }
};

/// Visits the indices of a shape in row-major order, with the offset of each index for up to three sets of strides.
template <class F>
void walk(const Shape& shape, const kernels::Strides& a, const kernels::Strides& b, const kernels::Strides& c, F&& f) {
  std::int64_t left = volume(shape), at_a = 0, at_b = 0, at_c = 0;
  Shape index(shape.size(), 0);
  for (; left > 0; --left) {
    f(at_a, at_b, at_c);
    for (std::size_t d = shape.size(); d-- > 0;) {
      at_a += a[d], at_b += b[d], at_c += c[d];
      if (++index[d] < shape[d]) break;
      at_a -= a[d] * shape[d], at_b -= b[d] * shape[d], at_c -= c[d] * shape[d];
      index[d] = 0;
    }
  }
}

/// The row-major index in the global tensor of a box's first element.
inline std::int64_t offset_of(const Box& box, const kernels::Strides& strides) {
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < box.begin.size(); ++d) offset += box.begin[d] * strides[d];
  return offset;
}

/// Copies between the shards of a value and a global tensor. Not for partial values.
inline void copy_whole(const FrameLayout& layout, const Frame& frame, int v, WholeValue& whole, bool to_shards) {
  const ValueLayout& own = layout[v];
  const kernels::Strides strides = kernels::contiguous_strides(whole.shape);
  for (int s = 0; s < own.shards(); ++s) {
    const Box& box = own.boxes[static_cast<std::size_t>(s)];
    if (box.empty()) continue;
    char* const at = whole.bytes.data() + offset_of(box, strides) * own.element;
    const kernels::Strides& local = own.strides[static_cast<std::size_t>(s)];
    if (to_shards)
      kernels::strided_copy(frame.at(own, s), local, at, strides, extents(box), static_cast<std::size_t>(own.element));
    else
      kernels::strided_copy(at, strides, frame.at(own, s), local, extents(box), static_cast<std::size_t>(own.element));
  }
}
inline void gather_whole(const FrameLayout& layout, const Frame& frame, int v, WholeValue& whole) {
  const PlanValue& value = layout.value(v);
  whole.dtype = value.dtype;
  whole.shape = value.shape;
  whole.bytes.assign(static_cast<std::size_t>(volume(value.shape) * layout[v].element), 0);
  whole.known = true;
  copy_whole(layout, frame, v, whole, false);
}

/// The combination of all parts of a partial value, and the combination of their magnitudes.
inline void gather_parts(const FrameLayout& layout, const Frame& frame, int v, Growable<double>& sum,
                         Growable<double>& sizes) {
  const PlanValue& value = layout.value(v);
  const ValueLayout& own = layout[v];
  const kernels::Strides strides = kernels::contiguous_strides(value.shape);
  const auto count = static_cast<std::size_t>(volume(value.shape));
  const ReductionFacts& monoid = facts_of(value.sharding.reduction);
  sum.assign(count, monoid.identity);
  sizes.assign(count, monoid.rounds ? monoid.identity : 0);
  for (int s = 0; s < own.shards(); ++s) {
    const Box& box = own.boxes[static_cast<std::size_t>(s)];
    if (box.empty() || !layout.holds(v, own.grid.coordinates(s % own.grid.count()))) continue;
    const std::int64_t begin = offset_of(box, strides);
    const kernels::Strides& local = own.strides[static_cast<std::size_t>(s)];
    walk(extents(box), local, strides, strides, [&](std::int64_t from, std::int64_t to, std::int64_t) {
      const double part = read_number(value.dtype, frame.at(own, s) + from * own.element);
      double &total = sum[static_cast<std::size_t>(begin + to)], &size = sizes[static_cast<std::size_t>(begin + to)];
      total = monoid.combined(total, part);
      if (monoid.rounds) size = monoid.combined(size, std::fabs(part));
    });
  }
}

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
