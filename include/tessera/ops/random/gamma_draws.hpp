#ifndef TESSERA_OPS_RANDOM_GAMMA_DRAWS_HPP
#define TESSERA_OPS_RANDOM_GAMMA_DRAWS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <limits>
#include <type_traits>

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

/// Which number a gamma draw becomes.
enum class GammaDraw : std::uint8_t { itself, logarithm };
/// Standard gamma draws by the method of Marsaglia and Tsang. A proposal is rejected with a probability below .05, so
/// all of six are with one below 2e-8; the draw is the mode then. For small concentrations most draws are below the
/// smallest number of the type; their logarithms are not.
template <GammaDraw What = GammaDraw::itself> constexpr Value gamma(Value concentration, Value key) {
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
  const Value drawn = [&] {
    if (What == GammaDraw::logarithm) return log(made) + select(is_small, log(u) / a, a.number(0));
    return select(is_small, made * apply<ops::PowOp>(u, one / a), made);
  }();
  return select(less(a, a.number(0)), a.number(std::numeric_limits<double>::quiet_NaN()), drawn);
}
/// Gamma draws of at least the smallest normal number of a type, as PyTorch's: at 0 densities are infinite.
constexpr Value above_zero_gamma(Value draw, DType type) {
  const double least = type == DType::f64 ? 0x1p-1022 : type == DType::f16 ? 0x1p-14 : 0x1p-126;
  return maximum(draw, draw.number(least));
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
    const Value draw = build::gamma(build::cast(a, computed_as(a.dtype())), own);
    return build::cast(build::above_zero_gamma(draw, a.dtype()), a.dtype());
  }
};
/// The logarithms of gamma draws, in f32 for bf16 and f16.
template <std::uint32_t Stream> struct LogGammaTag {
  template <class A, class Key> struct result : Typed<element_t<computed_as(dtype_v<typename A::type>)>, A::rank> {
    using Checks = CheckDraw<A, Key>;
    static constexpr std::size_t checked = sizeof(Checks);
  };
  static constexpr Value emit(Value context, Value a, Value key) {
    a = a.at(context.source);
    return build::gamma<build::GammaDraw::logarithm>(build::cast(a, computed_as(a.dtype())),
                                                     build::folded_key(key, Stream));
  }
};
template <std::uint32_t Stream, class A, class Key> constexpr auto log_gamma(const A& a, const Key& key, Here at) {
  return call<LogGammaTag<Stream>>(Source::from(at), a, drawn_from(key));
}

}  // namespace detail

/// Draws of the gamma distribution with the given concentrations, above 0, and rate 1 (jax.random.gamma,
/// torch._standard_gamma): of mean a and variance a, and of at least the smallest normal number of the element type.
/// Divide by another rate. The shape is that of the concentrations. No gradient. NaN for a concentration below 0. Costs
/// thirteen draws an element. Key, stream and communication: as for uniform_like. Source: Marsaglia, Tsang, ACM TOMS 26
/// (2000).
template <std::uint32_t Stream = 0, TensorArgument A, class Key = detail::NoKey>
constexpr auto gamma(const A& concentration, const Key& key = {}, Here at = Here::current()) {
  return call<detail::GammaTag<Stream>>(Source::from(at), concentration, detail::drawn_from(key));
}

/// Draws of the beta distribution, x / (x + y) of gamma draws x and y (jax.random.beta). Both operands have one shape.
/// Computed of the logarithms of x and y, so that concentrations far below 1 give 0 and 1.
template <std::uint32_t Stream = 0, TensorArgument A, TensorArgument B, class Key>
constexpr auto beta(const A& a, const B& b, const Key& key, Here at = Here::current()) {
  const detail::FunctionCall named("beta", a, b);
  const auto x = detail::log_gamma<2 * Stream>(a, key, at);
  const auto y = detail::log_gamma<2 * Stream + 1>(b, key, at);
  using Drawn = std::remove_cvref_t<decltype(call<SubTag>(Source::from(at), a, b))>;
  return cast<typename Drawn::element>(sigmoid(call<SubTag>(Source::from(at), x, y), at), at);
}

/// Draws of the Dirichlet distribution along the last dim: gamma draws over their sum (jax.random.dirichlet), as the
/// softmax of their logarithms. Communication: all-reduces of maxima and sums if the last dim is split.
template <std::uint32_t Stream = 0, TensorArgument A, class Key>
constexpr auto dirichlet(const A& concentration, const Key& key, Here at = Here::current()) {
  const detail::FunctionCall named("dirichlet", concentration);
  return cast<typename A::element>(softmax<-1>(detail::log_gamma<Stream>(concentration, key, at), at), at);
}

/// Draws of the chi-squared distribution with the given degrees of freedom (jax.random.chisquare).
template <std::uint32_t Stream = 0, TensorArgument A, class Key>
constexpr auto chisquare(const A& degrees, const Key& key, Here at = Here::current()) {
  const Source source = Source::from(at);
  return call<MulTag>(source, gamma<Stream>(call<MulTag>(source, degrees, 0.5), key, at), 2.0);
}

/// Draws of Student's t distribution with the given degrees of freedom, above 0: a normal draw over the root of a
/// chi-squared one divided by the degrees (jax.random.t, torch.distributions.StudentT). No gradient.
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
