#ifndef TESSERA_NN_MIXED_HPP
#define TESSERA_NN_MIXED_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/graph/trace/operand.hpp>
#include <tessera/ops/elementwise.hpp>

// Layers compute in the element type of their argument, as under torch.autocast. For a bf16 or f16 argument parameters
// stay f32 and are rounded to its type for products only; sums, norms and gradients of parameters are f32.
namespace tessera::nn::detail {

/// Whether a layer with f32 parameters has an argument of bf16 or f16.
template <class X, class T>
inline constexpr bool is_mixed_v = is_half_v<typename typed_of<X>::type> && std::is_same_v<T, float>;

/// A parameter, converted to the element type in which it is combined with x.
template <class X, class Parameter> constexpr auto as_met_by(const Parameter& parameter, Here at) {
  if constexpr (is_mixed_v<X, typename Parameter::element>)
    return cast<typename typed_of<X>::type>(parameter, at);
  else
    return parameter;
}

}  // namespace tessera::nn::detail

#include <tessera/base/pop_macros.hpp>

#endif
