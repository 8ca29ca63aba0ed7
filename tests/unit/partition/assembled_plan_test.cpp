#include <cstdint>
#include <string>
#include <tuple>
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
  EXPECT_EQ(assembled(along), 0);
  EXPECT_GT(along.plan.count(ts::Collective::permute), 0);
  const Planned across = planned<Matrix>(difference, {tensor(mesh, {16, 1026}, {{}, "model"})});
  EXPECT_EQ(assembled(across), 1);
  EXPECT_EQ(steps(across), 1u);
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
      ts::verify_plan(plan, made.program, made.views.data());
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
