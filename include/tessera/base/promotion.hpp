#ifndef TESSERA_BASE_PROMOTION_HPP
#define TESSERA_BASE_PROMOTION_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/dtype.hpp>

// Which element type operands of different types are computed in. JAX's "Type promotion semantics", with 32-bit default
// types for what has no width of its own: a plain number, a mean of integers, a quotient of integers.

namespace tessera {

/// A plain number has no width: it takes the type of the tensor it meets, unless that is of a lower kind.
enum class NumberKind : std::uint8_t { integer, floating };

constexpr bool is_integer(DType type) { return !is_floating(type) && type != DType::bool_; }

namespace detail {
/// The edges of JAX's lattice, upwards, as the set of types that a type may become; each holds the type itself.
constexpr DTypeSet becomes(DType type) {
  constexpr DTypeSet f64 = set_of(DType::f64), f32 = f64 | set_of(DType::f32), f16 = f32 | set_of(DType::f16),
                     bf16 = f32 | set_of(DType::bf16), floating = f16 | bf16, i64 = floating | set_of(DType::i64),
                     i32 = i64 | set_of(DType::i32), i16 = i32 | set_of(DType::i16), i8 = i16 | set_of(DType::i8),
                     u8 = i16 | set_of(DType::u8), all = i8 | u8 | set_of(DType::bool_);
  constexpr DTypeSet sets[] = {f32, f64, bf16, f16, i8, i16, i32, i64, u8, all};
  return sets[static_cast<std::size_t>(type)];
}
constexpr int count_of(DTypeSet set) {
  int n = 0;
  for (unsigned left = set; left != 0; left &= left - 1) ++n;
  return n;
}
}  // namespace detail

/// The least type that both may become: i8 and u8 meet in i16, bf16 and f16 in f32, i64 and bf16 in bf16.
constexpr DType promote(DType x, DType y) {
  const unsigned both = detail::becomes(x) & detail::becomes(y);
  for (int t = 0; t < dtype_count; ++t)
    if (detail::becomes(static_cast<DType>(t)) == both) return static_cast<DType>(t);
  return x;  // not reached: every two types have a least upper bound
}

/// The type of a tensor that meets a plain number: its own, but f32 where an integer or bool meets a floating number,
/// and i32 where a bool meets a whole one.
constexpr DType promote(DType x, NumberKind number) {
  if (number == NumberKind::floating) return is_floating(x) ? x : DType::f32;
  return x == DType::bool_ ? DType::i32 : x;
}

/// What functions are computed in that have no integer results, such as quotients, roots and means: f32 for integers
/// and bools.
constexpr DType floating_type(DType x) { return is_floating(x) ? x : DType::f32; }

/// What a sum of elements gives: i32 for bools and integers of fewer bits.
constexpr DType sum_type(DType x) { return size_of(x) < 4 && !is_floating(x) ? DType::i32 : x; }

/// What a sum is kept in while it is partial: as it is, but sums of bf16 are f32 until they are whole.
constexpr DType summed_as(DType x) { return computed_as(sum_type(x)); }

/// Whether a whole number is one of the values of an integer type.
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
