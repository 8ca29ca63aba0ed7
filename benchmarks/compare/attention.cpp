// Causal attention and its gradients.

#include <memory>
#include <tuple>

#include "harness.hpp"

#include <tessera/tessera.hpp>

namespace ts = tessera;

namespace {

using compare::Array;
using compare::AttentionShape;
using compare::Task;

struct Heads {
  ts::ShardedTensor<float, 4> q, k, v;
};

constexpr auto attention = ts::compile([](auto heads, auto direction) {
  return ts::value_and_grad(
      [](const auto& h, const auto& g) { return ts::sum(ts::causal_attention(h.q, h.k, h.v) * g); })(heads, direction);
});

void rows(compare::Harness& harness) {
  const ts::Mesh mesh({{"data", 1}});
  for (const int time : {256, 1024, 4096}) {
    const AttentionShape s{2, 8, time, 64};
    const auto row = harness.row("attention/" + std::to_string(time));
    if (row.empty()) continue;
    const Array q(s.size(), 1), k(s.size(), 2), v(s.size(), 3), g(s.size(), 4);
    const auto tensor = [&](const Array& values) {
      return ts::shard(values, {s.batch, s.time, s.heads, s.width}, mesh);
    };
    const Heads heads{tensor(q), tensor(k), tensor(v)};
    const auto direction = tensor(g);
    const auto result = std::make_shared<decltype(attention(heads, direction))>();

    // Two products forward and four backward, over the half of the scores below the causal mask. At least seven arrays:
    // q, k, v and g are read, three gradients are written.
    const double flops = 6.0 * s.size() * s.time;
    harness.measure(
        row, {flops, 7 * 4.0 * static_cast<double>(s.size())},
        Task([=] { *result = attention(heads, direction); }, [=] { return ts::to_host(std::get<1>(*result).q); }),
        [&](compare::Peer& peer) { return peer.attention(s, q.data(), k.data(), v.data(), g.data()); });
  }
}

}  // namespace

int main(int argc, char** argv) { return compare::run(argc, argv, {"libtorch"}, rows); }
