#include <cstdint>
#include <tuple>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/partition/plan/static_plan.hpp>
#include <tessera/partition/plan/verify_plan.hpp>

// Plans as constants: what a training step communicates is known to the compiler.

namespace ts = tessera;

namespace {

using Matrix = ts::ShardedTensor<float, 2>;
constexpr ts::Mesh mesh({{"data", 2}, {"model", 4}});

struct Mlp {
  Matrix up, down;
  constexpr auto operator()(const auto& x) const { return ts::matmul(ts::gelu(ts::matmul(x, up)), down); }
};
struct Gradient {
  constexpr auto operator()(auto model, auto x, auto t) const {
    return ts::value_and_grad([](const auto& m, auto in, auto out) { return ts::mse(m(in), out); })(model, x, t);
  }
};

constexpr ts::Plan plan(const ts::PartitionSpec& up, const ts::PartitionSpec& down) {
  const auto batch = ts::abstract<float>({32, 64}, {"data"});
  return ts::plan(Gradient{}, mesh, ts::abstract<Mlp>({{{64, 256}, up}, {{256, 64}, down}}), batch, batch);
}
constexpr ts::PartitionSpec stored = ts::PartitionSpec({"data"}).gathered_on_use();

// Data parallel: one all-reduce of each gradient, and one of the loss.
static_assert(plan({}, {}).count(ts::all_reduce) == 3);
static_assert(plan({}, {}).payload_bytes(ts::all_reduce) == 2 * 65536 + 4);
// Megatron: one all-reduce forward; the input has no gradient. Gradients of split weights are a quarter as large.
static_assert(plan({ts::none, "model"}, {"model"}).count(ts::all_reduce, "model") == 1);
static_assert(plan({ts::none, "model"}, {"model"}).payload_bytes(ts::all_reduce, "data") == 2 * 16384 + 4);
// Fully sharded: weights are gathered where they are used.
static_assert(plan(stored, stored).count(ts::all_gather) == 2);
static_assert(plan(stored, stored).wire_bytes("model") == 0);

// A plan takes no step per device: 100,000 of them, in an order of their own, are planned like eight.
constexpr ts::Mesh pod({{"data", 1000}, {"model", 100}}, ts::DeviceOrder::of_digits({{1000, 1}, {100, 1000}}));
constexpr bool planned_alike() {
  constexpr std::int64_t batch = 32'000, inner = 25'600;
  const auto x = ts::abstract<float>({batch, 64}, {"data"});
  const auto model = ts::abstract<Mlp>({{{64, inner}, {ts::none, "model"}}, {{inner, 64}, {"model"}}});
  const ts::Plan made = ts::plan(Gradient{}, pod, model, x, x);
  return made.count(ts::all_reduce, "model") == 1 && made.count(ts::all_reduce, "data") == 3 &&
         made.payload_bytes(ts::all_reduce, "data") == 2 * 64 * (inner / 100) * 4 + 4;
}
static_assert(planned_alike());

// A stack is planned once, however deep.
struct Layer {
  Matrix up, down;
  constexpr auto operator()(const auto& x) const { return x + ts::matmul(ts::gelu(ts::matmul(x, up)), down); }
};
constexpr std::int64_t reduces(std::int64_t depth) {
  const auto layers = ts::abstract<ts::Stack<Layer>>(
      {ts::stacked(depth, {{64, 256}, {ts::none, "model"}}), ts::stacked(depth, {{256, 64}, {"model"}})});
  const auto batch = ts::abstract<float>({32, 64}, {"data"});
  return ts::plan(Gradient{}, mesh, layers, batch, batch).count(ts::all_reduce, "model");
}
static_assert(reduces(1) == 2 && reduces(48) == 96);

// The verifier runs in constant expressions too.
constexpr bool verified() {
  using Program = ts::Traced<Gradient, Mlp, Matrix, Matrix>;
  const ts::Plan made = plan({ts::none, "model"}, {"model"});
  ts::verify_plan(made, Program::program(), ts::TracedUnits<Program>::views.data());
  return true;
}
static_assert(verified());

// Stencils are planned within the limits of both compilers, on few devices, where one step receives its halo, and on
// many.
constexpr auto stencil = [](auto u) {
  return u + ts::roll<0>(u, 1) + ts::roll<0>(u, -1) + ts::roll<1>(u, 1) + ts::roll<1>(u, -1);
};
template <int Rows, int Columns> constexpr std::int64_t stencil_permutes() {
  return ts::plan(stencil, ts::Mesh({{"x", Rows}, {"y", Columns}}), ts::abstract<float>({4096, 4096}, {"x", "y"}))
      .count(ts::Collective::permute);
}
static_assert(stencil_permutes<2, 2>() == 2);
static_assert(stencil_permutes<8, 4>() == 2);
static_assert(stencil_permutes<32, 32>() > 2);

static_assert(ts::ring_bytes(ts::all_reduce, 2097152, 4) == 3145728);

}  // namespace
