#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "../base/expect_error.hpp"
#include "../mesh/random_layout.hpp"
#include <gtest/gtest.h>

#include <tessera/parallel/buckets.hpp>
#include <tessera/parallel/collectives.hpp>

namespace ts = tessera;
namespace tc = tessera::collective;
using tessera_test::expect_error;
using ts::ReduceOp;

namespace {

using Ints = ts::LocalTensor<int, 2>;
using Lists = std::vector<std::vector<int>>;

Ints random_ints(std::mt19937& random, const ts::Mesh& mesh, const ts::Shape& shape) {
  return Ints(mesh, [&](int) {
    std::vector<int> values;
    for (std::int64_t i = 0; i < ts::volume(shape); ++i) values.push_back(static_cast<int>(random() % 15) - 7);
    return Ints::array(shape, values);
  });
}
int at(const Ints& x, int device, std::int64_t i, std::int64_t j) {
  return x.values(device)[static_cast<std::size_t>(i * x.shape(device)[1] + j)];
}
int reduced(ReduceOp op, int a, int b) {
  switch (op) {
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::product:
      return a * b;
    case ReduceOp::bit_and:
      return a & b;
    case ReduceOp::bit_or:
      return a | b;
    default:
      return a + b;
  }
}

/// Devices of a mesh of six, in groups by axis or by lists, and what they are.
struct Case {
  ts::DeviceGroups groups;
  Lists lists;
};
const ts::Mesh mesh({{"x", 2}, {"y", 3}});
std::vector<Case> cases() {
  return {{{}, {{0, 1, 2, 3, 4, 5}}},
          {"x", {{0, 3}, {1, 4}, {2, 5}}},
          {"y", {{0, 1, 2}, {3, 4, 5}}},
          {{"x", "y"}, {{0, 1, 2, 3, 4, 5}}},
          {ts::DeviceGroups(Lists{{5, 0}, {1, 3}, {4, 2}}), {{5, 0}, {1, 3}, {4, 2}}}};
}

TEST(collectives, all_reduce_has_six_operations) {
  std::mt19937 random(1);
  using enum ReduceOp;
  for (const Case& c : cases())
    for (const ReduceOp op : {sum, product, min, max, bit_and, bit_or}) {
      const Ints x = random_ints(random, mesh, {3, 4});
      const Ints y = tc::all_reduce(x, op, c.groups);
      for (const auto& group : c.lists)
        for (std::int64_t i = 0; i < 3; ++i)
          for (std::int64_t j = 0; j < 4; ++j) {
            int total = at(x, group[0], i, j);
            for (std::size_t k = 1; k < group.size(); ++k) total = reduced(op, total, at(x, group[k], i, j));
            for (const int device : group) ASSERT_EQ(at(y, device, i, j), total) << ts::name_of(op);
          }
    }
}

TEST(collectives, all_reduce_scales_and_averages) {
  const ts::LocalTensor<float, 1> x(mesh, [](int device) {
    return ts::LocalTensor<float, 1>::array({2}, std::vector<float>{static_cast<float>(device), 1});
  });
  const auto scaled = tc::all_reduce(x, ReduceOp::sum, {}, 0.5);
  EXPECT_EQ(scaled.values(4)[0], 7.5f);
  EXPECT_EQ(scaled.values(0)[1], 3.f);
  EXPECT_EQ(tc::all_reduce(x, ReduceOp::avg, "y").values(5)[0], 4.f);
  EXPECT_EQ(scaled.values(0).data(), scaled.values(5).data()) << "one result is stored once";
  const ts::LocalTensor<bool, 1> flags(mesh, [](int device) {
    const bool flag[] = {device == 3};
    return ts::LocalTensor<bool, 1>::array({1}, flag);
  });
  EXPECT_TRUE(tc::all_reduce(flags, ReduceOp::bit_or).values(0)[0]);
  EXPECT_FALSE(tc::all_reduce(flags, ReduceOp::bit_and).values(0)[0]);
  expect_error(
      ts::errc::dtype_mismatch, [&] { tc::all_reduce(x, ReduceOp::bit_or); },
      "[all_reduce] dtype: the reduction bit_or is not defined for f32");
  expect_error(
      ts::errc::dtype_mismatch, [&] { tc::all_reduce(flags); }, "the reduction sum is not defined for bool");
}

/// The reduction of one number that all devices hold.
template <class T> double reduced_of(int devices, T value, ReduceOp op, double scale = 1) {
  const ts::LocalTensor<T, 1> x(ts::Mesh({{"x", devices}}),
                                [&](int) { return ts::LocalTensor<T, 1>::array({1}, std::vector<T>{value}); });
  return static_cast<double>(tc::all_reduce(x, op, {}, scale).values(0)[0]);
}

TEST(collectives, sums_of_integers_wrap_and_averages_are_exact) {
  using enum ReduceOp;
  EXPECT_EQ(reduced_of<std::int32_t>(3, 2'000'000'000, sum), 6e9 - 4294967296.0);
  EXPECT_EQ(reduced_of<std::int32_t>(3, 2'000'000'000, avg), 2e9);
  EXPECT_EQ(reduced_of<std::int64_t>(2, INT64_MAX, sum), -2);
  EXPECT_EQ(reduced_of<std::int64_t>(2, std::int64_t{1} << 32, product), 0);
  EXPECT_EQ(reduced_of<std::int8_t>(4, 100, sum), 400 - 512);
  EXPECT_EQ(reduced_of<std::int8_t>(4, -100, avg), -100);
  EXPECT_EQ(reduced_of<std::uint8_t>(256, 4, avg), 4) << "as many devices as the type has numbers";
  EXPECT_EQ(reduced_of<std::uint8_t>(257, 4, sum), 1028 % 256);
  EXPECT_EQ(reduced_of<std::uint8_t>(2, 200, sum, 2), 255) << "scaled after the sum, to the nearest there is";
  EXPECT_EQ(reduced_of<std::int32_t>(2, 7, sum, -1e30), -2147483648.0);
  EXPECT_EQ(reduced_of<ts::bf16>(257, ts::bf16(3.f), avg), 3);
  EXPECT_EQ(reduced_of<ts::bf16>(512, ts::bf16(1.f), sum), 512) << "bf16 itself stops counting at 256";
}

TEST(collectives, arrays_that_are_not_there_are_errors) {
  const ts::LocalTensor<float, 1> nothing;
  expect_error(
      ts::errc::empty_tensor, [&] { tc::all_reduce(nothing); },
      "[local] empty tensor: the local tensor of f32 and rank 1");
  expect_error(ts::errc::empty_tensor, [&] { tc::all_gather(nothing, 0); });
  expect_error(ts::errc::empty_tensor, [&] { tc::broadcast(nothing); });
  expect_error(ts::errc::empty_tensor, [&] { tc::flattened(nothing); });
  const Ints x(mesh, [](int) { return Ints::array({1, 1}, std::vector<int>{1}); });
  for (const int device : {-1, 6})
    expect_error(
        ts::errc::mesh_devices, [&] { x.values(device); }, "[local] device id: no device of mesh(",
        ts::concat_text(" has id ", device));
}

TEST(collectives, all_gather_joins_arrays_of_any_length) {
  std::mt19937 random(2);
  for (const Case& c : cases())
    for (int dim = 0; dim < 2; ++dim) {
      std::vector<std::int64_t> length;
      for (int device = 0; device < 6; ++device) length.push_back(static_cast<std::int64_t>(random() % 4));
      const Ints x(mesh, [&](int device) {
        ts::Shape shape{3, 3};
        shape[static_cast<std::size_t>(dim)] = length[static_cast<std::size_t>(device)];
        return random_ints(random, ts::Mesh(), shape)[0];
      });
      const Ints y = tc::all_gather(x, dim - 2, c.groups);
      for (const auto& group : c.lists)
        for (const int device : group) {
          std::int64_t from = 0;
          for (const int source : group) {
            const std::int64_t own = length[static_cast<std::size_t>(source)];
            for (std::int64_t i = 0; i < own; ++i)
              for (std::int64_t j = 0; j < 3; ++j)
                ASSERT_EQ(dim == 0 ? at(y, device, from + i, j) : at(y, device, j, from + i),
                          dim == 0 ? at(x, source, i, j) : at(x, source, j, i));
            from += own;
          }
          ASSERT_EQ(y.shape(device)[static_cast<std::size_t>(dim)], from);
        }
    }
  const Ints unequal(mesh, [&](int device) { return random_ints(random, ts::Mesh(), {2, 1 + device % 2})[0]; });
  expect_error(
      ts::errc::shape_mismatch, [&] { tc::all_gather(unequal, 0); },
      "equal extents except along dim 0: i32[2,1] and i32[2,2]");
  expect_error(
      ts::errc::dim_range, [&] { tc::all_gather(unequal, 2); },
      "[all_gather] dim: 2 is out of range for arrays of rank 2");
}

TEST(collectives, reduce_scatter_is_all_reduce_and_a_chunk) {
  std::mt19937 random(3);
  for (const Case& c : cases())
    for (std::int64_t rows : {0, 1, 4, 6, 7, 12}) {
      const Ints x = random_ints(random, mesh, {2, rows});
      const Ints all = tc::all_reduce(x, ReduceOp::max, c.groups),
                 y = tc::reduce_scatter(x, 1, ReduceOp::max, c.groups);
      for (const auto& group : c.lists) {
        const auto k = static_cast<std::int64_t>(group.size());
        const std::int64_t chunk = (rows + k - 1) / k;
        for (std::int64_t m = 0; m < k; ++m) {
          const int device = group[static_cast<std::size_t>(m)];
          const std::int64_t begin = std::min(m * chunk, rows), end = std::min(begin + chunk, rows);
          ASSERT_EQ(y.shape(device), (ts::Shape{2, end - begin}));
          for (std::int64_t i = 0; i < 2; ++i)
            for (std::int64_t j = begin; j < end; ++j) ASSERT_EQ(at(y, device, i, j - begin), at(all, device, i, j));
        }
      }
    }
}

TEST(collectives, all_to_all_is_its_own_inverse_with_dims_swapped) {
  std::mt19937 random(4);
  for (const Case& c : cases()) {
    const auto k = static_cast<std::int64_t>(c.lists[0].size());
    const Ints x = random_ints(random, mesh, {2 * k, 3});
    const Ints y = tc::all_to_all(x, 0, 1, c.groups);
    for (const auto& group : c.lists)
      for (std::size_t m = 0; m < group.size(); ++m) {
        ASSERT_EQ(y.shape(group[m]), (ts::Shape{2, 3 * k}));
        for (std::size_t s = 0; s < group.size(); ++s)
          for (std::int64_t i = 0; i < 2; ++i)
            for (std::int64_t j = 0; j < 3; ++j)
              ASSERT_EQ(at(y, group[m], i, 3 * static_cast<std::int64_t>(s) + j),
                        at(x, group[s], 2 * static_cast<std::int64_t>(m) + i, j));
      }
    const Ints back = tc::all_to_all(y, 1, 0, c.groups);
    for (int device = 0; device < 6; ++device) ASSERT_TRUE(std::ranges::equal(back.values(device), x.values(device)));
  }
  expect_error(
      ts::errc::not_divisible,
      [&] {
        tc::all_to_all(random_ints(random, mesh, {4, 3}), 0, 1);
      },
      "[all_to_all] equal chunks: dim 0 of i32[4,3] does not divide by the 6 devices of a group");
}

TEST(collectives, permutes_and_broadcasts) {
  std::mt19937 random(5);
  const Ints x = random_ints(random, mesh, {2, 2});
  const Ints y = tc::collective_permute(x, {{0, 1}, {1, 0}, {5, 2}});
  for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 0), std::pair(5, 2)})
    EXPECT_TRUE(std::ranges::equal(y.values(to), x.values(from)));
  for (const int device : {3, 4, 5}) EXPECT_TRUE(std::ranges::equal(y.values(device), std::vector<int>(4, 0)));
  expect_error(
      ts::errc::mesh_devices,
      [&] {
        tc::collective_permute(x, {{0, 1}, {2, 1}});
      },
      "[collective_permute] one sender for each device: device 1 would receive from 0 and 2");
  expect_error(
      ts::errc::mesh_devices,
      [&] {
        tc::collective_permute(x, {{0, 6}});
      },
      "[collective_permute] devices: the pair 0 to 6 names a device outside mesh(");

  const Ints z = tc::broadcast(x, 2, "y");
  for (int device = 0; device < 6; ++device)
    EXPECT_TRUE(std::ranges::equal(z.values(device), x.values(device < 3 ? 2 : 5)));
  expect_error(
      ts::errc::mesh_devices, [&] { tc::broadcast(x, 3, "y"); }, "member: 3 is out of range for groups of 3 devices");

  const Ints sent = tc::send_recv(x, 4, 1);
  for (int device = 0; device < 6; ++device)
    EXPECT_TRUE(std::ranges::equal(sent.values(device), x.values(device == 1 ? 4 : device)));
  expect_error(
      ts::errc::mesh_devices, [&] { tc::send_recv(x, 4, 6); }, "4 to 6 names a device outside mesh(");
}

TEST(collectives, groups_hold_each_device_once) {
  const Ints x(mesh, [](int) { return Ints::array({1, 1}, std::vector<int>{1}); });
  const auto with = [&](const ts::DeviceGroups& groups) { tc::all_reduce(x, ReduceOp::sum, groups); };
  expect_error(
      ts::errc::mesh_axis, [&] { with("z"); }, "'z'");
  expect_error(
      ts::errc::mesh_devices,
      [&] {
        with(ts::DeviceGroups(Lists{{0, 1, 2}, {3, 4, 4}}));
      },
      "each device in one group: device 4 is listed twice");
  expect_error(
      ts::errc::mesh_devices,
      [&] {
        with(ts::DeviceGroups(Lists{{0, 1}, {2, 3}}));
      },
      "only 4 of 6 devices are listed");
  expect_error(
      ts::errc::structure,
      [&] {
        with(ts::DeviceGroups(Lists{{0, 1, 2, 3}, {4, 5}}));
      },
      "equal groups: a group of 4 and a group of 2 devices");
  const Ints unequal(mesh, [](int device) {
    return Ints::array({1, 1 + device}, std::vector<int>(static_cast<std::size_t>(1 + device)));
  });
  expect_error(
      ts::errc::shape_mismatch, [&] { tc::all_reduce(unequal); },
      "[all_reduce] equal shapes in a group: i32[1,1] on device 0, i32[1,2] on device 1");
}

TEST(collectives, groups_by_axes_follow_the_device_order) {
  const ts::Mesh shuffled({{"x", 2}, {"y", 2}}, {3, 1, 0, 2});
  EXPECT_EQ(ts::DeviceGroups("x").on(shuffled, "test"), (Lists{{3, 0}, {1, 2}}));
  EXPECT_EQ(ts::DeviceGroups("y").on(shuffled, "test"), (Lists{{3, 1}, {0, 2}}));
  EXPECT_EQ(ts::DeviceGroups({"x", "y"}).on(shuffled, "test"), (Lists{{3, 1, 0, 2}}));
  EXPECT_EQ(ts::DeviceGroups().on(ts::Mesh(), "test"), (Lists{{0}}));
  // Comparing each device with the groups so far would be thousands of millions of comparisons.
  const Lists many = ts::DeviceGroups("y").on(ts::Mesh({{"x", 50'000}, {"y", 2}}), "test");
  ASSERT_EQ(many.size(), 50'000u);
  for (std::size_t g = 0; g < many.size(); ++g)
    ASSERT_EQ(many[g], (std::vector<int>{static_cast<int>(2 * g), static_cast<int>(2 * g) + 1}));
}

TEST(collectives, are_counted_where_they_run) {
  std::mt19937 random(6);
  const Ints x = random_ints(random, mesh, {6, 6});  // 144 bytes
  ts::CommunicationScope scope;
  tc::all_reduce(x, ReduceOp::sum, "x");
  tc::reduce_scatter(x, 0, ReduceOp::sum, "y");
  tc::all_gather(x, 0, "y");
  tc::all_to_all(x, 0, 1, "y");
  tc::collective_permute(x, {{0, 1}});
  tc::broadcast(x);
  EXPECT_EQ(scope.text(), "1 all_reduce over x: 144 B, 144 B on the wire\n"
                          "1 reduce_scatter over y: 144 B, 96 B on the wire\n"
                          "1 all_gather over y: 432 B, 288 B on the wire\n"
                          "1 all_to_all over y: 432 B, 96 B on the wire\n"
                          "1 permute over x,y: 144 B, 144 B on the wire\n"
                          "1 broadcast over x,y: 144 B, 144 B on the wire\n");
  // All devices send what is on the wire; but one of them its array to another, or to all.
  EXPECT_EQ(scope.moved_bytes(), 6 * (144 + 96 + 288 + 96) + 144 + 5 * 144);
  ts::CommunicationScope budget({.collectives = 0});
  expect_error(
      ts::errc::policy, [&] { tc::all_reduce(x); }, "collectives: 1 needed and 0 used before", "collectives_test.cpp:");
}

TEST(buckets, reduce_as_many_arrays_as_fit_at_once) {
  std::mt19937 random(7);
  for (const std::int64_t cap : {1, 100, 200, 100000}) {
    std::vector<Ints> list, wanted;
    std::int64_t bytes = 0, buckets = 0, filled = cap + 1;
    for (const ts::Shape& shape :
         {ts::Shape{3, 4}, ts::Shape{1, 5}, ts::Shape{0, 2}, ts::Shape{9, 9}, ts::Shape{2, 2}, ts::Shape{2, 7}}) {
      list.push_back(random_ints(random, mesh, shape));
      wanted.push_back(tc::all_reduce(list.back(), ReduceOp::max, "y"));
      const std::int64_t own = 4 * ts::volume(shape);
      if (filled + own > cap || buckets == 0) {
        ++buckets;
        filled = 0;
      }
      filled += own;
      bytes += own;
    }
    ts::CommunicationScope scope;
    tc::all_reduce_bucketed(list, ReduceOp::max, "y", 1, cap);
    EXPECT_EQ(scope.count(ts::all_reduce), buckets) << cap;
    EXPECT_EQ(scope.payload_bytes(ts::all_reduce), bytes);
    for (std::size_t i = 0; i < list.size(); ++i)
      for (int device = 0; device < 6; ++device) {
        ASSERT_EQ(list[i].shape(device), wanted[i].shape(device));
        ASSERT_TRUE(std::ranges::equal(list[i].values(device), wanted[i].values(device)));
      }
  }
}

TEST(buckets, gather_as_many_arrays_as_fit_at_once) {
  std::mt19937 random(8);
  for (const std::int64_t cap : {1, 150, 100000})
    for (const Case& c : cases()) {
      std::vector<Ints> list;
      for (int n = 0; n < 5; ++n) {
        const std::int64_t columns = 1 + static_cast<std::int64_t>(random() % 4);
        list.push_back(Ints(mesh, [&](int) {
          return random_ints(random, ts::Mesh(), {static_cast<std::int64_t>(random() % 4), columns})[0];
        }));
      }
      const auto gathered = tc::all_gather_bucketed(list, c.groups, cap);
      ASSERT_EQ(gathered.size(), list.size());
      for (std::size_t i = 0; i < list.size(); ++i) {
        const Ints wanted = tc::all_gather(list[i], 0, c.groups);
        for (int device = 0; device < 6; ++device) {
          ASSERT_EQ(gathered[i].shape(device), wanted.shape(device));
          ASSERT_TRUE(std::ranges::equal(gathered[i].values(device), wanted.values(device)));
        }
      }
    }
}

TEST(buckets, arrays_of_several_ranks_share_them_flat) {
  std::mt19937 random(9);
  const Ints x = random_ints(random, mesh, {3, 4});
  const auto flat = tc::flattened(x);
  EXPECT_EQ(flat.shape(3), ts::Shape{12});
  EXPECT_EQ(flat.values(3).data(), x.values(3).data());
  std::vector<ts::LocalTensor<int, 1>> none;
  EXPECT_NO_THROW(tc::all_reduce_bucketed(none));
}

TEST(buckets, of_arrays_that_do_not_fit_are_not_reduced_in_part) {
  std::mt19937 random(10);
  const Ints x = random_ints(random, mesh, {3, 4});
  std::vector<Ints> list{x, Ints(mesh, [&](int device) {
                           return random_ints(random, ts::Mesh(), {device == 5 ? 2 : 3, 4})[0];
                         })};
  expect_error(ts::errc::shape_mismatch, [&] { tc::all_reduce_bucketed(list, ReduceOp::sum, {}, 1, 1); });
  for (int device = 0; device < 6; ++device) EXPECT_EQ(list[0].values(device).data(), x.values(device).data());
}

}  // namespace
