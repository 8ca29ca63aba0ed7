// The examples of docs/plans.md, section Plans, and of docs/compile.md, in their order. The last tests compare the
// texts.

#include <cassert>
#include <cmath>
#include <cstddef>
#include <iostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../../support/page.hpp"
#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/tessera.hpp>

namespace ts = tessera;

namespace {

struct Mlp {
  ts::ShardedTensor<float, 2> up, down;
  constexpr auto operator()(const auto& x) const { return ts::matmul(ts::relu(ts::matmul(x, up)), down); }
};
constexpr auto step = ts::compile([](auto model, auto x, auto target) {
  return ts::value_and_grad([](const auto& m, auto in, auto out) { return ts::mse(m(in), out); })(model, x, target);
});
constexpr ts::Mesh mesh({{"data", 2}, {"model", 4}});

constexpr ts::Plan megatron() {
  const auto model = ts::abstract<Mlp>({{{64, 256}, {ts::none, "model"}}, {{256, 64}, {"model"}}});
  const auto batch = ts::abstract<float>({32, 64}, {"data"});
  return ts::plan(step, mesh, model, batch, batch);
}

static_assert(megatron().count(ts::all_reduce, "model") == 1);  // after the row-parallel product
static_assert(megatron().wire_bytes("data") < 40'000);          // gradients: at most 40,000 bytes per device

constexpr auto train = ts::compile([](auto model, auto state, auto config, auto x, auto target) {
  const auto loss_of = [](const auto& m, auto in, auto out) { return ts::mse(m(in), out); };
  const auto [loss, gradient] = ts::value_and_grad(loss_of)(model, x, target);
  return std::pair(loss, ts::adamw(model, gradient, state, config));
});
constexpr ts::Plan training() {
  const auto model = ts::abstract<Mlp>({{{64, 256}, {ts::none, "model"}}, {{256, 64}, {"model"}}});
  const auto batch = ts::abstract<float>({32, 64}, {"data"});
  constexpr ts::optim::AdamW config;
  return ts::plan(train, mesh, model, ts::optim::init_state(config, model), ts::abstract(config), batch, batch);
}
static_assert(training().count(ts::all_reduce, "data") == 3);  // two gradients and the loss

constexpr auto frozen = ts::freeze([] { return megatron(); });
static_assert(ts::memory_of(frozen).peak < 200'000);    // bytes, on the device that stores most
static_assert(frozen.flops() > 5 * 2 * 32 * 64 * 256);  // of all devices together
static_assert(frozen.collectives[0].source.line > 0 && frozen.collectives[0].why == "partial sum");

constexpr auto smooth = [](auto x) {  // x [16/data, 8]
  const auto rows = ts::extent<0>(x) - 2;
  const auto y = ts::slice<0>(x, 0, rows) + ts::slice<0>(x, 1, rows) + ts::slice<0>(x, 2, rows);
  return ts::pad<0>(y / 3.0, 1, 1);
};
constexpr auto halos = ts::freeze([] {
  return ts::plan(smooth, ts::Mesh({{"data", 4}}), ts::abstract<float>({16, 8}, {"data"}));
});
static_assert(halos.count(ts::all_gather) == 0 && halos.implicit_count() == 0);

constexpr auto heat = [](auto u) {
  return u + (ts::roll<0>(u, 1) + ts::roll<0>(u, -1) + ts::roll<1>(u, 1) + ts::roll<1>(u, -1) - u * 4.f) * .1f;
};
constexpr auto steps = ts::freeze([] {
  return ts::plan(heat, ts::Mesh({{"x", 2}, {"y", 2}}), ts::abstract<float>({1024, 1024}, {"x", "y"}));
});
static_assert(steps.count(ts::Collective::permute) == 2 &&
              steps.wire_bytes() == 4 * 512 * sizeof(float));  // two rows, two columns

}  // namespace

TEST(plans_page, runs) {
  const auto batch = ts::abstract<float>({32, 64}, {"data"});
  {
    tessera_test::Output output;
    const ts::Plan before = ts::plan(step, mesh, ts::abstract<Mlp>({{{64, 256}}, {{256, 64}}}), batch, batch);
    std::cout << ts::diff(before, megatron());
    const std::string text = output.text_at("plans_doc_test.cpp", "plan.cpp:4");
    EXPECT_EQ(text.substr(0, text.find("peak memory")),
              R"(+ 1 all_reduce over model of f32: 4,096 B, 6,144 B on the wire  at plan.cpp:4  (partial sum)
- 1 all_reduce over data of f32: 65,536 B, 65,536 B on the wire  at plan.cpp:4  (partial sum)
- 1 all_reduce over data of f32: 65,536 B, 65,536 B on the wire  at plan.cpp:4  (partial sum)
+ 1 all_reduce over data of f32: 16,384 B, 16,384 B on the wire  at plan.cpp:4  (partial sum)
+ 1 all_reduce over data of f32: 16,384 B, 16,384 B on the wire  at plan.cpp:4  (partial sum)
on the wire of a device: 131,076 B -> 38,916 B
)");
  }

  const Mlp model{ts::zeros<float>({64, 256}, mesh, {ts::none, "model"}), ts::zeros<float>({256, 64}, mesh, {"model"})};
  const auto x = ts::ones<float>({32, 64}, mesh, {"data"}), target = x;
  {
    tessera_test::Output output;
    ts::CommunicationScope scope;
    const auto result = step(model, x, target);
    assert(scope.count(ts::all_reduce, "model") == 1 && scope.wire_bytes() == megatron().wire_bytes());
    std::cout << scope.text();
    EXPECT_EQ(ts::item(std::get<0>(result)), 1.f);
    EXPECT_EQ(output.text_at("plans_doc_test.cpp", "plan.cpp:4"), R"(1 all_reduce over model: 4096 B, 6144 B on the wire
3 all_reduce over data: 32772 B, 32772 B on the wire
)");
  }
  EXPECT_EQ(step.plan(model, x, target).wire_bytes(), megatron().wire_bytes());

  const auto over = [&] {
    ts::CommunicationScope budget({.wire_bytes = 10'000});
    step(model, x, target);
  };
  tessera_test::expect_error(
      ts::errc::policy, over,
      "[communication] bytes on the wire: 38916 needed and 0 used before, but the scope at plans_doc_test.cpp:",
      " allows 10000; the largest collective is all_reduce of 16384 bytes at plans_doc_test.cpp:");

  const auto implicit = [&] {
    ts::CommunicationScope scope({.forbid_implicit_reshards = true});
    constexpr auto product = ts::compile([](auto a, auto b) { return a * b; });
    product(x, ts::reshard(x, {ts::none, "data"}));
  };
  tessera_test::expect_error(ts::errc::policy, implicit,
                             "[plan] implicit reshard: all_to_all of 8192 bytes reshards f32[32,64], argument 1, from "
                             "{-,data} to {data,-} for its use at plans_doc_test.cpp:");
}

TEST(plans_page, explains_halos) {
  tessera_test::Output output;
  std::cout << ts::explain(halos);
  EXPECT_EQ(output.text_at("plans_doc_test.cpp", "plan.cpp:4"), R"(plan on mesh(data=4)
  permute over data: 32 B, 32 B on the wire  at plan.cpp:4  (halo)
  permute over data: 64 B, 64 B on the wire  at plan.cpp:4  (halo)
  permute over data: 32 B, 32 B on the wire  at plan.cpp:4  (halo)
communication of each device
  3 permute over data: 128 B, 128 B on the wire
memory of a device: 128 B arguments, 128 B results, 384 B scratch; 512 B at most
)");
}

TEST(plans_page, holds_the_lines_of_this_file) {
  tessera_test::expect_lines(
      {.name = "plans.md", .section = "Plans", .lines = 50, .left_out = tessera_test::is_message}, __FILE__);
}

// ---- docs/compile.md

namespace compile_page {

constexpr auto sharpened = ts::compile([](auto x, auto temperature) { return ts::softmax(x / temperature); });

struct Affine {
  ts::ShardedTensor<float, 2> weight;
  ts::ShardedTensor<float, 1> bias;
  constexpr auto operator()(const auto& x) const { return ts::matmul(x, weight) + bias; }
};
constexpr auto head_norms = ts::compile([](auto model, auto x, auto rate, auto heads, auto key) {
  const auto y = ts::dropout(model(x), rate, key);                   // [rows, features]
  const auto split = ts::split_dim<1>(y, ts::extent<1>(y) / heads);  // [rows, heads, features / heads]
  return std::tuple(y, ts::norm<-1>(split));
});

TEST(compile_page, runs) {
  const auto x = ts::ones<float>({4, 8}, mesh, {"data"});
  const ts::ShardedTensor<float, 2> y = sharpened(x, 0.5);
  EXPECT_EQ(ts::to_host(y), std::vector<float>(32, 0.125f));
  sharpened(x, 2.0);  // the same plan: the temperature is a ts::Scalar
  using Matrix = ts::ShardedTensor<float, 2>;
  EXPECT_EQ((sharpened.cache_statistics<Matrix, ts::Scalar>().misses), 1);
  EXPECT_EQ((sharpened.cache_statistics<Matrix, ts::Scalar>().hits), 1);
  sharpened(ts::ones<float>({6, 8}, mesh), 2.0);  // another shape: another plan
  EXPECT_EQ((sharpened.cache_statistics<Matrix, ts::Scalar>().misses), 2);
  sharpened(ts::ones<double>({4, 8}, mesh), 2.0);  // another type: traced separately, by the compiler
  EXPECT_EQ((sharpened.cache_statistics<Matrix, ts::Scalar>().misses), 2);

  const Affine model{ts::ones<float>({8, 12}, mesh, {ts::none, "model"}), ts::zeros<float>({12}, mesh, {"model"})};
  const auto [all, norms] = head_norms(model, x, 0.1, ts::Dim(3), ts::Key(7));  // [4, 12] and [4, 3]
  EXPECT_EQ(ts::shape(norms), (ts::Shape{4, 3}));
  const std::vector<float> elements = ts::to_host(all), lengths = ts::to_host(norms);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    double squares = 0;
    for (std::size_t k = 4 * i; k < 4 * i + 4; ++k) squares += static_cast<double>(elements[k]) * elements[k];
    EXPECT_NEAR(lengths[i], std::sqrt(squares), 1e-5);
  }
  const auto statistics = [] { return head_norms.cache_statistics<Affine, Matrix, ts::Scalar, ts::Dim, ts::Scalar>(); };
  head_norms(model, x, 0.2, ts::Dim(3), ts::Key(8));
  EXPECT_EQ(statistics().misses, 1);
  head_norms(model, x, 0.2, ts::Dim(4), ts::Key(8));
  EXPECT_EQ(statistics().misses, 2);

  tessera_test::Output output;
  std::cout << sharpened.plan(x, 0.5);     // collectives and memory
  std::cout << sharpened.explain(x, 0.5);  // also every step and kernel
  EXPECT_NE(output.text().find("memory of a device: "), std::string::npos);
  EXPECT_NE(output.text().find("fused"), std::string::npos);
}

TEST(compile_page, holds_the_lines_of_this_file) {
  tessera_test::expect_lines({.name = "compile.md", .lines = 20}, __FILE__);
}

}  // namespace compile_page
