#include <cstddef>
#include <cstdint>
#include <random>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;

namespace {

using Values = std::vector<double>;

Values random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  Values values(count);
  for (double& own : values) own = std::uniform_real_distribution<double>(-1, 1)(random);
  return values;
}

/// A step of gradient descent on a convolution, a batch norm, a max pool, a transposed convolution and a linear layer.
constexpr auto train = ts::compile([](auto model, auto x, auto target) {
  const auto loss = [](const auto& m, const auto& images, const auto& wanted) {
    const auto& [taps, gain, shift, up, head] = m;
    const auto y = ts::conv2d(images, taps, {.padding = {1, 1}});
    const auto centered = y - ts::mean<0, 1, 2>(y);
    const auto normed = centered * ts::rsqrt(ts::mean<0, 1, 2>(centered * centered) + 1e-5) * gain + shift;
    const auto pooled = ts::max_pool2d(ts::relu(normed), {.window = {3, 3}, .strides = {2, 2}, .padding = {1, 1}});
    const auto larger = ts::conv_transpose2d(pooled, up, {.strides = {2, 2}, .padding = {1, 1}});
    const auto off = ts::matmul(ts::mean<1, 2>(larger * larger), head) - wanted;
    return ts::mean(off * off);
  };
  const auto [value, by] = ts::value_and_grad(loss)(model, x, target);
  const auto& [taps, gain, shift, up, head] = model;
  const auto& [d_taps, d_gain, d_shift, d_up, d_head] = by;
  return std::tuple(value, std::tuple(taps - 0.1 * d_taps, gain - 0.1 * d_gain, shift - 0.1 * d_shift, up - 0.1 * d_up,
                                      head - 0.1 * d_head));
});

/// The losses of six steps, and the weights after them.
Values trained(const ts::Mesh& mesh, const ts::PartitionSpec& spec, std::int64_t height, std::int64_t width) {
  auto model = std::tuple(ts::shard(random_values(3 * 3 * 2 * 4, 1), {3, 3, 2, 4}, mesh),
                          ts::shard(random_values(4, 2), {4}, mesh), ts::shard(random_values(4, 3), {4}, mesh),
                          ts::shard(random_values(3 * 3 * 4 * 3, 4), {3, 3, 4, 3}, mesh),
                          ts::shard(random_values(3 * 5, 5), {3, 5}, mesh));
  const auto x =
      ts::shard(random_values(static_cast<std::size_t>(4 * height * width * 2), 6), {4, height, width, 2}, mesh, spec);
  const auto target = ts::shard(random_values(4 * 5, 7), {4, 5}, mesh);
  const ts::Plan plan = train.plan(model, x, target);
  EXPECT_EQ(plan.count(ts::all_gather), 0);
  EXPECT_EQ(plan.count(ts::all_to_all), 0);
  EXPECT_EQ(plan.count(ts::Collective::permute) > 0, mesh.size() > 1);
  Values found;
  for (int step = 0; step < 6; ++step) {
    ts::CommunicationScope ran;
    auto [loss, next] = train(model, x, target);
    EXPECT_EQ(ran.wire_bytes(), plan.wire_bytes());
    found.push_back(ts::to_host(loss).front());
    model = std::move(next);
  }
  for (const double own : ts::to_host(std::get<0>(model))) found.push_back(own);
  for (const double own : ts::to_host(std::get<3>(model))) found.push_back(own);
  return found;
}

TEST(SplitImages, TrainAsOnOneDevice) {
  const ts::Mesh one({{"rows", 1}}), four({{"rows", 2}, {"columns", 2}}), six({{"rows", 3}, {"columns", 2}});
  for (const std::int64_t width : {8, 7}) {
    const Values want = trained(one, {}, 9, width);
    EXPECT_LT(want[5], want[0]);
    for (const ts::Mesh& mesh : {four, six})
      for (const ts::PartitionSpec& spec :
           {ts::PartitionSpec{ts::none, "rows", "columns"}, {"columns", "rows"}, {ts::none, {"rows", "columns"}}}) {
        SCOPED_TRACE(ts::concat_text(mesh.text(), " ", spec.text(), " width ", width));
        const Values got = trained(mesh, spec, 9, width);
        ASSERT_EQ(got.size(), want.size());
        for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-10) << i;
      }
  }
}

}  // namespace
