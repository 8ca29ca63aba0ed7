#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include <tessera/mesh/mesh.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>

// A step of the heat equation on an n x n grid of f32, on one device and on two or four, beside a pass that reads and
// writes as many bytes.
namespace {

namespace ts = tessera;

constexpr auto scale = ts::compile([](auto x) { return x * 1.5f; });
constexpr auto rolls = ts::compile([](auto x) {
  return x + (ts::roll<0>(x, 1) + ts::roll<0>(x, -1) + ts::roll<1>(x, 1) + ts::roll<1>(x, -1) - x * 4.f) * .1f;
});
constexpr auto pads = ts::compile([](auto x) {
  const auto n = ts::extent<0>(x), m = ts::extent<1>(x);
  const auto tall = ts::pad<0>(x, 1, 1), wide = ts::pad<1>(x, 1, 1);
  return x + (ts::slice<0>(tall, 0, n) + ts::slice<0>(tall, 2, n) + ts::slice<1>(wide, 0, m) +
              ts::slice<1>(wide, 2, m) - x * 4.f) *
                 .1f;
});

constexpr ts::Mesh one({{"x", 1}, {"y", 1}}), rows({{"x", 2}, {"y", 1}}), blocks({{"x", 2}, {"y", 2}});

template <const auto& Step, const ts::Mesh& Devices = one> void step_of(benchmark::State& state) {
  const auto n = state.range(0);
  std::vector<float> values(static_cast<std::size_t>(n * n));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 97);
  const auto x = ts::shard(values, {n, n}, Devices, {"x", "y"});
  for (auto _ : state) {
    const ts::ShardedTensor<float, 2> made = Step(x);
    benchmark::DoNotOptimize(made);
  }
  state.SetBytesProcessed(state.iterations() * n * n * 8);
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(256)->Arg(1024)->Arg(4096)->Arg(4099)->Unit(benchmark::kMillisecond)->UseRealTime();
}

BENCHMARK(step_of<scale>)->Name("scale")->Apply(sizes);
BENCHMARK(step_of<rolls>)->Name("rolls")->Apply(sizes);
BENCHMARK(step_of<pads>)->Name("pads")->Apply(sizes);
BENCHMARK(step_of<rolls, rows>)->Name("rolls of split rows")->Apply(sizes);
BENCHMARK(step_of<pads, rows>)->Name("pads of split rows")->Apply(sizes);
BENCHMARK(step_of<rolls, blocks>)->Name("rolls of blocks")->Apply(sizes);
BENCHMARK(step_of<pads, blocks>)->Name("pads of blocks")->Apply(sizes);

}  // namespace
