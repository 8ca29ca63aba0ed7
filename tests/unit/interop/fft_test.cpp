#include <cmath>
#include <complex>
#include <cstdint>
#include <numbers>
#include <tuple>
#include <vector>

#include "../../support/gradients.hpp"
#include "double_tensors.hpp"
#include <gtest/gtest.h>

#include <tessera/interop/fft.hpp>
#include <tessera/tensor/oracle.hpp>
#include <tessera/tessera.hpp>

namespace ts = tessera;
using tessera_test::check_gradient_of;
using tessera_test::devices;
using tessera_test::Double;
using tessera_test::random_values;

namespace {

constexpr auto transforms = ts::compile([](auto x, auto y) {
  const auto whole = ts::fft::fft<1>(x, y);
  const auto back = ts::fft::ifft<1>(whole.real, whole.imag);
  const auto half = ts::fft::rfft<1>(x);
  return std::tuple(whole.real, whole.imag, back.real, back.imag, half.real, half.imag,
                    ts::fft::irfft<1>(half.real, half.imag),
                    ts::fft::irfft<1, ts::fft::Length::odd>(half.real, half.imag));
});

TEST(Fft, MatchesTheSumsOnShardings) {
  for (const std::int64_t n : {1, 2, 3, 4, 6, 7, 8, 12, 30})
    for (const ts::PartitionSpec& spec :
         {ts::PartitionSpec{}, ts::PartitionSpec{"data"}, ts::PartitionSpec{"data", "model"},
          ts::PartitionSpec{ts::none, ts::none, "model"}}) {
      const std::vector<double> re = random_values(3 * n * 2, 7), im = random_values(3 * n * 2, 8);
      const auto x = ts::shard(re, {3, n, 2}, devices, spec), y = ts::shard(im, {3, n, 2}, devices, spec);
      const ts::OracleScope same_on_one_device;
      const auto [real, imag, back, back_imag, half, half_imag, even, odd] = transforms(x, y);
      const auto host = [](const auto& v) { return ts::to_host(v); };
      const std::vector<double> got_re = host(real), got_im = host(imag), half_re = host(half),
                                half_im = host(half_imag), again = host(back), zeros = host(back_imag),
                                of_even = host(even), of_odd = host(odd);
      const std::int64_t m = n / 2 + 1;
      ASSERT_EQ(ts::shape(half), (ts::Shape{3, m, 2}));
      ASSERT_EQ(ts::shape(even), (ts::Shape{3, 2 * (m - 1), 2}));
      ASSERT_EQ(ts::shape(odd), (ts::Shape{3, 2 * m - 1, 2}));
      for (std::int64_t b = 0; b < 3; ++b)
        for (std::int64_t c = 0; c < 2; ++c)
          for (std::int64_t k = 0; k < n; ++k) {
            std::complex<double> want = 0, of_real = 0;
            for (std::int64_t j = 0; j < n; ++j) {
              const auto i = static_cast<std::size_t>((b * n + j) * 2 + c);
              const std::complex<double> turn =
                  std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(j * k % n) / static_cast<double>(n));
              want += std::complex<double>(re[i], im[i]) * turn;
              of_real += re[i] * turn;
            }
            const auto i = static_cast<std::size_t>((b * n + k) * 2 + c);
            EXPECT_NEAR(got_re[i], want.real(), 1e-9);
            EXPECT_NEAR(got_im[i], want.imag(), 1e-9);
            EXPECT_NEAR(again[i], re[i], 1e-9);
            EXPECT_NEAR(zeros[i], im[i], 1e-9);
            if (k < m) {
              const auto h = static_cast<std::size_t>((b * m + k) * 2 + c);
              EXPECT_NEAR(half_re[h], of_real.real(), 1e-9);
              EXPECT_NEAR(half_im[h], of_real.imag(), 1e-9);
            }
            const std::int64_t length = n % 2 == 0 ? 2 * (m - 1) : 2 * m - 1;
            ASSERT_EQ(length, n);
            EXPECT_NEAR((n % 2 == 0 ? of_even : of_odd)[i], re[i], 1e-9);
          }
    }
}

// Without a dim, transforms are along the last one, as in PyTorch and JAX.
TEST(Fft, AlongTheLastDimByDefault) {
  constexpr auto by_default = ts::compile([](const auto& re, const auto& im) {
    return std::tuple(ts::fft::fft(re, im).real, ts::fft::ifft(re, im).imag, ts::fft::rfft(re).imag,
                      ts::fft::ihfft(re).imag, ts::fft::irfft(re, im), ts::fft::hfft(re, im));
  });
  constexpr auto by_dim = ts::compile([](const auto& re, const auto& im) {
    return std::tuple(ts::fft::fft<-1>(re, im).real, ts::fft::ifft<-1>(re, im).imag, ts::fft::rfft<-1>(re).imag,
                      ts::fft::ihfft<-1>(re).imag, ts::fft::irfft<-1>(re, im), ts::fft::hfft<-1>(re, im));
  });
  const auto x = ts::shard(random_values(20, 7), {4, 5}, devices, {"data"}),
             y = ts::shard(random_values(20, 8), {4, 5}, devices, {"data"});
  const auto got = by_default(x, y), want = by_dim(x, y);
  [&]<std::size_t... K>(std::index_sequence<K...>) {
    EXPECT_TRUE((ts::all_equal(std::get<K>(got), std::get<K>(want)) && ...));
  }(std::make_index_sequence<6>());
}

TEST(Fft, OtherDimsStaySplitWithoutCommunication) {
  const auto on = [](const ts::PartitionSpec& spec) {
    return ts::shard(std::vector<double>(4 * 6 * 2), {4, 6, 2}, devices, spec);
  };
  const auto batch = on({"data", ts::none, "model"}), along = on({ts::none, "model"});
  EXPECT_EQ(transforms.plan(batch, batch).wire_bytes(), 0);
  EXPECT_GT(transforms.plan(along, along).count(ts::all_to_all), 0);
  EXPECT_EQ(transforms.plan(along, along).count(ts::all_gather), 0);
}

constexpr auto of_parts(const auto& z) { return z.real * 2.0 + z.imag * z.imag; }

TEST(Fft, Gradients) {
  const oracle::Array x = oracle::random_array({2, 6}, 1), y = oracle::random_array({2, 6}, 2),
                      odd = oracle::random_array({5, 2}, 3);
  check_gradient_of<2>([](const auto& a, const auto& b) { return of_parts(ts::fft::fft<1>(a, b)); }, x, y);
  check_gradient_of<2>([](const auto& a, const auto& b) { return of_parts(ts::fft::ifft<0>(a, b)); }, x, y);
  check_gradient_of<2>([](const auto& a) { return of_parts(ts::fft::rfft<0>(a)); }, odd);
  check_gradient_of<2>([](const auto& a, const auto& b) { return ts::fft::irfft<1>(a, b) * ts::fft::irfft<1>(b, a); },
                       x, y);
  check_gradient_of<2>(
      [](const auto& a, const auto& b) {
        const auto made = ts::fft::irfft<0, ts::fft::Length::odd>(a, b);
        return made * made;
      },
      x, y);
}

// Along several dims, and other norms.

using Numbers = std::vector<std::complex<double>>;

/// The sums of a transform along one dim of a tensor in row-major order, times `scale`.
Numbers sums_along(const Numbers& x, const ts::Shape& shape, std::size_t dim, int sign, double scale) {
  std::int64_t step = 1;
  for (std::size_t d = shape.size(); d-- > dim + 1;) step *= shape[d];
  const std::int64_t n = shape[dim];
  Numbers made(x.size());
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(x.size()); ++i) {
    const std::int64_t k = i / step % n, first = i - k * step;
    for (std::int64_t j = 0; j < n; ++j)
      made[static_cast<std::size_t>(i)] +=
          scale * x[static_cast<std::size_t>(first + j * step)] *
          std::polar(1.0, sign * 2 * std::numbers::pi * static_cast<double>(j * k % n) / static_cast<double>(n));
  }
  return made;
}
template <class Real, class Imag> void expect_numbers(const Real& real, const Imag& imag, const Numbers& want) {
  const std::vector<double> re = ts::to_host(real), im = ts::to_host(imag);
  ASSERT_EQ(re.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(re[i], want[i].real(), 1e-12) << i;
    ASSERT_NEAR(im[i], want[i].imag(), 1e-12) << i;
  }
}
/// A result of several parts as one tuple.
constexpr auto parts(const auto&... z) { return std::tuple_cat(std::tuple(z.real, z.imag)...); }

constexpr auto along_dims = ts::compile([](auto x, auto y) {
  using enum ts::fft::Norm;
  const auto plane = ts::fft::fft2(x, y);
  return parts(plane, ts::fft::ifft2<ortho>(x, y), ts::fft::fftn<forward, 2, 0>(x, y), ts::fft::ifftn(x, y),
               ts::fft::fft<1, ortho>(x, y), ts::fft::ifft<1, forward>(x, y),
               ts::fft::ifftn<ortho, 0, -1>(ts::fft::fftn<ortho, 0, -1>(x, y).real, y));
});
constexpr auto of_real_tensors = ts::compile([](auto x) {
  using enum ts::fft::Norm;
  const auto half = ts::fft::rfftn<0, 2>(x), all = ts::fft::rfftn<forward>(x), plane = ts::fft::rfft2<ortho>(x);
  const auto hermitian = ts::fft::ihfft<1>(x);
  return std::tuple_cat(
      parts(half, all, plane, hermitian),
      std::tuple(ts::fft::irfftn<0, 2>(half.real, half.imag),
                 ts::fft::irfftn<ts::fft::Length::odd, forward>(all.real, all.imag),
                 ts::fft::irfft2<ts::fft::Length::odd, ortho>(plane.real, plane.imag),
                 ts::fft::hfft<1>(hermitian.real, hermitian.imag),
                 ts::fft::hfft<1, ts::fft::Length::even, ortho>(hermitian.real, hermitian.imag),
                 ts::fft::fftshift<0>(x), ts::fft::ifftshift(ts::fft::fftshift(x)), ts::fft::ifftshift<1, 2>(x)));
});

const std::vector<ts::PartitionSpec>& specs() {
  static const std::vector<ts::PartitionSpec> made{
      {}, {"data"}, {ts::none, "model", "data"}, {{"data", "model"}}, {ts::none, {"model", "data"}}};
  return made;
}

// The sums, by numpy.fft's definitions of the norms.
TEST(Fft, AlongSeveralDimsAndWithOtherNorms) {
  const ts::Shape shape{3, 4, 5};
  const std::vector<double> re = random_values(60, 1), im = random_values(60, 2);
  Numbers z(60);
  for (std::size_t i = 0; i < 60; ++i) z[i] = {re[i], im[i]};
  const auto sums = [&](Numbers x, int sign, const std::vector<std::size_t>& dims, double scale) {
    for (const std::size_t d : dims) x = sums_along(x, shape, d, sign, d == dims[0] ? scale : 1);
    return x;
  };
  for (const ts::PartitionSpec& spec : specs()) {
    const ts::OracleScope same_on_one_device;
    const auto x = ts::shard<3>(re, shape, devices, spec), y = ts::shard<3>(im, shape, devices, spec);
    const auto [a, a2, b, b2, c, c2, d, d2, e, e2, f, f2, back, back2] = along_dims(x, y);
    expect_numbers(a, a2, sums(z, -1, {1, 2}, 1));
    expect_numbers(b, b2, sums(z, 1, {1, 2}, 1 / std::sqrt(20)));
    expect_numbers(c, c2, sums(z, -1, {2, 0}, 1.0 / 15));
    expect_numbers(d, d2, sums(z, 1, {0, 1, 2}, 1.0 / 60));
    expect_numbers(e, e2, sums(z, -1, {1}, 0.5));
    expect_numbers(f, f2, sums(z, 1, {1}, 1));
    Numbers real_part = sums(z, -1, {0, 2}, 1 / std::sqrt(15));
    for (std::size_t i = 0; i < 60; ++i) real_part[i] = {real_part[i].real(), im[i]};
    expect_numbers(back, back2, sums(real_part, 1, {0, 2}, 1 / std::sqrt(15)));
  }
}

TEST(Fft, OfRealTensorsAlongSeveralDims) {
  const ts::Shape shape{3, 4, 5};
  const std::vector<double> values = random_values(60, 3);
  const Numbers z(values.begin(), values.end());
  // The first `kept` of the numbers of a dim.
  const auto first_of = [&](const Numbers& x, std::size_t dim, std::int64_t kept) {
    std::int64_t step = 1;
    for (std::size_t d = shape.size(); d-- > dim + 1;) step *= shape[d];
    Numbers made;
    for (std::int64_t i = 0; i < 60; ++i)
      if (i / step % shape[dim] < kept) made.push_back(x[static_cast<std::size_t>(i)]);
    return made;
  };
  const auto index = [](std::int64_t i, std::int64_t j, std::int64_t k) {
    return static_cast<std::size_t>((i * 4 + j) * 5 + k);
  };
  for (const ts::PartitionSpec& spec : specs()) {
    const ts::OracleScope same_on_one_device;
    const auto x = ts::shard<3>(values, shape, devices, spec);
    const auto [half, half2, all, all2, plane, plane2, hermitian, hermitian2, even, odd, odd_plane, back, ortho, moved,
                again, inner] = of_real_tensors(x);
    Numbers want = sums_along(sums_along(z, shape, 0, -1, 1), shape, 2, -1, 1);
    expect_numbers(half, half2, first_of(want, 2, 3));
    want = sums_along(want, shape, 1, -1, 1.0 / 60);
    expect_numbers(all, all2, first_of(want, 2, 3));
    want = sums_along(sums_along(z, shape, 1, -1, 1 / std::sqrt(20)), shape, 2, -1, 1);
    expect_numbers(plane, plane2, first_of(want, 2, 3));
    expect_numbers(hermitian, hermitian2, first_of(sums_along(z, shape, 1, 1, 0.25), 1, 3));
    // Of the 3 numbers of 5 elements, irfft of an even length makes 4, otherwise the 5.
    EXPECT_EQ(ts::shape(even), (ts::Shape{3, 4, 4}));
    const std::vector<double> whole = ts::to_host(odd), whole_plane = ts::to_host(odd_plane), real = ts::to_host(back),
                              scaled = ts::to_host(ortho), shifted = ts::to_host(moved),
                              inner_shift = ts::to_host(inner);
    for (std::size_t i = 0; i < 60; ++i) {
      ASSERT_NEAR(whole.at(i), values[i], 1e-12);
      ASSERT_NEAR(whole_plane.at(i), values[i], 1e-12);
      ASSERT_NEAR(real.at(i), values[i], 1e-12);
      ASSERT_NEAR(scaled.at(i), values[i] / 2, 1e-12);
    }
    EXPECT_EQ(ts::to_host(again), values);
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t j = 0; j < 4; ++j)
        for (std::int64_t k = 0; k < 5; ++k) {
          EXPECT_EQ(shifted[index((i + 1) % 3, j, k)], values[index(i, j, k)]);
          EXPECT_EQ(inner_shift[index(i, j, k)], values[index(i, (j + 2) % 4, (k + 2) % 5)]);
        }
  }
}

constexpr auto frequencies_in_a_function = ts::compile([](auto x, ts::Scalar d) {
  const auto n = ts::extent<0>(x);
  return std::tuple(ts::fft::fftfreq<double>(n, x), ts::fft::fftfreq<double>(n - 1, x, d),
                    ts::fft::rfftfreq<double>(n, x, d), ts::fft::rfftfreq<double>(n - 1, x));
});

// numpy.fft.fftfreq and rfftfreq of 5 and 4 numbers
TEST(Fft, Frequencies) {
  using Values = std::vector<double>;
  const auto expect_near = [](const auto& got, const Values& want) {
    const Values values = ts::to_host(got);
    ASSERT_EQ(values.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(values[i], want[i], 1e-15) << i;
  };
  const Values five{0, 0.2, 0.4, -0.4, -0.2}, four{0, 0.5, -1, -0.5}, half_five{0, 0.4, 0.8}, half_four{0, 0.25, 0.5};
  const auto x = ts::shard(Values(5), {5}, devices, {"data"});
  const ts::OracleScope same_on_one_device;
  const auto [a, b, c, d] = frequencies_in_a_function(x, 0.5);
  expect_near(a, five);
  expect_near(b, four);
  expect_near(c, half_five);
  expect_near(d, half_four);
  expect_near(ts::fft::fftfreq<double>(5, devices, 1, {"data"}), five);
  expect_near(ts::fft::fftfreq<double>(4, devices, 0.5), four);
  expect_near(ts::fft::rfftfreq<double>(5, devices, 0.5, {"model"}), half_five);
  expect_near(ts::fft::rfftfreq<double>(4, devices), half_four);
  EXPECT_EQ(ts::to_host(ts::fft::fftfreq(5, devices)), (std::vector<float>{0, 0.2F, 0.4F, -0.4F, -0.2F}));
}

TEST(Fft, GradientsAlongSeveralDims) {
  using enum ts::fft::Norm;
  constexpr auto odd = ts::fft::Length::odd;
  const oracle::Array x = oracle::random_array({2, 3}, 1), y = oracle::random_array({2, 3}, 2);
  check_gradient_of<2>([](const auto& a, const auto& b) { return of_parts(ts::fft::fft2<ortho>(a, b)); }, x, y);
  check_gradient_of<2>([](const auto& a, const auto& b) { return of_parts(ts::fft::ifftn<forward, 0>(a, b)); }, x, y);
  check_gradient_of<2>([](const auto& a) { return of_parts(ts::fft::rfft2<forward>(a)); }, x);
  check_gradient_of<2>(
      [](const auto& a, const auto& b) {
        const auto real = ts::fft::hfft<1, odd, forward>(a, b);
        return ts::fft::fftshift<1>(real) * ts::fft::irfft2<odd, ortho>(b, a);
      },
      x, y);
}

}  // namespace
