// Designs the layout of a transformer layer with the compiler alone: nothing below computes, everything is asserted.
// It needs static.hpp and no library: c++ -std=c++20 -I single_include examples/plan.cpp

#include <cstdio>

#include <tessera/static.hpp>

namespace ts = tessera;

using Matrix = ts::ShardedTensor<float, 2>;
using Vector = ts::ShardedTensor<float, 1>;

struct Layer {
  Vector gain1;
  Matrix qkv, out;
  Vector gain2;
  Matrix up, down;
  ts::Dim heads;

  constexpr auto operator()(const auto& x) const {  // [B, T, D]
    const auto all = ts::rearrange<"b t (h c e) -> b t h c e">(ts::matmul(ts::rms_norm(x, gain1), qkv),
                                                               ts::len<"h">(heads), ts::len<"c">(3));
    const auto part = [&](int c) { return ts::squeeze<3>(ts::slice<3>(all, c, 1)); };
    const auto attended = ts::merge_dims<2, 3>(ts::causal_attention(part(0), part(1), part(2)));
    const auto y = x + ts::matmul(attended, out);
    return y + ts::matmul(ts::gelu(ts::matmul(ts::rms_norm(y, gain2), up)), down);
  }
};

struct Step {
  constexpr auto operator()(auto layer, auto x, auto target) const {
    return ts::value_and_grad([](const auto& m, const auto& in, const auto& out) { return ts::mse(m(in), out); })(
        layer, x, target);
  }
};

constexpr ts::Mesh mesh({{"data", 2}, {"model", 4}});
constexpr std::int64_t batch = 8, length = 128, features = 256;

/// Columns of the first product of each pair and rows of the second are split along "model", as Megatron does.
constexpr ts::Plan plan(const ts::PartitionSpec& column, const ts::PartitionSpec& row) {
  const auto layer = ts::abstract<Layer>({{{features}},
                                          {{features, 3 * features}, column},
                                          {{features, features}, row},
                                          {{features}},
                                          {{features, 4 * features}, column},
                                          {{4 * features, features}, row},
                                          ts::Abstract::dim(8)});
  const auto x = ts::abstract<float>({batch, length, features}, {"data"});
  return ts::plan(Step{}, mesh, layer, x, x);
}

constexpr auto megatron = ts::freeze([] { return plan({ts::none, "model"}, {"model"}); });

// Two all-reduces of the stream forward, one backward: nobody wants the cotangent of the layer's input.
static_assert(megatron.count(ts::all_reduce, "model") == 3);
static_assert(megatron.payload_bytes(ts::all_reduce, "model") == 3 * batch / 2 * length * features * 4);
// Nothing else is moved, and nothing is moved that was not asked for.
static_assert(megatron.count(ts::all_gather) + megatron.count(ts::all_to_all) + megatron.count(ts::reduce_scatter) ==
              0);
static_assert(megatron.unasked_count() == 0);
// A device has less than 8 MiB for it all.
static_assert(megatron.memory.peak < 8 << 20);

int main() {
  const ts::Plan data_parallel = plan({}, {});
  std::printf("%lld bytes on the wire of a device, %lld at most in its memory\n",
              static_cast<long long>(megatron.wire_bytes()), static_cast<long long>(megatron.memory.peak));
  std::printf("from data parallel to tensor parallel:\n%s",
              ts::diff(data_parallel, plan({ts::none, "model"}, {"model"})).c_str());
}
