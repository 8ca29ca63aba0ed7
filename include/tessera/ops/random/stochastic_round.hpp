#ifndef TESSERA_OPS_RANDOM_STOCHASTIC_ROUND_HPP
#define TESSERA_OPS_RANDOM_STOCHASTIC_ROUND_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>

#include <tessera/ops/gradient_rows.hpp>
#include <tessera/ops/random/random_draws.hpp>

namespace tessera {

namespace build {

/// f32 values that bf16 has: of the two next to x, the nearer or the farther, with the probabilities that make their
/// mean x.
constexpr Value stochastically_rounded(Value x, Value key, std::uint32_t stream) {
  const auto on_grid = [](Value v) { return cast(cast(v, DType::bf16), DType::f32); };
  const Value nearest = on_grid(x), error = x - nearest;
  // A step of bf16 is |x| 2^-8 to |x| 2^-7: `reach` is more than half of it and less than one and a half.
  const Value reach = unary(Op::abs, nearest) * (0x1p-8 + 0x1p-15);
  const Value step = on_grid(nearest + unary(Op::sign, error) * reach) - nearest;
  const Value draw = uniform(x, key, stream);
  const Value farther = less(draw * unary(Op::abs, step), unary(Op::abs, error));
  // Where x is infinite the step is NaN, and not selected. The gradient is that of a cast.
  return select(farther, nearest + unary(ops::op_v<ops::StopGradientOp>, step), nearest);
}

}  // namespace build

namespace detail {

template <std::uint32_t Stream> struct StochasticRoundTag {
  template <class X, class Key> struct result : Typed<bf16, X::rank> {
    using Checks = decltype([] {
      static_assert(std::is_same_v<typename X::type, float>, "tessera: stochastic_round takes f32 tensors");
      static_assert(is_key_v<Key>,
                    "tessera: the key of random numbers is a number, a ts::Scalar or an integer tensor of rank 0");
    });
  };
  static constexpr Value emit(Value context, Value x, Value key) {
    return build::cast(build::stochastically_rounded(x.at(context.source), key, Stream), DType::bf16);
  }
};

}  // namespace detail

/// An f32 tensor as bf16: each element becomes one of the two bf16 numbers next to it, the nearer with the greater
/// probability, so that the result is x on average. Small updates of bf16 parameters are thus not lost, as they are
/// when rounded to nearest: 256 + 0.25 is 256 in seven of eight draws, and 258 in the eighth.
///
/// Numbers that bf16 has, infinities and NaN stay as they are; a number beyond the largest of bf16 is rounded to
/// nearest, as are denormal numbers. The gradient is that of a cast. Key, stream and communication: as for
/// uniform_like.
template <std::uint32_t Stream = 0, TensorArgument X, class Key = detail::NoKey>
constexpr auto stochastic_round(const X& x, const Key& key = {}, Here at = Here::current()) {
  return call<detail::StochasticRoundTag<Stream>>(Source::from(at), x, detail::drawn_from(key));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
