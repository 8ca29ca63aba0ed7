#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../base/expect_error.hpp"
#include "../partition/exhaustive.hpp"
#include "random_tensor.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/optim/tree_map.hpp>
#include <tessera/partition/plan/make_plan.hpp>
#include <tessera/runtime/executor/verify_moves.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/runtime/transport/transport.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/local_shards.hpp>
#include <tessera/tensor/reshard.hpp>

namespace ts = tessera;
using tessera_test::expect_error;

namespace {

constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});

ts::ShardedTensor<float, 2> filled(std::int64_t rows, std::int64_t columns, const ts::PartitionSpec& spec) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < rows * columns; ++i) values.push_back(static_cast<float>(i % 7));
  return ts::shard(values, {rows, columns}, mesh, spec);
}

TEST(communication, a_scope_counts_what_runs_inside) {
  const auto x = filled(8, 16, {"data", "model"}), w = filled(16, 4, {"model"});
  ts::CommunicationScope outer;
  {
    ts::CommunicationScope scope;
    const auto y = ts::eval(ts::matmul(x, w));
    EXPECT_EQ(scope.count(ts::all_reduce), 1);
    EXPECT_EQ(scope.count(ts::all_reduce, "model"), 1);
    EXPECT_EQ(scope.count(ts::all_reduce, "data"), 0);
    EXPECT_EQ(scope.payload_bytes(ts::all_reduce), 4 * 4 * 4);  // half of the rows
    EXPECT_EQ(scope.wire_bytes(), 4 * 4 * 4);
    EXPECT_GT(scope.copied_bytes(), 0);
    EXPECT_EQ(scope.moved_bytes(), 4 * 64);  // of all four devices
    EXPECT_EQ(scope.text(), "1 all_reduce over model: 64 B, 64 B on the wire\n");
    ts::eval(ts::matmul(x, w));
    EXPECT_EQ(scope.wire_bytes("model"), 2 * 64);
    scope.clear();
    EXPECT_EQ(scope.text(), "no communication\n");
  }
  EXPECT_EQ(outer.count(ts::all_reduce), 2);
  EXPECT_EQ(outer.wire_bytes(), 128);
}

std::vector<double> dense_product(const std::vector<float>& a, const std::vector<float>& b, int m, int k, int n);

struct Layer {
  ts::ShardedTensor<float, 2> up, down;
  constexpr auto operator()(const auto& x) const { return x + ts::matmul(ts::relu(ts::matmul(x, up)), down); }
};

TEST(communication, layers_count_as_often_as_they_run) {
  const ts::Stack<Layer> layers(5, [](int) {
    return Layer{filled(8, 16, {ts::none, "model"}), filled(16, 8, {"model"})};
  });
  constexpr auto run = ts::compile([](auto stack, auto x) { return stack(x); });
  const auto x = filled(4, 8, {"data"});
  ts::CommunicationScope scope;
  run(layers, x);
  const ts::Plan& plan = run.plan(layers, x);
  EXPECT_EQ(scope.count(ts::all_reduce, "model"), 5);
  for (const ts::Collective kind : {ts::all_reduce, ts::reduce_scatter, ts::all_gather, ts::all_to_all})
    EXPECT_EQ(scope.count(kind), plan.count(kind));
  EXPECT_EQ(scope.wire_bytes(), plan.wire_bytes());
  EXPECT_EQ(scope.moved_bytes(), 4 * plan.wire_bytes());
}

// A product, and what moves elements, read all layers of a Stack, each of which is stored on its own.
TEST(communication, products_of_stacked_operands) {
  const auto stack_of = [](const ts::PartitionSpec& spec) {
    return ts::Stack<Layer>(3, [&](int layer) {
      auto scaled = ts::eval(filled(8, 8, spec) * static_cast<float>(layer + 1));
      return Layer{scaled, scaled};
    });
  };
  constexpr auto squares = ts::compile([](auto layers) {
    return ts::optim::tree_map(
        [](auto p) {
          const ts::Sym<float, 3> all(p.value);
          return decltype(p)((all + ts::tanh(ts::matmul(all, all) * 1e-3)).value);
        },
        layers);
  });
  const std::vector<float> one = ts::to_host(filled(8, 8, {}));
  const std::vector<double> expected = dense_product(one, one, 8, 8, 8);
  for (const ts::PartitionSpec& spec : {ts::PartitionSpec{}, ts::PartitionSpec{"data"},
                                        ts::PartitionSpec{ts::none, "data"}, ts::PartitionSpec{"data", "model"}}) {
    const auto made = squares(stack_of(spec));
    for (int layer = 0; layer < 3; ++layer) {
      const std::vector<float> got = ts::to_host(made[layer].up);
      const double scale = static_cast<double>((layer + 1) * (layer + 1)) * 1e-3;
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(static_cast<double>(got[i]),
                    static_cast<double>(layer + 1) * static_cast<double>(one[i]) + std::tanh(expected[i] * scale), 1e-5)
            << layer;
    }
  }
}

/// A program's plan, changed by `change`, prepared to run and held to what it moves.
template <class F, class Change, class... Args> void verify_changed(F, const Change& change, const Args&... arguments) {
  const ts::CompiledProgram compiled = ts::detail::ProgramCode<ts::Traced<F, Args...>>::compiled();
  const std::vector<ts::ArgumentInfo> infos{{ts::shape(arguments), ts::sharding(arguments), 0}...};
  ts::Plan plan = ts::make_plan(compiled.program, compiled.units, mesh, infos.data(), static_cast<int>(infos.size()));
  for (ts::PlanStep& step : plan.graphs[0].steps) change(step);
  ts::verify_moves(ts::runtime::Executable(compiled, std::move(plan)));
}

// Collectives of a plan are held to the moves of its steps, which are found without them.
TEST(communication, a_plan_that_says_something_else_than_moves_is_seen) {
  const auto x = filled(8, 16, {"data", "model"}), y = filled(8, 16, {ts::none, "data"}), w = filled(16, 4, {"model"});
  const auto sums = [](const auto& a, const auto& b) { return ts::matmul(a, b); };
  const auto gathers = [](const auto& a, const auto& b) { return a * b; };
  const auto nothing = [](ts::PlanStep&) {};
  const auto change = [](std::int64_t by) {
    return [by](ts::PlanStep& step) {
      for (ts::CollectiveInfo& collective : step.collectives) collective.wire_bytes += by;
    };
  };
  EXPECT_NO_THROW(verify_changed(sums, nothing, x, w));
  EXPECT_NO_THROW(verify_changed(gathers, nothing, x, y));
  for (const std::int64_t by : {-1, 1}) {
    expect_error(
        ts::errc::graph_invalid, [&] { verify_changed(sums, change(by), x, w); },
        "[verify_moves] bytes between devices: step 0 moves 256 bytes, but its collectives", "on 4 devices");
  }
  expect_error(
      ts::errc::graph_invalid, [&] { verify_changed(gathers, change(-1000), x, y); }, "[verify_moves]");
  expect_error(
      ts::errc::graph_invalid,
      [&] {
        verify_changed(
            sums, [](ts::PlanStep& step) { step.collectives.clear(); }, x, w);
      },
      "its collectives list 0 bytes");
}

/// Carries out moves as they are in this process, and notes their bytes.
class NotingTransport final : public ts::runtime::Transport {
 public:
  void move(const ts::runtime::ReshardPlan& plan, std::span<void* const> destinations,
            std::span<const void* const> sources) const override {
    plan.run(destinations, sources);
    moved += plan.moved_bytes();
  }
  mutable std::int64_t moved = 0;
};

TEST(communication, pieces_move_by_the_transport_of_the_thread) {
  const auto x = filled(8, 16, {"data"});
  const NotingTransport noting;
  const ts::runtime::TransportScope use(noting);
  EXPECT_EQ(ts::to_host(ts::reshard(x, {ts::none, "data"})), ts::to_host(x));
  EXPECT_EQ(noting.moved, 8 * 16 * 4);  // each of four devices lacks half of its half: 128 bytes
}

// What a step moves while it computes goes through the transport too.
TEST(communication, halos_rows_and_totals_move_by_the_transport) {
  const auto rows = filled(8, 16, {"data"}), columns = filled(8, 16, {ts::none, "data"}), whole = filled(8, 16, {});
  const NotingTransport noting;
  const ts::runtime::TransportScope use(noting);
  const auto moved_by = [&](const auto& expression) {
    noting.moved = 0;
    const auto result = ts::eval(expression);
    return std::pair(noting.moved, ts::to_host(result));
  };
  // One row of 64 bytes, to both devices that hold the first half of the result.
  EXPECT_EQ(moved_by(ts::slice<0>(rows, 1, 7)),
            std::pair(std::int64_t{2 * 64}, ts::to_host(ts::slice<0>(whole, 1, 7))));
  // The total of a half, 16 numbers, to each of four devices.
  EXPECT_EQ(moved_by(ts::cumsum<0>(rows)), std::pair(std::int64_t{4 * 64}, ts::to_host(ts::cumsum<0>(whole))));
  // Maximum and sum of 8 rows in f64, there and back, among each of two pairs of devices.
  const auto [moved, softmax] = moved_by(ts::softmax<-1>(columns));
  EXPECT_EQ(moved, 2 * 2 * 2 * 64);
  const std::vector<float> expected = ts::to_host(ts::softmax<-1>(whole));
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(softmax[i], expected[i], 1e-6);
}

std::vector<double> dense_product(const std::vector<float>& a, const std::vector<float>& b, int m, int k, int n) {
  std::vector<double> out(static_cast<std::size_t>(m * n), 0);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j)
      for (int p = 0; p < k; ++p)
        out[static_cast<std::size_t>(i * n + j)] += static_cast<double>(a[static_cast<std::size_t>(i * k + p)]) *
                                                    static_cast<double>(b[static_cast<std::size_t>(p * n + j)]);
  return out;
}
std::vector<double> as_doubles(const ts::ShardedTensor<float, 2>& x) {
  const std::vector<float> floats = ts::to_host(x);
  return {floats.begin(), floats.end()};
}

// Parts of a product are added where they are made: all that is moved is the sum, once. Numbers are whole, so sums are
// exact in any order.
TEST(communication, parts_of_a_product_are_summed_in_place) {
  for (const ts::PartitionSpec& rows : {ts::PartitionSpec{}, ts::PartitionSpec{"data"}}) {
    const auto x = ts::reshard(filled(6, 40, {}), {rows.entries.empty() ? ts::PartitionSpec{ts::none, "model"}
                                                                        : ts::PartitionSpec{"data", "model"}});
    const auto w = filled(40, 10, {"model"});
    ts::CommunicationScope scope;
    const ts::ShardedTensor<float, 2> y = ts::matmul(x, w);
    EXPECT_EQ(scope.count(ts::all_reduce, "model"), 1);
    EXPECT_GE(scope.copied_bytes(), 6 * 10 * 4);
    EXPECT_LT(scope.copied_bytes(), 2 * 6 * 10 * 4);  // two parts and a sum would be three times as much
    EXPECT_EQ(as_doubles(y), dense_product(ts::to_host(x), ts::to_host(w), 6, 40, 10));
  }
}

// Rows that devices look up for their part of a batch go back into one table.
TEST(communication, rows_of_a_scatter_are_summed_in_place) {
  constexpr auto gradient = ts::compile([](auto table, auto index, auto weight) {
    return ts::grad([](const auto& t, const auto& i, const auto& w) { return ts::sum(ts::embedding(t, i) * w); })(
        table, index, weight);
  });
  constexpr int count = 12, columns = 5;
  std::vector<std::int32_t> index;
  for (int i = 0; i < count; ++i) index.push_back(i * i % 7);  // some rows often, some never
  const auto table = filled(7, columns, {});
  const auto weight = filled(count, columns, {{"data", "model"}});
  ts::CommunicationScope scope;
  const auto result = gradient(table, ts::shard(index, mesh, {{"data", "model"}}), weight);
  EXPECT_EQ(scope.count(ts::all_reduce), 1);
  EXPECT_GE(scope.copied_bytes(), 7 * columns * 4);
  EXPECT_LT(scope.copied_bytes(), 2 * 7 * columns * 4);
  std::vector<double> expected(7 * columns, 0);
  const std::vector<float> weights = ts::to_host(weight);
  for (int i = 0; i < count; ++i)
    for (int c = 0; c < columns; ++c)
      expected[static_cast<std::size_t>(index[static_cast<std::size_t>(i)] * columns + c)] +=
          static_cast<double>(weights[static_cast<std::size_t>(i * columns + c)]);
  EXPECT_EQ(as_doubles(result), expected);
}

TEST(communication, a_program_over_budget_does_not_start) {
  const auto w = filled(16, 4, {"model"});
  auto x = filled(8, 16, {"data", "model"});
  constexpr auto product = ts::compile([](auto a, auto b) { return ts::matmul(a, b); });
  ts::CommunicationScope scope({.wire_bytes = 100});
  product(x, w);
  expect_error(
      ts::errc::policy, [&] { product(std::move(x), w); },
      "[communication] bytes on the wire: 64 needed and 64 used before, but the scope at communication_test.cpp:",
      "allows 100", "all_reduce of 64 bytes at communication_test.cpp:");
  EXPECT_EQ(scope.wire_bytes(), 64);
  EXPECT_EQ(ts::to_host(x)[3], 3.f) << "an argument that was moved in is given back";
  {
    ts::CommunicationScope inner({.collectives = 0});
    expect_error(
        ts::errc::policy, [&] { ts::reshard(x, {}); }, "collectives: 2 needed and 0 used before", "all_gather");
    EXPECT_NO_THROW(ts::reshard(filled(4, 4, {}), {"data"}));  // a slice moves nothing
  }
  expect_error(
      ts::errc::policy, [&] { ts::reshard(x, {}); }, "bytes on the wire: 384 needed and ");
}

TEST(communication, a_policy_forbids_reshards_that_nobody_asked_for) {
  const auto rows = filled(32, 64, {"data"}), columns = filled(32, 64, {ts::none, "data"});
  ts::CommunicationScope scope({.forbid_implicit_reshards = true});
  expect_error(
      ts::errc::policy, [&] { ts::eval(rows * columns); },
      "[plan] implicit reshard: all_to_all of 8192 bytes reshards f32[32,64], argument 1, from "
      "{-,data} to {data,-}");
  EXPECT_NO_THROW(ts::eval(rows * ts::reshard(columns, {"data"})));
}

// reshard(a -> b) of random shardings moves no more than an exhaustive search finds to be necessary.
TEST(communication, a_reshard_moves_the_least_there_is) {
  std::mt19937 random(11);
  std::map<std::string, ts::tests::Exhaustive> searches;
  for (int round = 0; round < 400; ++round) {
    const ts::Mesh meshes[]{ts::Mesh({{"x", 4}}), ts::Mesh({{"x", 2}, {"y", 4}}), ts::Mesh({{"x", 3}, {"y", 2}}),
                            ts::Mesh({{"x", 2}, {"y", 2}, {"z", 2}})};
    const ts::Mesh& on = meshes[random() % 4];
    const ts::Shape shapes[]{{24, 48}, {7, 12}};
    const ts::Shape& shape = shapes[random() % 2];
    const ts::tests::Exhaustive& search =
        searches.try_emplace(on.text() + ts::text(ts::Box{ts::Shape{0, 0}, shape}), on, shape).first->second;
    const ts::Sharding from = tessera_test::random_sharding(random, on, 2, false),
                       to = tessera_test::random_sharding(random, on, 2, false);
    std::vector<float> values;
    for (std::int64_t i = 0; i < ts::volume(shape); ++i) values.push_back(static_cast<float>(random() % 1000));
    const auto x = ts::shard<2>(values, shape, on, ts::spec_of(from, on));
    ts::CommunicationScope scope;
    const auto y = ts::reshard(x, ts::spec_of(to, on));
    ASSERT_EQ(ts::to_host(y), values);
    const std::vector<std::int64_t> best = search.costs_from(from);
    for (std::size_t i = 0; i < best.size(); ++i) {
      if (ts::lies_alike(search.states()[i], to)) {
        EXPECT_EQ(scope.wire_bytes(), best[i]) << ts::sharded_type_text(x) << " to " << ts::sharded_type_text(y);
      }
    }
  }
}

}  // namespace
