#ifndef TESSERA_OPS_RANDOM_RANDOM_HPP
#define TESSERA_OPS_RANDOM_RANDOM_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>

#include <tessera/ops/constraint.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/random/keys.hpp>
#include <tessera/ops/random/random_draw.hpp>

namespace tessera {

struct Key;  // in tensor/key.hpp

namespace build {

/// A random node in the shape of `like`, in the type that its elements are computed in (f32 for bf16 and f16); see
/// RandomDraw. A key that is a tensor is an i64; any other type is that of a number.
constexpr Value random(Value like, Value key, RandomDraw draw) {
  if (key.dtype() != DType::i64 && !is_host_number(key))
    key.refuse(errc::unsupported,
               "[random] key: the key is a ts::Scalar that changes in a loop; carry a key as a tensor, "
               "which begins as ts::key_data(key)");
  const Value shape = shape_source(like);
  return like.make({.op = Op::random,
                    .dtype = computed_as(like.dtype()),
                    .rank = like.node().rank,
                    .singletons = like.node().singletons,
                    .labels = draw.pack(),
                    .value = static_cast<double>(draw.stream)},
                   {shape.id, key.dtype() == DType::i64 ? key.id : cast(key, DType::f64).id});
}
/// A random node that is split as `like` is, whose elements are not read.
constexpr Value random_alike(Value like, Value key, RandomDraw draw) {
  return alike(random(like, key, draw), shape_source(like));
}
/// Draws in the type of `like`. Uniform ones of bf16 and f16 stay below 1, to which an f32 next to it would be rounded.
constexpr Value drawn_as(Value draw, Value like, Distribution kind) {
  if (kind == Distribution::uniform && draw.dtype() != like.dtype())
    draw = binary(Op::minimum, draw, draw.number(like.dtype() == DType::bf16 ? 1 - 0x1p-8 : 1 - 0x1p-11));
  return cast(draw, like.dtype());
}
/// The key derived from a key and a constant, of the same kind: a number or a tensor.
constexpr Value folded_key(Value key, std::int64_t n) {
  const DType type = key.dtype() == DType::i64 ? DType::i64 : DType::f64;
  return apply<ops::FoldInOp>(cast(key, type), key.integer(n, type));
}

/// 1 / (1 - rate), but 0 at a rate of 1, where all elements are dropped: infinity would make the gradient NaN.
constexpr Value dropout_scale(Value rate) {
  if (rate.node().is_constant()) return rate.number(rate.node().value < 1 ? 1 / (1 - rate.node().value) : 0);
  const Value kept = 1.0 - rate, zero = rate.number(0);
  return select(binary(Op::greater, kept, zero), 1.0 / kept, zero);
}

}  // namespace build

namespace detail {

template <class A> inline constexpr bool draws_v = is_floating_v<typename A::type>;

/// With Follows the draws are split as `like` is, whose elements are not read.
template <Distribution Kind, std::uint32_t Stream, bool Follows> struct RandomTag {
  template <class Like, class Key> struct result : Like {
    using Checks = decltype([] {
      static_assert(draws_v<Like>, "tessera: random tensors are float, double, bf16 or f16");
      static_assert(is_key_v<Key>, "tessera: the key of random numbers must be a number, a ts::Scalar or an integer "
                                   "tensor of rank 0");
    });
  };
  static constexpr Value emit(Value context, Value like, Value key) {
    like = like.at(context.source);
    constexpr RandomDraw draw{Kind, Stream};
    return build::drawn_as(Follows ? build::random_alike(like, key, draw) : build::random(like, key, draw), like, Kind);
  }
};

/// first + second * u of a uniform u is from one bound to the other; of a normal u it has a mean and a deviation.
template <Distribution Kind, std::uint32_t Stream, bool Follows> struct ScaledRandomTag {
  template <class Like, class Key, class First, class Second> struct result : Like {
    using Checks = decltype([] {
      using Drawn = typename RandomTag<Kind, Stream, Follows>::template result<Like, Key>;
      (void)sizeof(typename Drawn::Checks);
      static_assert(is_number_v<typename First::type> && is_number_v<typename Second::type>,
                    "tessera: bounds, the mean and the standard deviation of random numbers are numbers, ts::Dims or "
                    "ts::Scalars");
    });
  };
  static constexpr Value emit(Value context, Value like, Value key, Value first, Value second) {
    like = like.at(context.source);
    constexpr RandomDraw draw{Kind, Stream};
    const Value drawn = Follows ? build::random_alike(like, key, draw) : build::random(like, key, draw);
    const Value from = build::cast(first, DType::f64), to = build::cast(second, DType::f64);
    const Value scale = Kind == Distribution::uniform ? to - from : to;
    return build::cast(build::cast(from, drawn.dtype()) + drawn * build::cast(scale, drawn.dtype()), like.dtype());
  }
};

template <class Like> inline constexpr bool has_sharding_v = !LocalOperand<Like> && Like::rank != 0;

/// The type of a key that a call leaves out, which drawn_from reports.
struct NoKey {};

/// A key as an operand: of a tensor an i64, of a Dim or a ts::Key a Scalar. Reports a key of the wrong type and
/// replaces it, so that no further errors follow.
template <class K> constexpr decltype(auto) drawn_from(const K& key) {
  constexpr bool is_operand = Operand<K>, is_key = std::is_same_v<K, Key>, is_given = !std::is_same_v<K, NoKey>;
  static_assert(is_given,
                "tessera: random numbers need a key, such as the last argument of ts::dropout(x, rate, key): a "
                "ts::Key that is an argument of the traced function, or a number; with ts::fold_in(key, n) "
                "each call has a key of its own");
  static_assert(is_operand || is_key || !is_given,
                "tessera: the key of random numbers is a ts::Key, a number or a ts::Scalar, such "
                "as the number of the training step, or an integer tensor of rank 0");
  static_assert(!LocalOperand<K>, "tessera: inside a ts::shard_map the key of random numbers is a number or a "
                                  "ts::Scalar; each device draws numbers of its own");
  if constexpr (LocalOperand<K>)
    return 0;
  else if constexpr (is_key)
    return Scalar(static_cast<std::int64_t>(key.seed));
  else if constexpr (TensorOperand<K>)
    return cast<std::int64_t>(key);
  else if constexpr (std::is_same_v<K, Dim>)
    return key.traced() ? Scalar(build::cast(here(key.placeholder()), DType::f64)) : Scalar(key.value());
  else if constexpr (is_operand)
    return (key);
  else
    return 0;
}

template <std::uint32_t Stream> struct DropoutTag {
  template <class X, class Rate, class Key> struct result : X {
    using Checks = decltype([] {
      static_assert(draws_v<X>, "tessera: dropout takes float, double, bf16 and f16 tensors");
      static_assert(is_number_v<typename Rate::type>, "tessera: the rate of dropout must be a number or a ts::Scalar");
      static_assert(is_key_v<Key>, "tessera: the key of dropout must be a number, a ts::Scalar or an integer tensor of "
                                   "rank 0");
    });
  };
  static constexpr Value emit(Value context, Value x, Value rate, Value key) {
    x = x.at(context.source);
    rate = build::checked_cast(rate.at(context.source), DType::f64, NumberRule::rate);
    const Value draw = build::random(x, key, {Distribution::uniform, Stream});
    const Value scale = build::cast(build::dropout_scale(rate), x.dtype());
    const Value kept = build::greater_equal(draw, build::cast(rate, draw.dtype()));
    const Value scaled = x * scale;
    return build::select(kept, scaled, x.number(0));
  }
};

}  // namespace detail

/// Random values of the shape and element type of `like` (float, double, bf16, f16): uniform in [0, 1), or standard
/// normal. They are split over the mesh as `like` is. A value depends only on the key, on `Stream` and on the element's
/// global index: it is equal on every mesh and in every equal call. Calls with one key that should give different
/// values need different streams. The key is a ts::Key, a number or a ts::Scalar, of which each layer of a ts::Stack
/// and each step of a loop draws its own values, or an integer tensor of rank 0, such as ts::fold_in(key, i) of the
/// index of a loop, which gives the values of that key anywhere. No communication. Source: Philox4x32-10, Salmon et
/// al., SC 2011.
template <std::uint32_t Stream = 0, TensorArgument Like, class Key = detail::NoKey>
constexpr auto uniform_like(const Like& like, const Key& key = {}, Here at = Here::current()) {
  return call<detail::RandomTag<Distribution::uniform, Stream, detail::has_sharding_v<Like>>>(Source::from(at), like,
                                                                                              detail::drawn_from(key));
}
template <std::uint32_t Stream = 0, TensorArgument Like, class Key = detail::NoKey>
constexpr auto normal_like(const Like& like, const Key& key = {}, Here at = Here::current()) {
  return call<detail::RandomTag<Distribution::normal, Stream, detail::has_sharding_v<Like>>>(Source::from(at), like,
                                                                                             detail::drawn_from(key));
}

/// As above, uniform in [low, high) (jax.random.uniform with minval and maxval, Tensor.uniform_), or normal with a mean
/// and a standard deviation (Tensor.normal_): `uniform_like(x, key, -0.1, 0.1)`. Rounding can give `high` itself.
template <std::uint32_t Stream = 0, TensorArgument Like, class Key, NumberOperand Low, NumberOperand High>
constexpr auto uniform_like(const Like& like, const Key& key, const Low& low, const High& high,
                            Here at = Here::current()) {
  return call<detail::ScaledRandomTag<Distribution::uniform, Stream, detail::has_sharding_v<Like>>>(
      Source::from(at), like, detail::drawn_from(key), low, high);
}
template <std::uint32_t Stream = 0, TensorArgument Like, class Key, NumberOperand Mean, NumberOperand Deviation>
constexpr auto normal_like(const Like& like, const Key& key, const Mean& mean, const Deviation& deviation,
                           Here at = Here::current()) {
  return call<detail::ScaledRandomTag<Distribution::normal, Stream, detail::has_sharding_v<Like>>>(
      Source::from(at), like, detail::drawn_from(key), mean, deviation);
}

/// Each element of x is 0 with probability `rate`, and x / (1 - rate) otherwise; all are 0 at a rate of 1. Two dropouts
/// with one key need two streams. Errors: option for a rate outside of [0, 1]. No communication.
template <std::uint32_t Stream = 0, TensorArgument X, NumberOperand Rate, class Key = detail::NoKey>
constexpr auto dropout(const X& x, const Rate& rate, const Key& key = {}, Here at = Here::current()) {
  return call<detail::DropoutTag<Stream>>(Source::from(at), x, rate, detail::drawn_from(key));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
