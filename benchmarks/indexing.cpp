// A million reads and additions at random indices. The floor of a read is a loop without checks, `floor`; its table is
// larger than the L2 cache. The time for one index is the time of a row divided by 2^20.
#include <cstdint>
#include <random>
#include <tuple>
#include <vector>

#include <benchmark/benchmark.h>

#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/random.hpp>

namespace {

namespace ts = tessera;

constexpr std::int64_t count = 1 << 20, rows = 1 << 20;

constexpr auto embedding = ts::compile([](const auto& table, const auto& i) { return ts::embedding(table, i); });
constexpr auto columns = ts::compile([](const auto& table, const auto& i) { return ts::index_select<1>(table, i); });
constexpr auto gather = ts::compile([](const auto& table, const auto& i) { return ts::gather<0>(table, i); });
constexpr auto index_add =
    ts::compile([](const auto& table, const auto& i, const auto& g) { return ts::index_add<0>(table, i, g); });
constexpr auto scatter_add =
    ts::compile([](const auto& table, const auto& i, const auto& g) { return ts::scatter_add<0>(table, i, g); });
constexpr auto index =
    ts::compile([](const auto& table, const auto& i, const auto& j) { return ts::index(table, std::tuple(i, j)); });

const ts::Mesh& mesh() {
  static const ts::Mesh one({{"data", 1}});
  return one;
}
std::vector<std::int32_t> random_indices(std::int64_t below) {
  std::vector<std::int32_t> at(count);
  std::mt19937 random(1);
  for (std::int32_t& i : at) i = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(below));
  return at;
}
auto indices(std::int64_t below) { return ts::shard(random_indices(below), mesh()); }

void floor(benchmark::State& state) {
  std::vector<float> table(rows, 1.0f), out(count);
  const std::vector<std::int32_t> at = random_indices(rows);
  for (auto _ : state) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = table[static_cast<std::size_t>(at[i])];
    benchmark::ClobberMemory();
  }
}

template <class F> void of_elements(benchmark::State& state, const F& f) {
  const auto table = ts::normal<float>(ts::Key{1}, {rows}, mesh());
  const auto at = indices(rows);
  for (auto _ : state) benchmark::DoNotOptimize(f(table, at));
}
void of_rows(benchmark::State& state) {
  const auto table = ts::normal<float>(ts::Key{1}, {rows / state.range(0), state.range(0)}, mesh());
  const auto at = indices(rows / state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(embedding(table, at));
}
void of_columns(benchmark::State& state) {
  const auto table = ts::normal<float>(ts::Key{1}, {4, rows}, mesh());
  const auto at = indices(rows);
  for (auto _ : state) benchmark::DoNotOptimize(columns(table, at));
}
void of_pairs(benchmark::State& state) {
  const auto table = ts::normal<float>(ts::Key{1}, {1024, 1024}, mesh());
  const auto at = indices(1024);
  for (auto _ : state) benchmark::DoNotOptimize(index(table, at, at));
}
template <class F> void additions(benchmark::State& state, const F& f) {
  const auto table = ts::normal<float>(ts::Key{1}, {rows}, mesh()), g = ts::normal<float>(ts::Key{2}, {count}, mesh());
  const auto at = indices(rows);
  for (auto _ : state) benchmark::DoNotOptimize(f(table, at, g));
}
void additions_of_rows(benchmark::State& state) {
  const std::int64_t row = state.range(0);
  const auto table = ts::normal<float>(ts::Key{1}, {rows / row, row}, mesh()),
             g = ts::normal<float>(ts::Key{2}, {count, row}, mesh());
  const auto at = indices(rows / row);
  for (auto _ : state) benchmark::DoNotOptimize(index_add(table, at, g));
}

BENCHMARK(floor)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(of_elements, embedding, embedding)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(of_elements, gather, gather)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(of_rows)->ArgName("row")->Arg(1)->Arg(2)->Arg(4)->Arg(16)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(of_columns)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(of_pairs)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(additions, index_add, index_add)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(additions, scatter_add, scatter_add)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(additions_of_rows)->ArgName("row")->Arg(1)->Arg(4)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
