// Sums that a loop carries from step to step are reduced once, after the loop.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/trace/stack.hpp>
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/nn/sharding_strategy.hpp>
#include <tessera/ops/cond.hpp>
#include <tessera/ops/constraint.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/optim/gradients/accumulate.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>

namespace ts = tessera;

namespace {

struct Layer {
  ts::ShardedTensor<double, 2> weight;
  ts::ShardedTensor<double, 1> bias;
  constexpr auto operator()(const auto& x) const { return x + ts::tanh(ts::matmul(x, weight) + bias); }
};
struct Model {
  ts::Stack<Layer> layers;
  ts::ShardedTensor<double, 2> head;
  constexpr auto operator()(const auto& x) const { return ts::matmul(layers(x), head); }
};
constexpr int width = 4;
Model model_on(const ts::Mesh& mesh, const ts::PartitionSpec& spec = {}) {
  const auto layer = [&](int i) {
    return Layer{ts::normal<double>(ts::Key(static_cast<std::uint64_t>(i)), {width, width}, mesh, spec),
                 ts::normal<double>(ts::Key(9), {width}, mesh)};
  };
  return {{3, layer}, ts::normal<double>(ts::Key(8), {width, 2}, mesh)};
}
constexpr auto loss_of = [](const auto& m, const auto& x) { return ts::mean(ts::tanh(m(x))); };

/// How often the plan has a collective of a kind.
std::int64_t times(const ts::Plan& plan, ts::Collective kind) {
  std::int64_t count = 0;
  plan.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t n) { count += c.kind == kind ? n : 0; });
  return count;
}
std::int64_t all_reduces(const ts::Plan& plan) { return times(plan, ts::Collective::all_reduce); }

void append(std::vector<double>& values, const auto& x) {
  for (const auto value : ts::to_host(x)) values.push_back(value);
}
std::vector<double> listed(const Model& model) {
  std::vector<double> values = ts::to_host(model.head);
  for (const Layer& layer : model.layers.layers()) {
    append(values, layer.weight);
    append(values, layer.bias);
  }
  return values;
}
void expect_equal(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-14 + 1e-13 * std::abs(want[i])) << i;
}

constexpr auto accumulated =
    ts::compile([](auto model, auto x) { return ts::optim::accumulate<4>(loss_of)(model, x); });

// Four tensors and the loss, whatever the number of microbatches and of layers is.
TEST(LoopSums, AccumulationReducesOnce) {
  const ts::Mesh mesh({{"data", 3}}), one{};
  const auto x = ts::normal<double>(ts::Key(5), {24, width}, mesh, {"data"});
  const Model model = model_on(mesh);
  EXPECT_EQ(all_reduces(accumulated.plan(model, x)), 4);
  const auto [loss, gradient] = accumulated(model, x);
  const auto [want_loss, want] = accumulated(model_on(one), ts::normal<double>(ts::Key(5), {24, width}, one));
  expect_equal(listed(gradient), listed(want));
  EXPECT_NEAR(ts::to_host(loss)[0], ts::to_host(want_loss)[0], 1e-15);
}

// Weights are gathered for each microbatch, and their gradients reduced once.
TEST(LoopSums, AccumulationOfParametersInPartsReducesOnce) {
  const ts::Mesh mesh({{"data", 2}}), one{};
  const auto x = ts::normal<double>(ts::Key(5), {24, width}, mesh, {"data"});
  const Model model = model_on(mesh, ts::PartitionSpec{"data"}.gathered_on_use());
  EXPECT_EQ(all_reduces(accumulated.plan(model, x)), 4);
  const auto [loss, gradient] = accumulated(model, x);
  const auto [want_loss, want] = accumulated(model_on(one), ts::normal<double>(ts::Key(5), {24, width}, one));
  expect_equal(listed(gradient), listed(want));
}

template <int Kind> struct Sums {
  /// xs [steps, batch, width], weight [width].
  constexpr auto operator()(const auto& xs, const auto& weight) const {
    const auto term = [&](const auto& x) { return ts::sum<0>(ts::tanh(x * weight)); };
    if constexpr (Kind == 0) {  // the gradient of a scan
      return ts::grad([&](const auto& w) {
        const auto step = [&](const auto& h, const auto& x) { return std::tuple(ts::tanh(h * w + x), std::tuple()); };
        return ts::sum(std::get<0>(ts::scan(step, ts::slice<0>(xs, 0, 1), ts::unsqueeze<1>(xs))));
      })(weight);
    } else if constexpr (Kind == 1) {  // read in the loop
      const auto step = [&](const auto& s, const auto& x) { return std::tuple(s + term(x * s), std::tuple()); };
      return std::get<0>(ts::scan(step, ts::zeros_like(weight), xs));
    } else if constexpr (Kind == 2) {  // does not begin with zeros
      const auto step = [&](const auto& s, const auto& x) { return std::tuple(s + term(x), std::tuple()); };
      return std::get<0>(ts::scan(step, weight, xs));
    } else if constexpr (Kind == 3) {  // in a branch, and returned by each step
      const auto step = [&](const auto& carry, const auto& x) {
        const auto next = ts::cond(
            std::get<1>(carry) < 2, [&] { return std::get<0>(carry) + term(x); },
            [&] { return std::get<0>(carry) * 1.0; });
        return std::tuple(std::tuple(next, std::get<1>(carry) + 1), next);
      };
      const auto [last, all] = ts::scan(step, std::tuple(ts::zeros_like(weight), 0), xs);
      return std::get<0>(last) + ts::sum<0>(all);
    } else if constexpr (Kind == 4) {  // two sums of which the second needs the first reduced
      const auto step = [&](const auto& carry, const auto& x) {
        const auto& s = std::get<0>(carry);
        return std::tuple(std::tuple(s + term(x), std::get<1>(carry) + ts::sum<0>(x) * ts::tanh(s)), std::tuple());
      };
      const auto last = std::get<0>(ts::scan(step, std::tuple(ts::zeros_like(weight), ts::zeros_like(weight)), xs));
      return std::get<0>(last) - std::get<1>(last);
    } else if constexpr (Kind == 5) {  // split over the axis: each device keeps its part
      const auto step = [&](const auto& s, const auto& x) { return std::tuple(s + term(x), std::tuple()); };
      return ts::with_sharding(std::get<0>(ts::scan(step, ts::zeros_like(weight), xs)), {"data"});
    } else {  // a loop in a loop
      const auto outer = [&](const auto& s, const auto& x) {
        const auto inner = [&](const auto& t, const auto&) { return std::tuple(t + term(x), std::tuple()); };
        return std::tuple(std::get<0>(ts::scan(inner, s, ts::slice<0>(xs, 0, 2))), std::tuple());
      };
      return std::get<0>(ts::scan(outer, ts::zeros_like(weight), xs));
    }
  }
};
/// How many collectives of a kind 5 steps have, after a comparison with one device.
template <int Kind> std::int64_t reduces(ts::Collective kind = ts::Collective::all_reduce) {
  static constexpr auto program = ts::compile(Sums<Kind>{});
  const auto on = [&](const ts::Mesh& mesh, const ts::PartitionSpec& spec) {
    return std::pair(ts::normal<double>(ts::Key(1), {5, 7, width}, mesh, spec),
                     ts::normal<double>(ts::Key(2), {width}, mesh));
  };
  const ts::Mesh mesh({{"data", 3}});
  const auto [xs, weight] = on(mesh, {ts::none, "data"});
  const auto [want_xs, want_weight] = on(ts::Mesh({{"data", 1}}), {});
  expect_equal(ts::to_host(program(xs, weight)), ts::to_host(program(want_xs, want_weight)));
  return times(program.plan(xs, weight), kind);
}

TEST(LoopSums, AreReducedInEachStepOnlyWhereTheyAreRead) {
  EXPECT_EQ(reduces<0>(), 1);
  EXPECT_EQ(reduces<1>(), 5);
  EXPECT_EQ(reduces<2>(), 5);
  EXPECT_EQ(reduces<3>(), 5);
  EXPECT_EQ(reduces<4>(), 2 * 5);  // one kernel computes both
  EXPECT_EQ(reduces<5>(), 0);
  EXPECT_EQ(reduces<5>(ts::Collective::reduce_scatter), 5);
  EXPECT_EQ(reduces<6>(), 1);
}

}  // namespace
