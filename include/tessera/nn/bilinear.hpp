#ifndef TESSERA_NN_BILINEAR_HPP
#define TESSERA_NN_BILINEAR_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cmath>

#include <tessera/base/dtype.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/nn/mixed.hpp>
#include <tessera/nn/sharding_strategy.hpp>
#include <tessera/ops/contraction/vector_products.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/random.hpp>

namespace tessera::nn {

/// y[..., o] = sum over i and j of x1[..., i] weight[o, i, j] x2[..., j] + bias[o], of x1 [..., in1] and x2 [..., in2]
/// with equal leading dims (torch.nn.Bilinear).
///
/// weight [out, in1, in2], bias [out]; `Bilinear<float, false>` has no bias. For x1 and x2 of bf16 or f16 the result
/// has their type, as in Linear. Errors: shape_mismatch. Communication: as matmul; an all_reduce if the weight is split
/// along `in1` or `in2`.
template <Element T = float, bool Bias = true> struct Bilinear {
  ShardedTensor<T, 3> weight;
  ShardedTensor<T, 1> bias;

  static constexpr std::array field_names{"weight", "bias"};
  template <TensorOperand X1, TensorOperand X2>
  constexpr auto operator()(const X1& x1, const X2& x2, Here at = Here::current()) const {
    const auto sums = tessera::bilinear(x1, x2, detail::as_met_by<X1>(weight, at), at);
    if constexpr (detail::is_mixed_v<X1, T>)
      return cast<typename X1::element>(call<AddTag>(Source::from(at), sums, bias), at);
    else
      return call<AddTag>(Source::from(at), sums, bias);
  }
};

template <Element T> struct Bilinear<T, false> {
  ShardedTensor<T, 3> weight;

  static constexpr std::array field_names{"weight"};
  template <TensorOperand X1, TensorOperand X2>
  constexpr auto operator()(const X1& x1, const X2& x2, Here at = Here::current()) const {
    return tessera::bilinear(x1, x2, detail::as_met_by<X1>(weight, at), at);
  }
};

/// A Bilinear with PyTorch's initial values: weight and bias uniform within 1 / sqrt(in1). `spec` is that of the
/// weight; the bias is split like the weight's dim of out-features.
template <Element T = float, bool Bias = true>
Bilinear<T, Bias> bilinear(Key key, Extent in1, Extent in2, Extent out, const Mesh& mesh,
                           const PartitionSpec& spec = {}, Here at = Here::current()) {
  const auto bound = static_cast<computed_t<T>>(1 / std::sqrt(static_cast<double>(in1.value)));
  const auto [of_weight, of_bias] = split<2>(key);
  auto weight = uniform<T>(of_weight, {out, in1, in2}, mesh, spec, -bound, bound, at);
  if constexpr (Bias) {
    PartitionSpec of_out;
    if (!spec.entries.empty()) of_out.entries.push_back(spec.entries[0]);
    return {weight, uniform<T>(of_bias, {out}, mesh, of_out, -bound, bound, at)};
  } else {
    return {weight};
  }
}

/// The same for a sharding strategy, which splits the out-features and `in1` as those of a column weight [in1, out].
template <Element T = float, bool Bias = true>
Bilinear<T, Bias> bilinear(Key key, Extent in1, Extent in2, Extent out, const ShardingStrategy& strategy,
                           Here at = Here::current()) {
  const PartitionSpec columns = strategy.weight(Role::column);
  const bool splits = columns.entries.size() == 2;
  return bilinear<T, Bias>(key, in1, in2, out, strategy.mesh,
                           splits ? PartitionSpec{columns.entries[1], columns.entries[0]} : PartitionSpec{}, at);
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
