#ifndef TESSERA_NN_ACTIVATION_HPP
#define TESSERA_NN_ACTIVATION_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/elementwise.hpp>

// Activations as template arguments of Mlp, FeedForward, EncoderLayer and DecoderLayer. Any type without members whose
// call operator takes and returns a tensor will do:
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
/// x ndtr(x): torch.nn.GELU(), and what activation="gelu" is in torch.nn.TransformerEncoderLayer; the activation of
/// BERT. At most 5e-4 from Gelu, and slower. Source: Hendrycks and Gimpel, 1606.08415.
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
