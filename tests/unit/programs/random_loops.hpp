#ifndef TESSERA_TESTS_PROGRAMS_RANDOM_LOOPS_HPP
#define TESSERA_TESTS_PROGRAMS_RANDOM_LOOPS_HPP

#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "on_each_device.hpp"

#include <tessera/ops/cond.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/ops/unroll.hpp>
#include <tessera/ops/vmap/vmap.hpp>

// Runs the functions F(x [rows, 3], w [3]) of control flow that random_loops.py writes, with their gradients, on meshes
// of one to four devices, also where an automatic axis splits a dim unevenly. Every step is compared with the oracle in
// double.

namespace random_loops {

namespace ts = tessera;
using on_each_device::expect_near;
using on_each_device::some_values;

/// The result and the gradients of a loss of G(x, w).
template <class G> struct Results {
  constexpr auto operator()(auto x, auto w) const {
    const auto [value, gradient] = ts::value_and_grad<0, 1>(on_each_device::Loss<G>{})(x, w);
    return std::tuple(std::get<1>(value), std::get<0>(gradient), std::get<1>(gradient));
  }
};
template <class F> struct InShardMap {
  constexpr auto operator()(const auto& x, const auto& w) const { return ts::shard_map<"{d}, {} -> {d}">(F{})(x, w); }
};
/// A shard_map for each example: all at once, and step by step.
template <class F> struct UnderVmap {
  constexpr auto operator()(const auto& xs, const auto& w) const {
    return ts::vmap([&](const auto& x) { return InShardMap<F>{}(x, w); })(xs);
  }
};
template <class F> struct InAScan {
  constexpr auto operator()(const auto& xs, const auto& w) const {
    const auto step = [](const auto& carry, const auto& x) { return std::tuple(carry, InShardMap<F>{}(x, carry)); };
    return std::get<1>(ts::scan(step, w, xs));
  }
};
/// The devices of a shard_map as examples of a vmap, whose axis the collectives name.
template <class F> struct DevicesAsExamples {
  constexpr auto operator()(const auto& xs, const auto& w) const {
    return ts::vmap([&](const auto& x) { return F{}(x, w); }, ts::axis_name<"d">)(xs);
  }
};

inline constexpr int examples = 3, rows = 12;
struct Placed {
  ts::Mesh mesh;
  int devices;
  ts::PartitionSpec spec;
};
void expect_results(const auto& found, const on_each_device::Expected& expected, const std::string& what) {
  expect_near(ts::to_host(std::get<0>(found)), expected.y, "result of " + what);
  expect_near(ts::to_host(std::get<1>(found)), expected.of_x, "gradient of x of " + what);
  expect_near(ts::to_host(std::get<2>(found)), expected.of_w, "gradient of w of " + what);
}
/// Against F of each example and each device alone, in one program of one device.
template <class F> void compare_examples(const std::string& name) {
  on_each_device::compare<F>({rows, 3}, {3}, name);
  constexpr auto under_vmap = ts::compile(Results<UnderVmap<F>>{});
  constexpr auto in_a_scan = ts::compile(Results<InAScan<F>>{});
  const auto x = some_values(examples * rows * 3, 1), w = some_values(3, 2);
  for (const Placed& at : {Placed{ts::Mesh({{"d", 1}}), 1, {ts::none, "d"}},
                           {ts::Mesh({{"d", 3}}), 3, {"d"}},
                           {ts::Mesh({{"m", 2}, {"d", 2}}, {3, 1, 2, 0}), 2, {"m", "d"}},
                           {ts::Mesh({{"m", 2}, {"d", 2}}), 2, {ts::none, "d", "m"}}}) {
    on_each_device::Expected all;
    all.of_w.assign(3, 0.0);
    for (int e = 0; e < examples; ++e) {
      const std::vector<double> part(x.begin() + e * rows * 3, x.begin() + (e + 1) * rows * 3);
      const auto one = on_each_device::expected_of<F>(part, {rows, 3}, w, {3}, at.devices);
      all.y.insert(all.y.end(), one.y.begin(), one.y.end());
      all.of_x.insert(all.of_x.end(), one.of_x.begin(), one.of_x.end());
      for (std::size_t i = 0; i < 3; ++i) all.of_w[i] += one.of_w[i];
    }
    const auto a = ts::shard(x, {examples, rows, 3}, at.mesh, at.spec);
    const auto b = ts::shard(w, {3}, at.mesh);
    std::optional<ts::OracleScope> same_in_double;  // throws where a value differs; reads the values of all devices
    if (!ts::spans_processes(at.mesh)) same_in_double.emplace();
    expect_results(under_vmap(a, b), all, name + " under vmap on " + at.mesh.text());
    expect_results(in_a_scan(a, b), all, name + " in a scan on " + at.mesh.text());
  }
}
/// With collectives: against a vmap over the devices.
template <class F> void compare_collectives(const std::string& name) {
  constexpr auto mapped = ts::compile(Results<InShardMap<F>>{});
  constexpr auto alone = ts::compile(Results<DevicesAsExamples<F>>{});
  const auto x = some_values(rows * 3, 1), w = some_values(3, 2);
  const ts::Mesh one({{"one", 1}});
  for (const Placed& at : {Placed{ts::Mesh({{"d", 1}}), 1, {"d"}},
                           {ts::Mesh({{"d", 2}}), 2, {"d"}},
                           {ts::Mesh({{"d", 3}}), 3, {ts::none, "d"}},
                           {ts::Mesh({{"m", 2}, {"d", 2}}, {3, 1, 2, 0}), 2, {"d", "m"}},
                           {ts::Mesh({{"d", 4}}), 4, {"d"}}}) {
    const auto right = alone(ts::shard(x, {at.devices, rows / at.devices, 3}, one), ts::shard(w, {3}, one));
    const on_each_device::Expected expected{
        ts::to_host(std::get<0>(right)), ts::to_host(std::get<1>(right)), ts::to_host(std::get<2>(right)), {}};
    std::optional<ts::OracleScope> same_in_double;
    if (!ts::spans_processes(at.mesh)) same_in_double.emplace();
    expect_results(mapped(ts::shard(x, {rows, 3}, at.mesh, at.spec), ts::shard(w, {3}, at.mesh)), expected,
                   name + " on " + at.mesh.text());
  }
}

}  // namespace random_loops

#endif
