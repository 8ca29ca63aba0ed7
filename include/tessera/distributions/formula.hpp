#ifndef TESSERA_DISTRIBUTIONS_FORMULA_HPP
#define TESSERA_DISTRIBUTIONS_FORMULA_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <tessera/ops/constraint.hpp>
#include <tessera/ops/elementwise/special.hpp>
#include <tessera/ops/gradient_rows.hpp>
#include <tessera/ops/random/random.hpp>
#include <tessera/ops/random/random_draws.hpp>
#include <tessera/ops/reduction/reduction.hpp>

// What the formulas of distributions are written with, and how the members of a distribution become nodes of a graph.

namespace tessera::distributions::formulas {

inline constexpr double log_2 = 0.69314718055994530942, log_pi = 1.14472988584940017414,
                        euler_gamma = 0.57721566490153286061;

constexpr Value abs(Value x) { return build::abs(x); }
constexpr Value sqrt(Value x) { return build::sqrt(x); }
constexpr Value square(Value x) { return x * x; }
constexpr Value exp(Value x) { return build::exp(x); }
constexpr Value expm1(Value x) { return build::apply<ops::Expm1Op>(x); }
constexpr Value log(Value x) { return build::log(x); }
constexpr Value log1p(Value x) { return build::apply<ops::Log1pOp>(x); }
constexpr Value pow(Value x, Value y) { return build::apply<ops::PowOp>(x, y); }
constexpr Value sigmoid(Value x) { return build::sigmoid(x); }
constexpr Value softplus(Value x) { return build::apply<ops::SoftplusOp>(x); }
constexpr Value erf(Value x) { return build::apply<ops::ErfOp>(x); }
constexpr Value erfinv(Value x) { return build::apply<ops::ErfinvOp>(x); }
constexpr Value lgamma(Value x) { return build::apply<ops::LgammaOp>(x); }
constexpr Value digamma(Value x) { return build::apply<ops::DigammaOp>(x); }
/// The logarithm of the beta function.
constexpr Value betaln(Value a, Value b) { return lgamma(a) + lgamma(b) - lgamma(a + b); }
constexpr Value xlogy(Value x, Value y) { return tessera::detail::XlogyTag::emit(x, x, y); }
constexpr Value xlog1py(Value x, Value y) { return tessera::detail::Xlog1pyTag::emit(x, x, y); }
constexpr Value floor(Value x) { return build::apply<ops::FloorOp>(x); }
constexpr Value less(Value x, Value y) { return build::less(x, y); }
constexpr Value less(Value x, double y) { return less(x, x.number(y)); }
constexpr Value greater(Value x, Value y) { return build::greater(x, y); }
constexpr Value greater(Value x, double y) { return greater(x, x.number(y)); }
constexpr Value either(Value x, Value y) { return build::logical_or(x, y); }
constexpr Value select(Value condition, Value yes, Value no) { return build::select(condition, yes, no); }
constexpr Value select(Value condition, double yes, Value no) { return select(condition, no.number(yes), no); }
/// max(x, 0).
constexpr Value positive_part(Value x) { return select(less(x, 0), 0, x); }
/// Whether x is no integer of at least 0. False for NaN, for which formulas give NaN.
constexpr Value is_no_count(Value x) { return either(less(x, 0), less(floor(x), x)); }

/// The sums of rows, without their dim or with it as one of extent 1.
constexpr Value sum_of_rows(Value x, bool keep = false) { return build::sum_of(x, 1u << (x.rank() - 1), keep); }

/// -infinity outside of the support, where the formula is computed of `inner`, a value within: a logarithm of a
/// negative number would make gradients NaN.
template <class Formula> constexpr Value within_support(Value outside, Value x, double inner, Formula formula) {
  return select(outside, -ops::infinity, formula(select(outside, inner, x)));
}

/// x in the shape of `like`, whose elements are not read.
constexpr Value spread(Value x, Value like) {
  if (x.rank() == 0) return build::broadcast(x, like);
  return build::checked_broadcast(x, like, MadeBy::broadcast_like);
}

/// What a number that is a parameter of a distribution may be.
template <class Formulas> constexpr NumberRule rule_of(std::size_t parameter) {
  if constexpr (requires { Formulas::rules; }) return Formulas::rules[parameter % std::size(Formulas::rules)];
  return NumberRule::any;
}

/// What a sample is made of: random numbers in its shape.
struct Draws {
  Value shape, key;
  std::uint32_t stream;
  DType type;  ///< of the finished sample, which is computed in f32 for bf16 and f16

  constexpr Value uniform() const { return build::random(shape, key, {Distribution::uniform, stream}); }
  constexpr Value normal() const { return build::random(shape, key, {Distribution::normal, stream}); }
  /// Uniform draws that rounding to the type of the sample leaves below 1.
  constexpr Value uniform_below_one() const {
    const Value draw = uniform();
    if (type == draw.dtype()) return draw;
    return build::minimum(draw, draw.number(type == DType::bf16 ? 1 - 0x1p-8 : 1 - 0x1p-11));
  }
  /// A parameter in the shape of the sample.
  constexpr Value spread(Value parameter) const { return formulas::spread(parameter, shape); }
};

}  // namespace tessera::distributions::formulas

namespace tessera::detail {

template <class... X> inline constexpr DType drawn_dtype = floating_type(dtype_v<typename MeetAll<X...>::type>);

/// Casts operands to the element type that a distribution computes in. The numbers among them are checked by
/// `Formulas::rules`, which has a rule for each parameter; there are `others` operands in front of the parameters.
template <class Formulas, class... X>
constexpr void convert_parameters(DType type, int others, std::same_as<Value> auto&... operands) {
  int at = -others;
  const auto convert = [&](Value& x, bool is_number) {
    const NumberRule rule =
        at < 0 ? NumberRule::any : distributions::formulas::rule_of<Formulas>(static_cast<std::size_t>(at));
    x = is_number && rule != NumberRule::any ? build::checked_cast(x, type, rule) : build::cast(x, type);
    ++at;
  };
  (convert(operands, is_number_v<typename X::type>), ...);
}

/// What a distribution computes of elements and its parameters, or of its parameters only.
enum class Quantity : std::uint8_t { log_prob, cdf, icdf, entropy, mean, mode, variance, stddev, kl_divergence };
constexpr const char* name_of(Quantity what) {
  constexpr const char* names[] = {"log_prob", "cdf",      "icdf",   "entropy",      "mean",
                                   "mode",     "variance", "stddev", "kl_divergence"};
  return names[static_cast<int>(what)];
}
constexpr bool takes_elements(Quantity what) {
  return what == Quantity::log_prob || what == Quantity::cdf || what == Quantity::icdf;
}

/// Operands are computed with in their promoted type, in f32 for bf16 and f16.
template <class Formulas, Quantity What> struct QuantityTag {
  static constexpr const char* function = name_of(What);
  static constexpr auto leading_dims = ops::LeadingDims::aligned;
  template <class... X> struct result {
    using type = element_t<computed_as(drawn_dtype<X...>)>;
    static constexpr int rank = MeetAll<X...>::rank;
  };
  template <class... X> static constexpr void convert(std::same_as<Value> auto&... operands) {
    convert_parameters<Formulas, X...>(computed_as(drawn_dtype<X...>), takes_elements(What) ? 1 : 0, operands...);
  }
  static constexpr Value emit(Value context, std::same_as<Value> auto... operands) {
    return of(operands.at(context.source)...);
  }

 private:
  static constexpr Value of(Value first, std::same_as<Value> auto... rest) {
    if constexpr (What == Quantity::log_prob) return Formulas::log_prob(first, rest...);
    if constexpr (What == Quantity::cdf) return Formulas::cdf(first, rest...);
    if constexpr (What == Quantity::icdf) return Formulas::icdf(first, rest...);
    // The others have the shape of all parameters, some of which they need not depend on.
    using distributions::formulas::spread, distributions::formulas::sqrt;
    const Value shape = (first + ... + rest);
    if constexpr (What == Quantity::entropy) return spread(Formulas::entropy(first, rest...), shape);
    if constexpr (What == Quantity::mean) return spread(Formulas::mean(first, rest...), shape);
    if constexpr (What == Quantity::mode) return spread(Formulas::mode(first, rest...), shape);
    if constexpr (What == Quantity::kl_divergence) return spread(Formulas::kl_divergence(first, rest...), shape);
    if constexpr (What == Quantity::variance) return spread(Formulas::variance(first, rest...), shape);
    if constexpr (What == Quantity::stddev) return spread(sqrt(Formulas::variance(first, rest...)), shape);
  }
};

/// A formula of rows, which are along the last dim of all operands: `Formula::of(operands...)`. Reduced if its result
/// lacks that dim.
template <class Formula, bool Reduced> struct RowFormulaTag {
  static constexpr const char* function = Formula::function;
  static constexpr auto leading_dims = ops::LeadingDims::aligned;
  template <class... X> struct result {
    using type = element_t<computed_as(drawn_dtype<X...>)>;
    static constexpr int rank = MeetAll<X...>::rank - (Reduced ? 1 : 0);
    static_assert(((X::rank >= 1) && ...), "tessera: this distribution is one of rows, and takes tensors [..., n]");
  };
  template <class... X> static constexpr void convert(std::same_as<Value> auto&... operands) {
    ((operands = build::cast(operands, computed_as(drawn_dtype<X...>))), ...);
  }
  static constexpr Value emit(Value context, std::same_as<Value> auto... operands) {
    return Formula::of(operands.at(context.source)...);
  }
};

/// A sample in the element type Drawn. Operands: the key; with HasLike a tensor of whose shape the sample is, and with
/// Follows of whose sharding too; the parameters.
template <class Formulas, DType Drawn, std::uint32_t Stream, bool Reparametrized, bool HasLike, bool Follows>
struct SampleTag {
  static constexpr const char* function = Reparametrized ? "rsample" : "sample";
  static constexpr auto leading_dims = ops::LeadingDims::aligned;
  template <class Key, class... X> struct result : Typed<element_t<Drawn>, MeetAll<X...>::rank> {
    static_assert(is_key_v<Key>,
                  "tessera: the key of random numbers is a number, a ts::Scalar or an integer tensor of rank 0");
  };
  template <class, class... X> static constexpr void convert(Value&, std::same_as<Value> auto&... operands) {
    convert_parameters<Formulas, X...>(computed_as(Drawn), HasLike ? 1 : 0, operands...);
  }
  static constexpr Value emit(Value context, Value key, std::same_as<Value> auto... operands) {
    return build::cast(of(key, operands.at(context.source)...), Drawn);
  }

 private:
  static constexpr Value fixed(Value x) { return Reparametrized ? x : build::unary(ops::op_v<ops::StopGradientOp>, x); }
  static constexpr Value of(Value key, Value first, std::same_as<Value> auto... rest) {
    if constexpr (HasLike) {
      const Value drawn = drawn_by({first, key, Stream, Drawn}, fixed(rest)...);
      return Follows ? build::alike(drawn, build::shape_source(first)) : drawn;
    } else {
      return drawn_by({(first + ... + rest), key, Stream, Drawn}, fixed(first), fixed(rest)...);
    }
  }
  static constexpr Value drawn_by(const distributions::formulas::Draws& draws, std::same_as<Value> auto... parameters) {
    return draws.spread(Formulas::draw(draws, parameters...));
  }
};

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
