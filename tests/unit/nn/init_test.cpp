#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/nn/init.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
using tessera_test::expect_error;

namespace {

/// Elements of an initialiser's tensor on one device, after a check that a split mesh has the same, bit for bit.
template <class Make> std::vector<float> drawn(const Make& make) {
  const std::vector<float> want = ts::to_host(make(ts::Mesh{}, ts::PartitionSpec{}));
  const ts::Mesh mesh({{"x", 3}, {"y", 2}});
  EXPECT_EQ(ts::to_host(make(mesh, ts::PartitionSpec{"x", "y"})), want);
  EXPECT_EQ(ts::to_host(make(mesh, ts::PartitionSpec{ts::none, {"y", "x"}})), want);
  return want;
}
double deviation(const std::vector<float>& values) {
  double square = 0;
  for (const float v : values) square += double{v} * v;
  return std::sqrt(square / static_cast<double>(values.size()));
}
double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float v : values) most = std::max(most, std::fabs(double{v}));
  return most;
}

// The formulas of the pages of torch.nn.init and jax.nn.initializers; 64 inputs, 256 outputs.
TEST(Initialisers, HaveThePublishedDeviations) {
  namespace init = ts::init;
  const ts::Key key(7);
  EXPECT_EQ(init::gain(init::Nonlinearity::tanh), 5.0 / 3);
  EXPECT_EQ(init::gain(init::Nonlinearity::relu), std::sqrt(2.0));
  EXPECT_EQ(init::gain(init::Nonlinearity::leaky_relu, 1), 1);
  const auto uniform = drawn([&](const ts::Mesh& mesh, const ts::PartitionSpec& spec) {
    return init::kaiming_uniform<float>(key, {64, 256}, mesh, spec);
  });
  EXPECT_NEAR(largest(uniform), std::sqrt(6.0 / 64), 1e-3);
  EXPECT_NEAR(deviation(uniform), std::sqrt(2.0 / 64), 2e-3);
  const auto normal = drawn([&](const ts::Mesh& mesh, const ts::PartitionSpec& spec) {
    return init::kaiming_normal<float>(key, {64, 256}, mesh, spec,
                                       {.mode = init::FanMode::fan_out, .nonlinearity = init::Nonlinearity::tanh});
  });
  EXPECT_NEAR(deviation(normal), 5.0 / 3 / std::sqrt(256.0), 2e-3);
  const auto check = [&](const std::vector<float>& values, double limit) {
    EXPECT_NEAR(largest(values), limit, 5e-3 * limit);
    EXPECT_LE(largest(values), limit * (1 + 1e-6));
  };
  check(ts::to_host(init::xavier_uniform<float>(key, {64, 256}, ts::Mesh{}, {}, 2)), 2 * std::sqrt(6.0 / 320));
  check(ts::to_host(init::glorot_uniform<float>(key, {64, 256}, ts::Mesh{})), std::sqrt(6.0 / 320));
  check(ts::to_host(init::lecun_uniform<float>(key, {64, 256}, ts::Mesh{})), std::sqrt(3.0 / 64));
  check(ts::to_host(init::he_uniform<float>(key, {3, 3, 16, 32}, ts::Mesh{})), std::sqrt(6.0 / 144));
  EXPECT_NEAR(deviation(ts::to_host(init::xavier_normal<float>(key, {64, 256}, ts::Mesh{}))), std::sqrt(2.0 / 320),
              2e-3);
  expect_error(
      ts::errc::option,
      [&] {
        init::variance_scaling_uniform<float>(key, {2, 2}, ts::Mesh{}, {}, 0);
      },
      "scale");

  // Within [-2, 2] a standard normal has the deviation .8796.
  const auto truncated = drawn([&](const ts::Mesh& mesh, const ts::PartitionSpec& spec) {
    return init::trunc_normal<float>(key, {64, 256}, mesh, spec, 0, 0.5, -1, 1);
  });
  EXPECT_NEAR(deviation(truncated), 0.5 * 0.87962566, 4e-3);
  EXPECT_LE(largest(truncated), 1);
  EXPECT_GT(largest(truncated), 0.99);
  const std::vector<float> shifted =
      ts::to_host(init::trunc_normal<float>(key, {64, 256}, ts::Mesh{}, {}, 1, 2, 1, 100));
  EXPECT_GE(*std::min_element(shifted.begin(), shifted.end()), 1) << "half of a normal";
  EXPECT_NEAR(std::accumulate(shifted.begin(), shifted.end(), 0.0) / 16384, 1 + 2 * std::sqrt(2 / std::acos(-1.0)),
              0.04);
  const auto jax = [&](const std::vector<float>& values, double variance) {
    EXPECT_NEAR(deviation(values), std::sqrt(variance), 0.02 * std::sqrt(variance));
    EXPECT_LE(largest(values), 2 * std::sqrt(variance) / 0.8796256);
  };
  jax(ts::to_host(init::lecun_normal<float>(key, {64, 256}, ts::Mesh{})), 1.0 / 64);
  jax(ts::to_host(init::he_normal<float>(key, {3, 3, 16, 64}, ts::Mesh{})), 2.0 / 144);
  jax(ts::to_host(init::glorot_normal<float>(key, {64, 256}, ts::Mesh{})), 1.0 / 160);
  expect_error(
      ts::errc::option, [&] { init::trunc_normal<float>(key, {2}, ts::Mesh{}, {}, 0, 1, 2, 1); },
      "between 2.000000 and 1.000000");

  const auto narrow = drawn([&](const ts::Mesh& mesh, const ts::PartitionSpec& spec) {
    return init::truncated_normal<float>(key, {64, 256}, mesh, spec, 0.5, -1, 2);
  });
  EXPECT_GE(*std::min_element(narrow.begin(), narrow.end()), -0.5);
  EXPECT_LT(*std::min_element(narrow.begin(), narrow.end()), -0.49);
  EXPECT_LE(largest(narrow), 1);
  EXPECT_GT(largest(narrow), 0.98);

  EXPECT_EQ(drawn([](const ts::Mesh& mesh, const ts::PartitionSpec& spec) {
              return init::eye<float>({2, 3}, mesh, spec);
            }),
            (std::vector<float>{1, 0, 0, 0, 1, 0}));
  const auto taps = drawn([](const ts::Mesh& mesh, const ts::PartitionSpec& spec) {
    return init::dirac<float>({3, 2, 3}, mesh, spec);
  });
  EXPECT_EQ(taps, (std::vector<float>{0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(ts::to_host(init::constant<float>({2}, 0.5f, ts::Mesh{})), (std::vector<float>{0.5, 0.5}));
}

// torch.nn.init.sparse_ of a weight [out, in] makes ceil(sparsity out) elements of each column 0; ours is [in, out].
TEST(Initialisers, SparseRowsHaveTheirZeros) {
  namespace init = ts::init;
  for (const double sparsity : {0.0, 0.3, 0.97, 1.0}) {
    const auto values = drawn([&](const ts::Mesh& mesh, const ts::PartitionSpec& spec) {
      return init::sparse<float>(ts::Key(3), {400, 55}, sparsity, mesh, spec, 0.5);
    });
    std::vector<int> zeros_of_column(55, 0);
    for (std::size_t row = 0; row < 400; ++row) {
      int zeros = 0;
      for (std::size_t column = 0; column < 55; ++column)
        if (values[row * 55 + column] == 0) ++zeros, ++zeros_of_column[column];
      ASSERT_EQ(zeros, std::ceil(sparsity * 55)) << row;
    }
    const double part = std::ceil(sparsity * 55) / 55;
    for (const int zeros : zeros_of_column)
      EXPECT_NEAR(zeros / 400.0, part, 5 * std::sqrt(part * (1 - part) / 400) + 1e-12);
    if (sparsity < 0.5) EXPECT_NEAR(deviation(values), 0.5 * std::sqrt(1 - part), 0.01);
  }
  EXPECT_EQ(ts::to_host(init::sparse<float>(ts::Key(3), {0, 5}, 0.5, ts::Mesh{})).size(), 0U);
  expect_error(
      ts::errc::option,
      [] {
        init::sparse<float>(ts::Key(3), {2, 2}, 1.5, ts::Mesh{});
      },
      "[sparse] sparsity: 1.5");
}

}  // namespace
