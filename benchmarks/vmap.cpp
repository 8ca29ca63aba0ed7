// Gradients of each of 1,024 examples of a perceptron 64 -> 128 -> 16, split over one or two devices: by ts::vmap,
// written for the batch by hand, and by ts::map, one after the other. Rows that are compared are run interleaved:
// --benchmark_enable_random_interleaving=true.
#include <cstdint>
#include <tuple>
#include <utility>

#include <benchmark/benchmark.h>

#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/random.hpp>

namespace {

namespace ts = tessera;

constexpr auto loss = [](const auto& weights, const auto& x, const auto& y) {
  const auto& [in, out] = weights;
  const auto difference = ts::matmul(ts::tanh(ts::matmul(x, in)), out) - y;
  return ts::mean(difference * difference);
};
constexpr auto by_vmap = ts::compile([](const auto& in, const auto& out, const auto& xs, const auto& ys) {
  return ts::vmap([&](const auto& x, const auto& y) { return ts::grad(loss)(std::tuple(in, out), x, y); })(xs, ys);
});
constexpr auto by_map = ts::compile([](const auto& in, const auto& out, const auto& xs, const auto& ys) {
  return ts::map([&](const auto& pair) { return ts::grad(loss)(std::tuple(in, out), pair.first, pair.second); },
                 std::pair(xs, ys));
});
constexpr auto by_hand = ts::compile([](const auto& in, const auto& out, const auto& xs, const auto& ys) {
  const auto hidden = ts::tanh(ts::matmul(xs, in));
  const auto of_result = (ts::matmul(hidden, out) - ys) * (2.0 / 16.0);
  const auto of_hidden = ts::einsum<"nk,hk->nh">(of_result, out) * (1.0 - hidden * hidden);
  return std::tuple(ts::einsum<"ni,nh->nih">(xs, of_hidden), ts::einsum<"nh,nk->nhk">(hidden, of_result));
});

template <class F> void gradients(benchmark::State& state, const F& f) {
  const ts::Mesh mesh({{"data", static_cast<std::int32_t>(state.range(0))}});
  const auto in = ts::normal<float>(ts::Key{1}, {64, 128}, mesh), out = ts::normal<float>(ts::Key{2}, {128, 16}, mesh);
  const auto xs = ts::normal<float>(ts::Key{3}, {1024, 64}, mesh, {"data"}),
             ys = ts::normal<float>(ts::Key{4}, {1024, 16}, mesh, {"data"});
  for (auto _ : state) benchmark::DoNotOptimize(f(in, out, xs, ys));
}

BENCHMARK_CAPTURE(gradients, vmap, by_vmap)->ArgName("devices")->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(gradients, by_hand, by_hand)->ArgName("devices")->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(gradients, map, by_map)->ArgName("devices")->Arg(1)->Arg(2)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
