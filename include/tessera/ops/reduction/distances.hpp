#ifndef TESSERA_OPS_REDUCTION_DISTANCES_HPP
#define TESSERA_OPS_REDUCTION_DISTANCES_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/dtype.hpp>
#include <tessera/graph/trace/expression/composed_call.hpp>
#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/constraint.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/data_movement/diagonal.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/repeat.hpp>
#include <tessera/ops/indexing/nonzero.hpp>
#include <tessera/ops/reduction/statistics.hpp>

// Distances and products of vectors.

namespace tessera {

namespace detail {

/// The elements above the diagonal of square matrices, row by row.
struct UpperTriangleTag {
  template <class X> using result = Typed<typename X::type, 1>;
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    const Value above = build::less(build::iota(x, 0, DType::i64), build::iota(x, 1, DType::i64));
    const Value n = build::extent(x, 0), size = n * (n - n.number(1)) / n.number(2);
    return MaskedSelectTag<2>::emit(context, x, above, size, x.number(0));
  }
};

}  // namespace detail

/// The p-norm of a - b over all dims, rank 0; the operands are broadcast. Gradient and communication: as norm.
template <TensorArgument A, TensorArgument B, NumberOperand P = int>
constexpr auto dist(const A& a, const B& b, const P& p = 2, Here at = Here::current()) {
  const detail::FunctionCall named("dist", a, b);
  return norm(call<SubTag>(Source::from(at), a, b), p, at);
}
/// The p-norms of the differences of all pairs of rows (torch.cdist): a [..., N, D] and b [..., M, D] give [..., N, M].
/// Differences are not stored; leading dims are broadcast. The gradient at a distance of 0 is 0. Errors:
/// shape_mismatch. Communication: where D is split an all-reduce; N and M stay split.
template <TensorArgument A, TensorArgument B, NumberOperand P = int>
constexpr auto cdist(const A& a, const B& b, const P& p = 2, Here at = Here::current()) {
  const detail::FunctionCall named("cdist", a, b);
  static_assert(A::rank >= 2 && B::rank >= 2, "tessera: cdist takes rows, tensors of rank 2 or more");
  return norm<-1>(call<SubTag>(Source::from(at), unsqueeze<-2>(a, at), unsqueeze<-3>(b, at)), p, at);
}
/// The distances of each pair of rows of a matrix [N, D], as in cdist (F.pdist): a vector of N (N - 1) / 2, of rows 0
/// and 1, 0 and 2, and so on. Communication: as masked_select.
template <TensorArgument X, NumberOperand P = int>
constexpr auto pdist(const X& x, const P& p = 2, Here at = Here::current()) {
  const detail::FunctionCall named("pdist", x);
  static_assert(X::rank == 2, "tessera: pdist takes a matrix");
  return call<detail::UpperTriangleTag>(Source::from(at), cdist(x, x, p, at));
}
/// The cosine of the angle between a and b along dim D: their product over both norms, each at least eps, as in
/// PyTorch. The operands are broadcast; the result lacks the dim. Computed in f32 for bf16 and f16, and rounded once.
/// Communication: all-reduces if the dim is split.
template <int D = -1, TensorArgument A, TensorArgument B>
constexpr auto cosine_similarity(const A& a, const B& b, double eps = 1e-8, Here at = Here::current()) {
  using T = typename A::element;
  const detail::FunctionCall named("cosine_similarity", a, b);
  // In f16 an eps of 1e-8 is 0, and sums of products end at 65504.
  if constexpr (is_half_v<T> && std::is_same_v<T, typename B::element>) {
    return cast<T>(cosine_similarity<D>(cast<float>(a, at), cast<float>(b, at), eps, at), at);
  } else {
    const auto product = sum<D>(call<MulTag>(Source::from(at), a, b), at);
    const auto sizes =
        call<MulTag>(Source::from(at), maximum(norm<D>(a, at), eps, at), maximum(norm<D>(b, at), eps, at));
    return call<DivTag>(Source::from(at), product, sizes);
  }
}
/// x over its p-norm along dim D, which is taken to be at least eps: 0 stays 0. Computed in f32 for bf16 and f16, and
/// rounded once. Communication: as norm.
template <int D = -1, TensorArgument X, NumberOperand P = int>
constexpr auto normalize(const X& x, const P& p = 2, double eps = 1e-12, Here at = Here::current()) {
  using T = typename X::element;
  const detail::FunctionCall named("normalize", x);
  if constexpr (is_half_v<T>)
    return cast<T>(normalize<D>(cast<float>(x, at), p, eps, at), at);
  else
    return call<DivTag>(Source::from(at), x, maximum(norm<D>(x, keepdims, p, at), eps, at));
}

namespace detail {
/// The norm over all dims but one, with keepdims.
template <int D, TensorArgument X, NumberOperand P> constexpr auto norm_of_others(const X& x, const P& p, Here at) {
  return [&]<int... I>(std::integer_sequence<int, I...>) {
    return norm<(I < D ? I : I + 1)...>(x, keepdims, p, at);
  }(std::make_integer_sequence<int, X::rank - 1>{});
}
}  // namespace detail

/// x with each slice along dim D scaled down to a p-norm of at most `most`, where it is larger (torch.renorm). Example:
/// `renorm<0>(weight, 2, 1)` for rows. Communication: as norm.
template <int D, TensorArgument X, NumberOperand P, NumberOperand Most>
constexpr auto renorm(const X& x, const P& p, const Most& most, Here at = Here::current()) {
  const detail::FunctionCall named("renorm", x);
  static_assert(X::rank >= 2, "tessera: renorm takes a tensor with two dims or more");
  const auto size = detail::norm_of_others<detail::checked_dim<D, X::rank>()>(x, p, at);
  const auto scale = select(
      call<GreaterTag>(Source::from(at), size, most),
      call<DivTag>(Source::from(at), full_like(size, most, at), call<AddTag>(Source::from(at), size, 1e-7)), 1.0, at);
  return call<MulTag>(Source::from(at), x, scale);
}

/// The product of each element of a vector with each of another: [m] and [n] give [m, n]. No communication.
template <TensorArgument A, TensorArgument B> constexpr auto outer(const A& a, const B& b, Here at = Here::current()) {
  const detail::FunctionCall named("outer", a, b);
  static_assert(A::rank == 1 && B::rank == 1, "tessera: outer takes two vectors");
  return call<MulTag>(Source::from(at), unsqueeze<1>(a, at), unsqueeze<0>(b, at));
}
/// The Kronecker product (torch.kron, jnp.kron): each element of a is replaced by it times b. Vectors [m] and [n] give
/// [m n], matrices [m, n] and [p, q] give [m p, n q]. Communication: as merge_dims.
template <TensorArgument A, TensorArgument B> constexpr auto kron(const A& a, const B& b, Here at = Here::current()) {
  const detail::FunctionCall named("kron", a, b);
  static_assert(A::rank == B::rank && (A::rank == 1 || A::rank == 2),
                "tessera: kron takes two vectors or two matrices");
  if constexpr (A::rank == 1)
    return merge_dims<0, 1>(outer(a, b, at), at);
  else {
    const auto blocks = call<MulTag>(Source::from(at), unsqueeze<3>(unsqueeze<1>(a, at), at),
                                     unsqueeze<2>(unsqueeze<0>(b, at), at));  // [m, p, n, q]
    return merge_dims<0, 1>(merge_dims<2, 3>(blocks, at), at);
  }
}
namespace detail {
template <int D> struct Cross {
  template <class A, class B> constexpr auto operator()(Here at, const A& a, const B& b) const {
    const FunctionCall named("cross", a, b);
    const auto of = [&](const auto& x, int i) { return slice<D>(x, i, 1, at); };
    const auto product = [&](int i, int j) { return call<MulTag>(Source::from(at), of(a, i), of(b, j)); };
    const auto component = [&](int i, int j) { return call<SubTag>(Source::from(at), product(i, j), product(j, i)); };
    const auto made = concat<D>(component(1, 2), component(2, 0), component(0, 1), at);
    // Of one shape: a dim of more than 3 is an error.
    return std::get<0>(shard_as(made, std::get<0>(shard_as(a, b, at)), at));
  }
};
}  // namespace detail

/// The cross product of the vectors along dim D, which has extent 3 (torch.linalg.cross, jnp.cross). Errors:
/// shape_mismatch. Communication: as slice and concat where D is split.
template <int D = -1, TensorArgument A, TensorArgument B>
constexpr auto cross(const A& a, const B& b, Here at = Here::current()) {
  static_assert(A::rank == B::rank, "tessera: cross takes two tensors of one rank");
  return detail::composed_call(detail::Cross<D>{}, at, a, b);
}
/// The powers 0 to `count` - 1 of each element of a vector in a row, the highest first, or with `vander<true>` last
/// (torch.vander, jnp.vander): [n] gives [n, count]. No communication.
template <bool Increasing = false, TensorArgument X, SizeOperand Count>
constexpr auto vander(const X& x, const Count& count, Here at = Here::current()) {
  const detail::FunctionCall named("vander", x);
  static_assert(X::rank == 1, "tessera: vander takes a vector");
  const auto columns = tile<1>(unsqueeze<1>(x, at), count, at);
  const auto powers = pow(columns, iota<1, typename X::element>(columns, at), at);
  if constexpr (Increasing)
    return powers;
  else
    return flip<1>(powers, at);
}
/// The sum of the products of two vectors, rank 0. Errors: shape_mismatch. Communication: as einsum.
template <TensorArgument A, TensorArgument B> constexpr auto dot(const A& a, const B& b, Here at = Here::current()) {
  const detail::FunctionCall named("dot", a, b);
  static_assert(A::rank == 1 && B::rank == 1, "tessera: dot takes two vectors");
  return detail::exact_einsum<"i,i->">(a, b, at);
}
/// The sum of the diagonal of each matrix: [..., n, m] gives [...]. Communication: as diagonal and sum.
template <TensorArgument X> constexpr auto trace(const X& x, Here at = Here::current()) {
  const detail::FunctionCall named("trace", x);
  return sum<-1>(diagonal(x, at), at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
