#ifndef TESSERA_NN_EMBEDDING_HPP
#define TESSERA_NN_EMBEDDING_HPP
#include <tessera/base/push_macros.hpp>

#include <array>

#include <tessera/base/dtype.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/nn/mixed.hpp>
#include <tessera/nn/sharding_strategy.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/indexing/dynamic_slice.hpp>
#include <tessera/ops/indexing/embedding.hpp>
#include <tessera/tensor/random.hpp>

namespace tessera::nn {

/// Looks up a row of a table for each token, as torch.nn.Embedding: tokens [...] to [..., features].
///
/// table [classes, features]. Errors: dim_range for a token that is no class. Communication: with the table sharded by
/// class, an all_reduce of the result.
template <Element T = float> struct Embedding {
  ShardedTensor<T, 2> table;

  static constexpr std::array field_names{"table"};
  constexpr auto operator()(const auto& tokens, Here at = Here::current()) const {
    return embedding(table, tokens, at);
  }
  /// Logits of each class, x table^T, for x [..., features]: the output matrix of a model whose weights are tied, as
  /// attend of flax.linen.Embed. The gradient of the table is the sum of those of its uses. An x of bf16 or f16 gives
  /// logits of its type.
  template <class X> constexpr auto attend(const X& x, Here at = Here::current()) const {
    return matmul(x, transpose<1, 0>(detail::as_met_by<X>(table, at), at), at);
  }
};

/// x [batch, time, features] plus a learned row for each position: table [context, features], time at most context.
/// `positions(x, position)` begins at a position, a Scalar, a number or an integer tensor of rank 0, for generation
/// with a cache; where fewer than `time` rows are left, it takes the last rows.
template <Element T = float> struct Positions {
  ShardedTensor<T, 2> table;

  static constexpr std::array field_names{"table"};
  template <class X> constexpr auto operator()(const X& x, Here at = Here::current()) const {
    return call<AddTag>(Source::from(at), x, slice<0>(detail::as_met_by<X>(table, at), 0, extent<-2>(x, at), at));
  }
  template <class X, Operand Position>
  constexpr auto operator()(const X& x, const Position& position, Here at = Here::current()) const {
    return call<AddTag>(Source::from(at), x,
                        dynamic_slice<0>(detail::as_met_by<X>(table, at), position, extent<-2>(x, at), at));
  }
};

template <Element T = float>
Embedding<T> embedding(Key key, Extent classes, Extent features, const ShardingStrategy& strategy,
                       double stddev = 0.02) {
  return {
      normal<T>(key, {classes, features}, strategy.mesh, strategy.embedding, 0, static_cast<computed_t<T>>(stddev))};
}
template <Element T = float>
Positions<T> positions(Key key, Extent context, Extent features, const ShardingStrategy& strategy,
                       double stddev = 0.02) {
  return {
      normal<T>(key, {context, features}, strategy.mesh, strategy.positions, 0, static_cast<computed_t<T>>(stddev))};
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
