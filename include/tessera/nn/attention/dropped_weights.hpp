#ifndef TESSERA_NN_ATTENTION_DROPPED_WEIGHTS_HPP
#define TESSERA_NN_ATTENTION_DROPPED_WEIGHTS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/graph/trace/settle.hpp>
#include <tessera/nn/dropout.hpp>
#include <tessera/ops/attention/attention.hpp>

// Dropout of the weights of attention in layers.

namespace tessera::nn::detail {

/// The dropout of a layer as an argument of ts::attention.
template <class Rate, class Key, std::uint32_t Stream>
constexpr auto of_weights(const LayerDropout<Rate, Key, Stream>& drop) {
  return attention_dropout<Stream>(drop.weights_rate, drop.key);
}

/// kept(), which is attention as in evaluation, where no weight can be dropped, and otherwise dropped().
constexpr auto kept_or_dropped(const auto& drop, const auto& kept, const auto& dropped) {
  if (drop.keeps_weights()) return tessera::detail::settle(kept());
  return tessera::detail::settle(dropped());
}

}  // namespace tessera::nn::detail

#include <tessera/base/pop_macros.hpp>

#endif
