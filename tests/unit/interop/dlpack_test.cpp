#include <cstdint>
#include <numeric>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/interop/dlpack.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/local_shards.hpp>

namespace ts = tessera;
using tessera_test::expect_error;

namespace {

constexpr ts::Mesh mesh({{"x", 2}, {"y", 2}});

/// What another library would hand over: a 3 x 4 array of floats in a larger block, and whether it was given back.
struct Foreign {
  std::vector<float> data = std::vector<float>(40);
  std::int64_t shape[2]{3, 4}, strides[2]{1, 3};  // column-major
  int released = 0;
  ts::dlpack::DLManagedTensor managed{};

  Foreign() {
    std::iota(data.begin(), data.end(), 0.f);
    managed.dl_tensor = {data.data(), {1, 0}, 2, {2, 32, 1}, shape, strides, 8};
    managed.manager_ctx = this;
    managed.deleter = [](ts::dlpack::DLManagedTensor* self) { ++static_cast<Foreign*>(self->manager_ctx)->released; };
  }
};
/// Element (i, j): two elements in, column-major.
const std::vector<float> columns{2, 5, 8, 11, 3, 6, 9, 12, 4, 7, 10, 13};

TEST(dlpack, the_structs_are_those_of_the_protocol) {
  // Offsets of dlpack.h on a 64-bit machine.
  EXPECT_EQ(sizeof(ts::dlpack::DLDevice), 8u);
  EXPECT_EQ(sizeof(ts::dlpack::DLDataType), 4u);
  EXPECT_EQ(offsetof(ts::dlpack::DLTensor, ndim), 16u);
  EXPECT_EQ(offsetof(ts::dlpack::DLTensor, shape), 24u);
  EXPECT_EQ(offsetof(ts::dlpack::DLTensor, byte_offset), 40u);
  EXPECT_EQ(offsetof(ts::dlpack::DLManagedTensor, manager_ctx), 48u);
  EXPECT_EQ(offsetof(ts::dlpack::DLManagedTensorVersioned, flags), 24u);
  EXPECT_EQ(sizeof(ts::dlpack::DLManagedTensorVersioned), 80u);
}

TEST(dlpack, an_array_of_any_strides_becomes_a_tensor) {
  Foreign foreign;
  const auto x = ts::from_dlpack<float, 2>(&foreign.managed, mesh, {"x", "y"});
  EXPECT_EQ(foreign.released, 1);
  EXPECT_EQ(ts::sharded_type_text(x), "f32[3,4]{x,y}");
  EXPECT_EQ(ts::to_host(x), columns);
  foreign.managed.dl_tensor.strides = nullptr;
  EXPECT_EQ(ts::to_host(ts::from_dlpack<float, 2>(&foreign.managed, mesh)),
            (std::vector<float>{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}));
}

TEST(dlpack, a_shard_is_seen_without_a_copy) {
  auto x = ts::arange<std::int64_t>(10, mesh, {"x"});
  ts::dlpack::DLManagedTensorVersioned* const array = ts::to_dlpack(x, 2);
  EXPECT_EQ(array->version.major, 1u);
  EXPECT_EQ(array->flags, ts::dlpack::flag_read_only);
  EXPECT_EQ(array->dl_tensor.data, ts::local_shards(x)[2].data.data());
  EXPECT_EQ(array->dl_tensor.ndim, 1);
  EXPECT_EQ(array->dl_tensor.shape[0], 5);
  EXPECT_EQ(array->dl_tensor.strides[0], 1);
  EXPECT_EQ(int{array->dl_tensor.dtype.code}, 0);
  EXPECT_EQ(int{array->dl_tensor.dtype.bits}, 64);
  x = {};
  EXPECT_EQ(static_cast<const std::int64_t*>(array->dl_tensor.data)[4], 9) << "the array keeps the memory alive";
  array->deleter(array);
}

TEST(dlpack, there_and_back) {
  const auto x = ts::arange<double>(12, mesh);
  EXPECT_EQ(ts::to_host(ts::from_dlpack<double, 1>(ts::to_dlpack(x), mesh, {"y"})), ts::to_host(x));
  EXPECT_EQ(ts::to_host(ts::from_dlpack<double, 1>(ts::to_dlpack_unversioned(x), mesh, {"y"})), ts::to_host(x));
  ts::dlpack::DLManagedTensor* const copy = ts::to_dlpack_unversioned(x);
  EXPECT_NE(copy->dl_tensor.data, ts::local_shards(x)[0].data.data()) << "its reader may write";
  copy->deleter(copy);
  const auto flags = ts::shard<bool>({true, false, true}, mesh);
  EXPECT_EQ(ts::to_host(ts::from_dlpack<bool, 1>(ts::to_dlpack(flags), mesh)), ts::to_host(flags));
  const auto bytes = ts::arange<std::uint8_t>(3, mesh);
  EXPECT_EQ(ts::to_host(ts::from_dlpack<std::uint8_t, 1>(ts::to_dlpack(bytes), mesh)), ts::to_host(bytes));
}

// Codes of dlpack.h: kDLFloat 2, kDLBfloat 4, kDLFloat8_e4m3fn 10, kDLFloat8_e5m2 12.
template <class T> void expect_there_and_back(int code) {
  const std::vector<T> values{T(1.5f), T(-0.25f), T(0.0f)};
  const auto x = ts::shard(values, mesh);
  ts::dlpack::DLManagedTensorVersioned* const array = ts::to_dlpack(x);
  EXPECT_EQ(int{array->dl_tensor.dtype.code}, code);
  EXPECT_EQ(array->dl_tensor.dtype.bits, 8 * sizeof(T));
  EXPECT_EQ(ts::to_host(ts::from_dlpack<T, 1>(array, mesh, {"y"})), values);
}
TEST(dlpack, floating_types_of_16_and_8_bits) {
  expect_there_and_back<ts::f16>(2);
  expect_there_and_back<ts::bf16>(4);
  expect_there_and_back<ts::f8_e4m3>(10);
  expect_there_and_back<ts::f8_e5m2>(12);
}

TEST(dlpack, arrays_that_do_not_fit_are_given_back) {
  Foreign foreign;
  expect_error(
      ts::errc::dtype_mismatch, [&] { ts::from_dlpack<std::int32_t, 2>(&foreign.managed, mesh); },
      "[from_dlpack] element type: DLPack type code 2 with 32 bits and 1 lanes is not i32", "dlpack_test.cpp:");
  expect_error(
      ts::errc::rank_mismatch, [&] { ts::from_dlpack<float, 1>(&foreign.managed, mesh); }, "2 dims");
  expect_error(
      ts::errc::spec_axis, [&] { ts::from_dlpack<float, 2>(&foreign.managed, mesh, {"z"}); }, "'z'");
  foreign.managed.dl_tensor.device.device_type = 2;
  expect_error(
      ts::errc::unsupported, [&] { ts::from_dlpack<float, 2>(&foreign.managed, mesh); }, "type 2");
  EXPECT_EQ(foreign.released, 4);
  ts::dlpack::DLManagedTensor* const none = nullptr;
  expect_error(
      ts::errc::host_data, [&] { ts::from_dlpack<float, 2>(none, mesh); },
      "[from_dlpack] array: the pointer is null at ");
  Foreign hollow;
  hollow.managed.dl_tensor.data = nullptr;
  expect_error(
      ts::errc::host_data, [&] { ts::from_dlpack<float, 2>(&hollow.managed, mesh); },
      "data: the pointer is null for f32[");
  auto* const later = ts::to_dlpack(ts::arange<float>(2, mesh));
  later->version.major = 2;
  expect_error(
      ts::errc::unsupported, [&] { ts::from_dlpack<float, 1>(later, mesh); }, "version 2");
}

}  // namespace
