#include "check.hpp"

namespace ts = tessera;
using namespace programs;

TEST(Programs, RandomNumbers) {
  constexpr auto f = [](auto x, auto d, auto key, auto rate) {
    const auto normal = ts::normal_like(x, key);
    const auto uniform = ts::uniform_like<3>(d, key);
    return std::tuple(normal, uniform, ts::uniform_like(ts::sum<0>(x), 7), ts::dropout(x, rate, key),
                      ts::dropout<2>(ts::transpose<1, 0>(x), 0.5, key), ts::sum<0>(ts::normal_like<1>(x, key)),
                      x * ts::normal_like<1>(x, key));
  };
  expect_equal_on_all_meshes<Tensor<2>, Tensor<3, double>, ts::Scalar, ts::Scalar>(
      f, {.arguments = {values("mn"), values<double>("mnk"), scalar(0, 1e9), scalar(0, 0.9)}, .may_be_empty = true}, 5);
}
