// Compiled functions inside others.
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/reshard.hpp>

namespace ts = tessera;

namespace {

constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});

struct Affine {
  ts::ShardedTensor<double, 2> weight;
  ts::ShardedTensor<double, 1> bias;
};
// One program, of functions that are compiled and of functions that are not. It calls them with values, with a struct,
// with a tuple, with what they made, and with a struct alone, whose type does not say that it is traced.
template <bool Compiled, class F> constexpr auto made(F f) {
  if constexpr (Compiled)
    return ts::compile(f);
  else
    return f;
}
template <bool Compiled> struct Nest {
  static constexpr auto scale = made<Compiled>([](auto v, auto by) { return v * by; });
  static constexpr auto apply = made<Compiled>(
      [](const auto& m, const auto& v) { return std::tuple(ts::matmul(scale(v, m.bias), m.weight) + m.bias, m); });
  static constexpr auto size =
      made<Compiled>([](const auto& m) { return ts::sum(m.weight * m.weight) + ts::sum(m.bias); });
  static constexpr auto twice = made<Compiled>([](auto both, ts::Scalar rate) {
    const auto [first, model] = apply(std::get<1>(both), std::get<0>(both));
    const auto [second, same] = apply(model, ts::tanh(first) * rate);
    return std::tuple(ts::sum(second * second) + size(same), second);
  });
  static constexpr auto loss =
      made<Compiled>([](const auto& m, auto v, ts::Scalar rate) { return twice(std::tuple(v, m), rate); });
  constexpr auto operator()(const auto& m, const auto& v, ts::Scalar rate) const {
    const auto [values, gradient] = ts::value_and_grad(loss)(m, v, rate);
    auto next = m;
    next.weight = m.weight - scale(gradient.weight, rate);
    next.bias = m.bias - scale(gradient.bias, rate);
    return std::tuple(values, gradient, next);
  }
};
TEST(CompiledFunctions, BecomePartOfTheOneThatCallsThem) {
  constexpr auto nested = ts::compile(Nest<true>{});
  constexpr auto plain = ts::compile(Nest<false>{});
  const Affine model{ts::eval(ts::split_dim<0>(ts::arange<double>(16, mesh) * 0.1, 4)),
                     ts::arange<double>(4, mesh, {"model"})};
  const auto x = ts::reshard(ts::eval(ts::split_dim<0>(ts::arange<double>(24, mesh) * 0.05, 4)), {"data"});
  const auto [got, gradient, next] = nested(model, x, ts::Scalar(0.3));
  const auto [want, true_gradient, true_next] = plain(model, x, ts::Scalar(0.3));
  EXPECT_EQ(ts::item(std::get<0>(got)), ts::item(std::get<0>(want)));
  EXPECT_EQ(ts::to_host(std::get<1>(got)), ts::to_host(std::get<1>(want)));
  EXPECT_EQ(ts::to_host(gradient.weight), ts::to_host(true_gradient.weight));
  EXPECT_EQ(ts::to_host(gradient.bias), ts::to_host(true_gradient.bias));
  EXPECT_EQ(ts::to_host(next.weight), ts::to_host(true_next.weight));
  EXPECT_EQ(ts::to_host(next.bias), ts::to_host(true_next.bias));
  const ts::Plan &one = nested.plan(model, x, ts::Scalar(0.3)), &other = plain.plan(model, x, ts::Scalar(0.3));
  EXPECT_EQ(one.graphs[0].steps.size(), other.graphs[0].steps.size());
  EXPECT_EQ(one.flops(), other.flops());

  // The gradient by central differences of the inner function, which runs by itself as well.
  const auto at = [&](double moved) {
    Affine m = model;
    auto bias = ts::to_host(model.bias);
    bias[2] += moved;
    m.bias = ts::shard(bias, {4}, mesh, {"model"});
    return ts::item(std::get<0>(Nest<true>::loss(m, x, ts::Scalar(0.3))));
  };
  EXPECT_NEAR(ts::to_host(gradient.bias)[2], (at(1e-5) - at(-1e-5)) / 2e-5, 1e-4);
}
TEST(CompiledFunctions, OfStructsAloneBecomePartToo) {
  static constexpr auto size = ts::compile([](const auto& m) { return ts::sum(m.bias * m.bias); });
  static constexpr auto doubled = ts::compile([](const auto& m) { return size(m) * 2.0; });
  constexpr auto slope = ts::compile([](const auto& m) {
    return std::tuple(ts::grad(doubled)(m).bias, doubled(m) + size(m), ts::grad(size)(m).bias);
  });
  const Affine model{ts::zeros<double>({2, 2}, mesh), ts::arange<double>(4, mesh, {"data"})};
  const auto [first, sum, second] = slope(model);
  EXPECT_EQ(ts::to_host(first), (std::vector<double>{0, 4, 8, 12}));
  EXPECT_EQ(ts::item(sum), 42);
  EXPECT_EQ(ts::to_host(second), (std::vector<double>{0, 2, 4, 6}));
  EXPECT_EQ(ts::item(size(model)), 14);
  // An expression that is an argument, outside and inside.
  static constexpr auto next = ts::compile([](auto v) { return v + 1.0; });
  constexpr auto over = ts::compile([](const auto& m) { return next(m.bias * 2.0); });
  EXPECT_EQ(ts::to_host(over(model)), (std::vector<double>{1, 3, 5, 7}));
  EXPECT_EQ(ts::to_host(next(model.bias * 2.0)), (std::vector<double>{1, 3, 5, 7}));
}

}  // namespace
