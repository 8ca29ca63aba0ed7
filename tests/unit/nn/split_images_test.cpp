#include <algorithm>
#include <cmath>
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

constexpr std::int64_t images = 4, height = 34, columns = 5, channels = 4;

constexpr auto norms = ts::compile([](auto x, auto gain, auto bias) {
  const auto [mean, variance] = ts::batch_norm_statistics(x);
  return std::tuple(ts::batch_norm(x, gain, bias), ts::instance_norm(x, gain, bias), ts::group_norm(x, gain, bias, 2),
                    mean, variance);
});

/// Norms of f32 images against their definition in double. `of` maps an element to its statistics.
void expect_norms(const std::vector<float>& x, const ts::Mesh& mesh, const ts::PartitionSpec& spec, double tolerance) {
  const std::vector<float> gain{1, .5f, -2, 1}, bias{0, 1, 0, -1};
  const auto [batch, instance, group, mean, variance] = norms(
      ts::shard(x, {images, height, columns, channels}, mesh, spec), ts::shard(gain, mesh), ts::shard(bias, mesh));
  const auto check = [&](const char* what, const std::vector<float>& got, auto of) {
    std::vector<double> count(std::size_t{images * channels}), mean_of(count), square(count);
    const auto each = [&](auto f) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto image = i / std::size_t{height * columns * channels}, channel = i % channels;
        f(i, channel, of(image, channel));
      }
    };
    each([&](std::size_t i, std::size_t, std::size_t at) { ++count[at], mean_of[at] += static_cast<double>(x[i]); });
    for (std::size_t at = 0; at < count.size(); ++at) mean_of[at] /= std::max(count[at], 1.0);
    each([&](std::size_t i, std::size_t, std::size_t at) { square[at] += std::pow(x[i] - mean_of[at], 2); });
    each([&](std::size_t i, std::size_t c, std::size_t at) {
      const double made = (x[i] - mean_of[at]) / std::sqrt(square[at] / count[at] + 1e-5);
      ASSERT_NEAR(got[i], made * static_cast<double>(gain[c]) + static_cast<double>(bias[c]), tolerance)
          << what << " " << i;
    });
    return std::tuple(mean_of, square, count);
  };
  const auto [means, squares, counts] =
      check("batch", ts::to_host(batch), [](std::size_t, std::size_t channel) { return channel; });
  check("instance", ts::to_host(instance), [](std::size_t image, std::size_t c) { return image * channels + c; });
  check("group", ts::to_host(group), [](std::size_t image, std::size_t c) { return image * channels + c / 2; });
  const std::vector<float> own_mean = ts::to_host(mean), own_variance = ts::to_host(variance);
  for (std::size_t c = 0; c < channels; ++c) {
    EXPECT_NEAR(own_mean[c] / means[c], 1, 2e-7) << c;
    EXPECT_NEAR(own_variance[c] / (squares[c] / (counts[c] - 1)), 1, tolerance) << c;
  }
}

// The statistics are sums of differences from the mean of 3 of 34 rows. A mean that is far from 0 costs no accuracy.
// If these rows are far from the others, that may cost 34 / 3 times the error of sums: docs/decisions/0029, 0085.
TEST(FeatureNorms, AreAccurateFarFromZero) {
  std::mt19937 random(7);
  std::normal_distribution<float> noise;
  std::vector<float> far(std::size_t{images * height * columns * channels}), apart(far), steps(far);
  for (std::size_t i = 0; i < far.size(); ++i) {
    const bool taken = i / std::size_t{columns * channels} % std::size_t{height} % 16 == 0;
    far[i] = 1e4f + noise(random);
    apart[i] = taken ? 0.f : 1e4f + noise(random);
    steps[i] = (taken ? -2e3f : 1e4f) + noise(random);
  }
  const ts::Mesh one({{"rows", 1}}), three({{"rows", 3}}), six({{"rows", 3}, {"columns", 2}});
  constexpr double of_sums = 68 * 0x1p-24;
  const auto expect_everywhere = [&](const std::vector<float>& x, double tolerance) {
    expect_norms(x, one, {}, tolerance);
    expect_norms(x, three, {"rows"}, tolerance);
    expect_norms(x, three, {ts::none, "rows"}, tolerance);
    expect_norms(x, six, {"columns", "rows"}, tolerance);
    expect_norms(x, six, {ts::none, "rows", "columns"}, tolerance);
    expect_norms(x, six, {ts::none, ts::none, "rows", "columns"}, tolerance);
  };
  expect_everywhere(far, of_sums);
  expect_everywhere(apart, of_sums * 34 / 3);
  expect_everywhere(steps, of_sums * 34 / 3);
}

// Every sixteenth row is taken where it is stored.
TEST(FeatureNorms, MoveNoImages) {
  const ts::Mesh mesh({{"rows", 3}});
  const auto vector = ts::ones<float>({channels}, mesh);
  const std::vector<float> x(std::size_t{images * height * columns * channels}, 1.f);
  for (const ts::PartitionSpec& spec : {ts::PartitionSpec{"rows"}, ts::PartitionSpec{ts::none, "rows"}}) {
    const ts::Plan plan = norms.plan(ts::shard(x, {images, height, columns, channels}, mesh, spec), vector, vector);
    for (const ts::Collective kind : {ts::all_gather, ts::all_to_all, ts::Collective::permute})
      EXPECT_EQ(plan.count(kind), 0) << spec.text();
  }
}

}  // namespace
