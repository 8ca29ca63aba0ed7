// Planning alone: one include path, no dependency, nothing to link.
#include <cstdint>
#include <cstdio>

#include <tessera/static.hpp>

namespace ts = tessera;

struct Layer {
  constexpr auto operator()(auto x, auto w, auto b) const { return ts::relu(ts::matmul(x, w) + b); }
};

int main() {
  constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});
  // The dim that the product sums over is split along "model", which costs one all-reduce of each half of the rows.
  constexpr std::int64_t reduced = ts::plan(Layer{}, mesh, ts::abstract<float>({6, 4}, {"data", "model"}),
                                            ts::abstract<float>({4, 5}, {"model"}), ts::abstract<float>({5}))
                                       .payload_bytes(ts::all_reduce, "model");
  static_assert(reduced == 3 * 5 * 4);
  std::puts("tessera consumer: ok");
}
