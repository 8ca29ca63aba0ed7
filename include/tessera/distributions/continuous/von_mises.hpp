#ifndef TESSERA_DISTRIBUTIONS_CONTINUOUS_VON_MISES_HPP
#define TESSERA_DISTRIBUTIONS_CONTINUOUS_VON_MISES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <limits>
#include <tuple>

#include <tessera/distributions/univariate.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/random/poisson.hpp>
#include <tessera/ops/stop_gradient.hpp>

namespace tessera::distributions {

namespace formulas {

struct VonMises {
  static constexpr bool has_rsample = false;

  static constexpr NumberRule rules[2] = {NumberRule::any, NumberRule::positive};
  static constexpr Value log_prob(Value x, Value loc, Value concentration) {
    // cos(y) - 1 without cancellation
    const Value sine = build::apply<ops::SinOp>((x - loc) * 0.5);
    return concentration * square(sine) * -2.0 - log(scaled_bessel(concentration)) - log_2_pi;
  }
  static constexpr Value entropy(Value, Value concentration) {
    return log(scaled_bessel(concentration)) + concentration * variance(concentration, concentration) + log_2_pi;
  }
  static constexpr Value mean(Value loc, Value) { return loc; }
  static constexpr Value mode(Value loc, Value) { return loc; }
  static constexpr Value variance(Value, Value concentration) {
    // For large concentrations by the series of the quotient, which rounds to 1.
    const Value large = greater(concentration, concentration.dtype() == DType::f64 ? 1000 : 50);
    const Value far = 1.0 / select(large, concentration, concentration.number(1));
    const Value series = far * (far * (far * (far * (25.0 / 128) + 0.125) + 0.125) + 0.5);
    const Value near = select(large, concentration.number(1), concentration);
    return select(large, series, 1.0 - build::apply<ops::I1eOp>(near) / scaled_bessel(near));
  }
  /// The concentration of a draw.
  static constexpr Value draw(const Draws& draws, Value, Value concentration) { return draws.spread(concentration); }

 private:
  static constexpr double log_2_pi = log_2 + log_pi;
  static constexpr Value scaled_bessel(Value concentration) { return build::apply<ops::I0eOp>(concentration); }
};

}  // namespace formulas

namespace detail {

/// Angles from -pi to pi around 0, by rejection of proposals from a wrapped Cauchy distribution. A proposal is accepted
/// with a probability above .65, so all of 40 are rejected with a probability below 1e-18; the angle is 0 then. Source:
/// Best and Fisher, Applied Statistics 28 (1979).
template <std::uint32_t Stream, class Concentration, class Key>
constexpr auto von_mises_angles(const Concentration& given, const Key& key, Here at) {
  const auto concentration = maximum(given, 1e-10, at);
  const auto root = sqrt(1.0 + concentration * concentration * 4.0, at);
  const auto tau = root + 1.0;
  // rho is (tau - sqrt(2 tau)) / (2 concentration), without its cancellation
  const auto rho = concentration * 2.0 / (tau + sqrt(tau * 2.0, at));
  const auto r = (1.0 + rho * rho) / (rho * 2.0);
  const auto step = [&](const auto& i, const auto& carry) {
    const auto own = tessera::detail::key_in_loop<Stream>(key, i, at);
    const auto turn = uniform_like<2 * Stream>(given, own, at) * 2.0 - 1.0;
    const auto chance = uniform_like<2 * Stream + 1>(given, own, at);
    const auto z = cos(turn * ops::pi, at);
    const auto f = (1.0 + r * z) / (r + z);
    const auto c = concentration * (r - f);
    const auto taken = log(maximum(c, 1e-300, at) / maximum(chance, 1e-300, at), at) + 1.0 >= c;
    const auto size = acos(clamp(f, -1.0, 1.0, at), at);
    const auto& made = std::get<0>(carry);
    const auto& found = std::get<1>(carry);
    return std::tuple(
        select(logical_and(taken, logical_not(found, at), at), select(turn < 0.0, -size, size, at), made, at),
        logical_or(found, taken, at));
  };
  return std::get<0>(fori_loop(0, 40, step, std::tuple(zeros_like(given, at), given < 0.0), at));
}

}  // namespace detail

/// The von Mises distribution of angles x, the normal distribution on a circle: of a density proportional to
/// exp(concentration cos(x - loc)), for a `concentration` above 0 (torch.distributions.VonMises, scipy.stats.vonmises).
/// Its variance is the circular one, 1 - I1(concentration) / I0(concentration). Samples are from -pi to pi, and drawn
/// inside of a traced function only, as those of ts::poisson.
template <Operand Loc, Operand Concentration>
struct VonMises : Univariate<VonMises<Loc, Concentration>, formulas::VonMises> {
  Loc loc;
  Concentration concentration;
  constexpr VonMises(const Loc& l, const Concentration& c) : loc(l), concentration(c) {}
  constexpr auto parameters() const { return std::tie(loc, concentration); }

  /// Draws in the shape of the parameters. Key and stream: as for ts::poisson.
  template <std::uint32_t Stream = 0, class Key>
  constexpr auto sample(const Key& key, Here at = Here::current()) const {
    return around_loc<Stream>(this->template drawn<Stream, false>(at, key), key, at);
  }
  template <std::uint32_t Stream = 0, TensorArgument Like, class Key>
  constexpr auto sample_like(const Like& like, const Key& key, Here at = Here::current()) const {
    return around_loc<Stream>(this->template drawn<Stream, false>(at, key, like), key, at);
  }

 private:
  template <std::uint32_t Stream, class Drawn, class Key>
  constexpr auto around_loc(const Drawn& concentrations, const Key& key, Here at) const {
    if (trace_of(concentrations).module == nullptr)
      fail(errc::unsupported, "[sample] outside of a traced function: call sample of VonMises inside a function of "
                              "ts::compile");
    const tessera::detail::LayerCall call(at, concentrations);
    const auto wide = tessera::detail::as_sym(cast<double>(concentrations, at));
    const auto turned = detail::von_mises_angles<Stream>(wide, key, at) + middle(at) + ops::pi;
    const auto wrapped = remainder(turned, 2 * ops::pi, at) - ops::pi;
    return cast<typename Drawn::element>(select(wide >= 0.0, wrapped, std::numeric_limits<double>::quiet_NaN(), at),
                                         at);
  }
  constexpr auto middle(Here at) const {
    if constexpr (TensorOperand<Loc>)
      return cast<double>(stop_gradient(loc, at), at);
    else
      return loc;
  }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
