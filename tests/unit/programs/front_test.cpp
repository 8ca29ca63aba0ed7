#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/optim/adam/adamw.hpp>
#include <tessera/optim/average.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>

/// What calls of compiled functions and assignments of expressions do besides computing: they find plans again, donate
/// memory, and throw errors.
namespace {

namespace ts = tessera;
using tessera_test::expect_error;
template <int Rank, class T = float> using Tensor = ts::ShardedTensor<T, Rank>;

const ts::Mesh& mesh() {
  static const ts::Mesh made({{"x", 2}, {"y", 3}});
  return made;
}
Tensor<2> counting(std::int64_t rows, std::int64_t columns, const ts::PartitionSpec& spec = {},
                   const ts::Mesh& on = mesh()) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < rows * columns; ++i) values.push_back(0.25f * static_cast<float>(i % 13) - 1);
  return ts::shard(values, {rows, columns}, on, spec);
}
std::string here(int line) { return " at front_test.cpp:" + std::to_string(line); }

struct Block {
  Tensor<2> w;
  ts::Dim parts;
  ts::Scalar scale;
  constexpr auto operator()(const auto& x) const {
    return ts::matmul(ts::merge_dims<1, 2>(ts::split_dim<1>(x, parts)), w) * scale;
  }
};
constexpr auto through = ts::compile([](const ts::Stack<Block>& stack, auto x) { return stack(x); });

ts::Stack<Block> stack_of(int layers, ts::Dim parts = 2, double scale = 0.5) {
  return ts::Stack<Block>(layers, [&](int) { return Block{counting(4, 4, {"x"}), parts, scale}; });
}

}  // namespace

TEST(Compiled, FloatingPointNumbersAreGivenAsScalars) {
  constexpr auto run = ts::compile([](auto x, auto scale, auto shift) { return std::pair(x * scale + shift, x * 2); });
  const auto misses = [&] { return run.cache_statistics<Tensor<2>, ts::Scalar, ts::Scalar>().misses; };
  const std::vector<float> values = ts::to_host(counting(6, 3));
  const auto check = [&](const std::pair<Tensor<2>, Tensor<2>>& got, float scale, float shift) {
    const std::vector<float> first = ts::to_host(got.first), second = ts::to_host(got.second);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(first[i], values[i] * scale + shift);
      EXPECT_EQ(second[i], values[i] * 2);
    }
  };
  Tensor<2> x = counting(6, 3, {"x"});
  const float half = 0.5f;
  check(run(x, half, 2.0), 0.5f, 2);
  check(run(x, 0.25, ts::Scalar(-1)), 0.25f, -1);
  check(run(x, ts::Scalar(4), -0.5f), 4, -0.5f);
  EXPECT_EQ(misses(), 1);
  EXPECT_EQ(run.explain(x, 0.5f, 1.0), run.explain(x, ts::Scalar(0.5), ts::Scalar(1)));
  check(run(std::move(x), half, 1.0f), 0.5f, 1);
  EXPECT_THROW(run(x, half, 1.0f), ts::error) << "what is moved in beside a number is given up";
}

TEST(Compiled, ScalarsChangeWithoutANewPlanAndDimsMakeOne) {
  static constexpr auto f = [](auto x, auto scale, auto parts) {
    return ts::merge_dims<0, 1>(ts::split_dim<0>(x, parts)) * scale;
  };
  constexpr auto run = ts::compile(f);
  const auto misses = [&] { return run.cache_statistics<Tensor<2>, ts::Scalar, ts::Dim>().misses; };
  const auto hits = [&] { return run.cache_statistics<Tensor<2>, ts::Scalar, ts::Dim>().hits; };
  const Tensor<2> x = counting(6, 3, {"x"});
  const std::vector<float> values = ts::to_host(x);
  for (int k = 0; k < 4; ++k) {
    const std::vector<float> got = ts::to_host(run(x, ts::Scalar(k), ts::Dim(2)));
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(got[i], values[i] * static_cast<float>(k));
  }
  EXPECT_EQ(misses(), 1);
  EXPECT_EQ(hits(), 3);
  EXPECT_EQ(ts::to_host(run(x, ts::Scalar(1), ts::Dim(3))), values);
  EXPECT_EQ(misses(), 2);
  EXPECT_EQ(ts::to_host(run(counting(6, 3, {"y"}), ts::Scalar(1), ts::Dim(3))), values);
  EXPECT_EQ(misses(), 3);
  EXPECT_EQ(ts::to_host(run(counting(6, 3, {"x"}, ts::Mesh({{"x", 6}})), ts::Scalar(1), ts::Dim(3))), values);
  EXPECT_EQ(misses(), 4);
  EXPECT_EQ(ts::to_host(run(x, ts::Scalar(1), ts::Dim(3))), values);
  EXPECT_EQ(misses(), 4);
  EXPECT_EQ(hits(), 4);
}

TEST(Compiled, ArgumentsThatAreHeldStayAsTheyAre) {
  constexpr auto step = ts::compile([](auto x) { return x * 2.0 + 1.0; });
  const Tensor<2> x = counting(5, 7, {"y"});
  const std::vector<float> before = ts::to_host(x);
  std::vector<float> after = before;
  for (float& v : after) v = v * 2 + 1;
  EXPECT_EQ(ts::to_host(step(x)), after);
  EXPECT_EQ(ts::to_host(x), before);
  Tensor<2> given = counting(5, 7, {"y"}), kept = given;
  EXPECT_EQ(ts::to_host(step(std::move(given))), after);
  EXPECT_EQ(ts::to_host(kept), before);
  EXPECT_EQ(ts::to_host(step(std::move(kept))), after);
}

TEST(Compiled, TakesExpressionsAndShowsItsPlan) {
  constexpr auto total = ts::compile([](auto x) { return ts::sum(x); });
  const Tensor<2> x = counting(4, 5, {"x", "y"});
  double want = 0;
  for (const float v : ts::to_host(x)) want += 2 * v;
  EXPECT_NEAR(ts::item(total(x + x)), want, 1e-4);
  EXPECT_EQ(total.plan(x).count(ts::all_reduce), 1);
  EXPECT_NE(total.explain(x).find("front_test.cpp:"), std::string::npos);
}

TEST(Expressions, AreComputedWhenTheyAreAssigned) {
  const Tensor<2> x = counting(6, 4, {"x"}), w = counting(4, 5, {ts::none, "y"});
  const Tensor<1> b = ts::shard(std::vector<float>{1, -2, 3, -4, 5}, mesh(), {"y"});
  const auto compute = [&](double scale) { return ts::relu(ts::matmul(x, w) + b) * scale - 1; };
  const auto expression = compute(2);  // an expression returned from a function owns its operands
  const std::vector<float> hx = ts::to_host(x), hw = ts::to_host(w), hb = ts::to_host(b);
  for (const double scale : {2.0, 3.0}) {
    const Tensor<2> z = compute(scale);
    const std::vector<float> got = ts::to_host(z);
    for (std::size_t i = 0; i < 6; ++i)
      for (std::size_t j = 0; j < 5; ++j) {
        double sum = hb[j];
        for (std::size_t k = 0; k < 4; ++k) sum += static_cast<double>(hx[i * 4 + k]) * hw[k * 5 + j];
        EXPECT_NEAR(got[i * 5 + j], std::fmax(sum, 0) * scale - 1, 1e-5);
      }
  }
  EXPECT_EQ(ts::to_host(ts::eval(expression)), ts::to_host(Tensor<2>(compute(2))));
  EXPECT_EQ(ts::plan(expression).count(ts::all_gather), 0);
  EXPECT_NE(ts::explain(expression).find("fused"), std::string::npos);
  Tensor<2> y = x;
  y = y + 1;
  y = y * y;
  EXPECT_FLOAT_EQ(ts::to_host(y)[3], (hx[3] + 1) * (hx[3] + 1));
}

TEST(Expressions, NameTheLineOfAnError) {
  const Tensor<2> x = counting(2, 3), y = counting(4, 5), other = counting(2, 3, {}, ts::Mesh({{"x", 2}}));
  const int line = __LINE__ + 1;
  const auto product = ts::matmul(x, y);
  expect_error(
      ts::errc::shape_mismatch, [&] { Tensor<2> z = product; }, "[matmul]", "f32[2,3]", "f32[4,5]", here(line));
  expect_error(
      ts::errc::shape_mismatch, [&] { ts::eval(x + y); }, "[add]", "f32[2,3]", "f32[4,5]", here(__LINE__));
  expect_error(
      ts::errc::shape_mismatch, [&] { (void)ts::plan(x - y); }, "[sub]", "f32[2,3]", "f32[4,5]", here(__LINE__));
  expect_error(
      ts::errc::mesh_mismatch, [&] { ts::eval(x * other); }, "mesh(x=2,y=3)", "mesh(x=2)", here(__LINE__));
  expect_error(
      ts::errc::empty_tensor, [&] { ts::eval(x * Tensor<2>()); }, here(__LINE__));
}

TEST(Compiled, NamesTheOperationTheShapesAndTheLineOfAnError) {
  constexpr int line = __LINE__ + 1;
  constexpr auto f = ts::compile([](auto x, auto y) { return ts::matmul(x, y) + 1.0; });
  const Tensor<2> x = counting(2, 3), y = counting(4, 5);
  expect_error(
      ts::errc::shape_mismatch, [&] { f(x, y); }, "[matmul]", "f32[2,3]", "f32[4,5]", here(line));
  expect_error(
      ts::errc::shape_mismatch, [&] { (void)f.plan(x, y); }, "[matmul]", here(line));
  expect_error(
      ts::errc::mesh_mismatch,
      [&] {
        f(x, counting(3, 5, {}, ts::Mesh({{"x", 2}})));
      },
      "mesh(x=2,y=3)", "mesh(x=2)");
  expect_error(
      ts::errc::empty_tensor, [&] { f(x, Tensor<2>()); }, "argument 1");
  EXPECT_EQ(ts::to_host(f(x, counting(3, 1))).size(), 2u);  // an error leaves nothing behind

  constexpr int split = __LINE__ + 1;
  constexpr auto g = ts::compile([](auto in, auto parts) { return ts::split_dim<1>(in, parts); });
  expect_error(
      ts::errc::not_divisible, [&] { g(x, ts::Dim(2)); }, "[rearrange]", "f32[2,3]", here(split));
  expect_error(
      ts::errc::not_divisible, [&] { (void)ts::eval(ts::split_dim<1>(x, 2)); }, "[rearrange]", "f32[2,3]");
  expect_error(
      ts::errc::shape_mismatch, [&] { g(x, ts::Dim(0)); }, "[rearrange]", here(split));
  constexpr int cut = __LINE__ + 1;
  constexpr auto h = ts::compile([](auto in, auto start) { return ts::slice<0>(in, start, 2); });
  expect_error(
      ts::errc::shape_mismatch, [&] { h(x, ts::Dim(1)); }, "[slice]", "f32[2,3]", here(cut));
  expect_error(
      ts::errc::shape_mismatch, [&] { h(x, ts::Dim(-1)); }, "[slice]", here(cut));
  constexpr int reshaped = __LINE__ + 1;
  const auto r = [&] { (void)ts::eval(ts::reshape(x, {5, 7})); };
  expect_error(ts::errc::shape_mismatch, r, "[reshape]", "f32[2,3] has 6, the extents given have 35", here(reshaped));
  constexpr int loss = __LINE__ + 1;
  constexpr auto l = ts::compile([](auto in, auto out) { return ts::mse(in, out); });
  expect_error(
      ts::errc::shape_mismatch, [&] { l(x, counting(4, 3)); }, "f32[2,3] x f32[4,3] in mse", here(loss));
  constexpr int rows = __LINE__ + 1;
  constexpr auto d = ts::compile([](auto in, auto other) { return ts::cdist(in * 2.0, other); });
  expect_error(
      ts::errc::shape_mismatch, [&] { d(x, counting(3, 4)); }, "[sub]", "in cdist", here(rows));
  constexpr int step = __LINE__ + 2;
  constexpr auto a = ts::compile([](auto model, auto gradient, auto mean) {
    return std::get<0>(ts::adamw(model, gradient, {mean, mean, 0}, ts::optim::AdamW{}));
  });
  expect_error(
      ts::errc::structure, [&] { a(x, x, counting(2, 4)); }, "[adamw]", here(step));
  constexpr int entropy = __LINE__ + 1;
  const auto b = [&] { (void)ts::eval(ts::bce_with_logits(x, counting(4, 3))); };
  expect_error(ts::errc::shape_mismatch, b, "in bce_with_logits", here(entropy));
  expect_error(
      ts::errc::shape_mismatch, [&] { (void)ts::eval(x + counting(2, 1)); }, "f32[2,3] x f32[2,1]", "ts::unsqueeze");
  constexpr int asked = __LINE__ + 1;
  constexpr auto c = ts::compile([](auto in) { return ts::with_sharding(in + 1.0, {"z"}); });
  expect_error(
      ts::errc::spec_axis, [&] { c(x); }, "unknown axis 'z'", "with_sharding", here(asked));
  constexpr int looked_up = __LINE__ + 1;
  constexpr auto i = ts::compile([](auto in, auto index) { return ts::index_select<0>(in, index); });
  expect_error(
      ts::errc::dim_range, [&] { i(x, ts::shard(std::vector<int>{5}, mesh())); }, "5 is outside", "in index_select",
      here(looked_up));
  constexpr int averaged = __LINE__ + 1;
  constexpr auto m = ts::compile([](auto old, auto now) { return ts::optim::moving_average(old, now, 0.9); });
  expect_error(
      ts::errc::structure, [&] { m(x, counting(2, 4)); }, "[moving_average]", here(averaged));
  constexpr int attended = __LINE__ + 1;
  constexpr auto t = ts::compile([](auto query, auto key) { return ts::attention(query, key, query); });
  const auto query = ts::ones<float>({1, 2, 2, 4}, mesh()), key = ts::ones<float>({1, 3, 2, 4}, mesh());
  expect_error(  // of the operands that the user gave
      ts::errc::shape_mismatch, [&] { t(query, key); },
      "differ in batch, time or heads: f32[1,2,2,4] x f32[1,3,2,4] x f32[1,2,2,4] at", here(attended));
  constexpr int masked = __LINE__ + 1;
  constexpr auto with_mask = ts::compile([](auto q, auto k, auto mask) { return ts::attention(q, k, k, mask); });
  const auto mask = ts::ones<float>({2, 2}, mesh());
  expect_error(
      ts::errc::shape_mismatch, [&] { with_mask(query, key, mask); },
      "a bias or mask is not of [batch, heads, time, keys] of queries and keys: f32[1,2,2,4] x f32[1,3,2,4] x "
      "f32[1,1,2,2] at",
      here(masked));
}

TEST(Compiled, ChecksIndicesOfLookups) {
  constexpr int line = __LINE__ + 1;
  constexpr auto f = ts::compile([](auto table, auto i) { return ts::embedding(table, i); });
  for (const ts::PartitionSpec& spec : {ts::PartitionSpec{}, ts::PartitionSpec{"x"}, ts::PartitionSpec{ts::none, "y"}})
    for (const int bad : {4, -1, 1000000}) {
      const auto index = ts::shard(std::vector<int>{0, 3, bad, 1}, mesh(), {"y"});
      expect_error(
          ts::errc::dim_range, [&] { f(counting(4, 5, spec), index); }, "[embedding]", std::to_string(bad), "4 rows",
          here(line));
    }
  EXPECT_EQ(ts::to_host(f(counting(4, 5, {"x"}), ts::shard(std::vector<int>{3}, mesh())))[0],
            ts::to_host(counting(4, 5))[15]);
}

TEST(Compiled, ChecksTheLayersOfAStack) {
  const Tensor<2> x = counting(3, 4);
  EXPECT_EQ(ts::to_host(through(stack_of(3), x)).size(), 12u);
  ts::Stack<Block> shapes = stack_of(3), specs = stack_of(3), sizes = stack_of(3), numbers = stack_of(3),
                   meshes = stack_of(3), empty = stack_of(3);
  shapes[2].w = counting(4, 5, {"x"});
  expect_error(
      ts::errc::structure, [&] { through(shapes, x); }, "[stack]", "f32[4,4]{x,-}", "f32[4,5]{x,-}");
  specs[1].w = counting(4, 4, {"y"});
  expect_error(
      ts::errc::structure, [&] { through(specs, x); }, "[stack]", "f32[4,4]{x,-}", "f32[4,4]{y,-}");
  sizes[1].parts = 4;
  expect_error(
      ts::errc::structure, [&] { through(sizes, x); }, "[stack]", "layer 1 has 4", "layer 0 has 2");
  numbers[2].scale = 0.75;
  expect_error(
      ts::errc::structure, [&] { through(numbers, x); }, "[stack]", "layer 2 has 0.75", "layer 0 has 0.5");
  meshes[1].w = counting(4, 4, {"x"}, ts::Mesh({{"x", 2}}));
  expect_error(
      ts::errc::mesh_mismatch, [&] { through(meshes, x); }, "mesh(x=2,y=3)", "mesh(x=2)");
  empty[1].w = {};
  expect_error(
      ts::errc::empty_tensor, [&] { through(empty, x); }, "argument 0");
  expect_error(
      ts::errc::structure, [&] { through(ts::Stack<Block>(), x); }, "[stack]", "the Stack is empty");
}
