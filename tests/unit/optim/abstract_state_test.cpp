// Plans of training steps with an optimizer's state without data: those of the state that init_state makes.
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <gtest/gtest.h>

#include <tessera/tessera.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;

namespace {

constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});

struct Net {
  nn::Linear<> in;
  ts::Stack<nn::Mlp<>> blocks;
  ts::ShardedTensor<float, 3> mixed;  // Adafactor factors the last two dims, Muon takes matrices only
  ts::ShardedTensor<std::int32_t, 1> counts;
  ts::Dim size;
  constexpr auto operator()(const auto& x) const { return blocks(in(x)) + ts::sum<0, 1>(mixed); }
};
constexpr auto train = ts::compile([](auto model, auto state, auto config, auto x, auto target) {
  const auto loss_of = [](const auto& m, const auto& in, const auto& out) { return ts::mse(m(in), out); };
  const auto [loss, gradient] = ts::value_and_grad(loss_of)(model, x, target);
  return std::pair(loss, ts::optim::optimizer_step(model, gradient, state, config));
});

constexpr ts::PartitionSpec columns{ts::none, "model"}, rows{"model"};
constexpr auto abstract_net() {
  return ts::abstract<Net>({{{16, 8}, columns},
                            {{8}, rows},
                            ts::stacked(3, {{8, 32}, columns}),
                            ts::stacked(3, {{32}, rows}),
                            ts::stacked(3, {{32, 8}, {"model", "data"}}),
                            ts::stacked(3, {{8}}),
                            {{2, 4, 8}, {ts::none, ts::none, "model"}},
                            {{5}},
                            ts::Abstract::dim(7)});
}
Net net() {
  const auto ones = [](std::int64_t n, std::int64_t m, const ts::PartitionSpec& spec) {
    return ts::full<float>({n, m}, 0.5f, mesh, spec);
  };
  const auto vector = [](std::int64_t n, const ts::PartitionSpec& spec) { return ts::full<float>({n}, 0, mesh, spec); };
  return {
      {ones(16, 8, columns), vector(8, rows)},
      ts::Stack<nn::Mlp<>>(
          3,
          [&](int) {
            return nn::Mlp<>{{ones(8, 32, columns), vector(32, rows)}, {ones(32, 8, {"model", "data"}), vector(8, {})}};
          }),
      ts::full<float>({2, 4, 8}, 0.5f, mesh, {ts::none, ts::none, "model"}),
      ts::full<std::int32_t>({5}, 0, mesh),
      7};
}

template <class Config> class AbstractState : public testing::Test {};
using Optimizers =
    testing::Types<ts::optim::AdamW, ts::optim::Adam, ts::optim::RAdam, ts::optim::Lamb, ts::optim::AmsGrad,
                   ts::optim::Adamax, ts::optim::NAdam, ts::optim::Sgd, ts::optim::DampenedSgd, ts::optim::Lion,
                   ts::optim::RmsProp, ts::optim::CenteredRmsProp, ts::optim::Adagrad, ts::optim::Adadelta,
                   ts::optim::Rprop, ts::optim::Asgd, ts::optim::Adafactor, ts::optim::Muon, ts::optim::Lbfgs>;
TYPED_TEST_SUITE(AbstractState, Optimizers);

TYPED_TEST(AbstractState, PlansAsTheStateOfAModel) {
  const TypeParam config{};
  const Net model = net();
  const auto x = ts::full<float>({8, 16}, 1, mesh, {"data"}), target = ts::full<float>({8, 8}, 1, mesh, {"data"});
  const auto state = ts::optim::init_state(config, model);
  const auto abstract_state = ts::optim::init_state(config, abstract_net());
  static_assert(std::is_same_v<typename decltype(abstract_state)::type, std::remove_cvref_t<decltype(state)>>);
  const ts::Plan planned = ts::plan(train, mesh, abstract_net(), abstract_state, ts::abstract(config),
                                    ts::abstract<float>({8, 16}, {"data"}), ts::abstract<float>({8, 8}, {"data"}));
  const ts::Plan called = train.plan(model, state, config, x, target);
  EXPECT_EQ(ts::explain(planned), ts::explain(called));
  ASSERT_EQ(planned.main().values.size(), called.main().values.size());
  for (std::size_t i = 0; i < planned.main().values.size(); ++i) {
    EXPECT_EQ(planned.main().values[i].shape, called.main().values[i].shape) << i;
    EXPECT_EQ(planned.main().values[i].sharding, called.main().values[i].sharding) << i;
  }
}

}  // namespace
