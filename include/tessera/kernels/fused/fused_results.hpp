#ifndef TESSERA_KERNELS_FUSED_FUSED_RESULTS_HPP
#define TESSERA_KERNELS_FUSED_FUSED_RESULTS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/monoid.hpp>
#include <tessera/kernels/fused/fused_instructions.hpp>
#include <tessera/kernels/fused/fused_schedule.hpp>
#include <tessera/kernels/simd/lane_ops.hpp>

// The results of fused kernels: a few templates over (kind, reduction, dtype), which all kernels of a program share.
TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// The type of a running total outside the lanes: double for floating point, otherwise an integer.
struct Total {
  double real;
  std::int64_t whole;

  template <class T> TESSERA_INLINE auto& get() {
    if constexpr (std::is_floating_point_v<T>)
      return real;
    else
      return whole;
  }
};

template <class T> TESSERA_INLINE T first_lane(const Lanes<T>& x) {
  if constexpr (std::is_same_v<T, bool>)
    return first_lane(convert<std::int32_t>(x)) != 0;
  else
    return simd::to_native<T>(x.part[0])[0];
}

/// Combines `value` into the element at `at`.
template <Reduction R, DType Type, class T> TESSERA_INLINE void combine_element(std::byte* at, T value) {
  using M = monoid_of<R>;
  using E = element_t<Type>;
  E* element = reinterpret_cast<E*>(at);
  if constexpr (std::is_same_v<E, bool>)
    *element = monoids::combined<M>(static_cast<int>(*element), static_cast<int>(value != T(0))) != 0;
  else
    *element = static_cast<E>(monoids::combined<M>(static_cast<T>(*element), value));
}

/// What a kernel does to a value that it accumulates in lanes of `Type`, in register `to` of each of `count` files.
template <class File, Reduction R, DType Type> struct Accumulation {
  using M = monoid_of<R>;
  using T = lanes_of<Type>;

  /// The initial value of lanes and totals. For narrow integers the identity of the element type, not of the lane type,
  /// so that the reduction of no elements is representable: the max of no int8 values is -128.
  static constexpr T first_value() {
    using E = element_t<Type>;
    return static_cast<T>(M::template identity<std::conditional_t<std::is_integral_v<E>, E, T>>());
  }
  static TESSERA_INLINE void clear_lanes(File* sums, int count, int to) {
    for (int u = 0; u < count; ++u) sums[u].template get<T>(to) = splat<T>(first_value());
  }
  static TESSERA_INLINE void clear(File* sums, int count, Total& total, int to) {
    clear_lanes(sums, count, to);
    auto& value = total.get<T>();
    value = static_cast<std::remove_reference_t<decltype(value)>>(first_value());
  }
  /// Adds the lanes to the total and clears them.
  static TESSERA_INLINE void collect(File* sums, int count, Total& total, int to) {
    Lanes<T> all = sums[0].template get<T>(to);
    if (count == 2) M::join(all, sums[1].template get<T>(to));
    if (count == 4) {
      M::join(all, sums[1].template get<T>(to));
      M::join(all, monoids::combined<M>(sums[2].template get<T>(to), sums[3].template get<T>(to)));
    }
    auto& value = total.get<T>();
    M::join(value, static_cast<std::remove_reference_t<decltype(value)>>(reduce_lanes<M>(all)));
    clear_lanes(sums, count, to);
  }
  /// Combines the total into the element at `at`.
  static TESSERA_INLINE void combine(std::byte* at, Total& total) { combine_element<R, Type>(at, total.get<T>()); }
  static TESSERA_INLINE void copy_lanes(File* target, const File* source, int count, int to) {
    for (int u = 0; u < count; ++u) target[u].template get<T>(to) = source[u].template get<T>(to);
  }
  /// Gives the lanes past the first `size` elements of an iteration the values that they have in `saved`.
  static TESSERA_INLINE void restore_lanes(File* sums, const File* saved, int count, std::int64_t size, int to) {
    for (int u = 0; u < count; ++u) {
      auto& sum = sums[u].template get<T>(to);
      sum = select(first_lanes(size - u * width), sum, saved[u].template get<T>(to));
    }
  }
  /// Makes the total a value of the row. `slot`: where it is exchanged between shards, or null; `given`: an earlier
  /// call computed it.
  static TESSERA_INLINE void take(File& shared, Total& total, int to, double* slot, bool given) {
    T value;
    if (given) {
      value = from_slot<T>(*slot);
    } else {
      value = static_cast<T>(total.get<T>());
      if (slot != nullptr) *slot = to_slot(value);
    }
    shared.template get<T>(to) = splat<T>(value);
  }
};

/// Runs an exit: stores the value of each element, or accumulates it in lanes.
template <StoreKind Kind, Reduction R, bool InLanes, DType To, DType From, class File>
TESSERA_INLINE void leave(File& sums, const File& values, const Exit& exit, std::byte* const* outputs,
                          std::int64_t offset, bool past_caches) {
  using T = lanes_of<To>;
  using E = element_t<To>;
  const Lanes<T> value = convert<T>(values.template get<lanes_of<From>>(exit.instr));
  if constexpr (InLanes) {
    auto& sum = sums.template get<T>(exit.to);
    sum = monoids::combined<monoid_of<R>>(value, sum);
  } else {
    E* target = reinterpret_cast<E*>(outputs[exit.slot]) + offset;
    if constexpr (Kind == StoreKind::accumulate) {
      const Lanes<T> sum = monoids::combined<monoid_of<R>>(value, load(target));
      if constexpr (std::is_same_v<T, bool>)
        store(target, sum);
      else
        store(target, wrap<E>(sum));
    } else if (past_caches) {
      store_past_caches(target, value);
    } else {
      store(target, value);
    }
  }
}

/// Runs an exit once per row: stores the value, or combines it with the element at `at`.
template <StoreKind Kind, Reduction R, DType To, DType From, class File>
TESSERA_INLINE void leave_row(const File& shared, const Exit& exit, std::byte* at) {
  using T = lanes_of<To>;
  const T value = first_lane(convert<T>(shared.template get<lanes_of<From>>(exit.instr)));
  if constexpr (Kind == StoreKind::row)
    *reinterpret_cast<element_t<To>*>(at) = static_cast<element_t<To>>(value);
  else
    combine_element<R, To>(at, value);
}

}  // namespace detail

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
