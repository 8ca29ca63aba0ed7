#ifndef TESSERA_TENSOR_PRINT_VISUALIZE_HPP
#define TESSERA_TENSOR_PRINT_VISUALIZE_HPP
#include <tessera/base/push_macros.hpp>

#include <string>

#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/mesh/picture.hpp>
#include <tessera/mesh/svg.hpp>
#include <tessera/tensor/storage/storage_of.hpp>

namespace tessera {

/// Draws which devices hold which shard of a tensor, as jax.debug.visualize_array_sharding.
template <class T, int Rank>
std::string visualize_tensor_sharding(const ShardedTensor<T, Rank>& x, const PictureOptions& options = {}) {
  return visualize_sharding(sharding(x), mesh(x), options);
}

/// The same picture as an SVG document, with the indices of each shard.
template <class T, int Rank>
std::string tensor_sharding_svg(const ShardedTensor<T, Rank>& x, const PictureOptions& options = {}) {
  return sharding_svg(shape(x), sharding(x), mesh(x), options);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
