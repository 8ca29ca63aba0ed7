#ifndef TESSERA_NN_DROPOUT_HPP
#define TESSERA_NN_DROPOUT_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstdint>

#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/ops/random/random.hpp>

namespace tessera::nn {

/// torch.nn.Dropout: in training `drop(x, key)`, which sets each element of x to 0 with probability `rate` and divides
/// the others by 1 - rate; in evaluation `drop(x)`, which is x. At a rate of 0 it is x in training as well, at 1 zeros
/// with gradients of zeros. One key gives the same elements in every call, so that a step gives each call a key of its
/// own (ts::split, ts::fold_in), or each layer a `Stream`. Errors: `option` for a rate outside of [0, 1]. No
/// communication.
///
///     struct Mlp {
///       ts::nn::Linear<> up, down;
///       ts::nn::Dropout<> drop{0.1};
///       constexpr auto operator()(const auto& x, const auto&... key) const {   // model(x, key), model(x)
///         return down(drop(ts::relu(up(x)), key...));
///       }
///     };
template <std::uint32_t Stream = 0> struct Dropout {
  Scalar rate = 0.5;

  static constexpr std::array field_names{"rate"};
  template <class X> constexpr X operator()(const X& x) const { return x; }
  template <class X, class Key> constexpr auto operator()(const X& x, const Key& key, Here at = Here::current()) const {
    return dropout<Stream>(x, rate, key, at);
  }
};

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
