#ifndef TESSERA_NN_LINEAR_HPP
#define TESSERA_NN_LINEAR_HPP
#include <tessera/base/push_macros.hpp>

#include <array>

#include <tessera/base/dtype.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/nn/mixed.hpp>
#include <tessera/nn/sharding_strategy.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/random.hpp>

namespace tessera::nn {

/// x W + b over the last dim of x, which has rank 2 or more: torch.nn.Linear with the weight transposed.
/// weight [in, out], bias [out]; `Linear<float, false>` has no bias. If x is bf16 or f16, so is the result: the weight
/// is rounded to the type of x, and products are summed and the bias added in f32. Communication: with a weight split
/// along `in`, an all_reduce or reduce_scatter of the result. Errors: shape_mismatch.
template <Element T = float, bool Bias = true> struct Linear {
  ShardedTensor<T, 2> weight;
  ShardedTensor<T, 1> bias;

  static constexpr std::array field_names{"weight", "bias"};
  template <class X> constexpr auto operator()(const X& x, Here at = Here::current()) const {
    constexpr bool is_tensor = TensorOperand<X>;
    static_assert(is_tensor, "tessera: a Linear takes a tensor; a layer that returns a tuple, such as ts::nn::MoE or "
                             "ts::nn::Lstm, has the tensor as its first item: const auto [y, balance, z] = moe(x)");
    if constexpr (!is_tensor)
      return weight;
    else if constexpr (detail::is_mixed_v<X, T>)
      return cast<typename X::element>(
          call<AddTag>(Source::from(at), matmul<float>(x, detail::as_met_by<X>(weight, at), at), bias), at);
    else
      return call<AddTag>(Source::from(at), matmul(x, weight, at), bias);
  }
};

template <Element T> struct Linear<T, false> {
  ShardedTensor<T, 2> weight;

  static constexpr std::array field_names{"weight"};
  template <class X> constexpr auto operator()(const X& x, Here at = Here::current()) const {
    constexpr bool is_tensor = TensorOperand<X>;
    static_assert(is_tensor, "tessera: a Linear takes a tensor; a layer that returns a tuple, such as ts::nn::MoE or "
                             "ts::nn::Lstm, has the tensor as its first item: const auto [y, balance, z] = moe(x)");
    if constexpr (is_tensor)
      return matmul(x, detail::as_met_by<X>(weight, at), at);
    else
      return weight;
  }
};

/// A Linear with normal weights of the given standard deviation and a bias of zeros.
template <Element T = float, bool Bias = true>
Linear<T, Bias> linear(Key key, Extent in, Extent out, const ShardingStrategy& strategy, Role role = Role::column,
                       double stddev = 0.02) {
  auto weight = normal<T>(key, {in, out}, strategy.mesh, strategy.weight(role), 0, static_cast<computed_t<T>>(stddev));
  if constexpr (Bias)
    return {weight, zeros<T>({out}, strategy.mesh, strategy.bias(role))};
  else
    return {weight};
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
