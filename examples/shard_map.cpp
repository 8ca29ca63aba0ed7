// Shows ts::shard_map: functions that are written for the shards of one device, the collectives that they call along a
// named mesh axis, and the gradients and plans of such functions. docs/shard_map.md explains this file block by block.

#include <cstdio>
#include <numeric>
#include <tuple>
#include <vector>

#include <tessera/tessera.hpp>

namespace ts = tessera;
namespace tc = ts::collective;

constexpr ts::Mesh mesh({{"data", 2}, {"model", 4}});

void print(const ts::Plan& plan) {
  plan.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t) {
    for (int axis = 0; axis < mesh.rank(); ++axis)
      if (c.axes == 1u << axis)
        std::printf("%-14s over %-5s %5lld bytes at line %u\n", std::string(name_of(c.kind)).c_str(),
                    std::string(mesh.axis_name(axis).view()).c_str(), static_cast<long long>(c.payload_bytes),
                    c.source.line);
  });
}

constexpr auto product = [](auto x, auto w) {
  return ts::shard_map<"{-,model}, {model} -> {}">([](auto a, auto b) {  // [8, 16/4] and [16/4, 4]
    return ts::psum<"model">(ts::matmul(a, b));
  })(x, w);
};

constexpr auto layer = [](auto x, auto up, auto down) {
  return ts::shard_map<"{}, {-,model}, {model} -> {}">([](auto in, auto u, auto d) {
    return ts::psum<"model">(ts::matmul(ts::gelu(ts::matmul(in, u)), d));
  })(x, up, down);
};
constexpr auto step = ts::compile([](auto weights, auto x) {
  return ts::value_and_grad([](const auto& w, const auto& in) {
    const auto y = layer(in, std::get<0>(w), std::get<1>(w));
    return ts::mean(y * y);
  })(weights, x);
});

constexpr auto ring = [](auto x) {
  return ts::shard_map<"{model} -> {model}">([](auto own) {
    auto sum = ts::matmul(own, ts::transpose<1, 0>(own)), other = own;
    for (int hop = 1; hop < mesh.axis_size(1); ++hop) {
      other = ts::ppermute<"model">(other, ts::Shift(1));  // to the next device
      sum = sum + ts::matmul(own, ts::transpose<1, 0>(other));
    }
    return sum;
  })(x);
};

struct Mlp {
  ts::ShardedTensor<float, 2> up, down;
  constexpr auto operator()(const auto& x) const { return ts::matmul(ts::gelu(ts::matmul(x, up)), down); }
};
constexpr auto tensor_parallel = [](auto mlp, auto x) {
  return ts::shard_map<"[{-,model}, {model}], {} -> {}">([](auto own, auto in) {
    return ts::psum<"model">(own(in));  // on the device's shard of each weight
  })(mlp, x);
};

int main() {
  std::vector<float> values(8 * 16);
  std::iota(values.begin(), values.end(), 0.f);
  const auto x = ts::shard(values, {8, 16}, mesh, {"data", "model"});
  const auto w = ts::ones<float>({16, 4}, mesh, {"model"});
  const ts::ShardedTensor<float, 2> y = product(x, w);
  std::printf("%s, element 0,0 is %g\n", ts::sharded_type_text(y).c_str(), static_cast<double>(ts::to_host(y)[0]));

  const auto batch = ts::abstract<float>({8, 16}, {"data"});
  const auto mlp = ts::abstract<Mlp>({{{16, 64}, {ts::none, "model"}}, {{64, 16}, {"model"}}});
  print(ts::plan(tensor_parallel, mesh, mlp, batch));

  using Weights = std::tuple<ts::ShardedTensor<float, 2>, ts::ShardedTensor<float, 2>>;
  const auto weights = ts::abstract<Weights>({{{16, 64}, {ts::none, "model"}}, {{64, 16}, {"model"}}});
  print(ts::plan(step, mesh, weights, batch));

  print(ts::plan(ring, mesh, ts::abstract<float>({8, 16}, {"model"})));

  try {
    ts::plan(product, mesh, ts::abstract<float>({8, 18}), ts::abstract<float>({18, 4}));
  } catch (const ts::error& e) {
    std::printf("%s\n", e.what());
  }
}
