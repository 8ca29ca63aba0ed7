#ifndef TESSERA_OPS_INDEXING_GATHER_HPP
#define TESSERA_OPS_INDEXING_GATHER_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/data_movement/shape.hpp>

namespace tessera {

namespace detail {

template <int Rank, int D> struct GatherTag {
  static constexpr auto leading_dims = ops::LeadingDims::extended;
  template <class A, class Indices> struct result : A {
    using Checks = decltype([] {
      static_assert(
          std::is_same_v<typename Indices::type, std::int32_t> || std::is_same_v<typename Indices::type, std::int64_t>,
          "tessera: the indices of gather must be std::int32_t or std::int64_t; use ts::cast<std::int32_t>(indices)");
      static_assert(Indices::rank == A::rank, "tessera: the indices of gather must have the rank of the first operand");
    });
  };
  static constexpr Value emit(Value context, Value x, Value indices) {
    const int dim = x.shifted(D, Rank);
    if (((x.node().singletons ^ indices.node().singletons) & ~(1u << dim)) != 0)
      context.refuse(errc::shape_mismatch,
                     "[gather] dims: a dim has static extent 1 in only one of operand and indices; use "
                     "ts::broadcast_like first");
    return build::gather(x.at(context.source), dim, indices);
  }
};

template <int Rank, int D> struct ScatterAddTag {
  static constexpr auto leading_dims = ops::LeadingDims::extended;
  template <class A, class Indices, class Source> struct result : A {
    using Checks = decltype([] {
      static_assert(
          std::is_same_v<typename Indices::type, std::int32_t> || std::is_same_v<typename Indices::type, std::int64_t>,
          "tessera: the indices of scatter_add must be std::int32_t or std::int64_t; use "
          "ts::cast<std::int32_t>(indices)");
      static_assert(Indices::rank == A::rank && Source::rank == A::rank,
                    "tessera: the operands of scatter_add must have equal ranks");
      static_assert(std::is_same_v<typename Source::type, typename A::type>,
                    "tessera: the first operand and the source of scatter_add must have the same element type");
      static_assert(!std::is_same_v<typename A::type, bool>,
                    "tessera: scatter_add does not take bool tensors; use ts::cast");
    });
  };
  /// Floating elements are added in f64 and rounded once, since any number of them can be added at one index.
  static constexpr Value emit(Value context, Value x, Value indices, Value source) {
    const int dim = x.shifted(D, Rank);
    const unsigned along = 1u << dim;
    if (((x.node().singletons ^ indices.node().singletons) & ~along) != 0 ||
        source.node().singletons != indices.node().singletons)
      context.refuse(
          errc::shape_mismatch,
          "[scatter_add] dims: a dim has static extent 1 in only some of the operands; use ts::broadcast_like first");
    x = x.at(context.source);
    const DType type = x.dtype(), wide = is_floating(type) ? DType::f64 : type;
    const Value sums = build::scatter_add(build::cast(source.at(context.source), wide), dim, indices, x);
    return build::cast(build::cast(x, wide) + sums, type);
  }
};

}  // namespace detail

/// Elements along dim D at integer indices (torch.gather): y[.., k, ..] = x[.., indices[.., k, ..], ..]. The result has
/// the shape of the indices, which have the rank of x and its extents along the other dims. The gradient adds the
/// cotangent at the indices. Errors: dim_range for an index outside of the dim, shape_mismatch where another dim
/// differs. Communication: as sort.
template <int D, TensorOperand X, TensorOperand Indices>
constexpr auto gather(const X& x, const Indices& indices, Here at = Here::current()) {
  return call<detail::GatherTag<X::rank, detail::checked_dim<D, X::rank>()>>(Source::from(at), x, indices);
}

/// Adds elements to a copy of x along dim D (torch.scatter_add): y = x, then y[.., indices[.., k, ..], ..] +=
/// source[.., k, ..] for each element of source. A histogram is `scatter_add<0>(zeros, bins, ones)`. Indices and source
/// have one shape, and the extents of x along the other dims. Floating elements are added in f64 in the order of the
/// indices and rounded once; integers wrap around. Gradients: of x the cotangent, of source the cotangent gathered at
/// the indices. Errors and communication: as gather.
template <int D, TensorOperand X, TensorOperand Indices, TensorOperand Source>
constexpr auto scatter_add(const X& x, const Indices& indices, const Source& source, Here at = Here::current()) {
  return call<detail::ScatterAddTag<X::rank, detail::checked_dim<D, X::rank>()>>(tessera::Source::from(at), x, indices,
                                                                                 source);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
