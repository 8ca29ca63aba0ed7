#ifndef TESSERA_NN_EMBEDDING_HPP
#define TESSERA_NN_EMBEDDING_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/nn/mixed.hpp>
#include <tessera/nn/sharding_strategy.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/indexing/dynamic_slice.hpp>
#include <tessera/ops/indexing/embedding.hpp>
#include <tessera/ops/indexing/segment.hpp>
#include <tessera/ops/indexing/take_along_dim.hpp>
#include <tessera/ops/reduction/distances.hpp>
#include <tessera/tensor/random.hpp>
#include <tessera/tensor/update_shards.hpp>

namespace tessera::nn {

/// The value of `Padding` for an Embedding without a padding row.
inline constexpr std::int64_t no_padding = std::numeric_limits<std::int64_t>::min();

/// Looks up a row of a table for each token, as torch.nn.Embedding: tokens [...] to [..., features].
/// table [classes, features]. The row `Padding` gets no gradient (padding_idx of PyTorch; -1 is the last row). Errors:
/// dim_range for a token outside of the table. Communication: with a table split by class, an all_reduce of the result.
template <Element T = float, std::int64_t Padding = no_padding> struct Embedding {
  ShardedTensor<T, 2> table;

  static constexpr std::array field_names{"table"};
  constexpr auto operator()(const auto& tokens, Here at = Here::current()) const {
    if constexpr (Padding == no_padding)
      return tessera::embedding(table, tokens, at);
    else
      return tessera::embedding<Padding>(table, tokens, at);
  }
  /// The layer with the rows of `tokens` scaled down to a p-norm of at most `most`: max_norm and norm_type of
  /// torch.nn.Embedding. PyTorch changes these rows in each call, before it reads them; here a training step does so
  /// before the forward pass, and returns the changed layer with its other results:
  ///
  ///     model.embedding = model.embedding.renormalized(tokens, 1.0);
  ///     const auto [loss, gradient] = ts::value_and_grad(f)(model, tokens);
  /// Communication: that of ts::renorm; if tokens are split, also an all_reduce of a count for each class.
  template <class Tokens, NumberOperand Most, NumberOperand P = int>
  constexpr Embedding renormalized(const Tokens& tokens, const Most& most, const P& p = 2,
                                   Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, table);
    const auto all = tessera::detail::flattened(tokens, at);
    const auto reads = segment_sum(ones_like(cast<std::int32_t>(all, at), at), all, extent<0>(table, at), at);
    const auto is_read = tessera::call<GreaterTag>(Source::from(at), reads, 0);
    return {select(unsqueeze<1>(is_read, at), renorm<0>(table, p, most, at), table, at)};
  }
  /// Logits of each class, x table^T, for x [..., features]: the output layer of a model with tied weights, as attend
  /// of flax.linen.Embed. The gradient of the table is the sum over both uses. Logits have the type of x if x is bf16
  /// or f16.
  template <class X> constexpr auto attend(const X& x, Here at = Here::current()) const {
    return matmul(x, transpose<1, 0>(detail::as_met_by<X>(table, at), at), at);
  }
};

/// x [batch, time, features] plus a learned row for each position: table [context, features], time at most context.
/// For generation with a cache, `positions(x, position)` begins at a position: a Scalar, a number or an integer tensor
/// of rank 0. If fewer than `time` rows are left, it uses the last rows.
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

/// An Embedding with normal rows, and zeros in the padding row. Errors: `dim_range` for a `Padding` outside of the
/// table.
template <Element T = float, std::int64_t Padding = no_padding>
Embedding<T, Padding> embedding(Key key, Extent classes, Extent features, const ShardingStrategy& strategy,
                                double stddev = 0.02, Here at = Here::current()) {
  Embedding<T, Padding> made{
      normal<T>(key, {classes, features}, strategy.mesh, strategy.embedding, 0, static_cast<computed_t<T>>(stddev))};
  if constexpr (Padding != no_padding) {
    constexpr std::int64_t from_end = Padding < 0 ? 1 : 0;
    const std::int64_t row = Padding + from_end * classes.value;
    if (row < 0 || row >= classes.value)
      fail(errc::dim_range, "[nn::embedding] padding: row ", Padding, " of ", classes.value, " classes",
           Source::from(at));
    update_shards(made.table, [&](const Box& box, std::span<T> values) {
      if (row < box.begin[0] || row >= box.end[0]) return;
      const std::int64_t width = box.end[1] - box.begin[1];
      std::fill_n(values.begin() + (row - box.begin[0]) * width, width, T{});
    });
  }
  return made;
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
