#ifndef TESSERA_OPS_RANDOM_RANDOM_DRAWS_HPP
#define TESSERA_OPS_RANDOM_RANDOM_DRAWS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/elementwise/special.hpp>
#include <tessera/ops/indexing/one_hot.hpp>
#include <tessera/ops/random/random.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/ops/sorting/sort.hpp>

// Draws that are computed from uniform ones. As those, they depend only on the key, the stream and the global index.

namespace tessera {

namespace build {
constexpr Value uniform(Value like, Value key, std::uint32_t stream) {
  return random(like, key, {Distribution::uniform, stream});
}
/// The same, split as `like` is. Draws that are computed with the elements of `like` are so anyway.
constexpr Value uniform_alike(Value like, Value key, std::uint32_t stream, bool follows) {
  return follows ? random_alike(like, key, {Distribution::uniform, stream}) : uniform(like, key, stream);
}
}  // namespace build

namespace detail {

template <class X, class Key> struct CheckDraw {
  static_assert(draws_v<X>, "tessera: random numbers are drawn for float, double, bf16 and f16 tensors");
  static_assert(is_key_v<Key>,
                "tessera: the key of random numbers is a number, a ts::Scalar or an integer tensor of rank 0");
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

template <std::uint32_t Stream, bool Follows> struct ExponentialTag {
  template <class Like, class Key> struct result : Like {
    using Checks = CheckDraw<Like, Key>;
    static constexpr std::size_t checked = sizeof(Checks);
  };
  static constexpr Value emit(Value context, Value like, Value key) {
    const Value draw = build::uniform_alike(like.at(context.source), key, Stream, Follows);
    return build::cast(-build::apply<ops::Log1pOp>(-draw), like.dtype());
  }
};

template <class T, std::uint32_t Stream, bool Follows> struct RandintTag {
  static_assert(std::is_integral_v<T> && !std::is_same_v<T, bool>, "tessera: randint_like draws integers");
  template <class Like, class Low, class High, class Key> struct result : Typed<T, Like::rank> {
    using Checks = decltype([] {
      static_assert(is_key_v<Key>,
                    "tessera: the key of random numbers is a number, a ts::Scalar or an integer tensor of rank 0");
    });
  };
  static constexpr Value emit(Value context, Value like, Value low, Value high, Value key) {
    const Value shape = build::cast(like.at(context.source), DType::f64);
    const Value draw = build::uniform_alike(shape, key, Stream, Follows);
    low = build::cast(low.at(context.source), DType::i64);
    const Value count = build::cast(high.at(context.source), DType::i64) - low;
    const Value offset = build::cast(draw * build::cast(count, DType::f64), DType::i64);
    const Value below = build::minimum(offset, count - count.number(1));  // the product may round up
    return build::cast(build::maximum(below, below.number(0)) + low, dtype_v<T>);
  }
};

/// Draws of a distribution by its inverse, from uniform ones. Each D has `draw`, and takes parameters as operands.
template <class D, std::uint32_t Stream, bool Follows> struct InverseTag {
  template <class Like, class Key, class...> struct result : Like {
    using Checks = CheckDraw<Like, Key>;
    static constexpr std::size_t checked = sizeof(Checks);
  };
  static constexpr Value emit(Value context, Value like, Value key, std::same_as<Value> auto... parameters) {
    const Value uniform = build::uniform_alike(like.at(context.source), key, Stream, Follows);
    return build::cast(D::draw(uniform, build::cast(parameters, uniform.dtype())...), like.dtype());
  }
};
/// A draw that is never 0, where the inverse would be infinite: f32 draws are multiples of 2^-24.
constexpr Value above_zero_draw(Value uniform) {
  return build::maximum(uniform, uniform.number(uniform.dtype() == DType::f64 ? 0x1p-54 : 0x1p-25));
}
struct Gumbel {
  static constexpr Value draw(Value uniform) { return -build::log(-build::log(above_zero_draw(uniform))); }
};
struct Laplace {
  static constexpr Value draw(Value uniform) {
    const Value centred = above_zero_draw(uniform) * 2.0 - 1.0;
    return -(build::sign(centred) * build::apply<ops::Log1pOp>(-build::abs(centred)));
  }
};
struct Cauchy {
  static constexpr Value draw(Value uniform) {
    return build::apply<ops::TanOp>((above_zero_draw(uniform) - 0.5) * ops::pi);
  }
};
struct Logistic {
  static constexpr Value draw(Value uniform) {
    const Value above = above_zero_draw(uniform);
    return build::log(above) - build::apply<ops::Log1pOp>(-above);
  }
};
struct Rademacher {
  static constexpr Value draw(Value uniform) {
    return build::select(build::less(uniform, uniform.number(0.5)), uniform.number(-1), uniform.number(1));
  }
};
struct TruncatedNormal {
  static constexpr Value draw(Value uniform, Value lower, Value upper) {
    const double root = 1.41421356237309504880;
    const Value from = build::apply<ops::ErfOp>(lower * (1 / root)), to = build::apply<ops::ErfOp>(upper * (1 / root));
    const Value normal = build::apply<ops::ErfinvOp>(from + (to - from) * uniform) * root;
    return build::minimum(build::maximum(normal, lower), upper);
  }
};

/// The logarithms of weights, repeated along a new dim of samples in front of the last if there are several.
template <int Rank, bool Repeated> struct LogWeightsTag {
  template <class P, class Count> struct result {
    using type = element_t<computed_as(dtype_v<typename P::type>)>;
    static constexpr int rank = Repeated ? Rank + 1 : Rank;
    using Checks = decltype([] {
      static_assert(is_floating_v<typename P::type>, "tessera: the weights of multinomial are a floating tensor");
    });
  };
  static constexpr Value emit(Value context, Value weights, Value count) {
    weights = weights.at(context.source);
    const Value logs = build::log(build::cast(weights, computed_as(weights.dtype())));
    if (!Repeated) return logs;
    const int rank = logs.rank() + 1;
    const Value samples = build::arange(as_size(count).at(logs.source));
    const Value zeros = build::cast(build::insert_singletons(samples, 0b10u, 2) * 0.0, logs.dtype());
    return build::insert_singletons(logs, 1u << (rank - 2), rank) + zeros;
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
    const Value gumbel = Gumbel::draw(draw);
    return build::cast(logits, gumbel.dtype()) + gumbel;
  }
};

template <int Rank, int D, std::uint32_t Stream> struct PermutationTag {
  template <class X, class Key> using result = Typed<std::int32_t, 1>;
  static constexpr Value emit(Value context, Value x, Value key) {
    x = x.at(context.source);
    const Value size = build::extent(x, x.shifted(D, Rank));
    const Value shape = build::arange(size);
    return build::argsort(build::uniform(build::cast(shape, DType::f64), key, Stream), 0, Order::ascending, DType::i32);
  }
};

}  // namespace detail

/// Bools that are true with the given probabilities (torch.bernoulli, jax.random.bernoulli). Key, stream and
/// communication of all draws of this header: as for uniform_like.
template <std::uint32_t Stream = 0, TensorArgument P, class Key = detail::NoKey>
constexpr auto bernoulli(const P& probabilities, const Key& key = {}, Here at = Here::current()) {
  return call<detail::BernoulliTag<Stream>>(Source::from(at), probabilities, detail::drawn_from(key));
}

/// Integers of type T, uniform in [low, high), in the shape of `like`; `low` where the range is empty, as in JAX.
/// Ranges have at most 2^53 values.
///
///     const auto die = ts::randint_like<std::int32_t>(x, 1, 7, key);
template <Element T, std::uint32_t Stream = 0, TensorArgument Like, NumberOperand Low, NumberOperand High,
          class Key = detail::NoKey>
constexpr auto randint_like(const Like& like, const Low& low, const High& high, const Key& key = {},
                            Here at = Here::current()) {
  return call<detail::RandintTag<T, Stream, detail::has_sharding_v<Like>>>(Source::from(at), like, low, high,
                                                                           detail::drawn_from(key));
}

/// Exponential draws of rate 1, in [0, 17) for f32: -log(1 - u). Divide by another rate.
template <std::uint32_t Stream = 0, TensorArgument Like, class Key = detail::NoKey>
constexpr auto exponential_like(const Like& like, const Key& key = {}, Here at = Here::current()) {
  return call<detail::ExponentialTag<Stream, detail::has_sharding_v<Like>>>(Source::from(at), like,
                                                                            detail::drawn_from(key));
}

/// Draws of the standard Gumbel distribution, -log(-log(u)); of the standard Laplace distribution, of variance 2; of
/// the standard Cauchy distribution, tan(pi (u - 1/2)). Multiply by a scale, and add a location.
template <std::uint32_t Stream = 0, TensorArgument Like, class Key = detail::NoKey>
constexpr auto gumbel_like(const Like& like, const Key& key = {}, Here at = Here::current()) {
  return call<detail::InverseTag<detail::Gumbel, Stream, detail::has_sharding_v<Like>>>(Source::from(at), like,
                                                                                        detail::drawn_from(key));
}
template <std::uint32_t Stream = 0, TensorArgument Like, class Key = detail::NoKey>
constexpr auto laplace_like(const Like& like, const Key& key = {}, Here at = Here::current()) {
  return call<detail::InverseTag<detail::Laplace, Stream, detail::has_sharding_v<Like>>>(Source::from(at), like,
                                                                                         detail::drawn_from(key));
}
template <std::uint32_t Stream = 0, TensorArgument Like, class Key = detail::NoKey>
constexpr auto cauchy_like(const Like& like, const Key& key = {}, Here at = Here::current()) {
  return call<detail::InverseTag<detail::Cauchy, Stream, detail::has_sharding_v<Like>>>(Source::from(at), like,
                                                                                        detail::drawn_from(key));
}
/// Draws of the standard logistic distribution, log(u / (1 - u)), of variance pi^2 / 3 (jax.random.logistic).
template <std::uint32_t Stream = 0, TensorArgument Like, class Key = detail::NoKey>
constexpr auto logistic_like(const Like& like, const Key& key = {}, Here at = Here::current()) {
  return call<detail::InverseTag<detail::Logistic, Stream, detail::has_sharding_v<Like>>>(Source::from(at), like,
                                                                                          detail::drawn_from(key));
}
/// -1 or 1, with a probability of one half each, in the element type of `like` (jax.random.rademacher).
template <std::uint32_t Stream = 0, TensorArgument Like, class Key = detail::NoKey>
constexpr auto rademacher_like(const Like& like, const Key& key = {}, Here at = Here::current()) {
  return call<detail::InverseTag<detail::Rademacher, Stream, detail::has_sharding_v<Like>>>(Source::from(at), like,
                                                                                            detail::drawn_from(key));
}
/// Standard normal draws within [lower, upper] only, by the inverse of erf of a uniform draw between erf(lower /
/// sqrt(2)) and erf(upper / sqrt(2)), as jax.random.truncated_normal. In f32 the bounds should not both be beyond 5 on
/// one side, where erf is 1.
template <std::uint32_t Stream = 0, TensorArgument Like, NumberOperand Lower, NumberOperand Upper,
          class Key = detail::NoKey>
constexpr auto truncated_normal_like(const Like& like, const Lower& lower, const Upper& upper, const Key& key = {},
                                     Here at = Here::current()) {
  return call<detail::InverseTag<detail::TruncatedNormal, Stream, detail::has_sharding_v<Like>>>(
      Source::from(at), like, detail::drawn_from(key), lower, upper);
}

/// Whether multinomial may draw an index several times.
enum class Replacement : std::uint8_t { no, yes };
/// `count` indices along the last dim, drawn with probabilities proportional to weights of at least 0: [..., n] gives
/// [..., count] i32. Without replacement, as is the default of PyTorch, the indices differ and are in the order of the
/// draws; there have to be `count` weights above 0, otherwise indices of weight 0 follow. No gradient. Errors:
/// shape_mismatch for a count above n without replacement. Communication: as topk; with replacement as argmax.
///
///     const auto some = ts::multinomial<ts::Replacement::yes>(weights, 16, key);
template <Replacement R = Replacement::no, std::uint32_t Stream = 0, TensorArgument P, SizeOperand Count,
          class Key = detail::NoKey>
constexpr auto multinomial(const P& weights, const Count& count, const Key& key = {}, Here at = Here::current()) {
  const detail::FunctionCall named("multinomial", weights);
  const auto noisy = call<detail::PerturbedTag<Stream>>(
      Source::from(at),
      call<detail::LogWeightsTag<P::rank, R == Replacement::yes>>(Source::from(at), weights, Dim(count)),
      detail::drawn_from(key));
  if constexpr (R == Replacement::yes)
    return argmax<-1>(noisy, at);
  else
    return topk<-1>(noisy, count, at).indices;
}

/// Indices along dim D, drawn with the probabilities softmax<D>(logits): the argmax of logits plus Gumbel noise
/// (jax.random.categorical). The result lacks dim D; a logit of -infinity is never drawn. No gradient. Communication:
/// as argmax.
template <int D = -1, std::uint32_t Stream = 0, TensorArgument Logits, class Key = detail::NoKey>
constexpr auto categorical(const Logits& logits, const Key& key = {}, Here at = Here::current()) {
  const detail::FunctionCall named("categorical", logits);
  return argmax<D>(call<detail::PerturbedTag<Stream>>(Source::from(at), logits, detail::drawn_from(key)), at);
}

/// x with the indices of dim D in random order, the same for all other dims (jax.random.permutation). Its gradient goes
/// back to where each element came from. Communication: as index_select.
template <int D, std::uint32_t Stream = 0, TensorArgument X, class Key = detail::NoKey>
constexpr auto permutation(const X& x, const Key& key = {}, Here at = Here::current()) {
  const detail::FunctionCall named("permutation", x);
  constexpr int dim = detail::checked_dim<D, X::rank>();
  return index_select<D>(
      x, call<detail::PermutationTag<X::rank, dim, Stream>>(Source::from(at), x, detail::drawn_from(key)), at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
