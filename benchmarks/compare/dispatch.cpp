// The overhead of a call: operations on matrices so small that computing takes almost no time.

#include "harness.hpp"
#include "ours.hpp"

#include <tessera/tessera.hpp>

namespace ts = tessera;

namespace {

constexpr auto add = ts::compile([](auto a, auto b) { return a + b; });
constexpr auto multiply = ts::compile([](auto a, auto b) { return ts::matmul(a, b); });

void rows(compare::Harness& harness) {
  constexpr int n = 8;
  const ts::Mesh mesh({{"data", 1}});
  const compare::Array a(n * n, 1), b(n * n, 2);
  const auto x = ts::shard(a, {n, n}, mesh), y = ts::shard(b, {n, n}, mesh);
  using Tensor = ts::ShardedTensor<float, 2>;

  const auto add_by = [&](compare::Peer& peer) { return peer.small_add(n, a.data(), b.data()); };
  const auto multiply_by = [&](compare::Peer& peer) { return peer.small_matmul(n, a.data(), b.data()); };
  const auto measure = [&](const char* name, const compare::Task& ours, const auto& theirs) {
    if (const auto row = harness.row(name); !row.empty()) harness.measure(row, {}, ours, theirs);
  };
  measure("dispatch/add/compiled", compare::tensor_task(add, x, y), add_by);
  measure("dispatch/add/expression",
          compare::tensor_task([](const Tensor& p, const Tensor& q) -> Tensor { return p + q; }, x, y), add_by);
  measure("dispatch/matmul/compiled", compare::tensor_task(multiply, x, y), multiply_by);
  measure("dispatch/matmul/expression",
          compare::tensor_task([](const Tensor& p, const Tensor& q) -> Tensor { return ts::matmul(p, q); }, x, y),
          multiply_by);
}

}  // namespace

int main(int argc, char** argv) { return compare::run(argc, argv, {"libtorch", "eigen"}, rows); }
