#ifndef TESSERA_OPS_RANDOM_DRAWS_HPP
#define TESSERA_OPS_RANDOM_DRAWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/indexing/one_hot.hpp>
#include <tessera/ops/random.hpp>
#include <tessera/ops/reduction/reduction.hpp>

// Draws that are computed from uniform ones. As those, they depend on the key, the stream and the global index alone.

namespace tessera {

namespace build {
constexpr Value uniform(Value like, Value key, std::uint32_t stream) {
  return random(like, key, {Distribution::uniform, stream});
}
}  // namespace build

namespace detail {

template <class X, class Key> struct CheckDraw {
  static_assert(draws_v<X>, "tessera: random numbers are drawn for float, double and bf16 tensors");
  static_assert(is_number_v<typename Key::type>, "tessera: the key of random numbers is a number or a ts::Scalar");
};

template <std::uint32_t Stream> struct BernoulliTag {
  template <class P, class Key> struct result : Typed<bool, P::rank> {
    using Checks = CheckDraw<P, Key>;
    static constexpr std::size_t checked = sizeof(Checks);
  };
  static constexpr Value emit(Value context, Value p, Value key) {
    p = p.at(context.source);
    return build::less(build::uniform(p, key, Stream), build::cast(p, computed_as(p.dtype())));
  }
};

template <std::uint32_t Stream> struct ExponentialTag {
  template <class Like, class Key> struct result : Like {
    using Checks = CheckDraw<Like, Key>;
    static constexpr std::size_t checked = sizeof(Checks);
  };
  static constexpr Value emit(Value context, Value like, Value key) {
    const Value draw = build::uniform(like.at(context.source), key, Stream);
    return build::cast(-build::apply<ops::Log1pOp>(-draw), like.dtype());
  }
};

template <class T, std::uint32_t Stream> struct RandintTag {
  static_assert(std::is_integral_v<T> && !std::is_same_v<T, bool>, "tessera: randint_like draws integers");
  template <class Like, class Low, class High, class Key> struct result : Typed<T, Like::rank> {
    using Checks = decltype([] {
      static_assert(is_number_v<typename Key::type>, "tessera: the key of random numbers is a number or a ts::Scalar");
    });
  };
  static constexpr Value emit(Value context, Value like, Value low, Value high, Value key) {
    const Value shape = build::cast(like.at(context.source), DType::f64), draw = build::uniform(shape, key, Stream);
    low = build::cast(low.at(context.source), DType::i64);
    const Value count = build::cast(high.at(context.source), DType::i64) - low;
    const Value offset = build::cast(draw * build::cast(count, DType::f64), DType::i64);
    const Value below = build::binary(Op::minimum, offset, count - count.number(1));  // the product may round up
    return build::cast(build::binary(Op::maximum, below, below.number(0)) + low, dtype_v<T>);
  }
};

/// Logits plus Gumbel noise: the index of the largest sum is distributed as softmax(logits).
template <std::uint32_t Stream> struct PerturbedTag {
  template <class Logits, class Key> struct result {
    using type = element_t<computed_as(dtype_v<typename Logits::type>)>;
    static constexpr int rank = Logits::rank;
    using Checks = CheckDraw<Logits, Key>;
    static constexpr std::size_t checked = sizeof(Checks);
  };
  static constexpr Value emit(Value context, Value logits, Value key) {
    logits = logits.at(context.source);
    const Value draw = build::uniform(logits, key, Stream);
    const Value gumbel = -build::unary(Op::log, -build::unary(Op::log, draw));
    return build::cast(logits, gumbel.dtype()) + gumbel;
  }
};

template <int Rank, int D, std::uint32_t Stream> struct PermutationTag {
  template <class X, class Key> using result = Typed<std::int32_t, 1>;
  static constexpr Value emit(Value context, Value x, Value key) {
    x = x.at(context.source);
    const Value size = build::extent(x, x.shifted(D, Rank));
    const Value shape = x.make({.op = Op::arange, .dtype = DType::i32, .rank = 1}, {size.id});
    return build::argsort(build::uniform(build::cast(shape, DType::f64), key, Stream), 0, Order::ascending, DType::i32);
  }
};

}  // namespace detail

/// Bools that are true with the given probabilities (torch.bernoulli, jax.random.bernoulli). Key, stream and
/// communication of all draws of this header: as of uniform_like.
template <std::uint32_t Stream = 0, TensorOperand P, class Key>
constexpr auto bernoulli(const P& probabilities, const Key& key, Here at = Here::current()) {
  return call<detail::BernoulliTag<Stream>>(Source::from(at), probabilities, detail::drawn_from(key));
}

/// Integers of type T, uniform in [low, high), in the shape of `like`; `low` where the range is empty, as in JAX.
/// Ranges have at most 2^53 values.
///
///     const auto die = ts::randint_like<std::int32_t>(x, 1, 7, key);
template <Element T, std::uint32_t Stream = 0, TensorOperand Like, NumberOperand Low, NumberOperand High, class Key>
constexpr auto randint_like(const Like& like, const Low& low, const High& high, const Key& key,
                            Here at = Here::current()) {
  return call<detail::RandintTag<T, Stream>>(Source::from(at), like, low, high, detail::drawn_from(key));
}

/// Exponential draws of rate 1, in [0, 17) for f32: -log(1 - u). Divide by another rate.
template <std::uint32_t Stream = 0, TensorOperand Like, class Key>
constexpr auto exponential_like(const Like& like, const Key& key, Here at = Here::current()) {
  return call<detail::ExponentialTag<Stream>>(Source::from(at), like, detail::drawn_from(key));
}

/// Indices along dim D, drawn with the probabilities softmax<D>(logits): the argmax of logits plus Gumbel noise
/// (jax.random.categorical). The result lacks dim D; a logit of -infinity is never drawn. No gradient. Communication:
/// as argmax.
template <int D = -1, std::uint32_t Stream = 0, TensorOperand Logits, class Key>
constexpr auto categorical(const Logits& logits, const Key& key, Here at = Here::current()) {
  return argmax<D>(call<detail::PerturbedTag<Stream>>(Source::from(at), logits, detail::drawn_from(key)), at);
}

/// x with the indices of dim D in random order, the same for all other dims (jax.random.permutation). Its gradient goes
/// back to where each element came from. Communication: as index_select.
template <int D, std::uint32_t Stream = 0, TensorOperand X, class Key>
constexpr auto permutation(const X& x, const Key& key, Here at = Here::current()) {
  constexpr int dim = detail::checked_dim<D, X::rank>();
  return index_select<D>(
      x, call<detail::PermutationTag<X::rank, dim, Stream>>(Source::from(at), x, detail::drawn_from(key)), at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
