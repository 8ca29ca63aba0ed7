#ifndef TESSERA_OPS_RANDOM_FEATURE_DROPOUT_HPP
#define TESSERA_OPS_RANDOM_FEATURE_DROPOUT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/random/random.hpp>
#include <tessera/ops/random/random_draw.hpp>

// Dropout of whole features, and dropout that keeps mean and variance.

namespace tessera {

namespace detail {

/// Dropout of one element for each example and feature of [batch, spatial..., features].
template <int Rank, std::uint32_t Stream> struct FeatureDropoutTag {
  static constexpr const char* function = Rank == 3 ? "dropout1d" : Rank == 4 ? "dropout2d" : "dropout3d";
  template <class X, class Rate, class Key> struct result : DropoutTag<Stream>::template result<X, Rate, Key> {
    using Ranks = decltype([] {
      static_assert(X::rank == Rank, "tessera: dropout1d, dropout2d and dropout3d take [batch, spatial..., features]");
    });
  };
  static constexpr Value emit(Value context, Value x, Value rate, Value key) {
    x = x.at(context.source);
    // Of the numbers of examples and of features the shape of the draws is made; no element of x is read for them.
    const auto line = [&](int dim) {
      const int own = x.shifted(dim, Rank);
      const Value counting = build::arange(build::extent(x, own));
      return build::insert_singletons(counting, ((1u << x.rank()) - 1) & ~(1u << own), x.rank());
    };
    Value like = line(0) + line(Rank - 1);
    for (int d = 0; d < x.leading(Rank); ++d) {
      const Value counting = build::arange(build::extent(x, d));
      like = like + build::insert_singletons(counting, ((1u << x.rank()) - 1) & ~(1u << d), x.rank());
    }
    const Value kept =
        DropoutTag<Stream>::emit(context, build::cast(like * like.number(0) + like.number(1), x.dtype()), rate, key);
    return x * kept;
  }
};

/// The dropout of Klambauer et al., 2017: dropped elements become the lowest value of selu, and a linear function of
/// the result has mean 0 and variance 1 if x has.
template <std::uint32_t Stream> struct AlphaDropoutTag {
  template <class X, class Rate, class Key> using result = typename DropoutTag<Stream>::template result<X, Rate, Key>;
  static constexpr Value emit(Value context, Value x, Value rate, Value key) {
    x = x.at(context.source);
    rate = build::checked_cast(rate.at(context.source), DType::f64, NumberRule::rate);
    constexpr double lowest = -1.7580993408473768599;  // -scale alpha of selu
    const Value keep = 1.0 - rate, one = rate.number(1);
    // At a rate of 1 all elements are dropped, and 0 stands for the infinite factor.
    const Value some = build::greater(keep, rate.number(0));
    const Value squared = (rate * (lowest * lowest) + 1.0) * build::select(some, keep, one);
    const Value scale = build::select(some, 1.0 / build::sqrt(squared), rate.number(0));
    const Value draw = build::random(x, key, {Distribution::uniform, Stream});
    const Value kept = build::greater_equal(draw, build::cast(rate, draw.dtype()));
    const DType type = computed_as(x.dtype());
    const Value own = build::select(kept, build::cast(x, type), draw.number(lowest, type));
    return build::cast(own * build::cast(scale, type) - build::cast(scale * rate * lowest, type), x.dtype());
  }
};

}  // namespace detail

/// Dropout of whole features: of x [batch, spatial..., features] each feature of each example is 0 with probability
/// `rate`, in all of its elements, and x / (1 - rate) otherwise (F.dropout1d, dropout2d, dropout3d, with features
/// last). Otherwise as dropout.
template <std::uint32_t Stream = 0, TensorArgument X, NumberOperand Rate, class Key = detail::NoKey>
constexpr auto dropout1d(const X& x, const Rate& rate, const Key& key = {}, Here at = Here::current()) {
  return call<detail::FeatureDropoutTag<3, Stream>>(Source::from(at), x, rate, detail::drawn_from(key));
}
template <std::uint32_t Stream = 0, TensorArgument X, NumberOperand Rate, class Key = detail::NoKey>
constexpr auto dropout2d(const X& x, const Rate& rate, const Key& key = {}, Here at = Here::current()) {
  return call<detail::FeatureDropoutTag<4, Stream>>(Source::from(at), x, rate, detail::drawn_from(key));
}
template <std::uint32_t Stream = 0, TensorArgument X, NumberOperand Rate, class Key = detail::NoKey>
constexpr auto dropout3d(const X& x, const Rate& rate, const Key& key = {}, Here at = Here::current()) {
  return call<detail::FeatureDropoutTag<5, Stream>>(Source::from(at), x, rate, detail::drawn_from(key));
}

/// Dropout for networks with ts::selu (F.alpha_dropout): mean and variance of x stay 0 and 1. Dropped elements are the
/// lowest value of selu, then all are scaled and shifted. At a rate of 1 the result is 0. Otherwise as dropout. Source:
/// Klambauer et al., Self-Normalizing Neural Networks, 2017.
template <std::uint32_t Stream = 0, TensorArgument X, NumberOperand Rate, class Key = detail::NoKey>
constexpr auto alpha_dropout(const X& x, const Rate& rate, const Key& key = {}, Here at = Here::current()) {
  return call<detail::AlphaDropoutTag<Stream>>(Source::from(at), x, rate, detail::drawn_from(key));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
