// What a device stores and sends under a strategy, against formulas by hand; and training across slices of devices.
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/mesh/hybrid_mesh.hpp>
#include <tessera/nn/nn.hpp>
#include <tessera/optim/optim.hpp>
#include <tessera/parallel/fsdp.hpp>
#include <tessera/partition/plan/plan_memory.hpp>
#include <tessera/runtime/memory/buffer.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;

namespace {

constexpr int width = 256, layers = 5, batch = 8;
constexpr std::int64_t f32 = 4, unit = width * width * f32, parameters = layers * unit;

struct Layer {
  nn::Linear<float, false> linear;
  static constexpr std::array field_names{"linear"};
  constexpr auto operator()(const auto& x) const { return x + ts::tanh(linear(x)); }
};
struct Net {
  ts::Stack<Layer> layers;
  static constexpr std::array field_names{"layers"};
  constexpr auto operator()(const auto& x) const { return layers(x); }
};
Net net(const nn::ShardingStrategy& strategy) {
  return {ts::Stack<Layer>(layers, [&](int i) {
    return Layer{nn::linear<float, false>(ts::Key(static_cast<std::uint64_t>(i)), width, width, strategy)};
  })};
}

struct Step {
  constexpr auto operator()(const auto& model, const auto& state, const auto& config, const auto& x,
                            const auto& y) const {
    const auto loss = [](const auto& m, const auto& in, const auto& out) { return ts::mse(m(in), out); };
    const auto [value, gradient] = ts::value_and_grad(loss)(model, x, y);
    const auto [next, next_state] = ts::adamw(model, gradient, state, config);
    return std::tuple(next, next_state, value);
  }
};
constexpr auto train_step = ts::compile(Step{});
constexpr ts::optim::AdamW config{.learning_rate = 0.02, .weight_decay = 0.1};

auto data(std::uint64_t seed, const ts::Mesh& mesh, const ts::PartitionSpec& spec) {
  return ts::normal<float>(ts::Key(seed), {batch, width}, mesh, spec);
}
ts::Plan plan_of(const auto& model, const ts::Mesh& mesh, const ts::PartitionSpec& spec) {
  return train_step.plan(model, ts::optim::init_state(config, model), config, data(1, mesh, spec), data(2, mesh, spec));
}

// FSDP: (parameters + gradients + two moments) / n, and one gathered unit. Beside these only activations: those of each
// layer for the backward pass, what the layer at work needs, and what the loop over layers carries.
TEST(Fsdp, PeakOfADeviceIsItsPartsAndOneGatheredUnit) {
  for (const int n : {1, 2, 3, 4, 8}) {
    const ts::Mesh mesh({{"fsdp", n}});
    const ts::PlanMemory memory = ts::memory_of(plan_of(ts::fsdp(net(nn::single(ts::Mesh{})), mesh), mesh, {"fsdp"}));
    const std::int64_t part = layers * ((width + n - 1) / n) * width * f32;
    const std::int64_t activations = (batch + n - 1) / n * width * f32;
    const std::int64_t formula = 4 * part + (n > 1 ? unit : 0);
    EXPECT_GE(memory.arguments + memory.scratch, formula) << n;
    EXPECT_LE(memory.arguments + memory.scratch, formula + (2 + 2 * layers + 4 + 1) * activations) << n;
    // No argument counts as given to the step, so that at the end there are two of each.
    EXPECT_GE(memory.peak, 7 * part) << n;
    EXPECT_LE(memory.peak, 7 * part + 4 * activations) << n;
  }
}

// The allocator has the shards of all devices, and the scratch memory of the plan; a step that is not given its
// arguments needs its results besides.
TEST(Fsdp, TheAllocatorNeedsWhatThePlanSays) {
  const auto in_use = [] { return ts::memory_use().in_use; };
  constexpr std::int64_t rounded = 3 << 18;  // blocks of scratch memory are rounded up, by at most a quarter each
  for (const int n : {1, 2, 4}) {
    const ts::Mesh mesh({{"fsdp", n}});
    const std::int64_t before = in_use();
    auto model = ts::fsdp(net(nn::single(ts::Mesh{})), mesh);
    auto state = ts::optim::init_state(config, model);
    EXPECT_GE(in_use() - before, 3 * parameters) << n;
    EXPECT_LE(in_use() - before, 3 * parameters + 65536) << n;
    const auto x = data(1, mesh, {"fsdp"}), y = data(2, mesh, {"fsdp"});
    const std::int64_t scratch = plan_of(model, mesh, {"fsdp"}).main().arena_bytes;
    ts::reset_memory_peak();
    for (int i = 0; i < 2; ++i) {
      auto [next, next_state, loss] = train_step(std::move(model), std::move(state), config, x, y);
      model = std::move(next);
      state = std::move(next_state);
    }
    EXPECT_LE(ts::memory_use().peak - before, 3 * parameters + scratch + rounded) << n;
    ts::reset_memory_peak();
    const auto kept = train_step(model, state, config, x, y);
    EXPECT_GE(ts::memory_use().peak - before, 6 * parameters) << n;
    EXPECT_LE(ts::memory_use().peak - before, 6 * parameters + scratch + rounded) << n;
  }
}

// ---- slices of devices with a slow network in between

// Two slices of 2 x 2 devices: the axis "data" goes from slice to slice, "fsdp" around the torus of a slice.
const ts::Mesh pods =
    ts::hybrid_mesh({.inner = {1, 4}, .outer = {2, 1}, .axes = {"data", "fsdp"}}, ts::Torus{{2, 2}, 2});

template <class Model>
std::vector<double> losses(Model model, const ts::Mesh& mesh, const ts::PartitionSpec& spec, int steps = 10) {
  auto state = ts::optim::init_state(config, model);
  const auto x = data(1, mesh, spec), y = data(2, mesh, spec);
  std::vector<double> found;
  for (int i = 0; i < steps; ++i) {
    auto [next, next_state, loss] = train_step(std::move(model), std::move(state), config, x, y);
    model = std::move(next);
    state = std::move(next_state);
    found.push_back(static_cast<double>(ts::item(loss)));
  }
  return found;
}

TEST(HybridMesh, TrainsAsOneDeviceAndSendsLittleBetweenSlices) {
  const nn::ShardingStrategy one = nn::single(ts::Mesh{});
  const std::vector<double> want = losses(net(one), ts::Mesh{}, {});
  const ts::PartitionSpec both{{"data", "fsdp"}};
  const nn::ShardingStrategy hybrid = nn::hybrid_fsdp(pods);
  for (const std::vector<double>& got :
       {losses(net(hybrid), pods, both), losses(ts::fsdp(net(one), pods), pods, both)}) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-4 * want[i]) << i;
  }
  EXPECT_LT(want.back(), 0.9 * want.front());

  // Each group of "fsdp" is within a slice: devices 0 to 3, or 4 to 7.
  for (int device = 0; device < 8; ++device) EXPECT_EQ(pods.coordinates_of(device)[0], device / 4) << device;
  // Within a slice weights are gathered twice and gradients scattered once; between the slices a device sends a quarter
  // of the gradients.
  const ts::Plan plan = plan_of(net(hybrid), pods, both);
  std::array<std::int64_t, 3> within{}, between{};
  plan.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t times) {
    const std::size_t kind = c.kind == ts::all_gather ? 0 : c.kind == ts::reduce_scatter ? 1 : 2;
    if (c.payload_bytes <= 2 * f32) return;  // the loss
    if (c.axes == 1u << plan.mesh.axis_index("fsdp"))
      within[kind] += times * c.payload_bytes;
    else
      between[kind] += times * c.wire_bytes;
  });
  EXPECT_EQ(within, (std::array<std::int64_t, 3>{2 * parameters, parameters, 0}));
  EXPECT_EQ(between, (std::array<std::int64_t, 3>{0, 0, parameters / 4}));  // 2 (2 - 1) / 2 of a quarter
}

}  // namespace
