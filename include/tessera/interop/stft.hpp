#ifndef TESSERA_INTEROP_STFT_HPP
#define TESSERA_INTEROP_STFT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <type_traits>

#include <tessera/base/error.hpp>
#include <tessera/interop/fft.hpp>
#include <tessera/ops/contraction/window_rows.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/spatial/pad_modes.hpp>
#include <tessera/ops/spatial/unfold.hpp>

namespace tessera::fft {

/// `n_fft` is the length of a frame, `hop_length` the distance between frames, by default a quarter of a frame. With
/// `center`, frame t is centered at element t hop_length, and the signal is reflected at its ends.
struct Stft {
  std::int64_t n_fft = 0, hop_length = 0;
  bool center = true;

  constexpr std::int64_t hop() const { return hop_length != 0 ? hop_length : n_fft / 4; }
  constexpr std::int64_t padding() const { return center ? n_fft / 2 : 0; }
};

namespace detail {

/// Frames [..., frames, n] times a window [n], added up at their places, over the sum of the squares of the windows.
template <int Rank> struct OverlapAddTag {
  template <class X, class Window, class Hop, class Padding> using result = Typed<typename X::type, Rank - 1>;
  static constexpr Value emit(Value context, Value x, Value window, Value hop, Value padding) {
    x = x.at(context.source);
    const int dim = x.rank() - 2;
    const Value one = x.number(1, DType::i64), n = build::extent(window, 0), count = build::extent(x, dim);
    const Value step = tessera::detail::as_size(hop), before = tessera::detail::as_size(padding);
    const Value length = (count - one) * step + n - before - before;
    const auto added = [&](Value frames, int at) {
      const build::FoldDim own{step, one, before, length};
      return build::fold_patches(frames, at, 1, &own, true);
    };
    const Value line = build::arange(count.at(x.source));
    const Value rows = build::cast(build::insert_singletons(line, 2u, 2), x.dtype());
    const Value squares = build::insert_singletons(window * window, 1u, 2) + rows * 0.0;  // of each frame
    return added(x * window, dim) / added(squares, 0);
  }
};

template <class X, class Window> constexpr void check_stft() {
  static_assert(std::is_same_v<typename X::element, typename Window::element> && Window::rank == 1,
                "tessera: the window of stft and istft is a vector of the element type of the signal");
}

}  // namespace detail

/// The transforms of the frames of a signal x [time] or [batch, time], a complex tensor [..., n_fft / 2 + 1, frames]
/// (torch.stft with a window of n_fft elements). Without `center` a signal of n elements has (n - n_fft) / hop_length +
/// 1 frames, with it n / hop_length + 1. Errors: shape_mismatch for a window of another length, and a signal shorter
/// than a frame. Communication: a halo if the time dim is split; each device transforms its own frames.
///
///     #include <tessera/interop/stft.hpp>
///     const auto [re, im] = ts::fft::stft(signal, {.n_fft = 512}, window);   // window = ts::hann_window(512, mesh)
template <TensorOperand X, TensorOperand Window>
constexpr auto stft(const X& x, const Stft& o, const Window& window, Here at = Here::current()) {
  detail::check_stft<X, Window>();
  static_assert(X::rank == 1 || X::rank == 2, "tessera: stft takes a signal [time] or [batch, time]");
  // A reflection of no elements is the signal itself.
  const auto padded = pad<-1, PadMode::reflect>(x, o.padding(), o.padding(), at);
  const auto frames = unfold<-1>(padded, o.n_fft, o.hop(), at);
  const auto made = rfft<-1>(call<MulTag>(Source::from(at), frames, window), at);
  const auto real = swapaxes<-1, -2>(made.real, at), imag = swapaxes<-1, -2>(made.imag, at);
  return Complex<std::remove_const_t<decltype(real)>, std::remove_const_t<decltype(imag)>>{real, imag};
}

/// The inverse of stft (torch.istft), for an even n_fft: frames are transformed back, multiplied by the window, and
/// added; the sum is divided by the sum of the squared windows. The length is (frames - 1) hop_length + n_fft, with
/// `center` without n_fft / 2 elements at each end. NaN where all windows are 0. Errors: option for an odd n_fft;
/// shape_mismatch. Communication: a halo if the dim of frames is split.
template <TensorOperand Real, TensorOperand Imag, TensorOperand Window>
constexpr auto istft(const Real& real, const Imag& imag, const Stft& o, const Window& window,
                     Here at = Here::current()) {
  detail::check_stft<Real, Window>();
  static_assert(Real::rank == 2 || Real::rank == 3,
                "tessera: istft takes [frequencies, frames] or [batch, frequencies, frames]");
  if (o.n_fft % 2 != 0) fail(errc::option, "[istft] n_fft: ", o.n_fft, " is odd", Source::from(at));
  const auto frames = irfft<-1>(swapaxes<-1, -2>(real, at), swapaxes<-1, -2>(imag, at), at);
  return call<detail::OverlapAddTag<Real::rank>>(Source::from(at), frames, window, Dim(o.hop()), Dim(o.padding()));
}

}  // namespace tessera::fft

#include <tessera/base/pop_macros.hpp>

#endif
