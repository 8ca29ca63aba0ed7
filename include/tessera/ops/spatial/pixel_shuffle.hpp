#ifndef TESSERA_OPS_SPATIAL_PIXEL_SHUFFLE_HPP
#define TESSERA_OPS_SPATIAL_PIXEL_SHUFFLE_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>

namespace tessera {

/// Features as pixels: [batch, height, width, features r r] to [batch, height r, width r, features], as
/// F.pixel_shuffle, whose channels come second. Errors: not_divisible where r r does not divide the features.
/// Communication: as rearrange.
template <TensorArgument X, SizeOperand R>
constexpr auto pixel_shuffle(const X& x, const R& r, Here at = Here::current()) {
  const detail::FunctionCall named("pixel_shuffle", x);
  return rearrange<"b h w (c i j) -> b (h i) (w j) c">(x, len<"i">(r), len<"j">(r), at);
}
/// The inverse of pixel_shuffle.
template <TensorArgument X, SizeOperand R>
constexpr auto pixel_unshuffle(const X& x, const R& r, Here at = Here::current()) {
  const detail::FunctionCall named("pixel_unshuffle", x);
  return rearrange<"b (h i) (w j) c -> b h w (c i j)">(x, len<"i">(r), len<"j">(r), at);
}
/// The features [batch, ..., groups n] as [batch, ..., n groups]: F.channel_shuffle of the last dim.
template <TensorArgument X, SizeOperand Groups>
constexpr auto channel_shuffle(const X& x, const Groups& groups, Here at = Here::current()) {
  const detail::FunctionCall named("channel_shuffle", x);
  static_assert(X::rank == 4, "tessera: channel_shuffle takes a tensor [batch, height, width, features]");
  return rearrange<"b h w (g n) -> b h w (n g)">(x, len<"g">(groups), at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
