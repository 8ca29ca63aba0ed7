// Causal attention whose time is split over virtual devices, forward and gradient, against one device. The devices
// share the threads, so that a ratio above 1 is what splitting costs:
//
//   benchmark_context_parallel --benchmark_enable_random_interleaving --benchmark_repetitions=9

#include <cstdint>
#include <tuple>

#include <benchmark/benchmark.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/attention/ring_attention.hpp>
#include <tessera/ops/attention/ulysses_attention.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/random.hpp>

namespace {

namespace ts = tessera;

struct Gathered {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const { return ts::causal_attention(q, k, v); }
};
struct Ulysses {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const {
    return ts::ulysses_attention<"context">(Gathered{}, q, k, v);
  }
};
struct Ring {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const {
    return ts::causal_ring_attention<"context">(q, k, v);
  }
};
template <class Attention> struct Step {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const {
    const auto loss = [](const auto& all) {
      const auto in_time = [](const auto& x) { return ts::with_sharding(x, {ts::none, "context"}); };
      const auto& [a, b, c] = all;
      const auto y = Attention{}(in_time(a), in_time(b), in_time(c));
      return ts::sum(y * y);
    };
    return ts::grad(loss)(std::tuple(q, k, v));
  }
};

/// Batch 2, 8 heads of 64.
template <class Attention> void attend(benchmark::State& state) {
  static constexpr auto step = ts::compile(Step<Attention>{});
  const ts::Mesh mesh({{"context", static_cast<int>(state.range(0))}});
  const auto drawn = [&](std::uint64_t seed) {
    return ts::normal<float>(ts::Key(seed), {2, state.range(1), 8, 64}, mesh, {ts::none, "context"});
  };
  const auto q = drawn(1), k = drawn(2), v = drawn(3);
  for (auto _ : state) benchmark::DoNotOptimize(step(q, k, v));
}
BENCHMARK(attend<Gathered>)->ArgsProduct({{1, 2, 4}, {1024, 4096}})->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(attend<Ulysses>)->ArgsProduct({{2, 4}, {1024, 4096}})->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(attend<Ring>)->ArgsProduct({{2, 4, 8}, {1024, 4096}})->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
