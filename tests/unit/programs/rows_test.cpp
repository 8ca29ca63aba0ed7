#include "check.hpp"

namespace ts = tessera;
using namespace programs;

TEST(Programs, Rows) {
  constexpr auto f = [](const auto& floats, const auto& targets, const auto& eps) {
    const auto& [x, w, gain, bias] = floats;  // [b, t, d], [d, d], [d], [d]
    const auto normed = ts::layer_norm(x, gain, bias, eps);
    const auto squared = ts::rms_norm(normed * 2.0 + x, gain);
    const auto soft = ts::softmax(squared * 3.0), across = ts::softmax<1>(x * 2.0), logs = ts::log_softmax<0>(squared);
    const auto loss = ts::cross_entropy(ts::matmul(squared, w), targets);
    return std::tuple(loss + energy(soft, across, logs) + ts::mse(normed, x), normed, squared, soft, across, logs,
                      ts::log_softmax(x));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>, Tensor<2>, Tensor<1>, Tensor<1>>, Tensor<2, std::int32_t>,
                             ts::Scalar>(
      with_gradient(f),
      {.arguments = {values("btd"), values("dd"), values("d"), values("d"), indices("bt", 'd'), scalar(0.05, 0.2)}}, 4);
}
