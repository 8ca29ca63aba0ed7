// Second derivatives of attention with a bias, which kernels compute in double, against differences of the gradient;
// and under vmap against a call for each example.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/attention/attention.hpp>
#include <tessera/ops/attention/band_attention.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/ops/vmap/vmap.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;

namespace {

constexpr std::int64_t batch = 3, times = 5, keys = 5, heads = 2, width = 3;
using Host = std::vector<double>;
Host drawn(std::int64_t n, double seed) {
  Host x;
  for (std::int64_t i = 0; i < n; ++i) x.push_back(std::sin(seed + 1.3 * static_cast<double>(i)));
  return x;
}
struct Args {  // q, k, v, bias, and a weight of the result
  Host x[4]{drawn(batch * times * heads * width, 1), drawn(batch* keys* heads* width, 2),
            drawn(batch* keys* heads* width, 3), drawn(batch* heads* times* keys, 4)};
};
const Host weight = drawn(batch * times * heads * width, 7);

struct Full {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto& bias) const {
    return ts::attention(q, k, v, bias);
  }
};
struct Causal {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto& bias) const {
    return ts::causal_attention(q, k, v, bias, 0.7);
  }
};
struct Band {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto& bias) const {
    return ts::biased_attention(q, k, v, ts::sum<2>(bias), 2, 1);
  }
};
struct OfHeads {  // a bias that a batch shares
  constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto& bias) const {
    return ts::attention(q, k, v, ts::sum<0>(bias));
  }
};

/// The derivative of a loss of F along the directions, and its gradient.
template <class F> struct Second {
  constexpr auto operator()(const auto& x, const auto& along, const auto& c) const {
    const auto slope = [](const auto& own, const auto& direction, const auto& w) {
      const auto loss = [](const auto& in, const auto& by) {
        return ts::sum(ts::sin(F{}(std::get<0>(in), std::get<1>(in), std::get<2>(in), std::get<3>(in))) * by);
      };
      const auto g = ts::grad(loss)(own, w);
      return ts::sum(std::get<0>(g) * std::get<0>(direction)) + ts::sum(std::get<1>(g) * std::get<1>(direction)) +
             ts::sum(std::get<2>(g) * std::get<2>(direction)) + ts::sum(std::get<3>(g) * std::get<3>(direction));
    };
    return ts::value_and_grad(slope)(x, along, c);
  }
};

auto put(const Host (&x)[4], const ts::Mesh& mesh, const ts::SpecEntry& b, const ts::SpecEntry& h) {
  return std::tuple(ts::shard(x[0], {batch, times, heads, width}, mesh, {b, ts::none, h}),
                    ts::shard(x[1], {batch, keys, heads, width}, mesh, {b, ts::none, h}),
                    ts::shard(x[2], {batch, keys, heads, width}, mesh, {b, "x"}),
                    ts::shard(x[3], {batch, heads, times, keys}, mesh, {ts::none, h, "x"}));
}
template <class F> void check(const char* name) {
  constexpr auto program = ts::compile(Second<F>{});
  Args at, along;
  for (int n = 0; n < 4; ++n) along.x[n] = drawn(static_cast<std::int64_t>(at.x[n].size()), 11 + n);
  for (const ts::Mesh& mesh : {ts::Mesh({{"x", 1}, {"y", 1}}), ts::Mesh({{"x", 2}, {"y", 1}}),
                               ts::Mesh({{"x", 3}, {"y", 1}}), ts::Mesh({{"x", 2}, {"y", 2}})}) {
    const std::string on = std::string(name) + " on " + mesh.text();
    const ts::SpecEntry h = mesh.axis_size(1) > 1 ? ts::SpecEntry("y") : ts::SpecEntry(ts::none);
    const auto c = ts::shard(weight, {batch, times, heads, width}, mesh);
    const auto directions = put(along.x, mesh, ts::none, h);
    const auto slope_at = [&](int n, double step) {
      Args moved = at;
      for (std::size_t i = 0; i < moved.x[n].size(); ++i) moved.x[n][i] += step * along.x[n][i];
      return ts::to_host(std::get<0>(program(put(moved.x, mesh, ts::none, h), directions, c)))[0];
    };
    const auto gradient = std::get<1>(program(put(at.x, mesh, ts::none, h), directions, c));
    const Host of[] = {ts::to_host(std::get<0>(gradient)), ts::to_host(std::get<1>(gradient)),
                       ts::to_host(std::get<2>(gradient)), ts::to_host(std::get<3>(gradient))};
    for (int n = 0; n < 4; ++n) {
      double got = 0;
      for (std::size_t i = 0; i < of[n].size(); ++i) got += of[n][i] * along.x[n][i];
      const double want = (slope_at(n, 1e-5) - slope_at(n, -1e-5)) / 2e-5;
      EXPECT_NEAR(got, want, 1e-7 * (1 + std::abs(want))) << on << ", argument " << n;
    }
  }
}
TEST(AttentionSecondDerivatives, WithABias) {
  check<Full>("attention");
  check<Causal>("causal attention");
  check<Band>("attention in a band");
  check<OfHeads>("attention with a bias of heads");
}

// vmap over examples of [1, time, heads, width], with a bias of each example.
struct SecondMapped {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto& bias, const auto& c) const {
    const auto one = [](const auto& a, const auto& b, const auto& d, const auto& own, const auto& w) {
      const auto example = [](const auto& x) { return ts::unsqueeze<0>(x); };
      const auto x = std::tuple(example(a), example(b), example(d), example(own));
      const auto made = Second<Causal>{}(x, x, example(w));
      const auto& slopes = std::get<1>(made);
      return std::tuple(std::get<0>(made), ts::squeeze<0>(std::get<0>(slopes)), ts::squeeze<0>(std::get<1>(slopes)),
                        ts::squeeze<0>(std::get<2>(slopes)), ts::squeeze<0>(std::get<3>(slopes)));
    };
    return ts::vmap(one)(q, k, v, bias, c);
  }
};
TEST(AttentionSecondDerivatives, UnderVmap) {
  constexpr auto mapped = ts::compile(SecondMapped{});
  constexpr auto single = ts::compile(Second<Causal>{});
  const Args at;
  const ts::Mesh one({{"one", 1}});
  Host want[5];
  for (std::int64_t b = 0; b < batch; ++b) {
    const auto part = [&](const Host& x) {
      const auto n = static_cast<std::ptrdiff_t>(x.size()) / batch;
      return Host(x.begin() + b * n, x.begin() + (b + 1) * n);
    };
    const auto x = std::tuple(
        ts::shard(part(at.x[0]), {1, times, heads, width}, one), ts::shard(part(at.x[1]), {1, keys, heads, width}, one),
        ts::shard(part(at.x[2]), {1, keys, heads, width}, one), ts::shard(part(at.x[3]), {1, heads, times, keys}, one));
    const auto made = single(x, x, ts::shard(part(weight), {1, times, heads, width}, one));
    const auto append = [](Host& to, const Host& from) { to.insert(to.end(), from.begin(), from.end()); };
    append(want[0], ts::to_host(std::get<0>(made)));
    append(want[1], ts::to_host(std::get<0>(std::get<1>(made))));
    append(want[2], ts::to_host(std::get<1>(std::get<1>(made))));
    append(want[3], ts::to_host(std::get<2>(std::get<1>(made))));
    append(want[4], ts::to_host(std::get<3>(std::get<1>(made))));
  }
  for (const int devices : {1, 2, 3, 4}) {
    const ts::Mesh mesh({{"x", devices}});
    const auto made = mapped(ts::shard(at.x[0], {batch, times, heads, width}, mesh, {"x"}),
                             ts::shard(at.x[1], {batch, keys, heads, width}, mesh, {"x"}),
                             ts::shard(at.x[2], {batch, keys, heads, width}, mesh),
                             ts::shard(at.x[3], {batch, heads, times, keys}, mesh, {ts::none, ts::none, "x"}),
                             ts::shard(weight, {batch, times, heads, width}, mesh, {"x"}));
    const Host got[] = {ts::to_host(std::get<0>(made)), ts::to_host(std::get<1>(made)), ts::to_host(std::get<2>(made)),
                        ts::to_host(std::get<3>(made)), ts::to_host(std::get<4>(made))};
    for (int n = 0; n < 5; ++n) {
      ASSERT_EQ(got[n].size(), want[n].size());
      for (std::size_t i = 0; i < got[n].size(); ++i)
        ASSERT_NEAR(got[n][i], want[n][i], 1e-11 * (1 + std::abs(want[n][i]))) << devices << ", result " << n;
    }
  }
}

}  // namespace
