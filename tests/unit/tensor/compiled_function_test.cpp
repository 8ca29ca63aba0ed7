#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/ops/vmap/vmap.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/print/print.hpp>
#include <tessera/tensor/reshard.hpp>

namespace ts = tessera;

namespace {

using tessera_test::expect_error;
constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});

constexpr int compiled_line = __LINE__ + 1;
constexpr auto product = ts::compile([](auto a, auto b) { return ts::matmul(a, b); });

TEST(CompiledFunctions, SayWhereTheyWereCompiledWhenMemoryIsOut) {
  const auto a = ts::zeros<float>({1 << 24, 1}, mesh), b = ts::zeros<float>({1, 1 << 24}, mesh);
  try {
    product(a, b);
    FAIL() << "nothing was thrown";
  } catch (const ts::error& e) {
    EXPECT_EQ(e.id(), ts::errc::capacity);
    EXPECT_EQ(std::string(e.what()),
              "[buffer] memory: the system can't provide 1125899906842624 bytes, in a call of the function compiled at "
              "compiled_function_test.cpp:" +
                  std::to_string(compiled_line));
  }
  EXPECT_EQ(ts::item(ts::sum(a)), 0);
  EXPECT_EQ(ts::to_host(ts::abs(a)), ts::to_host(a));
}

// The user's own names may read like the end of a message that names its line.
TEST(CompiledFunctions, SayWhereTheyWereCompiledWhateverTheMessageSays) {
  constexpr ts::PlanOptions options{.explicit_axes = {"rows at x:3"}};
  const int line = __LINE__ + 1;
  constexpr auto sum = ts::compile([](auto a, auto b) { return a + b; }, options);
  const auto a = ts::zeros<float>({2, 2}, mesh);
  try {
    (void)sum(a, a);
    FAIL() << "nothing was thrown";
  } catch (const ts::error& e) {
    EXPECT_EQ(e.id(), ts::errc::mesh_axis);
    const std::string at = "compiled_function_test.cpp:" + std::to_string(line);
    EXPECT_EQ(std::string(e.what()), "[mesh] unknown axis: " + mesh.text() + " has no axis 'rows at x:3'" +
                                         ", in a call of the function compiled at " + at);
    EXPECT_EQ(e.source().text(), at);
  }
}

// A product's sums go where the result will be, unless an argument that was given up lies there, or others read them.
TEST(CompiledFunctions, FinishProductsWhereTheResultLies) {
  constexpr int m = 150, n = 70;
  const auto number = [](int i, int seed) { return static_cast<float>((i * 7 + i / 5 * seed) % 11 - 5); };
  std::vector<float> a(m * m), b(m * n), c(m * n), square(m * m);
  for (int i = 0; i < m * m; ++i) a[i] = number(i, 1), square[i] = number(i, 2);
  for (int i = 0; i < m * n; ++i) b[i] = number(i, 3), c[i] = number(i, 4);
  const auto times = [](const std::vector<float>& x, const std::vector<float>& y, int columns) {
    std::vector<float> z(static_cast<std::size_t>(m * columns));
    for (int i = 0; i < m; ++i)
      for (int k = 0; k < m; ++k)
        for (int j = 0; j < columns; ++j) z[i * columns + j] += x[i * m + k] * y[k * columns + j];
    return z;
  };
  std::vector<float> ab = times(a, b, n), layer_of = ab, sum_of = times(a, square, m);
  for (int i = 0; i < m * n; ++i) layer_of[i] = 2 * std::max(ab[i], 0.0f) - c[i];
  for (int i = 0; i < m * m; ++i) sum_of[i] += a[i];

  constexpr auto layer = ts::compile([](auto x, auto w, auto r) { return ts::relu(ts::matmul(x, w)) * 2.0f - r; });
  constexpr auto sum = ts::compile([](auto x, auto w) { return ts::matmul(x, w) + x; });
  constexpr auto both = ts::compile([](auto x, auto w) {
    auto ab_of = ts::matmul(x, w);
    return std::tuple(ts::abs(ab_of), ab_of);
  });
  constexpr auto chain = ts::compile([](auto x, auto w) {
    auto ab_of = ts::abs(ts::matmul(x, w));
    return std::tuple(ab_of, ts::matmul(x, ab_of));
  });
  for (const ts::PartitionSpec& spec : {ts::PartitionSpec{}, ts::PartitionSpec{"data", "model"}}) {
    const auto x = ts::shard(a, {m, m}, mesh, spec), w = ts::shard(b, {m, n}, mesh, {{}, "model"}),
               v = ts::shard(square, {m, m}, mesh, spec);
    auto r = ts::shard(c, {m, n}, mesh, {"data", "model"});
    EXPECT_EQ(ts::to_host(layer(x, w, r)), layer_of);
    EXPECT_EQ(ts::to_host(layer(x, w, std::move(r))), layer_of);
    EXPECT_EQ(ts::to_host(layer(x, w, ts::shard(c, {m, n}, mesh, {"data", "model"}))), layer_of);
    EXPECT_EQ(ts::to_host(sum(x, v)), sum_of);
    EXPECT_EQ(ts::to_host(sum(ts::shard(a, {m, m}, mesh, spec), v)), sum_of);
    std::vector<float> size = ab;
    for (float& value : size) value = std::abs(value);
    const auto [first, second] = both(x, w);
    EXPECT_EQ(ts::to_host(first), size);
    EXPECT_EQ(ts::to_host(second), ab);
    const auto [inner, outer] = chain(x, w);
    EXPECT_EQ(ts::to_host(inner), size);
    EXPECT_EQ(ts::to_host(outer), times(a, size, n));
  }
}

// A call is found by the layouts of its arguments: as many as come, in any order, from several threads.
TEST(RecentCalls, AreThoseOfTheirArguments) {
  constexpr auto compiled = ts::compile([](auto a, auto b, auto scale) { return a * scale + b; });
  const auto check = [&](std::int64_t rows, bool split, float scale) {
    const auto a = ts::reshard(ts::arange<float>(rows, mesh), split ? ts::PartitionSpec{"data"} : ts::PartitionSpec{});
    const auto b = ts::reshard(ts::full<float>({rows}, 3.f, mesh), {split ? "model" : "data"});
    std::vector<float> expected;
    for (std::int64_t i = 0; i < rows; ++i) expected.push_back(static_cast<float>(i) * scale + 3);
    EXPECT_EQ(ts::to_host(ts::eval(a * scale + b)), expected);
    EXPECT_EQ(ts::to_host(compiled(a, b, ts::Scalar(scale))), expected);
    EXPECT_EQ(ts::sharding(ts::eval(a * scale + b)), ts::sharding(compiled(a, b, ts::Scalar(scale))));
  };
  const auto run = [&](int first) {
    for (int i = first; i < first + 40; ++i) check(4 + 4 * (i * i % 7), i % 3 == 0, static_cast<float>(i));
  };
  run(0);
  std::thread other(run, 17);
  run(5);
  other.join();
}

TEST(RecentCalls, CountAsHitsAndCheckTheirArguments) {
  constexpr auto compiled = ts::compile([](auto a, auto b) { return a + b; });
  using Vector = ts::ShardedTensor<double, 1>;
  const auto a = ts::arange<double>(6, mesh);
  for (int i = 0; i < 5; ++i) compiled(a, a);
  EXPECT_EQ((compiled.cache_statistics<Vector, Vector>().misses), 1);
  EXPECT_EQ((compiled.cache_statistics<Vector, Vector>().hits), 4);

  const auto thrown_by = [](auto&& f) {
    try {
      f();
    } catch (const ts::error& e) {
      return e.id();
    }
    return ts::errc::unsupported;
  };
  const auto elsewhere = ts::arange<double>(6, ts::Mesh({{"data", 4}}));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(thrown_by([&] { compiled(a, elsewhere); }), ts::errc::mesh_mismatch);
    EXPECT_EQ(thrown_by([&] { ts::eval(a + elsewhere); }), ts::errc::mesh_mismatch);
    EXPECT_EQ(thrown_by([&] { compiled(a, ts::arange<double>(5, mesh)); }), ts::errc::shape_mismatch);
    EXPECT_EQ(thrown_by([&] { compiled(a, Vector()); }), ts::errc::empty_tensor);
    EXPECT_EQ(thrown_by([&] { ts::eval(Vector() + a); }), ts::errc::empty_tensor);
    EXPECT_EQ(ts::to_host(compiled(a, a)), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  }
}

// Programs whose result is an argument, a number, or a view of one have no step that makes it.
TEST(RecentCalls, OfProgramsWithoutAStep) {
  constexpr auto same = ts::compile([](auto a) { return a; });
  constexpr auto turned = ts::compile([](auto a) { return ts::transpose<1, 0>(a); });
  constexpr auto constant = ts::compile([](auto a, auto n) { return ts::extent<0>(a) * n; });
  const auto a = ts::reshard(ts::eval(ts::split_dim<0>(ts::arange<float>(6, mesh), 3)), {"data"});  // [2, 3]
  for (int i = 1; i < 4; ++i) {
    EXPECT_EQ(same(a).storage().get(), a.storage().get());
    EXPECT_EQ(ts::to_host(turned(a)), (std::vector<float>{0, 3, 1, 4, 2, 5}));
    EXPECT_EQ(constant(a, ts::Dim(i)).value(), 2 * i);
  }
}

TEST(TensorLayouts, AreSharedByTensorsAlike) {
  const auto id = [](const auto& x) { return ts::storage_of(x).layout()->id(); };
  const auto a = ts::zeros<float>({4, 6}, mesh, {"data"});
  EXPECT_EQ(id(a), id(ts::ones<float>({4, 6}, mesh, {"data"})));
  EXPECT_EQ(id(a), id(ts::eval(a + 1)));
  EXPECT_NE(id(a), id(ts::zeros<float>({4, 6}, mesh, {"model"})));
  EXPECT_NE(id(a), id(ts::zeros<float>({4, 6}, mesh)));
  EXPECT_NE(id(a), id(ts::zeros<float>({6, 4}, mesh, {"data"})));
  EXPECT_NE(id(a), id(ts::zeros<double>({4, 6}, mesh, {"data"})));
  EXPECT_NE(id(a), id(ts::zeros<float>({4, 6}, ts::Mesh({{"data", 4}}), {"data"})));
}

// ---- structs that each step or example returns

struct Scaled {
  ts::ShardedTensor<double, 1> of;
  ts::Dim size;
  ts::Scalar by;
};
// Dims and Scalars of the struct are the same in all layers of the Stack; computed ones are computed outside.
TEST(CompiledFunctions, ReturnStructsWithNumbersFromEachStepAndExample) {
  constexpr auto of_examples = ts::compile([](const auto& x, const ts::Dim& size, const ts::Scalar& by) {
    return ts::vmap([&](const auto& row) { return Scaled{row * by, size, by}; })(x);
  });
  constexpr auto of_steps = ts::compile([](const auto& x, const ts::Dim& size, const ts::Scalar& by) {
    const auto step = [&](const auto& n, const auto& row) { return std::tuple(n + 1, Scaled{row * by, size, by}); };
    return std::get<1>(ts::scan(step, 0, x));
  });
  for (const ts::PartitionSpec& spec :
       {ts::PartitionSpec{}, ts::PartitionSpec{"data"}, ts::PartitionSpec{"data", "model"}}) {
    const auto x = ts::reshard(ts::eval(ts::reshape(ts::arange<double>(12, mesh), {4, 3})), spec);
    for (const auto& stack :
         std::array{of_examples(x, ts::Dim(7), ts::Scalar(0.5)), of_steps(x, ts::Dim(7), ts::Scalar(0.5))}) {
      ASSERT_EQ(stack.size(), 4);
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(ts::to_host(stack[i].of), (std::vector<double>{1.5 * i, 1.5 * i + 0.5, 1.5 * i + 1})) << spec.text();
        EXPECT_EQ(stack[i].size.value(), 7);
        EXPECT_EQ(stack[i].by.value(), 0.5);
      }
    }
  }
}

// ---- Stacks of blocks without tensors

struct Step {
  ts::Scalar rate;
  constexpr auto operator()(const auto& v) const { return v * rate + 1.0; }
};
struct Net {
  ts::Stack<Step> steps;
  ts::ShardedTensor<double, 1> gain;
};
TEST(CompiledFunctions, RunAStackWithoutTensorsAsOftenAsItHasLayers) {
  constexpr auto run = ts::compile([](auto net, auto x) {
    const auto [value, gradient] =
        ts::value_and_grad([](const auto& v, const auto& n) { return ts::sum(n.steps(v) * n.gain); })(x, net);
    net.gain = net.gain + 1.0;
    return std::tuple(value, gradient, net);
  });
  for (int round = 0; round < 2; ++round)
    for (const int n : {1, 2, 5, 130}) {
      Net net{ts::Stack<Step>(n, [](int) { return Step{0.5}; }), ts::ones<double>({4}, mesh, {"data"})};
      const auto x = ts::arange<double>(4, mesh, {"model"});
      double value = 0;
      for (double v : {0, 1, 2, 3}) {
        for (int i = 0; i < n; ++i) v = v * 0.5 + 1;
        value += v;
      }
      const auto [sum, gradient, next] = run(std::move(net), x);
      EXPECT_DOUBLE_EQ(ts::item(sum), value);
      EXPECT_EQ(ts::to_host(gradient), std::vector<double>(4, std::pow(0.5, n)));
      EXPECT_EQ(next.steps.size(), n);
      EXPECT_EQ(next.steps[n - 1].rate.value(), 0.5);
      EXPECT_EQ(ts::to_host(next.gain), std::vector<double>(4, 2));
    }
  tessera_test::expect_error(
      ts::errc::structure,
      [&] {
        run(Net{{}, ts::ones<double>({4}, mesh)}, ts::arange<double>(4, mesh));
      },
      "layers");
  tessera_test::expect_error(
      ts::errc::structure, [] { ts::Stack<Step>(-1, [](int) { return Step{0.5}; }); }, "-1");
}

// Derivatives of stored tensors, outside of a function of ts::compile.
struct Line {
  ts::ShardedTensor<float, 1> slope;
  constexpr auto operator()(const auto& x) const { return ts::mean(slope * x); }
};
TEST(CompiledFunctions, AreWhereDerivativesAre) {
  const Line line{ts::ones<float>({3}, mesh)};
  const auto x = ts::arange<float>(3, mesh, {"data"});
  const auto refused = [](auto call) {
    tessera_test::expect_error(
        ts::errc::unsupported, call,
        "[grad] outside of a traced function: call ts::grad, ts::vjp and other derivatives inside "
        "a function of ts::compile at compiled_function_test.cpp");
  };
  const auto value = [](const auto& own, const auto& in) { return own(in); };
  refused([&] { ts::grad(value)(line, x); });
  refused([&] { ts::value_and_grad<1>(value)(line, x); });
}

}  // namespace
