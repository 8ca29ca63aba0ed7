#include "../../support/gradients.hpp"

#include <tessera/graph/trace/trace.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

const Node& output(const Program& program, int k) { return program.main()[program.main().outputs[k]]; }

TEST(Trace, NodesKnowTheLineThatWroteThem) {
  constexpr std::uint32_t first = __LINE__ + 2;
  const auto f = [](const auto& x, const auto& y) {
    const auto sum = x + y;
    const auto product = ts::matmul(x, y);
    const auto ratio = x / y;
    const auto mean = ts::mean<0>(x);
    const auto soft = ts::softmax(x);
    const auto negative = -x;
    const auto scaled = 2 * x;
    const auto less = x < y;
    return std::tuple(sum, product, ratio, mean, soft, negative, scaled, less);
  };
  const Program program = trace<decltype(f), Float<2>, Float<2>>();
  for (int k = 0; k < 8; ++k) {
    const std::uint32_t line = first + static_cast<std::uint32_t>(k);
    EXPECT_EQ(output(program, k).source.line, line);
    EXPECT_EQ(output(program, k).source.text(), "trace_test.cpp:" + std::to_string(line));
  }
}

TEST(Trace, GradientsKnowTheLineOfWhatTheyAreTheGradientOf) {
  constexpr std::uint32_t line = __LINE__ + 2;
  const auto loss = [](const auto& w, const auto& x) {
    const auto y = ts::matmul(x, w);
    return ts::mean(y * y);
  };
  const auto f = [](const auto& w, const auto& x) {
    return ts::value_and_grad([](const auto& a, const auto& b) { return decltype(loss){}(a, b); })(w, x);
  };
  const Program program = trace<decltype(f), Float<2>, Float<2>>();
  EXPECT_EQ(program.count(Op::einsum), 2);
  EXPECT_EQ(output(program, 1).op, Op::einsum);
  EXPECT_EQ(output(program, 1).source.line, line);
}

struct Pair {
  Float<2> w;
  Float<1> b;
  ts::Dim n;
  ts::Scalar s;
};

TEST(Trace, LeavesInOrderOfDeclaration) {
  const auto f = [](const std::tuple<Pair, Int<1>>& in, const auto& x) {
    const Pair& p = std::get<0>(in);
    return std::tuple(p, std::get<1>(in), x * p.s);
  };
  const Program program = trace<decltype(f), std::tuple<Pair, Int<1>>, Float<2>>();
  EXPECT_EQ(program.argument_count, 6);
  ASSERT_EQ(program.main().output_count, 6);
  const Op ops[] = {Op::argument, Op::argument, Op::dim, Op::scalar, Op::argument};
  for (int k = 0; k < 5; ++k) {
    EXPECT_EQ(output(program, k).op, ops[k]);
    EXPECT_EQ(output(program, k).index(), k);
  }
  EXPECT_EQ(output(program, 4).dtype, ts::DType::i32);
}

// Placeholders of a model's fields build expressions; those of arguments are nodes at once. Both end as one graph.
TEST(Trace, ExpressionsAndPlaceholdersMeet) {
  const auto with_fields = [](const Pair& p, const auto& x) { return ts::relu(p.w * p.s + p.b) * x - ts::sum<0>(p.w); };
  const auto with_arguments = [](const auto& w, const auto& b, const ts::Dim&, const ts::Scalar& s, const auto& x) {
    return ts::relu(w * s + b) * x - ts::sum<0>(w);
  };
  const Program fields = trace<decltype(with_fields), Pair, Float<2>>();
  const Program arguments = trace<decltype(with_arguments), Float<2>, Float<1>, ts::Dim, ts::Scalar, Float<2>>();
  const std::vector<Array> values{random_array({2, 3}, 1), random_array({3}, 2), Array::number(1), Array::number(0.3),
                                  random_array({2, 3}, 4)};
  EXPECT_EQ(fields.main().size, arguments.main().size);
  expect_near(run(fields.view(), values)[0], run(arguments.view(), values)[0], 1e-15);
}

TEST(Trace, MistakesAreNamed) {
  EXPECT_THROW((trace<decltype([](const auto& x) { return x * Float<2>(); }), Float<2>>()),
               ts::error);                                                                         // data in a trace
  EXPECT_THROW((trace<decltype([](const auto&) { return Float<2>(); }), Float<2>>()), ts::error);  // not computed
}

TEST(Gradient, ReachesEverySourceInFull) {
  const auto f = [](const auto& x, const auto& unused, const auto& ids) {
    return ts::value_and_grad([](const auto& all) {
      const auto& [a, b, c] = all;
      (void)b;
      return ts::sum(a * 2) + ts::sum(ts::cast<float>(c));
    })(std::tuple(x, unused, ids));
  };
  const Program program = trace<decltype(f), Float<2>, Float<1>, Int<1>>();
  const auto out = run(program.view(), {random_array({2, 3}, 1), random_array({4}, 2), Array({2}, {3, 4})});
  EXPECT_EQ(out[1].shape, (Shape{2, 3}));
  EXPECT_EQ(out[1].data, std::vector<double>(6, 2));
  EXPECT_EQ(out[2].data, std::vector<double>(4, 0));
  EXPECT_EQ(out[3].data, (std::vector<double>{3, 4}));
}

// The cotangent of a sum has one element; where it is broadcast, it counts once for every element.
TEST(Gradient, CountsWhatAConstantCotangentReaches) {
  const auto f = [](const auto& x, const auto& bias, const auto& column, const auto& scale) {
    return ts::value_and_grad([](const auto& all) {
      const auto& [a, b, c, s] = all;
      return ts::sum(a + b) + ts::mean((a - ts::unsqueeze<1>(c)) * 0.5) + ts::sum(ts::broadcast_like(s, a));
    })(std::tuple(x, bias, column, scale));
  };
  const Program program = trace<decltype(f), Float<2>, Float<1>, Float<1>, Float<0>>();
  check_against_differences(program,
                            {random_array({2, 3}, 1), random_array({3}, 2), random_array({2}, 3), random_array({}, 4)},
                            {true, true, true, true});
}

TEST(Gradient, AddsUpOverUses) {
  check_gradient<Float<2>>(
      [](const auto& x) {
        const auto y = ts::tanh(x);
        return y * y + ts::matmul(y, ts::transpose<1, 0>(x)) * ts::sum(y);
      },
      {random_array({3, 3}, 1)});
}

}  // namespace
