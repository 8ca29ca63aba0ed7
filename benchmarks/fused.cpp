#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../tests/unit/kernels/fused_programs.hpp"
#include <benchmark/benchmark.h>

#include <tessera/kernels/fused/fused_kernel.hpp>

// Fused kernels on one thread, compared with a copy of as many bytes. Each operand's bytes count once.
namespace {

using namespace tessera;

constexpr std::array<Fused, 3> kernels_under_test{programs::chain(), programs::softmax(), programs::layer_norm()};
constexpr std::int64_t chain_size = 16 << 20;

std::vector<float> ramp(std::int64_t size) {
  std::vector<float> values(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i * 7919) % 1024) / 128 - 4;
  return values;
}

FusedView view(std::vector<float>& values, std::int64_t outer_stride) {
  FusedView result{};
  result.data = values.data();
  result.outer_stride[0] = outer_stride;
  result.row_stride = 1;
  return result;
}

void copy(benchmark::State& state) {
  const std::int64_t bytes = state.range(0);
  std::vector<float> from = ramp(bytes / 8), to = ramp(bytes / 8);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), static_cast<std::size_t>(bytes / 2));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * bytes);
}

void gelu_chain(benchmark::State& state) {
  const std::int64_t size = state.range(0);
  std::vector<float> x = ramp(size), mask = ramp(size), y = ramp(size);
  const FusedView inputs[] = {view(x, 0), view(mask, 0)}, outputs[] = {view(y, 0)};
  const double uniforms[] = {1.1, 0.3};
  FusedCall call;
  call.row_end = 1;
  call.inner_end = size;
  call.inputs = inputs;
  call.outputs = outputs;
  call.uniforms = uniforms;
  for (auto _ : state) {
    kernels::fused_kernel<kernels_under_test, 0>(call);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * size * 12);
}

FusedCall over_rows(std::int64_t row_count, std::int64_t columns) {
  FusedCall call;
  call.outer_rank = 1;
  call.outer_extent[0] = call.row_end = row_count;
  call.inner_end = columns;
  call.phase_end = 3;
  return call;
}

void softmax(benchmark::State& state) {
  const std::int64_t row_count = state.range(0), columns = state.range(1);
  std::vector<float> x = ramp(row_count * columns), y = ramp(row_count * columns);
  const FusedView inputs[] = {view(x, columns)}, outputs[] = {view(y, columns)};
  FusedCall call = over_rows(row_count, columns);
  call.inputs = inputs;
  call.outputs = outputs;
  for (auto _ : state) {
    kernels::fused_kernel<kernels_under_test, 1>(call);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * row_count * columns * 8);
}

void layer_norm(benchmark::State& state) {
  const std::int64_t row_count = state.range(0), columns = state.range(1);
  std::vector<float> x = ramp(row_count * columns), y = ramp(row_count * columns), gamma = ramp(columns),
                     beta = ramp(columns), mean = ramp(row_count), inverse = ramp(row_count);
  const FusedView inputs[] = {view(x, columns), view(gamma, 0), view(beta, 0)};
  const FusedView outputs[] = {view(y, columns), view(mean, 1), view(inverse, 1)};
  const double uniforms[] = {1.0 / static_cast<double>(columns), 1e-5};
  FusedCall call = over_rows(row_count, columns);
  call.inputs = inputs;
  call.outputs = outputs;
  call.uniforms = uniforms;
  for (auto _ : state) {
    kernels::fused_kernel<kernels_under_test, 2>(call);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * row_count * columns * 8);
}

/// Rows and columns: working sets larger than the caches, and small ones of rows of several lengths, whose time is that
/// of the arithmetic and of what each row costs.
void sizes_of_rows(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({4096, 1024});
  for (const std::int64_t columns : {64, 96, 128, 256, 512, 1024, 16384})
    benchmark->Args({(1 << 14) / columns, columns});
}

BENCHMARK(copy)->Arg(chain_size * 12)->Arg(32 << 20)->Arg(32 << 10);
BENCHMARK(gelu_chain)->Arg(chain_size)->Arg(4 << 10);
BENCHMARK(softmax)->Apply(sizes_of_rows);
BENCHMARK(layer_norm)->Apply(sizes_of_rows);

}  // namespace

BENCHMARK_MAIN();
