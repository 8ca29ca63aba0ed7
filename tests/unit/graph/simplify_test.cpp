#include "../../support/untyped.hpp"

#include <tessera/graph/transform/simplify.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

TEST(Simplify, EqualExpressionsAreOneNode) {
  const auto f = [](const auto& x, const auto& y) {
    const auto a = ts::exp(x * y) + ts::exp(x * y);
    return a * ts::sum<1>(ts::exp(x * y), ts::keepdims) + ts::sum<1>(ts::exp(x * y));
  };
  const Program program = trace<decltype(f), Float<2>, Float<2>>();
  EXPECT_EQ(program.count(Op::mul), 2);
  EXPECT_EQ(program.count(Op::exp), 1);
  EXPECT_EQ(program.count(Op::sum), 2);  // with and without keepdims
}

TEST(Simplify, AttributesTellNodesApart) {
  const auto f = [](const auto& x) {
    return std::tuple(ts::iota<0, float>(x), ts::iota<1, float>(x), ts::iota<1, std::int32_t>(x), ts::max<0>(x),
                      ts::max<1>(x), ts::transpose<0, 1, 2>(x), ts::transpose<1, 0, 2>(x), ts::transpose<2, 0, 1>(x),
                      x * 2, x * 3);
  };
  const Program program = trace<decltype(f), Float<3>>();
  for (int i = 0; i < program.main().output_count; ++i)
    for (int j = 0; j < i; ++j) EXPECT_NE(program.main().outputs[i], program.main().outputs[j]) << i << " " << j;
  EXPECT_EQ(program.main()[program.main().outputs[5]].op, Op::argument);  // the identity moves nothing
}

TEST(Simplify, NumbersAreFolded) {
  UntypedProgram program;
  const ts::Value x = program.argument(1);
  const ts::Value a = x.number(2), b = x.number(8);
  const ts::Value folded = -((a + b) * a - b / a);  // -16
  program.output(x * folded);
  program.output(ts::build::binary(Op::maximum, a, b));
  program.output(ts::build::cast(program.number(7), ts::DType::f32) + a);
  const Program made = program.finish();
  EXPECT_EQ(made.count(Op::mul), 1);
  EXPECT_EQ(
      made.count(Op::sub) + made.count(Op::div) + made.count(Op::neg) + made.count(Op::add) + made.count(Op::maximum),
      0);
  const auto out = run(made.view(), {Array({2}, {1, -2})});
  EXPECT_EQ(out[0].data, (std::vector<double>{-16, 32}));
  EXPECT_EQ(out[1].data[0], 8);
  EXPECT_EQ(out[2].data[0], 9);
}

TEST(Simplify, NeutralNumbersAddNoNodes) {
  const auto f = [](const auto& x, const auto& y) {
    return ts::value_and_grad([](const auto& a, const auto& b) { return ts::sum(a * b); })(x, y);
  };
  // The cotangent is 1 everywhere: the gradient is the other operand.
  const Program program = trace<decltype(f), Float<2>, Float<2>>();
  EXPECT_EQ(program.main().size, 4);
  EXPECT_EQ(program.main()[program.main().outputs[1]].index(), 1);
}

TEST(Simplify, NothingUnusedIsLeft) {
  const auto g = [](const auto& x, const auto& y, const auto& unused) {
    const auto dead = ts::exp(ts::matmul(x, unused));
    (void)dead;
    return std::get<1>(
        ts::value_and_grad([](const auto& a, const auto& b) { return ts::sum(ts::gelu(ts::matmul(a, b)) * a); })(x, y));
  };
  const Program program = trace<decltype(g), Float<2>, Float<2>, Float<2>>();
  EXPECT_EQ(program.argument_count, 3);
  EXPECT_EQ(program.count(Op::argument), 2);
  EXPECT_EQ(program.count(Op::exp), 0);
  std::vector<int> uses(static_cast<std::size_t>(program.main().size));
  for (int id = 0; id < program.main().size; ++id)
    for (int i = 0; i < program.main()[id].arity; ++i) ++uses[static_cast<std::size_t>(program.main().operand(id, i))];
  for (int k = 0; k < program.main().output_count; ++k) ++uses[static_cast<std::size_t>(program.main().outputs[k])];
  for (int n : uses) EXPECT_GT(n, 0);
}

// What a program computes does not depend on its being simplified.
TEST(Simplify, KeepsTheMeaning) {
  std::mt19937 engine(3);
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE(round);
    const auto seed = static_cast<unsigned>(engine());
    const auto make = [&] {
      std::mt19937 choices(seed);
      const auto pick = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(choices); };
      UntypedProgram program;
      std::vector<ts::Value> values{program.argument(2), program.argument(2), program.argument(2, 0b10)};
      values.push_back(values[0].number(0.5));
      values.push_back(values[0].number(1));
      for (int step = 0; step < 12; ++step) {
        const ts::Value a = values[pick(values.size())], b = values[pick(values.size())];
        switch (pick(7)) {
          case 0:
            values.push_back(a + b);
            break;
          case 1:
            values.push_back(a * b);
            break;
          case 2:
            values.push_back(a - b);
            break;
          case 3:
            values.push_back(-a);
            break;
          case 4:
            values.push_back(ts::build::unary(Op::tanh, a));
            break;
          case 5:
            values.push_back(ts::build::broadcast(a, values[0]));
            break;
          default:
            values.push_back(a.rank() == 2 ? ts::build::reduce(Op::sum, a, 0b10, true) : a);
            break;
        }
      }
      program.output_gradients(ts::build::broadcast(values.back(), values[0]));
      return program;
    };
    UntypedProgram plain = make(), simplified = make();
    const std::vector<Array> arguments{random_array({2, 3}, 1), random_array({2, 3}, 2), random_array({2, 1}, 3),
                                       random_array({2, 3}, 4)};
    const Program before = plain.finish(false), after = simplified.finish();
    EXPECT_LE(after.main().size, before.main().size);
    const auto want = run(before.view(), arguments), got = run(after.view(), arguments);
    for (std::size_t k = 0; k < want.size(); ++k) expect_near(got[k], want[k], 1e-12, std::to_string(k));
    check_against_differences(after, arguments, {true, true, true});
    if (HasFatalFailure()) return;
  }
}

}  // namespace
