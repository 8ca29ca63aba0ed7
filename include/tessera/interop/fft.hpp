#ifndef TESSERA_INTEROP_FFT_HPP
#define TESSERA_INTEROP_FFT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/interop/complex.hpp>
#include <tessera/interop/fft/transform_functions.hpp>
#include <tessera/ops/custom/custom_call.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/repeat.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/tensor/creation.hpp>

/// Discrete Fourier transforms of tensors of float or double, computed with Eigen's kissfft. There is no complex
/// element type: a complex tensor is a pair of tensors. The gradient of a transform is the adjoint transform. If the
/// dim of a transform is split, an all_to_all moves its axes to another dim that they divide; otherwise the dim is
/// gathered. Other dims stay split, without communication.
///
///     #include <tessera/interop/fft.hpp>              // target tessera::eigen, or tessera::tessera
///     const auto [re, im] = ts::fft::rfft<-1>(signal);                      // [batch/data, n / 2 + 1]
///     const auto power = re * re + im * im;
namespace tessera::fft {

using tessera::Complex;

/// The normalisation of a transform of n elements, as `norm` of PyTorch and JAX: `backward` divides inverse transforms
/// by n, `forward` divides forward transforms by n, and `ortho` divides both by the square root of n.
enum class Norm : std::uint8_t { backward, ortho, forward };

namespace detail {

using tessera::detail::complex_of;

/// Applies a function along a dim: makes it the last dim, and moves it back afterwards.
template <class Function, int Result, class T, int Rank, int Dim> struct AlongTag {
  static constexpr auto leading_dims = ops::LeadingDims::extended;
  template <class... A> using result = Typed<T, Rank>;
  static constexpr Value moved(Value context, Value x) {
    return build::move_dim(x.at(context.source), x.shifted(Dim, Rank), x.rank() - 1);
  }
  static constexpr Value back(Value y) { return build::move_dim(y, y.rank() - 1, y.shifted(Dim, Rank)); }
  static constexpr Value emit(Value context, Value x) { return back(apply<Function, T>(Result, moved(context, x))); }
  static constexpr Value emit(Value context, Value x, Value y) {
    return back(apply<Function, T>(Result, moved(context, x), moved(context, y)));
  }
};

/// f<D>(...f<B>(f<A>(z))) of the dims A, B, ..., D.
template <int... Dims, class F, class Z> constexpr auto along_given(const F& f, const Z& z) {
  if constexpr (sizeof...(Dims) == 0)
    return z;
  else
    return [&]<int First, int... Rest>(std::integer_sequence<int, First, Rest...>) {
      return along_given<Rest...>(f, f.template operator()<First>(z));
    }(std::integer_sequence<int, Dims...>{});
}
/// f along dims from 0 on; of none, along all.
template <int Rank, int... Dims, class F, class Z> constexpr auto along_each(const F& f, const Z& z) {
  if constexpr (sizeof...(Dims) == 0) {
    return [&]<int... All>(std::integer_sequence<int, All...>) {
      return along_given<All...>(f, z);
    }(std::make_integer_sequence<int, Rank>{});
  } else {
    static_assert(tessera::detail::bit_count(tessera::detail::dim_set<Rank, Dims...>()) == sizeof...(Dims),
                  "tessera: a dim is given twice to a Fourier transform");
    return along_given<tessera::detail::checked_dim<Dims, Rank>()...>(f, z);
  }
}
/// f<last, others...>() of dims; of none, of all.
template <int Rank, int... Dims, class F> constexpr auto but_last(const F& f) {
  static_assert(
      sizeof...(Dims) == 0 || tessera::detail::bit_count(tessera::detail::dim_set<Rank, Dims...>()) == sizeof...(Dims),
      "tessera: a dim is given twice to a Fourier transform");
  constexpr int count = sizeof...(Dims) == 0 ? Rank : static_cast<int>(sizeof...(Dims));
  constexpr auto dim = [](int i) {
    const int given[] = {tessera::detail::checked_dim<Dims, Rank>()..., 0};
    return sizeof...(Dims) == 0 ? i : given[i];
  };
  return [&]<int... I>(std::integer_sequence<int, I...>) {
    return f.template operator()<dim(count - 1), dim(I)...>();
  }(std::make_integer_sequence<int, count - 1>{});
}

/// Element 0 moved to n / 2, or back.
template <int Rank, int D, bool Back> struct ShiftTag {
  static constexpr auto leading_dims = ops::LeadingDims::extended;
  template <class X> using result = Typed<typename X::type, Rank>;
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    const Value half = build::extent(x, x.shifted(D, Rank)) / x.number(2, DType::i64);
    return tessera::detail::RollTag<Rank, D>::emit(context, x, Back ? -half : half);
  }
};

/// Computed in f64, from the size of the signal and the distance of its elements.
template <class T, bool Half> struct FrequencyTag {
  static_assert(is_floating_v<T>, "tessera: fftfreq and rfftfreq make tensors of float, double, bf16 and f16");
  static constexpr const char* function = Half ? "rfftfreq" : "fftfreq";
  template <class X, class N, class Distance> using result = Typed<T, 1>;
  static constexpr Value emit(Value context, Value, Value n, Value distance) {
    n = tessera::detail::as_size(n).at(context.source);
    const Value count = Half ? n / n.number(2) + n.number(1) : n, size = build::cast(n, DType::f64);
    const Value line = build::arange(count);
    Value place = build::cast(line, DType::f64);
    if (!Half) place = build::select(build::less(place * 2.0, size), place, place - size);
    return build::cast(place / (size * build::cast(distance, DType::f64)), dtype_v<T>);
  }
};

template <class X, class... Others> constexpr bool takes() {
  constexpr bool floats = std::is_same_v<typename X::element, float> || std::is_same_v<typename X::element, double>;
  constexpr bool alike =
      ((std::is_same_v<typename X::element, typename Others::element> && X::rank == Others::rank) && ...);
  static_assert(floats, "tessera: Fourier transforms are for tensors of float or double; convert it with ts::cast");
  static_assert(alike, "tessera: the real and the imaginary tensor have the same element type and rank");
  return floats && alike;
}
template <class Function, int D, class X, class... Others>
constexpr auto complex_result(Source source, const X& x, const Others&... others) {
  constexpr int dim = tessera::detail::checked_dim<D, X::rank>();
  using T = typename X::element;
  const auto re = call<AlongTag<Function, 0, T, X::rank, dim>>(source, x, others...);
  const auto im = call<AlongTag<Function, 1, T, X::rank, dim>>(source, x, others...);
  return Complex<std::remove_const_t<decltype(re)>, std::remove_const_t<decltype(im)>>{re, im};
}

/// The result of a transform of n elements with another norm than `backward`: times what it is then multiplied by. n is
/// the extent of the result, or that of a further operand.
template <Norm By, Direction Way, int Rank, int Dim> struct NormTag {
  static constexpr auto leading_dims = ops::LeadingDims::extended;
  template <class X, class... Of> using result = Typed<typename X::type, Rank>;
  static constexpr Value emit(Value context, Value x) { return emit(context, x, x); }
  static constexpr Value emit(Value context, Value x, Value of) {
    x = x.at(context.source);
    const Value n = build::cast(build::extent(of, of.shifted(Dim, Rank)), x.dtype());
    const Value factor = By == Norm::ortho ? build::sqrt(n) : n;
    return Way == Direction::forward ? x / factor : x * factor;
  }
};
template <Norm By, Direction Way, int D, class X, class... Of>
constexpr auto with_norm(Here at, const X& x, const Of&... of) {
  if constexpr (By == Norm::backward)
    return x;
  else
    return call<NormTag<By, Way, X::rank, tessera::detail::checked_dim<D, X::rank>()>>(Source::from(at), x, of...);
}
template <Norm By, Direction Way, int D, class Real, class Imag, class... Of>
constexpr auto with_norm(Here at, const Complex<Real, Imag>& z, const Of&... of) {
  return complex_of(with_norm<By, Way, D>(at, z.real, of...), with_norm<By, Way, D>(at, z.imag, of...));
}
/// The norm of the transform in the other direction that has the same factor.
constexpr Norm turned(Norm by) {
  return by == Norm::backward ? Norm::forward : by == Norm::forward ? Norm::backward : Norm::ortho;
}

}  // namespace detail

/// The transform along dim D, by default the last, of a complex tensor: y[k] = sum of x[j] exp(-2 pi i j k / n).
/// torch.fft.fft, jnp.fft.fft. With another norm: `fft<-1, Norm::ortho>(real, imag)`.
template <int D = -1, Norm By = Norm::backward, TensorOperand Real, TensorOperand Imag>
constexpr auto fft(const Real& real, const Imag& imag, Here at = Here::current()) {
  if constexpr (detail::takes<Real, Imag>()) {
    using Function = detail::Fft<detail::Direction::forward, detail::Scale::one>;
    return detail::with_norm<By, detail::Direction::forward, D>(
        at, detail::complex_result<Function, D>(Source::from(at), real, imag));
  }
}
/// The inverse of fft: x[j] = 1 / n times the sum of y[k] exp(2 pi i j k / n).
template <int D = -1, Norm By = Norm::backward, TensorOperand Real, TensorOperand Imag>
constexpr auto ifft(const Real& real, const Imag& imag, Here at = Here::current()) {
  if constexpr (detail::takes<Real, Imag>()) {
    using Function = detail::Fft<detail::Direction::inverse, detail::Scale::mean>;
    return detail::with_norm<By, detail::Direction::inverse, D>(
        at, detail::complex_result<Function, D>(Source::from(at), real, imag));
  }
}
/// The transform along dim D of a real tensor: elements 0 to n / 2 of fft; the other elements are their conjugates.
template <int D = -1, Norm By = Norm::backward, TensorOperand X>
constexpr auto rfft(const X& x, Here at = Here::current()) {
  if constexpr (detail::takes<X>())
    return detail::with_norm<By, detail::Direction::forward, D>(
        at, detail::complex_result<detail::Rfft, D>(Source::from(at), x), x);
}
/// The inverse of rfft, a real tensor: m elements give 2 (m - 1) elements along dim D, or with Length::odd one more.
template <int D = -1, Length Of = Length::even, Norm By = Norm::backward, TensorOperand Real, TensorOperand Imag>
constexpr auto irfft(const Real& real, const Imag& imag, Here at = Here::current()) {
  if constexpr (detail::takes<Real, Imag>()) {
    const auto made =
        call<detail::AlongTag<detail::Irfft<Of>, 0, typename Real::element, Real::rank,
                              tessera::detail::checked_dim<D, Real::rank>()>>(Source::from(at), real, imag);
    return detail::with_norm<By, detail::Direction::inverse, D>(at, made);
  }
}

/// The real transform of a Hermitian-symmetric signal, of which the first n / 2 + 1 elements are given: n times irfft
/// of the conjugates, with the extent of irfft (torch.fft.hfft, jnp.fft.hfft).
template <int D = -1, Length Of = Length::even, Norm By = Norm::backward, TensorOperand Real, TensorOperand Imag>
constexpr auto hfft(const Real& real, const Imag& imag, Here at = Here::current()) {
  return irfft<D, Of, detail::turned(By)>(real, -imag, at);
}
/// The inverse of hfft: the conjugates of rfft divided by n.
template <int D = -1, Norm By = Norm::backward, TensorOperand X>
constexpr auto ihfft(const X& x, Here at = Here::current()) {
  const auto made = rfft<D, detail::turned(By)>(x, at);
  return detail::complex_of(made.real, -made.imag);
}

/// fft along several dims, one after the other; without dims, along all: `fftn<0, 1>(real, imag)`, or with a norm
/// `fftn<Norm::ortho, 0, 1>(real, imag)`. torch.fft.fftn, jnp.fft.fftn. Communication: that of each dim.
template <Norm By, int... Dims, TensorOperand Real, TensorOperand Imag>
constexpr auto fftn(const Real& real, const Imag& imag, Here at = Here::current()) {
  return detail::along_each<Real::rank, Dims...>([&]<int D>(const auto& z) { return fft<D, By>(z.real, z.imag, at); },
                                                 detail::complex_of(real, imag));
}
template <int... Dims, TensorOperand Real, TensorOperand Imag>
constexpr auto fftn(const Real& real, const Imag& imag, Here at = Here::current()) {
  return fftn<Norm::backward, Dims...>(real, imag, at);
}
/// The inverse of fftn.
template <Norm By, int... Dims, TensorOperand Real, TensorOperand Imag>
constexpr auto ifftn(const Real& real, const Imag& imag, Here at = Here::current()) {
  return detail::along_each<Real::rank, Dims...>([&]<int D>(const auto& z) { return ifft<D, By>(z.real, z.imag, at); },
                                                 detail::complex_of(real, imag));
}
template <int... Dims, TensorOperand Real, TensorOperand Imag>
constexpr auto ifftn(const Real& real, const Imag& imag, Here at = Here::current()) {
  return ifftn<Norm::backward, Dims...>(real, imag, at);
}
/// fftn of a real tensor: along the last of the dims it has elements 0 to n / 2, as rfft.
template <Norm By, int... Dims, TensorOperand X> constexpr auto rfftn(const X& x, Here at = Here::current()) {
  return detail::but_last<X::rank, Dims...>([&]<int Last, int... Rest>() {
    const auto half = rfft<Last, By>(x, at);
    return detail::along_given<Rest...>([&]<int D>(const auto& z) { return fft<D, By>(z.real, z.imag, at); }, half);
  });
}
template <int... Dims, TensorOperand X> constexpr auto rfftn(const X& x, Here at = Here::current()) {
  return rfftn<Norm::backward, Dims...>(x, at);
}
/// The inverse of rfftn; the extent of the last of the dims is that of irfft: `irfftn<Length::odd, Norm::ortho, 0,
/// 1>(real, imag)`.
template <Length Of, Norm By, int... Dims, TensorOperand Real, TensorOperand Imag>
constexpr auto irfftn(const Real& real, const Imag& imag, Here at = Here::current()) {
  return detail::but_last<Real::rank, Dims...>([&]<int Last, int... Rest>() {
    const auto whole = detail::along_given<Rest...>(
        [&]<int D>(const auto& z) { return ifft<D, By>(z.real, z.imag, at); }, detail::complex_of(real, imag));
    return irfft<Last, Of, By>(whole.real, whole.imag, at);
  });
}
template <int... Dims, TensorOperand Real, TensorOperand Imag>
constexpr auto irfftn(const Real& real, const Imag& imag, Here at = Here::current()) {
  return irfftn<Length::even, Norm::backward, Dims...>(real, imag, at);
}

/// fftn, ifftn, rfftn and irfftn along the last two dims (torch.fft.fft2, ...).
template <Norm By = Norm::backward, TensorOperand Real, TensorOperand Imag>
constexpr auto fft2(const Real& real, const Imag& imag, Here at = Here::current()) {
  return fftn<By, -2, -1>(real, imag, at);
}
template <Norm By = Norm::backward, TensorOperand Real, TensorOperand Imag>
constexpr auto ifft2(const Real& real, const Imag& imag, Here at = Here::current()) {
  return ifftn<By, -2, -1>(real, imag, at);
}
template <Norm By = Norm::backward, TensorOperand X> constexpr auto rfft2(const X& x, Here at = Here::current()) {
  return rfftn<By, -2, -1>(x, at);
}
template <Length Of = Length::even, Norm By = Norm::backward, TensorOperand Real, TensorOperand Imag>
constexpr auto irfft2(const Real& real, const Imag& imag, Here at = Here::current()) {
  return irfftn<Of, By, -2, -1>(real, imag, at);
}

/// Moves frequency 0 to the middle, element n / 2, of each of the dims, by default of all dims (torch.fft.fftshift,
/// jnp.fft.fftshift). `ifftshift` moves it back. Communication: that of roll.
template <int... Dims, TensorArgument X> constexpr auto fftshift(const X& x, Here at = Here::current()) {
  return detail::along_each<X::rank, Dims...>(
      [&]<int D>(const auto& v) { return call<detail::ShiftTag<X::rank, D, false>>(Source::from(at), v); }, x);
}
template <int... Dims, TensorArgument X> constexpr auto ifftshift(const X& x, Here at = Here::current()) {
  return detail::along_each<X::rank, Dims...>(
      [&]<int D>(const auto& v) { return call<detail::ShiftTag<X::rank, D, true>>(Source::from(at), v); }, x);
}

/// The frequencies of the n elements of fft, for samples at a distance d: 0, 1, ..., (n - 1) / 2, -(n / 2), ..., -1,
/// divided by n d (torch.fft.fftfreq, jnp.fft.fftfreq). A stored vector, by default of float; in a traced function,
/// pass any tensor of that function instead of the mesh. `rfftfreq` has the n / 2 + 1 frequencies of rfft.
///
///     const auto frequencies = ts::fft::fftfreq(5, mesh);   // 0, 0.2, 0.4, -0.4, -0.2
template <Element T = float>
ShardedTensor<T, 1> fftfreq(Extent n, const Mesh& mesh, double d = 1, const PartitionSpec& spec = {},
                            Here at = Here::current()) {
  const std::int64_t count = n.value;
  return tessera::detail::vector_of<T>("fftfreq", count, mesh, spec, at, [count, d](std::int64_t k) {
    return static_cast<double>(2 * k < count ? k : k - count) / (static_cast<double>(count) * d);
  });
}
template <Element T = float>
ShardedTensor<T, 1> rfftfreq(Extent n, const Mesh& mesh, double d = 1, const PartitionSpec& spec = {},
                             Here at = Here::current()) {
  const std::int64_t count = n.value;
  return tessera::detail::vector_of<T>("rfftfreq", count / 2 + 1, mesh, spec, at, [count, d](std::int64_t k) {
    return static_cast<double>(k) / (static_cast<double>(count) * d);
  });
}
template <Element T = float, SizeOperand N, TensorArgument X, NumberOperand Distance = double>
constexpr auto fftfreq(const N& n, const X& in, const Distance& d = 1.0, Here at = Here::current()) {
  return call<detail::FrequencyTag<T, false>>(Source::from(at), in, Dim(n), d);
}
template <Element T = float, SizeOperand N, TensorArgument X, NumberOperand Distance = double>
constexpr auto rfftfreq(const N& n, const X& in, const Distance& d = 1.0, Here at = Here::current()) {
  return call<detail::FrequencyTag<T, true>>(Source::from(at), in, Dim(n), d);
}

}  // namespace tessera::fft

#include <tessera/base/pop_macros.hpp>

#endif
