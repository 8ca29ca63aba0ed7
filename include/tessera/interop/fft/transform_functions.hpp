#ifndef TESSERA_INTEROP_FFT_TRANSFORM_FUNCTIONS_HPP
#define TESSERA_INTEROP_FFT_TRANSFORM_FUNCTIONS_HPP
#include <tessera/base/push_macros.hpp>

#include <complex>
#include <cstdint>
#include <string_view>
#include <vector>

#include <unsupported/Eigen/FFT>

#include <tessera/ops/custom/custom_call.hpp>
#include <tessera/ops/data_movement/slicing_rows.hpp>
#include <tessera/ops/elementwise.hpp>

// Transforms of vectors, for ts::custom_call, with their gradients. A complex vector is a pair.

namespace tessera::fft {

/// Whether the result of irfft has an even or an odd extent along the dim.
enum class Length : bool { even, odd };

namespace detail {

enum class Direction : bool { forward, inverse };
/// Whether a transform divides by the number of elements.
enum class Scale : bool { one, mean };

template <class T> Eigen::FFT<T>& transform() {
  // It keeps the factors of earlier lengths.
  static thread_local Eigen::FFT<T> own(
      Eigen::default_fft_impl<T>(),
      static_cast<typename Eigen::FFT<T>::Flag>(Eigen::FFT<T>::Unscaled | Eigen::FFT<T>::HalfSpectrum));
  return own;
}
/// Two buffers of complex numbers, which are reused.
template <class T> std::complex<T>* buffer(int which, std::int64_t size) {
  static thread_local std::vector<std::complex<T>> own[2];
  std::vector<std::complex<T>>& made = own[which];
  if (made.size() < static_cast<std::size_t>(size)) made.resize(static_cast<std::size_t>(size));
  return made.data();
}

template <class Function, class T> constexpr Value apply(int k, Value x) {
  return build::custom_call(tessera::detail::custom_row_v<Function, T>, &x, k);
}
template <class Function, class T> constexpr Value apply(int k, Value x, Value y) {
  const Value operands[] = {x, y};
  return build::custom_call(tessera::detail::custom_row_v<Function, T, T>, operands, k);
}

/// y[k] = sum of x[j] exp(-2 pi i j k / n), with + for the inverse; both as real and imaginary parts.
template <Direction Way, Scale By> struct Fft {
  static constexpr std::string_view name = Way == Direction::forward ? "fft" : "ifft";
  static constexpr std::string_view signature = "(n),(n)->(n),(n)";

  template <class T>
  static void run(CallArray<const T, 1> re, CallArray<const T, 1> im, CallArray<T, 1> to_re, CallArray<T, 1> to_im) {
    const std::int64_t n = re.extent(0);
    std::complex<T>*const from = buffer<T>(0, n), *const to = buffer<T>(1, n);
    for (std::int64_t j = 0; j < n; ++j) from[j] = {re(j), im(j)};
    if (n <= 1)
      for (std::int64_t j = 0; j < n; ++j) to[j] = from[j];
    else if constexpr (Way == Direction::forward)
      transform<T>().fwd(to, from, static_cast<Eigen::Index>(n));
    else
      transform<T>().inv(to, from, static_cast<Eigen::Index>(n));
    const T scale = By == Scale::mean ? T(1) / static_cast<T>(n) : T(1);
    for (std::int64_t k = 0; k < n; ++k) {
      to_re(k) = to[k].real() * scale;
      to_im(k) = to[k].imag() * scale;
    }
  }
  /// The transform in the other direction: its matrix is symmetric, and the cotangent of (re, im) is that of re + i im.
  template <class T, class> static constexpr void gradient(Gradient& r) {
    using Adjoint = Fft<Way == Direction::forward ? Direction::inverse : Direction::forward, By>;
    const Value g = r.full_g(), zeros = build::broadcast(g.number(0), g);
    const bool of_real = CustomCall::of(r.node()).result == 0;
    const Value re = of_real ? g : zeros, im = of_real ? zeros : g;
    r.add(0, apply<Adjoint, T>(0, re, im));
    r.add(1, apply<Adjoint, T>(1, re, im));
  }
};

/// The first n / 2 + 1 numbers of the transform of a real vector; the others are their conjugates.
struct Rfft {
  static constexpr std::string_view name = "rfft";
  static constexpr std::string_view signature = "(n)->(m),(m)";
  static constexpr std::int64_t extent(char, const CallExtents& known) { return known['n'] / 2 + 1; }

  template <class T> static void run(CallArray<const T, 1> x, CallArray<T, 1> to_re, CallArray<T, 1> to_im) {
    const std::int64_t n = x.extent(0), m = to_re.extent(0);
    std::complex<T>* const to = buffer<T>(0, m);
    if (n <= 1)
      to[0] = n == 0 ? T(0) : x(0);
    else
      transform<T>().fwd(to, x.data(), static_cast<Eigen::Index>(n));
    for (std::int64_t k = 0; k < m; ++k) {
      to_re(k) = to[k].real();
      to_im(k) = to[k].imag();
    }
  }
  /// The real part of the inverse transform of the cotangent, with zeros where rfft leaves numbers out.
  template <class T> static constexpr void gradient(Gradient& r) {
    const Value x = r.x(0);
    const Value g = build::pad(r.full_g(), x.rank() - 1, x.number(0, DType::i64), x);
    const Value zeros = build::broadcast(g.number(0), g);
    const bool of_real = CustomCall::of(r.node()).result == 0;
    r.add(0, apply<Fft<Direction::inverse, Scale::one>, T>(0, of_real ? g : zeros, of_real ? zeros : g));
  }
};

/// The real vector whose rfft is given. Imaginary parts that no real vector has, of the first number and for an even
/// length of the last, are ignored.
template <Length Of> struct Irfft {
  static constexpr std::string_view name = "irfft";
  static constexpr std::string_view signature = "(m),(m)->(n)";
  static constexpr std::int64_t extent(char, const CallExtents& known) {
    const std::int64_t last = known['m'] > 0 ? known['m'] - 1 : 0;
    return 2 * last + (Of == Length::odd && known['m'] > 0 ? 1 : 0);
  }

  template <class T> static void run(CallArray<const T, 1> re, CallArray<const T, 1> im, CallArray<T, 1> y) {
    const std::int64_t n = y.extent(0), m = re.extent(0);
    if (n == 0) return;
    std::complex<T>* const from = buffer<T>(0, m);
    for (std::int64_t k = 0; k < m; ++k) from[k] = {re(k), im(k)};
    from[0] = re(0);
    if (Of == Length::even) from[m - 1] = re(m - 1);
    if (n == 1)
      y(0) = re(0);
    else
      transform<T>().inv(y.data(), from, static_cast<Eigen::Index>(n));
    for (std::int64_t j = 0; j < n; ++j) y(j) /= static_cast<T>(n);
  }
  /// c[k] / n times the rfft of the cotangent, where c is 2 for numbers that stand for their conjugates too,
  /// otherwise 1.
  template <class T, class> static constexpr void gradient(Gradient& r) {
    const Value g = r.full_g();
    const int dim = g.rank() - 1;
    const Value count = build::cast(build::extent(r.y(), dim), g.dtype());
    for (int i = 0; i < 2; ++i) {
      if (!r.needs(i)) continue;
      const Value made = apply<Rfft, T>(i, g);
      const Value at = build::iota(made, dim, DType::i64);
      Value alone = build::equal(at, at.number(0));
      if (Of == Length::even)
        alone = build::logical_or(alone, build::equal(at, build::extent(r.x(0), dim) - at.number(1)));
      r.add(i, build::select(alone, made, made * 2.0) / count);
    }
  }
};

}  // namespace detail

}  // namespace tessera::fft

#include <tessera/base/pop_macros.hpp>

#endif
