#ifndef TESSERA_TENSOR_PRINT_DEBUG_PRINT_HPP
#define TESSERA_TENSOR_PRINT_DEBUG_PRINT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <string_view>
#include <type_traits>

#include <tessera/base/compiled.hpp>
#include <tessera/base/dtype.hpp>
#include <tessera/base/fixed_string.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/custom/custom_call.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <cstdio>
#include <string>
#endif
#include <tessera/tensor/print/print.hpp>

namespace tessera {

namespace detail {

/// Writes a label, type and shape, and the elements of a dense row-major array to the standard output, in one piece.
TESSERA_ONCE void write_array(std::string_view label, DType dtype, const Shape& shape, const void* data);
#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE void write_array(std::string_view label, DType dtype, const Shape& shape, const void* data) {
  const std::string text = concat_text(label, " ", name_of(dtype), extents_text(shape), shape.size() < 2 ? " " : "\n",
                                       array_text(dtype, shape, data, {}), "\n");
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}
#endif

/// The function that prints a tensor, of which it gets all elements: a custom call without batch dims. Its result is
/// added to the tensor: -0, or 0 for integers, changes no element. A tensor of rank 0 has a dim of extent 1 in front.
template <FixedString Label, int Rank> struct PrintedValue {
  static constexpr int dims = Rank == 0 ? 1 : Rank;
  struct Signature {
    char text[2 * max_rank + 6]{};
    std::size_t size = 0;
    constexpr Signature() {
      for (int d = 0; d < dims; ++d) {
        text[size++] = d == 0 ? '(' : ',';
        text[size++] = Rank == 0 ? '1' : static_cast<char>('a' + d);
      }
      for (const char letter : std::string_view(")->()")) text[size++] = letter;
    }
  };
  static constexpr Signature own{};

  static constexpr std::string_view name = "debug_print";
  static constexpr std::string_view signature{own.text, own.size};
  template <class T> static void run(CallArray<const T, dims> x, CallArray<T, 0> nothing) {
    Shape shape;
    for (int d = 0; d < Rank; ++d) shape.push_back(x.extent(d));
    write_array(Label.view(), dtype_v<T>, shape, x.data());
    if constexpr (is_floating_v<T>)
      nothing() = static_cast<T>(-0.f);
    else
      nothing() = T{};
  }
  template <class T> static constexpr void gradient(Gradient&) {}
};

}  // namespace detail

/// Returns x, and prints it when the program runs, as jax.debug.print does: a line with the label, the element type and
/// the shape, and the elements as NumPy prints them, long dims abbreviated. Use the result: if the program does not use
/// it, nothing is printed.
///
///     const auto h = ts::debug_print<"hidden">(ts::gelu(up(x)));
/// prints `hidden f32[2,3]` and the elements to the standard output. In a loop or a Stack it prints in each step, in a
/// ts::vmap for each example, and in a ts::shard_map for each device; examples and devices are in any order. A
/// checkpointed function prints again when it is recomputed. The gradient is that of x. To print a cotangent, call
/// debug_print in the backward function of a ts::custom_vjp. Elements and sharding of the result are those of x.
/// Communication: a split x is gathered for printing.
template <FixedString Label, TensorArgument X> constexpr auto debug_print(const X& x, Here at = Here::current()) {
  using T = typename X::element;
  static_assert(Label.view().size() <= 32, "tessera: the label of ts::debug_print has at most 32 characters");
  static_assert(!is_float8_v<T>, "tessera: print 8-bit floats by ts::debug_print<...>(ts::cast<float>(x))");
  const auto printed = [&] {
    using Printed = detail::PrintedValue<Label, X::rank>;
    if constexpr (X::rank == 0)
      return custom_call<Printed>(unsqueeze<0>(x, at), at);
    else
      return custom_call<Printed>(x, at);
  }();
  if constexpr (std::is_same_v<T, bool>)
    return logical_or(x, printed, at);
  else
    return call<AddTag>(Source::from(at), x, printed);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
