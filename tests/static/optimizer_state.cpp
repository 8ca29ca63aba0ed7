#include <tuple>

#include <tessera/optim/optimizer_step.hpp>
#include <tessera/optim/optimizers.hpp>
#include <tessera/optim/state/abstract_state.hpp>
#include <tessera/static.hpp>

// The plan of a training step with AdamW, whose state without data is that of the model without data.

namespace ts = tessera;

namespace {

struct Mlp {
  ts::ShardedTensor<float, 2> up, down;
  constexpr auto operator()(const auto& x) const { return ts::matmul(ts::relu(ts::matmul(x, up)), down); }
};
struct Train {
  constexpr auto operator()(const auto& model, const auto& state, const auto& x, const auto& target,
                            const auto& config) const {
    const auto loss_of = [](const auto& m, const auto& in, const auto& out) { return ts::mse(m(in), out); };
    const auto [loss, gradient] = ts::value_and_grad(loss_of)(model, x, target);
    return std::tuple(loss, ts::optim::optimizer_step(model, gradient, state, config));
  }
};
constexpr ts::Mesh mesh({{"data", 2}, {"model", 4}});

template <class Config> constexpr auto plan_of(const ts::PartitionSpec& up, const ts::PartitionSpec& down) {
  const auto model = ts::abstract<Mlp>({{{64, 256}, up}, {{256, 64}, down}});
  const auto batch = ts::abstract<float>({32, 64}, {"data"});
  constexpr Config config{};
  return ts::plan(Train{}, mesh, model, ts::optim::init_state(config, model), batch, batch, ts::abstract(config));
}
constexpr std::int64_t weights = 2 * 64 * 256 * 4;

constexpr auto replicated = ts::freeze([] { return plan_of<ts::optim::AdamW>({}, {}); });
constexpr auto split = ts::freeze([] { return plan_of<ts::optim::AdamW>({ts::none, "model"}, {"model"}); });
constexpr auto momentum = ts::freeze([] { return plan_of<ts::optim::Sgd>({ts::none, "model"}, {"model"}); });
// Parameters, two moments of their size, and the batch of a device.
static_assert(ts::memory_of(replicated).arguments == 3 * weights + 2 * 16 * 64 * 4);
static_assert(ts::memory_of(split).arguments == 3 * weights / 4 + 2 * 16 * 64 * 4);
static_assert(ts::memory_of(momentum).arguments == 2 * weights / 4 + 2 * 16 * 64 * 4);
// The optimizer sends nothing: gradients over data and the loss; over model the result.
static_assert(split.count(ts::all_reduce, "data") == 3 && split.count(ts::all_reduce, "model") == 1);
static_assert(split.count(ts::all_gather) + split.count(ts::reduce_scatter) == 0 && split.implicit_count() == 0);

// The state of a Stack has layers, and Dims are those of the model.
struct Deep {
  ts::Stack<Mlp> blocks;
  ts::Dim heads;
};
constexpr auto deep =
    ts::abstract<Deep>({ts::stacked(5, {{64, 256}}), ts::stacked(5, {{256, 64}, {"model"}}), ts::Abstract::dim(4)});
constexpr auto state = ts::optim::init_state(ts::optim::AdamW{}, deep);
static_assert(std::is_same_v<decltype(state)::type, ts::optim::AdamWState<Deep>>);
static_assert(sizeof(state.leaves) / sizeof(state.leaves[0]) == 2 * 3 + 1);
static_assert(state.leaves[4].layers == 5 && state.leaves[4].shape == ts::Shape{256, 64});
static_assert(state.leaves[4].spec.entries[0].axes[0].view() == "model" && state.leaves[6].shape.size() == 0);
// Adafactor has means along one of two dims.
constexpr auto factors = ts::optim::init_state(ts::optim::Adafactor{}, deep);
static_assert(factors.leaves[1].shape == ts::Shape{256, 1} && factors.leaves[4].shape == ts::Shape{1, 64});
static_assert(factors.leaves[1].spec.entries[0].axes.size() == 1 && factors.leaves[4].spec.entries[0].axes.size() == 0);

}  // namespace
