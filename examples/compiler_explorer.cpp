// Shows a sharding that is checked at compile time: the compiler plans a transformer layer, forward and backward, and
// assertions limit its communication and memory. Change a spec, and an assertion fails. Needs only one header:
//
//     c++ -std=c++20 -I single_include examples/compiler_explorer.cpp
//
// On Compiler Explorer, include the header by its address instead.

#include <cstdio>

#include <tessera/static.hpp>

namespace ts = tessera;

// The layer, written as for one device. A tensor has an element type and a rank; ts::abstract below gives its extents.

using Matrix = ts::ShardedTensor<float, 2>;

struct Layer {
  Matrix qkv, out, up, down;
  ts::Dim heads;

  constexpr auto operator()(const auto& x) const {  // [B, T, D]
    const auto all =
        ts::rearrange<"b t (h c e) -> b t h c e">(ts::matmul(x, qkv), ts::len<"h">(heads), ts::len<"c">(3));
    const auto part = [&](int c) { return ts::squeeze<3>(ts::slice<3>(all, c, 1)); };
    const auto y = x + ts::matmul(ts::merge_dims<2, 3>(ts::causal_attention(part(0), part(1), part(2))), out);
    return y + ts::matmul(ts::gelu(ts::matmul(y, up)), down);
  }
};

// A loss and its gradients by the weights and by the input, as a layer in the middle of a model needs them.

struct Step {
  constexpr auto operator()(auto layer, auto x) const {
    return ts::value_and_grad([](const auto& both, int) {
      const auto y = std::get<0>(both)(std::get<1>(both));
      return ts::sum(y * y);
    })(std::tuple(layer, x), 0);
  }
};

// The mesh, and how weights are sharded over it: the first product of each pair by columns, the second by rows.

constexpr ts::Mesh mesh({{"data", 2}, {"model", 4}});
constexpr ts::PartitionSpec columns{ts::none, "model"}, rows{"model"};

constexpr std::int64_t batch = 8, length = 128, features = 1024;

constexpr auto megatron = ts::freeze([] {
  const auto layer = ts::abstract<Layer>({{{features, 3 * features}, columns},
                                          {{features, features}, rows},
                                          {{features, 4 * features}, columns},
                                          {{4 * features, features}, rows},
                                          ts::Abstract::dim(16)});
  return ts::plan(Step{}, mesh, layer, ts::abstract<float>({batch, length, features}, {"data"}));
});

// The intended communication: two all-reduces of activations forward, two backward, and one of each gradient.

constexpr std::int64_t activations = batch / 2 * length * features * 4;  // bytes of a device

static_assert(megatron.count(ts::all_reduce, "model") == 4);
static_assert(megatron.payload_bytes(ts::all_reduce, "model") == 4 * activations);
static_assert(megatron.count(ts::all_gather) + megatron.count(ts::reduce_scatter) + megatron.count(ts::all_to_all) ==
              0);
static_assert(megatron.implicit_count() == 0);

// Limits for the bytes that a device sends and stores.

static_assert(megatron.wire_bytes("model") <= 8 * 3 * activations / 4);
static_assert(megatron.wire_bytes("data") < 16 << 20);
static_assert(megatron.memory.peak < 64 << 20);

int main() { std::fputs(ts::explain(megatron).c_str(), stdout); }
