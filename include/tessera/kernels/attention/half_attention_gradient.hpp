#ifndef TESSERA_KERNELS_ATTENTION_HALF_ATTENTION_GRADIENT_HPP
#define TESSERA_KERNELS_ATTENTION_HALF_ATTENTION_GRADIENT_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/kernels/attention/attention.hpp>

namespace tessera::kernels {

/// Operands and results of the gradient of attention of bf16 or f16 for one head. Gradients are float, since they may
/// be summed.
template <class T> struct HalfAttentionGradient {
  HeadRows<const T> q, k, v, out;
  HeadRows<const float> row_lse;
  HeadRows<const T> cotangent;
  HeadRows<float> q_gradient, k_gradient, v_gradient;
};

}  // namespace tessera::kernels

#include <tessera/base/pop_macros.hpp>

#endif
