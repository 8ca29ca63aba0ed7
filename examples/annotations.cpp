// Where a program says how its values are sharded: constraints on values and their gradients, annotations of tensors in
// hand, axes that have to be spoken for, and the shards that come of it.

#include <cstdio>
#include <iostream>

#include <tessera/tessera.hpp>

namespace ts = tessera;

constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});

constexpr auto layer = ts::compile([](auto x, auto w) {
  const auto hidden = ts::with_sharding(ts::matmul(x, w), {"data", "model"});
  return ts::mark_sharding(ts::relu(hidden), {"data"});
});

// Over an explicit axis a result has the sharding of its operands, and what they leave open has to be said.
constexpr auto product = ts::compile([](auto a, auto b) { return ts::matmul(a, b); }, {.explicit_axes = {"model"}});

template <class F> void say_mistake(F f) {
  try {
    f();
  } catch (const ts::error& e) {
    std::printf("%s\n", e.what());
  }
}

int main() {
  auto x = ts::ones<float>({6, 8}, mesh);
  ts::mark_sharding(x, {"data"});
  const auto w = ts::ones<float>({8, 4}, mesh);
  const ts::ShardedTensor<float, 2> y = layer(x, w);
  std::cout << layer.explain(x, w);
  for (const auto& shard : ts::local_shards(y))
    std::printf("device %d: rows %d to %d, replica %d\n", shard.device, static_cast<int>(shard.box.begin[0]),
                static_cast<int>(shard.box.end[0]), shard.replica_id);

  say_mistake([&] { ts::mark_sharding(x, {ts::none, "model"}); });  // it is annotated already
  say_mistake([&] {
    product(ts::ones<float>({6, 8}, mesh, {ts::none, "model"}), ts::ones<float>({8, 4}, mesh, {"model"}));
  });

  ts::clear_sharding(x);
  ts::mark_sharding(x, {ts::none, "model"});
  std::printf("%s\n", ts::sharded_type_text(x).c_str());
}
