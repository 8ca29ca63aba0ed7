#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/mesh/mesh.hpp>
#include <tessera/ops/attention/rotary_embedding.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/optim/optim.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/oracle.hpp>
#include <tessera/tensor/random.hpp>

// Numbers that the host computes, where they meet tensors: as the only element of a tensor, as operands of each other,
// as sizes and as positions.

namespace {
namespace ts = tessera;

const std::vector<ts::Mesh>& meshes() {
  static const std::vector<ts::Mesh> made{ts::Mesh({{"data", 1}}), ts::Mesh({{"data", 2}}), ts::Mesh({{"data", 3}}),
                                          ts::Mesh({{"data", 4}})};
  return made;
}
const std::vector<float> x_values{0.5f, -1.25f, 2, 3.5f, -4, 7.75f, 1.5f};  // 7 elements: uneven shards

// The cotangent of each of these functions is the number 1, which a rearrange makes a tensor of one element.
constexpr auto gradients = ts::compile([](auto x, auto m) {
  const auto of_vector = ts::grad([](const auto& v) { return ts::select<0>(v, 2); })(x);
  const auto of_row =
      ts::grad([](const auto& v) { return ts::select<0>(ts::select<1>(ts::unsqueeze<0>(v), 2), 0); })(x);
  const auto of_matrix = ts::grad([](const auto& v) { return ts::select<0>(ts::select<0>(v, 1), 2); })(m);
  const auto weighted = ts::grad([](const auto& v) { return ts::select<0>(v, 2) * ts::select<0>(v, 6); })(x);
  return std::tuple(of_vector, of_row, of_matrix, weighted);
});

TEST(Scalars, GradientOfASelectedElement) {
  for (const ts::Mesh& mesh : meshes()) {
    const auto x = ts::shard(x_values, {7}, mesh, {"data"});
    const auto m = ts::shard(std::vector<float>(21, 2), {7, 3}, mesh, {"data"});
    for (int run = 0; run < 2; ++run) {  // the second call uses memory that the first has written
      const auto [of_vector, of_row, of_matrix, weighted] = gradients(x, m);
      EXPECT_EQ(ts::to_host(of_vector), (std::vector<float>{0, 0, 1, 0, 0, 0, 0}));
      EXPECT_EQ(ts::to_host(of_row), (std::vector<float>{0, 0, 1, 0, 0, 0, 0}));
      std::vector<float> expected(21, 0);
      expected[5] = 1;
      EXPECT_EQ(ts::to_host(of_matrix), expected);
      EXPECT_EQ(ts::to_host(weighted), (std::vector<float>{0, 0, 1.5f, 0, 0, 0, 2}));
    }
  }
}

// A function of the user's own gets the cotangent as well.
struct ScaledBy {
  static constexpr std::string_view name = "scaled_by";
  static constexpr std::string_view signature = "(n),(1)->(n)";
  template <class T> static void run(ts::CallArray<const T, 1> x, ts::CallArray<const T, 1> by, ts::CallArray<T, 1> y) {
    for (std::int64_t i = 0; i < x.extent(0); ++i) y(i) = x(i) * by(0);
  }
};
constexpr auto half_of_squares =
    ts::custom_vjp([](const auto& x) { return std::tuple(ts::sum(x * x) * 0.5, x); },
                   [](const auto& x, const auto& g) { return ts::custom_call<ScaledBy>(x, ts::unsqueeze<0>(g)); });
constexpr auto of_products = ts::compile([](auto x) {
  return std::tuple(ts::grad(half_of_squares)(x), ts::grad([](const auto& v) { return ts::dot(v, v); })(x),
                    ts::grad([](const auto& v) { return ts::sum(ts::einsum<",i->i">(ts::select<0>(v, 1), v)); })(x));
});

TEST(Scalars, CotangentOfAProductAndOfACustomCall) {
  for (const ts::Mesh& mesh : meshes()) {
    const auto [custom, dot, outer] = of_products(ts::shard(x_values, {7}, mesh, {"data"}));
    EXPECT_EQ(ts::to_host(custom), x_values);
    float sum = 0;
    for (const float x : x_values) sum += x;
    for (std::size_t i = 0; i < 7; ++i) {
      EXPECT_EQ(ts::to_host(dot)[i], 2 * x_values[i]);
      EXPECT_FLOAT_EQ(ts::to_host(outer)[i], x_values[1] + (i == 1 ? sum : 0));
    }
  }
}

/// Counts its calls, and throws in the fifth.
struct FourTimes {
  static constexpr std::string_view name = "four_times";
  static constexpr std::string_view signature = "(n)->(n)";
  static inline int calls = 0;
  template <class T> static void run(ts::CallArray<const T, 1> x, ts::CallArray<T, 1> y) {
    if (++calls == 5) throw std::runtime_error("a fifth step");
    for (std::int64_t i = 0; i < x.extent(0); ++i) y(i) = x(i) + 1;
  }
};
constexpr auto loop = ts::compile([](auto x, const ts::Dim& steps) {
  return std::get<0>(
      ts::scan([](const auto& c) { return std::tuple(ts::custom_call<FourTimes>(c), std::tuple()); }, x, steps));
});

// 2^32 + 3 steps are not 3, and 2^31 are not a negative number.
TEST(Dims, OfLoopsMayExceedAnInt) {
  const auto x = ts::zeros<float>({2}, meshes()[0]);
  FourTimes::calls = 0;
  EXPECT_EQ(ts::to_host(loop(x, ts::Dim(4))), (std::vector<float>{4, 4}));
  for (const std::int64_t steps : {(std::int64_t{1} << 32) + 3, std::int64_t{1} << 31}) {
    FourTimes::calls = 0;
    EXPECT_THROW(loop(x, ts::Dim(steps)), std::runtime_error) << steps;
    EXPECT_EQ(FourTimes::calls, 5);
  }
}

constexpr auto picked = ts::compile([](auto x, auto table, auto scalar) {
  const auto by_scalar = ts::dynamic_index<0>(x, scalar);
  const auto by_dim = ts::dynamic_index<0>(x, ts::extent<0>(x) - 2);
  const auto replaced = ts::dynamic_update_index<0>(x, by_dim, scalar);
  const auto in_loop = ts::fori_loop(
      0, 2, [&](const auto&, const auto& sum) { return sum + ts::dynamic_index<0>(x, scalar); },
      ts::zeros_like(by_dim));
  return std::tuple(by_scalar, by_dim, replaced, in_loop, ts::dynamic_index<1>(table, scalar));
});

TEST(Scalars, IndexOfALookup) {
  for (const ts::Mesh& mesh : meshes()) {
    const auto x = ts::shard(x_values, {7}, mesh, {"data"});
    std::vector<std::int32_t> table(35);
    for (std::size_t i = 0; i < 35; ++i) table[i] = static_cast<std::int32_t>(i);
    const auto t = ts::shard(table, {5, 7}, mesh, {"data"});
    for (int i : {3, 0, 6, -2}) {  // a negative index counts from the end
      const std::size_t at = static_cast<std::size_t>(i < 0 ? i + 7 : i);
      const auto [by_scalar, by_dim, replaced, in_loop, column] = picked(x, t, ts::Scalar(i));
      EXPECT_EQ(ts::item(by_scalar), x_values[at]);
      EXPECT_EQ(ts::item(by_dim), x_values[5]);
      EXPECT_EQ(ts::item(in_loop), 2 * x_values[at]);
      std::vector<float> changed = x_values;
      changed[at] = x_values[5];
      EXPECT_EQ(ts::to_host(replaced), changed);
      const auto own = static_cast<std::int32_t>(at);
      EXPECT_EQ(ts::to_host(column), (std::vector<std::int32_t>{own, 7 + own, 14 + own, 21 + own, 28 + own}));
    }
  }
}

constexpr auto arithmetic = ts::compile([](auto x, auto rate, auto step) {
  const auto all = (1.0 - rate) * 2 + rate / 4 - -rate;  // 2 - 2 r + r / 4 + r
  const auto next = ts::dynamic_index<0>(x, step + 1);
  const auto half = ts::extent<0>(x) * 0.5;  // 3.5, no size
  const auto in_loop = ts::fori_loop(
      0, 3, [&](const auto&, const auto& v) { return v * (1.0 - rate); }, x);
  return std::tuple(x * all, next, x + half, in_loop);
});

TEST(Scalars, Arithmetic) {
  for (const ts::Mesh& mesh : meshes()) {
    const auto x = ts::shard(x_values, {7}, mesh, {"data"});
    for (const double rate : {0.25, 3.0}) {
      const auto [all, next, half, in_loop] = arithmetic(x, rate, ts::Scalar(3));
      EXPECT_EQ(ts::item(next), x_values[4]);
      for (std::size_t i = 0; i < 7; ++i) {
        EXPECT_FLOAT_EQ(ts::to_host(all)[i], x_values[i] * static_cast<float>(2 - 2 * rate + rate / 4 + rate));
        EXPECT_FLOAT_EQ(ts::to_host(half)[i], x_values[i] + 3.5f);
        EXPECT_FLOAT_EQ(ts::to_host(in_loop)[i], x_values[i] * static_cast<float>(std::pow(1 - rate, 3)));
      }
    }
  }
  constexpr ts::Scalar outside = 1.0 - ts::Scalar(0.25);
  static_assert(outside.value() == 0.75 && (ts::Dim(3) * 0.5).value() == 1.5 && (2 * ts::Scalar(3)).value() == 6);
  static_assert((ts::Dim(3) * 2).value() == 6);  // stays a size
}

constexpr auto functions = ts::compile([](auto x, auto rate) {
  return std::tuple(x * (1.0 / ts::sqrt(ts::extent<0>(x))), x * (ts::exp(-rate) + ts::log(rate)));
});

TEST(Scalars, Functions) {
  for (const ts::Mesh& mesh : meshes()) {
    const auto x = ts::shard(x_values, {7}, mesh, {"data"});
    for (const double rate : {0.25, 3.0}) {
      const auto [scaled, damped] = functions(x, rate);
      for (std::size_t i = 0; i < 7; ++i) {
        EXPECT_FLOAT_EQ(ts::to_host(scaled)[i], x_values[i] / std::sqrt(7.f));
        EXPECT_FLOAT_EQ(ts::to_host(damped)[i], x_values[i] * static_cast<float>(std::exp(-rate) + std::log(rate)));
      }
    }
  }
  EXPECT_EQ(ts::sqrt(ts::Dim(9)).value(), 3);
  EXPECT_EQ(ts::exp(ts::Scalar(1.5)).value(), std::exp(1.5));
}

constexpr auto counted = ts::compile([](auto x) {
  const auto n = ts::extent<0>(x);
  const auto in_loop = ts::fori_loop(
      0, 2, [&](const auto&, const auto& v) { return v + ts::arange<float>(n); }, ts::zeros_like(x));
  return std::tuple(ts::arange<std::int32_t>(n), ts::arange<float>(n * 2 - 1), ts::arange<std::int64_t>(4, x), in_loop);
});

TEST(Scalars, Arange) {
  for (const ts::Mesh& mesh : meshes()) {
    const auto [own, more, four, in_loop] = counted(ts::ones<float>({7}, mesh, {"data"}));
    EXPECT_EQ(ts::to_host(own), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(ts::to_host(more), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
    EXPECT_EQ(ts::to_host(four), (std::vector<std::int64_t>{0, 1, 2, 3}));
    EXPECT_EQ(ts::to_host(in_loop), (std::vector<float>{0, 2, 4, 6, 8, 10, 12}));
  }
}

constexpr auto created = ts::compile([](auto x, ts::Scalar most) {
  const auto n = ts::extent<0>(x);
  return std::tuple(ts::linspace<double>(-1, 0.7, 7, x), ts::linspace(0, most, n, x), ts::linspace(most, 9, 1, x),
                    ts::logspace<double>(-1, 2, 5, x), ts::logspace(0, 3, 4, 2, x), ts::eye<float>(3, x),
                    ts::eye<std::int32_t>(2, n - 4, x), ts::full<std::int64_t>({n - 5, 3}, 7, x),
                    ts::zeros<float>({1, n}, x) + x, ts::ones<bool>({2}, x), ts::full<float>({2, n, 1}, most, x));
});

// Empty braces are the extents of a tensor of rank 0: fields of a carry, and stored ones.
struct Doubling {
  ts::ShardedTensor<float, 1> x;
  ts::ShardedTensor<std::int32_t, 0> steps;
};
constexpr auto doubled = ts::compile([](auto x, ts::Scalar most) {
  const Doubling end = ts::while_loop([](const auto& s) { return s.steps < 3; },
                                      [](const auto& s) {
                                        return Doubling{s.x * 2.0F, s.steps + 1};
                                      },
                                      Doubling{x, ts::zeros<std::int32_t>({}, x)}, 9);
  return std::tuple(end.x, end.steps, ts::ones<double>({}, x), ts::full<float>({}, most, x),
                    ts::full<std::int64_t>({}, ts::extent<0>(x), x), ts::full<bool>({}, true, x));
});
TEST(Scalars, CreationOfRank0) {
  for (const ts::Mesh& mesh : meshes()) {
    const ts::OracleScope same_on_one_device;
    const auto [x, steps, one, most, extent, yes] = doubled(ts::arange<float>(5, mesh, {"data"}), 2.5);
    EXPECT_EQ(ts::to_host(x), (std::vector<float>{0, 8, 16, 24, 32}));
    EXPECT_EQ(ts::item(steps), 3);
    EXPECT_EQ(ts::item(one), 1.0);
    EXPECT_EQ(ts::item(most), 2.5F);
    EXPECT_EQ(ts::item(extent), 5);
    EXPECT_TRUE(ts::item(yes));
    EXPECT_EQ(ts::item(ts::full<float>({}, 2.5F, mesh)), 2.5F);
    EXPECT_EQ(ts::item(ts::zeros<int>({}, mesh)), 0);
    EXPECT_EQ(ts::item(ts::ones<double>({}, mesh)), 1.0);
    EXPECT_EQ(ts::item(ts::normal<float>(ts::Key(3), {}, mesh, {}, 1, 2)),
              (ts::item(ts::normal<float, 0>(ts::Key(3), ts::Shape{}, mesh, {}, 1, 2))));
    EXPECT_EQ(ts::item(ts::uniform<float>(ts::Key(3), {}, mesh, {}, 1, 2)),
              (ts::item(ts::uniform<float, 0>(ts::Key(3), ts::Shape{}, mesh, {}, 1, 2))));
  }
}

// torch.linspace, logspace, eye and full; their operands as constants, sizes and Scalars, on uneven shards.
TEST(Scalars, Creation) {
  for (const ts::Mesh& mesh : meshes()) {
    const ts::OracleScope same_on_one_device;
    const auto x = ts::arange<float>(7, mesh, {"data"});
    const auto [line, to_scalar, one, powers, of_two, square, wide, sevens, row, bools, filled] = created(x, 1.5);
    const std::vector<double> points = ts::to_host(line), want{-1,    -0.7166666666666667, -0.43333333333333335,
                                                               -0.15, 0.1333333333333333,  0.41666666666666663,
                                                               0.7};
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(points.at(i), want[i], 1e-16) << i;
    EXPECT_EQ(points.front(), -1);
    EXPECT_EQ(points.back(), 0.7);
    EXPECT_EQ(ts::to_host(to_scalar), (std::vector<float>{0, 0.25F, 0.5F, 0.75F, 1, 1.25F, 1.5F}));
    EXPECT_EQ(ts::to_host(one), std::vector<float>{1.5F});
    const std::vector<double> of_ten = ts::to_host(powers),
                              tens{0.1, 0.5623413251903491, 3.1622776601683795, 17.782794100389228, 100};
    for (std::size_t i = 0; i < tens.size(); ++i) EXPECT_NEAR(of_ten.at(i), tens[i], 1e-15 * tens[i]) << i;
    EXPECT_EQ(ts::to_host(of_two), (std::vector<float>{1, 2, 4, 8}));
    EXPECT_EQ(ts::to_host(square), (std::vector<float>{1, 0, 0, 0, 1, 0, 0, 0, 1}));
    EXPECT_EQ(ts::to_host(wide), (std::vector<std::int32_t>{1, 0, 0, 0, 1, 0}));
    EXPECT_EQ(ts::to_host(sevens), std::vector<std::int64_t>(6, 7));
    EXPECT_EQ(ts::shape(sevens), (ts::Shape{2, 3}));
    EXPECT_EQ(ts::shape(row), (ts::Shape{1, 7}));
    EXPECT_EQ(ts::to_host(row), ts::to_host(x));
    EXPECT_EQ(ts::to_host(bools), std::vector<bool>(2, true));
    EXPECT_EQ(ts::shape(filled), (ts::Shape{2, 7, 1}));
    EXPECT_EQ(ts::to_host(filled), std::vector<float>(14, 1.5F));
    tessera_test::expect_error(
        ts::errc::shape_mismatch, [&] { created(ts::arange<float>(3, mesh), 1.0); }, "negative size -1",
        "scalars_test");
  }
}

// Positions of a loop inside of the program, against the positions of one call.
constexpr auto rotated = ts::compile([](auto x) {  // [B, 5, H, W]
  const auto step = [&](const auto& i, const auto& made) {
    return ts::dynamic_update_slice<1>(made, ts::rotary_embedding(ts::dynamic_slice<1>(x, i, 1), i), i);
  };
  return std::tuple(ts::fori_loop(0, 5, step, ts::zeros_like(x)), ts::rotary_embedding(x));
});

TEST(Scalars, RotaryEmbeddingAtAnIndexOfALoop) {
  std::vector<float> values(3 * 5 * 2 * 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  for (const ts::Mesh& mesh : meshes()) {
    const auto [by_step, whole] = rotated(ts::shard(values, {3, 5, 2, 4}, mesh, {"data"}));
    const std::vector<float> a = ts::to_host(by_step), b = ts::to_host(whole);
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6);
  }
}

// A class token in front of patches: of a stored [1, F] the extent 1 is not known when the function is traced.
constexpr auto with_token = ts::compile([](auto token, auto patches) {
  return ts::value_and_grad([](const auto& t, const auto& p) {
    const auto row = ts::broadcast_to(ts::select<0>(t, 0), {ts::extent<0>(p), 1, ts::extent<2>(p)});
    const auto all = ts::concat<1>(row, p);
    return std::tuple(ts::sum(all * all), all);
  })(token, patches);
});

TEST(Scalars, BroadcastToOfADimThatHasExtentOne) {
  for (const ts::Mesh& mesh : meshes()) {
    const auto token = ts::shard<float>({{{1, 2, 3}}}, mesh);
    const auto [result, gradient] = with_token(token, ts::ones<float>({5, 2, 3}, mesh, {"data"}));
    EXPECT_EQ(ts::to_host(gradient), (std::vector<float>{10, 20, 30}));
    EXPECT_EQ(ts::to_host(std::get<1>(result))[9 * 4 + 1], 2);
    EXPECT_THROW(with_token(ts::ones<float>({1, 4, 3}, mesh), ts::ones<float>({5, 2, 3}, mesh, {"data"})), ts::error);
  }
}

constexpr auto of_cast_sizes = ts::compile([](auto x, auto n) {
  const ts::Scalar rows = ts::cast<double>(ts::extent<0>(x));
  return std::tuple(ts::sum(x) / rows, x * (1.0 / ts::cast<float>(n)), x / ts::sqrt(rows));
});
TEST(Scalars, CastOfASize) {
  static_assert(ts::cast<double>(ts::Dim(7)).value() == 7);
  for (const ts::Mesh& mesh : meshes()) {
    const auto [mean, scaled, divided] = of_cast_sizes(ts::shard(x_values, {7}, mesh, {"data"}), ts::Dim(4));
    static_assert(std::is_same_v<decltype(mean), const ts::ShardedTensor<float, 0>>);
    double sum = 0;
    for (const float x : x_values) sum += x;
    EXPECT_FLOAT_EQ(ts::item(mean), static_cast<float>(sum / 7));
    for (std::size_t i = 0; i < 7; ++i) {
      EXPECT_EQ(ts::to_host(scaled)[i], x_values[i] / 4);
      EXPECT_FLOAT_EQ(ts::to_host(divided)[i], static_cast<float>(x_values[i] / std::sqrt(7.0)));
    }
  }
}

// Of two numbers f32, or i32 if both are integers, as jnp.where.
TEST(Scalars, SelectOneOfTwo) {
  for (const ts::Mesh& mesh : meshes()) {
    const auto x = ts::shard(std::vector<double>{0, 1, 2}, {3}, mesh, {"data"});
    const auto chosen = ts::eval(ts::select(x > 0.5, 1.5, -2));
    const auto whole = ts::eval(ts::select(x > 0.5, 1, ts::Dim(-2)));
    static_assert(std::is_same_v<decltype(chosen), const ts::ShardedTensor<float, 1>>);
    static_assert(std::is_same_v<decltype(whole), const ts::ShardedTensor<std::int32_t, 1>>);
    EXPECT_EQ(ts::to_host(chosen), (std::vector<float>{-2, 1.5, 1.5}));
    EXPECT_EQ(ts::to_host(whole), (std::vector<std::int32_t>{-2, 1, 1}));
    EXPECT_EQ(ts::sharding(chosen), ts::sharding(ts::eval(x * 2.0)));
  }
}

// jnp.array(x).astype(...) of JAX. bf16 is cast as the f32 that it is.
TEST(Casts, FloatsBeyondAnIntegerTypeBecomeItsNearestInteger) {
  using Bytes = std::vector<std::uint8_t>;
  using Ints = std::vector<std::int32_t>;
  const ts::Mesh mesh({{"x", 2}});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto x = ts::shard(std::vector{300.5F, -1.5F, nan, 3e9F, -3e9F}, {5}, mesh, {"x"});
  const auto all = ts::compile([](const auto& v) {
    return std::tuple(ts::cast<std::uint8_t>(v), ts::cast<std::int32_t>(v), ts::cast<std::int64_t>(v * 1e12),
                      ts::cast<std::int32_t>(ts::cast<ts::bf16>(v)));
  });
  const auto [bytes, ints, longs, halves] = all(x);
  EXPECT_EQ(ts::to_host(bytes), (Bytes{255, 0, 0, 255, 0}));
  EXPECT_EQ(ts::to_host(ints), (Ints{300, -1, 0, INT32_MAX, INT32_MIN}));
  EXPECT_EQ(ts::to_host(longs)[2], 0);
  EXPECT_EQ(ts::to_host(longs)[3], INT64_MAX);
  EXPECT_EQ(ts::to_host(longs)[4], INT64_MIN);
  EXPECT_EQ(ts::to_host(halves), (Ints{300, -1, 0, INT32_MAX, INT32_MIN}));
  EXPECT_EQ(ts::to_host(ts::cast<std::uint8_t>(ts::cast<std::int32_t>(x)))[0], 300 - 256);
}

}  // namespace
