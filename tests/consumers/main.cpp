// What every consumer in this folder but the static one builds and runs.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <vector>

#include <tessera/tessera.hpp>

namespace ts = tessera;

int main() {
  constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});
  constexpr std::size_t rows = 6, inner = 4, columns = 5;
  std::vector<float> x(rows * inner), w(inner * columns), b(columns);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.25f * static_cast<float>(i % 7) - 0.5f;
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = 0.5f * static_cast<float>(i % 5) - 1.0f;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i) - 2.0f;

  // The dim that the product sums over is split: every device has a part of each sum.
  const auto sharded_x = ts::shard(x, {rows, inner}, mesh, {"data", "model"});
  const auto sharded_w = ts::shard(w, {inner, columns}, mesh, {"model"});
  const auto sharded_b = ts::shard(b, mesh);
  const ts::ShardedTensor<float, 2> y = ts::relu(ts::matmul(sharded_x, sharded_w) + sharded_b);
  const std::vector<float> values = ts::to_host(y);

  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) {
      float sum = b[j];
      for (std::size_t k = 0; k < inner; ++k) sum += x[i * inner + k] * w[k * columns + j];
      const float expected = std::max(sum, 0.0f), got = values.at(i * columns + j);
      if (!(std::abs(got - expected) <= 1e-5f)) {
        std::printf("tessera consumer: y[%zu, %zu] is %g instead of %g\n", i, j, static_cast<double>(got),
                    static_cast<double>(expected));
        return 1;
      }
    }
  std::puts("tessera consumer: ok");
}
