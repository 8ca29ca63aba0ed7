// Passes over memory: a chain of elementwise operations, softmax, layer norm.

#include <cstdint>

#include "harness.hpp"
#include "ours.hpp"

#include <tessera/tessera.hpp>

namespace ts = tessera;

namespace {

using compare::Array;

constexpr auto chain =
    ts::compile([](auto x, auto mask, auto scale, auto shift) { return ts::gelu(scale * x + shift) * mask + x; });
constexpr auto softmax = ts::compile([](auto x) { return ts::softmax(x); });
constexpr auto layer_norm = ts::compile([](auto x, auto gain, auto bias) { return ts::layer_norm(x, gain, bias); });

void rows(compare::Harness& harness) {
  const ts::Mesh mesh({{"data", 1}});
  if (const auto row = harness.row("chain/16M"); !row.empty()) {
    constexpr std::int64_t size = 16 << 20;
    const Array x(size, 1), mask(size, 2);
    const float scale = 1.5f, shift = 0.25f;
    harness.measure(
        row, {.bytes = 12.0 * size},
        compare::tensor_task(chain, ts::shard(x, mesh), ts::shard(mask, mesh), ts::Scalar(scale), ts::Scalar(shift)),
        [&](compare::Peer& peer) {
          return peer.chain({size, x.data(), mask.data(), scale, shift});
        });
  }

  constexpr int row_count = 4096, columns = 1024;
  constexpr std::int64_t size = std::int64_t{row_count} * columns;
  if (const auto row = harness.row("softmax/4096x1024"); !row.empty()) {
    const Array x(size, 1);
    harness.measure(row, {.bytes = 8.0 * size}, compare::tensor_task(softmax, ts::shard(x, {row_count, columns}, mesh)),
                    [&](compare::Peer& peer) { return peer.softmax(row_count, columns, x.data()); });
  }
  if (const auto row = harness.row("layer_norm/4096x1024"); !row.empty()) {
    const Array x(size, 1), gain(columns, 2), bias(columns, 3);
    harness.measure(
        row, {.bytes = 8.0 * size},
        compare::tensor_task(layer_norm, ts::shard(x, {row_count, columns}, mesh), ts::shard(gain, mesh),
                             ts::shard(bias, mesh)),
        [&](compare::Peer& peer) { return peer.layer_norm(row_count, columns, x.data(), gain.data(), bias.data()); });
  }
}

}  // namespace

int main(int argc, char** argv) { return compare::run(argc, argv, {"libtorch", "eigen", "xtensor"}, rows); }
