// Plans of training steps with an optimizer's state without data: those of the state that init_state makes.
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <tuple>
#include <type_traits>
#include <utility>

#include "../base/expect_error.hpp"
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

/// Compares the leaves of a state without data with those of a state. Of a Stack they are compared in each layer.
template <std::size_t N> struct CompareLeaves {
  const ts::Abstract (&leaves)[N];
  std::size_t next = 0, first = 0;
  template <class Leaf> void leaf(const Leaf& leaf) {
    const ts::Abstract& own = leaves[next++];
    if constexpr (ts::TensorOperand<Leaf>) {
      EXPECT_EQ(own.shape, ts::shape(leaf)) << next;
      EXPECT_EQ(ts::resolve(own.spec, mesh, Leaf::rank), ts::sharding(leaf)) << next;
    }
  }
  void enter_stack(const auto&) { first = next; }
  void enter_layer(int) { next = first; }
  void leave_stack() {}
};
void compare(const auto& abstract, const auto& state) {
  static_assert(
      std::is_same_v<typename std::remove_cvref_t<decltype(abstract)>::type, std::remove_cvref_t<decltype(state)>>);
  CompareLeaves<std::extent_v<decltype(abstract.leaves)>> compared{abstract.leaves};
  ts::for_each_leaf(state, compared);
  EXPECT_EQ(compared.next, std::size(abstract.leaves));
}
constexpr nn::Names frozen("0.weight", "1.*.up.*", "2");
constexpr ts::optim::ZeroRedundancy zero{"data"};

TYPED_TEST(AbstractState, HasTheShapesOfAStateWithFrozenTensors) {
  constexpr TypeParam config{};
  constexpr auto abstract = ts::optim::init_state(config, abstract_net(), frozen);
  compare(abstract, ts::optim::init_state(config, net(), frozen));
}
TYPED_TEST(AbstractState, HasTheShardingsOfASplitState) {
  constexpr TypeParam config{};
  constexpr auto abstract = ts::optim::init_state(config, abstract_net(), zero, mesh);
  compare(abstract, ts::optim::init_state(config, net(), zero));
}
TYPED_TEST(AbstractState, HasTheShapesAndShardingsOfBoth) {
  constexpr TypeParam config{};
  compare(ts::optim::init_state(config, abstract_net(), frozen, zero, mesh),
          ts::optim::init_state(config, net(), frozen, zero));
}

TEST(AbstractStates, NamesOfNoTensorAndAxesOfNoMeshAreErrors) {
  using tessera_test::expect_error;
  const ts::optim::AdamW config;
  for (const char* pattern : {"blocks.*", "3", "1.3.up.*"})  // no name, integers, a layer that the Stack lacks
    for (const bool is_abstract : {true, false})
      expect_error(
          ts::errc::option,
          [&] {
            if (is_abstract)
              (void)ts::optim::init_state(config, abstract_net(), nn::Names("0.*", pattern));
            else
              (void)ts::optim::init_state(config, net(), nn::Names("0.*", pattern));
          },
          "[names] ", pattern[0] == '1' ? "layer 3 of a Stack of 3 layers" : pattern, "abstract_state_test.cpp:");
  expect_error(ts::errc::mesh_axis,
               [&] { (void)ts::optim::init_state(config, abstract_net(), ts::optim::ZeroRedundancy{"rows"}, mesh); });
}

}  // namespace
