// Prints the errors of activations and of special functions that are made of several kernels' functions, in ulp, for
// ranges of x. The docstrings of ops/elementwise/activation.hpp and special.hpp state the larger of the figures of
// these two runs:
//   for march in x86-64 native; do
//     g++ -std=c++20 -O2 -march=$march -I include tools/accuracy_of_activations.cpp -ltbb -o /tmp/accuracy &&
//     /tmp/accuracy
//   done
// f32: every 97th bit pattern against libm in double. f64: random bit patterns against libm in long double. The second
// operands of functions of two are the same numbers in another order.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include <tessera/tessera.hpp>

namespace ts = tessera;

namespace {

/// |got - exact| in units of the distance between two neighbours of T around `exact`.
template <class T, class Exact> double ulps(T got, Exact exact) {
  if (std::isnan(got) || std::isnan(exact)) return std::isnan(got) == std::isnan(exact) ? 0 : HUGE_VAL;
  if (static_cast<Exact>(got) == exact) return 0;
  const T rounded = static_cast<T>(exact);
  if (std::isinf(got) || std::isinf(rounded)) return got == rounded ? 0 : HUGE_VAL;
  int exponent = 0;
  std::frexp(exact, &exponent);
  const int least = std::numeric_limits<T>::min_exponent;
  return static_cast<double>(
      std::fabs(static_cast<Exact>(got) - exact) /
      std::ldexp(Exact(1), (exponent < least ? least : exponent) - std::numeric_limits<T>::digits));
}
template <class T> struct WideOf {
  using type = double;
};
template <> struct WideOf<double> {
  using type = long double;
};
template <class T> const std::vector<T>& points() {
  static const std::vector<T> x = [] {
    std::vector<T> v;
    if constexpr (sizeof(T) == 4) {
      for (std::uint64_t bits = 0; bits <= 0xffffffffu; bits += 97)
        v.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    } else {
      std::mt19937_64 random(1);
      int unused = 0;
      for (int i = 0; i < 2000000; ++i) {
        double d = std::bit_cast<double>(random());
        if (i % 4) d = std::ldexp(std::frexp(d, &unused), static_cast<int>(random() % 21) - 10);
        v.push_back(d);
      }
    }
    return v;
  }();
  return x;
}
/// Prints the largest error in each range, and where it is.
template <class T, class F, class E> void measure(const char* name, const F& f, const E& exact) {
  using W = typename WideOf<T>::type;
  const auto& x = points<T>();
  const auto y = ts::to_host(ts::eval(f(ts::shard(x, ts::Mesh{}))));
  const double edges[] = {-HUGE_VAL, -80, -20, -5, -1, -0.01, 0, 0.01, 1, 20, 3e37, HUGE_VAL};
  double worst[12]{}, at[12]{};
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) || std::isinf(x[i])) continue;
    int r = 0;
    while (r < 10 && double(x[i]) >= edges[r + 1]) ++r;
    const double u = ulps(y[i], static_cast<W>(exact(static_cast<W>(x[i]))));
    if (u > worst[r]) worst[r] = u, at[r] = double(x[i]);
  }
  std::printf("%-10s %s", name, sizeof(T) == 4 ? "f32" : "f64");
  for (int r = 0; r < 11; ++r) std::printf("  [%g %.3g@%.4g]", edges[r], worst[r], at[r]);
  std::printf("\n");
  std::fflush(stdout);
}
/// The same of a function of two operands, in ranges of the second, where the result is a normal number.
template <class T, class F, class E> void measure_pairs(const char* name, const F& f, const E& exact) {
  using W = typename WideOf<T>::type;
  const auto& x = points<T>();
  std::vector<T> second = x;
  std::shuffle(second.begin(), second.end(), std::mt19937_64(2));
  const auto y = ts::to_host(ts::eval(f(ts::shard(x, ts::Mesh{}), ts::shard(second, ts::Mesh{}))));
  const double edges[] = {-HUGE_VAL, -1, -0.5, -1e-3, 0, 1e-3, 0.5, 2, 1e3, HUGE_VAL};
  double worst[9]{}, at[9]{};
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i]) || !std::isfinite(second[i])) continue;
    int r = 0;
    while (r < 8 && double(second[i]) >= edges[r + 1]) ++r;
    const W wanted = static_cast<W>(exact(static_cast<W>(x[i]), static_cast<W>(second[i])));
    if (std::fabs(wanted) < W(std::numeric_limits<T>::min())) continue;
    const double u = ulps(y[i], wanted);
    if (u > worst[r]) worst[r] = u, at[r] = double(second[i]);
  }
  std::printf("%-10s %s", name, sizeof(T) == 4 ? "f32" : "f64");
  for (int r = 0; r < 9; ++r) std::printf("  [%g %.3g@%.4g]", edges[r], worst[r], at[r]);
  std::printf("\n");
  std::fflush(stdout);
}
/// The error of multigammaln of P dims, in ulp of the largest of its terms and its result, which crosses 0.
template <class T, int P> void measure_multigammaln() {
  std::mt19937_64 random(1);
  std::vector<T> x;
  for (int i = 0; i < 3000000; ++i) {
    const double above = std::ldexp(1 + double(random() % 1000003) / 1000003, static_cast<int>(random() % 14) - 4);
    x.push_back(static_cast<T>((P - 1) / 2. + above));
  }
  const auto y = ts::to_host(ts::eval(ts::multigammaln<P>(ts::shard(x, ts::Mesh{}))));
  double worst = 0, at = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    long double sum = P * (P - 1) / 4.L * std::log(std::acos(-1.L)), largest = sum;
    for (int k = 0; k < P; ++k) {
      const long double term = std::lgamma(static_cast<long double>(x[i]) - k / 2.L);
      sum += term;
      largest = std::max(largest, std::fabs(term));
    }
    int exponent = 0;
    std::frexp(static_cast<double>(std::max(largest, std::fabs(sum))), &exponent);
    const auto u = static_cast<double>(std::fabs(static_cast<long double>(y[i]) - sum) /
                                       std::ldexp(1.L, exponent - std::numeric_limits<T>::digits));
    if (u > worst) worst = u, at = double(x[i]);
  }
  std::printf("multigammaln<%d> %s  %.3g@%.4g\n", P, sizeof(T) == 4 ? "f32" : "f64", worst, at);
}
template <class T> void all() {
  using W = typename WideOf<T>::type;
  const auto softplus = [](W x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); };
  measure<T>(
      "elu", [](const auto& x) { return ts::elu(x); }, [](W x) { return x > 0 ? x : std::expm1(x); });
  measure<T>(
      "celu .75", [](const auto& x) { return ts::celu(x, 0.75); },
      [](W x) { return x > 0 ? x : W(0.75) * std::expm1(x / W(0.75)); });
  measure<T>(
      "selu", [](const auto& x) { return ts::selu(x); },
      [](W x) {
        return W(1.0507009873554804934193349852946L) *
               (x > 0 ? x : W(1.6732632423543772848170429916717L) * std::expm1(x));
      });
  measure<T>(
      "softplus", [](const auto& x) { return ts::softplus(x); }, softplus);
  measure<T>(
      "mish", [](const auto& x) { return ts::mish(x); }, [&](W x) { return x * std::tanh(softplus(x)); });
  measure<T>(
      "logsigmoid", [](const auto& x) { return ts::logsigmoid(x); }, [&](W x) { return -softplus(-x); });
  measure<T>(
      "softsign", [](const auto& x) { return ts::softsign(x); }, [](W x) { return x / (1 + std::fabs(x)); });
  measure<T>(
      "hardsigm", [](const auto& x) { return ts::hardsigmoid(x); },
      [](W x) { return std::min(std::max(x + 3, W(0)), W(6)) / 6; });
  measure<T>(
      "hardswish", [](const auto& x) { return ts::hardswish(x); },
      [](W x) { return x * std::min(std::max(x + 3, W(0)), W(6)) / 6; });
  measure<T>(
      "tanhshrink", [](const auto& x) { return ts::tanhshrink(x); },
      [](W x) { return std::fabs(x) < W(1e-4) ? x * x * x / 3 - 2 * x * x * x * x * x / 15 : x - std::tanh(x); });
  measure<T>(
      "logit", [](const auto& x) { return ts::logit(x); }, [](W x) { return std::log(x) - std::log1p(-x); });
  measure<T>(
      "entr", [](const auto& x) { return ts::entr(x); },
      [](W x) { return x > 0    ? -x * std::log(x)
                       : x == 0 ? W(0)
                                : -std::numeric_limits<W>::infinity(); });
  measure<T>(
      "leaky", [](const auto& x) { return ts::leaky_relu(x, 0.25); }, [](W x) { return x > 0 ? x : x / 4; });
  measure_pairs<T>(
      "xlogy", [](const auto& x, const auto& y) { return ts::xlogy(x, y); },
      [](W x, W y) { return x == 0 ? W(0) : x * std::log(y); });
  measure_pairs<T>(
      "xlog1py", [](const auto& x, const auto& y) { return ts::xlog1py(x, y); },
      [](W x, W y) { return x == 0 ? W(0) : x * std::log1p(y); });
  measure_multigammaln<T, 2>();
  measure_multigammaln<T, 3>();
  measure_multigammaln<T, 6>();
}

}  // namespace

int main() { all<float>(), all<double>(); }
