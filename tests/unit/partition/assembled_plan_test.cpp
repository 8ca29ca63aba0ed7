#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "planned.hpp"
#include <gtest/gtest.h>

// Which slices, pads and concats a plan computes by steps, and which it leaves to the fused kernels that read them.

namespace {

namespace ts = tessera;
using namespace ts::tests;
using ts::ValueRole;

const ts::Mesh mesh({{"data", 2}, {"model", 4}});

template <class... Args> Planned planned(auto f, const std::vector<ts::ArgumentInfo>& arguments, bool fuse = true) {
  return Planned(ts::Traced<decltype(f), Args...>::program(), mesh, arguments, {.fuse_steps = fuse});
}
std::size_t steps(const Planned& made) { return made.plan.main().steps.size(); }
/// Fragments as text: "value [begin, end) from ...".
std::vector<std::string> fragments(const Planned& made) {
  std::vector<std::string> all;
  for (const ts::Fragment& own : made.plan.main().fragments) {
    std::string text = own.value < 0 ? "zeros" : ts::concat_text("%", own.value);
    for (std::size_t d = 0; d < own.box.begin.size(); ++d) {
      text += ts::concat_text(" [", own.box.begin[d], ",", own.box.end[d], ")");
      if (own.value >= 0) text += ts::concat_text(" from ", own.from[d]);
    }
    all.push_back(text);
  }
  return all;
}
int assembled(const Planned& made) {
  int count = 0;
  for (const ts::PlanValue& value : made.plan.main().values) count += value.role == ValueRole::assembled ? 1 : 0;
  return count;
}

constexpr auto difference = [](auto x) { return ts::roll<0>(x, 1) - x; };

TEST(AssembledPlan, AStencilIsOneStepWithoutScratch) {
  const Planned made = planned<Matrix>(difference, {tensor(mesh, {16, 256})});
  EXPECT_EQ(steps(made), 1u);
  EXPECT_EQ(made.plan.main().arena_bytes, 0);
  EXPECT_EQ(fragments(made),
            (std::vector<std::string>{"%1 [0,1) from 0 [0,256) from 0", "%2 [1,16) from 0 [0,256) from 0"}))
      << "the rows of two views of the argument";
  EXPECT_NE(made.text().find("read in 2 parts of %0"), std::string::npos) << made.text();
  EXPECT_EQ(steps(planned<Matrix>(difference, {tensor(mesh, {16, 256})}, false)), 2u) << "the reference of oracle mode";
}

TEST(AssembledPlan, PadsAndSlicesAreComposed) {
  constexpr auto f = [](auto x) {
    const auto padded = ts::pad<1>(ts::pad<0>(x, 1, 2), 1, 0);  // [19, 257]
    return ts::slice<1>(ts::slice<0>(padded, 2, 16), 0, 256) + x;
  };
  const Planned made = planned<Matrix>(f, {tensor(mesh, {16, 256})});
  EXPECT_EQ(steps(made), 1u);
  std::vector<std::string> last = fragments(made);
  ASSERT_GE(last.size(), 3u);
  last.erase(last.begin(), last.end() - 3);
  EXPECT_EQ(last, (std::vector<std::string>{"zeros [0,16) [0,1)", "%0 [0,15) from 1 [1,256) from 0",
                                            "zeros [15,16) [1,256)"}));
}

TEST(AssembledPlan, ValuesThatOtherStepsReadAreStored) {
  const std::vector<ts::ArgumentInfo> arguments{tensor(mesh, {16, 256})};
  constexpr auto returned = [](auto x) {
    const auto y = ts::roll<0>(x, 1);
    return std::tuple(y, y - x);
  };
  constexpr auto multiplied = [](auto x) {
    const auto y = ts::roll<0>(x, 1);
    return std::tuple(y - x, ts::matmul(y, ts::transpose<1, 0>(y)));
  };
  constexpr auto summed = [](auto x) { return ts::sum<1>(ts::roll<0>(x, 1) * x); };
  EXPECT_EQ(assembled(planned<Matrix>(returned, arguments)), 0);
  EXPECT_EQ(assembled(planned<Matrix>(multiplied, arguments)), 0);
  EXPECT_EQ(assembled(planned<Matrix>(summed, arguments)), 0) << "a reduction";
  EXPECT_EQ(assembled(planned<Matrix>(difference, {tensor(mesh, {8, 4})})), 0) << "short rows";
}

TEST(AssembledPlan, ADimThatIsSplitHasAHalo) {
  const Planned along = planned<Matrix>(difference, {tensor(mesh, {16, 256}, {"data"})});
  EXPECT_EQ(steps(along), 1u);
  EXPECT_EQ(along.collectives(), "permute data 1024\n") << "one row";
  EXPECT_EQ(along.plan.main().arena_bytes, 0);
  const Planned across = planned<Matrix>(difference, {tensor(mesh, {16, 1026}, {{}, "model"})});
  EXPECT_EQ(steps(across), 1u);
  EXPECT_EQ(across.collectives(), "") << "the other dim is split";
  const Planned both =
      planned<Matrix>([](auto x) { return ts::roll<0>(ts::roll<1>(x, 1), 1) + ts::roll<0>(x, 1) + ts::roll<1>(x, 1); },
                      {tensor(mesh, {16, 1024}, {"data", "model"})});
  EXPECT_EQ(steps(both), 1u);
  EXPECT_EQ(both.collectives(), "permute data 1024\npermute model 32\npermute data,model 4\n")
      << "a row, a column and a corner, each once although two operands read it";
}

TEST(AssembledPlan, StoresWhatMovesFarBetweenDevices) {
  const Planned few_rows = planned<Matrix>(difference, {tensor(mesh, {16, 256}, {"model"})});
  EXPECT_EQ(assembled(few_rows), 0) << "one of four rows";
  const Planned far = planned<Matrix, ts::Dim>([](auto x, auto n) { return ts::roll<0>(x, n) - x; },
                                               {tensor(mesh, {64, 256}, {"data"}), number(16)});
  EXPECT_EQ(assembled(far), 0);
  EXPECT_GT(far.plan.count(ts::Collective::permute), 0);
}

TEST(AssembledPlan, ARowOfStaticExtentLeavesTheOtherOperandsSplit) {
  const Planned token = planned<Matrix, ts::ShardedTensor<float, 1>>(
      [](auto x, auto y) { return ts::concat<0>(ts::unsqueeze<0>(y), x) * 2.f; },
      {tensor(mesh, {63, 256}, {"data"}), tensor(mesh, {256})});
  EXPECT_EQ(token.collectives(), "permute data 1024\n") << "row 31 of x is row 32 of the result";
  const Planned periodic = planned<Matrix>(
      [](auto x) {
        const auto padded = ts::pad<0, ts::PadMode::circular>(x, 1, 1);
        return ts::slice<0>(padded, 0, ts::extent<0>(x)) + ts::slice<0>(padded, 2, ts::extent<0>(x));
      },
      {tensor(mesh, {64, 256}, {"data"})});
  EXPECT_EQ(periodic.plan.count(ts::Collective::all_gather), 0) << periodic.text();
  EXPECT_EQ(periodic.plan.implicit_count(), 0) << periodic.text();
}

// ---- halos against a count of elements

struct Moved {
  std::int64_t rows, columns;
  bool periodic;
};

/// The bytes of each permute of stencils that read x[i - rows, j - columns], from the devices of each element alone.
std::map<unsigned, std::int64_t> bytes_by_axes(std::int64_t n, std::int64_t m, const ts::Sharding& sharding,
                                               const std::vector<Moved>& read) {
  const auto device_of = [&](std::int64_t i, std::int64_t j) {
    std::vector<int> at(2, 0);
    for (int d = 0; d < 2; ++d) {
      std::int64_t count = 1;
      for (const std::uint8_t axis : sharding.dims[d]) count *= mesh.axis_size(axis);
      const std::int64_t extent = d == 0 ? n : m, chunk = (extent + count - 1) / count;
      std::int64_t shard = (d == 0 ? i : j) / chunk;
      for (std::size_t a = sharding.dims[d].size(); a-- > 0; shard /= mesh.axis_size(sharding.dims[d][a]))
        at[sharding.dims[d][a]] = static_cast<int>(shard % mesh.axis_size(sharding.dims[d][a]));
    }
    return at;
  };
  std::set<std::tuple<std::vector<int>, std::int64_t, std::int64_t>> received;
  for (const Moved& own : read)
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < m; ++j) {
        std::int64_t row = i - own.rows, column = j - own.columns;
        if (own.periodic) row = (row + n) % n, column = (column + m) % m;
        if (row < 0 || column < 0) continue;
        if (device_of(i, j) != device_of(row, column)) received.insert({device_of(i, j), row, column});
      }
  std::map<std::pair<unsigned, std::vector<int>>, std::int64_t> sent;
  for (const auto& [reader, row, column] : received) {
    const std::vector<int> holder = device_of(row, column);
    sent[{(reader[0] != holder[0] ? 1u : 0u) | (reader[1] != holder[1] ? 2u : 0u), holder}] += 4;
  }
  std::map<unsigned, std::int64_t> most;
  for (const auto& [key, bytes] : sent) most[key.first] = std::max(most[key.first], bytes);
  return most;
}

TEST(AssembledPlan, HalosHaveTheBytesOfTheirElements) {
  constexpr auto cross = [](auto x, auto a, auto b) { return ts::roll<0>(x, a) + ts::roll<1>(x, b) - x; };
  constexpr auto corner = [](auto x, auto a, auto b) { return ts::roll<0>(ts::roll<1>(x, b), a) * x; };
  constexpr auto padded = [](auto x, auto a, auto b) {
    const auto all = ts::pad<0>(ts::pad<1>(x, b, 0), a, 0);
    return ts::slice<1>(ts::slice<0>(all, 0, ts::extent<0>(x)), 0, ts::extent<1>(x)) + x;
  };
  int compared = 0;
  for (const ts::PartitionSpec& spec : std::vector<ts::PartitionSpec>{
           {"data"}, {ts::none, "model"}, {"data", "model"}, {"model", "data"}, {{"data", "model"}}, {}})
    for (const auto& [n, m] : std::vector<std::pair<int, int>>{{64, 256}, {67, 261}, {61, 515}})
      for (const auto& [a, b] : std::vector<std::pair<int, int>>{{1, 1}, {1, 0}, {2, 5}, {0, 3}}) {
        const std::vector<ts::ArgumentInfo> arguments{tensor(mesh, {n, m}, spec), number(a), number(b)};
        const auto check = [&](const Planned& made, const std::vector<Moved>& read, const char* name) {
          if (steps(made) != 1) return;
          ++compared;
          std::map<unsigned, std::int64_t> planned_bytes;
          for (const ts::CollectiveInfo& own : made.plan.main().steps[0].collectives)
            planned_bytes[own.axes] += own.payload_bytes;
          EXPECT_EQ(planned_bytes, bytes_by_axes(n, m, arguments[0].sharding, read))
              << name << " " << n << " " << m << " " << a << " " << b << "\n"
              << made.text();
        };
        check(planned<Matrix, ts::Dim, ts::Dim>(cross, arguments), {{a, 0, true}, {0, b, true}}, "cross");
        check(planned<Matrix, ts::Dim, ts::Dim>(corner, arguments), {{a, b, true}}, "corner");
        check(planned<Matrix, ts::Dim, ts::Dim>(padded, arguments), {{a, b, false}}, "padded");
      }
  EXPECT_GT(compared, 100);
}

TEST(AssembledPlan, EmptyTensorsHaveNoFragments) {
  constexpr auto f = [](auto x) { return ts::pad<1>(x, 0, 1) * 2.f; };
  const Planned made = planned<Matrix>(f, {tensor(mesh, {0, 256})});
  EXPECT_EQ(assembled(made), 1);
  EXPECT_TRUE(fragments(made).empty());
  EXPECT_EQ(steps(made), 1u);
}

TEST(AssembledPlan, BrokenFragmentsAreRefused) {
  const Planned made = planned<Matrix>(difference, {tensor(mesh, {16, 256})});
  const auto refused = [&](auto&& change) {
    ts::Plan plan = made.plan;
    change(plan.graphs[0].fragments);
    try {
      ts::verify_plan(plan, made.program, made.units.views.data());
    } catch (const ts::error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused([](auto&) {}), "");
  EXPECT_NE(refused([](auto& own) { own[1].box.end[0] = 15; }).find("fragments cover a value"), std::string::npos);
  EXPECT_NE(refused([](auto& own) { own[1].box.begin[0] = 0; }).find("do not overlap"), std::string::npos);
  EXPECT_NE(refused([](auto& own) { own[1].from[0] = 1; }).find("a box of both values"), std::string::npos);
  EXPECT_NE(refused([](auto& own) { own[1].value = 4; }), "");
}

}  // namespace
