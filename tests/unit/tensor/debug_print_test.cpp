#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/print/debug_print.hpp>

namespace ts = tessera;

namespace {

template <class F> std::string printed(const F& f) {
  testing::internal::CaptureStdout();
  f();
  return testing::internal::GetCapturedStdout();
}

constexpr auto program = ts::compile([](const auto& x) {
  const auto [loss, gradient] = ts::value_and_grad([](const auto& v) {
    const auto seen = ts::debug_print<"x">(v);
    return ts::debug_print<"loss">(ts::sum(seen * seen));
  })(x);
  const auto step = [](const auto& carry, const auto& row) {
    return std::tuple(ts::debug_print<"carry">(carry + row), std::tuple());
  };
  return std::tuple(loss, gradient, std::get<0>(ts::scan(step, ts::zeros_like(ts::sum<0>(x)), x)));
});

// A split tensor is printed once, as a whole, and stays split; a loop prints in each step.
TEST(DebugPrint, PrintsWholeTensorsWhenTheProgramRuns) {
  const std::string want =
      "x f32[3,2]\n[[ 1.    2.5 ]\n [ 3.    4.25]\n [ 5.   -0.  ]]\n"
      "loss f32[] 59.3125\ncarry f32[2] [1.  2.5]\ncarry f32[2] [4.   6.75]\ncarry f32[2] [9.   6.75]\n";
  for (const int devices : {1, 2, 4}) {
    const ts::Mesh mesh({{"x", devices}});
    const auto x = ts::shard<float>({{1, 2.5}, {3, 4.25}, {5, -0.f}}, mesh, {"x"});
    const auto run = [&] {
      const auto [loss, gradient, sum] = program(x);
      EXPECT_EQ(ts::item(loss), 59.3125f);
      EXPECT_EQ(ts::to_host(gradient), (std::vector<float>{2, 5, 6, 8.5, 10, 0}));
      EXPECT_EQ(ts::to_host(sum), (std::vector<float>{9, 6.75}));
      if (devices > 1) EXPECT_EQ(ts::sharding(gradient), ts::sharding(x));
    };
    EXPECT_EQ(printed(run), want);
    EXPECT_EQ(printed(run), want);
  }
}

// Elements are what they are, bit for bit, of all element types.
TEST(DebugPrint, ChangesNoElement) {
  const ts::Mesh mesh({{"x", 2}});
  const auto x = ts::shard<float>({0, -0.f, -INFINITY, 3}, mesh, {"x"});
  const auto text = printed([&] {
    const std::vector<float> same = ts::to_host(ts::debug_print<"x">(x));
    EXPECT_TRUE(std::signbit(same[1]) && !std::signbit(same[0]));
    EXPECT_EQ(same, ts::to_host(x));
    EXPECT_EQ(ts::to_host(ts::debug_print<"mask">(x > 1)), (std::vector<bool>{false, false, false, true}));
    EXPECT_EQ(ts::to_host(ts::debug_print<"i">(ts::cast<std::int8_t>(ts::abs(x) + 1 < 9)))[3], 1);
    EXPECT_EQ(static_cast<float>(ts::to_host(ts::debug_print<"h">(ts::cast<ts::bf16>(x)))[3]), 3.f);
  });
  EXPECT_EQ(text, "x f32[4] [  0.  -0. -inf   3.]\nmask bool[4] [False False False  True]\ni i8[4] [1 1 0 1]\n"
                  "h bf16[4] [  0.  -0. -inf   3.]\n");
}

}  // namespace
