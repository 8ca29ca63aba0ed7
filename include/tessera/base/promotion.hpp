#ifndef TESSERA_BASE_PROMOTION_HPP
#define TESSERA_BASE_PROMOTION_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/dtype.hpp>

// The element type in which operands of different types are computed. JAX's "Type promotion semantics", with 32-bit
// default types for C++ literals and Scalars, means of integers and quotients of integers. As in JAX, 8-bit floats are
// not promoted.

namespace tessera {

/// A literal, Dim or Scalar has no width: it takes the type of the tensor operand, unless it is floating and that is
/// not.
enum class NumberKind : std::uint8_t { integer, floating };

constexpr bool is_integer(DType type) { return !is_floating(type) && type != DType::bool_; }

namespace detail {
/// JAX's lattice of types: the set of types to which `type` may be promoted, itself included.
constexpr DTypeSet becomes(DType type) {
  constexpr DTypeSet f64 = set_of(DType::f64), f32 = f64 | set_of(DType::f32), f16 = f32 | set_of(DType::f16),
                     bf16 = f32 | set_of(DType::bf16), floating = f16 | bf16, i64 = floating | set_of(DType::i64),
                     i32 = i64 | set_of(DType::i32), i16 = i32 | set_of(DType::i16), i8 = i16 | set_of(DType::i8),
                     u8 = i16 | set_of(DType::u8), all = i8 | u8 | set_of(DType::bool_);
  constexpr DTypeSet sets[] = {
      f32, f64, bf16, f16, i8, i16, i32, i64, u8, all, set_of(DType::f8_e4m3), set_of(DType::f8_e5m2)};
  return sets[static_cast<std::size_t>(type)];
}
constexpr int count_of(DTypeSet set) {
  int n = 0;
  for (unsigned left = set; left != 0; left &= left - 1) ++n;
  return n;
}
}  // namespace detail

/// The least common promotion of x and y: i16 for i8 and u8, f32 for bf16 and f16, bf16 for i64 and bf16.
constexpr DType promote(DType x, DType y) {
  const unsigned both = detail::becomes(x) & detail::becomes(y);
  for (int t = 0; t < dtype_count; ++t)
    if (detail::becomes(static_cast<DType>(t)) == both) return static_cast<DType>(t);
  return x;  // an 8-bit float and another type: operations refuse them
}

/// The promotion of a tensor's type with a literal, Dim or Scalar: x, but f32 for an integer or bool with a floating
/// value, and i32 for a bool with an integer.
constexpr DType promote(DType x, NumberKind number) {
  if (number == NumberKind::floating) return is_floating(x) ? x : DType::f32;
  return x == DType::bool_ ? DType::i32 : x;
}

/// The type in which functions without integer results (quotients, roots, means) are computed: f32 for integers and
/// bools.
constexpr DType floating_type(DType x) { return is_floating(x) ? x : DType::f32; }

/// The type of a sum: i32 for bools and for integers below 32 bits.
constexpr DType sum_type(DType x) { return size_of(x) < 4 && !is_floating(x) ? DType::i32 : x; }

/// The type of partial sums: that of the sum, but f32 for bf16 and f16 until the sum is complete.
constexpr DType summed_as(DType x) { return computed_as(sum_type(x)); }

/// Whether an integer type has this value.
constexpr bool holds(DType type, double number) {
  if (is_floating(type)) return true;
  if (type == DType::bool_) return number == 0 || number == 1;
  const int bits = static_cast<int>(8 * size_of(type)) - (type == DType::u8 ? 0 : 1);
  double end = 1;
  for (int b = 0; b < bits; ++b) end *= 2;
  return number >= (type == DType::u8 ? 0 : -end) && number < end;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
