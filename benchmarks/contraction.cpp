// Matrix products on one thread, by a contraction plan and by Eigen's operator. The clock frequency drifts, so compare
// only rows of one run, with --benchmark_enable_random_interleaving=true.
#include <cstdint>
#include <vector>

#include <Eigen/Core>
#include <benchmark/benchmark.h>

#include <tessera/kernels/gemm/contraction.hpp>

namespace {

using namespace tessera;
using namespace tessera::kernels;

std::vector<float> numbers(std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7 % 11) - 5.0f;
  return values;
}

void report(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

void run_plan(benchmark::State& state, const ContractionShape& shape, std::int64_t a_size, std::int64_t b_size,
              std::int64_t out_size) {
  const ContractionPlan plan(shape, {2, false});
  const std::vector<float> a = numbers(a_size), b = numbers(b_size);
  std::vector<float> out(static_cast<std::size_t>(out_size));
  for (auto _ : state) {
    for (std::int64_t item = 0; item < plan.item_count(); ++item) plan.run(item, a.data(), b.data(), out.data());
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  report(state, plan.flops());
}

/// C[m, n] = A[m, k] B[k, n], row-major.
void plan_square(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  run_plan(state, {{0, 1}, {1, 2}, {0, 2}, {n, n, n}, {n, 1}, {n, 1}, {n, 1}}, n * n, n * n, n * n);
}

/// C[m, n] = A[k, m] B[k, n]: the gradient of a weight.
void plan_transposed(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  run_plan(state, {{1, 0}, {1, 2}, {0, 2}, {n, n, n}, {n, 1}, {n, 1}, {n, 1}}, n * n, n * n, n * n);
}

void eigen_square(benchmark::State& state) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const std::int64_t n = state.range(0);
  const std::vector<float> a = numbers(n * n), b = numbers(n * n);
  std::vector<float> out(static_cast<std::size_t>(n * n));
  const Eigen::Map<const Matrix> left(a.data(), n, n), right(b.data(), n, n);
  Eigen::Map<Matrix> product(out.data(), n, n);
  for (auto _ : state) {
    product.noalias() = left * right;
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  report(state, 2.0 * static_cast<double>(n * n * n));
}

/// Scores of attention, "bthd,bshd->bhts": [8, 256, 4, 64] twice gives [8, 4, 256, 256].
void plan_attention_scores(benchmark::State& state) {
  const std::int64_t b = 8, h = 4, t = 256, d = 64;
  run_plan(state,
           {{0, 1, 2, 3},
            {0, 4, 2, 3},
            {0, 2, 1, 4},
            {b, t, h, d, t},
            {t * h * d, h * d, d, 1},
            {t * h * d, h * d, d, 1},
            {h * t * t, t * t, t, 1}},
           b * t * h * d, b * t * h * d, b * h * t * t);
}

/// A linear layer on a batch, "bte,ef->btf": [8, 256, 1024] and [1024, 4096].
void plan_linear(benchmark::State& state) {
  const std::int64_t b = 8, t = 256, e = 1024, f = 4096;
  run_plan(state, {{0, 1, 2}, {2, 3}, {0, 1, 3}, {b, t, e, f}, {t * e, e, 1}, {f, 1}, {t * f, f, 1}}, b * t * e, e * f,
           b * t * f);
}

BENCHMARK(plan_square)->Arg(512)->Arg(1024)->Arg(1536)->Arg(2048)->Unit(benchmark::kMillisecond);
BENCHMARK(eigen_square)->Arg(512)->Arg(1024)->Arg(1536)->Arg(2048)->Unit(benchmark::kMillisecond);
BENCHMARK(plan_transposed)->Arg(512)->Arg(1024)->Arg(2048)->Unit(benchmark::kMillisecond);
BENCHMARK(plan_square)->Arg(8)->Arg(32)->Arg(128)->Unit(benchmark::kMicrosecond);
BENCHMARK(eigen_square)->Arg(8)->Arg(32)->Arg(128)->Unit(benchmark::kMicrosecond);
BENCHMARK(plan_attention_scores)->Unit(benchmark::kMillisecond);
BENCHMARK(plan_linear)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
