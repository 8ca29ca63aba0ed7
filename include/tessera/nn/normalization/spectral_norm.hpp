#ifndef TESSERA_NN_NORMALIZATION_SPECTRAL_NORM_HPP
#define TESSERA_NN_NORMALIZATION_SPECTRAL_NORM_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include <tessera/base/dtype.hpp>
#include <tessera/base/here.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/graph/trace/settle.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/distances.hpp>
#include <tessera/ops/stop_gradient.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/random.hpp>
#include <tessera/tensor/reshard.hpp>

namespace tessera::nn {

/// The current singular vectors of a power iteration. They are not parameters, but a state that a training step takes
/// and returns, as RunningStatistics.
template <Element T = float> struct SingularVectors {
  ShardedTensor<T, 1> left;   ///< [out]
  ShardedTensor<T, 1> right;  ///< the product of all other dims of the weight

  static constexpr std::array field_names{"left", "right"};
};

/// A layer whose field `weight` [..., out] is divided by its largest singular value, as
/// torch.nn.utils.parametrizations.spectral_norm of a Linear or a convolution. The weight counts as a matrix of its
/// last dim and all other dims.
///
///     ts::nn::SpectralNorm<ts::nn::Linear<>> up{ts::nn::linear(key, 16, 64, strategy)};
///     auto vectors = ts::nn::singular_vectors(key, up.layer);      // outside of a traced function
///     const auto [y, next] = up.train(x, vectors);                 // one power iteration, from `vectors`
///     const auto y = up(x, vectors);                               // evaluation: no iteration
/// The next vectors have no gradient; the gradient of the singular value with respect to the weight is their outer
/// product. For f32 and f64 weights, in a traced function. Communication: that of the layer; if the weight is split,
/// also all_reduces of the two vectors. Source: Miyato et al., 1802.05957.
template <class Layer> struct SpectralNorm {
  using T = typename decltype(Layer::weight)::element;

  Layer layer;

  static constexpr std::array field_names{"layer"};
  template <class X>
  constexpr auto operator()(const X& x, const SingularVectors<T>& vectors, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return whole(vectors)(x, at);
  }
  template <class X>
  constexpr auto train(const X& x, const SingularVectors<T>& vectors, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    const SingularVectors<T> next = iterated(vectors);
    return std::tuple(whole(next)(x, at), next);
  }

  /// Inside a traced function: the vectors after one more power iteration.
  constexpr SingularVectors<T> iterated(const SingularVectors<T>& vectors) const {
    const auto w = stop_gradient(matrix());
    const auto left = tessera::detail::settle(normalize(matmul(vectors.right, w)));
    return {left, tessera::detail::settle(normalize(matmul(w, left)))};
  }
  /// In a traced function: the layer with the divided weight.
  constexpr Layer whole(const SingularVectors<T>& vectors) const {
    const auto left = stop_gradient(vectors.left), right = stop_gradient(vectors.right);
    Layer made = layer;
    made.weight = tessera::detail::settle(layer.weight / sum(matmul(right, matrix()) * left));
    return made;
  }

 private:
  constexpr auto matrix() const {
    constexpr int rank = decltype(Layer::weight)::rank;
    if constexpr (rank == 2)
      return tessera::detail::as_sym(layer.weight);
    else
      return tessera::detail::as_sym(merge_dims<0, rank - 2>(layer.weight));
  }
};

/// Initial vectors: normal vectors of length 1 after `iterations` power iterations for this weight, replicated. Call it
/// outside of a traced function.
template <class Layer>
auto singular_vectors(Key key, const Layer& layer, int iterations = 15, Here at = Here::current()) {
  using T = typename decltype(Layer::weight)::element;
  const Shape extents = shape(layer.weight);
  std::int64_t others = 1;
  for (std::size_t d = 0; d + 1 < extents.size(); ++d) others *= extents[d];
  const auto [of_left, of_right] = split<2>(key);
  const Mesh& on = mesh(layer.weight);
  SingularVectors<T> vectors{normal<T>(of_left, {extents[extents.size() - 1]}, on, PartitionSpec(), 0, 1, at),
                             normal<T>(of_right, {others}, on, PartitionSpec(), 0, 1, at)};
  const auto matrix = [&] {
    if constexpr (decltype(Layer::weight)::rank == 2)
      return layer.weight;
    else
      return eval(merge_dims<0, decltype(Layer::weight)::rank - 2>(layer.weight, at));
  }();
  for (int i = 0; i < iterations; ++i) {
    vectors.left = full_tensor(eval(normalize(matmul(vectors.right, matrix, at))), at);
    vectors.right = full_tensor(eval(normalize(matmul(matrix, vectors.left, at))), at);
  }
  return vectors;
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
