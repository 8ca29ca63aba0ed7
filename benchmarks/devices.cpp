// The cost of many virtual devices in one process: making tensors, planning, the first call (which plans and prepares),
// later calls, and a call with other tensors of the same shardings. Prints a table for docs/performance.md:
//
//     build/benchmarks/benchmark_devices                # 1 to 100,000 devices
//     build/benchmarks/benchmark_devices 1000           # one line
//
// The program is a training step of a two-layer perceptron: the axis "model" splits its weights, and the axis "data"
// its batch of two rows per index of that axis.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <tuple>
#include <utility>

#include <sys/resource.h>

#include <tessera/tessera.hpp>

namespace ts = tessera;

namespace {

struct Model {
  ts::ShardedTensor<float, 2> up, down;
  constexpr auto operator()(const auto& x) const { return ts::matmul(ts::relu(ts::matmul(x, up)), down); }
};
struct Step {
  constexpr auto operator()(auto model, auto x, auto target) const {
    const auto [loss, gradient] = ts::value_and_grad(
        [](const auto& m, const auto& in, const auto& out) { return ts::mse(m(in), out); })(model, x, target);
    return std::tuple(Model{model.up - gradient.up * 0.1, model.down - gradient.down * 0.1}, loss);
  }
};
constexpr auto step = ts::compile(Step{});

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
template <class F> double seconds(F&& f) {
  const double begin = now();
  f();
  return now() - begin;
}

void measure(int data, int model) {
  const ts::Mesh mesh({{"data", data}, {"model", model}});
  const std::int64_t rows = 2 * data, width = 16, hidden = 64;
  const ts::PartitionSpec batch{"data"}, columns{ts::none, "model"}, across{"model"};
  Model weights;
  ts::ShardedTensor<float, 2> x, target;
  const double make = seconds([&] {
    weights = {ts::normal<float>(ts::Key(1), {width, hidden}, mesh, columns),
               ts::normal<float>(ts::Key(2), {hidden, width}, mesh, across)};
    x = ts::normal<float>(ts::Key(3), {rows, width}, mesh, batch);
    target = ts::normal<float>(ts::Key(4), {rows, width}, mesh, batch);
  });
  const double plan = seconds([&] {
    ts::plan(Step{}, mesh, ts::abstract<Model>({{{width, hidden}, columns}, {{hidden, width}, across}}),
             ts::abstract<float>({rows, width}, batch), ts::abstract<float>({rows, width}, batch));
  });
  const double first = seconds([&] { step(weights, x, target); });
  constexpr int calls = 3;
  const double later = seconds([&] {
                         for (int i = 0; i < calls; ++i) step(weights, x, target);
                       }) /
                       calls;
  const ts::ShardedTensor<float, 2> other = ts::normal<float>(ts::Key(5), {rows, width}, mesh, batch);
  const double alike = seconds([&] {
    if (!ts::same_sharded_type(x, other) || ts::sharded_type_hash(x) != ts::sharded_type_hash(other)) std::abort();
  });
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("| %7d | %6.3f s | %8.4f s | %6.3f s | %8.4f s | %5.1f us | %5ld MB |\n", data * model, make, plan, first,
              later, 1e6 * alike, usage.ru_maxrss / 1024);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const long wanted = argc > 1 ? std::atol(argv[1]) : 0;
  std::printf(
      "| devices | tensors | plan | first call | later calls | equality | memory |\n|---|---|---|---|---|---|---|\n");
  for (const auto& [data, model] : {std::pair{1, 1}, {5, 2}, {25, 4}, {125, 8}, {1250, 8}, {12500, 8}})
    if (wanted == 0 || wanted == data * model) measure(data, model);
}
