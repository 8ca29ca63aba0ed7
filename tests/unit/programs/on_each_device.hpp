#ifndef TESSERA_TESTS_PROGRAMS_ON_EACH_DEVICE_HPP
#define TESSERA_TESTS_PROGRAMS_ON_EACH_DEVICE_HPP

#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/ops/shard_map/axis_text.hpp>
#include <tessera/ops/shard_map/shard_map.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/oracle.hpp>

// A function of local values without collectives, compared with what a program for one device computes from the shards
// of each device: the results, gradients of a loss that contains the shard_map, and gradients taken in the function.

namespace on_each_device {

namespace ts = tessera;

/// Numbers between -1 and 1.
inline std::vector<double> some_values(std::size_t count, int seed) {
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(std::sin(1.7 * static_cast<double>(i) + seed));
  return values;
}
inline void expect_near(const std::vector<double>& found, const std::vector<double>& expected,
                        const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], 1e-11 * (1 + std::abs(expected[i]))) << what << ", element " << i;
}

/// A loss of the result of f(x, w), and the result.
template <class F> struct Loss {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto y = F{}(x, w);
    return std::tuple(ts::sum(ts::sin(y) + 0.25 * y), y);
  }
};
/// The result and the gradients of x and of w, on one device.
template <class F> struct Alone {
  constexpr auto operator()(auto x, auto w) const {
    const auto [value, gradient] = ts::value_and_grad<0, 1>(Loss<F>{})(x, w);
    return std::tuple(std::get<1>(value), std::get<0>(gradient), std::get<1>(gradient));
  }
};
/// The same in a program with a shard_map that splits x over Axes. Its gradients are taken outside.
template <class F, ts::FixedString Axes> struct Mapped {
  constexpr auto operator()(auto x, auto w) const {
    const auto call = [](const auto& a, const auto& b) {
      return ts::shard_map<ts::detail::with_axis<"{@}, {} -> {@}", Axes>()>(F{})(a, b);
    };
    const auto [value, gradient] = ts::value_and_grad<0, 1>(Loss<decltype(call)>{})(x, w);
    return std::tuple(std::get<1>(value), std::get<0>(gradient), std::get<1>(gradient));
  }
};
/// The same with gradients taken inside; also the gradient of w of each device.
template <class F, ts::FixedString Axes> struct Inside {
  constexpr auto operator()(auto x, auto w) const {
    return ts::shard_map<ts::detail::with_axis<"{@}, {} -> {@}, {@}, {}, {@}", Axes>()>(
        [](const auto& own, const auto& shared) {
          const auto [value, gradient] = ts::value_and_grad<0, 1>(Loss<F>{})(own, shared);
          const auto varying = [&] {
            if constexpr (Axes.view() == "d")
              return ts::pvary<"d">(shared);
            else
              return ts::pvary<"d", "m">(shared);
          }();
          return std::tuple(std::get<1>(value), std::get<0>(gradient), std::get<1>(gradient),
                            std::get<1>(ts::grad<0, 1>([](const auto& a, const auto& b) {
                              return std::get<0>(Loss<F>{}(a, b));
                            })(own, varying)));
        })(x, w);
  }
};

template <std::size_t Rank> ts::Shape shape_of(const int (&extents)[Rank]) {
  ts::Shape shape;
  for (const int n : extents) shape.push_back(n);
  return shape;
}
struct Expected {
  std::vector<double> y, of_x, of_w, of_each_w;
};
template <class F, std::size_t XRank, std::size_t WRank>
Expected expected_of(const std::vector<double>& x, const int (&extents)[XRank], const std::vector<double>& w,
                     const int (&of_w)[WRank], int devices) {
  constexpr auto alone = ts::compile(Alone<F>{});
  const ts::Mesh one({{"one", 1}});
  ts::Shape own = shape_of(extents);
  own[0] /= devices;
  const std::size_t size = x.size() / static_cast<std::size_t>(devices);
  Expected all;
  all.of_w.assign(w.size(), 0.0);
  const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (int device = 0; device < devices; ++device) {
    const auto first = x.begin() + static_cast<std::ptrdiff_t>(size * static_cast<std::size_t>(device));
    const std::vector<double> shard(first, first + static_cast<std::ptrdiff_t>(size));
    const auto [y, of_x, slope] = alone(ts::shard<static_cast<int>(XRank)>(shard, own, one),
                                        ts::shard<static_cast<int>(WRank)>(w, shape_of(of_w), one));
    append(all.y, ts::to_host(y));
    append(all.of_x, ts::to_host(of_x));
    const std::vector<double> each = ts::to_host(slope);
    append(all.of_each_w, each);
    for (std::size_t i = 0; i < each.size(); ++i) all.of_w[i] += each[i];
  }
  return all;
}

template <class F, ts::FixedString Axes, bool OfEach, std::size_t XRank, std::size_t WRank>
void compare_on(const ts::Mesh& mesh, int devices, const int (&extents)[XRank], const int (&of_w)[WRank],
                const std::string& name) {
  constexpr int x_rank = XRank, w_rank = WRank;
  const ts::Shape x_shape = shape_of(extents), w_shape = shape_of(of_w);
  const std::vector<double> x = some_values(static_cast<std::size_t>(ts::volume(x_shape)), 1),
                            w = some_values(static_cast<std::size_t>(ts::volume(w_shape)), 2);
  const Expected expected = expected_of<F>(x, extents, w, of_w, devices);
  const ts::SpecEntry batch = Axes.view() == "d" ? ts::SpecEntry("d") : ts::SpecEntry({"d", "m"});
  const std::string on = name + " on " + mesh.text();
  const auto a = ts::shard<x_rank>(x, x_shape, mesh, {batch});
  const auto b = ts::shard<w_rank>(w, w_shape, mesh);
  std::optional<ts::OracleScope> same_on_one_device;  // throws where a value differs; reads the values of all devices
  if (!ts::spans_processes(mesh)) same_on_one_device.emplace();
  {
    constexpr auto program = ts::compile(Mapped<F, Axes>{});
    const auto [y, of_x, slope] = program(a, b);
    expect_near(ts::to_host(y), expected.y, "result of " + on);
    expect_near(ts::to_host(of_x), expected.of_x, "gradient of x of " + on);
    expect_near(ts::to_host(slope), expected.of_w, "gradient of w of " + on);
    for (const ts::Collective op : {ts::Collective::all_gather, ts::Collective::all_to_all, ts::Collective::permute})
      EXPECT_EQ(program.plan(a, b).count(op), 0) << on;
  }
  if constexpr (OfEach) {
    constexpr auto program = ts::compile(Inside<F, Axes>{});
    const auto [y, of_x, slope, each] = program(a, b);
    expect_near(ts::to_host(y), expected.y, "result beside gradients of " + on);
    expect_near(ts::to_host(of_x), expected.of_x, "gradient of x inside " + on);
    expect_near(ts::to_host(slope), expected.of_w, "gradient of w inside " + on);
    expect_near(ts::to_host(each), expected.of_each_w, "gradient of each w inside " + on);
  }
}
/// On meshes of one and of two dims. Without OfEach: gradients are taken outside only.
template <class F, bool OfEach = true, std::size_t XRank, std::size_t WRank>
void compare(const int (&x)[XRank], const int (&w)[WRank], const std::string& name) {
  compare_on<F, "d", OfEach>(ts::Mesh({{"d", 1}}), 1, x, w, name);
  compare_on<F, "d", OfEach>(ts::Mesh({{"d", 2}}), 2, x, w, name);
  compare_on<F, "d", OfEach>(ts::Mesh({{"m", 2}, {"d", 2}}, {3, 1, 2, 0}), 2, x, w, name);
  compare_on<F, "(d,m)", OfEach>(ts::Mesh({{"d", 2}, {"m", 2}}), 4, x, w, name);
}

}  // namespace on_each_device

#endif
