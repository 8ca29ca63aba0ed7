#ifndef TESSERA_OPS_RANDOM_GAMMA_DRAWS_HPP
#define TESSERA_OPS_RANDOM_GAMMA_DRAWS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <limits>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/gradient_rows.hpp>
#include <tessera/ops/random/key_rows.hpp>
#include <tessera/ops/random/random.hpp>
#include <tessera/ops/random/random_draw.hpp>
#include <tessera/ops/random/random_draws.hpp>
#include <tessera/ops/stop_gradient.hpp>

// Draws of the gamma distribution, and of those that are made of it.

namespace tessera {

namespace build {

/// Standard gamma draws by the method of Marsaglia and Tsang. A proposal is rejected with a probability below .05, so
/// all of six are with one below 2e-8; the draw is the mode then.
constexpr Value gamma(Value concentration, Value key) {
  constexpr int proposals = 6;
  const Value a = unary(ops::op_v<ops::StopGradientOp>, concentration), one = a.number(1);
  const auto draw = [&](Distribution kind, int n) { return random(a, folded_key(key, n), {kind, 0}); };
  const Value is_small = less(a, one), raised = select(is_small, a + 1.0, a);
  const Value d = raised - 1.0 / 3, spread = 1.0 / unary(Op::sqrt, d * 9.0);
  Value made = d;
  for (int n = proposals - 1; n >= 0; --n) {
    const Value x = draw(Distribution::normal, 2 * n + 1), u = draw(Distribution::uniform, 2 * n + 2);
    const Value root = spread * x + 1.0, v = root * root * root;
    // Where v is not above 0 its logarithm is NaN or -infinity, and the proposal is rejected.
    const Value bound = x * x * 0.5 + d - d * v + d * unary(Op::log, v);
    made = select(less(unary(Op::log, u), bound), d * v, made);
  }
  // gamma(a) is gamma(a + 1) times u^(1 / a).
  const Value u = detail::above_zero_draw(draw(Distribution::uniform, 0));
  const Value drawn = select(is_small, made * apply<ops::PowOp>(u, one / a), made);
  return select(less(a, a.number(0)), a.number(std::numeric_limits<double>::quiet_NaN()), drawn);
}

}  // namespace build

namespace detail {

template <std::uint32_t Stream> struct GammaTag {
  template <class A, class Key> struct result : A {
    using Checks = CheckDraw<A, Key>;
    static constexpr std::size_t checked = sizeof(Checks);
  };
  static constexpr Value emit(Value context, Value a, Value key) {
    a = a.at(context.source);
    const Value own = build::folded_key(key, Stream);
    return build::cast(build::gamma(build::cast(a, computed_as(a.dtype())), own), a.dtype());
  }
};

}  // namespace detail

/// Draws of the gamma distribution with the given concentrations, above 0, and rate 1 (jax.random.gamma,
/// torch._standard_gamma): of mean a and variance a. Divide by another rate. The shape is that of the concentrations.
/// No gradient. NaN for a concentration below 0. Costs thirteen draws an element. Key, stream and communication: as for
/// uniform_like. Source: Marsaglia, Tsang, ACM TOMS 26 (2000).
template <std::uint32_t Stream = 0, TensorArgument A, class Key = detail::NoKey>
constexpr auto gamma(const A& concentration, const Key& key = {}, Here at = Here::current()) {
  return call<detail::GammaTag<Stream>>(Source::from(at), concentration, detail::drawn_from(key));
}

/// Draws of the beta distribution, x / (x + y) of gamma draws x and y (jax.random.beta). Both operands have one shape.
/// For concentrations far below 1, x and y may both be 0 in f32, and the draw is NaN: use double there.
template <std::uint32_t Stream = 0, TensorArgument A, TensorArgument B, class Key>
constexpr auto beta(const A& a, const B& b, const Key& key, Here at = Here::current()) {
  const detail::FunctionCall named("beta", a, b);
  const auto x = gamma<2 * Stream>(a, key, at);
  const auto y = gamma<2 * Stream + 1>(b, key, at);
  return call<DivTag>(Source::from(at), x, call<AddTag>(Source::from(at), x, y));
}

/// Draws of the Dirichlet distribution along the last dim: gamma draws over their sum (jax.random.dirichlet).
/// Communication: an all-reduce of the sums if the last dim is split.
template <std::uint32_t Stream = 0, TensorArgument A, class Key>
constexpr auto dirichlet(const A& concentration, const Key& key, Here at = Here::current()) {
  const detail::FunctionCall named("dirichlet", concentration);
  const auto x = gamma<Stream>(concentration, key, at);
  return call<DivTag>(Source::from(at), x, unsqueeze<-1>(sum<-1>(x, at), at));
}

/// Draws of the chi-squared distribution with the given degrees of freedom (jax.random.chisquare).
template <std::uint32_t Stream = 0, TensorArgument A, class Key>
constexpr auto chisquare(const A& degrees, const Key& key, Here at = Here::current()) {
  const Source source = Source::from(at);
  return call<MulTag>(source, gamma<Stream>(call<MulTag>(source, degrees, 0.5), key, at), 2.0);
}

/// Draws of Student's t distribution with the given degrees of freedom, above 0: a normal draw over the root of a
/// chi-squared one divided by the degrees (jax.random.t, torch.distributions.StudentT). No gradient. For degrees far
/// below 1 draws may be infinite in f32: use double there.
template <std::uint32_t Stream = 0, TensorArgument A, class Key>
constexpr auto student_t(const A& degrees, const Key& key, Here at = Here::current()) {
  const auto fixed = stop_gradient(degrees, at);
  const Source source = Source::from(at);
  const auto spread = sqrt(call<DivTag>(source, chisquare<Stream>(fixed, key, at), fixed), at);
  return call<DivTag>(source, normal_like<Stream>(fixed, key, at), spread);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
