#ifndef TESSERA_OPS_CONTRACTION_AUTOCAST_HPP
#define TESSERA_OPS_CONTRACTION_AUTOCAST_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/ops/contraction/product_scope.hpp>

namespace tessera {

/// Inside a traced function: f with mixed precision, as torch.autocast. Products of f32 tensors (matmul, einsum,
/// convolutions, attention, and the layers made of them) round their operands to bf16, sum in f32 and round the result
/// to bf16, and so do their gradients. All else is computed in f32: softmax, norms, losses, sums, exp, log, pow.
///
///     const auto forward = ts::autocast<ts::bf16>([](const auto& model, const auto& x) { return model(x); });
///     const auto y = forward(model, x);
///
/// The element types that f's code sees do not change: the result of a product is an f32 tensor whose elements are bf16
/// numbers. What is stored of it, for a gradient too, is bf16, and a rounded operand is gathered as bf16. Gradients of
/// parameters are f32. `matmul<float>(a, b)` returns sums that are not rounded. Tensors of f64, bf16, f16 and integers
/// are left alone. With ts::f16 all of this is done in f16: scale the loss, as f16 has a small range. `autocast<float>`
/// or `autocast_off` inside of f switches it off for a part of f; the innermost call counts, also of
/// default_matmul_precision. Errors: unsupported outside of a traced function.
template <Element T, class F> constexpr auto autocast(const F& f) {
  static_assert(is_half_v<T> || std::is_same_v<T, float>,
                "tessera: the element type of ts::autocast is ts::bf16 or ts::f16, or float to switch it off");
  return detail::with_products<Precision::full, dtype_v<T>>(
      f, "[autocast] outside of a traced function: call it inside a function of ts::compile");
}
/// f with its products of f32 tensors computed in f32, inside of a function of ts::autocast.
template <class F> constexpr auto autocast_off(const F& f) { return autocast<float>(f); }

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
