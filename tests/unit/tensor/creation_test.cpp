#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../base/expect_error.hpp"
#include "random_tensor.hpp"
#include <gtest/gtest.h>

#include <tessera/tensor/compare.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/deferred_init.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/reshard.hpp>

namespace ts = tessera;
using tessera_test::expect_error;

namespace {

template <class T, int Rank> void round_trip(std::mt19937& random) {
  const auto layout = tessera_test::random_spec_layout(random, Rank);
  std::vector<T> values;
  for (std::int64_t i = 0; i < ts::volume(layout.shape); ++i) values.push_back(static_cast<T>(random() % 251));
  const auto x = ts::shard<Rank>(values, layout.shape, layout.mesh, layout.spec);
  ASSERT_EQ(ts::to_host(x), values) << ts::sharded_type_text(x) << " on " << layout.mesh.text();

  // Every device holds the elements of its box, found by plain loops.
  const ts::TensorStorage& storage = ts::storage_of(x);
  for (int device = 0; device < layout.mesh.size(); ++device) {
    const ts::Coordinates at = layout.mesh.coordinates_of(device);
    const ts::Box box = ts::shard_box(layout.shape, ts::sharding(x), layout.mesh, at);
    const int shard = storage.grid().index_of(at);
    ASSERT_EQ(storage.box(shard), box);
    ASSERT_EQ(ts::device_bytes(x, device), ts::volume(ts::extents(box)) * static_cast<std::int64_t>(sizeof(T)));
    const T* data = static_cast<const T*>(storage.data(shard));
    tessera_test::for_each_index(box, [&](const ts::Shape& index) {
      const T expected = values[static_cast<std::size_t>(tessera_test::row_major(layout.shape, index))];
      ASSERT_EQ(*data++, expected);
    });
  }
}

// A plan may have any number of devices; what is stored is looked at shard by shard.
TEST(creation, a_tensor_has_a_bounded_number_of_distinct_shards) {
  const ts::Mesh most({{"data", 65536}, {"model", 32767}});
  const auto split = [&] { (void)ts::ones<float>({8, 8}, most, {"data", "model"}); };
  expect_error(ts::errc::capacity, split,
               "[run] shards: {data,model} on mesh(data=65536,model=32767) has 2147418112 distinct shards, but a "
               "stored tensor has at most 1048576; only a plan may have more");
  EXPECT_EQ(ts::to_host(ts::ones<float>({2}, most)), (std::vector<float>{1, 1}));
  EXPECT_EQ(ts::to_host(ts::ones<float>({2}, most, {"data"})), (std::vector<float>{1, 1}));
}

TEST(DeferredInit, IsOverAfterTheFunction) {
  const ts::Mesh mesh({{"fsdp", 3}});
  std::vector<float> values(35);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  auto given = ts::deferred_init([&] { return ts::shard(values, {5, 7}, mesh); });
  values.assign(35, 0);  // a copy was kept
  given = ts::reshard(given, {"fsdp"});
  const auto moved = given;
  EXPECT_TRUE(ts::is_deferred(given));
  EXPECT_EQ(ts::to_host(given)[34], 34);
  EXPECT_FALSE(ts::is_deferred(moved)) << "copies share their elements";
  EXPECT_FALSE(ts::is_deferred(ts::zeros<float>({3}, mesh)));
  EXPECT_THROW(ts::deferred_init([]() -> int { throw 1; }), int);
  EXPECT_FALSE(ts::is_deferred(ts::zeros<float>({3}, mesh)));
  expect_error(
      ts::errc::spec_axis, [&] { ts::deferred_init([&] { return ts::zeros<float>({3}, mesh, {"data"}); }); }, "data");
  const auto big = ts::deferred_init([&] { return ts::zeros<float>({1 << 20, 1 << 20, 1 << 10}, mesh); });
  expect_error(
      ts::errc::capacity, [&] { ts::all_equal(big, big); }, "bytes");
  EXPECT_EQ(ts::to_host(ts::deferred_init([&] { return ts::arange<int>(4, mesh, {"fsdp"}, 2, 3); })),
            (std::vector<int>{2, 5, 8, 11}));
}

}  // namespace

TEST(creation, shard_and_to_host_are_inverse_on_random_layouts) {
  std::mt19937 random(1);
  for (int round = 0; round < 150; ++round) {
    round_trip<float, 0>(random);
    round_trip<float, 1>(random);
    round_trip<double, 2>(random);
    round_trip<std::int32_t, 3>(random);
    round_trip<std::uint8_t, 4>(random);
    round_trip<bool, 2>(random);
    round_trip<std::int64_t, 1>(random);
  }
}

TEST(creation, shard_takes_spans_arrays_and_values_written_out) {
  const ts::Mesh mesh({{"x", 2}});
  const std::array<int, 6> array{1, 2, 3, 4, 5, 6};
  const std::vector<int> expected(array.begin(), array.end());
  const std::size_t columns = 3;
  auto from_span = ts::shard(std::span<const int>(array), {2, columns}, mesh, {"x"});
  static_assert(std::is_same_v<decltype(from_span), ts::ShardedTensor<int, 2>>);
  EXPECT_EQ(ts::to_host(from_span), expected);
  EXPECT_EQ(ts::shape(from_span), (ts::Shape{2, 3}));
  EXPECT_EQ(ts::to_host(ts::shard(array, {3, ts::Dim(2)}, mesh)), expected);
  EXPECT_EQ(ts::to_host(ts::shard(array, mesh, {"x"})), expected);

  const int flat[] = {1, 2, 3, 4, 5, 6};
  const int rows[3][2] = {{1, 2}, {3, 4}, {5, 6}};
  const int cube[1][2][3] = {{{1, 2, 3}, {4, 5, 6}}};
  static_assert(std::is_same_v<decltype(ts::shard(flat, mesh)), ts::ShardedTensor<int, 1>>);
  static_assert(std::is_same_v<decltype(ts::shard(rows, mesh)), ts::ShardedTensor<int, 2>>);
  static_assert(std::is_same_v<decltype(ts::shard(cube, mesh)), ts::ShardedTensor<int, 3>>);
  EXPECT_EQ(ts::to_host(ts::shard(flat, mesh, {"x"})), expected);
  EXPECT_EQ(ts::to_host(ts::shard(rows, mesh, {"x"})), expected);
  EXPECT_EQ(ts::to_host(ts::shard(cube, mesh, {ts::none, "x"})), expected);

  auto written = ts::shard<float>({{1, 2}, {3, 4}, {5, 6}}, mesh, {"x"});
  static_assert(std::is_same_v<decltype(written), ts::ShardedTensor<float, 2>>);
  EXPECT_EQ(ts::shape(written), (ts::Shape{3, 2}));
  EXPECT_EQ(ts::to_host(written), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(ts::to_host(ts::shard({1.5, 2.5}, mesh)), (std::vector<double>{1.5, 2.5}));
}

TEST(creation, to_host_writes_into_a_span) {
  const ts::Mesh mesh({{"x", 3}});
  const auto x = ts::shard<double>({1, 2, 3, 4}, mesh, {"x"});
  double out[4] = {};
  ts::to_host(x, out);
  EXPECT_EQ(out[3], 4.0);
  expect_error(
      ts::errc::host_data, [&] { ts::to_host(x, std::span<double>(out, 3)); }, "3", "f64[4]{x}", "4",
      "creation_test.cpp:");
}

TEST(creation, constants_on_random_layouts) {
  std::mt19937 random(2);
  for (int round = 0; round < 100; ++round) {
    const auto layout = tessera_test::random_spec_layout(random, 2);
    const auto count = static_cast<std::size_t>(ts::volume(layout.shape));
    const auto host = [](const auto& x) { return ts::to_host(x); };
    EXPECT_EQ(host(ts::zeros<float, 2>(layout.shape, layout.mesh, layout.spec)), std::vector<float>(count, 0.f));
    EXPECT_EQ(host(ts::ones<bool, 2>(layout.shape, layout.mesh, layout.spec)), std::vector<bool>(count, true));
    EXPECT_EQ(host(ts::full<std::int64_t, 2>(layout.shape, -7, layout.mesh, layout.spec)),
              std::vector<std::int64_t>(count, -7));
  }
}

TEST(creation, constants_larger_than_a_slab) {
  const ts::Mesh mesh({{"x", 3}});
  const auto x = ts::full<float>({3, 5, 20000}, 2.5f, mesh, {ts::none, "x"});
  EXPECT_EQ(ts::to_host(x), std::vector<float>(300000, 2.5f));
  const auto index = ts::arange<std::int32_t>(300001, mesh, {"x"});
  const std::vector<std::int32_t> values = ts::to_host(index);
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<std::int32_t>(i));
}

TEST(creation, ranges_of_numbers) {
  for (int devices = 1; devices <= 16; ++devices) {
    const ts::Mesh mesh({{"x", devices}});
    EXPECT_EQ(ts::to_host(ts::arange<int>(11, mesh, {"x"}, 5, -2)),
              (std::vector<int>{5, 3, 1, -1, -3, -5, -7, -9, -11, -13, -15}));
    EXPECT_EQ(ts::to_host(ts::arange<float>(4, mesh, {"x"}, 1.f, 0.25f)), (std::vector<float>{1, 1.25, 1.5, 1.75}));
    EXPECT_EQ(ts::to_host(ts::arange<std::uint8_t>(3, mesh, {"x"}, 254)), (std::vector<std::uint8_t>{254, 255, 0}));
    EXPECT_EQ(ts::to_host(ts::arange(2, 6, mesh, {"x"})), (std::vector<std::int32_t>{2, 3, 4, 5}));
    EXPECT_EQ(ts::to_host(ts::arange(7, 0, -3, mesh, {"x"})), (std::vector<std::int32_t>{7, 4, 1}));
    EXPECT_EQ(ts::to_host(ts::arange<float>(0, 1, 0.25f, mesh)), (std::vector<float>{0, 0.25, 0.5, 0.75}));
    EXPECT_EQ(ts::to_host(ts::arange<float>(3, 1, mesh)), std::vector<float>());
    EXPECT_EQ(ts::to_host(ts::arange(0.0, 1.0, 0.25, mesh)), (std::vector<float>{0, 0.25, 0.5, 0.75}));
    EXPECT_EQ(ts::to_host(ts::arange<std::uint8_t>(3, 0, -1, mesh)), (std::vector<std::uint8_t>{3, 2, 1}));
    constexpr std::int64_t large = std::int64_t{1} << 62;
    EXPECT_EQ(ts::to_host(ts::arange(large, large + 3, 2, mesh)), (std::vector<std::int64_t>{large, large + 2}));
  }
}

TEST(creation, element_types_that_no_one_named) {
  static_assert(std::is_same_v<decltype(ts::zeros({2, 3}, ts::Mesh())), ts::ShardedTensor<float, 2>>);
  static_assert(std::is_same_v<decltype(ts::ones({}, ts::Mesh())), ts::ShardedTensor<float, 0>>);
  static_assert(std::is_same_v<decltype(ts::eye(3, ts::Mesh())), ts::ShardedTensor<float, 2>>);
  static_assert(std::is_same_v<decltype(ts::arange(3, ts::Mesh())), ts::ShardedTensor<std::int32_t, 1>>);
  expect_error(
      ts::errc::dim_range, [] { ts::arange(0, 3, 0, ts::Mesh()); }, "[arange] step: 0 at creation_test.cpp:");
  for (const double end : {std::nan(""), static_cast<double>(INFINITY)})
    expect_error(
        ts::errc::dim_range, [&] { ts::arange(0, end, ts::Mesh()); }, "[arange] number of steps: from 0.000000 to");
}

// torch.linspace, logspace and eye
TEST(creation, lines_powers_and_identities) {
  for (int devices = 1; devices <= 5; ++devices) {
    const ts::Mesh mesh({{"x", devices}});
    EXPECT_EQ(ts::to_host(ts::linspace(-1, 1, 5, mesh, {"x"})), (std::vector<float>{-1, -0.5F, 0, 0.5F, 1}));
    const std::vector<double> points = ts::to_host(ts::linspace<double>(-1, 0.7, 7, mesh, {"x"})),
                              want{-1,    -0.7166666666666667, -0.43333333333333335,
                                   -0.15, 0.1333333333333333,  0.41666666666666663,
                                   0.7};
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(points.at(i), want[i], 1e-16) << i;
    EXPECT_EQ(points.back(), 0.7);
    EXPECT_EQ(ts::to_host(ts::linspace(3, 9, 1, mesh)), std::vector<float>{3});
    EXPECT_EQ(ts::to_host(ts::linspace(3, 9, 0, mesh, {"x"})), std::vector<float>{});
    EXPECT_EQ(ts::to_host(ts::logspace(-1, 2, 4, mesh, {"x"})), (std::vector<float>{0.1F, 1, 10, 100}));
    EXPECT_EQ(ts::to_host(ts::logspace<double>(0, 3, 4, mesh, {"x"}, 2)), (std::vector<double>{1, 2, 4, 8}));
    EXPECT_EQ(ts::to_host(ts::eye<int>(3, mesh, {"x"})), (std::vector<int>{1, 0, 0, 0, 1, 0, 0, 0, 1}));
    EXPECT_EQ(ts::to_host(ts::eye<float>(2, 3, mesh, {ts::none, "x"})), (std::vector<float>{1, 0, 0, 0, 1, 0}));
    EXPECT_EQ(ts::shape(ts::eye<float>(3, 2, mesh)), (ts::Shape{3, 2}));
  }
}

TEST(creation, a_scalar_has_one_element) {
  const ts::Mesh mesh({{"x", 4}});
  const auto x = ts::full<float, 0>({}, 2.5f, mesh);
  EXPECT_EQ(ts::item(x), 2.5f);
  EXPECT_EQ(ts::size(x), 1);
  EXPECT_EQ(ts::device_bytes(x, 3), 4);
  EXPECT_EQ(ts::stored_bytes(x), 4);
  EXPECT_EQ(ts::item(ts::shard<int>({{{7}}}, mesh, {"x"})), 7);
  expect_error(
      ts::errc::shape_mismatch,
      [&] {
        ts::item(ts::zeros<int>({2, 3}, mesh));
      },
      "[item] element count: i32[2,3]", "has 6 elements", "creation_test.cpp:");
}

TEST(creation, replicas_are_stored_once) {
  const ts::Mesh mesh({{"data", 4}, {"model", 2}});
  const auto x = ts::zeros<float>({10, 6}, mesh, {ts::none, "model"});
  EXPECT_EQ(ts::stored_bytes(x), 240);
  EXPECT_EQ(ts::device_bytes(x, 0), 120);
  EXPECT_EQ(ts::storage_of(x).shard_count(), 2);
  EXPECT_EQ(ts::mesh(x), mesh);
  EXPECT_EQ(ts::sharding(x), ts::resolve({ts::none, "model"}, mesh, 2));
  expect_error(
      ts::errc::mesh_devices, [&] { ts::device_bytes(x, 8); }, "8");
}

TEST(creation, mistakes_are_named_with_the_line) {
  const ts::Mesh mesh({{"data", 2}});
  const std::vector<float> values(4095);
  expect_error(
      ts::errc::host_data,
      [&] {
        ts::shard(values, {64, 64}, mesh);
      },
      "4095 values for f32[64,64]", "4096", "creation_test.cpp:");
  expect_error(
      ts::errc::rank_mismatch, [&] { ts::shard<3>(values, ts::Shape{4095}, mesh); }, "f32[4095]", "rank 3");
  expect_error(
      ts::errc::shape_mismatch,
      [&] {
        ts::zeros<float>({4, -1}, mesh);
      },
      "f32[4,-1]", "creation_test.cpp:");
  expect_error(
      ts::errc::capacity,
      [&] {
        ts::zeros<float>({1ll << 40, 1ll << 40}, mesh);
      },
      "creation_test.cpp:");
  // An extent of 0 does not make the others harmless: they are the shape of the sum over it.
  expect_error(
      ts::errc::capacity,
      [&] {
        ts::zeros<float>({1ll << 31, 1ll << 31, 0ll}, mesh);
      },
      "f32[2147483648,2147483648,0] has more than 2^52", "creation_test.cpp:");
  EXPECT_EQ(ts::size(ts::zeros<float>({1ll << 31, 0ll, 1ll << 21}, mesh)), 0);
  expect_error(
      ts::errc::capacity, [&] { ts::zeros<float>({1ll << 45}, mesh); },
      "the system can't provide 140737488355328 bytes", "zeros of f32[35184372088832]", "creation_test.cpp:");
  expect_error(
      ts::errc::spec_axis, [&] { ts::ones<float>({4}, mesh, {"modle"}); }, "modle", "data", "[spec]", "ones",
      "creation_test.cpp:");
  expect_error(
      ts::errc::spec_rank,
      [&] {
        ts::arange<int>(4, mesh, {"data", ts::none});
      },
      "creation_test.cpp:");
  EXPECT_EQ(ts::size(ts::zeros<float>({1ll << 20, 0, 1ll << 20}, mesh)), 0);
}

TEST(creation, a_tensor_without_data_says_so) {
  const ts::ShardedTensor<float, 2> empty;
  expect_error(
      ts::errc::empty_tensor, [&] { ts::shape(empty); }, "f32", "rank 2", "never assigned");
  const auto named = [](const char* function, auto&& call) {
    expect_error(ts::errc::empty_tensor, call, function,
                 "] an empty tensor, which was never assigned or was moved from at creation_test.cpp:");
  };
  named("[to_host]", [&] { ts::to_host(empty); });
  std::vector<float> buffer(4);
  named("[to_host]", [&] { ts::to_host(empty, buffer); });
  named("[item]", [] { ts::item(ts::ShardedTensor<float, 0>()); });
  named("[reshard]", [&] { ts::reshard(empty, {"x"}); });
  named("[reshard]", [&] { ts::reshard(empty, ts::Mesh({{"x", 2}}), {"x"}); });
  named("[reshard]", [&] { ts::reshard(empty, ts::replicated(2)); });
  named("[full_tensor]", [&] { ts::full_tensor(empty); });
  auto given = ts::zeros<float>({4, 2}, ts::Mesh({{"x", 2}}));
  const auto moved = std::move(given);
  named("[to_host]", [&] { ts::to_host(given); });
  ts::Module module;
  ts::Value placeholder{};
  placeholder.module = &module;
  const ts::ShardedTensor<float, 2> traced(placeholder);
  expect_error(
      ts::errc::empty_tensor, [&] { ts::shape(traced); }, "trace");
}

TEST(creation, a_storage_becomes_a_tensor_of_its_type_only) {
  const ts::Mesh mesh({{"x", 2}});
  const ts::StoragePtr storage(new ts::TensorStorage(mesh, ts::DType::i32, {4}, ts::resolve({"x"}, mesh, 1)));
  const auto x = ts::tensor_of<std::int32_t, 1>(storage);
  EXPECT_EQ(&ts::storage_of(x), storage.get());
  expect_error(
      ts::errc::dtype_mismatch, [&] { ts::tensor_of<float, 1>(storage); }, "i32[4]", "f32");
  expect_error(
      ts::errc::rank_mismatch, [&] { ts::tensor_of<std::int32_t, 2>(storage); }, "i32[4]", "rank 2");
  expect_error(ts::errc::empty_tensor, [&] { ts::tensor_of<std::int32_t, 2>({}); });
  ts::Sharding partial = ts::replicated(1);
  partial.unreduced = 1;
  const ts::StoragePtr parts(new ts::TensorStorage(mesh, ts::DType::i32, {4}, partial));
  expect_error(
      ts::errc::unsupported, [&] { ts::tensor_of<std::int32_t, 1>(parts); }, "+sum(x)");
}
