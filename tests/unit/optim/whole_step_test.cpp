// A training step with groups, frozen parameters, clipping, accumulation, a loss scale, averages and a state that is
// split over devices, against a step without the last four on one device; its states are saved and loaded on other
// meshes.
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/data/safetensors.hpp>
#include <tessera/tessera.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;

namespace {

struct Net {
  nn::Linear<double> in;
  ts::Stack<nn::Mlp<double>> blocks;
  nn::LayerNorm<double> norm;
  static constexpr std::array field_names{"in", "blocks", "norm"};
  constexpr auto operator()(const auto& x) const { return norm(blocks(in(x))); }
};
constexpr nn::Names frozen("in.bias", "blocks.1.down.weight"), slow("blocks.*.up.weight", "norm.*");

struct Plain {
  constexpr auto operator()(const auto& model, const auto& state, const auto& configs, const auto& x,
                            const auto& t) const {
    const auto loss = [&](const auto& m, const auto& in, const auto& target) {
      return ts::mse(nn::freeze(m, frozen)(in), target);
    };
    const auto [value, gradient] = ts::value_and_grad(loss)(model, x, t);
    const auto both = ts::clip_by_global_norm(gradient, 0.05);
    const auto& clipped = std::get<0>(both);  // clang 16 captures no structured bindings
    const auto step = [&](const auto& config) { return ts::optim::optimizer_step(model, clipped, state, config); };
    const auto [moved, moved_state] = ts::optim::by_group(step, configs.first, ts::optim::Group(slow, configs.second));
    const auto [next, next_state] = nn::keep_frozen(frozen, model, moved, state, moved_state);
    return std::tuple(value, std::get<1>(both), next, next_state);
  }
};
struct Whole {
  constexpr auto operator()(const auto& model, const auto& state, const auto& scaling, const auto& ema, const auto& swa,
                            const auto& count, const auto& configs, const auto& x, const auto& t) const {
    const auto loss = [&](const auto& m, const auto& in, const auto& target) {
      return ts::mse(nn::freeze(m, frozen)(in), target) * ts::cast<double>(scaling.scale);
    };
    const auto [value, gradient] = ts::optim::accumulate<2>(loss)(model, x, t);
    const auto unscaled = ts::optim::unscale(gradient, scaling);
    const auto finite = ts::optim::all_finite(unscaled);
    const auto both = ts::clip_by_global_norm(unscaled, 0.05);
    const auto& clipped = std::get<0>(both);  // clang 16 captures no structured bindings
    const auto step = [&](const auto& config) { return ts::optim::optimizer_step(model, clipped, state, config); };
    const auto [moved, moved_state] = ts::optim::by_group(step, configs.first, ts::optim::Group(slow, configs.second));
    const auto [next, next_state] = nn::keep_frozen(frozen, model, moved, state, moved_state);
    const auto kept = ts::optim::keep_if(finite, next, model);
    return std::tuple(value, std::get<1>(both), kept, ts::optim::keep_if(finite, next_state, state),
                      ts::optim::next_scale(scaling, finite), ts::optim::moving_average(ema, kept, 0.75),
                      ts::optim::mean_of_models(swa, kept, count), finite);
  }
};

using Host = std::vector<double>;
template <class M> Host values(const M& m) {
  Host all;
  nn::for_each_named_parameter(m, [&](const std::string&, const auto& x) {
    for (const auto v : ts::to_host(x)) all.push_back(static_cast<double>(v));
  });
  return all;
}
Net net(const nn::ShardingStrategy& s) {
  const auto f = [&](int i) { return ts::fold_in(ts::Key(3), static_cast<std::uint64_t>(i)); };
  return {nn::linear<double>(f(0), 5, 7, s, nn::Role::column, 0.6),
          ts::Stack<nn::Mlp<double>>(3, [&](int i) { return nn::mlp<double>(f(i + 1), 7, 5, s, 1, 0.5); }),
          nn::layer_norm<double>(7, s)};
}

template <class C> class WholeStep : public testing::Test {};
using All = testing::Types<ts::optim::AdamW, ts::optim::NAdam, ts::optim::Adafactor>;
TYPED_TEST_SUITE(WholeStep, All);

TYPED_TEST(WholeStep, IsThatOfOneDevice) {
  constexpr auto plain = ts::compile(Plain{});
  constexpr auto whole = ts::compile(Whole{});
  const auto configs_at = [](int i) {
    std::pair<TypeParam, TypeParam> c;
    c.first.learning_rate = ts::optim::warmup_cosine(i, 2, 6, 0.05, 0.001);
    c.second.learning_rate = ts::optim::chained(
        i, 2, [](auto s) { return 0.01 * static_cast<double>(s + 1); },
        [](auto s) { return ts::optim::step_decay(s, 2, 0.02); });
    if constexpr (requires { c.first.weight_decay; }) c.first.weight_decay = 0.1;
    return c;
  };
  const auto data = [](int i, std::int64_t columns, const ts::Mesh& mesh) {
    return ts::reshard(
        ts::normal<double>(ts::Key(static_cast<std::uint64_t>(100 + i + columns)), {12, columns}, ts::Mesh{}), mesh,
        {"data"});
  };
  const ts::Mesh one;
  const nn::ShardingStrategy single = nn::single(one);
  Net model = net(single);
  auto state = ts::optim::init_state(TypeParam{}, model, frozen);
  std::vector<Host> want, want_ema, want_swa;
  Host e = values(model), a = e;
  std::vector<double> norms;
  for (int i = 0; i < 4; ++i) {
    auto [v, n, next, next_state] =
        plain(model, state, configs_at(i), ts::reshard(data(i, 5, ts::Mesh({{"data", 1}})), one, {}),
              ts::reshard(data(i, 7, ts::Mesh({{"data", 1}})), one, {}));
    model = next, state = next_state;
    norms.push_back(ts::item(n));
    want.push_back(values(model));
    for (std::size_t k = 0; k < e.size(); ++k)
      e[k] = 0.75 * e[k] + 0.25 * want.back()[k], a[k] += (want.back()[k] - a[k]) / (i + 2);
    want_ema.push_back(e), want_swa.push_back(a);
  }
  EXPECT_GT(norms[0], 0.05);
  const Host begin = values(net(single));
  std::size_t moved = 0;
  for (std::size_t k = 0; k < begin.size(); ++k) moved += want[3][k] != begin[k];
  EXPECT_EQ(moved, begin.size() - 7 - 35) << "all but what is frozen";

  const auto near = [](const Host& got, const Host& expected, const std::string& what) {
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t k = 0; k < got.size(); ++k) ASSERT_NEAR(got[k], expected[k], 1e-9) << what << " " << k;
  };
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"data", devices}}), other({{"data", 4 - devices}});
    const auto start = [&](const ts::Mesh& on, const nn::ShardingStrategy& s, bool zero) {
      Net m = net(s);
      auto st = zero ? ts::optim::init_state(TypeParam{}, m, frozen, ts::optim::ZeroRedundancy{"data"})
                     : ts::optim::init_state(TypeParam{}, m, frozen);
      return std::tuple(m, st, ts::optim::loss_scale(on, 1024), m, m);
    };
    auto all = start(mesh, nn::data_parallel(mesh), true);
    const auto run = [&](int i, const ts::Mesh& on) {
      auto& [m, st, sc, em, sw] = all;
      auto [v, n, next, next_state, next_scale, next_ema, next_swa, finite] =
          whole(m, st, sc, em, sw, ts::Scalar(i + 1), configs_at(i), data(i, 5, on), data(i, 7, on));
      m = next, st = next_state, sc = next_scale, em = next_ema, sw = next_swa;
      EXPECT_TRUE(ts::item(finite));
      EXPECT_NEAR(ts::item(n), norms[static_cast<std::size_t>(i)], 1e-10);
    };
    run(0, mesh), run(1, mesh);
    near(values(std::get<0>(all)), want[1], "model");
    const ts::StateDict dict = ts::full_state_dict(all);
    std::set<std::string> names;
    for (const auto& entry : dict) names.insert(entry.name);
    EXPECT_EQ(names.size(), dict.size());
    all = ts::load_state_dict(start(other, nn::fsdp(other), false), dict);
    run(2, other);
    const ts::StateDict again = ts::full_state_dict(all);
    all = ts::load_state_dict(start(mesh, nn::data_parallel(mesh), true), again);
    run(3, mesh);
    near(values(std::get<0>(all)), want[3], "model at the end");
    near(values(std::get<3>(all)), want_ema[3], "ema");
    near(values(std::get<4>(all)), want_swa[3], "swa");
    // A step that overflows changes nothing.
    auto& [m, st, sc, em, sw] = all;
    const Host before = values(m), state_before = values(st);
    auto x = ts::full<double>({12, 5}, std::numeric_limits<double>::infinity(), mesh, {"data"});
    auto [v, n, next, next_state, next_scale, next_ema, next_swa, finite] =
        whole(m, st, sc, em, sw, ts::Scalar(5), configs_at(3), x, data(3, 7, mesh));
    EXPECT_FALSE(ts::item(finite));
    EXPECT_EQ(values(next), before);
    EXPECT_EQ(values(next_state), state_before);
    EXPECT_EQ(ts::item(next_scale.scale), 512);
  }
}
}  // namespace
