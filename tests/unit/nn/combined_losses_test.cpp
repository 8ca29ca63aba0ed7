// Cross entropy with all options at once, and CTC with empty targets, on uneven meshes, against loops over doubles.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/losses/cross_entropy.hpp>
#include <tessera/ops/losses/ctc_loss.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;

namespace {

using Host = std::vector<double>;
constexpr std::int64_t rows = 7, classes = 5;
Host drawn(std::int64_t n, double seed) {
  Host x;
  for (std::int64_t i = 0; i < n; ++i)
    x.push_back(2 * std::sin(seed + 1.7 * static_cast<double>(i)) + 0.01 * static_cast<double>(i));
  return x;
}
const std::vector<std::int32_t> target{0, 3, 2, 4, 2, 1, 0};  // 2 is ignored
const Host class_weight{0.5, 2, 1, 0.25, 3};

double plain(const Host& x, bool weighted, int how) {
  double total = 0, count = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    const auto t = static_cast<std::size_t>(target[i]);
    if (t == 2) continue;
    double sum = 0;
    for (std::size_t c = 0; c < classes; ++c) sum += std::exp(x[i * classes + c]);
    const double lse = std::log(sum);
    double own = 0.01 * lse * lse;
    for (std::size_t c = 0; c < classes; ++c) {
      const double w = weighted ? class_weight[c] : 1;
      own += w * (lse - x[i * classes + c]) * ((c == t ? 0.8 : 0) + 0.2 / classes);
    }
    total += how == 2 ? own * static_cast<double>(i + 1) : own;
    count += weighted ? class_weight[t] : 1;
  }
  return how == 0 ? total / count : total;
}
template <bool Weighted, int How> struct Loss {
  constexpr auto operator()(const auto& x, const auto& t, const auto& w) const {
    return ts::value_and_grad([](const auto& own, const auto& at, const auto& weights) {
      constexpr ts::CrossEntropy all{.label_smoothing = 0.2, .ignore_index = 2, .z_loss = 0.01};
      constexpr auto how = How == 0   ? ts::LossReduction::mean
                           : How == 1 ? ts::LossReduction::sum
                                      : ts::LossReduction::each;
      const auto made = [&] {
        if constexpr (Weighted)
          return ts::cross_entropy<how>(own, at, weights, all);
        else
          return ts::cross_entropy<how>(own, at, all);
      }();
      if constexpr (How == 2)
        return ts::sum(made * (ts::cast<double>(ts::arange<float>(ts::extent<0>(own), own)) + 1.0));
      else
        return made;
    })(x, t, w);
  }
};
template <bool Weighted, int How> void check(double tolerance) {
  const Host x = drawn(rows * classes, 1);
  Host slopes;
  for (std::size_t i = 0; i < x.size(); ++i) {
    Host up = x, down = x;
    up[i] += 1e-5, down[i] -= 1e-5;
    slopes.push_back((plain(up, Weighted, How) - plain(down, Weighted, How)) / 2e-5);
  }
  constexpr auto program = ts::compile(Loss<Weighted, How>{});
  for (const int devices : {1, 2, 3})
    for (int split = 0; split < 4; ++split) {
      const ts::Mesh mesh({{"x", devices}, {"y", 2}});
      const ts::PartitionSpec specs[] = {{"x"}, {ts::none, "x"}, {"y", "x"}, {ts::none, {"x", "y"}}};
      const ts::PartitionSpec of_rows[] = {{"x"}, {}, {"y"}, {}};
      const ts::PartitionSpec of_classes[] = {{}, {"x"}, {"x"}, {"y"}};
      const auto [y, g] =
          program(ts::shard(x, {rows, classes}, mesh, specs[split]), ts::shard(target, {rows}, mesh, of_rows[split]),
                  ts::shard(class_weight, {classes}, mesh, of_classes[split]));
      EXPECT_NEAR(static_cast<double>(ts::item(y)), plain(x, Weighted, How), tolerance) << devices << " " << split;
      const auto got = ts::to_host(g);
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(static_cast<double>(got[i]), slopes[i], tolerance + 1e-9) << devices << " " << split << " " << i;
    }
}
TEST(CombinedLosses, CrossEntropyWithAllOptions) {
  check<false, 0>(1e-12), check<true, 0>(1e-12), check<false, 1>(1e-12), check<true, 2>(1e-11);
}

// CTC: labels by enumeration of all paths.
constexpr std::int64_t steps = 4, batch = 5, letters = 3, length = 3;
double ctc(const Host& x, std::int64_t b, const std::vector<int>& label, std::int64_t used) {  // log probability
  double total = 0;
  const auto all = static_cast<std::int64_t>(std::pow(3, used) + 0.5);
  for (std::int64_t n = 0; n < all; ++n) {
    std::vector<int> got;
    int last = -1;
    double p = 0;
    for (std::int64_t t = 0, m = n; t < used; ++t, m /= 3) {
      const int k = static_cast<int>(m % 3);
      p += x[static_cast<std::size_t>((t * batch + b) * letters + k)];
      if (k != last && k != 0) got.push_back(k);
      last = k;
    }
    if (got == label) total += std::exp(p);
  }
  return -std::log(total);
}
TEST(CombinedLosses, CtcOfEmptyTargets) {
  Host x = drawn(steps * batch * letters, 3);
  for (std::size_t r = 0; r < steps * batch; ++r) {
    double sum = 0;
    for (std::size_t c = 0; c < 3; ++c) sum += std::exp(x[r * 3 + c]);
    for (std::size_t c = 0; c < 3; ++c) x[r * 3 + c] -= std::log(sum);
  }
  const std::vector<std::int32_t> targets{1, 2, 1, 0, 0, 0, 1, 1, 0, 2, 0, 0, 1, 2, 2};
  const std::vector<std::int32_t> lengths{2, 0, 2, 1, 0}, inputs{4, 3, 4, 2, 0};
  const std::vector<std::vector<int>> labels{{1, 2}, {}, {1, 1}, {2}, {}};
  Host each;
  for (std::int64_t b = 0; b < batch; ++b)
    each.push_back(ctc(x, b, labels[static_cast<std::size_t>(b)], inputs[static_cast<std::size_t>(b)]));
  constexpr auto program = ts::compile([](const auto& p, const auto& t, const auto& n, const auto& m) {
    return ts::value_and_grad([](const auto& own, const auto& a, const auto& b, const auto& c) {
      return ts::ctc_loss(own, a, b, c);
    })(p, t, n, m);
  });
  constexpr auto singly = ts::compile([](const auto& p, const auto& t, const auto& n, const auto& m) {
    return ts::ctc_loss<ts::LossReduction::each>(p, t, n, m);
  });
  const auto mean_of = [&](const Host& p) {
    double sum = 0;
    for (std::int64_t b = 0; b < batch; ++b)
      sum += ctc(p, b, labels[static_cast<std::size_t>(b)], inputs[static_cast<std::size_t>(b)]) /
             std::max(1, lengths[static_cast<std::size_t>(b)]) / batch;
    return sum;
  };
  for (const int devices : {1, 2, 3})
    for (int d = 0; d < 3; ++d) {
      const ts::Mesh mesh({{"x", devices}});
      const ts::PartitionSpec specs[] = {{"x"}, {ts::none, "x"}, {ts::none, ts::none, "x"}};
      const ts::PartitionSpec of_batch = d == 1 ? ts::PartitionSpec{"x"} : ts::PartitionSpec{};
      const auto p = ts::shard(x, {steps, batch, letters}, mesh, specs[d]);
      const auto t = ts::shard(targets, {batch, length}, mesh, d == 2 ? ts::PartitionSpec{ts::none, "x"} : of_batch);
      const auto n = ts::shard(inputs, {batch}, mesh, of_batch), m = ts::shard(lengths, {batch}, mesh, of_batch);
      const auto [y, g] = program(p, t, n, m);
      EXPECT_NEAR(ts::item(y), mean_of(x), 1e-12);
      const auto got = ts::to_host(g), own = ts::to_host(singly(p, t, n, m));
      for (std::size_t b = 0; b < batch; ++b) EXPECT_NEAR(own[b], each[b], 1e-12) << b;
      for (std::size_t i = 0; i < got.size(); ++i) {
        Host up = x, down = x;
        up[i] += 1e-5, down[i] -= 1e-5;
        EXPECT_NEAR(got[i], (mean_of(up) - mean_of(down)) / 2e-5, 1e-9) << i;
      }
      // No labels at all, and no steps at all.
      const auto none = ts::shard(std::vector<std::int32_t>{}, {batch, 0}, mesh, of_batch);
      const auto zero = ts::shard(std::vector<std::int32_t>(batch, 0), {batch}, mesh, of_batch);
      const auto blanks = ts::to_host(singly(p, none, n, zero));
      for (std::int64_t b = 0; b < batch; ++b)
        EXPECT_NEAR(blanks[static_cast<std::size_t>(b)], ctc(x, b, {}, inputs[static_cast<std::size_t>(b)]), 1e-12);
      const auto nothing = ts::shard(Host{}, {0, batch, letters}, mesh, specs[d]);
      const auto at_once = ts::to_host(singly(nothing, t, zero, m));
      for (std::size_t b = 0; b < batch; ++b)
        EXPECT_EQ(at_once[b], lengths[b] == 0 ? 0 : std::numeric_limits<double>::infinity()) << b;
    }
}

}  // namespace
