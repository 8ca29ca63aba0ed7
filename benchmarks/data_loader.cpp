// How long a program waits for its next batch, when each of its steps takes 1 ms: the time of an iteration is the wait.
// The program's step keeps one processor busy; batches are loaded ahead on the threads of the library.
//
//   benchmark_data_loader --benchmark_min_time=0.2 --benchmark_repetitions=9

#include <chrono>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include <tessera/data/data.hpp>

namespace {

namespace ts = tessera;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

template <class Loader> void feed(benchmark::State& state, Loader loader) {
  constexpr double step = 1e-3;
  loader.next();  // the first batch has to be waited for
  double waited = 0;
  for (auto _ : state) {
    for (const auto start = Clock::now(); seconds_since(start) < step;) continue;
    const auto start = Clock::now();
    auto batch = loader.next();
    if (!batch) batch = loader.next();  // the first of the next epoch
    const double wait = seconds_since(start);
    benchmark::DoNotOptimize(batch);
    state.SetIterationTime(wait);
    waited += wait;
  }
  state.counters["wait/step"] = waited / static_cast<double>(state.iterations()) / step;
}

const ts::Mesh& mesh() {
  static const ts::Mesh mesh({{"data", 2}});
  return mesh;
}
ts::data::DataLoaderOptions options(std::int64_t rows, int prefetch) {
  return {
      .batch_size = rows, .shuffle = ts::Key(1), .ragged = ts::Ragged::drop, .spec = {"data"}, .prefetch = prefetch};
}

/// 8 MB of tokens, in windows of 1,024: 32 windows and the tokens that follow, 256 KB.
void tokens(benchmark::State& state) {
  constexpr std::int64_t count = 1 << 22, length = 1024;
  std::vector<std::uint16_t> text(count);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::uint16_t>(i * 7 % 50'000);
  const auto [inputs, targets] = ts::data::next_token(ts::data::tokens(text), length);
  feed(state, ts::data::data_loader(mesh(), options(32, static_cast<int>(state.range(0))), inputs, targets));
}
BENCHMARK(tokens)->Arg(0)->Arg(2)->UseManualTime()->Unit(benchmark::kMicrosecond);

/// 64 images of 28 x 28 bytes with their labels, as floats from 0 to 1: 200 KB.
void images(benchmark::State& state) {
  constexpr std::int64_t count = 20'000;
  std::vector<std::uint8_t> pixels(count * 28 * 28);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 31);
  const std::vector<std::int32_t> labels(count, 3);
  const auto scaled = ts::data::map<float>(ts::data::array(pixels, {count, 28, 28}),
                                           [](std::uint8_t pixel) { return static_cast<float>(pixel) / 255.0f; });
  feed(state, ts::data::data_loader(mesh(), options(64, static_cast<int>(state.range(0))), scaled,
                                    ts::data::array(labels, {count})));
}
BENCHMARK(images)->Arg(0)->Arg(2)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
