#ifndef TESSERA_TESTS_UNIT_PARALLEL_WRAPPED_MODELS_HPP
#define TESSERA_TESTS_UNIT_PARALLEL_WRAPPED_MODELS_HPP

#include <array>
#include <cstdint>

#include <tessera/nn/nn.hpp>
#include <tessera/parallel/fsdp.hpp>
#include <tessera/tensor/random.hpp>

// Models that tests of wrappers and of state dicts share.
namespace tessera_test {

struct Mlp {
  tessera::nn::Linear<> up, down;
  static constexpr std::array field_names{"up", "down"};
  constexpr auto operator()(const auto& x) const { return down(tessera::gelu(up(x))); }
};
/// Wrapped layers in a Stack, a matrix that is used twice, a tensor and a Scalar of the model's own.
struct Deep {
  tessera::Stack<tessera::Fsdp<Mlp>> blocks;
  tessera::nn::Linear<float, false> mix;
  tessera::ShardedTensor<float, 1> gain;
  tessera::Scalar half = 0.5;
  static constexpr std::array field_names{"blocks", "mix", "gain", "half"};
  constexpr auto operator()(const auto& x) const { return mix(blocks(mix(x)) * gain) * half; }
};

inline Mlp mlp(std::uint64_t seed) {
  const tessera::nn::ShardingStrategy one = tessera::nn::single(tessera::Mesh{});
  return {tessera::nn::linear(tessera::Key(seed), 6, 20, one), tessera::nn::linear(tessera::Key(seed + 1), 20, 6, one)};
}
/// With the values that `seed` gives.
inline Deep deep(std::uint64_t seed = 0) {
  const tessera::nn::ShardingStrategy one = tessera::nn::single(tessera::Mesh{});
  return {.blocks = tessera::Stack<tessera::Fsdp<Mlp>>(
              3, [&](int i) { return tessera::Fsdp<Mlp>{mlp(seed + 10 + 2 * static_cast<std::uint64_t>(i))}; }),
          .mix = tessera::nn::linear<float, false>(tessera::Key(seed + 3), 6, 6, one),
          .gain = tessera::normal<float>(tessera::Key(seed + 4), {6}, tessera::Mesh{})};
}

}  // namespace tessera_test

#endif
