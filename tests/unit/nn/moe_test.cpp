#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <vector>

#include "../../support/traced.hpp"
#include "../base/expect_error.hpp"
#include "plain.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/nn/nn.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/shard_map/shard_map.hpp>
#include <tessera/ops/vmap/vmap.hpp>
#include <tessera/partition/plan/explain.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/oracle.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;
using oracle::Array;
using oracle::random_array;

namespace {

constexpr int experts = 4, features = 3, hidden = 5;

Array slice_of(const Array& all, int e) {
  const std::int64_t rows = all.shape[1], columns = all.shape[2];
  const auto first = all.data.begin() + e * rows * columns;
  return Array({rows, columns}, std::vector<double>(first, first + rows * columns));
}

/// One token after the other: (y, balance, z). A capacity of 0: none.
std::vector<Array> by_token(const std::vector<Array>& p, const Array& x, int choices, int capacity) {
  const std::size_t tokens = plain::row_count(x);
  const Array logits = plain::linear(x, p[0], nullptr);
  std::vector<std::vector<int>> order(tokens);
  std::vector<plain::Row> probability(tokens);
  std::vector<double> chosen(experts, 0), mean(experts, 0);
  double z = 0;
  for (std::size_t n = 0; n < tokens; ++n) {
    const plain::Row row = plain::row(logits, n);
    double sum = 0;
    for (const double v : row) sum += std::exp(v);
    for (const double v : row) probability[n].push_back(std::exp(v) / sum);
    z += std::log(sum) * std::log(sum) / static_cast<double>(tokens);
    order[n].resize(experts);
    std::iota(order[n].begin(), order[n].end(), 0);
    std::stable_sort(order[n].begin(), order[n].end(), [&](int a, int b) {
      return probability[n][static_cast<std::size_t>(a)] > probability[n][static_cast<std::size_t>(b)];
    });
    for (std::size_t e = 0; e < experts; ++e) mean[e] += probability[n][e] / static_cast<double>(tokens);
  }
  Array y(x.shape);
  std::vector<int> used(experts, 0);
  for (int k = 0; k < choices; ++k)
    for (std::size_t n = 0; n < tokens; ++n) {
      const int e = order[n][static_cast<std::size_t>(k)];
      chosen[static_cast<std::size_t>(e)] += 1 / static_cast<double>(tokens);
      if (++used[static_cast<std::size_t>(e)] > capacity && capacity > 0) continue;
      double sum = 0;
      for (int c = 0; c < choices; ++c)
        sum += probability[n][static_cast<std::size_t>(order[n][static_cast<std::size_t>(c)])];
      const Array token({1, features}, plain::row(x, n));
      const Array gate = plain::map(plain::linear(token, slice_of(p[1], e), nullptr), plain::silu);
      const Array up = plain::linear(token, slice_of(p[2], e), nullptr);
      const Array out =
          plain::linear(plain::zip(gate, up, [](double a, double b) { return a * b; }), slice_of(p[3], e), nullptr);
      for (std::size_t i = 0; i < features; ++i)
        y.data[n * features + i] += probability[n][static_cast<std::size_t>(e)] / sum * out.data[i];
    }
  double balance = 0;
  for (std::size_t e = 0; e < experts; ++e) balance += chosen[e] * mean[e] * experts;
  return {y, Array::number(balance), Array::number(z)};
}

struct Apply {
  constexpr auto operator()(const auto& layer, const auto& x) const { return layer(x); }
};

TEST(MoE, IsTheSumOfTheChosenExpertsOfEachToken) {
  const std::vector<Array> parameters = {
      random_array({features, experts}, 1, -3, 3), random_array({experts, features, hidden}, 2),
      random_array({experts, features, hidden}, 3), random_array({experts, hidden, features}, 4)};
  const Array x = random_array({2, 6, features}, 5);
  const auto dense = oracle::trace<Apply, nn::MoE<>, ts::ShardedTensor<float, 3>>();
  const auto limited = oracle::trace<Apply, nn::MoE<float, nn::Dispatch::capacity>, ts::ShardedTensor<float, 3>>();
  for (const int choices : {1, 2, 4})
    for (const int capacity : {0, 1, 3, 12}) {
      std::vector<Array> arguments = parameters;
      for (const Array& last : {Array::number(choices), Array::number(capacity), x}) arguments.push_back(last);
      const auto got = oracle::run((capacity == 0 ? dense : limited).view(), arguments);
      const auto want = by_token(parameters, x, choices, capacity);
      for (std::size_t k = 0; k < 3; ++k)
        oracle::expect_near(got.at(k), want[k], 1e-12,
                            std::to_string(choices) + " of capacity " + std::to_string(capacity));
    }
}

// Each sequence counts its own tokens; balance and z are those of all tokens.
TEST(MoE, EachSequenceHasItsCapacity) {
  const std::vector<Array> parameters = {
      random_array({features, experts}, 1, -3, 3), random_array({experts, features, hidden}, 2),
      random_array({experts, features, hidden}, 3), random_array({experts, hidden, features}, 4)};
  const Array x = random_array({3, 6, features}, 5);
  const auto limited =
      oracle::trace<Apply, nn::MoE<float, nn::Dispatch::sequence_capacity>, ts::ShardedTensor<float, 3>>();
  for (const int choices : {1, 2})
    for (const int capacity : {1, 2, 6}) {
      std::vector<Array> arguments = parameters;
      for (const Array& last : {Array::number(choices), Array::number(capacity), x}) arguments.push_back(last);
      std::vector<Array> want = by_token(parameters, x, choices, 0);
      for (std::ptrdiff_t b = 0; b < 3; ++b) {
        constexpr std::ptrdiff_t size = 6 * features;
        const Array own({1, 6, features},
                        std::vector<double>(x.data.begin() + b * size, x.data.begin() + (b + 1) * size));
        const Array y = by_token(parameters, own, choices, capacity)[0];
        std::copy(y.data.begin(), y.data.end(), want[0].data.begin() + b * size);
      }
      const auto got = oracle::run(limited.view(), arguments);
      for (std::size_t k = 0; k < 3; ++k)
        oracle::expect_near(got.at(k), want[k], 1e-12,
                            std::to_string(choices) + " of capacity " + std::to_string(capacity));
    }
}

struct Mixture {
  constexpr auto operator()(const auto& moe, const auto& x) const {
    const auto loss = [](const auto& all) {
      const auto [y, balance, z] = std::get<0>(all)(std::get<1>(all));
      return std::tuple(ts::sum(y * y) + 0.01 * balance, y);
    };
    const auto [value, gradient] = ts::value_and_grad(loss)(std::tuple(moe, x));
    return std::tuple(std::get<1>(value), gradient);
  }
};

/// All elements of y and of its gradient: of the parameters, and of x.
template <class Y, class Gradient> auto values_of(const Y& y, const Gradient& gradient) {
  auto all = ts::to_host(y);
  const auto append = [&](const auto& g) {
    for (const auto v : ts::to_host(g)) all.push_back(v);
  };
  nn::for_each_named_parameter(std::get<0>(gradient), [&](const std::string&, const auto& g) { append(g); });
  append(std::get<1>(gradient));
  return all;
}

// One axis splits the sequences and the experts: tokens travel to their experts and back, and nothing but them (GShard,
// 2006.16668).
TEST(MoE, SendsTokensToTheirExpertsAndBack) {
  constexpr auto mixture = ts::compile(Mixture{});
  const auto moe_on = [](const nn::ShardingStrategy& strategy) {
    return nn::moe<float, nn::Dispatch::sequence_capacity>(ts::Key(1), 8, 16, 4, 2, strategy, 5, "expert", 0.5);
  };
  const auto x_on = [](const nn::ShardingStrategy& strategy) {
    return ts::normal<float>(ts::Key(2), {6, 10, 8}, strategy.mesh, strategy.batch);
  };
  const auto run = [&](const nn::ShardingStrategy& strategy) {
    const auto [y, gradient] = mixture(moe_on(strategy), x_on(strategy));
    return values_of(y, gradient);
  };
  const std::vector<float> want = run(nn::single(ts::Mesh{}));
  for (const int devices : {2, 3, 4}) {
    const std::vector<float> got = run(nn::data_parallel(ts::Mesh({{"expert", devices}}), "expert"));
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 2e-5 + 1e-4 * std::fabs(want[i])) << i << " on " << devices;
  }
  const nn::ShardingStrategy two = nn::data_parallel(ts::Mesh({{"expert", 2}}), "expert");
  const ts::Plan plan = mixture.plan(moe_on(two), x_on(two));
  EXPECT_EQ(plan.count(ts::all_to_all), 4) << "two forward, two for the gradients";
  EXPECT_EQ(plan.payload_bytes(ts::all_to_all), 4 * (6 * 4 * 5 * 8 * 4)) << "sequences x experts x capacity x features";
  EXPECT_EQ(plan.count(ts::all_gather) + plan.count(ts::reduce_scatter), 0);
  // The user asks for them by splitting experts and sequences over one axis.
  EXPECT_EQ(plan.implicit_count(), 0);
  plan.for_each_collective([](const ts::CollectiveInfo& c, std::int64_t) {
    if (c.kind == ts::all_to_all) EXPECT_EQ(c.why, "expert parallelism");
  });
  ts::PlanOptions strict;
  strict.forbid_implicit_reshards = true;
  EXPECT_NO_THROW(ts::compile(Mixture{}, strict)(moe_on(two), x_on(two)));
}

struct DeepMixture {
  constexpr auto operator()(const auto& layers, const auto& x) const {
    const auto loss = [](const auto& stack, const auto& in) {
      const auto out = ts::scan(
          [](const auto& h, const auto& moe) { return std::tuple(std::get<0>(moe(h)), std::tuple()); }, in, stack);
      return ts::sum(std::get<0>(out) * std::get<0>(out));
    };
    return ts::value_and_grad(loss)(layers, x);
  }
};
// In a loop over layers, whose gradient sends tokens once more. Other reshards are implicit, as those of experts that
// are sorted by Dispatch::ragged, whose weights are gathered, or of a reader with another sharding.
TEST(MoE, OnlyTokensOfExpertsAreSentOnRequest) {
  const nn::ShardingStrategy two = nn::data_parallel(ts::Mesh({{"expert", 2}}), "expert");
  const auto x = ts::normal<float>(ts::Key(2), {6, 10, 8}, two.mesh, two.batch);
  using Layer = nn::MoE<float, nn::Dispatch::sequence_capacity>;
  const ts::Stack<Layer> layers(3, [&](int i) {
    return nn::moe<float, nn::Dispatch::sequence_capacity>(ts::fold_in(ts::Key(1), static_cast<std::uint64_t>(i)), 8,
                                                           16, 4, 2, two, 5);
  });
  const ts::Plan deep = ts::compile(DeepMixture{}).plan(layers, x);
  EXPECT_EQ(deep.implicit_count(), 0) << ts::explain(deep);
  EXPECT_GE(deep.count(ts::all_to_all), 3 * 5 - 1) << ts::explain(deep);
  const auto ragged = nn::moe<float, nn::Dispatch::ragged>(ts::Key(1), 8, 16, 4, 2, two, 0);
  EXPECT_EQ(ts::compile(Mixture{}).plan(ragged, x).implicit_count(), 3);
  constexpr auto turned =
      ts::compile([](const auto& moe, const auto& in, const auto& other) { return std::get<0>(moe(in)) * other; });
  const ts::Plan mixed =
      turned.plan(layers[0], x, ts::normal<float>(ts::Key(3), {6, 10, 8}, two.mesh, {ts::none, "expert"}));
  EXPECT_EQ(mixed.count(ts::all_to_all), 3) << ts::explain(mixed);
  EXPECT_EQ(mixed.implicit_count(), 1) << ts::explain(mixed);
}

// No token is dropped, however unequally experts are chosen, and tokens travel as with a capacity.
TEST(MoE, DroplessEqualsDense) {
  const auto run = [](const auto& moe, const nn::ShardingStrategy& strategy) {
    constexpr auto mixture = ts::compile(Mixture{});
    const auto x = ts::normal<double>(ts::Key(2), {6, 10, 8}, strategy.mesh, strategy.batch);
    const auto [y, gradient] = mixture(moe, x);
    return std::pair(values_of(y, gradient), mixture.plan(moe, x));
  };
  // A router of large weights prefers few experts: with room for the mean, most tokens would be dropped.
  const auto dense = [](const nn::ShardingStrategy& s) {
    return nn::moe<double>(ts::Key(1), 8, 16, 4, 2, s, 0, "expert", 2);
  };
  const auto dropless = [](const nn::ShardingStrategy& s) {
    return nn::moe<double, nn::Dispatch::dropless>(ts::Key(1), 8, 16, 4, 2, s, 0, "expert", 2);
  };
  const nn::ShardingStrategy one = nn::single(ts::Mesh{});
  const std::vector<double> want = run(dense(one), one).first;
  for (const int devices : {1, 2, 3, 4}) {
    const nn::ShardingStrategy strategy = nn::data_parallel(ts::Mesh({{"expert", devices}}), "expert");
    const auto [got, plan] = run(dropless(strategy), strategy);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 1e-12 + 1e-11 * std::fabs(want[i])) << i << " on " << devices;
    if (devices != 2) continue;
    EXPECT_EQ(plan.count(ts::all_to_all), 4) << "two forward, two for the gradients";
    EXPECT_EQ(plan.payload_bytes(ts::all_to_all), 4 * (6 * 4 * 10 * 8 * 8)) << "sequences x experts x time x features";
    EXPECT_EQ(plan.count(ts::all_gather) + plan.count(ts::reduce_scatter), 0);
  }
}

// Sorted by expert, tokens give what dense dispatch gives; those of each sequence stay on its device.
TEST(MoE, RaggedEqualsDense) {
  constexpr auto mixture = ts::compile(Mixture{});
  const auto run = [&](const auto& moe, const nn::ShardingStrategy& strategy, std::int64_t sequences) {
    const auto x = ts::normal<double>(ts::Key(2), {sequences, 10, 8}, strategy.mesh, strategy.batch);
    const auto [y, gradient] = mixture(moe, x);
    return std::pair(values_of(y, gradient), mixture.plan(moe, x));
  };
  const auto dense = [](const nn::ShardingStrategy& s) {
    return nn::moe<double>(ts::Key(1), 8, 16, 4, 2, s, 0, "expert", 2);
  };
  const auto ragged = [](const nn::ShardingStrategy& s) {
    return nn::moe<double, nn::Dispatch::ragged>(ts::Key(1), 8, 16, 4, 2, s, 0, "expert", 2);
  };
  const nn::ShardingStrategy one = nn::single(ts::Mesh{});
  const std::vector<double> of_six = run(dense(one), one, 6).first, of_five = run(dense(one), one, 5).first;
  const auto check = [&](const nn::ShardingStrategy& strategy, std::int64_t sequences = 6) {
    const auto [got, plan] = run(ragged(strategy), strategy, sequences);
    const std::vector<double>& want = sequences == 6 ? of_six : of_five;
    EXPECT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 1e-12 + 1e-11 * std::fabs(want[i])) << i << " on " << plan.mesh.text();
    return plan;
  };
  for (const int devices : {1, 2, 3}) {
    const ts::Plan plan = check(nn::data_parallel(ts::Mesh({{"data", devices}})));
    EXPECT_EQ(plan.count(ts::all_to_all) + plan.count(ts::all_gather) + plan.count(ts::reduce_scatter), 0);
    EXPECT_EQ(plan.count(ts::all_reduce), devices > 1 ? 5 : 0) << "four weights, and the chosen tokens of each expert";
  }
  for (const int devices : {2, 3, 4}) check(nn::data_parallel(ts::Mesh({{"data", devices}})), 5);
  const ts::Plan split = check(nn::tensor_parallel(ts::Mesh({{"model", 2}})));
  EXPECT_EQ(split.count(ts::all_reduce), 3) << "results, and the gradients of tokens and of weights";
  EXPECT_EQ(split.payload_bytes(ts::all_reduce), 2 * (6 * 10 * 8 * 8) + 6 * 10 * 2 * 8);
  check(nn::fsdp_tensor_parallel(ts::Mesh({{"data", 3}, {"model", 2}})), 5);
  // Experts that are split by the axis of the batch are gathered; on an axis of their own, their results are summed.
  const ts::Plan gathered = check(nn::data_parallel(ts::Mesh({{"expert", 2}}), "expert"));
  EXPECT_EQ(gathered.count(ts::all_gather), 3);
  EXPECT_EQ(gathered.payload_bytes(ts::all_gather), 3 * (4 * 8 * 16 * 8));
  const ts::Plan summed = check(nn::single(ts::Mesh({{"expert", 3}})));
  EXPECT_EQ(summed.count(ts::all_gather) + summed.count(ts::all_to_all), 0);
  const nn::ShardingStrategy own_axis = nn::single(ts::Mesh({{"expert", 3}}));
  EXPECT_LT(run(dense(own_axis), own_axis, 6).second.payload_bytes(ts::all_reduce),
            summed.payload_bytes(ts::all_reduce));
  nn::ShardingStrategy by_time = nn::single(ts::Mesh({{"data", 2}}));
  by_time.batch = {ts::none, "data"};
  const ts::Plan timed = check(by_time);
  EXPECT_EQ(timed.count(ts::all_gather), 1);
  EXPECT_EQ(timed.payload_bytes(ts::all_gather), 6 * 10 * 8 * 8) << "the tokens";
}

template <nn::Dispatch How> struct Layer {
  nn::MoE<float, How> moe;
  static constexpr std::array field_names{"moe"};
  constexpr auto operator()(const auto& x) const { return x + std::get<0>(moe(x)); }
};

// In the body of a Stack, with the weights of all layers in one tensor. The oracle checks each step.
TEST(MoE, RaggedOfASequenceWithANewBatchDim) {
  constexpr auto run = ts::compile([](auto layer, auto x) {
    return ts::value_and_grad([](const auto& m, const auto& in) {
      const auto [y, balance, z] = m(in);
      return std::tuple(ts::sum(y * y), y);
    })(layer, x);
  });
  constexpr auto run_of_rows = ts::compile([](auto layer, auto x) {
    return ts::value_and_grad([](const auto& m, const auto& in) {
      const auto [y, balance, z] = m(ts::unsqueeze<0>(in));
      return std::tuple(ts::sum(y * y), y);
    })(layer, x);
  });
  for (const int devices : {1, 3}) {
    const ts::Mesh mesh({{"data", devices}});
    const auto layer = nn::moe<double, nn::Dispatch::ragged>(ts::Key(1), features, hidden, experts, 2, nn::single(mesh),
                                                             0, "expert", 0.7);
    const auto x = ts::uniform<double>(ts::Key(2), {1, 5, features}, mesh, {ts::none, "data"}, -1, 1);
    const ts::ShardedTensor<double, 2> rows = ts::select<0>(x, 0);
    const auto [want, of_want] = run(layer, x);
    const auto [got, of_got] = run_of_rows(layer, rows);
    EXPECT_EQ(ts::to_host(std::get<1>(got)), ts::to_host(std::get<1>(want)));
    EXPECT_EQ(ts::to_host(of_got.experts.up), ts::to_host(of_want.experts.up));
    EXPECT_EQ(ts::to_host(of_got.router.weight), ts::to_host(of_want.router.weight));
  }
}

TEST(MoE, RaggedInAStack) {
  constexpr auto slopes = ts::compile([](auto layers, auto x) {
    return ts::grad([](const auto& all) {
      const auto y = std::get<0>(all)(std::get<1>(all));
      return ts::sum(y * y);
    })(std::tuple(layers, x));
  });
  const auto run = [&]<nn::Dispatch How>(const nn::ShardingStrategy& s) {
    const ts::Stack<Layer<How>> layers(3, [&](int i) {
      const ts::Key key = ts::fold_in(ts::Key(1), static_cast<std::uint64_t>(i));
      return Layer<How>{nn::moe<float, How>(key, 8, 16, 4, 2, s, 0, "expert", 0.5)};
    });
    const auto x = ts::normal<float>(ts::Key(2), {4, 6, 8}, s.mesh, s.batch);
    const auto [of_layers, of_x] = slopes(layers, x);
    std::vector<float> all = ts::to_host(of_x);
    nn::for_each_named_parameter(of_layers, [&](const std::string&, const auto& g) {
      for (const float v : ts::to_host(g)) all.push_back(v);
    });
    return all;
  };
  const std::vector<float> want = run.operator()<nn::Dispatch::dense>(nn::single(ts::Mesh{}));
  const ts::OracleScope oracle;
  for (const auto& strategy :
       {nn::single(ts::Mesh{}), nn::data_parallel(ts::Mesh({{"data", 2}})),
        nn::fsdp_tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}})), nn::single(ts::Mesh({{"expert", 3}}))}) {
    const std::vector<float> got = run.operator()<nn::Dispatch::ragged>(strategy);
    ASSERT_EQ(got.size(), want.size());
    float scale = 0;
    for (const float v : want) scale = std::max(scale, std::fabs(v));
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5F * scale) << i;
  }
}

// Devices of a shard_map have groups of their own, and examples of a vmap too.
TEST(MoE, RaggedProductsOfDevicesAndOfExamples) {
  constexpr auto batched = [](const auto& x, const auto& w, const auto& sizes) { return ts::ragged_dot(x, w, sizes); };
  constexpr auto local = [](const auto& x, const auto& w, const auto& sizes) {
    return ts::shard_map<"{x}, {}, {x} -> {x}">([](auto rows, auto matrices, auto own) {
      return ts::unsqueeze<0>(ts::ragged_dot(ts::select<0>(rows, 0), matrices, ts::select<0>(own, 0)));
    })(x, w, sizes);
  };
  constexpr auto mapped = [](const auto& x, const auto& w, const auto& sizes) {
    return ts::vmap(
        [](const auto& rows, const auto& matrices, const auto& own) { return ts::ragged_dot(rows, matrices, own); },
        ts::in_axes<0, ts::not_mapped, 0>)(x, w, sizes);
  };
  const auto run = []<class F>(F, const ts::Mesh& mesh, const ts::PartitionSpec& spec) {
    constexpr auto slopes = ts::compile([](auto x, auto w, auto sizes) {
      const auto loss = [](const auto& all, const auto& own) {
        const auto y = F{}(std::get<0>(all), std::get<1>(all), own);
        return std::tuple(ts::sum(y * y), y);
      };
      return ts::value_and_grad(loss)(std::tuple(x, w), sizes);
    });
    const auto x = ts::normal<double>(ts::Key(1), {3, 7, 4}, mesh, spec);
    const auto w = ts::normal<double>(ts::Key(2), {4, 4, 5}, mesh, {});
    const auto sizes = ts::shard(std::vector<std::int32_t>{2, 0, 3, 1, 0, 0, 0, 7, -1, 4, 1, 9}, {3, 4}, mesh, spec);
    const auto [value, gradient] = slopes(x, w, sizes);
    std::vector<double> all = ts::to_host(std::get<1>(value));
    for (const double v : ts::to_host(std::get<0>(gradient))) all.push_back(v);
    for (const double v : ts::to_host(std::get<1>(gradient))) all.push_back(v);
    return all;
  };
  const std::vector<double> want = run(batched, ts::Mesh{}, {});
  const auto check = [&](const std::vector<double>& got) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-12 * (1 + std::fabs(want[i]))) << i;
  };
  check(run(batched, ts::Mesh({{"x", 2}}), {"x"}));
  check(run(local, ts::Mesh({{"x", 3}}), {"x"}));
  check(run(mapped, ts::Mesh({{"x", 3}}), {}));
}

// Parameters of f32 meet rows of bf16, as in the other dispatches.
TEST(MoE, RaggedOfHalves) {
  constexpr auto apply = ts::compile([](auto moe, auto x) {
    const auto half = ts::cast<ts::bf16>(x);
    return std::tuple(ts::cast<float>(std::get<0>(moe(half))), std::get<0>(moe(ts::cast<float>(half))));
  });
  const nn::ShardingStrategy one = nn::single(ts::Mesh{});
  const auto x = ts::normal<float>(ts::Key(2), {3, 20, 8}, one.mesh, {});
  // The largest error against products of f32.
  const auto error = [&](const auto& moe) {
    const auto [half, exact] = apply(moe, x);
    const std::vector<float> got = ts::to_host(half), want = ts::to_host(exact);
    float most = 0;
    for (std::size_t i = 0; i < got.size(); ++i) most = std::max(most, std::fabs(got[i] - want[i]));
    return most;
  };
  const float of_ragged = error(nn::moe<float, nn::Dispatch::ragged>(ts::Key(1), 8, 16, 4, 2, one, 0, "expert", 0.5)),
              of_dense = error(nn::moe(ts::Key(1), 8, 16, 4, 2, one, 0, "expert", 0.5));
  EXPECT_GT(of_ragged, 0);
  EXPECT_LT(of_ragged, 2 * of_dense);
}

// Places of tokens are counted further than bf16 can count.
TEST(MoE, CountsManyTokensOfHalves) {
  constexpr auto apply = ts::compile([](auto moe, auto x) { return ts::cast<float>(std::get<0>(moe(x))); });
  const auto run = [&]<nn::Dispatch How>(const nn::ShardingStrategy& s) {
    const auto moe = ts::cast_model<ts::bf16>(nn::moe<float, How>(ts::Key(1), 4, 8, 3, 2, s, 900, "expert", 0.5));
    const auto x = ts::cast<ts::bf16>(ts::normal<float>(ts::Key(2), {3, 900, 4}, s.mesh, s.batch));
    return ts::to_host(apply(moe, ts::eval(x)));
  };
  const std::vector<float> want = run.operator()<nn::Dispatch::dense>(nn::single(ts::Mesh{}));
  float scale = 0;
  for (const float v : want) scale = std::max(scale, std::fabs(v));
  for (const int devices : {1, 3}) {
    const nn::ShardingStrategy strategy = nn::data_parallel(ts::Mesh({{"data", devices}}));
    for (const auto& got : {run.operator()<nn::Dispatch::sequence_capacity>(strategy),
                            run.operator()<nn::Dispatch::dropless>(strategy)}) {
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 0.03F * scale) << i;
    }
  }
}

// Experts on an axis of their own: each device computes its experts, and the results are summed.
TEST(MoE, SplitsTheExperts) {
  constexpr auto train = ts::compile([](auto moe, auto x) {
    const auto loss = [](const auto& m, const auto& in) {
      const auto [y, balance, z] = m(in);
      return std::tuple(ts::mean(y * y) + 0.01 * balance + 0.001 * z, y);
    };
    const auto [value, gradient] = ts::value_and_grad(loss)(moe, x);
    return std::tuple(std::get<1>(value), gradient);
  });
  const auto run = [&](const nn::ShardingStrategy& strategy) {
    using Limited = nn::Dispatch;
    const auto moe = nn::moe<float, Limited::capacity>(ts::Key(1), 8, 16, 4, 2, strategy,
                                                       nn::expert_capacity(24, 4, 2, 1.0), "expert", 0.5);
    const auto x = ts::normal<float>(ts::Key(2), {4, 6, 8}, strategy.mesh, strategy.batch);
    const auto [y, gradient] = train(moe, x);
    std::vector<float> all = ts::to_host(y);
    nn::for_each_named_parameter(gradient, [&](const std::string&, const auto& g) {
      for (const float v : ts::to_host(g)) all.push_back(v);
    });
    return all;
  };
  EXPECT_EQ(nn::expert_capacity(24, 4, 2, 1.0), 12);
  EXPECT_EQ(nn::expert_capacity(10, 4, 1), 4);
  const ts::Mesh mesh({{"data", 2}, {"expert", 2}});
  const std::vector<float> want = run(nn::single(ts::Mesh({{"data", 1}})));
  for (const auto& strategy : {nn::single(mesh), nn::data_parallel(mesh), nn::fsdp(mesh)}) {
    const std::vector<float> got = run(strategy);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5 + 1e-4 * std::fabs(want[i])) << i;
  }
  const auto moe = nn::moe(ts::Key(1), 8, 16, 4, 2, nn::fsdp(mesh));
  EXPECT_EQ(ts::sharded_type_text(moe.experts.gate), "f32[4,8,16]{expert,data*,-}");
  EXPECT_EQ(ts::sharded_type_text(moe.experts.down), "f32[4,16,8]{expert,data*,-}");
  tessera_test::expect_error(
      ts::errc::option, [&] { nn::moe(ts::Key(1), 8, 16, 4, 5, nn::fsdp(mesh)); }, "5 of 4 experts");
  tessera_test::expect_error(
      ts::errc::option, [&] { nn::moe<float, nn::Dispatch::capacity>(ts::Key(1), 8, 16, 4, 1, nn::fsdp(mesh)); },
      "capacity");
  tessera_test::expect_error(
      ts::errc::mesh_axis, [&] { nn::moe(ts::Key(1), 8, 16, 4, 2, nn::fsdp(mesh), 0, "exprt"); },
      "[moe] axis: mesh(data=2,expert=2) has no axis 'exprt'");
}

}  // namespace
