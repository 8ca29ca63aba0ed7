#include "check.hpp"

namespace ts = tessera;
using namespace programs;

TEST(Programs, Elementwise) {
  constexpr auto f = [](const auto& floats, const auto& rate) {
    const auto& [x, y, row, column] = floats;  // [m, n], [m, n], [n], [m]
    const auto positive = ts::abs(x) + 0.5;
    const auto a = ts::exp(x) + ts::log(positive) - ts::sqrt(positive) * ts::rsqrt(positive + ts::abs(row));
    const auto b = ts::tanh(x * row) + ts::sigmoid(y) / (ts::abs(ts::unsqueeze<1>(column)) + 1.5) +
                   ts::relu(x) * ts::gelu(y) - ts::silu(-x);
    const auto c = ts::pow(positive, y) + ts::minimum(x, y) * ts::maximum(x, row) + ts::sign(y) * ts::pow(x, 2);
    const auto d = ts::select(x < y, x * rate, row) +
                   ts::select(ts::logical_or(x <= y, ts::logical_not(x > 0.25)), 1.0, 2.0 / (y + 3.0));
    const auto e = ts::unsqueeze<1>(column) * row - 0.5;
    const auto g =
        ts::broadcast_like(column * rate, ts::transpose<1, 0>(x)) + ts::iota<0, float>(ts::transpose<1, 0>(x)) * 0.125;
    return std::tuple(energy(a, b, c, d, e, g), a, b, c, d, e, g);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<2>, Tensor<1>, Tensor<1>>, ts::Scalar>(
      with_gradient(f),
      {.arguments = {values("mn"), values("mn"), values("n"), values("m"), scalar(0.5, 2)}, .may_be_empty = true}, 1);
}
