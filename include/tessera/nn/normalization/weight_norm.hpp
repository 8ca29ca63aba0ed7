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

/// A layer with a field `weight` [..., out], whose columns have a direction and a length of their own, as
/// torch.nn.utils.weight_norm of a Linear or a convolution: the layer computes with length v / |v|, where v is
/// `layer.weight` and |v| the norm over all dims but the last. Both are parameters.
///
///     ts::nn::WeightNorm<ts::nn::Linear<>> up = ts::nn::weight_norm(ts::nn::linear(key, 16, 64, strategy));
///     const auto y = up(x);
/// Of a transposed convolution PyTorch's default takes the norms of the dim `in`. A column of zeros has no direction,
/// and gives NaN. Inside a traced function. Communication: that of the layer, and where a dim but the last one is split
/// an all_reduce of one value for each column. Source: Salimans, Kingma, 1602.07868.
template <class Layer> struct WeightNorm {
  using Weight = decltype(Layer::weight);

  Layer layer;                                        ///< its weight is the direction
  ShardedTensor<typename Weight::element, 1> length;  ///< [out]

  static constexpr std::array field_names{"layer", "length"};
  template <class X> constexpr auto operator()(const X& x, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return whole(at)(x, at);
  }
  /// Inside a traced function: the layer with the weight that it computes with.
  constexpr Layer whole(Here at = Here::current()) const {
    const auto norms = tessera::detail::norm_of_others<Weight::rank - 1>(layer.weight, 2, at);
    Layer made = layer;
    made.weight = tessera::detail::settle(call<MulTag>(Source::from(at), layer.weight, length / norms));
    return made;
  }
};

/// The layer as a WeightNorm that computes the same: the lengths are the norms of its columns, sharded as they are in
/// the weight. Outside of a traced function.
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
