#ifndef TESSERA_DISTRIBUTIONS_TRANSFORMED_DISTRIBUTION_HPP
#define TESSERA_DISTRIBUTIONS_TRANSFORMED_DISTRIBUTION_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/distributions/kl_divergence.hpp>
#include <tessera/distributions/transforms.hpp>
#include <tessera/distributions/univariate.hpp>

namespace tessera::distributions {

namespace formulas {

/// The formulas of a distribution whose numbers x, of parameters I, are transformed to y = f(x), of parameters J.
template <class Base, class Transform, class I, class J> struct Transformed;
template <class Base, class Transform, std::size_t... I, std::size_t... J>
struct Transformed<Base, Transform, std::index_sequence<I...>, std::index_sequence<J...>> {
  template <std::size_t> using Each = Value;
  static constexpr bool has_rsample = Base::has_rsample;
  static constexpr NumberRule rules[sizeof...(I) + sizeof...(J)] = {rule_of<Base>(I)...,
                                                                    (static_cast<void>(J), NumberRule::any)...};

  static constexpr Value log_prob(Value y, Each<I>... parameters, Each<J>... own) {
    const Value inside = within_range(y), x = Transform::inverse(inside, own...);
    const Value inner = Base::log_prob(x, parameters...) - Transform::log_slope(x, inside, own...);
    return is_bounded ? select(either(is_below(y), is_above(y)), -ops::infinity, inner) : inner;
  }
  static constexpr Value cdf(Value y, Each<I>... parameters, Each<J>... own)
    requires requires { &Base::cdf; }
  {
    const Value inner = turned(Base::cdf(Transform::inverse(within_range(y), own...), parameters...), own...);
    return is_bounded ? select(is_below(y), 0, select(is_above(y), 1, inner)) : inner;
  }
  static constexpr Value icdf(Value p, Each<I>... parameters, Each<J>... own)
    requires requires { &Base::icdf; }
  {
    return Transform::forward(Base::icdf(turned(p, own...), parameters...), own...);
  }
  static constexpr Value draw(const Draws& draws, Each<I>... parameters, Each<J>... own) {
    return Transform::forward(Base::draw(draws, parameters...), own...);
  }

 private:
  static constexpr bool is_bounded = Transform::low > -ops::infinity;

  /// NaN is not outside of the range.
  static constexpr Value is_below(Value y) { return less(y, Transform::low); }
  static constexpr Value is_above(Value y) { return greater(y, Transform::high); }
  /// Numbers outside of the open range are replaced by the ends of a closed range in it, where the inverse is finite.
  static constexpr Value within_range(Value y) {
    const double step = y.dtype() == DType::f64 ? 0x1p-52 : 0x1p-23,
                 tiny = y.dtype() == DType::f64 ? 0x1p-1022 : 0x1p-126;
    if (!is_bounded) return y;
    const double first = Transform::low == 0 ? tiny : Transform::low + step;
    const Value inside = select(less(y, first), first, y);
    return Transform::high == ops::infinity
               ? inside
               : select(greater(y, Transform::high - step), Transform::high - step, inside);
  }
  /// A probability, or 1 - it where the transform decreases.
  static constexpr Value turned(Value p, Each<J>... own) {
    if constexpr (requires { &Transform::decreases; })
      return select(Transform::decreases(own...), 1.0 - p, p);
    else
      return p;
  }
};

/// The formulas of a distribution with `Count` parameters after transforms, in their order.
template <class Formulas, std::size_t Count, class... Transforms> struct Chain {
  using type = Formulas;
};
template <class Formulas, std::size_t Count, class First, class... More> struct Chain<Formulas, Count, First, More...> {
  static constexpr std::size_t own = std::tuple_size_v<decltype(std::declval<const First&>().parameters())>;
  using Next =
      Transformed<Formulas, typename First::formulas, std::make_index_sequence<Count>, std::make_index_sequence<own>>;
  using type = typename Chain<Next, Count + own, More...>::type;
};
template <class Base, class... Transforms>
  requires requires { typename Base::formulas; }
using ChainOf =
    typename Chain<typename Base::formulas, std::tuple_size_v<decltype(std::declval<const Base&>().parameters())>,
                   Transforms...>::type;

}  // namespace formulas

/// The distribution of y = f(x), where x has the continuous univariate distribution `base` and f applies one or more
/// transforms in order (torch.distributions.TransformedDistribution). For rows, wrap the result in `independent`.
/// log_prob is -infinity outside of the range of f. At the ends of the range, which rounded samples of SigmoidTransform
/// and TanhTransform can reach, it is that of an adjacent number, as in PyTorch's SigmoidTransform. There is no mean,
/// variance or entropy.
///
///     const auto policy = ts::distributions::independent<1>(ts::distributions::TransformedDistribution(
///         ts::distributions::Normal(mean, ts::exp(log_std)), ts::distributions::TanhTransform{}));
///     const auto action = policy.rsample(key);
template <class Base, class... Transforms>
  requires(sizeof...(Transforms) > 0)
struct TransformedDistribution
    : Univariate<TransformedDistribution<Base, Transforms...>, formulas::ChainOf<Base, Transforms...>> {
  static_assert(Base::formulas::has_rsample,
                "tessera: the first argument of TransformedDistribution is a continuous distribution");
  Base base;
  std::tuple<Transforms...> transforms;

  constexpr explicit TransformedDistribution(const Base& b, const Transforms&... t) : base(b), transforms(t...) {}
  constexpr auto parameters() const {
    return std::apply([&](const auto&... each) { return std::tuple_cat(base.parameters(), each.parameters()...); },
                      transforms);
  }
};

namespace detail {
/// Whether two parameters of transforms are different numbers; tensors are not compared.
template <class A, class B> constexpr bool differ(const A& a, const B& b) {
  if constexpr (std::is_arithmetic_v<A> && std::is_arithmetic_v<B>)
    return static_cast<double>(a) != static_cast<double>(b);
  else
    return false;
}
}  // namespace detail

/// The divergence of two distributions with the same transforms is that of their bases, since an invertible transform
/// changes both densities in the same way. Errors: `option` for transforms with different numbers. Transforms with
/// tensors must be equal, which is not checked.
template <class P, class Q, class... PTransforms, class... QTransforms>
constexpr auto kl_divergence(const TransformedDistribution<P, PTransforms...>& p,
                             const TransformedDistribution<Q, QTransforms...>& q, Here at = Here::current()) {
  constexpr bool are_same =
      std::is_same_v<std::tuple<typename PTransforms::formulas...>, std::tuple<typename QTransforms::formulas...>>;
  static_assert(are_same,
                "tessera: the divergence of two TransformedDistributions has a closed form only if they have "
                "the same transforms; else take the mean of p.log_prob(x) - q.log_prob(x) for samples x of p");
  if constexpr (are_same) {
    const auto of_all = [](const auto& transforms) {
      return std::apply([](const auto&... each) { return std::tuple_cat(each.parameters()...); }, transforms);
    };
    const auto of_p = of_all(p.transforms);
    const auto of_q = of_all(q.transforms);
    const bool are_different = [&]<std::size_t... I>(std::index_sequence<I...>) {
      return (detail::differ(std::get<I>(of_p), std::get<I>(of_q)) || ...);
    }(std::make_index_sequence<std::tuple_size_v<decltype(of_p)>>());
    if (are_different)
      fail(errc::option, "[kl_divergence] transforms: the two distributions have transforms of different numbers",
           Source::from(at));
    return kl_divergence(p.base, q.base, at);
  }
}

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
