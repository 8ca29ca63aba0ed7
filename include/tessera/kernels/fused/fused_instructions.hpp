#ifndef TESSERA_KERNELS_FUSED_FUSED_INSTRUCTIONS_HPP
#define TESSERA_KERNELS_FUSED_FUSED_INSTRUCTIONS_HPP
#include <tessera/base/push_macros.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/monoid.hpp>
#include <tessera/kernels/fused/fused_rows.hpp>
#include <tessera/kernels/fused/fused_schedule.hpp>
#include <tessera/kernels/simd/lane_ops.hpp>

// The instructions of fused kernels: a few templates over (kind, op, dtype). All kernels of a program share their
// instances, which keeps compile time low.
TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// The values of one kernel by instruction, one array per lane type. All indices are constants after inlining, so the
/// compiler keeps the values in registers.
template <int Size> struct Registers {
  Lanes<float> f32[Size];
  Lanes<double> f64[Size];
  Lanes<std::int32_t> i32[Size];
  Lanes<std::int64_t> i64[Size];
  Mask mask[Size];

  template <class T> TESSERA_INLINE auto& get(int i) {
    if constexpr (std::is_same_v<T, float>)
      return f32[i];
    else if constexpr (std::is_same_v<T, double>)
      return f64[i];
    else if constexpr (std::is_same_v<T, std::int32_t>)
      return i32[i];
    else if constexpr (std::is_same_v<T, std::int64_t>)
      return i64[i];
    else
      return mask[i];
  }
  template <class T> TESSERA_INLINE const auto& get(int i) const {
    return const_cast<Registers&>(*this).template get<T>(i);
  }
};

template <DType Type> using lanes_of = lane_t<element_t<Type>>;

/// The position from which per-element instructions of one iteration read.
struct ElementCursor {
  std::byte* const* operands;
  std::int64_t offset;  ///< in elements from the start of the window
  std::int64_t index;   ///< global index along the row dim
  std::byte* kept;      ///< values kept between passes: one row of `kept_capacity` elements per value
  std::int64_t kept_index, kept_capacity;
  std::int64_t ahead;  ///< prefetch distance in bytes

  template <class T> TESSERA_INLINE Lanes<lane_t<T>> read(int input) const {
    const T* const from = reinterpret_cast<const T*>(operands[input]) + offset;
    // Hardware prefetch stops at a page and follows few streams: docs/decisions/0007. The address may be past the end
    // of the array: prefetching there is harmless, but pointer arithmetic would be undefined behaviour.
    __builtin_prefetch(
        reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(from) + static_cast<std::uintptr_t>(ahead)));
    return load(from);
  }
  template <class T> TESSERA_INLINE Lanes<T> position(int) const { return iota<T>(index); }
  template <class T> TESSERA_INLINE T* kept_row(int kept_offset) const {
    return reinterpret_cast<T*>(kept + kept_offset * kept_capacity) + kept_index;
  }
};

/// The position from which instructions per call and per row read.
struct RowCursor {
  const RowWalk& rows;
  const FusedCall& call;

  template <class T> TESSERA_INLINE Lanes<lane_t<T>> read(int input) const {
    return splat<lane_t<T>>(static_cast<lane_t<T>>(*reinterpret_cast<const T*>(rows.row[input])));
  }
  template <class T> TESSERA_INLINE Lanes<T> position(int dim) const {
    return splat<T>(static_cast<T>(call.global_offset[dim] + rows.index[dim]));
  }
};

template <Op O, DType To, DType From, class File>
TESSERA_INLINE void compute(File& own, const File& shared, const Step& step) {
  using T = lanes_of<To>;
  using S = lanes_of<From>;
  const auto& a = step.a_varies ? own : shared;
  const auto& b = step.b_varies ? own : shared;
  constexpr const OpRow& row = row_of(O);
  if constexpr (row.converts) {
    // An explicit cast rounds to the target type; other values of 16 bits stay float until they are stored.
    own.template get<T>(step.to) = cast_to<element_t<To>>(a.template get<S>(step.a));
  } else if constexpr (row.arity == 3) {
    const auto& c = step.c_varies ? own : shared;
    own.template get<T>(step.to) =
        apply<O>(a.template get<bool>(step.a), b.template get<S>(step.b), c.template get<S>(step.c));
  } else {
    const auto result = [&]() TESSERA_INLINE_LAMBDA {
      if constexpr (row.divides && std::is_floating_point_v<T>)
        if (step.a_varies && !step.b_varies)
          return divide_by_invariant(a.template get<S>(step.a), b.template get<S>(step.b));
      if constexpr (row.arity == 2)
        return apply<O>(a.template get<S>(step.a), b.template get<S>(step.b));
      else
        return apply<O>(a.template get<S>(step.a));
    }();
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      own.template get<T>(step.to) = wrap<element_t<To>>(result);
    else
      own.template get<T>(step.to) = result;
  }
}

/// A row value as exchanged between shards, and a host scalar of 64 bits: integers are stored bit by bit, since double
/// has only 53.
template <class T> TESSERA_INLINE double to_slot(T value) {
  if constexpr (std::is_integral_v<T>)
    return std::bit_cast<double>(static_cast<std::int64_t>(value));
  else
    return static_cast<double>(value);
}
template <class T> TESSERA_INLINE T from_slot(double slot) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(std::bit_cast<std::int64_t>(slot));
  else
    return static_cast<T>(slot);
}

/// Reads an element, a host scalar or an index.
template <InstrKind Kind, DType To, class File, class Cursor>
TESSERA_INLINE void read(File& own, const Step& step, const Cursor& cursor, const double* uniforms) {
  using T = lanes_of<To>;
  if constexpr (Kind == InstrKind::load)
    own.template get<T>(step.to) = cursor.template read<element_t<To>>(step.a);
  else if constexpr (Kind == InstrKind::uniform && To == DType::i64)
    own.template get<T>(step.to) = splat<T>(from_slot<T>(uniforms[step.a]));
  else if constexpr (Kind == InstrKind::uniform)
    own.template get<T>(step.to) = splat<T>(static_cast<T>(uniforms[step.a]));
  else
    own.template get<T>(step.to) = cursor.template position<T>(step.a);
}
/// Stores a value for a later pass over the row.
template <DType Type, class File> TESSERA_INLINE void save(File& own, const Step& step, const ElementCursor& cursor) {
  using T = lanes_of<Type>;
  store(cursor.template kept_row<T>(step.kept_offset), own.template get<T>(step.to));
}
/// Reads a value that an earlier pass stored.
template <DType Type, class File>
TESSERA_INLINE void restore(File& own, const Step& step, const ElementCursor& cursor) {
  using T = lanes_of<Type>;
  own.template get<T>(step.to) = load(cursor.template kept_row<T>(step.kept_offset));
}

template <InstrKind Kind, Op O, DType To, DType From, Keep Kept, class File, class Cursor>
TESSERA_INLINE void run_step(File& own, const File& shared, const Step& step, const Cursor& cursor,
                             const double* uniforms) {
  if constexpr (Kept == Keep::restore)
    restore<To>(own, step, cursor);
  else if constexpr (Kind == InstrKind::compute)
    compute<O, To, From>(own, shared, step);
  else
    read<Kind, To>(own, step, cursor, uniforms);
  if constexpr (Kept == Keep::save) save<To>(own, step, cursor);
}

}  // namespace detail

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
