#ifndef TESSERA_OPS_CONTRACTION_VECTOR_PRODUCTS_HPP
#define TESSERA_OPS_CONTRACTION_VECTOR_PRODUCTS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <tuple>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/contraction/addmm.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/reduction/distances.hpp>
#include <tessera/ops/reduction/reduction.hpp>

// Products with vectors, chains of products, and bilinear forms.

namespace tessera {

/// A matrix [m, n] times a vector [n] (torch.mv): a vector [m]. Errors and communication: as einsum.
template <TensorArgument A, TensorArgument X> constexpr auto mv(const A& a, const X& x, Here at = Here::current()) {
  const detail::FunctionCall named("mv", a, x);
  static_assert(A::rank == 2 && X::rank == 1, "tessera: mv takes a matrix and a vector");
  return einsum<"mn,n->m">(a, x, at);
}
/// beta y + alpha (a times x), of a vector y or a scalar, a matrix and a vector (torch.addmv). Otherwise as addmm.
template <TensorArgument Y, TensorArgument A, TensorArgument X, NumberOperand Beta = int, NumberOperand Alpha = int>
constexpr auto addmv(const Y& y, const A& a, const X& x, const Beta& beta = 1, const Alpha& alpha = 1,
                     Here at = Here::current()) {
  const detail::FunctionCall named("addmv", y, a);
  return call<detail::AddToProductTag>(Source::from(at), y, mv(a, x, at), beta, alpha);
}
/// beta x + alpha (a b^T), of a matrix [m, n] and vectors [m] and [n] (torch.addr). Otherwise as addmm.
template <TensorArgument X, TensorArgument A, TensorArgument B, NumberOperand Beta = int, NumberOperand Alpha = int>
constexpr auto addr(const X& x, const A& a, const B& b, const Beta& beta = 1, const Alpha& alpha = 1,
                    Here at = Here::current()) {
  const detail::FunctionCall named("addr", x, a);
  return call<detail::AddToProductTag>(Source::from(at), x, outer(a, b, at), beta, alpha);
}
/// beta x + alpha times the sum of the products of two batches of matrices, [batch, M, K] and [batch, K, N]
/// (torch.addbmm); baddbmm keeps the products apart. Otherwise as addmm.
template <TensorArgument X, TensorArgument A, TensorArgument B, NumberOperand Beta = int, NumberOperand Alpha = int>
constexpr auto addbmm(const X& x, const A& a, const B& b, const Beta& beta = 1, const Alpha& alpha = 1,
                      Here at = Here::current()) {
  const detail::FunctionCall named("addbmm", x, a);
  static_assert(A::rank == 3 && B::rank == 3,
                "tessera: addbmm takes batches of matrices, [batch, M, K] and [batch, K, N]");
  return call<detail::AddToProductTag>(Source::from(at), x, einsum<"bik,bkj->ij">(a, b, at), beta, alpha);
}

/// The products of all rows of a and b: their last dims are summed over (torch.inner). Example: [I, J, K] and [L, K]
/// give [I, J, L]. Errors and communication: as einsum.
template <TensorArgument A, TensorArgument B> constexpr auto inner(const A& a, const B& b, Here at = Here::current()) {
  const detail::FunctionCall named("inner", a, b);
  static_assert(A::rank >= 1 && B::rank >= 1, "tessera: inner takes tensors with at least one dim");
  if constexpr (B::rank == 1)
    return tensordot<1>(a, b, at);
  else
    return tensordot<1>(a, movedim<-1, 0>(b, at), at);
}
/// The sum of the products of a and b along dim D, which the result lacks (torch.linalg.vecdot, jnp.vecdot). Operands
/// are broadcast and promoted. Communication: where D is split an all-reduce.
template <int D = -1, TensorArgument A, TensorArgument B>
constexpr auto vecdot(const A& a, const B& b, Here at = Here::current()) {
  const detail::FunctionCall named("vecdot", a, b);
  return sum<D>(call<MulTag>(Source::from(at), a, b), at);
}

namespace detail {
template <class A, class B> constexpr auto chained(Source source, const A& a, const B& b) {
  if constexpr (A::rank == 1 && B::rank == 1)
    return call<EinsumTag<"i,i->">>(source, a, b);
  else if constexpr (A::rank == 1)
    return call<EinsumTag<"i,ij->j">>(source, a, b);
  else if constexpr (B::rank == 1)
    return call<EinsumTag<"ij,j->i">>(source, a, b);
  else
    return matmul_of<void, Precision::full>(source, a, b);
}
template <class A, class B, class C, class... Rest>
constexpr auto chained(Source source, const A& a, const B& b, const C& c, const Rest&... rest) {
  using Last = std::tuple_element_t<sizeof...(Rest), std::tuple<C, Rest...>>;
  if constexpr (Last::rank == 1 && A::rank != 1)
    return chained(source, a, chained(source, b, c, rest...));
  else
    return chained(source, chained(source, a, b), c, rest...);
}
}  // namespace detail

/// The product of several matrices; the first and the last may be vectors (torch.linalg.multi_dot). Extents are not
/// known when a program is traced, so products are taken from the left, or from the right if the last operand is a
/// vector; for another order write the products one by one. Of more than four operands, messages give the line that
/// made the first. Errors and communication: as matmul.
///
///     const auto y = ts::multi_dot(a, b, c, x);   // a (b (c x))
template <TensorArgument A, TensorArgument B>
constexpr auto multi_dot(const A& a, const B& b, Here at = Here::current()) {
  const detail::FunctionCall named("multi_dot", a, b);
  return detail::chained(Source::from(at), a, b);
}
template <TensorArgument A, TensorArgument B, TensorArgument C>
constexpr auto multi_dot(const A& a, const B& b, const C& c, Here at = Here::current()) {
  const detail::FunctionCall named("multi_dot", a, b, c);
  return detail::chained(Source::from(at), a, b, c);
}
template <TensorArgument A, TensorArgument B, TensorArgument C, TensorArgument D>
constexpr auto multi_dot(const A& a, const B& b, const C& c, const D& d, Here at = Here::current()) {
  const detail::FunctionCall named("multi_dot", a, b, c, d);
  return detail::chained(Source::from(at), a, b, c, d);
}
template <TensorArgument A, TensorArgument B, TensorArgument C, TensorArgument D, TensorArgument E,
          TensorOperand... Rest>
constexpr auto multi_dot(const A& a, const B& b, const C& c, const D& d, const E& e, const Rest&... rest) {
  const detail::FunctionCall named("multi_dot", a, b, c, d, e, rest...);
  return detail::chained(detail::line_of(a), a, b, c, d, e, rest...);
}

/// y[..., o] = sum over i and j of x1[..., i] weight[o, i, j] x2[..., j] (F.bilinear): a weight of [out, in1, in2] as
/// in PyTorch; leading dims of x1 and x2 are equal. The weight meets x1 first, which gives [..., out, in2]: let x1 be
/// the operand with more features. Errors: shape_mismatch. Communication: as matmul.
template <TensorArgument A, TensorArgument B, TensorArgument W>
constexpr auto bilinear(const A& x1, const B& x2, const W& weight, Here at = Here::current()) {
  const detail::FunctionCall named("bilinear", x1, x2);
  static_assert(A::rank == B::rank && A::rank >= 1 && W::rank == 3,
                "tessera: bilinear takes two tensors of one rank and a weight [out, in1, in2]");
  const auto met = tensordot<1>(x1, transpose<1, 0, 2>(weight, at), at);
  return sum<-1>(call<MulTag>(Source::from(at), met, unsqueeze<-2>(x2, at)), at);
}
template <TensorArgument A, TensorArgument B, TensorArgument W, TensorArgument Bias>
constexpr auto bilinear(const A& x1, const B& x2, const W& weight, const Bias& bias, Here at = Here::current()) {
  const detail::FunctionCall named("bilinear", x1, x2);
  return call<AddTag>(Source::from(at), bilinear(x1, x2, weight, at), bias);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
