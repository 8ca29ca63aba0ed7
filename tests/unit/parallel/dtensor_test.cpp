#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "../base/expect_error.hpp"
#include "../mesh/random_layout.hpp"
#include <gtest/gtest.h>

#include <tessera/parallel/dtensor.hpp>
#include <tessera/parallel/local_map.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
using tessera_test::expect_error;
using ts::ReduceOp;

namespace {

using Values = std::vector<double>;

/// The value of a DTensor by its definition: every element from every device that holds a part of it.
Values value_of(const ts::DTensor<double, 2>& x) {
  Values out(static_cast<std::size_t>(ts::volume(x.shape())), 0);
  for (std::int64_t i = 0; i < x.shape()[0]; ++i)
    for (std::int64_t j = 0; j < x.shape()[1]; ++j) {
      // By the coordinates along axes that it is partial over: what is there, which has to be the same on all replicas.
      std::map<std::vector<int>, double> parts;
      double divisor = 1;
      ReduceOp op = ReduceOp::sum;
      for (std::size_t axis = 0; axis < x.placements().size(); ++axis)
        if (x.placements()[axis].is_partial()) {
          op = x.placements()[axis].op;
          if (op == ReduceOp::avg) divisor *= x.mesh().axis_size(static_cast<int>(axis));
        }
      for (int device = 0; device < x.mesh().size(); ++device) {
        const ts::Coordinates at = x.mesh().coordinates_of(device);
        const ts::Box box = ts::placed_box(x.shape(), x.placements(), x.mesh(), at);
        if (i < box.begin[0] || i >= box.end[0] || j < box.begin[1] || j >= box.end[1]) continue;
        std::vector<int> key;
        for (std::size_t axis = 0; axis < at.size(); ++axis)
          if (x.placements()[axis].is_partial()) key.push_back(at[axis]);
        const std::int64_t width = box.end[1] - box.begin[1];
        const double element =
            x.local().values(device)[static_cast<std::size_t>((i - box.begin[0]) * width + j - box.begin[1])];
        const auto [found, fresh] = parts.try_emplace(key, element);
        EXPECT_EQ(found->second, element) << "replicas differ";
      }
      double total = op == ReduceOp::product ? 1 : op == ReduceOp::min ? 1e300 : op == ReduceOp::max ? -1e300 : 0;
      for (const auto& [key, part] : parts)
        total = op == ReduceOp::product ? total * part
                : op == ReduceOp::min   ? std::min(total, part)
                : op == ReduceOp::max   ? std::max(total, part)
                                        : total + part;
      out[static_cast<std::size_t>(i * x.shape()[1] + j)] = total / divisor;
    }
  return out;
}

ts::Mesh small_mesh(std::mt19937& random) {
  const ts::Mesh meshes[]{ts::Mesh({{"x", 4}}),
                          ts::Mesh({{"x", 2}, {"y", 2}}),
                          ts::Mesh({{"x", 2}, {"y", 3}}),
                          ts::Mesh({{"x", 2}, {"y", 2}, {"z", 2}}),
                          ts::Mesh(),
                          ts::Mesh({{"x", 2}, {"y", 2}}, {2, 0, 3, 1})};
  return meshes[random() % 6];
}
ts::Placements random_placements(std::mt19937& random, const ts::Mesh& mesh, ReduceOp op) {
  ts::Placements made;
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    const auto kind = random() % 5;
    const bool mixed = (op == ReduceOp::sum || op == ReduceOp::avg) && random() % 2 == 0;
    made.push_back(kind == 0   ? ts::Replicate()
                   : kind == 1 ? ts::Partial(mixed ? ReduceOp::avg : op)
                               : ts::Shard(static_cast<int>(random() % 2)));
  }
  return made;
}
/// Integers, so that sums and products are exact in any order; averages are of powers of two, or divide.
ts::DTensor<double, 2> random_dtensor(std::mt19937& random, const ts::Mesh& mesh, const ts::Shape& shape,
                                      const ts::Placements& placements) {
  std::map<std::string, std::vector<double>> replicas;
  const ts::LocalTensor<double, 2> local(mesh, [&](int device) {
    const ts::Coordinates at = mesh.coordinates_of(device);
    const ts::Box box = ts::placed_box(shape, placements, mesh, at);
    std::string key;
    for (int axis = 0; axis < mesh.rank(); ++axis)
      if (!(placements[static_cast<std::size_t>(axis)] == ts::Replicate()))
        key += std::to_string(at[static_cast<std::size_t>(axis)]) + ",";
    auto& values = replicas[key];
    while (static_cast<std::int64_t>(values.size()) < ts::volume(ts::extents(box)))
      values.push_back(36.0 * static_cast<double>(static_cast<int>(random() % 9) - 4));
    return ts::LocalTensor<double, 2>::array(ts::extents(box), values);
  });
  return ts::DTensor<double, 2>(shape, placements, local);
}

TEST(dtensor, redistribute_never_changes_a_value) {
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    const ts::Mesh mesh = small_mesh(random);
    const ReduceOp op = static_cast<ReduceOp>(random() % 5);
    const ts::Shape shape{static_cast<std::int64_t>(random() % 8), 1 + static_cast<std::int64_t>(random() % 6)};
    const auto x = random_dtensor(random, mesh, shape, random_placements(random, mesh, op));
    const ts::Placements to = random_placements(random, mesh, static_cast<ReduceOp>(random() % 5));
    try {
      ts::normalized(to, mesh, 2, "test");
    } catch (const ts::error&) {
      continue;
    }
    const auto y = ts::redistribute(x, to);
    ASSERT_EQ(y.placements(), to);
    for (int device = 0; device < mesh.size(); ++device)
      ASSERT_EQ(y.local().shape(device), ts::extents(ts::placed_box(shape, to, mesh, mesh.coordinates_of(device))));
    ASSERT_EQ(value_of(y), value_of(x)) << x.text() << " to " << y.text() << " on " << mesh.text();
    ASSERT_EQ(ts::full_values(x), value_of(x)) << x.text();
  }
}

std::string counted(const ts::CommunicationScope& scope) {
  std::string out;
  for (const ts::CommunicationTotal& t : scope.totals())
    if (t.kind != ts::Collective::slice)
      out += ts::concat_text(t.count, " ", ts::name_of(t.kind), " ", t.wire_bytes, "; ");
  return out;
}

TEST(dtensor, a_mesh_of_one_axis_costs_what_dtensor_says) {
  std::mt19937 random(2);
  const ts::Mesh mesh({{"x", 4}});
  const ts::Placement R = ts::Replicate(), S = ts::Shard(0), S1 = ts::Shard(1), P = ts::Partial();
  const auto cost = [&](const ts::Placement& from, const ts::Placement& to) {
    const auto x = random_dtensor(random, mesh, {8, 16}, {from});  // V = 1,024 bytes
    ts::CommunicationScope scope;
    ts::redistribute(x, {to});
    EXPECT_EQ(scope.moved_bytes(), 4 * scope.wire_bytes());
    return counted(scope);
  };
  EXPECT_EQ(cost(S, R), "1 all_gather 768; ");
  EXPECT_EQ(cost(R, S), "");
  EXPECT_EQ(cost(P, R), "1 all_reduce 1536; ");
  EXPECT_EQ(cost(P, S), "1 reduce_scatter 768; ");
  EXPECT_EQ(cost(R, P), "");
  EXPECT_EQ(cost(S, S1), "1 all_to_all 192; ");
  EXPECT_EQ(cost(S, S), "");
  EXPECT_EQ(cost(P, ts::Partial(ReduceOp::avg)), "1 all_reduce 1536; ");

  const auto backward = [&](const ts::Placement& from, const ts::Placement& to) {
    const ts::Placement of_cotangent = to.is_partial() ? R : to;
    const auto g = random_dtensor(random, mesh, {8, 16}, {of_cotangent});
    ts::CommunicationScope scope;
    const auto x_gradient = ts::redistribute_gradient(g, {from});
    EXPECT_EQ(value_of(x_gradient), value_of(g));
    return counted(scope);
  };
  EXPECT_EQ(backward(S, R), "");
  EXPECT_EQ(backward(R, S), "1 all_gather 768; ");
  EXPECT_EQ(backward(P, R), "");
  EXPECT_EQ(backward(P, S), "1 all_gather 768; ");
  EXPECT_EQ(backward(R, P), "");
  EXPECT_EQ(backward(S, S1), "1 all_to_all 192; ");
}

// <redistribute(x), g> = <x, redistribute_gradient(g)> where a partial value pairs by the sum of its parts.
double pairing(const ts::DTensor<double, 2>& x, const ts::DTensor<double, 2>& g) {
  const Values a = value_of(x), b = value_of(g);
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

TEST(dtensor, the_gradient_of_redistribute_is_its_transpose) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const ts::Mesh mesh = small_mesh(random);
    const ts::Shape shape{5, 6};
    const ts::Placements from = random_placements(random, mesh, ReduceOp::sum),
                         to = random_placements(random, mesh, ReduceOp::sum);
    ts::Placements of_cotangent = to;
    for (ts::Placement& p : of_cotangent)
      if (p.is_partial()) p = ts::Replicate();
    const auto x = random_dtensor(random, mesh, shape, from), g = random_dtensor(random, mesh, shape, of_cotangent);
    const auto back = ts::redistribute_gradient(g, from);
    ASSERT_EQ(pairing(ts::redistribute(x, to), g), pairing(x, back));
    for (std::size_t axis = 0; axis < from.size(); ++axis)
      ASSERT_EQ(back.placements()[axis], from[axis].is_partial() ? ts::Replicate() : from[axis]);
  }
}

TEST(dtensor, several_axes_take_the_cheapest_way) {
  const ts::Mesh mesh({{"x", 2}, {"y", 4}});
  const auto wire = [&](const ts::Placements& from, const ts::Placements& to) {
    return ts::wire_bytes(ts::redistribute_path({64, 64}, ts::DType::f32, mesh, from, to));
  };
  const auto S = [](int d) { return ts::Shard(d); };
  EXPECT_EQ(wire({S(0), S(1)}, {S(0), S(1)}), 0);
  EXPECT_EQ(wire({S(0), S(1)}, {ts::Replicate(), ts::Replicate()}), 16384 * 7 / 8);
  // [S(0), S(1)] to [S(1), S(0)]: by two all-to-alls, not by gathering.
  EXPECT_LT(wire({S(0), S(1)}, {S(1), S(0)}), 16384 / 4);
  EXPECT_EQ(wire({ts::Partial(), S(0)}, {S(1), S(0)}), 4096 / 2);
}

TEST(dtensor, tensors_are_distributed_and_come_back) {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    const ts::Mesh mesh = small_mesh(random);
    const ts::Shape shape{1 + static_cast<std::int64_t>(random() % 9), static_cast<std::int64_t>(random() % 7)};
    std::vector<double> values;
    for (std::int64_t i = 0; i < ts::volume(shape); ++i) values.push_back(static_cast<double>(random() % 100));
    const auto spec = ts::spec_of(tessera_test::random_sharding(random, mesh, 2, false), mesh);
    const auto x = ts::shard<2>(values, shape, mesh, spec);
    ts::Placements to;
    for (int axis = 0; axis < mesh.rank(); ++axis)
      to.push_back(random() % 3 == 0 ? ts::Replicate() : ts::Shard(static_cast<int>(random() % 2) - 2));
    const auto d = ts::distribute_tensor(x, to);
    ASSERT_EQ(value_of(d), values);
    const auto back = ts::to_sharded(d, spec);
    ASSERT_EQ(ts::to_host(back), values);
    ASSERT_EQ(ts::sharding(back), ts::sharding(x));
  }
}

TEST(dtensor, local_arrays_make_a_tensor) {
  const ts::Mesh mesh({{"x", 2}, {"y", 2}});
  std::mt19937 random(5);
  const auto x = random_dtensor(random, mesh, {5, 3}, {ts::Shard(0), ts::Shard(0)});
  const auto again = ts::from_local(ts::to_local(x), {ts::Shard(0), ts::Shard(0)});
  EXPECT_EQ(again.shape(), (ts::Shape{5, 3}));
  EXPECT_EQ(again.local().values(2).data(), x.local().values(2).data()) << "nothing is copied";
  EXPECT_EQ(value_of(again), value_of(x));
  expect_error(
      ts::errc::host_data,
      [&] {
        ts::from_local(ts::to_local(x), {ts::Shard(0), ts::Shard(0)}, {6, 3});
      },
      "[from_local] shape on device 2: the array is f64[1,3], but the device's chunk of f64[6,3] (S(0), S(0)) is "
      "f64[2,3]");
}

TEST(dtensor, gradients_of_local_code_have_placements) {
  // y = to_local(x) on each device is multiplied by that device's own rows: the cotangent is partial over "x".
  const ts::Mesh mesh({{"x", 2}});
  const ts::LocalTensor<double, 1> one(mesh, [](int) {
    return ts::LocalTensor<double, 1>::array({3}, std::vector<double>{1, 2, 3});
  });
  const auto x = ts::from_local(one, {ts::Replicate()});
  const ts::LocalTensor<double, 1> cotangent(mesh, [](int device) {
    return ts::LocalTensor<double, 1>::array({3}, std::vector<double>{1.0 + device, 10, 100});
  });
  ts::CommunicationScope scope;
  const auto gradient = ts::to_local_gradient(cotangent, {ts::Partial()}, x);
  EXPECT_EQ(ts::full_values(gradient), (std::vector<double>{3, 20, 200}));
  EXPECT_EQ(counted(scope), "1 all_reduce 24; ");
}

TEST(dtensor, local_map_runs_on_each_device) {
  const ts::Mesh mesh({{"x", 2}, {"y", 2}});
  std::mt19937 random(6);
  const auto x = random_dtensor(random, mesh, {4, 6}, {ts::Shard(0), ts::Shard(1)});
  const auto w = random_dtensor(random, mesh, {6, 5}, {ts::Replicate(), ts::Shard(0)});
  using Local = ts::LocalTensor<double, 2>;
  // A product of rows by "x", whose summed dim is split by "y": partial over it.
  const auto product = [](const auto& a, const auto& b) {
    auto [array, out] = Local::allocate({a.shape[0], b.shape[1]});
    for (std::int64_t i = 0; i < a.shape[0]; ++i)
      for (std::int64_t j = 0; j < b.shape[1]; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < a.shape[1]; ++k) sum += a.data[i * a.shape[1] + k] * b.data[k * b.shape[1] + j];
        out[i * b.shape[1] + j] = sum;
      }
    return array;
  };
  const ts::Placements of_x{ts::Shard(0), ts::Shard(1)}, of_w{ts::Replicate(), ts::Shard(0)},
      of_y{ts::Shard(0), ts::Partial()};
  ts::CommunicationScope scope;
  const auto y = ts::local_map(product, of_y, ts::LocalMapInputs<2>{{of_x, of_w}}, x, w);
  EXPECT_EQ(counted(scope), "");
  EXPECT_EQ(y.text(), "f64[4,5] (S(0), P(sum))");
  const Values a = value_of(x), b = value_of(w), c = value_of(y);
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t j = 0; j < 5; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < 6; ++k) sum += a[i * 6 + k] * b[k * 5 + j];
      EXPECT_EQ(c[i * 5 + j], sum);
    }
  const auto moved = ts::redistribute(x, {ts::Replicate(), ts::Shard(1)});
  expect_error(
      ts::errc::structure,
      [&] {
        ts::local_map(product, of_y, ts::LocalMapInputs<2>{{of_x, of_w}}, moved, w);
      },
      "[local_map] placements of operand 0: the operand is f64[4,6] (R, S(1)), but the function expects (S(0), S(1))");
  const auto again = ts::local_map(product, of_y, ts::LocalMapInputs<2>{{of_x, of_w}, true}, moved, w);
  EXPECT_EQ(value_of(again), c);
}

/// Made a partial average of one number on all devices, and reduced again.
template <class T> T averaged(int devices, T value) {
  const auto x = ts::full<T>({3}, value, ts::Mesh({{"x", devices}}));
  const auto whole = ts::distribute_tensor(x, {ts::Replicate()});
  const auto partial = ts::redistribute(whole, {ts::Partial(ReduceOp::avg)});
  return ts::full_values(partial)[2];
}

TEST(dtensor, averages_are_of_any_number_of_devices) {
  EXPECT_EQ(averaged<std::uint8_t>(256, 7), 7);
  EXPECT_EQ(averaged<std::int32_t>(3, 2'000'000'000), 2'000'000'000);
  EXPECT_EQ(averaged<ts::bf16>(257, ts::bf16(7.f)), 7.f);
}

TEST(dtensor, holds_nothing_and_scalars) {
  const ts::Mesh mesh({{"x", 3}});
  const auto empty = ts::distribute_tensor(ts::zeros<float>({0, 2}, mesh), {ts::Shard(0)});
  EXPECT_TRUE(ts::full_values(ts::redistribute(empty, {ts::Shard(1)})).empty());
  const auto scalar = ts::distribute_tensor(ts::full<float, 0>({}, 3, mesh), {ts::Replicate()});
  EXPECT_EQ(ts::full_values(ts::redistribute(scalar, {ts::Partial()})), std::vector<float>{3});
  expect_error(ts::errc::empty_tensor, [] { ts::from_local(ts::LocalTensor<float, 1>(), {}); });
}

// With each device looking at all others this would be ten thousand million boxes.
TEST(dtensor, moves_among_100000_devices_read_each_piece_once) {
  const int data = 50'000, model = 2;
  std::vector<std::int32_t> order(static_cast<std::size_t>(data * model));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(7));
  for (const ts::Mesh& mesh :
       {ts::Mesh({{"data", data}, {"model", model}}),
        ts::Mesh({{"data", data}, {"model", model}}, ts::DeviceOrder(order.data(), order.size()))}) {
    std::vector<double> values(static_cast<std::size_t>(data * model));
    std::iota(values.begin(), values.end(), 0);
    const auto x = ts::shard<2>(values, {data, model}, mesh);
    ts::DTensor<double, 2> y = ts::distribute_tensor(x, {ts::Shard(0), ts::Shard(1)});
    for (const ts::Placements& to : {ts::Placements{ts::Shard(1), ts::Shard(0)},
                                     {ts::Shard(0), ts::Partial()},
                                     {ts::Shard(1), ts::Partial(ReduceOp::max)},
                                     {ts::Replicate(), ts::Shard(0)}}) {
      ts::CommunicationScope scope;
      ts::DTensor<double, 2> next = ts::redistribute(y, to);
      // A array has at least one element, which is read and written: there are no more arrays than devices, twice.
      EXPECT_LE(scope.copied_bytes(), 2 * 2 * 8 * static_cast<std::int64_t>(mesh.size()));
      y = std::move(next);
    }
    EXPECT_EQ(ts::full_values(y), values);
  }
}

TEST(dtensor, mistakes_are_named) {
  const ts::Mesh mesh({{"x", 2}, {"y", 2}});
  const auto x = ts::ones<float>({4, 4}, mesh);
  const auto d = ts::distribute_tensor(x, {ts::Shard(0), ts::Replicate()});
  expect_error(
      ts::errc::structure, [&] { ts::redistribute(d, {ts::Shard(0)}); },
      "[redistribute] one placement for each mesh axis");
  expect_error(
      ts::errc::dim_range,
      [&] {
        ts::redistribute(d, {ts::Shard(2), ts::Replicate()});
      },
      "dim of a placement");
  expect_error(
      ts::errc::unsupported,
      [&] {
        ts::distribute_tensor(x, {ts::Partial(), ts::Replicate()});
      },
      "[distribute_tensor] placements: (P(sum), R) has a Partial", "dtensor_test.cpp:");
  ts::CommunicationScope scope({.collectives = 0});
  expect_error(
      ts::errc::policy,
      [&] {
        ts::redistribute(d, {ts::Replicate(), ts::Replicate()});
      },
      "all_gather");
}

}  // namespace
