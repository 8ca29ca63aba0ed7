#ifndef TESSERA_NN_ACTIVATION_HPP
#define TESSERA_NN_ACTIVATION_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/elementwise.hpp>

// Activations, which are template arguments of Mlp, FeedForward, EncoderLayer and DecoderLayer. Any type without
// members whose call operator takes and returns a tensor is an activation:
//
//     struct SquaredRelu {
//       constexpr auto operator()(const auto& x) const { return ts::square(ts::relu(x)); }
//     };
//     ts::nn::Mlp<float, true, SquaredRelu> mlp;

namespace tessera::nn {

/// ts::relu: torch.nn.ReLU.
struct Relu {
  constexpr auto operator()(const auto& x) const { return relu(x); }
};
/// ts::gelu, the tanh approximation: torch.nn.GELU(approximate="tanh"), the activation of GPT-2.
struct Gelu {
  constexpr auto operator()(const auto& x) const { return gelu(x); }
};
/// x ndtr(x): torch.nn.GELU(), activation="gelu" of torch.nn.TransformerEncoderLayer, and the activation of BERT. It
/// differs from Gelu by at most 5e-4, and is slower. Source: Hendrycks and Gimpel, 1606.08415.
struct ExactGelu {
  constexpr auto operator()(const auto& x) const { return x * ndtr(x); }
};
/// ts::silu: torch.nn.SiLU.
struct Silu {
  constexpr auto operator()(const auto& x) const { return silu(x); }
};

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
