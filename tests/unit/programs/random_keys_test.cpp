#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/indexing/dynamic_slice.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/ops/unroll.hpp>
#include <tessera/ops/vmap/vmap.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>
#include <tessera/tensor/reshard.hpp>

namespace ts = tessera;

namespace {

constexpr ts::Key key{0xfedcba9876543210ull};  // no double has this integer
constexpr int steps = 5;

const ts::Mesh meshes[] = {ts::Mesh({{"x", 1}}), ts::Mesh({{"x", 2}}), ts::Mesh({{"x", 3}})};

/// Uneven shards: 7 rows on two or three devices.
ts::ShardedTensor<float, 2> rows(const ts::Mesh& mesh) {
  return ts::reshard(ts::normal<float>(ts::Key(3), {7, 4}, ts::Mesh(), {}), mesh, {"x"});
}
/// The draws of a key that was derived on the host.
constexpr auto normal_of = ts::compile([](const auto& x, const auto& own) { return ts::normal_like(x, own); });
std::vector<float> drawn(const auto& x, const ts::Key& own) { return ts::to_host(normal_of(x, own)); }

// In an expression, and as a constant of a traced function, a key draws what it draws as an argument.
TEST(Keys, ExpressionsAndTracedFunctionsTakeThem) {
  constexpr auto of_constant = ts::compile([](const auto& x) { return ts::normal_like(x, key); });
  constexpr auto dropped = ts::compile([](const auto& x, const auto& own) { return ts::dropout(x, 0.5, own); });
  for (const ts::Mesh& mesh : meshes) {
    const auto x = rows(mesh);
    EXPECT_EQ(ts::to_host(ts::normal_like(x, key)), drawn(x, key));
    EXPECT_EQ(ts::to_host(of_constant(x)), drawn(x, key));
    EXPECT_EQ(ts::to_host(ts::dropout(x, 0.5, key)), ts::to_host(dropped(x, key)));
    EXPECT_NE(ts::to_host(ts::normal_like(x, ts::fold_in(key, 1))), drawn(x, key));
  }
}

// Each example has draws of its own, as each step of a loop. A key that is a tensor gives its draws wherever it is
// used.
TEST(KeyTensors, VmapDrawsForEachExample) {
  constexpr auto f = ts::compile([](const auto& x, const auto& numbers, const auto& own) {
    const auto drawn_alike = ts::vmap([&](const auto& v) { return ts::normal_like(v, own); })(x);
    const auto line = ts::sum<0>(x);
    const auto in_shape_of_shared = ts::vmap([&](const auto& v) { return v * 0.0 + ts::normal_like(line, own); })(x);
    const auto of_own_keys =
        ts::vmap([&](const auto& v, const auto& n) { return ts::normal_like(v, ts::fold_in(own, n)); })(x, numbers);
    const auto one_key = ts::fold_in(own, ts::squeeze<0>(ts::slice<0>(numbers, 3, 1)));
    const auto of_one_key = ts::vmap([&](const auto& v) { return ts::normal_like(v, one_key); })(x);
    return std::tuple(drawn_alike, in_shape_of_shared, of_own_keys, of_one_key);
  });
  std::vector<std::vector<float>> first;
  for (const ts::Mesh& mesh : meshes) {
    const auto x = rows(mesh);
    const auto numbers = ts::shard(std::vector<std::int32_t>{5, 6, 7, 8, 9, 10, 11}, {7}, mesh, {"x"});
    const auto [drawn_alike, in_shape_of_shared, of_own_keys, of_one_key] = f(x, numbers, key);
    const std::vector<float> all[] = {ts::to_host(drawn_alike), ts::to_host(in_shape_of_shared),
                                      ts::to_host(of_own_keys), ts::to_host(of_one_key)};
    const auto line = ts::normal<float>(ts::Key(3), {4}, ts::Mesh(), {});
    for (std::size_t k = 0; k < 2; ++k)
      for (std::size_t r = 1; r < 7; ++r)
        EXPECT_NE(std::vector<float>(&all[k][4 * r], &all[k][4 * r] + 4), std::vector<float>(&all[k][0], &all[k][4]));
    for (std::size_t r = 0; r < 7; ++r) {
      const std::vector<float> of_key = drawn(line, ts::fold_in(key, r + 5)),
                               of_first = drawn(line, ts::fold_in(key, 8));
      for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(all[2][4 * r + i], of_key[i]);
        EXPECT_EQ(all[3][4 * r + i], of_first[i]);
      }
    }
    for (std::size_t k = 0; k < 4; ++k)
      if (first.size() < 4)
        first.push_back(all[k]);
      else
        EXPECT_EQ(all[k], first[k]) << mesh.text();
  }
}

TEST(KeyTensors, FoldInsAreThoseOfTheHost) {
  constexpr auto f = ts::compile([](const auto& numbers, const auto& own) {
    const auto [all] = std::tuple(ts::map([&](const auto& n) { return ts::fold_in(own, n); }, numbers));
    const auto twice = ts::map([&](const auto& n) { return ts::fold_in(ts::fold_in(own, n), 3); }, numbers);
    const auto halves = ts::map(
        [&](const auto& n) {
          const auto [a, b] = ts::split<2>(ts::fold_in(own, n));
          return std::tuple(a, b);
        },
        numbers);
    const auto six = ts::split(own, ts::extent<0>(numbers));
    const auto of_tensor = ts::split(ts::key_data(own), 6);
    return std::tuple(all, twice, std::get<0>(halves), std::get<1>(halves), ts::key_data(own), six, of_tensor);
  });
  const std::vector<std::int32_t> numbers{0, 1, 2, 1000, -1, 2147483647};
  for (const ts::Mesh& mesh : meshes) {
    const auto n = ts::shard(numbers, {static_cast<std::int64_t>(numbers.size())}, mesh, {"x"});
    const auto [all, twice, first, second, itself, six, of_tensor] = f(n, key);
    const auto six_keys = ts::split<6>(key);
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(static_cast<std::uint64_t>(ts::to_host(six)[i]), six_keys[i].seed);
      EXPECT_EQ(static_cast<std::uint64_t>(ts::to_host(of_tensor)[i]), six_keys[i].seed);
    }
    EXPECT_EQ(static_cast<std::uint64_t>(ts::to_host(itself)[0]), key.seed);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const ts::Key own = ts::fold_in(key, static_cast<std::uint64_t>(numbers[i]));
      EXPECT_EQ(static_cast<std::uint64_t>(ts::to_host(all)[i]), own.seed) << i;
      EXPECT_EQ(static_cast<std::uint64_t>(ts::to_host(twice)[i]), ts::fold_in(own, 3).seed);
      const auto [a, b] = ts::split<2>(own);
      EXPECT_EQ(static_cast<std::uint64_t>(ts::to_host(first)[i]), a.seed);
      EXPECT_EQ(static_cast<std::uint64_t>(ts::to_host(second)[i]), b.seed);
    }
  }
}

// A key for each step: the draws of a loop are those of the same calls outside.
TEST(KeyTensors, StepsDrawWhatTheirKeysDraw) {
  constexpr auto looped = ts::compile([](const auto& x, const auto& own) {
    const auto indices = ts::iota<0, std::int32_t>(ts::broadcast_to(ts::sum(x) * 0.0, {ts::Dim(steps)}));
    const auto step = [&](const auto& total, const auto& i) {
      const auto noise = ts::normal_like(total, ts::fold_in(own, i));
      return std::tuple(total + noise, noise);
    };
    const auto [sum, all] = ts::scan(step, x, indices);
    const auto four = ts::fori_loop(
        0, 4, [&](const auto& i, const auto& v) { return v + ts::normal_like(v, ts::fold_in(own, i)); }, x);
    const auto unrolled = ts::fori_loop(
        0, 4, [&](const auto& i, const auto& v) { return v + ts::normal_like(v, ts::fold_in(own, i)); }, x,
        ts::unroll<3>);
    return std::tuple(sum, all, four, unrolled);
  });
  for (const ts::Mesh& mesh : meshes) {
    const auto x = rows(mesh);
    const auto [sum, all, four, unrolled] = looped(x, key);
    std::vector<float> total = ts::to_host(x), of_all = ts::to_host(all);
    std::vector<float> of_four;
    for (int i = 0; i < steps; ++i) {
      const std::vector<float> noise = drawn(x, ts::fold_in(key, static_cast<std::uint64_t>(i)));
      for (std::size_t k = 0; k < noise.size(); ++k) {
        EXPECT_EQ(of_all[static_cast<std::size_t>(i) * noise.size() + k], noise[k]);
        total[k] += noise[k];
      }
      if (i == 3) of_four = total;
    }
    EXPECT_EQ(ts::to_host(sum), total);
    EXPECT_EQ(ts::to_host(four), of_four);
    EXPECT_EQ(ts::to_host(unrolled), of_four);
  }
}

// jax.random.split in a loop: the carry has the key, and each step takes one half of it.
TEST(KeyTensors, AreCarriedAndSplit) {
  constexpr auto f = ts::compile([](const auto& x, const auto& own) {
    const auto step = [](const auto& carry) {
      const auto& [v, k] = carry;
      const auto halves = ts::split<2>(k);
      return std::tuple(std::tuple(v + ts::uniform_like<7>(v, halves[1]), halves[0]), std::tuple());
    };
    const auto [last, none] = ts::scan(step, std::tuple(x, ts::key_data(own)), 4);
    return last;
  });
  constexpr auto uniform_of = ts::compile([](const auto& x, const auto& own) { return ts::uniform_like<7>(x, own); });
  for (const ts::Mesh& mesh : meshes) {
    const auto x = rows(mesh);
    std::vector<float> total = ts::to_host(x);
    ts::Key left = key;
    for (int i = 0; i < 4; ++i) {
      const auto [next, own] = ts::split<2>(left);
      left = next;
      const std::vector<float> noise = ts::to_host(uniform_of(x, own));
      for (std::size_t k = 0; k < noise.size(); ++k) total[k] += noise[k];
    }
    const auto [v, last] = f(x, key);
    EXPECT_EQ(ts::to_host(v), total);
    EXPECT_EQ(static_cast<std::uint64_t>(ts::to_host(last)[0]), left.seed);
  }
}

struct Drop {
  constexpr auto operator()(const auto& x, const auto& w, const auto& own, const auto&... unrolled) const {
    return ts::fori_loop(
        0, 3,
        [&](const auto& i, const auto& v) {
          return ts::tanh(ts::matmul(ts::dropout(v, 0.4, ts::fold_in(own, i)), w)) + v * 0.5;
        },
        x, unrolled...);
  }
};
// Written out with keys of the host, which arrive as Scalars.
struct DropByHand {
  constexpr auto operator()(const auto& x, const auto& w, const auto& a, const auto& b, const auto& c) const {
    const auto step = [&](const auto& v, const auto& own) {
      return ts::tanh(ts::matmul(ts::dropout(v, 0.4, own), w)) + v * 0.5;
    };
    return step(step(step(x, a), b), c);
  }
};

// Each step has a mask of its own, the gradient the masks of the forward pass.
TEST(KeyTensors, DropoutOfALoopHasAGradient) {
  constexpr auto looped = ts::compile([](const auto& x, const auto& w, const auto& own) {
    return ts::value_and_grad([&](const auto& m) { return ts::sum(ts::square(Drop{}(x, m, own))); })(w);
  });
  constexpr auto unrolled = ts::compile([](const auto& x, const auto& w, const auto& own) {
    return ts::value_and_grad([&](const auto& m) { return ts::sum(ts::square(Drop{}(x, m, own, ts::unroll<2>))); })(w);
  });
  constexpr auto by_hand = ts::compile([](const auto& x, const auto& w, const auto& a, const auto& b, const auto& c) {
    return ts::value_and_grad([&](const auto& m) { return ts::sum(ts::square(DropByHand{}(x, m, a, b, c))); })(w);
  });
  const auto near = [](const auto& got, const auto& want) {
    const auto a = ts::to_host(got), b = ts::to_host(want);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-5 * (1 + std::abs(b[i])));
  };
  for (const ts::Mesh& mesh : meshes) {
    const auto x = rows(mesh), w = ts::normal<float>(ts::Key(8), {4, 4}, mesh, {});
    const auto want = by_hand(x, w, ts::fold_in(key, 0), ts::fold_in(key, 1), ts::fold_in(key, 2));
    const auto got = looped(x, w, key), also = unrolled(x, w, key);
    near(std::get<0>(got), std::get<0>(want));
    near(std::get<1>(got), std::get<1>(want));
    near(std::get<0>(also), std::get<0>(want));
    near(std::get<1>(also), std::get<1>(want));
  }
}

// A key tensor without steps, of each integer type, of an empty tensor, and where keys are xs; every kind of draw.
TEST(KeyTensors, OfEveryDraw) {
  constexpr auto f = ts::compile([](const auto& x, const auto& keys) {
    return ts::map(
        [&](const auto& own) {
          return std::tuple(ts::bernoulli(ts::abs(x) * 0.0 + 0.5, own), ts::gamma(ts::abs(x) + 0.5, own),
                            ts::randint_like<std::int32_t>(x, 0, 100, own), ts::gumbel_like(x, own),
                            ts::permutation<0>(x, own), ts::categorical(x, own));
        },
        keys);
  });
  constexpr auto one = ts::compile([](const auto& x, const auto& own) {
    return std::tuple(ts::bernoulli(ts::abs(x) * 0.0 + 0.5, own), ts::gamma(ts::abs(x) + 0.5, own),
                      ts::randint_like<std::int32_t>(x, 0, 100, own), ts::gumbel_like(x, own),
                      ts::permutation<0>(x, own), ts::categorical(x, own));
  });
  const auto same = [](const auto& all, const auto& own, std::size_t step) {
    const auto many = ts::to_host(all), few = ts::to_host(own);
    for (std::size_t i = 0; i < few.size(); ++i) EXPECT_EQ(many[step * few.size() + i], few[i]);
  };
  for (const ts::Mesh& mesh : meshes) {
    const auto x = rows(mesh);
    const auto all = f(x, ts::shard(std::vector<std::int64_t>{5, 6}, {2}, mesh, {}));
    for (std::size_t step = 0; step < 2; ++step) {
      const auto want = one(x, ts::Key(5 + step));
      same(std::get<0>(all), std::get<0>(want), step);
      same(std::get<1>(all), std::get<1>(want), step);
      same(std::get<2>(all), std::get<2>(want), step);
      same(std::get<3>(all), std::get<3>(want), step);
      same(std::get<4>(all), std::get<4>(want), step);
      same(std::get<5>(all), std::get<5>(want), step);
    }
  }
  constexpr auto at = ts::compile([](const auto& x, const auto& n) { return ts::normal_like(x, ts::sum(n)); });
  const auto x = rows(meshes[2]);
  const auto number = ts::shard(std::vector<std::int16_t>{7}, {1}, meshes[2], {});
  EXPECT_EQ(ts::to_host(at(x, number)), drawn(x, ts::Key(7)));
  EXPECT_EQ(ts::to_host(at(ts::zeros<float>({0, 4}, meshes[2], {"x"}), number)).size(), 0u);
}

// A 64-bit Scalar arrives in a kernel of 64-bit integers with all its bits.
TEST(KeyTensors, WholeScalarsOf64Bits) {
  constexpr auto f = ts::compile([](const auto& x, const auto& n) { return x + ts::key_data(n); });
  const auto x = ts::shard(std::vector<std::int64_t>{0, 1, -5}, {3}, meshes[1], {"x"});
  const auto big = static_cast<std::int64_t>(key.seed);
  EXPECT_EQ(ts::to_host(f(x, key)), (std::vector<std::int64_t>{big, big + 1, big - 5}));
}

}  // namespace
