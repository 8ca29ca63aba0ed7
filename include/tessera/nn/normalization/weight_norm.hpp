#ifndef TESSERA_NN_NORMALIZATION_WEIGHT_NORM_HPP
#define TESSERA_NN_NORMALIZATION_WEIGHT_NORM_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <utility>

#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/graph/trace/settle.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/distances.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/reshard.hpp>

namespace tessera::nn {

/// A layer with a field `weight` [..., out], parametrized by a direction and a length for each column, as
/// torch.nn.utils.weight_norm of a Linear or a convolution: the layer computes with the weight length v / |v|, where v
/// is `layer.weight` and |v| the norm over all dims except the last. Both are parameters.
///
///     ts::nn::WeightNorm<ts::nn::Linear<>> up = ts::nn::weight_norm(ts::nn::linear(key, 16, 64, strategy));
///     const auto y = up(x);
/// For a transposed convolution, PyTorch's default uses norms over the dim `in` instead. A column of zeros has no
/// direction, and gives NaN. In a traced function. Communication: that of the layer; if a dim other than the last is
/// split, also an all_reduce of one value for each column. Source: Salimans, Kingma, 1602.07868.
template <class Layer> struct WeightNorm {
  using Weight = decltype(Layer::weight);

  Layer layer;                                        ///< its weight is the direction
  ShardedTensor<typename Weight::element, 1> length;  ///< [out]

  static constexpr std::array field_names{"layer", "length"};
  template <class X> constexpr auto operator()(const X& x, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return whole(at)(x, at);
  }
  /// In a traced function: the layer with the computed weight.
  constexpr Layer whole(Here at = Here::current()) const {
    const auto norms = tessera::detail::norm_of_others<Weight::rank - 1>(layer.weight, 2, at);
    Layer made = layer;
    made.weight = tessera::detail::settle(call<MulTag>(Source::from(at), layer.weight, length / norms));
    return made;
  }
};

/// Converts a layer to a WeightNorm with the same results: the lengths are the norms of its columns, sharded like them.
/// Call it outside of a traced function.
template <class Layer> WeightNorm<Layer> weight_norm(const Layer& layer, Here at = Here::current()) {
  constexpr int rank = decltype(Layer::weight)::rank;
  const Mesh& on = mesh(layer.weight);
  const PartitionSpec of_weight = spec_of(sharding(layer.weight), on);
  PartitionSpec spec;
  if (of_weight.entries.size() == rank) spec.entries.push_back(of_weight.entries[rank - 1]);
  const auto norms = [&]<int... D>(std::integer_sequence<int, D...>) {
    return norm<D...>(layer.weight, at);
  }(std::make_integer_sequence<int, rank - 1>{});
  return {layer, reshard(eval(norms), on, spec, at)};
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
