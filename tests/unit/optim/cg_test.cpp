#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/graph/transform/vjp.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/functional.hpp>
#include <tessera/optim/cg.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>

namespace ts = tessera;

namespace {

using Numbers = std::vector<double>;

double dot(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
/// The algorithm of Hestenes and Stiefel, as its page in Wikipedia has it.
std::pair<Numbers, int> solved(const Numbers& a, const Numbers& b, int most, double tol) {
  const std::size_t n = b.size();
  Numbers x(n), r = b, p = b;
  double rr = dot(r, r);
  const double least = tol * tol * rr;
  int steps = 0;
  for (; steps < most && rr > least; ++steps) {
    Numbers image(n);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) image[i] += a[i * n + j] * p[j];
    const double alpha = rr / dot(p, image);
    for (std::size_t i = 0; i < n; ++i) x[i] += alpha * p[i], r[i] -= alpha * image[i];
    const double next = dot(r, r);
    for (std::size_t i = 0; i < n; ++i) p[i] = r[i] + next / rr * p[i];
    rr = next;
  }
  return {x, steps};
}
/// m m^T + 1, of n rows.
Numbers positive_matrix(std::size_t n) {
  Numbers m(n * n), a(n * n);
  for (std::size_t i = 0; i < n * n; ++i) m[i] = std::sin(1.7 * static_cast<double>(i * i + 1));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      a[i * n + j] = i == j ? 1 : 0;
      for (std::size_t k = 0; k < n; ++k) a[i * n + j] += m[i * n + k] * m[j * n + k];
    }
  return a;
}
const std::vector<ts::Mesh> meshes{ts::Mesh({{"data", 1}}), ts::Mesh({{"data", 2}}), ts::Mesh({{"data", 3}})};

TEST(Cg, OfAMatrixTakesTheStepsOfTheAlgorithm) {
  constexpr auto solve = ts::compile([](auto a, auto b, auto most, auto tol) {
    return ts::optim::cg([&](const auto& v) { return ts::einsum<"ij,j->i">(a, v); }, b, most, {.tol = tol});
  });
  const Numbers a = positive_matrix(7), b{1, -2, 0.5, 3, 0, -1, 2};
  for (const ts::Mesh& mesh : meshes)
    for (const ts::PartitionSpec& spec : {ts::PartitionSpec{"data"}, ts::PartitionSpec{ts::none, "data"}})
      for (const auto& [most, tol] : {std::pair(2, 1e-8), std::pair(100, 1e-2), std::pair(100, 1e-10)}) {
        const auto [x, steps] =
            solve(ts::shard(a, {7, 7}, mesh, spec), ts::shard(b, {7}, mesh, {"data"}), ts::Dim(most), ts::Scalar(tol));
        const auto [want, count] = solved(a, b, most, tol);
        EXPECT_EQ(ts::item(steps), count) << mesh.text() << tol;
        const std::vector<double> got = ts::to_host(x);
        for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-9) << mesh.text() << " " << i;
      }
}

struct Fit {
  ts::ShardedTensor<double, 2> weight;
  ts::ShardedTensor<double, 1> bias;
  ts::ShardedTensor<std::int32_t, 1> kept;  // is no parameter
};

/// One Newton step of a quadratic loss ends at its minimum, where the gradient is 0.
TEST(Cg, OfAModelIsANewtonStep) {
  constexpr auto step = ts::compile([](auto model, auto x, auto t) {
    const auto loss = [&](const auto& m) {
      return ts::mse(ts::matmul(x, m.weight) + m.bias, t) + 0.1 * ts::tree_vdot(m, m);
    };
    const auto gradient = ts::grad(loss)(model);
    const auto [move, steps] = ts::optim::cg(
        [&](const auto& v) { return ts::hvp(loss, std::tuple(model), std::tuple(v)); }, gradient, 50, {.tol = 1e-12});
    const auto next = ts::optim::tree_map([](auto p, auto q) { return p - q; }, model, move);
    return std::tuple(next, ts::grad(loss)(next), steps);
  });
  for (const ts::Mesh& mesh : meshes) {
    const Fit model{ts::uniform<double>(ts::Key(1), {3, 2}, mesh, {"data"}), ts::uniform<double>(ts::Key(2), {2}, mesh),
                    ts::shard<std::int32_t>({4, 5}, mesh)};
    const auto x = ts::uniform<double>(ts::Key(3), {5, 3}, mesh, {"data"}, -1, 1);
    const auto t = ts::uniform<double>(ts::Key(4), {5, 2}, mesh, {"data"}, -1, 1);
    const auto [next, gradient, steps] = step(model, x, t);
    for (const double g : ts::to_host(gradient.weight)) EXPECT_NEAR(g, 0, 1e-12);
    for (const double g : ts::to_host(gradient.bias)) EXPECT_NEAR(g, 0, 1e-12);
    EXPECT_EQ(ts::to_host(next.kept), (std::vector<std::int32_t>{4, 5}));
    EXPECT_LE(ts::item(steps), 9);
  }
}

TEST(Cg, OfZeroIsZeroAfterNoStep) {
  constexpr auto solve =
      ts::compile([](auto b) { return ts::optim::cg([](const auto& v) { return v * 2.0; }, b, 10); });
  const auto [x, steps] = solve(ts::zeros<float>({3}, meshes[1], {"data"}));
  EXPECT_EQ(ts::item(steps), 0);
  EXPECT_EQ(ts::to_host(x), (std::vector<float>{0, 0, 0}));
}

TEST(Cg, OutsideOfATracedFunctionIsAnError) {
  const auto b = ts::ones<float>({3}, meshes[1]);
  tessera_test::expect_error(
      ts::errc::unsupported, [&] { (void)ts::optim::cg([](const auto& v) { return v; }, b, 3); }, "[cg]",
      "ts::optim::cg", "cg_test.cpp:");
}

}  // namespace
