#ifndef TESSERA_BASE_DTYPE_HPP
#define TESSERA_BASE_DTYPE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <tessera/base/element/bf16.hpp>
#include <tessera/base/element/f16.hpp>
#include <tessera/base/element/f8.hpp>

namespace tessera {

/// The element type of a tensor. `bool_` takes one byte per element. bf16 and f16 are computed in f32; f8_e4m3 and
/// f8_e5m2 are stored, moved and cast, but not computed with.
enum class DType : std::uint8_t { f32, f64, bf16, f16, i8, i16, i32, i64, u8, bool_, f8_e4m3, f8_e5m2 };
inline constexpr int dtype_count = 12;

/// Size of one element in bytes.
constexpr std::size_t size_of(DType type) {
  constexpr std::uint8_t sizes[] = {4, 8, 2, 2, 1, 2, 4, 8, 1, 1, 1, 1};
  return sizes[static_cast<std::size_t>(type)];
}

/// The name used in messages, plans and files: "f32", "i64", "bool".
constexpr std::string_view name_of(DType type) {
  constexpr std::string_view names[] = {"f32", "f64", "bf16", "f16",  "i8",      "i16",
                                        "i32", "i64", "u8",   "bool", "f8_e4m3", "f8_e5m2"};
  return names[static_cast<std::size_t>(type)];
}

/// Whether the type is f8_e4m3 or f8_e5m2, which have no arithmetic: a tensor is cast before it is computed with.
constexpr bool is_float8(DType type) { return type == DType::f8_e4m3 || type == DType::f8_e5m2; }
/// Whether the type is bf16 or f16.
constexpr bool is_half(DType type) { return type == DType::bf16 || type == DType::f16; }

/// The element type in which sums and products are computed before they are stored: f32 for bf16 and f16. It is also
/// that of values in kernels, f32 for 8-bit floats too.
constexpr DType computed_as(DType type) { return is_half(type) || is_float8(type) ? DType::f32 : type; }

constexpr bool is_floating(DType type) {
  return type == DType::f32 || type == DType::f64 || is_half(type) || is_float8(type);
}

/// Whether each value of a 16-bit or 8-bit floating type is one of the wider floating type `to`.
constexpr bool widens(DType from, DType to) {
  return computed_as(from) != from && is_floating(to) && size_of(to) > size_of(from);
}

namespace detail {
template <class T> struct DTypeOf {};
template <> struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <> struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <> struct DTypeOf<bf16> {
  static constexpr DType value = DType::bf16;
};
template <> struct DTypeOf<f16> {
  static constexpr DType value = DType::f16;
};
template <> struct DTypeOf<f8_e4m3> {
  static constexpr DType value = DType::f8_e4m3;
};
template <> struct DTypeOf<f8_e5m2> {
  static constexpr DType value = DType::f8_e5m2;
};
template <> struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::i8;
};
template <> struct DTypeOf<std::int16_t> {
  static constexpr DType value = DType::i16;
};
template <> struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <> struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <> struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <> struct DTypeOf<bool> {
  static constexpr DType value = DType::bool_;
};
}  // namespace detail

/// A C++ type that a tensor can hold.
template <class T>
concept Element = requires { detail::DTypeOf<T>::value; };

template <Element T> inline constexpr DType dtype_v = detail::DTypeOf<T>::value;

namespace detail {
template <DType> struct ElementOf;
template <> struct ElementOf<DType::f32> {
  using type = float;
};
template <> struct ElementOf<DType::f64> {
  using type = double;
};
template <> struct ElementOf<DType::bf16> {
  using type = bf16;
};
template <> struct ElementOf<DType::f16> {
  using type = f16;
};
template <> struct ElementOf<DType::f8_e4m3> {
  using type = f8_e4m3;
};
template <> struct ElementOf<DType::f8_e5m2> {
  using type = f8_e5m2;
};
template <> struct ElementOf<DType::i8> {
  using type = std::int8_t;
};
template <> struct ElementOf<DType::i16> {
  using type = std::int16_t;
};
template <> struct ElementOf<DType::i32> {
  using type = std::int32_t;
};
template <> struct ElementOf<DType::i64> {
  using type = std::int64_t;
};
template <> struct ElementOf<DType::u8> {
  using type = std::uint8_t;
};
template <> struct ElementOf<DType::bool_> {
  using type = bool;
};
}  // namespace detail

/// The C++ type of one element in memory.
template <DType Type> using element_t = typename detail::ElementOf<Type>::type;

/// bf16 or f16.
template <class T> inline constexpr bool is_half_v = std::is_same_v<T, bf16> || std::is_same_v<T, f16>;
/// f8_e4m3 or f8_e5m2.
template <class T> inline constexpr bool is_float8_v = std::is_same_v<T, f8_e4m3> || std::is_same_v<T, f8_e5m2>;
/// A floating type with arithmetic: float, double, bf16 or f16.
template <class T> inline constexpr bool is_floating_v = std::is_floating_point_v<T> || is_half_v<T>;

/// The C++ type in which elements of T are computed: float for bf16, f16 and 8-bit floats.
template <class T> using computed_t = std::conditional_t<is_half_v<T> || is_float8_v<T>, float, T>;

/// A set of element types, one bit each. Code is generated only for the set that a program computes with.
using DTypeSet = std::uint16_t;
inline constexpr DTypeSet all_dtypes = 0xffff;
constexpr DTypeSet set_of(DType type) { return static_cast<DTypeSet>(1u << static_cast<unsigned>(type)); }
/// Those with arithmetic.
inline constexpr DTypeSet computed_dtypes =
    static_cast<DTypeSet>(all_dtypes & ~(set_of(DType::f8_e4m3) | set_of(DType::f8_e5m2)));
inline constexpr DTypeSet number_dtypes = static_cast<DTypeSet>(computed_dtypes & ~set_of(DType::bool_));
inline constexpr DTypeSet floating_dtypes =
    static_cast<DTypeSet>(set_of(DType::f32) | set_of(DType::f64) | set_of(DType::bf16) | set_of(DType::f16));

/// Calls `f.template operator()<T>()` with the C++ type of `type` if that is in the set; otherwise `otherwise()`.
template <DTypeSet Set = all_dtypes, class F, class G>
constexpr decltype(auto) dispatch(DType type, F&& f, G&& otherwise) {
#define TESSERA_DISPATCH(name, T)                 \
  if constexpr ((Set & set_of(DType::name)) != 0) \
    if (type == DType::name) return f.template operator()<T>();
  TESSERA_DISPATCH(f32, float)
  TESSERA_DISPATCH(f64, double)
  TESSERA_DISPATCH(bf16, bf16)
  TESSERA_DISPATCH(f16, f16)
  TESSERA_DISPATCH(i8, std::int8_t)
  TESSERA_DISPATCH(i16, std::int16_t)
  TESSERA_DISPATCH(i32, std::int32_t)
  TESSERA_DISPATCH(i64, std::int64_t)
  TESSERA_DISPATCH(u8, std::uint8_t)
  TESSERA_DISPATCH(bool_, bool)
  TESSERA_DISPATCH(f8_e4m3, f8_e4m3)
  TESSERA_DISPATCH(f8_e5m2, f8_e5m2)
#undef TESSERA_DISPATCH
  return otherwise();
}

/// A number rounded to a floating type.
constexpr double rounded_to(DType type, double value) {
  switch (type) {
    case DType::f32:
      return static_cast<float>(value);
    case DType::bf16:
      return bf16(value);
    case DType::f16:
      return f16(value);
    case DType::f8_e4m3:
      return static_cast<double>(f8_e4m3(value));
    case DType::f8_e5m2:
      return static_cast<double>(f8_e5m2(value));
    default:
      return value;
  }
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
