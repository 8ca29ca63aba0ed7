// Normalization, pools and losses: passes over memory as well.

#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "harness.hpp"
#include "ours.hpp"

#include <tessera/tessera.hpp>

namespace ts = tessera;

namespace {

using compare::Array;
using compare::ImageShape;

constexpr auto batch_norm = ts::compile([](auto x, auto gain, auto bias) { return ts::batch_norm(x, gain, bias); });
constexpr auto max_pool = ts::compile([](auto x) { return ts::max_pool2d(x, {.window = {2, 2}, .strides = {2, 2}}); });
constexpr auto avg_pool = ts::compile([](auto x) { return ts::avg_pool2d(x, {.window = {2, 2}, .strides = {2, 2}}); });
// The gradients of losses with respect to what a model predicted.
constexpr auto cross_entropy = ts::compile([](auto logits, auto targets) {
  return ts::grad([](auto l, auto t) { return ts::cross_entropy(l, t); })(logits, targets);
});
constexpr auto mse =
    ts::compile([](auto x, auto y) { return ts::grad([](auto a, auto b) { return ts::mse(a, b); })(x, y); });
constexpr auto bce = ts::compile(
    [](auto x, auto y) { return ts::grad([](auto a, auto b) { return ts::bce_with_logits(a, b); })(x, y); });

void images(compare::Harness& harness, const ts::Mesh& mesh) {
  constexpr ImageShape norm{64, 56, 56, 64}, pool{16, 112, 112, 64};
  const auto tensor = [&](const ImageShape& s, const Array& x) {
    return ts::shard(x, {s.batch, s.height, s.width, s.features}, mesh);
  };
  if (const auto row = harness.row("batch_norm/" + norm.text()); !row.empty()) {
    const Array x(norm.size(), 1), gain(norm.features, 2), bias(norm.features, 3);
    // x is read for its statistics, and again when it is normalized.
    harness.measure(row, {.bytes = 12.0 * norm.size()},
                    compare::tensor_task(batch_norm, tensor(norm, x), ts::shard(gain, mesh), ts::shard(bias, mesh)),
                    [&](compare::Peer& peer) { return peer.batch_norm(norm, x.data(), gain.data(), bias.data()); });
  }
  const double pool_bytes = 4.0 * 1.25 * pool.size();  // a window of four elements has one result
  if (const auto row = harness.row("max_pool/" + pool.text()); !row.empty()) {
    const Array x(pool.size(), 1);
    harness.measure(row, {.bytes = pool_bytes}, compare::tensor_task(max_pool, tensor(pool, x)),
                    [&](compare::Peer& peer) { return peer.max_pool(pool, x.data()); });
  }
  if (const auto row = harness.row("avg_pool/" + pool.text()); !row.empty()) {
    const Array x(pool.size(), 1);
    harness.measure(row, {.bytes = pool_bytes}, compare::tensor_task(avg_pool, tensor(pool, x)),
                    [&](compare::Peer& peer) { return peer.avg_pool(pool, x.data()); });
  }
}

void losses(compare::Harness& harness, const ts::Mesh& mesh) {
  constexpr int rows = 4096, classes = 4096;
  constexpr std::int64_t size = std::int64_t{rows} * classes;
  if (const auto row = harness.row("cross_entropy/4096x4096"); !row.empty()) {
    const Array logits(size, 1);
    std::vector<std::int32_t> targets(rows);
    for (int i = 0; i < rows; ++i) targets[static_cast<std::size_t>(i)] = i * 37 % classes;
    harness.measure(
        row, {.bytes = 8.0 * size},
        compare::tensor_task(cross_entropy, ts::shard(logits, {rows, classes}, mesh), ts::shard(targets, mesh)),
        [&](compare::Peer& peer) { return peer.cross_entropy(rows, classes, logits.data(), targets.data()); });
  }
  if (const auto row = harness.row("mse/16M"); !row.empty()) {
    const Array x(size, 1), y(size, 2);
    harness.measure(row, {.bytes = 12.0 * size}, compare::tensor_task(mse, ts::shard(x, mesh), ts::shard(y, mesh)),
                    [&](compare::Peer& peer) { return peer.mse(size, x.data(), y.data()); });
  }
  if (const auto row = harness.row("bce_with_logits/16M"); !row.empty()) {
    const Array x(size, 1), y(size, 2);
    harness.measure(row, {.bytes = 12.0 * size}, compare::tensor_task(bce, ts::shard(x, mesh), ts::shard(y, mesh)),
                    [&](compare::Peer& peer) { return peer.bce_with_logits(size, x.data(), y.data()); });
  }
}

void rows(compare::Harness& harness) {
  const ts::Mesh mesh({{"data", 1}});
  images(harness, mesh);
  losses(harness, mesh);
}

}  // namespace

int main(int argc, char** argv) { return compare::run(argc, argv, {"libtorch"}, rows); }
