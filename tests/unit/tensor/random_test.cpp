#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "../base/expect_error.hpp"
#include "random_tensor.hpp"
#include <gtest/gtest.h>

#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>

namespace ts = tessera;
using tessera_test::expect_error;

namespace {

/// Every mesh of 1 to 16 devices with 1 to 3 axes.
std::vector<ts::Mesh> all_meshes() {
  std::vector<ts::Mesh> meshes;
  for (int x = 1; x <= 16; ++x)
    for (int y = 1; x * y <= 16; ++y)
      for (int z = 1; x * y * z <= 16; ++z) {
        if (y == 1 && z == 1) meshes.push_back(ts::Mesh({{"x", x}}));
        if (z == 1) meshes.push_back(ts::Mesh({{"x", x}, {"y", y}}));
        meshes.push_back(ts::Mesh({{"x", x}, {"y", y}, {"z", z}}));
      }
  return meshes;
}

template <class T> void equal_on_every_mesh(const ts::Shape& shape) {
  std::mt19937 random(3);
  const ts::Key key{42};
  const auto plain_normal = ts::to_host(ts::normal<T, 3>(key, shape, ts::Mesh(), {}, T(0.1), T(0.7)));
  const auto plain_uniform = ts::to_host(ts::uniform<T, 3>(key, shape, ts::Mesh(), {}, T(-0.3), T(2.1)));
  int sharded = 0;
  for (const ts::Mesh& mesh : all_meshes()) {
    const ts::PartitionSpec spec = ts::spec_of(tessera_test::random_sharding(random, mesh, 3, false), mesh);
    const auto normal = ts::normal<T, 3>(key, shape, mesh, spec, T(0.1), T(0.7));
    const auto uniform = ts::uniform<T, 3>(key, shape, mesh, spec, T(-0.3), T(2.1));
    ASSERT_EQ(ts::to_host(normal), plain_normal) << ts::sharded_type_text(normal);
    ASSERT_EQ(ts::to_host(uniform), plain_uniform) << ts::sharded_type_text(uniform);
    sharded += ts::storage_of(normal).shard_count() > 1;
  }
  EXPECT_GT(sharded, 50);
}

}  // namespace

TEST(random, equal_on_every_mesh_bit_for_bit) {
  equal_on_every_mesh<float>({7, 5, 13});
  equal_on_every_mesh<double>({5, 3, 11});
  equal_on_every_mesh<float>({41, 29, 61});  // several slabs a shard
}

TEST(random, moments_of_the_normal_distribution) {
  const ts::Mesh mesh({{"x", 3}});
  const auto values = ts::to_host(ts::normal<double>(ts::Key{7}, {1000, 200}, mesh, {"x"}, 3.0, 0.5));
  double mean = 0, variance = 0, cube = 0;
  const auto n = static_cast<double>(values.size());
  for (double v : values) mean += v / n;
  for (double v : values) variance += (v - mean) * (v - mean) / n;
  for (double v : values) cube += std::pow((v - mean) / 0.5, 3) / n;
  // Five deviations of each estimate.
  EXPECT_NEAR(mean, 3.0, 5 * 0.5 / std::sqrt(n));
  EXPECT_NEAR(variance, 0.25, 5 * 0.25 * std::sqrt(2 / n));
  EXPECT_NEAR(cube, 0.0, 5 * std::sqrt(6 / n));
}

TEST(random, the_uniform_distribution_fills_its_range_and_stays_below_the_end) {
  const ts::Mesh mesh({{"x", 4}});
  const auto values = ts::to_host(ts::uniform<float>(ts::Key{7}, {200000}, mesh, {"x"}, -1.f, 3.f));
  int below[4] = {};
  for (float v : values) {
    ASSERT_GE(v, -1.f);
    ASSERT_LT(v, 3.f);
    ++below[static_cast<int>(std::floor(v + 1.f))];
  }
  for (int count : below) EXPECT_NEAR(count, 50000, 5 * std::sqrt(200000 * 0.25 * 0.75));

  // Four floats lie in the range, and rounding to nearest would give its end one time in eight.
  const float low = 1.f, high = 1.f + 4 * std::numeric_limits<float>::epsilon();
  const auto few = ts::to_host(ts::uniform<float>(ts::Key{1}, {1000}, mesh, {}, low, high));
  const std::set<float> seen(few.begin(), few.end());
  EXPECT_EQ(seen.size(), 4u);
  EXPECT_LT(*seen.rbegin(), high);
}

// 16-bit numbers are those of f32, rounded; uniform ones stay below the end, to which an f32 next to it is rounded.
template <class T> void rounds_draws_of_f32() {
  const ts::Mesh mesh({{"x", 3}});
  const ts::Key key{5};
  const auto normal = ts::to_host(ts::normal<T>(key, {3001, 4}, mesh, {"x"}, 0.1f, 0.02f));
  const auto exact = ts::to_host(ts::normal<float>(key, {3001, 4}, mesh, {}, 0.1f, 0.02f));
  for (std::size_t i = 0; i < normal.size(); ++i) ASSERT_EQ(normal[i].bits, T(exact[i]).bits) << i;

  const auto uniform = ts::to_host(ts::uniform<T>(key, {3001, 4}, mesh, {"x"}));
  const auto single = ts::to_host(ts::uniform<float>(key, {3001, 4}, mesh));
  int at_end = 0;
  for (std::size_t i = 0; i < uniform.size(); ++i) {
    const T rounded(single[i]), below_one = T::from_bits(static_cast<std::uint16_t>(T(1.f).bits - 1));
    ASSERT_EQ(uniform[i].bits, (rounded == 1.f ? below_one : rounded).bits) << single[i];
    at_end += rounded == 1.f;
  }
  EXPECT_GT(at_end, 0);
}
TEST(random, numbers_of_16_bits_are_those_of_f32_rounded) {
  rounds_draws_of_f32<ts::bf16>();
  rounds_draws_of_f32<ts::f16>();
}
TEST(random, ranges_of_16_bits_exclude_their_end) {
  const ts::Mesh mesh;
  const float ends[] = {0.f, -1.f, 0.3f, 1.f, 257.f};  // bf16 has no 0.3 and no 257
  for (const float end : ends) {
    float largest = -1000;
    for (const ts::bf16 v : ts::to_host(ts::uniform<ts::bf16>(ts::Key{2}, {4000}, mesh, {}, end - 1, end))) {
      ASSERT_LT(v, end);
      largest = std::max<float>(largest, v);
    }
    EXPECT_NEAR(largest, end, std::max(0.005f, std::abs(end) * 0x1p-7f)) << end;
  }
}

TEST(random, keys_are_values_and_give_independent_streams) {
  constexpr ts::Key key{1};
  static_assert(ts::fold_in(key, 3) == ts::fold_in(key, 3));
  static_assert(!(ts::fold_in(key, 3) == ts::fold_in(key, 4)));
  constexpr auto keys = ts::split<3>(key);
  std::set<std::uint64_t> seeds{key.seed};
  for (const ts::Key& k : keys) seeds.insert(k.seed);
  for (std::uint64_t n = 0; n < 100; ++n) seeds.insert(ts::fold_in(key, n).seed);
  EXPECT_EQ(seeds.size(), 104u);
  const std::vector<ts::Key> more = ts::split(key, 5);
  EXPECT_EQ(std::vector<ts::Key>(more.begin(), more.begin() + 3), std::vector<ts::Key>(keys.begin(), keys.end()));
  for (const ts::Key& k : more) seeds.insert(k.seed);
  EXPECT_EQ(seeds.size(), 106u);
  EXPECT_TRUE(ts::split(key, 0).empty());
  expect_error(
      ts::errc::option, [&] { (void)ts::split(key, -1); }, "[split] count: -1", " at random_test.cpp:");

  const ts::Mesh mesh({{"x", 2}});
  const auto [a, b] = ts::split<2>(key);
  const auto x = ts::to_host(ts::normal<double>(a, {10000}, mesh));
  const auto y = ts::to_host(ts::normal<double>(b, {10000}, mesh));
  double correlation = 0;
  for (std::size_t i = 0; i < x.size(); ++i) correlation += x[i] * y[i] / 10000;
  EXPECT_NEAR(correlation, 0, 0.05);
}

// Draws of a program depend on the place in row-major order alone, however tasks divide them: vectors, single rows and
// narrow columns are long enough for several tasks.
TEST(random, of_programs_are_equal_in_every_shape_of_as_many_elements) {
  constexpr auto drawn = ts::compile(
      [](const auto& x, const auto& key) { return std::tuple(ts::uniform_like(x, key), ts::normal_like<1>(x, key)); });
  const auto values_of = [&](const ts::Shape& shape, const ts::Mesh& mesh, const ts::PartitionSpec& spec) {
    const auto [uniform, normal] = drawn(ts::zeros<float, 2>(shape, mesh, spec), ts::Scalar(7));
    return std::pair(ts::to_host(uniform), ts::to_host(normal));
  };
  const auto wanted = values_of({300, 211}, ts::Mesh{}, {});
  EXPECT_EQ(values_of({1, 63300}, ts::Mesh{}, {}), wanted);
  EXPECT_EQ(values_of({63300, 1}, ts::Mesh{}, {}), wanted);
  for (const int devices : {2, 3, 4}) {
    const ts::Mesh mesh({{"x", devices}});
    EXPECT_EQ(values_of({300, 211}, mesh, {"x"}), wanted);
    EXPECT_EQ(values_of({300, 211}, mesh, {ts::none, "x"}), wanted);
    EXPECT_EQ(values_of({1, 63300}, mesh, {ts::none, "x"}), wanted);
    EXPECT_EQ(values_of({63300, 1}, mesh, {"x"}), wanted);
  }
  constexpr auto vector = ts::compile([](const auto& x, const auto& key) { return ts::uniform_like(x, key); });
  EXPECT_EQ(ts::to_host(vector(ts::zeros<float>({63300}, ts::Mesh({{"x", 7}}), {"x"}), ts::Scalar(7))), wanted.first);
}

TEST(random, empty_tensors_and_scalars) {
  const ts::Mesh mesh({{"x", 4}});
  EXPECT_TRUE(ts::to_host(ts::normal<float>(ts::Key{1}, {0, 4}, mesh, {"x"})).empty());
  const float scalar = ts::item(ts::normal<float, 0>(ts::Key{1}, {}, mesh));
  EXPECT_EQ(scalar, ts::to_host(ts::normal<float>(ts::Key{1}, {9}, mesh, {"x"}))[0]);
}

TEST(random, senseless_ranges_are_errors) {
  const ts::Mesh mesh({{"x", 2}});
  const ts::Key key{1};
  expect_error(
      ts::errc::option, [&] { ts::normal<float>(key, {4}, mesh, {}, 0, -1); }, "[normal]", "-1", "random_test.cpp");
  expect_error(
      ts::errc::option, [&] { ts::normal<float>(key, {4}, mesh, {}, 0, std::nanf("")); }, "nan");
  expect_error(
      ts::errc::option, [&] { ts::uniform<float>(key, {4}, mesh, {}, 2, 2); }, "[uniform]", "random_test.cpp");
  expect_error(
      ts::errc::option, [&] { ts::uniform<float>(key, {4}, mesh, {}, -3e38f, 3e38f); }, "finite");
  expect_error(
      ts::errc::option, [&] { ts::uniform<ts::f16>(key, {4}, mesh, {}, -1e6f, 0); }, "finite");
  expect_error(
      ts::errc::spec_axis, [&] { ts::uniform<float>(key, {4}, mesh, {"y"}); }, "uniform", "random_test.cpp");
}
