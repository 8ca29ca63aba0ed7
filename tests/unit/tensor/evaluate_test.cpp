#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/print.hpp>
#include <tessera/tensor/reshard.hpp>

namespace ts = tessera;

namespace {

constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});

std::vector<float> values(const auto& expression) { return ts::to_host(ts::eval(expression)); }

// Sizes are numbers that a plan needs, other numbers aren't: both work as literals and as variables.
TEST(Expressions, TakeSizesAsNumbers) {
  const auto x = ts::reshard(ts::arange<float>(12, mesh), {"data"});
  EXPECT_EQ(values(ts::slice<0>(x, 5, 3)), (std::vector<float>{5, 6, 7}));
  for (int start = 0; start < 3; ++start)
    EXPECT_EQ(values(ts::slice<0>(x, start, 2)), (std::vector<float>{1.f * start, 1.f + start}));
  EXPECT_EQ(values(ts::pad<0>(ts::slice<0>(x, 1, 1), 1, ts::Dim(2))), (std::vector<float>{0, 1, 0, 0}));
  const auto grid = ts::eval(ts::split_dim<0>(x, 4));
  EXPECT_EQ(ts::shape(grid), (ts::Shape{3, 4}));
  const auto swapped = ts::eval(ts::rearrange<"(a b) -> b a">(x, ts::len<"a">(2)));
  EXPECT_EQ(ts::shape(swapped), (ts::Shape{6, 2}));
  EXPECT_EQ(values(swapped * 2 + 1)[1], 2 * 6 + 1);
}

TEST(Expressions, NameTheLineOfASizeThatDoesNotFit) {
  const auto x = ts::arange<float>(8, mesh);
  constexpr int line = __LINE__ + 2;
  try {
    (void)ts::eval(ts::slice<0>(x, 5, 5));
    FAIL() << "nothing was thrown";
  } catch (const ts::error& e) {
    EXPECT_EQ(e.id(), ts::errc::shape_mismatch);
    EXPECT_EQ(std::string(e.what()),
              "[slice] the range is not inside the dim: f32[8], 5, 5 at evaluate_test.cpp:" + std::to_string(line));
  }
}

constexpr int compiled_line = __LINE__ + 1;
constexpr auto product = ts::compile([](auto a, auto b) { return ts::matmul(a, b); });

TEST(CompiledFunctions, SayWhereTheyWereCompiledWhenMemoryIsOut) {
  const auto a = ts::zeros<float>({1 << 24, 1}, mesh), b = ts::zeros<float>({1, 1 << 24}, mesh);
  try {
    product(a, b);
    FAIL() << "nothing was thrown";
  } catch (const ts::error& e) {
    EXPECT_EQ(e.id(), ts::errc::capacity);
    EXPECT_EQ(
        std::string(e.what()),
        "[buffer] memory: the system has no block of 1125899906842624 bytes, in a call of the function compiled at "
        "evaluate_test.cpp:" +
            std::to_string(compiled_line));
  }
  EXPECT_EQ(ts::item(ts::sum(a)), 0);
  EXPECT_EQ(ts::to_host(ts::abs(a)), ts::to_host(a));
}

TEST(evaluate, an_expression_prints_what_it_is) {
  const auto x = ts::ones<float>({2, 2}, ts::Mesh({{"x", 2}}), {"x"});
  std::ostringstream out;
  out << ts::sum(x) << "\n" << x + x << "\n" << ts::to_string(x / 3, {.precision = 2});
  EXPECT_EQ(out.str(), "4.\nf32[]{} on mesh(x=2)\n[[2. 2.]\n [2. 2.]]\nf32[2,2]{x,-} on mesh(x=2)\n"
                       "[[0.33 0.33]\n [0.33 0.33]]\nf32[2,2]{x,-} on mesh(x=2)");
}

}  // namespace
