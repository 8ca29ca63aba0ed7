#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <vector>

#include "../base/expect_error.hpp"
#include "double_tensors.hpp"
#include <gtest/gtest.h>

#include <tessera/tensor/oracle.hpp>
#include <tessera/tessera.hpp>

namespace ts = tessera;
using tessera_test::devices;
using tessera_test::Double;
using tessera_test::expect_error;
using tessera_test::random_values;

namespace {

struct Trapezoid {
  static constexpr std::string_view name = "trapezoid";
  static constexpr std::string_view signature = "(n),(n)->()";
  template <class T>
  static void run(ts::CallArray<const T, 1> x, ts::CallArray<const T, 1> y, ts::CallArray<T, 0> area) {
    area() = 0;
    for (std::int64_t i = 1; i < x.extent(0); ++i) area() += (x(i) - x(i - 1)) * (y(i) + y(i - 1)) / 2;
  }
};
/// The differences of neighbours, and how many are positive.
struct Differences {
  static constexpr std::string_view name = "differences";
  static constexpr std::string_view signature = "(n)->(m),()";
  static constexpr std::int64_t extent(char, const ts::CallExtents& known) { return known['n'] - 1; }
  template <class... T> using results = std::tuple<T..., std::int32_t>;
  template <class T>
  static void run(ts::CallArray<const T, 1> x, ts::CallArray<T, 1> steps, ts::CallArray<std::int32_t, 0> rising) {
    rising() = 0;
    for (std::int64_t i = 0; i < steps.extent(0); ++i) {
      steps(i) = x(i + 1) - x(i);
      if (steps(i) > 0) ++rising();
    }
  }
};
struct Throws {
  static constexpr std::string_view name = "throws";
  static constexpr std::string_view signature = "(n)->(n)";
  template <class T> static void run(ts::CallArray<const T, 1>, ts::CallArray<T, 1>) {
    throw std::runtime_error("from the function");
  }
};

// g++ cannot compare addresses inside of a temporary of a constant expression.
constexpr ts::CallSignature signature_of(std::string_view text) {
  const ts::CallSignature made(text);
  return made;
}
static_assert(signature_of("(n,n),(n,k)->(n,k)").valid && signature_of("(n)->(), (3)").result_count == 2);
static_assert(!signature_of("n->n").valid && !signature_of("(n)").valid && !signature_of("(n)->(N)").valid);

TEST(CustomCall, KeepsBatchDimsSplitAndGathersCoreDims) {
  constexpr auto areas = ts::compile([](auto x, auto y) {
    const auto [steps, rising] = ts::custom_call<Differences>(x);
    return std::tuple(ts::custom_call<Trapezoid>(x, y), steps, rising);
  });
  const std::vector<float> x{0, 1, 3, 0, 2, 1, 1, 1, 1, 1, 4, 3, 2, 0, 5},
      y{1, 1, 1, 2, 2, 2, 0, 1, 0, 1, 0, 1, 1, 2, 3};
  const std::vector<float> area{3, 2, 0, 1, 9.5F};
  const std::vector<std::int32_t> rising{2, 1, 0, 1, 1};
  for (const ts::PartitionSpec& spec :
       {ts::PartitionSpec{}, ts::PartitionSpec{"data"}, ts::PartitionSpec{{"model", "data"}, ts::none},
        ts::PartitionSpec{ts::none, "model"}, ts::PartitionSpec{"data", "model"}}) {
    const auto xs = ts::shard(x, {5, 3}, devices, spec), ys = ts::shard(y, {5, 3}, devices, spec);
    const ts::OracleScope same_on_one_device;
    const auto [areas_of, steps, positive] = areas(xs, ys);
    EXPECT_EQ(ts::to_host(areas_of), area);
    EXPECT_EQ(ts::shape(steps), (ts::Shape{5, 2}));
    EXPECT_EQ(ts::to_host(positive), rising);
  }
  const auto on_batch = ts::shard(x, {5, 3}, devices, {"data"});
  EXPECT_EQ(areas.plan(on_batch, on_batch).wire_bytes(), 0);
  // A core dim whose axis divides the batch moves there; otherwise it is gathered.
  const auto even = ts::shard(std::vector<float>(12, 1), {4, 3}, devices, {ts::none, "model"});
  EXPECT_GT(areas.plan(even, even).count(ts::all_to_all), 0);
  EXPECT_EQ(areas.plan(even, even).count(ts::all_gather), 0);
  const auto odd = ts::shard(x, {5, 3}, devices, {ts::none, "model"});
  EXPECT_GT(areas.plan(odd, odd).count(ts::all_gather), 0);
}

TEST(CustomCall, BroadcastsBatchDimsAndTakesExpressions) {
  const auto x = ts::shard(std::vector<double>{0, 1, 2}, {3}, devices);
  const auto y = ts::shard(std::vector<double>{1, 2, 3, 4, 5, 6}, {2, 3}, devices, {"data"});
  const Double<1> areas = ts::custom_call<Trapezoid>(x + 1.0, y * 2.0);
  EXPECT_EQ(ts::to_host(areas), (std::vector<double>{8, 20}));
  const auto none = ts::shard(std::vector<double>{}, {0, 3}, devices, {"data"});
  EXPECT_EQ(ts::shape(Double<1>(ts::custom_call<Trapezoid>(none, none))), (ts::Shape{0}));
}

TEST(CustomCall, Errors) {
  const auto x = ts::shard(std::vector<double>{0, 1, 2}, {3}, devices);
  const auto longer = ts::shard(std::vector<double>{0, 1, 2, 3}, {4}, devices);
  expect_error(
      ts::errc::shape_mismatch, [&] { ts::eval(ts::custom_call<Trapezoid>(x, longer)); }, "[trapezoid]",
      "extents of n differ");
  const auto two = ts::shard(std::vector<double>(6), {2, 3}, devices),
             three = ts::shard(std::vector<double>(9), {3, 3}, devices);
  expect_error(
      ts::errc::shape_mismatch, [&] { ts::eval(ts::custom_call<Trapezoid>(two, three)); }, "[trapezoid]", "batch dims");
  EXPECT_THROW(ts::eval(ts::custom_call<Throws>(two)), std::runtime_error);
  expect_error(
      ts::errc::unsupported,
      [] {
        oracle::trace<decltype([](const auto& v) {
                        return ts::grad([](const auto& w) { return ts::sum(ts::custom_call<Throws>(w)); })(v);
                      }),
                      Double<1>>();
      },
      "[custom_call] gradient", "custom_vjp");
}

}  // namespace
