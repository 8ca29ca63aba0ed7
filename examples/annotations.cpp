// Shows how a program states the shardings of its values: constraints on values inside a traced function, annotations
// of stored tensors, explicit axes, over which the library guesses no sharding, and the shard that each device holds.

#include <cstdio>
#include <iostream>

#include <tessera/tessera.hpp>

namespace ts = tessera;

constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});

constexpr auto layer = ts::compile([](auto x, auto w) {
  const auto hidden = ts::with_sharding(ts::matmul(x, w), {"data", "model"});  // constrains the value and its gradient
  return ts::mark_sharding(ts::relu(hidden), {"data"});                        // constrains only the value
});

// Over an explicit axis a result has the sharding of its operands. If that is ambiguous, planning fails, and the
// message has the ts::with_sharding to write.
constexpr auto product = ts::compile([](auto a, auto b) { return ts::matmul(a, b); }, {.explicit_axes = {"model"}});

template <class F> void print_error(F f) {
  try {
    f();
  } catch (const ts::error& e) {
    std::printf("  %s\n", e.what());
  }
}

int main() {
  auto x = ts::ones<float>({6, 8}, mesh);
  ts::mark_sharding(x, {"data"});
  const auto w = ts::ones<float>({8, 4}, mesh);
  const ts::ShardedTensor<float, 2> y = layer(x, w);
  std::cout << layer.explain(x, w);
  std::cout << "The result is " << ts::sharded_type_text(y) << ". Rows of each device:" << std::endl;
  for (const auto& shard : ts::local_shards(y))
    std::printf("  device %d: rows %d to %d, replica %d\n", shard.device, static_cast<int>(shard.box.begin[0]),
                static_cast<int>(shard.box.end[0]), shard.replica_id);

  std::printf("A second annotation that differs from the first one is an error:\n");
  print_error([&] { ts::mark_sharding(x, {ts::none, "model"}); });

  std::printf("So is an ambiguous result sharding over an explicit axis:\n");
  print_error([&] {
    product(ts::ones<float>({6, 8}, mesh, {ts::none, "model"}), ts::ones<float>({8, 4}, mesh, {"model"}));
  });

  ts::clear_sharding(x);
  ts::mark_sharding(x, {ts::none, "model"});
  std::printf("After clear_sharding, x can be annotated again: %s\n", ts::sharded_type_text(x).c_str());
}
