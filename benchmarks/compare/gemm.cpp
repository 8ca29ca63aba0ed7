// Matrix products, of f32 and of bf16, alone and as a layer: gelu(x w + bias) + residual.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "harness.hpp"
#include "ours.hpp"

#include <tessera/tessera.hpp>

namespace ts = tessera;

namespace {

using compare::Array;
using compare::GemmShape;

constexpr GemmShape shapes[] = {
    {512, 512, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}, {2048, 3072, 768}, {2048, 768, 3072}};

constexpr auto product = ts::compile([](auto a, auto b) { return ts::matmul(a, b); });
constexpr auto bf16_product = ts::compile([](auto a, auto b) { return ts::matmul<float>(a, b); });
constexpr auto layer =
    ts::compile([](auto x, auto w, auto bias, auto residual) { return ts::gelu(ts::matmul(x, w) + bias) + residual; });

void rows(compare::Harness& harness) {
  const ts::Mesh mesh({{"data", 1}});
  for (const GemmShape& s : shapes) {
    const double elements = double(s.m) * s.k + double(s.k) * s.n + double(s.m) * s.n;
    const std::string gemm = harness.row("gemm/" + s.text()), linear = harness.row("linear/" + s.text()),
                      narrow = harness.row("gemm_bf16/" + s.text());
    if (gemm.empty() && linear.empty() && narrow.empty()) continue;
    const Array a(std::int64_t{s.m} * s.k, 1), b(std::int64_t{s.k} * s.n, 2);
    const auto x = ts::shard(a, {s.m, s.k}, mesh), w = ts::shard(b, {s.k, s.n}, mesh);
    if (!gemm.empty())
      harness.measure(gemm, {s.flops(), 4 * elements}, compare::tensor_task(product, x, w),
                      [&](compare::Peer& peer) { return peer.gemm(s, a.data(), b.data()); });
    if (!narrow.empty()) {
      // The floor counts only memory traffic, since the FMA probe doesn't use AMX.
      const auto rounded = [](const Array& from) {
        std::vector<ts::bf16> to(from.size());
        for (std::size_t i = 0; i < to.size(); ++i) to[i] = ts::bf16(from.data()[i]);
        return to;
      };
      const std::vector<ts::bf16> a16 = rounded(a), b16 = rounded(b);
      const auto bits = [](const std::vector<ts::bf16>& of) {
        return reinterpret_cast<const std::uint16_t*>(of.data());
      };
      harness.measure(
          narrow, {0, 2 * elements + 2 * double(s.m) * s.n},
          compare::tensor_task(bf16_product, ts::shard(a16, {s.m, s.k}, mesh), ts::shard(b16, {s.k, s.n}, mesh)),
          [&](compare::Peer& peer) { return peer.gemm_bf16(s, bits(a16), bits(b16)); });
    }
    if (!linear.empty()) {
      // As PyTorch initialises a layer: of larger weights, gelu has arguments that no layer gives it.
      const Array weight(std::int64_t{s.k} * s.n, 2, 1 / std::sqrt(static_cast<float>(s.k)));
      const Array bias(s.n, 3), residual(std::int64_t{s.m} * s.n, 4);
      harness.measure(
          linear, {s.flops(), 4 * (elements + double(s.m) * s.n)},
          compare::tensor_task(layer, x, ts::shard(weight, {s.k, s.n}, mesh), ts::shard(bias, {s.n}, mesh),
                               ts::shard(residual, {s.m, s.n}, mesh)),
          [&](compare::Peer& peer) { return peer.linear(s, a.data(), weight.data(), bias.data(), residual.data()); });
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return compare::run(argc, argv, {"onednn", "openblas", "blis", "eigen", "eigen_tensor"}, rows);
}
