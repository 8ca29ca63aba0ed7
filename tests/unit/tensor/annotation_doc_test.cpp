// The examples of docs/plans.md, section Annotations, in its order. The last test compares the two texts.

#include <string>
#include <tuple>
#include <vector>

#include "../../support/page.hpp"
#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/tessera.hpp>

namespace ts = tessera;

constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});

TEST(annotations_page, runs) {
  constexpr auto layer = ts::compile([](auto x, auto w, auto v) {
    auto hidden = ts::with_sharding(ts::matmul(x, w), {"data", "model"});  // the value and its cotangent
    auto marked = ts::mark_sharding(ts::relu(hidden), {"data"});           // only the value, not its cotangent
    auto both = ts::with_sharding(marked, {"data"}, {{"data", "model"}});  // the value and, differently, its cotangent
    auto [y, z] = ts::shard_as(both, v);                                   // equally, the planner chooses how
    return std::tuple(y, z);
  });

  auto x = ts::ones<float>({6, 8}, mesh);
  ts::mark_sharding(x, {"data"});  // x was replicated: allowed
  ts::mark_sharding(x, {"data"});  // the same annotation: no effect
  ts::clear_sharding(x);           // replicated again
  ts::mark_sharding(x, {ts::none, "model"});
  EXPECT_EQ(ts::sharded_type_text(x), "f32[6,8]{-,model}");
  const auto again = [&] { ts::mark_sharding(x, {"data"}); };
  tessera_test::expect_error(ts::errc::annotation, again,
                             "[mark_sharding] existing annotation must be cleared first: f32[6,8]{-,model} on "
                             "mesh(data=2,model=2) to {data} on mesh(data=2,model=2)");

  const auto w = ts::ones<float>({8, 4}, mesh, {"model"}), v = ts::ones<float>({6, 4}, mesh, {ts::none, "model"});
  const auto [y, z] = layer(x, w, v);
  EXPECT_EQ(ts::to_host(y), std::vector<float>(24, 8.f));
  EXPECT_EQ(ts::sharding(y), ts::sharding(z));

  constexpr auto product = ts::compile([](auto a, auto b) { return ts::matmul(a, b); }, {.explicit_axes = {"model"}});
  const auto ambiguous = [&] {
    product(x, w);  // x [6, 8/model], w [8/model, 4]
  };
  tessera_test::expect_error(
      ts::errc::policy, ambiguous,
      "[einsum] ambiguous result sharding: f32[6,8]{-,model} x f32[8,4]{model,-}: a summed dim is split, so each "
      "device has only a partial sum at annotation_doc_test.cpp:",
      "; state the sharding of the result, such as ts::with_sharding(..., {-,-})");

  ts::LocalTensor<float, 2> local = ts::enable_manual_sharding(x);  // on each device [6, 4]
  auto whole = ts::disable_manual_sharding(local, {ts::none, "model"}, {6, 8});
  EXPECT_EQ(ts::to_host(whole), ts::to_host(x));
  EXPECT_EQ(local.shape(3), (ts::Shape{6, 4}));
}

TEST(annotations_page, holds_the_lines_of_this_file) {
  tessera_test::expect_lines(
      {.name = "plans.md", .section = "Annotations", .lines = 16, .left_out = tessera_test::is_message}, __FILE__);
}
