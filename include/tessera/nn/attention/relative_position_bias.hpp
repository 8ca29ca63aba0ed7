#ifndef TESSERA_NN_ATTENTION_RELATIVE_POSITION_BIAS_HPP
#define TESSERA_NN_ATTENTION_RELATIVE_POSITION_BIAS_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstdint>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/graph/trace/require_trace.hpp>
#include <tessera/nn/sharding_strategy.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/embedding.hpp>
#include <tessera/tensor/random.hpp>

namespace tessera::nn {

/// The attention bias of T5: a learned number for each head and each bucket of distances between a query and a key.
/// `bias(x, memory)` of queries x [batch, time, ...] and keys [batch, keys, ...] is [heads, time, keys], for
/// ts::attention with a bias:
///
///     ts::attention(q, k, v, bias(x, x), 1.0)
/// Half of the buckets are for keys after the query, unless `Bidirectional` is false, as in a decoder: then these keys
/// have the bucket of distance 0. Half of the other buckets are for the distances 0, 1, 2, ...; the rest are spaced
/// logarithmically, the last one for all distances from `distance` on. Memory: [time, keys, heads], shared by the
/// batch. In a traced function. Communication: none for replicated tables and tables split by head. Source: Raffel et
/// al., 1910.10683, as T5Attention of Hugging Face.
template <Element T = float, bool Bidirectional = true> struct RelativePositionBias {
  ShardedTensor<T, 2> table;  ///< [buckets, heads]
  Scalar distance = 128;

  static constexpr std::array field_names{"table", "distance"};
  constexpr auto operator()(const auto& queries, const auto& keys, Here at = Here::current()) const {
    tessera::detail::require_trace("relative_position_bias", "the layer", Source::from(at), *this, queries, keys);
    const tessera::detail::LayerCall call(at, queries);
    return rearrange<"t s h -> h t s">(embedding(table, buckets(queries, keys)));
  }

  /// The rows of the table, [time, keys], as integers.
  constexpr auto buckets(const auto& queries, const auto& keys) const {
    const auto ahead = unsqueeze<0>(arange<float>(extent<1>(keys))) - unsqueeze<1>(arange<float>(extent<1>(queries)));
    const Scalar count = extent<0>(table) * (Bidirectional ? 0.5 : 1.0), exact = count * 0.5;
    const auto size = Bidirectional ? abs(ahead) : maximum(-ahead, 0.0f);
    // A distance at which a bucket begins is not rounded into the bucket before.
    const auto step = log(maximum(size, exact) / exact) / log(distance / exact) * (count - exact) + 1e-4;
    const auto own = select(size < exact, size, minimum(exact + floor(step), count - 1.0));
    if constexpr (Bidirectional)
      return cast<std::int32_t>(own + select(ahead > 0.0f, count, 0.0f));
    else
      return cast<std::int32_t>(own);
  }
};

/// A RelativePositionBias with a normal table. Errors: option unless the number of buckets is a multiple of 4 and the
/// distance is above a fourth of it; for a decoder, a multiple of 2 and above half of it.
template <Element T = float, bool Bidirectional = true>
RelativePositionBias<T, Bidirectional> relative_position_bias(Key key, Extent heads, const ShardingStrategy& strategy,
                                                              Extent buckets = 32, double distance = 128,
                                                              double stddev = 0.02, Here at = Here::current()) {
  const std::int64_t parts = Bidirectional ? 4 : 2;
  if (buckets.value < 1 || buckets.value % parts != 0)
    fail(errc::option, "[relative_position_bias] buckets: ", buckets.value, " is not a multiple of ", parts,
         Source::from(at));
  if (!(distance > static_cast<double>(buckets.value / parts)))
    fail(errc::option, "[relative_position_bias] distance: ", distance, " is not above ", buckets.value / parts,
         ", the number of distances that have a bucket each", Source::from(at));
  PartitionSpec spec;
  if (const PartitionSpec of_columns = strategy.weight(Role::column); of_columns.entries.size() == 2)
    spec.entries.push_back(SpecEntry()), spec.entries.push_back(of_columns.entries[1]);
  return {normal<T>(key, {buckets, heads}, strategy.mesh, spec, 0, static_cast<computed_t<T>>(stddev), at), distance};
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
