// Prints the errors of the elementwise functions of kernels in ulp (units in the last place of the result type). The
// docstrings of ops/elementwise/*.hpp state the larger of the figures of these two runs:
//   for march in x86-64 native; do
//     g++ -std=c++20 -O2 -march=$march -I include tools/accuracy.cpp -o /tmp/accuracy && /tmp/accuracy
//   done
// f32: every 97th bit pattern against libm in double. f64: random bit patterns against libm in long double. pow and
// atan2: random pairs. Then it prints the values at NaN, infinities, zeros and outside the domain.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <type_traits>

#include <tessera/kernels/simd/lane_ops.hpp>

namespace {

using tessera::Op;
namespace kernels = tessera::kernels;
constexpr int width = kernels::width;

/// |got - exact| in units of the distance between two neighbours of T around `exact`; infinity for a NaN on one side.
template <class T, class Exact> double ulps(T got, Exact exact) {
  if (std::isnan(got) || std::isnan(exact)) return std::isnan(got) == std::isnan(exact) ? 0 : HUGE_VAL;
  if (static_cast<Exact>(got) == exact) return 0;
  const T rounded = static_cast<T>(exact);
  if (std::isinf(got) || std::isinf(rounded)) {
    if (got == rounded) return 0;
    // One of the two overflows: both are compared with twice the highest power of two.
    const Exact end = std::ldexp(Exact(1), std::numeric_limits<T>::max_exponent);
    const Exact got_or_end = std::isinf(got) ? std::copysign(end, static_cast<Exact>(got)) : static_cast<Exact>(got);
    return static_cast<double>(std::fabs(got_or_end - exact) / std::ldexp(end, -std::numeric_limits<T>::digits));
  }
  int exponent = 0;
  std::frexp(exact, &exponent);
  const int least = std::numeric_limits<T>::min_exponent;
  const Exact unit = std::ldexp(Exact(1), (exponent < least ? least : exponent) - std::numeric_limits<T>::digits);
  return static_cast<double>(std::fabs(static_cast<Exact>(got) - exact) / unit);
}

template <class Exact> Exact gelu(Exact x) {
  const Exact c = std::sqrt(Exact(2) / std::acos(Exact(-1)));
  return x == -HUGE_VAL ? -Exact(0) : x / (1 + std::exp(-2 * c * (x + Exact(0.044715L) * x * x * x)));
}

struct Worst {
  double ulp = 0, x = 0, y = 0;
  void add(double found, double at, double and_at = 0) {
    if (found > ulp) *this = {found, at, and_at};
  }
};

template <class T> struct Points;
template <> struct Points<float> {
  using Wide = double;
  std::uint32_t bits = 0;
  bool fill(float* x) {
    for (int i = 0; i < width; ++i, bits += 97) {
      x[i] = std::bit_cast<float>(bits);
      if (bits > 0xffffffffu - 97) return false;
    }
    return true;
  }
};
/// Random bit patterns, which have all magnitudes, alternate with groups of points of magnitudes up to 1000.
template <> struct Points<double> {
  using Wide = long double;
  std::mt19937_64 random{1};
  int groups = 0;
  bool fill(double* x) {
    const bool moderate = ++groups % 2 == 0;
    for (int i = 0; i < width; ++i) {
      x[i] = std::bit_cast<double>(random());
      if (moderate) x[i] = std::ldexp(std::frexp(x[i], &unused), static_cast<int>(random() % 21) - 10);
    }
    return groups < 2000000 / width;
  }
  int unused = 0;
};

/// Prints the largest error over all points from `low` to `high`.
template <Op O, class T, class F>
void measure(const char* name, F exact, double low = -HUGE_VAL, double high = HUGE_VAL) {
  using Wide = typename Points<T>::Wide;
  alignas(64) T x[width], y[width];
  Worst worst;
  Points<T> points;
  for (bool more = true; more;) {
    more = points.fill(x);
    kernels::store(y, kernels::apply<O>(kernels::load(x)));
    for (int i = 0; i < width; ++i)
      if (!(x[i] < low || x[i] > high)) worst.add(ulps(y[i], static_cast<Wide>(exact(static_cast<Wide>(x[i])))), x[i]);
  }
  constexpr T infinity = std::numeric_limits<T>::infinity(), least = std::numeric_limits<T>::denorm_min();
  const T special[] = {std::numeric_limits<T>::quiet_NaN(), infinity, -infinity, 0, T(-0.0), -1, least, -least};
  const char* const type = sizeof(T) == 4 ? "f32" : "f64";
  std::printf("%-8s %s from %-5g %8.3f ulp at %-13.6g |", name, type, low, worst.ulp, worst.x);
  for (const T at : special) {
    for (T& lane : x) lane = at;
    kernels::store(y, kernels::apply<O>(kernels::load(x)));
    std::printf(std::isnan(y[0]) ? " nan" : " %g", static_cast<double>(y[0]));
  }
  std::printf("\n");
}

/// Prints the largest error over pairs from `draw(random, x, y)`.
template <Op O, class T, class Draw, class F> void measure_pairs(const char* name, Draw draw, F exact) {
  using Wide = typename Points<T>::Wide;
  std::mt19937_64 random(2);
  alignas(64) T x[width], y[width], z[width];
  Worst worst;
  for (int group = 0; group < 4000000 / width; ++group) {
    for (int i = 0; i < width; ++i) draw(random, x[i], y[i]);
    kernels::store(z, kernels::apply<O>(kernels::load(x), kernels::load(y)));
    for (int i = 0; i < width; ++i)
      worst.add(ulps(z[i], exact(static_cast<Wide>(x[i]), static_cast<Wide>(y[i]))), x[i], y[i]);
  }
  std::printf("%-8s %s  %7.3f ulp at %.6g, %.6g\n", name, sizeof(T) == 4 ? "f32" : "f64", worst.ulp, worst.x, worst.y);
}
/// Draws x and y such that pow(x, y) covers the whole range of T; for a quarter of the pairs x does so too.
template <class T> void draw_for_pow(std::mt19937_64& random, T& x, T& y) {
  std::uniform_real_distribution<double> log_of_result(std::log(std::numeric_limits<T>::denorm_min()),
                                                       std::log(std::numeric_limits<T>::max()));
  x = std::exp(static_cast<T>(log_of_result(random)) / T(random() % 4 == 0 ? 1 : 100));
  y = static_cast<T>(log_of_result(random)) / std::log(x);
}
/// Draws random bit patterns; half of the pairs have moderate quotients.
template <class T> void draw_for_atan2(std::mt19937_64& random, T& y, T& x) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  y = std::bit_cast<T>(static_cast<Bits>(random()));
  x = std::bit_cast<T>(static_cast<Bits>(random()));
  int exponent = 0, unused = 0;
  if (random() % 2 == 0 && std::isfinite(y) && std::isfinite(x)) {
    std::frexp(y, &exponent);
    x = std::ldexp(std::frexp(x, &unused), exponent + static_cast<int>(random() % 11) - 5);
  }
}

template <class T> void measure_all() {
  measure<Op::exp, T>("exp", [](auto x) { return std::exp(x); });
  measure<Op::log, T>("log", [](auto x) { return std::log(x); });
  measure<Op::sqrt, T>("sqrt", [](auto x) { return std::sqrt(x); });
  measure<Op::rsqrt, T>("rsqrt", [](auto x) { return 1 / std::sqrt(x); });
  measure<Op::tanh, T>("tanh", [](auto x) { return std::tanh(x); });
  measure<Op::sigmoid, T>("sigmoid", [](auto x) { return 1 / (1 + std::exp(-x)); });
  measure<tessera::ops::op_v<tessera::ops::ErfOp>, T>("erf", [](auto x) { return std::erf(x); });
  measure<Op::gelu, T>("gelu", [](auto x) { return gelu(x); });
  measure<tessera::ops::op_v<tessera::ops::ErfOp>, T>(
      "erf", [](auto x) { return std::erf(x); }, -1e60, 1e60);
  for (const double low : {-6.0, -2.0, 0.0})
    measure<Op::gelu, T>(
        "gelu", [](auto x) { return gelu(x); }, low);
  measure<Op::silu, T>("silu", [](auto x) { return x == -HUGE_VAL ? -decltype(x)(0) : x / (1 + std::exp(-x)); });
  measure<Op::silu, T>(
      "silu", [](auto x) { return x / (1 + std::exp(-x)); }, sizeof(T) == 4 ? -87 : -707);
  measure<Op::relu, T>("relu", [](auto x) { return x > 0 ? x : std::isnan(x) ? x : decltype(x)(0); });
  measure<Op::abs, T>("abs", [](auto x) { return std::fabs(x); });
  measure<Op::sign, T>("sign", [](auto x) { return x > 0 ? decltype(x)(1) : x < 0 ? decltype(x)(-1) : x; });
  using namespace tessera::ops;
  measure<op_v<Expm1Op>, T>("expm1", [](auto x) { return std::expm1(x); });
  measure<op_v<Log1pOp>, T>("log1p", [](auto x) { return std::log1p(x); });
  measure<op_v<Exp2Op>, T>("exp2", [](auto x) { return std::exp2(x); });
  measure<op_v<Log2Op>, T>("log2", [](auto x) { return std::log2(x); });
  measure<op_v<Log10Op>, T>("log10", [](auto x) { return std::log10(x); });
  measure<op_v<SinOp>, T>("sin", [](auto x) { return std::sin(x); });
  measure<op_v<CosOp>, T>("cos", [](auto x) { return std::cos(x); });
  measure<op_v<TanOp>, T>("tan", [](auto x) { return std::tan(x); });
  measure<op_v<AsinOp>, T>("asin", [](auto x) { return std::asin(x); });
  measure<op_v<AcosOp>, T>("acos", [](auto x) { return std::acos(x); });
  measure<op_v<AtanOp>, T>("atan", [](auto x) { return std::atan(x); });
  measure<op_v<SinhOp>, T>("sinh", [](auto x) { return std::sinh(x); });
  measure<op_v<CoshOp>, T>("cosh", [](auto x) { return std::cosh(x); });
  measure<op_v<AsinhOp>, T>("asinh", [](auto x) { return std::asinh(x); });
  measure<op_v<AcoshOp>, T>("acosh", [](auto x) { return std::acosh(x); });
  measure<op_v<AtanhOp>, T>("atanh", [](auto x) { return std::atanh(x); });
  // Below this range results are 0.
  measure<op_v<SoftplusOp>, T>(
      "softplus", [](auto x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); },
      sizeof(T) == 4 ? -87 : -708);
  using Wide = typename Points<T>::Wide;
  measure_pairs<Op::pow, T>("pow", draw_for_pow<T>, [](Wide x, Wide y) { return std::pow(x, y); });
  measure_pairs<op_v<Atan2Op>, T>("atan2", draw_for_atan2<T>, [](Wide y, Wide x) { return std::atan2(y, x); });
}

}  // namespace

int main() {
  std::printf(
      "%d lanes; then the values at NaN, inf, -inf, 0, -0, -1, the least positive and the greatest negative number\n",
      width);
  measure_all<float>();
  measure_all<double>();
}
