#ifndef TESSERA_OPS_CONTRACTION_ADDMM_HPP
#define TESSERA_OPS_CONTRACTION_ADDMM_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/contraction/einsum.hpp>

namespace tessera {

namespace detail {

/// beta x + alpha product, in the shape of the product.
struct AddToProductTag {
  static constexpr auto leading_dims = ops::LeadingDims::aligned;
  template <class X, class Product, class Beta, class Alpha> struct result : Product {
    using Checks = decltype([] {
      static_assert(std::is_same_v<typename X::type, typename Product::type> && X::rank <= Product::rank,
                    "tessera: the tensor that is added to a product has its element type and at most its rank");
    });
  };
  template <class X, class Product, class Beta, class Alpha>
  static constexpr void convert(Value&, Value& product, Value& beta, Value& alpha) {
    const DType type = computed_as(product.dtype());
    beta = convert_operand<Beta>(beta, type), alpha = convert_operand<Alpha>(alpha, type);
  }
  static constexpr Value emit(Value context, Value x, Value product, Value beta, Value alpha) {
    const DType type = product.dtype();
    const Value scaled = build::cast(product.at(context.source), computed_as(type)) * alpha;
    // As in PyTorch a factor of 0 leaves out NaN and infinities.
    const bool added = !(beta.node().is_constant() && beta.node().value == 0);
    return build::cast(added ? build::cast(x, computed_as(type)) * beta + scaled : scaled, type);
  }
};

}  // namespace detail

/// beta x + alpha (a times b) of matrices a and b, as torch.addmm; baddbmm of batches of matrices [batch, M, K] and
/// [batch, K, N], as torch.baddbmm. x is broadcast to the product, trailing dims aligned; a constant beta of 0 leaves
/// it out, with its NaN. All three have one element type. The addition is part of the product. Gradients: beta, and
/// those of matmul times alpha. Errors: shape_mismatch; dtype_mismatch for an integer factor that is none of an integer
/// type. Communication: as matmul.
template <TensorArgument X, TensorArgument A, TensorArgument B, NumberOperand Beta = int, NumberOperand Alpha = int>
constexpr auto addmm(const X& x, const A& a, const B& b, const Beta& beta = 1, const Alpha& alpha = 1,
                     Here at = Here::current()) {
  const detail::FunctionCall named("addmm", x, a, b);
  static_assert(A::rank == 2 && B::rank == 2, "tessera: addmm takes matrices; use ts::baddbmm for batches of them");
  return call<detail::AddToProductTag>(Source::from(at), x, matmul(a, b, at), beta, alpha);
}
template <TensorArgument X, TensorArgument A, TensorArgument B, NumberOperand Beta = int, NumberOperand Alpha = int>
constexpr auto baddbmm(const X& x, const A& a, const B& b, const Beta& beta = 1, const Alpha& alpha = 1,
                       Here at = Here::current()) {
  const detail::FunctionCall named("baddbmm", x, a, b);
  static_assert(A::rank == 3 && B::rank == 3,
                "tessera: baddbmm takes batches of matrices, [batch, M, K] and [batch, K, N]");
  return call<detail::AddToProductTag>(Source::from(at), x, matmul(a, b, at), beta, alpha);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
