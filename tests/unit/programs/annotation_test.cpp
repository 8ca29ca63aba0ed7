#include "check.hpp"

namespace ts = tessera;
using namespace programs;

// Annotations change the shardings of values and cotangents, not the elements.
TEST(Programs, Annotations) {
  constexpr auto f = [](const auto& floats) {
    const auto& [x, w, v] = floats;  // [m, k], [k, n], [m, n]
    const auto hidden = ts::with_sharding(ts::matmul(x, w), {"x", "y"}, {{"y", "x"}});
    const auto [a, b] = ts::shard_as(ts::gelu(hidden), v);
    const auto marked = ts::mark_sharding(a * b, {ts::none, "x"});
    const auto [c, d] = ts::shard_as(ts::sum<0>(marked), ts::max<0>(v));
    return std::tuple(energy(marked, c * d), hidden, a, b, c, d);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<2>, Tensor<2>>>(
      with_gradient(f),
      {.arguments = {values("mk"), values("kn"), values("mn")}, .may_be_empty = true, .least_axes = 2}, 41);
}
