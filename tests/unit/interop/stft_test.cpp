// Transforms of the frames of a signal, against sums of cosines and sines in double.
#include <cmath>
#include <cstdint>
#include <random>
#include <tuple>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/interop/stft.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/creation/window_functions.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;

namespace {

using Values = std::vector<double>;
using Index = std::int64_t;
double& at(Values& v, Index i) { return v[static_cast<std::size_t>(i)]; }

constexpr ts::fft::Stft centered{.n_fft = 8, .hop_length = 3}, plain{.n_fft = 6, .hop_length = 2, .center = false};

/// The definition, from the page of torch.stft: the element j of frame t is element t hop + j of the padded signal.
std::tuple<Values, Values> transforms(Values x, Index batch, Index n, const ts::fft::Stft& o, Values window) {
  const Index pad = o.center ? o.n_fft / 2 : 0, frames = (n + 2 * pad - o.n_fft) / o.hop() + 1, bins = o.n_fft / 2 + 1;
  Values re(static_cast<std::size_t>(batch * bins * frames)), im = re;
  for (Index b = 0; b < batch; ++b)
    for (Index k = 0; k < bins; ++k)
      for (Index t = 0; t < frames; ++t)
        for (Index j = 0; j < o.n_fft; ++j) {
          Index i = t * o.hop() + j - pad;
          if (i < 0) i = -i;
          if (i >= n) i = 2 * (n - 1) - i;
          const double v = at(x, b * n + i) * at(window, j);
          const double angle = 2 * M_PI * static_cast<double>(j * k) / static_cast<double>(o.n_fft);
          at(re, (b * bins + k) * frames + t) += v * std::cos(angle);
          at(im, (b * bins + k) * frames + t) -= v * std::sin(angle);
        }
  return {re, im};
}

template <ts::fft::Stft O>
constexpr auto forward = ts::compile([](auto x, auto window) {
  const auto [re, im] = ts::fft::stft(x, O, window);
  const auto energy = ts::grad([](const auto& v, const auto& w) {
    const auto [a, b] = ts::fft::stft(v, O, w);
    return ts::sum(a * a * 0.5 + b * b * b);
  });
  return std::tuple(re, im, ts::fft::istft(re, im, O, window), energy(x, window));
});

void expect_close(const Values& got, const Values& want, double tolerance, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance) << what << " " << i;
}

template <ts::fft::Stft O> void expect_transforms(Index batch, Index n) {
  std::mt19937 random(static_cast<unsigned>(n));
  Values x(static_cast<std::size_t>(batch * n));
  for (double& v : x) v = std::uniform_real_distribution<double>(-1, 1)(random);
  const Values window = ts::to_host(ts::hamming_window<double>(O.n_fft, ts::Mesh{}));
  const auto [re, im] = transforms(x, batch, n, O, window);
  const auto energy = [&](const Values& v) {
    auto [a, b] = transforms(v, batch, n, O, window);
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * a[i] * 0.5 + b[i] * b[i] * b[i];
    return sum;
  };
  Values slope(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    Values more = x, less = x;
    more[i] += 1e-5;
    less[i] -= 1e-5;
    slope[i] = (energy(more) - energy(less)) / 2e-5;
  }
  for (const int devices : {1, 2, 3})
    for (const ts::PartitionSpec& spec : {ts::PartitionSpec{"x"}, {ts::none, "x"}}) {
      SCOPED_TRACE(ts::concat_text(devices, " devices, ", n, " ", spec.text()));
      const ts::Mesh mesh({{"x", devices}});
      const auto [a, b, back, gradient] =
          forward<O>(ts::shard(x, {batch, n}, mesh, spec), ts::hamming_window<double>(O.n_fft, mesh));
      expect_close(ts::to_host(a), re, 1e-12, "real part");
      expect_close(ts::to_host(b), im, 1e-12, "imaginary part");
      expect_close(ts::to_host(gradient), slope, 1e-7, "gradient");
      const Values whole = ts::to_host(back);
      const Index length = static_cast<Index>(whole.size()) / batch;
      ASSERT_LE(length, n);
      ASSERT_GT(length, n - O.hop());
      for (Index i = 0; i < batch * length; ++i)
        ASSERT_NEAR(whole[static_cast<std::size_t>(i)], x[static_cast<std::size_t>(i / length * n + i % length)],
                    1e-12);
    }
}

TEST(Stft, IsTheDefinition) {
  expect_transforms<centered>(3, 21);
  expect_transforms<centered>(1, 9);
  expect_transforms<plain>(2, 16);
  expect_transforms<plain>(4, 7);
}

TEST(Stft, SplitTimeSendsHalos) {
  static constexpr auto only = ts::compile([](auto x, auto window) {
    const auto frames = ts::unfold<-1>(x, 8, 4);
    return frames * window;
  });
  const ts::Mesh mesh({{"x", 2}});
  const ts::Plan plan = only.plan(ts::shard(Values(36), {36}, mesh, {"x"}), ts::hann_window<double>(8, mesh));
  // 8 frames, 4 on each device: rows 0 to 19 and 16 to 35 of 18 on each
  EXPECT_EQ(plan.wire_bytes(), 2 * 8);
  EXPECT_EQ(plan.count(ts::all_gather), 0);
}

TEST(Stft, OddFramesHaveNoInverse) {
  using Signal = ts::ShardedTensor<double, 2>;
  const Signal re = ts::shard(Values(12), {3, 4}, ts::Mesh{}, {});
  tessera_test::expect_error(
      ts::errc::option,
      [&] { ts::eval(ts::fft::istft(re, re, {.n_fft = 5, .hop_length = 1}, ts::hann_window<double>(5, ts::Mesh{}))); },
      "[istft] n_fft: 5 is odd", "stft_test.cpp:");
}

// Values of torch.hann_window(4), and so on, and of scipy.signal.windows with sym=True.
TEST(WindowFunctions, HavePublishedValues) {
  const ts::Mesh mesh({{"x", 3}});
  const auto expect = [](const ts::ShardedTensor<double, 1>& window, const Values& want) {
    expect_close(ts::to_host(window), want, 5e-7, "window");
  };
  expect(ts::hann_window<double>(4, mesh), {0, 0.5, 1, 0.5});
  expect(ts::hann_window<double>(5, mesh, false), {0, 0.5, 1, 0.5, 0});
  expect(ts::hamming_window<double>(4, mesh), {0.08, 0.54, 1, 0.54});
  expect(ts::hamming_window<double>(3, mesh, false, 0.5, 0.5), {0, 1, 0});
  expect(ts::blackman_window<double>(4, mesh), {0, 0.34, 1, 0.34});
  expect(ts::bartlett_window<double>(4, mesh), {0, 0.5, 1, 0.5});
  expect(ts::bartlett_window<double>(4, mesh, false), {0, 2 / 3.0, 2 / 3.0, 0});
  expect(ts::kaiser_window<double>(5, mesh, false, 0), {1, 1, 1, 1, 1});
  const double i0_of_3 = 4.880792585865024, side = std::cyl_bessel_i(0, 3 * std::sqrt(0.75));
  expect(ts::kaiser_window<double>(5, mesh, false, 3), {1 / i0_of_3, side / i0_of_3, 1, side / i0_of_3, 1 / i0_of_3});
  for (const bool periodic : {true, false}) {
    expect(ts::hann_window<double>(1, mesh, periodic), {1});
    expect(ts::kaiser_window<double>(0, mesh, periodic), {});
  }
  EXPECT_EQ(ts::to_host(ts::kaiser_window<float>(3, mesh, false, 700))[1], 1);
  EXPECT_THROW(ts::hann_window(-1, mesh), ts::error);
}

}  // namespace
