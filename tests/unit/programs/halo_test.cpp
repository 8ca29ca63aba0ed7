#include <cstdint>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/tensor/compare.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;

namespace {

constexpr auto program = ts::compile([](auto x, auto before, auto after, auto start, auto size) {
  return ts::value_and_grad([](const auto& v, auto b, auto a, auto s, auto n) {
    const auto padded = ts::pad<0>(v, b, a), cut = ts::slice<0>(v, s, n), joined = ts::concat<0>(cut, v, padded);
    const auto cube = [](const auto& y) { return ts::sum(y * y * y); };
    return std::tuple(cube(padded) + 2.0 * cube(cut) + 3.0 * cube(joined), padded, cut, joined);
  })(x, before, after, start, size);
});

/// Rows of `width` elements.
struct Rows {
  std::int64_t width;
  std::vector<float> values;

  void append(const Rows& other, std::int64_t begin, std::int64_t count) {
    values.insert(values.end(), other.values.begin() + begin * width, other.values.begin() + (begin + count) * width);
  }
  void append_zeros(std::int64_t count) { values.insert(values.end(), static_cast<std::size_t>(count * width), 0.f); }
};

void expect_dense(const ts::Mesh& mesh, const ts::PartitionSpec& spec, std::int64_t n, std::int64_t start,
                  std::int64_t size, std::int64_t before, std::int64_t after) {
  SCOPED_TRACE(ts::concat_text(mesh.text(), " ", spec.text(), " ", n, " rows, ", size, " from ", start, ", padded by ",
                               before, " and ", after));
  Rows x{3, {}}, padded{3, {}}, cut{3, {}}, joined{3, {}};
  for (std::int64_t i = 0; i < 3 * n; ++i) x.values.push_back(static_cast<float>((i * 7 + 3) % 11) - 4.f);
  padded.append_zeros(before);
  padded.append(x, 0, n);
  padded.append_zeros(after);
  cut.append(x, start, size);
  joined.append(cut, 0, size);
  joined.append(x, 0, n);
  joined.append(padded, 0, before + n + after);

  const auto in = ts::shard(x.values, {n, 3}, mesh, spec);
  const ts::Plan plan = program.plan(in, ts::Dim(before), ts::Dim(after), ts::Dim(start), ts::Dim(size));
  ts::CommunicationScope ran;
  const auto [value, gradient] = program(in, ts::Dim(before), ts::Dim(after), ts::Dim(start), ts::Dim(size));
  EXPECT_EQ(ts::to_host(std::get<1>(value)), padded.values);
  EXPECT_EQ(ts::to_host(std::get<2>(value)), cut.values);
  EXPECT_EQ(ts::to_host(std::get<3>(value)), joined.values);
  // Each element of x is cubed once for each time that it occurs in a result.
  std::vector<float> slopes;
  for (std::int64_t i = 0; i < 3 * n; ++i) {
    const float v = x.values[static_cast<std::size_t>(i)], times = i / 3 >= start && i / 3 < start + size ? 5.f : 0.f;
    slopes.push_back(3 * v * v * (7 + times));
  }
  EXPECT_EQ(ts::to_host(gradient), slopes);
  EXPECT_TRUE(ts::same_sharded_type(gradient, in));
  // The collectives that ran, counted where rows were copied, are those of the plan.
  EXPECT_EQ(ran.count(ts::Collective::permute), plan.count(ts::Collective::permute));
  EXPECT_EQ(ran.payload_bytes(ts::Collective::permute), plan.payload_bytes(ts::Collective::permute));
  EXPECT_EQ(ran.wire_bytes(), plan.wire_bytes());
  EXPECT_EQ(plan.count(ts::all_gather), 0);
  EXPECT_EQ(plan.implicit_count(), 0);
}

}  // namespace

TEST(ProgramsHalo, EverySliceOfAFewRows) {
  int cases = 0;
  for (const int devices : {2, 3, 4}) {
    const ts::Mesh mesh({{"x", devices}});
    for (std::int64_t n = 0; n <= 7; ++n)
      for (std::int64_t start = 0; start <= n; ++start)
        for (std::int64_t size = 0; start + size <= n; ++size, ++cases)
          expect_dense(mesh, {"x"}, n, start, size, cases % 4, cases % 3);
  }
}

TEST(ProgramsHalo, DimsOverTwoAxesAndBesideOthers) {
  const ts::Mesh mesh({{"x", 2}, {"y", 3}}, {5, 4, 3, 2, 1, 0});
  for (const ts::PartitionSpec& spec :
       {ts::PartitionSpec{{"x", "y"}}, {{"y", "x"}}, {"y"}, {"x", "y"}, {"y", "x"}, {ts::none, {"x", "y"}}})
    for (const std::int64_t n : {1, 6, 11, 13})
      for (const std::int64_t start : {0, 1, 4})
        for (const std::int64_t size : {0, 1, 5, 9})
          if (start + size <= n) expect_dense(mesh, spec, n, start, size, start, size % 4);
}
